//! What people see of a decision: conditions and the line under `Step`.
//!
//! Every path through [`super::step`] ends in one of the functions here, and
//! each of them sets all conditions, so that no two of them can contradict each
//! other.

use super::context::{CONDITION, Context, WAITING, cut, cut_around};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{
    ConditionType::{Ready, Reconciling, RollbackInProgress, RollingOut, Stable, Stalled},
    Phase, Reason, ReleasePlanStatus, merge_conditions,
};

/// The content of the plan is released and healthy.
pub(super) fn ready(ctx: &mut Context<'_>, message: &str) {
    set(ctx, Reason::Released, message, true, false, false);
}

/// Work goes on by itself.
pub(super) fn progressing(ctx: &mut Context<'_>, reason: Reason, message: &str) {
    set(ctx, reason, message, false, true, false);
}

/// Since when a plan is stalled for the reason that it is. A condition keeps the
/// time of its status, also where its reason becomes another one.
#[must_use]
pub fn stalled_since(status: &ReleasePlanStatus) -> Option<&Time> {
    let mut conditions = status.conditions.iter();
    let stalled = conditions.find(|c| c.type_ == Stalled.as_str() && c.status == "True")?;
    let told = status.decisions.iter().rev();
    let told = told.skip_while(|told| told.reason.as_str() != stalled.reason);
    let told = told.take_while(|told| told.reason.as_str() == stalled.reason);
    let first = told.last().map(|told| &told.at);
    let since = &stalled.last_transition_time;
    Some(first.filter(|first| first.0 > since.0).unwrap_or(since))
}

/// Nothing goes on until somebody acts.
pub(super) fn stalled(ctx: &mut Context<'_>, reason: Reason, message: &str) {
    // That a rollback stalls is told once; who it waits for may change often.
    if reason != Reason::RollbackStalled {
        ctx.tell_entry(reason, message);
    }
    if matches!(
        reason,
        Reason::TemplateRefused
            | Reason::Contended
            | Reason::RevisionLost
            | Reason::SnapshotLost
            | Reason::ConfigMapRefused
            | Reason::ConfigMapEdited
    ) {
        ctx.wake_while_stalled(reason);
    }
    set(ctx, reason, message, false, false, true);
}

fn set(
    ctx: &mut Context<'_>,
    reason: Reason,
    message: &str,
    ready: bool,
    reconciling: bool,
    stalled: bool,
) {
    let phase = *ctx.status.phase.get_or_insert(Phase::Pending);
    let mut message = cut_around(message, CONDITION);
    if !ctx.waiting.is_empty() {
        message.push_str(WAITING);
        message.push_str(&cut(&ctx.waiting.join("; ")));
    }
    let text = |holds: bool| {
        if holds {
            message.clone()
        } else {
            String::new()
        }
    };
    let stable =
        phase == Phase::Stable && !matches!(reason, Reason::Contended | Reason::TargetsMissing);
    let revision = ctx.status.stable_revision.clone().unwrap_or_default();
    let wanted = [
        (Ready, ready, reason, message.clone()),
        (Reconciling, reconciling, reason, text(reconciling)),
        (Stalled, stalled, reason, text(stalled)),
        (
            RollingOut,
            phase == Phase::RollingOut,
            reason,
            String::new(),
        ),
        (
            RollbackInProgress,
            phase == Phase::Rollback,
            reason,
            String::new(),
        ),
        (
            Stable,
            stable,
            reason,
            if stable {
                format!("{revision} is live")
            } else {
                String::new()
            },
        ),
    ];
    let generation = Some(ctx.input.world.plan.generation);
    ctx.status.observed_generation = generation;
    merge_conditions(
        &mut ctx.status.conditions,
        &wanted,
        generation,
        ctx.input.now,
    );
}

/// Marks the content that is wanted now as judged.
pub(super) fn judged(ctx: &mut Context<'_>) {
    if let Ok(plan) = ctx.input.plan {
        ctx.status.observed_content = Some(plan.spec_digest().to_owned());
    }
    if let Some(number) = ctx.input.world.plan.release_generation {
        ctx.status.observed_release_generation = Some(number);
    }
}
