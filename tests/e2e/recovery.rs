//! What happens between two requests: the process is killed, somebody else
//! writes. Each test has a cluster and an operator of its own.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::Bytes,
    http::{Method, StatusCode, request::Parts},
};
use belay::api::{FINALIZER, Reason, StoredPlan};
use belay_testenv::{Cluster, ClusterOptions, Operator};
use futures::future::BoxFuture;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    proxy::{Meddler, operator},
    support::{Scene, plan},
};

pub async fn cluster() -> Arc<Cluster> {
    let start = || Cluster::start(ClusterOptions::new());
    Arc::new(tokio::task::spawn_blocking(start).await.unwrap().unwrap())
}

fn is_write_to_a_deployment(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    parts.method == Method::PATCH
        && parts.uri.path().contains("/deployments/")
        && !query.contains("dryRun")
}

/// Kills the operator when the first Deployment is back on its old image.
#[derive(Default)]
struct KillAfterFirstRestore {
    armed: AtomicBool,
    operator: OnceLock<Arc<Operator>>,
    killed: Arc<tokio::sync::Notify>,
}

impl Meddler for KillAfterFirstRestore {
    fn after<'a>(
        &'a self,
        parts: &'a Parts,
        body: &'a Bytes,
        status: StatusCode,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let restores = String::from_utf8_lossy(body).contains(":1\"");
            if is_write_to_a_deployment(parts)
                && status.is_success()
                && restores
                && self.armed.swap(false, Ordering::SeqCst)
            {
                let operator = Arc::clone(self.operator.get().unwrap());
                let killed = Arc::clone(&self.killed);
                // This future ends with the connection, so with the operator.
                let kill = move || {
                    operator.kill().unwrap();
                    killed.notify_one();
                };
                tokio::task::spawn_blocking(kill).await.unwrap();
            }
        })
    }
}

/// SM-09: the operator is killed after the first of three rollback writes.
/// After the restart all three are on stable, each written back exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn sm_09_a_rollback_goes_on_after_the_operator_was_killed_in_it() {
    let cluster = cluster().await;
    let meddler = Arc::new(KillAfterFirstRestore::default());
    let running = Arc::new(operator(&cluster, meddler.clone()).await);
    assert!(meddler.operator.set(Arc::clone(&running)).is_ok());
    let scene = Scene::on(&cluster, "recovery").await;
    let names = ["cart", "web", "pay"];
    for name in names {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    let with = |tags: [&str; 3]| {
        let images: Vec<String> = names
            .iter()
            .zip(tags)
            .map(|(name, tag)| format!("shop/{name}:{tag}"))
            .collect();
        let pairs: Vec<_> = names
            .iter()
            .copied()
            .zip(images.iter().map(String::as_str))
            .collect();
        plan("shop", &pairs, "")
    };
    scene.apply(&with(["1", "1", "1"])).await;
    let before = scene.ready("shop").await;
    scene.apply(&with(["2", "2", "2-crash"])).await;
    scene.because("shop", Reason::Promoting).await;
    meddler.armed.store(true, Ordering::SeqCst);
    tokio::time::timeout(crate::support::SOON, meddler.killed.notified())
        .await
        .expect("the operator is killed in its rollback");
    let restarted = Arc::clone(&running);
    tokio::task::spawn_blocking(move || restarted.restart().unwrap())
        .await
        .unwrap();

    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(status.stable_revision, before.stable_revision);
    let writes = scene.writes_to_deployments().await;
    for name in names {
        assert_eq!(scene.image(name).await, format!("shop/{name}:1"));
        let image = format!("shop/{name}:1\"");
        let restores = writes
            .iter()
            .filter(|w| w.name == name)
            .filter_map(|w| w.request_object.as_ref())
            .filter(|object| object.to_string().contains(&image))
            .count();
        assert_eq!(restores, 2, "{name} is taken once and restored once");
    }
    let records = status
        .history
        .iter()
        .filter(|r| r.result == belay::api::ReleaseResult::RolledBack);
    assert_eq!(records.count(), 1);
}

/// Adds a finalizer of its own to a plan right before the operator adds its.
struct RaceForFinalizers {
    plans: Api<StoredPlan>,
    raced: Mutex<Vec<String>>,
}

const RACE: &str = "example.com/race";
const FOREIGN: &str = "example.com/foreign";

impl Meddler for RaceForFinalizers {
    fn before<'a>(&'a self, parts: &'a Parts, body: &'a Bytes) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let path = parts.uri.path();
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let adds = String::from_utf8_lossy(body).contains(FINALIZER);
            if parts.method != Method::PATCH || !path.contains("/releaseplans/") || !adds {
                return;
            }
            {
                let mut raced = self.raced.lock().unwrap();
                if raced.contains(&name) {
                    return;
                }
                raced.push(name.clone());
            }
            let seen = self
                .plans
                .get(&name)
                .await
                .unwrap()
                .metadata
                .finalizers
                .unwrap_or_default();
            let finalizers: Vec<_> = seen.into_iter().chain([RACE.to_owned()]).collect();
            let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
            self.plans
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        })
    }
}

/// DF-01: the finalizer is added where there is no list, an empty one, one with
/// a foreign entry; and the list changes between read and patch. It ends with
/// exactly one entry of ours and all foreign ones intact.
#[tokio::test(flavor = "multi_thread")]
async fn df_01_the_finalizer_is_added_once_and_foreign_ones_stay() {
    let cluster = cluster().await;
    let scene = Scene::on(&cluster, "finalizers").await;
    let meddler = Arc::new(RaceForFinalizers {
        plans: scene.plans(),
        raced: Mutex::default(),
    });
    let _operator = operator(&cluster, meddler.clone()).await;
    // Plans that were stored while the webhooks were away.
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        scene.kubectl(&["delete", kind, "belay.dev"]).await;
    }
    let cases = [
        ("none", ""),
        ("empty", "finalizers: []"),
        ("foreign", "finalizers: [example.com/foreign]"),
    ];
    for (name, finalizers) in cases {
        scene.deployment(name, "shop/app:1", 1).await;
        let manifest = plan(name, &[(name, "shop/app:2")], "");
        scene
            .apply(&manifest.replace(
                &format!("{{name: {name}}}\nspec"),
                &format!("{{name: {name}, {finalizers}}}\nspec"),
            ))
            .await;
    }
    for (name, _) in cases {
        scene.ready(name).await;
        let stored = scene
            .plans()
            .get(name)
            .await
            .unwrap()
            .metadata
            .finalizers
            .unwrap();
        let wanted = match name {
            "foreign" => vec![FOREIGN, RACE, FINALIZER],
            _ => vec![RACE, FINALIZER],
        };
        assert_eq!(stored, wanted, "{name}");
        assert_eq!(scene.image(name).await, "shop/app:2");
    }
    let mut raced = meddler.raced.lock().unwrap().clone();
    raced.sort();
    assert_eq!(raced, ["empty", "foreign", "none"], "every race took place");
    // The finalizer stood before the first write to anything of the user's.
    let writes = scene.writes().await;
    for (name, _) in cases {
        let index = |resource: &str, subresource: &str| {
            writes.iter().position(|w| {
                w.resource == resource && w.subresource == subresource && w.name == name
            })
        };
        let (finalizer, deployment) = (index("releaseplans", ""), index("deployments", ""));
        assert!(
            finalizer.is_some() && finalizer < deployment,
            "{name}: {finalizer:?} {deployment:?}"
        );
    }
}
