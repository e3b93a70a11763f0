//! Whether a release has failed: what the pods of the new template say, and
//! the deadline.

use std::time::Duration;

use super::{
    Workload,
    context::{Context, View, is_complete},
};
use crate::api::{Cause, Failure, GatewayDuration};

/// Judges a component whose new template is live.
pub(super) fn pods(
    ctx: &Context<'_>,
    restarts: i32,
    view: View<'_>,
    workload: &Workload,
) -> Option<Failure> {
    let failure = |cause, message| Failure {
        component: Some(view.scope.name.clone()),
        cause,
        message,
        at: ctx.micros(),
    };
    let refused = workload
        .new_pods
        .as_ref()
        .and_then(|pods| pods.refused.as_ref());
    if let Some(text) = refused
        && workload.observed
        && workload.updated < workload.replicas
    {
        let text = format!("{}: new pods are refused: {text}", view.scope.target);
        return Some(failure(Cause::ReplicaFailure, text));
    }
    let faults = workload
        .new_pods
        .as_ref()
        .map(|pods| pods.faults.as_slice())
        .unwrap_or_default();
    faults.iter().find_map(|fault| {
        let place = format!("{}: {}", view.scope.target, fault.place());
        if let Some(cause) = fault.cause {
            return Some(failure(cause, format!("{place}: {}", fault.message)));
        }
        (fault.restarts >= restarts).then(|| {
            let text = format!(
                "{place} restarted {} times (spec.failFast.restarts is {restarts}): {}",
                fault.restarts, fault.message
            );
            failure(Cause::ContainerRestarts, text)
        })
    })
}

/// Keeps the record of progress of a component and says how much time is left
/// before it counts as stuck; none while its clock does not run.
pub(super) fn progress(
    ctx: &mut Context<'_>,
    index: usize,
    workload: &Workload,
    deadline: Duration,
) -> Option<Duration> {
    let now = ctx.micros();
    let complete = is_complete(workload);
    // Before the pods are watched, as after a restart of the operator, there are
    // only the Deployment's own counts, in which old pods may stand for new ones.
    let old = workload.total - workload.updated;
    let ready = workload.new_pods.as_ref().map_or_else(
        || (workload.available - old).clamp(0, workload.updated.max(0)),
        |pods| pods.available,
    );
    let component = ctx.component(index)?;
    let rescaled = component
        .replicas
        .is_some_and(|known| known != workload.replicas);
    component.replicas = Some(workload.replicas);
    component.updated_replicas = Some(workload.updated);
    component.available_replicas = Some(workload.available);
    if complete {
        component.progress_at = None;
        component.best_ready = None;
        return None;
    }
    if rescaled
        || component.progress_at.is_none()
        || component.best_ready.is_none_or(|best| ready > best)
    {
        component.best_ready = Some(ready);
        component.progress_at = Some(now);
    }
    let since = component.progress_at.clone()?;
    let passed = ctx.since(&since);
    Some(deadline.saturating_sub(passed))
}

/// The failure of a component that made no progress for too long.
pub(super) fn stuck(
    ctx: &Context<'_>,
    view: View<'_>,
    workload: &Workload,
    deadline: Duration,
) -> Failure {
    let faults = workload
        .new_pods
        .as_ref()
        .map(|pods| pods.faults.as_slice())
        .unwrap_or_default();
    let why = faults.first().map_or_else(String::new, |fault| {
        format!("; {}: {}", fault.place(), fault.message)
    });
    Failure {
        component: Some(view.scope.name.clone()),
        cause: Cause::ProgressDeadlineExceeded,
        message: format!(
            "no progress for {}: {}{why}",
            GatewayDuration::from(deadline),
            super::adopt::availability(view, workload)
        ),
        at: ctx.micros(),
    }
}
