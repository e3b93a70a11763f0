//! The beginning of a release: waits until the content stands still, then
//! prepares everything before anything that a user owns is touched.

use std::time::Duration;

use super::{
    Action, adopt, again,
    commands::{self, OVERTAKEN},
    context::{Context, conflict},
    desired::{Change, Desired, desired},
    held, pinned, refused, report, restore, rollout, snapshots, stable, stopped, supersede, ways,
};
use crate::{
    api::{
        ABORT, Cause, ComponentState, Failure, GatewayDuration, Phase, Reason, ReleaseKind,
        ReleaseProgress, Stage,
    },
    plan::{Plan, unbegun},
};

/// Content that did not change for this long is released.
const QUIET: Duration = Duration::from_secs(1);
/// Content that keeps changing is released after this long all the same.
const LONGEST: Duration = Duration::from_secs(5);

/// Starts a release that nothing has been written for yet.
pub(super) fn begin(ctx: &mut Context<'_>, desired: &Desired) {
    again::expire(ctx);
    if snapshots::were_refused(ctx) {
        // Asked before anything is said to go on: it may be refused again.
        for action in desired.keep.clone() {
            ctx.act_once(action);
        }
    }
    let kind = if ctx.status.stable_revision.is_none() {
        ReleaseKind::First
    } else if desired.changes.contains(&Change::Content) {
        commands::overtaken_at_rest(ctx);
        ReleaseKind::Content
    } else {
        ReleaseKind::Surroundings
    };
    let number = ctx.status.history.last().map_or(0, |record| record.number) + 1;
    // Who last changed the plan did not ask for what others changed since.
    let facts = &ctx.input.world.plan;
    let judged = ctx.status.observed_release_generation;
    let edited = facts.release_generation.is_some() && facts.release_generation != judged;
    // Its content may have been released a moment ago, and not be told as judged yet.
    let is_released = |plan| supersede::is_revert(ctx, plan);
    let edited = edited && !ctx.input.plan.is_ok_and(is_released);
    let editor = facts.requested_by.clone().filter(|_| edited);
    let requested_by = ctx.retried_by.take().or(editor);
    ctx.status.release = Some(ReleaseProgress {
        number,
        kind,
        stage: Stage::Settle,
        content: desired.content.clone(),
        started_at: ctx.micros(),
        stage_since: ctx.micros(),
        requested_by,
        generation: facts.release_generation,
        applied: Vec::new(),
        held_since: None,
        failure: None,
        undo: None,
        retried: false,
    });
    ctx.status.phase = Some(Phase::RollingOut);
    ctx.wake_in(QUIET);
    settling(ctx);
}

fn settling(ctx: &mut Context<'_>) {
    ctx.status.step = Some("Settle".to_owned());
    report::progressing(
        ctx,
        Reason::Settling,
        "new content was seen and is prepared for release",
    );
}

pub(super) fn run(ctx: &mut Context<'_>, plan: &Plan) {
    let touched = ctx.has_applied();
    if !touched && let Some(text) = conflict(ctx) {
        return abandon(ctx, |ctx| report::stalled(ctx, Reason::Conflict, &text));
    }
    if ctx.set_changed(plan) {
        let text = "the set of components changed in mid-release";
        if touched {
            return restore::refused(ctx, text.to_owned());
        }
        return abandon(ctx, |ctx| {
            ctx.wake_in(Duration::ZERO);
            report::progressing(ctx, Reason::Settling, text);
        });
    }
    if ctx.status.stable_revision.is_none() && ctx.spec_refused(plan) {
        // There is nothing to go back to for it; what is live stays.
        return abandon(ctx, |ctx| adopt::baseline(ctx, plan));
    }
    undo_or_newer(ctx, plan);
    if pinned::take(ctx) {
        return settling(ctx);
    }
    let desired = match desired(ctx, plan) {
        Ok(desired) => desired,
        Err(obstacle) if touched => {
            // What was moved so far is judged by nobody here, so nothing may
            // wait long.
            if obstacle.reason == Reason::TargetsMissing {
                return gone(ctx, plan, obstacle.message);
            }
            if obstacle.reason == Reason::Settling {
                return undecided(ctx, plan, &obstacle.message);
            }
            // It has no revision to be known by, should the way back be stuck.
            if let Some(release) = ctx.status.release.as_mut() {
                plan.content().clone_into(&mut release.content);
            }
            return restore::refused(ctx, obstacle.message);
        }
        Err(obstacle) => {
            if let Some(to) = unbegun(&ctx.status).map(str::to_owned) {
                if obstacle.reason == Reason::TargetsMissing {
                    let text = format!("the undo to {to} waits: {}", obstacle.message);
                    return report::progressing(ctx, obstacle.reason, &text);
                }
                let text = format!(
                    "the undo to {to} ends before it began: {}",
                    obstacle.message
                );
                ctx.tell(true, Reason::UndoIgnored, &text);
            }
            return abandon(ctx, |ctx| {
                stable::obstructed(ctx, obstacle.reason, &obstacle.message);
            });
        }
    };
    if !desired.changed() {
        if touched && ctx.status.stable_revision.is_some() {
            return match refused::asked_again(ctx, plan).cloned() {
                Some(refused) => restore::again(ctx, refused),
                None => restore::revert(ctx),
            };
        }
        return abandon(ctx, |ctx| match ctx.status.phase {
            Some(Phase::Stable) => stable::rest(ctx, plan),
            _ => adopt::baseline(ctx, plan),
        });
    }
    // Once something is touched it has to be judged, which is the next stage's
    // work; that stage holds for a pause itself.
    if plan.paused() && !touched && !desired.has_begun() {
        let (what, drop) = match unbegun(&ctx.status) {
            Some(to) => {
                let drop = ways::order(ctx, &[(ABORT, to)]);
                (format!("undo to {to}"), format!(" ; to drop it: {drop}"))
            }
            None => ("release".to_owned(), String::new()),
        };
        let text = format!(
            "the {what} waits: the plan is paused (spec.paused). To go on: {}{drop}",
            ways::resume(ctx)
        );
        return report::progressing(ctx, Reason::Paused, &text);
    }
    let now = ctx.micros();
    let Some(release) = ctx.status.release.as_mut() else {
        return;
    };
    if release.content != desired.content {
        release.content.clone_from(&desired.content);
        release.stage_since = now;
    }
    let (quiet, long) = (release.stage_since.clone(), release.started_at.clone());
    let (quiet, long) = (ctx.since(&quiet), ctx.since(&long));
    if quiet < QUIET && long < LONGEST {
        ctx.wake_in((QUIET - quiet).min(LONGEST - long));
        return settling(ctx);
    }
    prepare(ctx, &desired);
}

/// An undo that is still prepared gives way to newer content.
fn undo_or_newer(ctx: &mut Context<'_>, plan: &Plan) {
    let Some(name) = ctx.release().and_then(|release| release.undo.clone()) else {
        return;
    };
    let is_own = ctx
        .revision(Some(&name))
        .is_none_or(|revision| revision.data.spec == plan.content());
    if is_own || ctx.spec_refused(plan) {
        return;
    }
    held::lift_hold(ctx);
    let facts = &ctx.input.world.plan;
    let (editor, generation) = (facts.requested_by.clone(), facts.release_generation);
    if let Some(release) = ctx.status.release.as_mut() {
        release.undo = None;
        release.kind = ReleaseKind::Content;
        // Who asked for the undo did not ask for this, nor did who edited the
        // plan where a ConfigMap is what was edited.
        release.requested_by = editor.filter(|_| generation > release.generation);
        release.generation = generation;
    }
    let text = format!("the undo to {name} ends before it began: {OVERTAKEN}");
    ctx.tell(true, Reason::UndoIgnored, &text);
}

/// A workload is gone between two releases of one way, or contents that it needs
/// are not known; it may come back.
fn gone(ctx: &mut Context<'_>, plan: &Plan, text: String) {
    let since = ctx.release().map(|release| release.started_at.clone());
    let passed = since.map_or(Duration::ZERO, |since| ctx.since(&since));
    let left = plan.progress_deadline().saturating_sub(passed);
    if left > Duration::ZERO {
        ctx.wake_in(left);
        return report::progressing(ctx, Reason::TargetsMissing, &text);
    }
    let workload = ctx.components().any(|c| c.observed.workload.is_none());
    let failure = Failure {
        component: None,
        cause: if workload {
            Cause::WorkloadMissing
        } else {
            Cause::ConfigMapUnavailable
        },
        message: text,
        at: ctx.micros(),
    };
    // It has no revision to be known by, should the way back be stuck.
    if let Some(release) = ctx.status.release.as_mut() {
        plan.content().clone_into(&mut release.content);
    }
    stopped::failed(ctx, failure);
}

/// The API server does not say what newer content would become. What was moved
/// for the content before it must not stay for longer than any other stage may
/// stand still.
fn undecided(ctx: &mut Context<'_>, plan: &Plan, text: &str) {
    let since = ctx.release().map(|release| release.stage_since.clone());
    let passed = since.map_or(Duration::ZERO, |since| ctx.since(&since));
    let deadline = plan.progress_deadline();
    let left = deadline.saturating_sub(passed);
    if left > Duration::ZERO {
        ctx.wake_in(left.min(LONGEST));
        let text =
            format!("waiting for the API server to say what the new content becomes: {text}");
        return report::progressing(ctx, Reason::Settling, &text);
    }
    let failure = Failure {
        component: None,
        cause: Cause::ProgressDeadlineExceeded,
        message: format!(
            "no progress for {}: the API server does not say what the new content becomes: {text}",
            GatewayDuration::from(deadline)
        ),
        at: ctx.micros(),
    };
    // It has no revision to be known by, should the way back be stuck.
    if let Some(release) = ctx.status.release.as_mut() {
        plan.content().clone_into(&mut release.content);
    }
    stopped::failed(ctx, failure);
}

/// Ends a release that has not touched anything, without a record.
pub(super) fn abandon(ctx: &mut Context<'_>, verdict: impl FnOnce(&mut Context<'_>)) {
    held::lift_hold(ctx);
    ctx.status.release = None;
    ctx.status.step = None;
    ctx.status.phase = Some(if ctx.status.stable_revision.is_some() {
        Phase::Stable
    } else {
        Phase::Pending
    });
    // Looked at again from scratch, in case something else changed meanwhile.
    verdict(ctx);
}

fn prepare(ctx: &mut Context<'_>, desired: &Desired) {
    let data = desired.data();
    let facts = &ctx.input.world.plan;
    let revision = data.named(&facts.name, &facts.uid);
    let name = revision.name.clone();
    let now = ctx.micros();
    let changed: Vec<String> = desired
        .frozen
        .iter()
        .zip(&desired.changes)
        .filter(|(_, change)| **change != Change::None)
        .map(|(frozen, _)| frozen.name.clone())
        .collect();
    let Some(release) = ctx.status.release.as_mut() else {
        return;
    };
    if facts.release_generation > release.generation && release.undo.is_none() {
        // Edited while it was prepared.
        release.generation = facts.release_generation;
        release.requested_by.clone_from(&facts.requested_by);
    }
    if release.kind == ReleaseKind::Surroundings && desired.changes.contains(&Change::Content) {
        // It began as less.
        release.kind = ReleaseKind::Content;
    }
    release.stage = Stage::Promote;
    release.stage_since = now;
    release.applied.retain(|applied| *applied != name);
    release.applied.push(name.clone());
    let number = release.number;
    if let Some(to) = release.undo.clone() {
        // Not before: an undo that is taken back has changed nothing.
        if let Some(to) = ctx.revision(Some(&to)) {
            let to = pinned::returned(ctx, to);
            held::lift(ctx, &to);
        }
    }
    let _ = snapshots::way_back(ctx);
    // Contents first: whatever names a snapshot finds it.
    for action in desired.keep.clone() {
        ctx.act_once(action);
    }
    ctx.act(Action::CreateRevision {
        revision: Box::new(revision),
        number,
    });
    ctx.status.target_revision = Some(name.clone());
    rollout::reset(ctx, ComponentState::Waiting);
    let from = ctx.status.stable_revision.clone();
    let from = from.map_or_else(
        || "with nothing to return to".to_owned(),
        |from| format!("from {from}"),
    );
    ctx.tell(
        false,
        Reason::ReleaseStarted,
        &format!("release {number}: {} to {name}, {from}", changed.join(", ")),
    );
    ctx.status.step = Some("Promote".to_owned());
    report::progressing(ctx, Reason::Promoting, &format!("{name} is being released"));
}
