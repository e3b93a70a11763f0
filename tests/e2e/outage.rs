//! An API server that fails, lags and refuses: the operator behind a proxy.
//!
//! The tests here share a cluster whose watches are three seconds late.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Bytes,
    http::{Method, StatusCode, request::Parts},
};
use belay::api::{Phase, Reason, ReleaseResult};
use belay_testenv::{Cluster, ClusterOptions, Operator};
use futures::future::BoxFuture;

use crate::{
    configuration::{self, Configs},
    proxy::{self, Failure, Meddler},
    support::{PATIENCE, SOON, Scene, holds, message, plan},
    witness::{Witness, image_in},
};

const LAG: Duration = Duration::from_secs(3);
/// Namespace whose reads fail while there is an outage.
const UNREADABLE: &str = "sm-07";
/// Namespace in which contents of ConfigMaps cannot be read for a while.
const BLIND: &str = "sm-07-config";
/// Namespace in which every third write of a status is a conflict.
const CONFLICTS: &str = "qb-03";

/// How reads fail.
#[derive(Clone, Copy, Default, PartialEq)]
enum Outage {
    #[default]
    None,
    /// At once, as while etcd changes its leader.
    Errors,
    /// After a while, as when etcd does not answer.
    Timeouts,
}

#[derive(Default)]
struct Faults {
    outage: Mutex<Outage>,
    /// Failed reads of each resource in this outage.
    failed: Mutex<BTreeMap<String, usize>>,
    /// Whether contents of ConfigMaps cannot be read, and how often they were
    /// not.
    blind: AtomicBool,
    unread: AtomicUsize,
    status_writes: AtomicUsize,
    conflicts: AtomicUsize,
}

impl Faults {
    fn set(&self, outage: Outage) {
        *self.outage.lock().unwrap() = outage;
        self.failed.lock().unwrap().clear();
    }

    /// Waits until reads of all these resources failed, several times in all.
    async fn felt(&self, resources: &[&str], times: usize) {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let failed = self.failed.lock().unwrap().clone();
            let enough = failed.values().sum::<usize>() >= times;
            if enough && resources.iter().all(|r| failed.contains_key(*r)) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{failed:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Meddler for Faults {
    fn instead<'a>(&'a self, parts: &'a Parts, _: &'a Bytes) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(async move {
            let path = parts.uri.path();
            if path.starts_with(&format!(
                "/apis/belay.dev/v1alpha1/namespaces/{CONFLICTS}/releaseplans/"
            )) && path.ends_with("/status")
                && self.status_writes.fetch_add(1, Ordering::SeqCst) % 3 == 2
            {
                self.conflicts.fetch_add(1, Ordering::SeqCst);
                return Some(Failure {
                    code: StatusCode::CONFLICT,
                    reason: "Conflict",
                });
            }
            if parts.method == Method::GET
                && path.contains(&format!("/namespaces/{BLIND}/configmaps/"))
                && self.blind.load(Ordering::SeqCst)
            {
                self.unread.fetch_add(1, Ordering::SeqCst);
                return Some(Failure {
                    code: StatusCode::INTERNAL_SERVER_ERROR,
                    reason: "InternalError",
                });
            }
            let (_, rest) = path.split_once(&format!("/namespaces/{UNREADABLE}/"))?;
            let resource = rest.split('/').next().unwrap_or_default();
            if parts.method != Method::GET || resource == "releaseplans" {
                return None;
            }
            let outage = *self.outage.lock().unwrap();
            let failure = match outage {
                Outage::None => return None,
                Outage::Errors => Failure {
                    code: StatusCode::INTERNAL_SERVER_ERROR,
                    reason: "InternalError",
                },
                Outage::Timeouts => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    Failure {
                        code: StatusCode::GATEWAY_TIMEOUT,
                        reason: "Timeout",
                    }
                }
            };
            *self
                .failed
                .lock()
                .unwrap()
                .entry(resource.to_owned())
                .or_default() += 1;
            Some(failure)
        })
    }

    fn lag(&self, parts: &Parts) -> Duration {
        let query = parts.uri.query().unwrap_or_default();
        if query.contains("watch=") {
            LAG
        } else {
            Duration::ZERO
        }
    }
}

/// The cluster, its operator and the proxy between them, whose runtime belongs
/// to no single test.
struct Troubled {
    cluster: Arc<Cluster>,
    faults: Arc<Faults>,
    _operator: Operator,
    _runtime: tokio::runtime::Runtime,
}

async fn troubled() -> &'static Troubled {
    static TROUBLED: OnceLock<Troubled> = OnceLock::new();
    let start = || {
        let cluster = Arc::new(Cluster::start(ClusterOptions::new()).unwrap());
        let faults = Arc::new(Faults::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let operator = runtime.block_on(proxy::operator(&cluster, faults.clone()));
        Troubled {
            cluster,
            faults,
            _operator: operator,
            _runtime: runtime,
        }
    };
    // On a thread that is in no runtime yet.
    let wait = move || {
        std::thread::spawn(move || TROUBLED.get_or_init(start))
            .join()
            .unwrap()
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

/// SM-07: reads of Deployments, ReplicaSets, pods and revisions fail for a
/// while, at once and by timeouts. At rest that is no change: no release, no
/// other status, nothing written. In mid-release it is no failure: the release
/// goes on when the reads come back.
#[tokio::test(flavor = "multi_thread")]
async fn sm_07_a_failed_read_is_not_a_change() {
    let troubled = troubled().await;
    let faults = &troubled.faults;
    let scene = Scene::on(&troubled.cluster, UNREADABLE).await;
    for name in ["cart", "web"] {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    // Longer than an outage is taken for bad luck.
    let rest = "  - workload: {kind: Deployment, name: web}\n  retry: {maxRetries: 50}\n";
    let with = |image: &str| plan("shop", &[("cart", image)], rest);
    scene.apply(&with("shop/cart:1")).await;
    let before = scene.ready("shop").await;
    let writes = scene.writes().await.len();
    let witness = Witness::of(&scene, "shop").await;
    for (outage, times) in [(Outage::Errors, 8), (Outage::Timeouts, 4)] {
        faults.set(outage);
        // Something to look at, and a release that starts when it is not read.
        scene
            .kubectl(&[
                "annotate",
                "--overwrite",
                "deployment",
                "cart",
                "web",
                "note=x",
            ])
            .await;
        faults.felt(&["deployments"], times).await;
        faults.set(Outage::None);
    }
    scene.assert_quiet("shop", 1).await;
    assert_eq!(scene.writes().await.len(), writes);
    assert_eq!(witness.seen(), [before]);

    scene.apply(&with("shop/cart:2-slow")).await;
    scene.phase("shop", Phase::RollingOut).await;
    let mut unread = BTreeSet::new();
    for (outage, times) in [(Outage::Errors, 8), (Outage::Timeouts, 4)] {
        faults.set(outage);
        scene
            .kubectl(&["annotate", "--overwrite", "relplan", "shop", "note=y"])
            .await;
        faults.felt(&["deployments"], times).await;
        unread.extend(faults.failed.lock().unwrap().keys().cloned());
        faults.set(Outage::None);
        scene.because("shop", Reason::Promoting).await;
    }
    let status = scene.ready("shop").await;
    assert_eq!(status.history.len(), 1);
    assert_eq!(status.history[0].result, ReleaseResult::Succeeded);
    assert!(unread.contains("deployments"), "{unread:?}");
    witness.saw(&status).await;
    assert_eq!(
        witness.phases(),
        [Phase::Stable, Phase::RollingOut, Phase::Stable]
    );
    witness.assert_coherent();
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
}

/// QB-03: every event comes three seconds late and every third write of a
/// status meets a conflict. Each template is written once all the same, and
/// nobody who watches the plan sees a stage that does not fit its phase.
#[tokio::test(flavor = "multi_thread")]
async fn qb_03_late_events_and_conflicts_repeat_nothing() {
    let troubled = troubled().await;
    let scene = Scene::on(&troubled.cluster, CONFLICTS).await;
    let names = ["cart", "web"];
    for name in names {
        scene.deployment(name, &format!("shop/{name}:1"), 2).await;
    }
    let with = |cart: &str, web: &str| plan("shop", &[("cart", cart), ("web", web)], "");
    scene.apply(&with("shop/cart:1", "shop/web:1")).await;
    scene.ready("shop").await;
    let witness = Witness::of(&scene, "shop").await;
    scene.apply(&with("shop/cart:2", "shop/web:2")).await;
    scene.ready("shop").await;
    scene
        .apply(&with("shop/cart:3", "shop/web:3-pullerror"))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(
        results,
        [ReleaseResult::Succeeded, ReleaseResult::RolledBack]
    );
    witness.saw(&status).await;
    witness.assert_coherent();
    assert_eq!(
        witness.phases(),
        [
            Phase::Stable,
            Phase::RollingOut,
            Phase::Stable,
            Phase::RollingOut,
            Phase::Rollback,
            Phase::Stable
        ]
    );
    let writes = scene.writes_to_deployments().await;
    for name in names {
        let templates: Vec<String> = writes
            .iter()
            .filter(|w| w.name == name)
            .filter_map(|w| w.request_object.as_ref())
            .filter_map(image_in)
            .collect();
        let wanted = match name {
            "web" => ["1", "2", "3-pullerror", "2"],
            _ => ["1", "2", "3", "2"],
        };
        assert_eq!(templates, wanted.map(|tag| format!("shop/{name}:{tag}")));
    }
    assert!(
        troubled.faults.conflicts.load(Ordering::SeqCst) >= 3,
        "there were conflicts"
    );
}

/// SM-07 with configuration: contents that cannot be read for a while are no
/// change and no other status; a deleted ConfigMap is told and starts nothing;
/// a change of `binaryData` alone is a release.
#[tokio::test(flavor = "multi_thread")]
async fn sm_07_contents_that_cannot_be_read_have_not_changed() {
    let troubled = troubled().await;
    let faults = &troubled.faults;
    let scene = Scene::on(&troubled.cluster, BLIND).await;
    let configs = Configs::of(&scene);
    configs.create("settings", "first").await;
    scene
        .apply(&configuration::deployment(
            "cart",
            "shop/cart:1",
            "settings",
        ))
        .await;
    scene.available("cart").await;
    let component = configuration::tracking("cart", "shop/cart:1", "settings");
    scene.apply(&configuration::plan(&[component], "")).await;
    scene.ready("shop").await;
    scene.assert_quiet("shop", 1).await;
    let before = scene.ready("shop").await;
    let writes = scene.writes().await.len();
    let witness = Witness::of(&scene, "shop").await;
    faults.blind.store(true, Ordering::SeqCst);
    // Another version has to be read.
    scene
        .kubectl(&["label", "configmap", "settings", "team=shop"])
        .await;
    let deadline = tokio::time::Instant::now() + SOON;
    while faults.unread.load(Ordering::SeqCst) < 10 {
        assert!(tokio::time::Instant::now() < deadline, "reads fail");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    faults.blind.store(false, Ordering::SeqCst);
    scene.assert_quiet("shop", 2).await;
    assert_eq!(witness.seen(), std::slice::from_ref(&before));
    assert_eq!(scene.writes().await.len(), writes);

    scene.kubectl(&["delete", "configmap", "settings"]).await;
    let status = scene
        .plan_until("shop", "tells of the deletion", |status| {
            status.config_maps[0].missing
        })
        .await;
    let text = message(&status, "Ready");
    assert!(
        holds(&status, "Ready", "True") && text.contains("configmap settings was deleted"),
        "{text}"
    );
    let events = scene.kubectl(&[
        "get",
        "events",
        "-o",
        "name",
        "--field-selector=reason=ConfigMapMissing",
    ]);
    assert_eq!(events.await.lines().count(), 1);
    configs.create("settings", "first").await;
    scene
        .plan_until("shop", "sees it again", |status| {
            !status.config_maps[0].missing
        })
        .await;
    scene.assert_quiet("shop", 1).await;
    assert_eq!(
        scene.ready("shop").await.history.len(),
        before.history.len()
    );
    let binary = r#"{"binaryData":{"raw":"AAEC"}}"#;
    scene
        .kubectl(&["patch", "configmap", "settings", "-p", binary])
        .await;
    scene
        .plan_until("shop", "releases it", |status| {
            status.history.len() > before.history.len() && holds(status, "Ready", "True")
        })
        .await;

    // Contents that were never read are waited for, and hold no plan that goes
    // with its namespace.
    faults.blind.store(true, Ordering::SeqCst);
    let late = configuration::plan(
        &[configuration::tracking("late", "shop/late:1", "settings")],
        "",
    );
    let late = late.replace("metadata: {name: shop}", "metadata: {name: late}");
    scene
        .apply(&configuration::deployment(
            "late",
            "shop/late:1",
            "settings",
        ))
        .await;
    scene.apply(&late).await;
    let status = scene.because("late", Reason::TargetsMissing).await;
    let text = message(&status, "Ready");
    assert!(
        text.contains("waiting for configmap settings to be readable ("),
        "{text}"
    );
    scene
        .kubectl(&["delete", "namespace", BLIND, PATIENCE])
        .await;
    faults.blind.store(false, Ordering::SeqCst);
}
