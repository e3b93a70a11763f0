//! What people see of a decision: conditions and the line under `Step`.
//!
//! Every path through [`super::step`] ends in one of the functions here, and
//! each of them sets all conditions, so that no two of them can contradict each
//! other.

use super::context::Context;
use crate::api::{
    ConditionType::{Ready, Reconciling, RollbackInProgress, RollingOut, Stable, Stalled},
    Phase, Reason, merge_conditions,
};

/// The content of the plan is released and healthy.
pub(super) fn ready(ctx: &mut Context<'_>, message: &str) {
    set(ctx, Reason::Released, message, true, false, false);
}

/// Work goes on by itself.
pub(super) fn progressing(ctx: &mut Context<'_>, reason: Reason, message: &str) {
    set(ctx, reason, message, false, true, false);
}

/// Nothing goes on until somebody acts.
pub(super) fn stalled(ctx: &mut Context<'_>, reason: Reason, message: &str) {
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
    let text = |holds: bool| {
        if holds {
            message.to_owned()
        } else {
            String::new()
        }
    };
    let stable = phase == Phase::Stable;
    let revision = ctx.status.stable_revision.clone().unwrap_or_default();
    let wanted = [
        (Ready, ready, reason, message.to_owned()),
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
    merge_conditions(
        &mut ctx.status.conditions,
        &wanted,
        generation,
        ctx.input.now,
    );
}

/// Marks the content that is wanted now as judged.
pub(super) fn judged(ctx: &mut Context<'_>, content: &str) {
    ctx.status.observed_content = Some(content.to_owned());
    if let Some(number) = ctx.input.world.plan.release_generation {
        ctx.status.observed_release_generation = Some(number);
    }
}
