//! The reconcile controller: turns events into passes, and decisions into
//! writes.
//!
//! What to do is decided in [`crate::machine`]; the modules here read, write,
//! wait and wake, and nothing else.

mod apply;
mod backoff;
mod config_maps;
mod error;
mod events;
mod heal;
mod news;
mod observe;
mod pace;
mod queue;
mod reconcile;
mod record;
mod revisions;
mod snapshots;
mod sweep;
mod templates;
mod trials;
mod turns;
mod views;
mod watches;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt as _,
        controller::{self, Action},
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use error::ReconcileError;

use crate::{
    api::{PLAN_UID, Phase, Reason, StoredPlan, WorkloadKind, stalled_for},
    clock::Clock,
    metrics::Metrics,
    plan::{Target, config_maps_of, targets_of},
    run,
};

/// What every pass needs.
struct Context {
    client: Client,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    plans: Store<StoredPlan>,
    queued: Arc<queue::Queued>,
    pace: pace::Pace,
    news: news::News,
    turns: turns::Turns,
    watches: watches::Watches,
    backoffs: backoff::Backoffs,
    conflicts: backoff::Backoffs,
    revisions: revisions::Revisions,
    trials: trials::Trials,
    config_maps: config_maps::ConfigMaps,
    unreadable: backoff::Backoffs,
    last_writes: record::LastWrites,
    resync: Duration,
    stop: CancellationToken,
}

impl Context {
    /// Drops what is kept in memory of a plan that is gone.
    fn forget(&self, plan: &StoredPlan) {
        self.pace.forget(&ObjectRef::from_obj(plan));
        self.forget_uid(plan.metadata.uid.as_deref().unwrap_or_default());
    }

    /// The same for all plans that a full list did not show any more.
    fn forget_vanished(&self) {
        let plans = self.plans.state();
        let present: HashSet<&str> = plans
            .iter()
            .filter_map(|plan| plan.metadata.uid.as_deref())
            .collect();
        for uid in self.news.all_but(&present) {
            self.forget_uid(&uid);
        }
        self.pace.keep(|plan| self.plans.get(plan).is_some());
    }

    fn forget_uid(&self, uid: &str) {
        self.news.forget(uid);
        self.watches.stop(uid);
        self.backoffs.reset(uid);
        self.conflicts.reset(uid);
        self.revisions.forget(uid);
        self.trials.forget(uid);
        self.config_maps.forget(uid);
        self.unreadable.reset(uid);
        self.last_writes.forget(uid);
    }
}

/// Runs the controller until its context says stop.
///
/// # Errors
/// Only if the cache of plans can no longer be filled.
pub async fn run(process: run::Context) -> Result<(), run::TaskError> {
    let run::Context {
        client,
        connections,
        metrics,
        clock,
        plans: known,
        resync,
        stop,
        ..
    } = process;
    let (store, writer) = reflector::store();
    let (sender, receiver) = mpsc::channel(1024);
    // The watches that never end are apart from requests that come and go.
    let seat = connections.seat()?;
    let (config_maps, changed) = config_maps::ConfigMaps::watch(&seat.client());
    let (watches, tasks) = watches::Watches::new(connections, client.clone(), sender.clone());
    let queued = Arc::new(queue::Queued::new(metrics.clone()));
    let context = Arc::new(Context {
        client: client.clone(),
        clock,
        metrics: metrics.clone(),
        plans: store.clone(),
        queued: Arc::clone(&queued),
        pace: pace::Pace::default(),
        news: news::News::default(),
        turns: turns::Turns::default(),
        watches,
        backoffs: backoff::Backoffs::default(),
        conflicts: backoff::Backoffs::default(),
        revisions: revisions::Revisions::default(),
        trials: trials::Trials::default(),
        config_maps,
        unreadable: backoff::Backoffs::default(),
        last_writes: record::LastWrites::default(),
        resync,
        stop: stop.clone(),
    });
    let (forgetful, sweeper) = (Arc::clone(&context), Arc::clone(&context));
    let (reader, hasty) = (Arc::clone(&context), Arc::clone(&context));
    let beside = sender.clone();
    let (of_deployments, of_plans) = (store.clone(), store.clone());
    let (of_config_maps, queued_by_config_maps) = (store.clone(), Arc::clone(&queued));
    let (queued_by_deployments, gone) = (queued, Arc::clone(&context));
    let plans = watcher(
        Api::<StoredPlan>::all(seat.client()),
        watcher::Config::default(),
    )
    .default_backoff()
    .modify(|plan| plan.metadata.managed_fields = None)
    .reflect(writer)
    .inspect(move |event| {
        count(&metrics, &of_plans.state());
        match event {
            // However it went: nothing of it is kept. The store has seen the
            // event by now, so a plan that waits for this one to let go of a
            // workload sees it gone.
            Ok(watcher::Event::Delete(plan)) => {
                forgetful.forget(plan);
                wake_waiting(&of_plans, plan, &sender);
            }
            Ok(watcher::Event::InitDone) => forgetful.forget_vanished(),
            _ => {}
        }
    })
    .applied_objects()
    .try_filter(move |plan| {
        let news = reader.news.is_news(plan);
        if news {
            let reference = ObjectRef::from_obj(plan);
            reader.pace.hurry(&reference);
            reader.queued.add(&reference);
            wake_waiting(&reader.plans, plan, &beside);
        }
        std::future::ready(news)
    });
    let triggers = futures::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|plan| (plan, receiver))
    })
    .inspect(move |plan| {
        hasty.pace.hurry(plan);
        hasty.queued.add(plan);
    });
    let synced = store.clone();
    let controller = Controller::for_stream(plans, store)
        // Not bounded here, but by turns.
        .with_config(controller::Config::default().concurrency(0))
        .watches(
            Api::<PartialObjectMeta<Deployment>>::all(seat.client()),
            watcher::Config::default(),
            move |deployment| {
                let target = Target {
                    kind: WorkloadKind::Deployment,
                    name: deployment.name_any(),
                };
                let plans = naming(&of_deployments, deployment.namespace().as_deref(), &target);
                plans
                    .iter()
                    .for_each(|plan| queued_by_deployments.add(plan));
                plans
            },
        )
        .watches_stream(changed, move |config_map: PartialObjectMeta<ConfigMap>| {
            let plans = tracking(&of_config_maps, &config_map.metadata);
            plans
                .iter()
                .for_each(|plan| queued_by_config_maps.add(plan));
            plans
        })
        .reconcile_on(triggers)
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(reconcile::reconcile, on_error, context)
        .for_each(move |outcome| {
            if let Err(error) = outcome {
                notice(&gone, &error);
            }
            std::future::ready(())
        });
    let watches = watches::run(tasks, stop);
    let sync = async move {
        if synced.wait_until_ready().await.is_ok() {
            known.open();
            sweep::sweep(&sweeper).await;
        }
    };
    futures::future::join3(controller, watches, sync).await;
    Ok(())
}

/// What the runtime could not hand to a pass.
fn notice(ctx: &Context, error: &controller::Error<ReconcileError, watcher::Error>) {
    if let controller::Error::ObjectNotFound(plan) = error {
        let namespace = plan.namespace.as_deref().unwrap_or_default();
        let plan = ObjectRef::new(&plan.name).within(namespace);
        ctx.queued.remove(&plan);
        ctx.pace.forget(&plan);
        tracing::debug!(%error, "a plan is gone");
    } else {
        tracing::warn!(%error, "the controller reports an error");
    }
}

/// Tells how many plans are in each phase, and why those that wait for somebody do.
fn count(metrics: &Metrics, plans: &[Arc<StoredPlan>]) {
    let mut phases: HashMap<Phase, usize> = HashMap::new();
    let mut stalled: HashMap<Reason, usize> = HashMap::new();
    for plan in plans {
        let phase = plan.status.as_ref().and_then(|status| status.phase);
        *phases.entry(phase.unwrap_or(Phase::Pending)).or_default() += 1;
        let conditions = plan.status.as_ref().map(|status| &status.conditions);
        if let Some(reason) = conditions.and_then(|conditions| stalled_for(conditions)) {
            *stalled.entry(reason).or_default() += 1;
        }
    }
    metrics.set_plans(phases);
    metrics.set_stalled(stalled);
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
                || plan
                    .status
                    .iter()
                    .flat_map(|s| &s.components)
                    .any(|c| c.workload == reference))
    };
    plans
        .state_filter(named)
        .iter()
        .map(|plan| ObjectRef::from_obj(plan.as_ref()))
        .collect()
}

/// Plans of a namespace that track a ConfigMap, or keep contents in it.
fn tracking(plans: &Store<StoredPlan>, config_map: &ObjectMeta) -> Vec<ObjectRef<StoredPlan>> {
    let name = config_map.name.as_deref().unwrap_or_default();
    let keeper = config_map.labels.as_ref().and_then(|l| l.get(PLAN_UID));
    let tracks = |plan: &StoredPlan| {
        plan.metadata.namespace == config_map.namespace
            && (keeper.is_some() && plan.metadata.uid.as_ref() == keeper
                || config_maps_of(plan).any(|tracked| tracked == name)
                || plan
                    .status
                    .iter()
                    .flat_map(|s| &s.config_maps)
                    .any(|c| c.name == name))
    };
    plans
        .state_filter(tracks)
        .iter()
        .map(|plan| ObjectRef::from_obj(plan.as_ref()))
        .collect()
}

/// Wakes plans that `plan` may keep from their workloads.
fn wake_waiting(
    plans: &Store<StoredPlan>,
    plan: &StoredPlan,
    triggers: &mpsc::Sender<ObjectRef<StoredPlan>>,
) {
    for waiting in waiting_beside(plans, plan) {
        if triggers.try_send(waiting).is_err() {
            tracing::warn!("the queue is full; a waiting plan is looked at later");
        }
    }
}

/// Plans of the same namespace that another plan keeps from their workloads.
fn waiting_beside(plans: &Store<StoredPlan>, plan: &StoredPlan) -> Vec<ObjectRef<StoredPlan>> {
    let waits = |other: &StoredPlan| {
        other.metadata.namespace == plan.metadata.namespace
            && other.metadata.uid != plan.metadata.uid
            && other
                .status
                .iter()
                .flat_map(|s| &s.conditions)
                .any(|condition| {
                    condition.type_ == "Ready" && condition.reason == Reason::Conflict.as_str()
                })
    };
    plans
        .state_filter(waits)
        .iter()
        .map(|plan| ObjectRef::from_obj(plan.as_ref()))
        .collect()
}

/// Errors are turned into waits before they get here.
fn on_error(_: Arc<StoredPlan>, _: &ReconcileError, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_that_was_rolled_back_counts_as_stable_and_as_stalled() {
        let plan = |phase: &str, stalled: &str, reason: &str| -> Arc<StoredPlan> {
            let condition = json!({"type": "Stalled", "status": stalled, "reason": reason,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let plan = json!({
                "metadata": {"name": reason.to_lowercase(), "namespace": "shop"}, "spec": {},
                "status": {"phase": phase, "conditions": [condition]},
            });
            Arc::new(serde_json::from_value(plan).unwrap())
        };
        let metrics = Metrics::new();
        let plans = [
            plan("Stable", "True", "RolledBack"),
            plan("Stable", "True", "RolledBack"),
            plan("Rollback", "True", "ConfigMapEdited"),
            plan("Stable", "False", "Released"),
        ];
        count(&metrics, &plans);
        let text = metrics.render().unwrap();
        let lines: HashSet<&str> = text.lines().collect();
        for line in [
            r#"belay_plans{phase="Stable"} 3"#,
            r#"belay_plans{phase="Rollback"} 1"#,
            r#"belay_plans_stalled{reason="RolledBack"} 2"#,
            r#"belay_plans_stalled{reason="ConfigMapEdited"} 1"#,
        ] {
            assert!(lines.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains(r#"reason="Released""#), "{text}");
    }

    #[test]
    fn a_config_map_wakes_who_tracks_it_and_who_keeps_contents_in_it() {
        let (store, mut writer) = reflector::store();
        let plan = |name: &str, uid: &str, tracked: &str| -> StoredPlan {
            serde_json::from_value(json!({
                "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
                "metadata": {"name": name, "namespace": "shop", "uid": uid},
                "spec": {"components": [{
                    "workload": {"kind": "Deployment", "name": "cart"}, "configMaps": [tracked],
                }]},
            }))
            .unwrap()
        };
        for plan in [plan("a", "1", "settings"), plan("b", "2", "other")] {
            writer.apply_watcher_event(&watcher::Event::Apply(plan));
        }
        let woken = |name: &str, namespace: &str, keeper: Option<&str>| {
            let labels = keeper.map(|uid| [(PLAN_UID.to_owned(), uid.to_owned())].into());
            let meta = ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels,
                ..ObjectMeta::default()
            };
            let plans = tracking(&store, &meta);
            let mut names: Vec<_> = plans.into_iter().map(|plan| plan.name).collect();
            names.sort();
            names
        };
        assert_eq!(woken("settings", "shop", None), ["a"]);
        assert_eq!(woken("settings-0a1b", "shop", Some("1")), ["a"]);
        assert_eq!(woken("settings", "shop", Some("2")), ["a", "b"]);
        assert_eq!(woken("settings-0a1b", "shop", None), [""; 0]);
        assert_eq!(woken("settings-0a1b", "else", Some("1")), [""; 0]);
    }
}
