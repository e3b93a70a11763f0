//! Records a decision in the status, only if it differs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Context, ReconcileError};
use crate::api::{ReleasePlanStatus, StoredPlan};

/// Shortest time between two writes that only tell of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// What was last written of each plan, by uid.
#[derive(Debug, Default)]
pub(super) struct LastWrites(Mutex<HashMap<String, LastWrite>>);

#[derive(Debug, Default)]
struct LastWrite {
    /// The resourceVersion that the plan got.
    version: Option<u64>,
    /// When the status was written.
    status_at: Option<Instant>,
}

impl LastWrites {
    fn change<T>(&self, plan: &StoredPlan, change: impl FnOnce(&mut LastWrite) -> T) -> T {
        let uid = plan.metadata.uid.clone().unwrap_or_default();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(entries.entry(uid).or_default())
    }

    /// Time since the status was last written.
    fn since(&self, plan: &StoredPlan) -> Option<Duration> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = entries.get(plan.metadata.uid.as_deref().unwrap_or_default())?;
        last.status_at.map(|at| at.elapsed())
    }

    /// Notes a plan as a write returned it.
    pub(super) fn note(&self, plan: &StoredPlan) {
        self.change(plan, |last| last.version = version(plan));
    }

    /// Takes no cache as good enough any more: the plan is gone.
    pub(super) fn distrust(&self, plan: &StoredPlan) {
        self.change(plan, |last| last.version = None);
    }

    /// Whether a plan out of the cache is as it was after our last write, or
    /// newer. resourceVersions of an object can be compared as numbers; where one
    /// is none, the answer is no.
    pub(super) fn are_in(&self, plan: &StoredPlan) -> bool {
        let wrote = {
            let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let last = entries.get(plan.metadata.uid.as_deref().unwrap_or_default());
            last.map(|last| last.version)
        };
        match wrote {
            None => true,
            Some(wrote) => wrote.is_some() && version(plan) >= wrote,
        }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

fn version(plan: &StoredPlan) -> Option<u64> {
    plan.metadata.resource_version.as_deref()?.parse().ok()
}

/// What a write of more than progress leads to is looked at after this time, if
/// the watch has not told of it before.
const FOLLOW_UP: Duration = Duration::from_millis(500);

/// Writes the status if it differs. Answers when to look at the plan again: for a
/// write that was put off because it only tells of progress, and for what follows
/// from one that was made.
pub(super) async fn record(
    ctx: &Context,
    plan: &StoredPlan,
    status: &ReleasePlanStatus,
) -> Result<Option<Duration>, ReconcileError> {
    let current = plan.status.clone().unwrap_or_default();
    if current == *status {
        return Ok(None);
    }
    let progress = without_progress(&current) == without_progress(status);
    if progress
        && let Some(since) = ctx.last_writes.since(plan)
        && since < PROGRESS
    {
        return Ok(Some(PROGRESS.saturating_sub(since)));
    }
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let doing = format!("write the status of releaseplan {namespace}/{name}");
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": plan.metadata.resource_version},
        {"op": "add", "path": "/status", "value": status},
    ]);
    let patch = serde_json::from_value(operations)
        .map(Patch::<()>::Json)
        .map_err(|error| ReconcileError::Api {
            doing: doing.clone(),
            source: Box::new(kube::Error::SerdeError(error)),
        })?;
    let written = Api::<StoredPlan>::namespaced(ctx.client.clone(), namespace)
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map_err(ReconcileError::api(doing))?;
    ctx.last_writes.note(&written);
    ctx.last_writes
        .change(plan, |last| last.status_at = Some(Instant::now()));
    Ok((!progress).then_some(FOLLOW_UP))
}

/// The status without what only tells how far a stage is.
pub(super) fn without_progress(status: &ReleasePlanStatus) -> ReleasePlanStatus {
    let mut status = status.clone();
    status.step = None;
    for component in &mut status.components {
        component.replicas = None;
        component.updated_replicas = None;
        component.available_replicas = None;
        component.best_ready = None;
        component.progress_at = None;
        component.state = None;
    }
    for condition in &mut status.conditions {
        condition.message.clear();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ComponentStatus, Phase};

    #[test]
    fn the_cache_is_good_enough_once_it_has_our_last_write() {
        let at = |version: &str| -> StoredPlan {
            let meta = serde_json::json!({"uid": "u", "resourceVersion": version});
            serde_json::from_value(serde_json::json!({"metadata": meta, "spec": {}})).unwrap()
        };
        let writes = LastWrites::default();
        assert!(writes.are_in(&at("9")), "nothing was written");
        writes.note(&at("10"));
        assert!(!writes.are_in(&at("9")), "compared as numbers");
        assert!(writes.are_in(&at("10")) && writes.are_in(&at("11")));
        assert!(!writes.are_in(&at("x")));
        writes.note(&at("x"));
        assert!(!writes.are_in(&at("x")) && !writes.are_in(&at("12")));
        writes.note(&at("10"));
        writes.distrust(&at("10"));
        assert!(!writes.are_in(&at("12")));
        writes.forget("u");
        assert!(writes.are_in(&at("9")));
    }

    #[test]
    fn numbers_of_pods_are_progress_and_a_phase_is_not() {
        let with = |updated, phase| ReleasePlanStatus {
            phase: Some(phase),
            components: vec![ComponentStatus {
                updated_replicas: updated,
                ..ComponentStatus::default()
            }],
            ..ReleasePlanStatus::default()
        };
        let one = without_progress(&with(Some(1), Phase::RollingOut));
        assert_eq!(one, without_progress(&with(Some(2), Phase::RollingOut)));
        assert_ne!(one, without_progress(&with(Some(1), Phase::Rollback)));
    }
}
