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

/// When the status of each plan was last written, by uid.
#[derive(Debug, Default)]
pub(super) struct LastWrites(Mutex<HashMap<String, Instant>>);

impl LastWrites {
    fn since(&self, uid: &str) -> Option<Duration> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(uid).map(Instant::elapsed)
    }

    fn note(&self, uid: &str) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(uid.to_owned(), Instant::now());
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

/// Writes the status if it differs. Answers how long to wait for a write that
/// was put off because it only tells of progress.
pub(super) async fn record(
    ctx: &Context,
    plan: &StoredPlan,
    status: &ReleasePlanStatus,
) -> Result<Option<Duration>, ReconcileError> {
    let current = plan.status.clone().unwrap_or_default();
    if current == *status {
        return Ok(None);
    }
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    if without_progress(&current) == without_progress(status)
        && let Some(since) = ctx.last_writes.since(uid)
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
    Api::<StoredPlan>::namespaced(ctx.client.clone(), namespace)
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map_err(ReconcileError::api(doing))?;
    ctx.last_writes.note(uid);
    Ok(None)
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
