//! A release that stopped where it is: frozen by its failure, or left by a
//! person in the middle of a rollback. Nothing is written or judged until a
//! person, or newer content, decides.

use std::time::Duration;

use super::{
    again, contents,
    context::{Context, current_name},
    held, pinned,
    records::record,
    refused::refuse,
    report, restore,
    rollout::reset,
    snapshots, ways,
};
use crate::{
    api::{
        ABORT, Cause, ComponentState, Failure, OnFailure, Phase, RETRY, Reason, ReleaseKind,
        ReleaseProgress, ReleaseResult, Stage, UNDO,
    },
    fields::canon,
    plan::{AS_ASKED, Plan},
};

/// Deals with a failure as the plan wants it.
pub(super) fn failed(ctx: &mut Context<'_>, failure: Failure) {
    let freeze = ctx
        .input
        .plan
        .is_ok_and(|plan| plan.on_failure() == OnFailure::Freeze);
    if !freeze || ctx.status.stable_revision.is_none() {
        return restore::begin(ctx, failure);
    }
    stop(ctx, Phase::Frozen);
    if let Some(release) = ctx.status.release.as_mut() {
        release.failure = Some(failure);
    }
    report::judged(ctx);
    verdict(ctx);
}

/// Ends a rollback where it is.
pub(super) fn keep(ctx: &mut Context<'_>, by: &str) {
    let failure = ctx.release().and_then(|release| release.failure.clone());
    if failure.is_none_or(|failure| failure.cause != Cause::Reverted) {
        refuse(ctx);
    }
    let text = format!("the rollback was aborted as asked{by}; what is live stays");
    record(ctx, ReleaseResult::Failed, Some(text));
    stop(ctx, Phase::Failed);
    report::judged(ctx);
    verdict(ctx);
}

fn stop(ctx: &mut Context<'_>, phase: Phase) {
    ctx.discard_writes();
    let now = ctx.micros();
    let generation = ctx.input.world.plan.release_generation;
    let content = ctx.input.plan.map_or_else(
        |_| ctx.target().map(|target| target.data.spec.clone()),
        |plan| Some(plan.content().to_owned()),
    );
    if let Some(release) = ctx.status.release.as_mut() {
        release.stage = Stage::Stopped;
        release.stage_since = now;
        release.held_since = None;
        release.undo = None;
        release.content = content.unwrap_or_default();
        release.generation = generation;
    }
    // What is live now is not news, whatever it is.
    let live: Vec<(usize, String)> = ctx
        .components()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            let now = contents::now(ctx, view.scope, workload);
            Some((view.index, canon::digest(&now)))
        })
        .collect();
    for (index, digest) in live {
        if let Some(component) = ctx.component(index) {
            component.live_digest = Some(digest);
            component.failed_first = None;
            component.progress_at = None;
            component.best_ready = None;
        }
    }
    ctx.status.phase = Some(phase);
    ctx.status.step = Some("Stopped".to_owned());
}

/// Enters a frozen release into the history; one that a person left is there
/// already.
pub(super) fn ended(ctx: &mut Context<'_>) {
    if ctx.status.phase == Some(Phase::Frozen) {
        let failure = ctx.release().and_then(|release| release.failure.clone());
        let text = failure.map(|failure| restore::reason(&failure));
        record(ctx, ReleaseResult::Failed, text);
    }
}

pub(super) fn run(ctx: &mut Context<'_>) {
    let Ok(plan) = ctx.input.plan else {
        return verdict(ctx);
    };
    let (edited, live, back) = news(ctx, plan);
    let begun = ctx.release().and_then(|release| release.generation);
    let numbers = begun.zip(ctx.input.world.plan.release_generation);
    let by_plan = edited && numbers.is_none_or(|(then, now)| now > then);
    if edited && ctx.stable().is_some_and(|s| s.data.spec == plan.content()) || back {
        renumber(ctx);
        return restore::revert(ctx);
    }
    if plan.paused() {
        return verdict(ctx);
    }
    if (edited && !ctx.spec_refused(plan)) || live {
        return supersede(ctx, by_plan);
    }
    verdict(ctx);
}

/// Whether the plan's content was edited since the stop, whether somebody gave
/// a followed workload a template that is new, and whether all those that were
/// moved have their stable ones again.
fn news(ctx: &Context<'_>, plan: &Plan) -> (bool, bool, bool) {
    let stopped = ctx.release().map(|release| release.content.clone());
    let edited = stopped.as_deref() != Some(plan.content())
        && !ctx.set_changed(plan)
        && snapshots::is_resolved(ctx);
    let applied = ctx.release().map(|r| r.applied.clone()).unwrap_or_default();
    let mut live = false;
    let mut moved = false;
    let mut away = false;
    let mut fresh = false;
    for view in ctx.components() {
        let Some(workload) = &view.observed.workload else {
            continue;
        };
        let stable = ctx.stable().and_then(|s| s.data.of(&view.scope.target));
        let was = |name: &String| {
            ctx.revision(Some(name))
                .and_then(|r| r.data.of(&view.scope.target))
        };
        let now = contents::now(ctx, view.scope, workload);
        let is_live = |f: &crate::revision::Frozen| canon::equal(&f.template, &now);
        if !ctx.touched(&view.scope.target).is_empty() {
            away = true;
            continue;
        }
        let known: Vec<_> = applied.iter().filter_map(was).collect();
        let at_stable = stable.is_some_and(is_live);
        let reference = view.scope.target.to_ref();
        let component = ctx
            .status
            .components
            .iter()
            .find(|c| c.workload == reference);
        let digest = canon::digest(&now);
        let seen = component.is_some_and(|c| c.live_digest.as_ref() == Some(&digest));
        fresh |= !seen;
        // Refused content that comes again is nothing newer.
        live |= !at_stable && !seen && !ctx.live_refused(&view.scope.target, &now);
        moved |= known
            .iter()
            .any(|f| stable.is_some_and(|s| !canon::equal(&s.template, &f.template)));
        away |= !at_stable;
    }
    (edited, live, moved && !away && fresh)
}

/// The next way of a release that is in the history already is another one.
fn renumber(ctx: &mut Context<'_>) {
    let entered = ctx.status.history.last().map(|record| record.number);
    if let Some(release) = ctx.status.release.as_mut()
        && entered >= Some(release.number)
    {
        release.number = entered.unwrap_or_default() + 1;
    }
}

/// Leaves a stop for newer content; `by_plan` says that the plan itself has it.
fn supersede(ctx: &mut Context<'_>, by_plan: bool) {
    ended(ctx);
    renumber(ctx);
    again::expire(ctx);
    pinned::begin_anew(ctx);
    let now = ctx.micros();
    let facts = &ctx.input.world.plan;
    // Who changed the plan did not ask for what others changed.
    let requested_by = facts.requested_by.clone().filter(|_| by_plan);
    let generation = facts.release_generation;
    if let Some(release) = ctx.status.release.as_mut() {
        release.kind = ReleaseKind::Content;
        release.stage = Stage::Settle;
        release.started_at = now.clone();
        release.stage_since = now;
        release.failure = None;
        release.retried = false;
        release.requested_by = requested_by;
        release.generation = generation;
    }
    ctx.status.target_revision = None;
    ctx.status.phase = Some(Phase::RollingOut);
    ctx.status.step = Some("Settle".to_owned());
    ctx.wake_in(Duration::from_secs(1));
    let text = "newer content takes the place of the stopped release";
    ctx.tell(false, Reason::Superseded, text);
    report::progressing(ctx, Reason::Settling, text);
}

/// Goes back after all. `by` says who asked.
pub(super) fn back(ctx: &mut Context<'_>, by: &str) {
    renumber(ctx);
    let failed = ctx.release().and_then(|release| release.failure.clone());
    let is_frozen = ctx.status.phase == Some(Phase::Frozen);
    let failed = failed.map(|failure| Failure {
        message: if is_frozen {
            format!(
                "{}; it stopped there and was {AS_ASKED}{by}",
                failure.message
            )
        } else {
            failure.message
        },
        ..failure
    });
    let failure = failed.unwrap_or_else(|| Failure {
        component: None,
        cause: Cause::Aborted,
        message: format!("the release was aborted as asked{by}"),
        at: ctx.micros(),
    });
    // Said for itself too: of a long cause not all is told.
    let text = format!("the stopped release is {AS_ASKED}{by}");
    ctx.log(Reason::RollbackStarted, &text);
    restore::begin(ctx, failure);
}

/// Goes on with the same target, as somebody asked.
pub(super) fn again(ctx: &mut Context<'_>, user: Option<&String>) {
    renumber(ctx);
    let name = current_name(ctx);
    ctx.status.refused.retain(|r| r.revision != name);
    again::forget(ctx);
    if let Some(target) = ctx.target() {
        // Whatever came of parts of it before: all of it is asked for.
        held::lift(ctx, target);
    }
    let stage = if ctx.status.target_revision.is_some() {
        Stage::Promote
    } else {
        Stage::Settle
    };
    let now = ctx.micros();
    let target = ctx.status.target_revision.clone();
    if let Some(release) = ctx.status.release.as_mut() {
        release.stage = stage;
        release.started_at = now.clone();
        release.stage_since = now;
        release.failure = None;
        release.retried = true;
        // It may be what was refused before and only came again.
        let new = target.iter().filter(|name| !release.applied.contains(name));
        let new: Vec<String> = new.cloned().collect();
        release.applied.extend(new);
        // Followed workloads may have gone back since: they get its templates,
        // as in an undo.
        release.undo.clone_from(&target);
        release.requested_by = user.cloned().or_else(|| release.requested_by.take());
    }
    tried(ctx, &name, user);
}

/// Tries a first release again that has nothing to return to.
pub(super) fn first_again(ctx: &mut Context<'_>, name: &str, user: Option<&String>) {
    let number = ctx.status.history.last().map_or(0, |record| record.number) + 1;
    ctx.status.release = Some(ReleaseProgress {
        number,
        kind: ReleaseKind::First,
        stage: Stage::Promote,
        content: String::new(),
        started_at: ctx.micros(),
        stage_since: ctx.micros(),
        requested_by: user.cloned(),
        generation: ctx.input.world.plan.release_generation,
        applied: vec![name.to_owned()],
        held_since: None,
        failure: None,
        undo: None,
        retried: true,
    });
    ctx.status.target_revision = Some(name.to_owned());
    ctx.status.refused.retain(|r| r.revision != name);
    tried(ctx, name, user);
}

fn tried(ctx: &mut Context<'_>, name: &str, user: Option<&String>) {
    ctx.status.phase = Some(Phase::RollingOut);
    ctx.status.step = Some("Promote".to_owned());
    reset(ctx, ComponentState::Waiting);
    let by = user.map_or_else(String::new, |user| format!(" by {user}"));
    let text = format!("{name} is tried again as asked{by}, judged by its deadline only");
    ctx.tell(false, Reason::RetryRequested, &text);
    report::progressing(ctx, Reason::RetryRequested, &text);
}

fn verdict(ctx: &mut Context<'_>) {
    let name = current_name(ctx);
    let failure = ctx.release().and_then(|release| release.failure.clone());
    let why = failure.map_or_else(String::new, |failure| restore::reason(&failure));
    let stable = ctx.status.stable_revision.as_deref().unwrap_or_default();
    let changed = ctx.input.plan.is_ok_and(|plan| ctx.set_changed(plan));
    let edit = if changed {
        "Other components join and leave only once this has ended".to_owned()
    } else {
        ways::change(ctx)
    };
    if ctx.status.phase == Some(Phase::Failed) {
        let text = format!(
            "the rollback was aborted as asked, and what is live stays ({why}). {edit}, or go back to {stable} after all: {} ; or try {name} again: {}",
            ways::order(ctx, &[(UNDO, stable)]),
            ways::order(ctx, &[(RETRY, &name)])
        );
        return report::stalled(ctx, Reason::RollbackAborted, &text);
    }
    let text = format!(
        "{why}. The release of {name} stops here and nothing is written. {edit}, or go back to {stable}: {} ; or try the same again: {}",
        ways::order(ctx, &[(ABORT, &name)]),
        ways::order(ctx, &[(RETRY, &name)])
    );
    report::stalled(ctx, Reason::Frozen, &text);
}
