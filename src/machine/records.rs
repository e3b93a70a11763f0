//! The account of releases: records of those that ended, and the revisions that
//! are kept for them.

use super::{
    Action,
    context::{Context, cut},
};
use crate::api::{ReleasePlanStatus, ReleaseRecord, ReleaseResult};

/// How many records are kept where the plan cannot be read.
const LIMIT: usize = 10;

/// Enters the release in progress into the history.
pub(super) fn record(ctx: &mut Context<'_>, result: ReleaseResult, message: Option<String>) {
    let ended = ctx.time();
    let Some(release) = ctx.release() else { return };
    let record = ReleaseRecord {
        number: release.number,
        kind: release.kind,
        revision: ctx.status.target_revision.clone(),
        requested_by: release.requested_by.clone(),
        unproven: false,
        from: ctx.status.stable_revision.clone(),
        started_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(release.started_at.0),
        ended_at: ended,
        result,
        message: message.map(|message| cut(&message)),
    };
    ctx.status.history.push(record);
    // Bounded here too, for a release that is superseded again and again.
    let limit = ctx.input.plan.map_or(LIMIT, |plan| plan.history_limit());
    let surplus = ctx.status.history.len().saturating_sub(limit);
    ctx.status.history.drain(..surplus);
}

/// Bounds the history, and with it the revisions that are kept.
pub(super) fn prune(ctx: &mut Context<'_>, limit: usize) {
    let surplus = ctx.status.history.len().saturating_sub(limit);
    ctx.status.history.drain(..surplus);
    let surplus = ctx.status.refused.len().saturating_sub(limit);
    ctx.status.refused.drain(..surplus);
    let mut keep: Vec<String> = ctx
        .status
        .history
        .iter()
        .flat_map(|record| [record.revision.clone(), record.from.clone()])
        .flatten()
        .chain(
            ctx.status
                .refused
                .iter()
                .map(|refused| refused.revision.clone()),
        )
        // The status that no longer needs them is not stored yet: until then
        // they may still be what a rollback returns to.
        .chain(needed(&ctx.status))
        .chain(needed(ctx.input.status))
        .collect();
    keep.sort();
    keep.dedup();
    ctx.act(Action::PruneRevisions { keep });
}

/// Revisions that a release or a rollback needs.
fn needed(status: &ReleasePlanStatus) -> impl Iterator<Item = String> {
    let applied = status
        .release
        .iter()
        .flat_map(|release| release.applied.clone());
    status
        .stable_revision
        .clone()
        .into_iter()
        .chain(status.proven_revision.clone())
        .chain(status.target_revision.clone())
        .chain(applied)
}
