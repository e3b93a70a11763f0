//! The reconcile controller: turns events into passes, and decisions into
//! writes.
//!
//! What to do is decided in [`crate::machine`]; the modules here read, write,
//! wait and wake, and nothing else.

mod apply;
mod backoff;
mod claims;
mod dry_run;
mod error;
mod observe;
mod reconcile;
mod record;
mod views;
mod watches;

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt as _,
        controller::{self, Action},
        events::{Recorder, Reporter},
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use claims::incumbent;
pub use error::ReconcileError;

use crate::{
    api::{Reason, StoredPlan, WorkloadKind},
    clock::Clock,
    metrics::Metrics,
    plan::{Target, targets_of},
};

/// Passes at the same time.
const CONCURRENCY: u16 = 16;

/// What every pass needs.
struct Context {
    client: Client,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    plans: Store<StoredPlan>,
    watches: watches::Watches,
    backoffs: backoff::Backoffs,
    last_writes: record::LastWrites,
    recorder: Recorder,
    resync: Duration,
}

impl Context {
    /// Drops what is kept in memory of a plan that is gone.
    fn forget(&self, uid: &str) {
        self.watches.stop(uid);
        self.backoffs.reset(uid);
        self.last_writes.forget(uid);
    }
}

/// Settings of the controller.
pub struct Settings {
    /// Client to the API server.
    pub client: Client,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Metrics,
    /// Longest time between two looks at a plan.
    pub resync: Duration,
    /// Cache of all plans, filled by the controller.
    pub plans: PlanCache,
}

/// The cache of all plans, before the controller fills it.
pub struct PlanCache {
    store: Store<StoredPlan>,
    writer: reflector::store::Writer<StoredPlan>,
}

impl PlanCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        let (store, writer) = reflector::store();
        Self { store, writer }
    }

    /// A handle to read it by.
    #[must_use]
    pub fn store(&self) -> Store<StoredPlan> {
        self.store.clone()
    }
}

impl Default for PlanCache {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs the controller until `stop`. Returning earlier is a fault.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let Settings { client, clock, metrics, resync, plans: PlanCache { store, writer } } = settings;
    let (sender, receiver) = mpsc::channel(1024);
    let (watches, tasks) = watches::Watches::new(client.clone(), sender.clone());
    let reporter = Reporter { controller: "belay".to_owned(), instance: None };
    let context = Arc::new(Context {
        client: client.clone(),
        clock,
        metrics,
        plans: store.clone(),
        watches,
        backoffs: backoff::Backoffs::default(),
        last_writes: record::LastWrites::default(),
        recorder: Recorder::new(client.clone(), reporter),
        resync,
    });
    let (of_deployments, of_plans) = (store.clone(), store.clone());
    let plans = watcher(Api::<StoredPlan>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|plan| plan.metadata.managed_fields = None)
        .reflect(writer)
        .inspect(move |event| {
            // The store has seen the event by now, so a plan that waits for
            // this one to let go of a workload sees it gone.
            if let Ok(watcher::Event::Apply(plan) | watcher::Event::Delete(plan)) = event {
                for waiting in waiting_beside(&of_plans, plan) {
                    if sender.try_send(waiting).is_err() {
                        tracing::warn!("the queue is full; a waiting plan is looked at later");
                    }
                }
            }
        })
        .applied_objects();
    let triggers = futures::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|plan| (plan, receiver))
    });
    let controller = Controller::for_stream(plans, store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .watches(
            Api::<PartialObjectMeta<Deployment>>::all(client.clone()),
            watcher::Config::default(),
            move |deployment| {
                let target =
                    Target { kind: WorkloadKind::Deployment, name: deployment.name_any() };
                naming(&of_deployments, deployment.namespace().as_deref(), &target)
            },
        )
        .reconcile_on(triggers)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(reconcile::reconcile, on_error, context)
        .for_each(async |outcome| {
            if let Err(error) = outcome {
                match error {
                    controller::Error::ObjectNotFound(_) => tracing::debug!(%error, "a plan is gone"),
                    _ => tracing::warn!(%error, "the controller reports an error"),
                }
            }
        });
    let watches = watches::run(tasks, stop);
    futures::future::join(controller, watches).await;
}

/// Plans of a namespace that name a workload or hold it.
fn naming(
    plans: &Store<StoredPlan>,
    namespace: Option<&str>,
    target: &Target,
) -> Vec<ObjectRef<StoredPlan>> {
    let reference = target.to_ref();
    let named = |plan: &StoredPlan| {
        plan.metadata.namespace.as_deref() == namespace
            && (targets_of(plan).contains(target)
                || plan.status.iter().flat_map(|s| &s.components).any(|c| c.workload == reference))
    };
    plans.state_filter(named).iter().map(|plan| ObjectRef::from_obj(plan.as_ref())).collect()
}

/// Plans of the same namespace that another plan keeps from their workloads.
fn waiting_beside(plans: &Store<StoredPlan>, plan: &StoredPlan) -> Vec<ObjectRef<StoredPlan>> {
    let waits = |other: &StoredPlan| {
        other.metadata.namespace == plan.metadata.namespace
            && other.metadata.uid != plan.metadata.uid
            && other.status.iter().flat_map(|s| &s.conditions).any(|condition| {
                condition.type_ == "Ready" && condition.reason == Reason::Conflict.as_str()
            })
    };
    plans.state_filter(waits).iter().map(|plan| ObjectRef::from_obj(plan.as_ref())).collect()
}

/// Errors are turned into waits before they get here.
fn on_error(_: Arc<StoredPlan>, _: &ReconcileError, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(10))
}
