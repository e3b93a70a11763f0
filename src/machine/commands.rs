//! What people ask for by annotations on the plan.
//!
//! An abort is dealt with before an undo, and an undo before a retry; the others
//! wait for their turn, and the plan says so. What was decided is recorded before
//! the annotation goes, so that a crash in between neither loses an order nor
//! carries it out twice.

use std::time::Duration;

use super::{
    Action, again, contents,
    context::{Context, conflict, cut},
    desired::{Obstacle, undone},
    held, pinned, rebuild,
    refused::refuse,
    report, restore, settle, snapshots, stable, stopped,
    types::TemplateWrite,
    ways,
};
use crate::{
    api::{
        ABORT, Cause, Failure, HandledCommand, Phase, RETRY, Reason, ReleaseKind, Stage, UNDO,
        WorkloadRef,
    },
    plan::{
        TWICE, abortable, current, is_gone_from_plan, is_just_aborted, retryable, unbegun, undoable,
    },
};

/// What becomes of an order.
enum Outcome {
    /// It was carried out, and decides this pass.
    Taken,
    /// Its time has not come, which it waits for.
    Waits(String),
    /// It means nothing, for this reason.
    Ignored(Reason, String),
}

/// Deals with what people ask for; true if that decides this pass.
pub(super) fn run(ctx: &mut Context<'_>) -> bool {
    let facts = &ctx.input.world.plan;
    let given = [
        (ABORT, facts.abort.clone()),
        (UNDO, facts.undo.clone()),
        (RETRY, facts.retry.clone()),
    ];
    let given: Vec<HandledCommand> = given
        .into_iter()
        .filter_map(|(annotation, value)| {
            let value = value?;
            let stamp = facts.ordered_by.of(annotation, &value);
            Some(HandledCommand {
                annotation: annotation.to_owned(),
                user: stamp.map(|stamp| stamp.user.clone()),
                value,
            })
        })
        .collect();
    if let Some(handled) = ctx.status.handled.take() {
        let is_it = |given: &HandledCommand| {
            given.annotation == handled.annotation && given.value == handled.value
        };
        if handled.annotation == RETRY {
            // The release that comes of it begins in this pass.
            ctx.retried_by.clone_from(&handled.user);
        }
        if given.iter().any(is_it) {
            drop_annotation(ctx, handled);
            if given.len() > 1 {
                ctx.wake_in(Duration::ZERO);
            }
            return false;
        }
    }
    for command in given {
        let outcome = match command.annotation.as_str() {
            ABORT => abort(ctx, &command),
            UNDO => undo(ctx, &command),
            _ => retry(ctx, &command),
        };
        match outcome {
            Outcome::Waits(what) => waits(ctx, &command, &what),
            Outcome::Ignored(reason, why) => {
                ignored(ctx, command, reason, &why);
                return false;
            }
            Outcome::Taken => {
                ctx.status.handled = Some(command);
                ctx.wake_in(Duration::ZERO);
                return true;
            }
        }
    }
    false
}

/// " by jane", where that is known.
fn by(command: &HandledCommand) -> String {
    let user = command.user.as_ref();
    user.map_or_else(String::new, |user| format!(" by {user}"))
}

/// Says that an order waits, and for what: in all conditions while it does, and
/// once as a decision.
fn waits(ctx: &mut Context<'_>, command: &HandledCommand, what: &str) {
    let (order, told, not) = match command.annotation.as_str() {
        UNDO => ("undo to", Reason::UndoRequested, Reason::UndoIgnored),
        _ => ("retry of", Reason::RetryRequested, Reason::RetryIgnored),
    };
    let by = by(command);
    let asked = if by.is_empty() {
        String::new()
    } else {
        format!(", asked for{by},")
    };
    let text = format!("{order} {}{asked} waits {what}", command.value);
    let mut decisions = ctx.status.decisions.iter().rev();
    let last = decisions.find(|d| d.reason == told || d.reason == not);
    if last.is_some_and(|last| last.message == cut(&text)) {
        ctx.waited.push(command.clone());
    } else {
        ctx.tell(false, told, &text);
    }
    ctx.waiting.push(text);
}

/// Drops the orders that waited before the newer content came that is released
/// now: they were not meant for it.
pub(super) fn overtaken(ctx: &mut Context<'_>) {
    for command in std::mem::take(&mut ctx.waited) {
        let reason = match command.annotation.as_str() {
            UNDO => Reason::UndoIgnored,
            _ => Reason::RetryIgnored,
        };
        ignored(ctx, command, reason, OVERTAKEN);
    }
    ctx.waiting.clear();
}

/// The same where no release was under way: content that begins to be released
/// right after a rest came after an order that waited through it. What was held
/// before, by a pause or an obstacle, may be older.
pub(super) fn overtaken_at_rest(ctx: &mut Context<'_>) {
    let mut conditions = ctx.input.status.conditions.iter();
    let rest = [Reason::Released, Reason::RolledBack, Reason::Undone];
    let rested =
        conditions.any(|c| c.type_ == "Ready" && rest.iter().any(|rest| rest.as_str() == c.reason));
    if rested {
        overtaken(ctx);
    }
}

/// Why an order means nothing any more.
pub(super) const OVERTAKEN: &str = "newer content came after it, which is the later wish";

/// Takes an order off that means nothing, and says why.
fn ignored(ctx: &mut Context<'_>, command: HandledCommand, reason: Reason, why: &str) {
    let by = by(&command);
    let given = if by.is_empty() { "" } else { ", asked for" };
    let text = format!(
        "{} names {}{given}{by}: {why}",
        command.annotation, command.value
    );
    ctx.tell(true, reason, &text);
    if ctx.status.handled.is_some() {
        return drop_annotation(ctx, command);
    }
    // Nothing comes of it that would be by whoever gave it.
    ctx.status.handled = Some(HandledCommand {
        user: None,
        ..command
    });
    ctx.wake_in(Duration::ZERO);
}

/// "for the end of release 4".
fn for_the_end(ctx: &Context<'_>) -> Outcome {
    let number = ctx.release().map_or(0, |release| release.number);
    Outcome::Waits(format!("for the end of release {number}"))
}

fn for_a_valid_plan() -> Outcome {
    Outcome::Waits("until the plan is valid".to_owned())
}

fn for_the_workloads() -> Outcome {
    Outcome::Waits("until no other plan holds a workload of this one".to_owned())
}

/// What is in the way of an order. What is not there, or only cannot be read
/// now, says nothing about it.
fn obstructed(ignored: Reason, obstacle: Obstacle) -> Outcome {
    let text = obstacle.message;
    if obstacle.reason == Reason::TargetsMissing {
        let what = text.strip_prefix("waiting ").unwrap_or(&text);
        return Outcome::Waits(what.to_owned());
    }
    Outcome::Ignored(ignored, text)
}

fn drop_annotation(ctx: &mut Context<'_>, command: HandledCommand) {
    ctx.act(Action::DropAnnotation {
        name: command.annotation,
        value: command.value,
    });
}

/// Ends a release, or a rollback where it is.
fn abort(ctx: &mut Context<'_>, command: &HandledCommand) -> Outcome {
    let wanted = &command.value;
    let ignored = |text: String| Outcome::Ignored(Reason::AbortIgnored, text);
    let Some(release) = ctx.release() else {
        return ignored("no release is in progress".to_owned());
    };
    let stage = release.stage;
    match abortable(&ctx.status) {
        Some(now) if now == wanted => {}
        Some(now) => {
            let end = ways::order(ctx, &[(ABORT, now)]);
            return ignored(format!(
                "the release in progress is that of {now}. To end it: {end}"
            ));
        }
        None if stage == Stage::Settle => {
            return ignored(
                "what is prepared now has no name yet; nothing of it is live".to_owned(),
            );
        }
        None => return ignored("its release has ended already".to_owned()),
    }
    if is_just_aborted(&ctx.status, ctx.now()) {
        return ignored(format!(
            "it was aborted a moment ago and goes back; to end that where it is, give the order again {} s after the first",
            TWICE.as_secs()
        ));
    }
    match stage {
        Stage::Restore => stopped::keep(ctx, &by(command)),
        Stage::Stopped => stopped::back(ctx, &by(command)),
        Stage::Settle if unbegun(&ctx.status).is_some() => taken_back(ctx, &by(command)),
        Stage::Settle | Stage::Promote | Stage::Bake => {
            aborted(
                ctx,
                &format!("the release was aborted as asked{}", by(command)),
            );
        }
    }
    Outcome::Taken
}

/// Takes an undo back of which nothing was written yet.
fn taken_back(ctx: &mut Context<'_>, by: &str) {
    let name = unbegun(&ctx.status).unwrap_or_default();
    let text = format!("the undo to {name} was taken back as asked{by} before it began");
    settle::abandon(ctx, |ctx| {
        ctx.tell(false, Reason::UndoIgnored, &text);
        report::progressing(ctx, Reason::Settling, &text);
    });
}

fn aborted(ctx: &mut Context<'_>, message: &str) {
    let failure = Failure {
        component: None,
        cause: Cause::Aborted,
        message: message.to_owned(),
        at: ctx.micros(),
    };
    restore::begin(ctx, failure);
}

/// Goes to an earlier revision. While a release is under way that waits for its
/// end, but the stable one is where an abort leads.
fn undo(ctx: &mut Context<'_>, command: &HandledCommand) -> Outcome {
    let ignored = |text: String| Outcome::Ignored(Reason::UndoIgnored, text);
    let (wanted, by) = (&command.value, by(command));
    let Ok(plan) = ctx.input.plan else {
        return for_a_valid_plan();
    };
    if !ctx.input.world.known.is_empty() {
        if conflict(ctx).is_some() {
            return for_the_workloads();
        }
        if rebuild::go_to(ctx, wanted) {
            if let Some(release) = ctx.status.release.as_mut() {
                release.requested_by.clone_from(&command.user);
            }
            return Outcome::Taken;
        }
        return ignored("it is not kept".to_owned());
    }
    if is_overtaken(ctx, command) {
        return ignored(OVERTAKEN.to_owned());
    }
    let is_stable = ctx.status.stable_revision.as_ref() == Some(wanted);
    let stage = ctx.release().map(|release| release.stage);
    // The later of two undos wins.
    let waits = unbegun(&ctx.status).is_some_and(|before| before != wanted);
    match stage {
        Some(Stage::Promote | Stage::Bake) if is_stable => {
            aborted(ctx, &format!("the stable revision was asked for{by}"));
            return Outcome::Taken;
        }
        Some(Stage::Stopped) if is_stable => {
            stopped::back(ctx, &by);
            return Outcome::Taken;
        }
        Some(Stage::Settle) if waits && is_stable => {
            taken_back(ctx, &by);
            return Outcome::Taken;
        }
        Some(Stage::Settle) if waits => {}
        Some(Stage::Stopped) | None => {}
        Some(_) => return for_the_end(ctx),
    }
    if is_stable {
        return ignored("it is the stable revision already".to_owned());
    }
    let kept = undoable(&ctx.status);
    if !kept.contains(&wanted.as_str()) || ctx.status.stable_revision.is_none() {
        let kept = if kept.is_empty() {
            "none".to_owned()
        } else {
            kept.join(", ")
        };
        return ignored(format!("it is not kept (kept: {kept})"));
    }
    if conflict(ctx).is_some() {
        return for_the_workloads();
    }
    let Some(to) = ctx.revision(Some(wanted)) else {
        return ignored("its controllerrevision is gone or damaged".to_owned());
    };
    let Some(stable) = ctx.stable() else {
        let stable = ctx.status.stable_revision.as_deref().unwrap_or_default();
        return ignored(format!(
            "controllerrevision {stable}, which is stable, is gone or damaged, so that nothing could go back to it; restore that one first"
        ));
    };
    let back = pinned::returned(ctx, to);
    let desired = match undone(ctx, to) {
        Ok(desired) => desired,
        Err(obstacle) => return obstructed(Reason::UndoIgnored, obstacle),
    };
    let frozen = ctx
        .components()
        .filter_map(|view| to.data.of(&view.scope.target));
    let contents: Result<Vec<_>, _> = frozen.map(|frozen| contents::back(ctx, frozen)).collect();
    if let Err(obstacle) = contents {
        return obstructed(Reason::UndoIgnored, obstacle);
    }
    if (stage.is_none() || waits) && !desired.changed() {
        return ignored("what is live has its templates already".to_owned());
    }
    if waits {
        taken_back(ctx, &by);
    }
    again::forget(ctx);
    let stopped = ctx.status.release.clone();
    if let Some(release) = &stopped {
        stopped::ended(ctx);
        refuse(ctx);
        held::hold(ctx, plan, &back, stable, &by);
        settle::begin(ctx, &desired);
        if let Some(begun) = ctx.status.release.as_mut() {
            begun.applied.clone_from(&release.applied);
            begun.number = begun.number.max(release.number + 1);
        }
        ctx.status.target_revision = None;
    } else {
        held::hold(ctx, plan, &back, stable, &by);
        settle::begin(ctx, &desired);
    }
    if let Some(release) = ctx.status.release.as_mut() {
        release.kind = ReleaseKind::Undo;
        release.undo = Some(wanted.clone());
        // Who asked for the content did not ask for this.
        release.requested_by.clone_from(&command.user);
    }
    let text = format!(
        "{wanted} was asked for{by}; it takes the place of {}",
        stable.name
    );
    ctx.tell(false, Reason::UndoRequested, &text);
    report::progressing(ctx, Reason::UndoRequested, &text);
    Outcome::Taken
}

/// Whether the content of the plan was changed after an order was given. Only
/// the numbers that the webhook gave tell.
fn is_overtaken(ctx: &Context<'_>, command: &HandledCommand) -> bool {
    let facts = &ctx.input.world.plan;
    let stamp = facts.ordered_by.of(&command.annotation, &command.value);
    let then = stamp.and_then(|stamp| stamp.generation);
    then.zip(facts.release_generation)
        .is_some_and(|(then, now)| now > then)
}

/// Tries refused content, or what a release failed on, again.
fn retry(ctx: &mut Context<'_>, command: &HandledCommand) -> Outcome {
    let ignored = |text: String| Outcome::Ignored(Reason::RetryIgnored, text);
    let wanted = &command.value;
    let Ok(plan) = ctx.input.plan else {
        return for_a_valid_plan();
    };
    let waits = unbegun(&ctx.status).is_some();
    let stage = ctx
        .release()
        .filter(|_| !waits)
        .map(|release| release.stage);
    if stage.is_some_and(|stage| stage != Stage::Stopped) {
        return for_the_end(ctx);
    }
    let known = retryable(&ctx.status);
    if !known.contains(&wanted.as_str()) {
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        return ignored(format!(
            "it is neither refused nor failed (those are: {known})"
        ));
    }
    if waits && ctx.status.stable_revision.as_ref() == Some(wanted) {
        // It never went.
        taken_back(ctx, &by(command));
        return Outcome::Taken;
    }
    if stage.is_some() {
        if current(&ctx.status) != Some(wanted) {
            let stable = ctx.status.stable_revision.as_deref().unwrap_or_default();
            let end = abortable(&ctx.status).map_or((UNDO, stable), |now| (ABORT, now));
            return ignored(format!(
                "a release stopped and has to be ended before. To go back: {}",
                ways::order(ctx, &[end])
            ));
        }
        stopped::again(ctx, command.user.as_ref());
        return Outcome::Taken;
    }
    if conflict(ctx).is_some() {
        return for_the_workloads();
    }
    if snapshots::too_large(ctx).is_some() {
        let text = "until what the plan tracks is small enough to be released";
        return Outcome::Waits(text.to_owned());
    }
    let revision = ctx.revision(Some(wanted));
    if is_gone_from_plan(&ctx.status, plan.content(), wanted) {
        return ignored("its content is no longer what the plan asks for".to_owned());
    }
    if ctx.status.stable_revision.is_none() {
        if revision.is_none() {
            return ignored("its controllerrevision is gone or damaged".to_owned());
        }
        stopped::first_again(ctx, wanted, command.user.as_ref());
        return Outcome::Taken;
    }
    // What was refused of followed workloads is no longer live: it is put back,
    // and the change is then seen and guarded like any other.
    let refused = ctx.status.refused.iter().find(|r| r.revision == *wanted);
    // An undo also takes away what waited to be released, which has no name.
    let unreleased = refused.and_then(|refused| refused.spec.as_ref());
    let unreleased = unreleased.is_some_and(|spec| revision.is_some_and(|r| r.data.spec != *spec));
    let live: Vec<WorkloadRef> = refused
        .iter()
        .flat_map(|refused| &refused.live)
        .map(|live| live.workload.clone())
        .collect();
    if !live.is_empty() && revision.is_none() {
        return ignored("its controllerrevision is gone or damaged".to_owned());
    }
    let contents: Result<Vec<Vec<Action>>, Obstacle> = ctx
        .components()
        .filter(|view| live.contains(&view.scope.target.to_ref()))
        .filter_map(|view| revision?.data.of(&view.scope.target))
        .map(|frozen| {
            let create = snapshots::secure(ctx, &frozen.config_maps)?;
            Ok([create, contents::bring(ctx, frozen, true)?].concat())
        })
        .collect();
    let contents = match contents {
        Ok(writes) => writes.concat(),
        Err(obstacle) => return obstructed(Reason::RetryIgnored, obstacle),
    };
    if waits {
        taken_back(ctx, &by(command));
    }
    for write in contents {
        ctx.act_once(write);
    }
    let writes: Vec<TemplateWrite> = ctx
        .components()
        .filter(|view| live.contains(&view.scope.target.to_ref()))
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            let frozen = revision?.data.of(&view.scope.target)?;
            Some(stable::write(view, workload, frozen.template.clone()))
        })
        .collect();
    for write in writes {
        ctx.act(Action::Replace { write });
    }
    ctx.status.refused.retain(|r| r.revision != *wanted);
    if let Some(revision) = revision.filter(|_| !live.is_empty()) {
        // Others that went back with the same templates do not hold them either.
        held::lift(ctx, revision);
    }
    for component in &mut ctx.status.components {
        component.live_digest = None;
    }
    if ctx.status.phase == Some(Phase::Failed) {
        ctx.status.phase = Some(Phase::Pending);
    }
    let what = if unreleased {
        "the content of the plan is tried".to_owned()
    } else {
        format!("{wanted} is tried again")
    };
    let text = format!("{what} as asked{}", by(command));
    ctx.tell(false, Reason::RetryRequested, &text);
    report::progressing(ctx, Reason::RetryRequested, &text);
    Outcome::Taken
}
