//! The operator is killed between any two of its writes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use axum::{
    body::Bytes,
    http::{Method, StatusCode, request::Parts},
};
use belay::api::{Phase, ReleasePlanStatus, ReleaseResult};
use belay_testenv::Operator;
use futures::future::BoxFuture;

use crate::{
    proxy::{self, Meddler},
    recovery::cluster,
    support::{SOON, Scene, plan},
    witness::image_in,
};

const NAMESPACE: &str = "killed";
/// Kills in one release are this many writes apart. Rounds that begin at each
/// of them put one after every write.
const STRIDE: i64 = 10;

/// Kills the operator after a number of its writes to a namespace. Events are
/// not counted: nothing is decided between a status and what is told of it.
#[derive(Default)]
pub struct Killer {
    counts: Mutex<BTreeMap<String, Count>>,
    operator: OnceLock<Arc<Operator>>,
    pub killed: Arc<tokio::sync::Notify>,
}

#[derive(Clone, Copy, Default)]
pub struct Count {
    /// Writes until the next kill; none at zero.
    left: i64,
    /// Kills so far.
    pub kills: i64,
    /// Writes so far.
    pub writes: i64,
}

impl Killer {
    /// Starts the operator that is to be killed.
    pub async fn operator(
        self: &Arc<Self>,
        cluster: &Arc<belay_testenv::Cluster>,
    ) -> Arc<Operator> {
        let operator = Arc::new(proxy::operator(cluster, self.clone()).await);
        assert!(self.operator.set(Arc::clone(&operator)).is_ok());
        operator
    }

    /// Kills after this many writes to a namespace from now; never at zero.
    pub fn arm(&self, namespace: &str, left: i64) {
        let mut counts = self.counts.lock().unwrap();
        counts.entry(namespace.to_owned()).or_default().left = left;
    }

    pub fn count(&self, namespace: &str) -> Count {
        let counts = self.counts.lock().unwrap();
        counts.get(namespace).copied().unwrap_or_default()
    }

    /// Counts a write; whether it is the last of this life.
    fn is_last(&self, namespace: &str) -> bool {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(namespace.to_owned()).or_default();
        count.writes += 1;
        if count.left == 0 {
            return false;
        }
        count.left -= 1;
        if count.left == 0 {
            count.kills += 1;
        }
        count.left == 0
    }
}

impl Meddler for Killer {
    fn after<'a>(
        &'a self,
        parts: &'a Parts,
        _: &'a Bytes,
        status: StatusCode,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let path = parts.uri.path();
            let Some((_, inside)) = path.split_once("/namespaces/") else {
                return;
            };
            let Some((namespace, of)) = inside.split_once('/') else {
                return;
            };
            let dry = parts.uri.query().unwrap_or_default().contains("dryRun");
            if parts.method == Method::GET || of == "events" || dry || !status.is_success() {
                return;
            }
            if self.is_last(namespace) {
                let operator = Arc::clone(self.operator.get().unwrap());
                let killed = Arc::clone(&self.killed);
                // This future ends with the connection, so with the operator.
                let kill = move || {
                    // The kill of another namespace may have come first.
                    let _ = operator.kill();
                    killed.notify_one();
                };
                tokio::task::spawn_blocking(kill).await.unwrap();
            }
        })
    }
}

const NAMES: [&str; 3] = ["cart", "web", "pay"];

fn with(tags: [&str; 3]) -> String {
    let images: Vec<String> = NAMES
        .iter()
        .zip(tags)
        .map(|(name, tag)| format!("shop/{name}:{tag}"))
        .collect();
    let pairs: Vec<_> = NAMES
        .iter()
        .copied()
        .zip(images.iter().map(String::as_str))
        .collect();
    plan("shop", &pairs, "")
}

/// How often each workload was written with a tag.
async fn written(scene: &Scene, tag: &str) -> [usize; 3] {
    let writes = scene.writes_to_deployments().await;
    NAMES.map(|name| {
        let image = format!("shop/{name}:{tag}");
        writes
            .iter()
            .filter(|w| w.name == name)
            .filter_map(|w| image_in(w.request_object.as_ref()?))
            .filter(|written| *written == image)
            .count()
    })
}

/// Three components, the third broken, and SIGKILL between any two writes of
/// the release and its rollback: all three are back, each restored exactly
/// once, and the release is recorded once.
#[tokio::test(flavor = "multi_thread")]
async fn ha_04_killed_between_any_two_writes_it_comes_to_the_same_end() {
    let cluster = cluster().await;
    let killer = Arc::new(Killer::default());
    let operator = killer.operator(&cluster).await;
    let scene = Scene::on(&cluster, NAMESPACE).await;
    for name in NAMES {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    scene.apply(&with(["1", "1", "1"])).await;
    let stable = scene.ready("shop").await.stable_revision;
    let mut before = Vec::new();
    for name in NAMES {
        before.push(scene.template(name).await);
    }
    let mut buried = 0;
    let revive = async || {
        let operator = Arc::clone(&operator);
        let restart = move || operator.restart().unwrap();
        tokio::task::spawn_blocking(restart).await.unwrap();
    };
    for round in 1..=STRIDE {
        let already = written(&scene, "1").await;
        let good = format!("r{round}");
        let bad = format!("r{round}-pullerror");
        let content = with([&good, &good, &bad]);
        killer.arm(NAMESPACE, round);
        scene.apply(&content).await;
        let over = |status: &ReleasePlanStatus| {
            status.release.is_none()
                && status.phase == Some(Phase::Stable)
                && status.history.last().is_some_and(|r| r.number == round)
        };
        let status = loop {
            tokio::select! {
                biased;
                () = killer.killed.notified() => {
                    buried += 1;
                    killer.arm(NAMESPACE, STRIDE);
                    revive().await;
                }
                status = scene.plan_until("shop", "the release is over", over) => break status,
            }
        };
        killer.arm(NAMESPACE, 0);
        while killer.count(NAMESPACE).kills > buried {
            let killed = tokio::time::timeout(SOON, killer.killed.notified());
            killed.await.expect("it is killed");
            buried += 1;
            revive().await;
        }
        let last = status.history.last().unwrap();
        assert_eq!(last.result, ReleaseResult::RolledBack, "round {round}");
        assert_eq!(status.stable_revision, stable);
        let numbers: Vec<i64> = status.history.iter().map(|r| r.number).collect();
        let wanted: Vec<i64> = (1..=round).collect();
        assert_eq!(numbers, wanted, "each release is recorded once");
        let forward = [
            written(&scene, &good).await[0],
            written(&scene, &good).await[1],
            written(&scene, &bad).await[2],
        ];
        let back = written(&scene, "1").await;
        for (index, name) in NAMES.iter().enumerate() {
            assert_eq!(
                scene.template(name).await,
                before[index],
                "round {round}: {name} is back"
            );
            assert_eq!(forward[index], 1, "round {round}: {name} is written once");
            let restored = back[index] - already[index];
            assert_eq!(restored, 1, "round {round}: {name} is restored once");
        }
    }
    assert!(buried > STRIDE, "killed {buried} times");
}
