//! What people ask for by annotations on the plan.
//!
//! An abort is dealt with before an undo, and an undo before a retry; the others
//! wait for their turn. What was decided is recorded before the annotation goes,
//! so that a crash in between neither loses an order nor carries it out twice.

use std::time::Duration;

use super::{
    Action, contents,
    context::{Context, conflict},
    desired::{Obstacle, undone},
    rebuild, report, restore, settle, snapshots, stable, stopped,
    types::TemplateWrite,
};
use crate::{
    api::{
        ABORT, Cause, Failure, HandledCommand, Phase, RETRY, Reason, RefusedContent,
        RefusedTemplate, ReleaseKind, Stage, UNDO, WorkloadRef,
    },
    fields::canon,
    plan::{Plan, abortable, current, failed, retryable, undoable},
    revision::Revision,
};

/// What becomes of an order.
enum Outcome {
    /// It was carried out, and decides this pass.
    Taken,
    /// Its time has not come.
    Waits,
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
            Some(HandledCommand {
                annotation: annotation.to_owned(),
                value: value?,
            })
        })
        .collect();
    if let Some(handled) = ctx.status.handled.take()
        && given.contains(&handled)
    {
        drop_annotation(ctx, handled);
        if given.len() > 1 {
            ctx.wake_in(Duration::ZERO);
        }
        return false;
    }
    for command in given {
        let outcome = match command.annotation.as_str() {
            ABORT => abort(ctx, &command.value),
            UNDO => undo(ctx, &command.value),
            _ => retry(ctx, &command.value),
        };
        match outcome {
            Outcome::Waits => {}
            Outcome::Ignored(reason, text) => {
                let text = format!("{} names {}: {text}", command.annotation, command.value);
                ctx.tell(true, reason, &text);
                drop_annotation(ctx, command);
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

fn drop_annotation(ctx: &mut Context<'_>, command: HandledCommand) {
    ctx.act(Action::DropAnnotation {
        name: command.annotation,
        value: command.value,
    });
}

/// Ends a release, or a rollback where it is.
fn abort(ctx: &mut Context<'_>, wanted: &str) -> Outcome {
    let ignored = |text: String| Outcome::Ignored(Reason::AbortIgnored, text);
    let Some(release) = ctx.release() else {
        return ignored("no release is in progress".to_owned());
    };
    let stage = release.stage;
    match abortable(&ctx.status) {
        Some(now) if now == wanted => {}
        Some(now) => return ignored(format!("the release in progress is that of {now}")),
        None if stage == Stage::Settle => {
            return ignored(
                "what is prepared now has no name yet; nothing of it is live".to_owned(),
            );
        }
        None => return ignored("its release has ended already".to_owned()),
    }
    match stage {
        Stage::Restore => stopped::keep(ctx),
        Stage::Stopped => stopped::back(ctx),
        Stage::Settle | Stage::Promote | Stage::Bake => {
            aborted(ctx, "the release was aborted as asked");
        }
    }
    Outcome::Taken
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
fn undo(ctx: &mut Context<'_>, wanted: &str) -> Outcome {
    let ignored = |text: String| Outcome::Ignored(Reason::UndoIgnored, text);
    let Ok(plan) = ctx.input.plan else {
        return Outcome::Waits;
    };
    if !ctx.input.world.known.is_empty() {
        if conflict(ctx).is_some() {
            return Outcome::Waits;
        }
        if rebuild::go_to(ctx, wanted) {
            return Outcome::Taken;
        }
        return ignored("it is not kept".to_owned());
    }
    let is_stable = ctx.status.stable_revision.as_deref() == Some(wanted);
    let stage = ctx.release().map(|release| release.stage);
    match stage {
        Some(Stage::Promote | Stage::Bake) if is_stable => {
            aborted(ctx, "the stable revision was asked for");
            return Outcome::Taken;
        }
        Some(Stage::Stopped) if is_stable => {
            stopped::back(ctx);
            return Outcome::Taken;
        }
        Some(Stage::Stopped) | None => {}
        Some(_) => return Outcome::Waits,
    }
    if is_stable {
        return ignored("it is the stable revision already".to_owned());
    }
    let kept = undoable(&ctx.status);
    if !kept.contains(&wanted) || ctx.status.stable_revision.is_none() {
        let kept = if kept.is_empty() {
            "none".to_owned()
        } else {
            kept.join(", ")
        };
        return ignored(format!("it is not kept (kept: {kept})"));
    }
    if conflict(ctx).is_some() {
        return Outcome::Waits;
    }
    let (Some(to), Some(stable)) = (ctx.revision(Some(&wanted.to_owned())), ctx.stable()) else {
        return ignored("its controllerrevision is gone or damaged".to_owned());
    };
    let desired = match undone(ctx, to) {
        Ok(desired) => desired,
        Err(obstacle) => return ignored(obstacle.message),
    };
    if stage.is_none() && !desired.changed() {
        return ignored("what is live has its templates already".to_owned());
    }
    let stopped = ctx.status.release.clone();
    if let Some(release) = &stopped {
        stopped::ended(ctx);
        restore::refuse(ctx);
        lift(ctx, to);
        settle::begin(ctx, &desired);
        if let Some(begun) = ctx.status.release.as_mut() {
            begun.applied.clone_from(&release.applied);
            begun.number = begun.number.max(release.number + 1);
        }
        ctx.status.target_revision = None;
    } else {
        lift(ctx, to);
        hold(ctx, plan, to, stable);
        settle::begin(ctx, &desired);
    }
    if let Some(release) = ctx.status.release.as_mut() {
        release.kind = ReleaseKind::Undo;
        release.undo = Some(wanted.to_owned());
        // Who asked for the content did not ask for this.
        release.requested_by = None;
    }
    let text = format!(
        "{wanted} was asked for; it takes the place of {}",
        stable.name
    );
    ctx.tell(false, Reason::UndoRequested, &text);
    report::progressing(ctx, Reason::UndoRequested, &text);
    Outcome::Taken
}

/// Makes what is asked for admissible, whatever came of it before.
fn lift(ctx: &mut Context<'_>, to: &Revision) {
    ctx.status.refused.retain(|refused| {
        refused.revision != to.name && refused.spec.as_ref() != Some(&to.data.spec)
    });
    for refused in &mut ctx.status.refused {
        refused.live.retain(|live| {
            let of = to
                .data
                .components
                .iter()
                .find(|f| f.workload == live.workload);
            of.is_none_or(|frozen| canon::digest(&frozen.template) != live.digest)
        });
    }
}

/// Holds what an undo takes away, as if it were refused: it would come back by
/// itself otherwise.
fn hold(ctx: &mut Context<'_>, plan: &Plan, to: &Revision, stable: &Revision) {
    let content = plan.content();
    let spec = (content != to.data.spec && !ctx.spec_refused(plan)).then(|| content.to_owned());
    let live: Vec<RefusedTemplate> = ctx
        .components()
        .filter(|view| view.scope.template.is_none())
        .filter_map(|view| {
            let now = stable.data.of(&view.scope.target)?;
            let then = to.data.of(&view.scope.target)?;
            let digest = canon::digest(&now.template);
            (!canon::equal(&now.template, &then.template)).then(|| RefusedTemplate {
                workload: view.scope.target.to_ref(),
                digest,
            })
        })
        .collect();
    if spec.is_none() && live.is_empty() {
        return;
    }
    let at = ctx.time();
    ctx.status.refused.retain(|r| r.revision != stable.name);
    ctx.status.refused.push(RefusedContent {
        revision: stable.name.clone(),
        spec,
        live,
        cause: Cause::Undone,
        message: format!("{} was asked for in its place", to.name),
        at,
    });
}

/// Ends the hold on the stable revision, where an undo did not take it away.
pub(super) fn lift_hold(ctx: &mut Context<'_>) {
    let stable = ctx.status.stable_revision.clone();
    ctx.status.refused.retain(|refused| {
        refused.cause != Cause::Undone || Some(&refused.revision) != stable.as_ref()
    });
}

/// Tries refused content, or what a release failed on, again.
fn retry(ctx: &mut Context<'_>, wanted: &str) -> Outcome {
    let ignored = |text: String| Outcome::Ignored(Reason::RetryIgnored, text);
    if ctx.input.plan.is_err() {
        return Outcome::Waits;
    }
    let stage = ctx.release().map(|release| release.stage);
    if stage.is_some_and(|stage| stage != Stage::Stopped) {
        return Outcome::Waits;
    }
    let known = retryable(&ctx.status);
    if !known.contains(&wanted) {
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        return ignored(format!(
            "it is neither refused nor failed (those are: {known})"
        ));
    }
    if stage.is_some() {
        if current(&ctx.status) != Some(wanted) {
            return ignored("a stopped release has to be aborted, or undone, before".to_owned());
        }
        stopped::again(ctx);
        return Outcome::Taken;
    }
    if conflict(ctx).is_some() {
        return Outcome::Waits;
    }
    let revision = ctx.revision(Some(&wanted.to_owned()));
    if failed(&ctx.status) == Some(wanted) {
        if revision.is_none() {
            return ignored("its controllerrevision is gone or damaged".to_owned());
        }
        stopped::first_again(ctx, wanted);
        return Outcome::Taken;
    }
    // What was refused of followed workloads is no longer live: it is put back,
    // and the change is then seen and guarded like any other.
    let refused = ctx.status.refused.iter().find(|r| r.revision == wanted);
    let live: Vec<WorkloadRef> = refused
        .iter()
        .flat_map(|refused| &refused.live)
        .map(|live| live.workload.clone())
        .collect();
    let contents: Result<Vec<Vec<Action>>, Obstacle> = ctx
        .components()
        .filter(|view| live.contains(&view.scope.target.to_ref()))
        .filter_map(|view| revision?.data.of(&view.scope.target))
        .map(|frozen| {
            let create = snapshots::secure(ctx, &frozen.config_maps)?;
            Ok([create, contents::bring(ctx, frozen)?].concat())
        })
        .collect();
    let contents = match contents {
        Ok(writes) => writes.concat(),
        Err(obstacle) => return ignored(obstacle.message),
    };
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
    ctx.status.refused.retain(|r| r.revision != wanted);
    for component in &mut ctx.status.components {
        component.live_digest = None;
    }
    if ctx.status.phase == Some(Phase::Failed) {
        ctx.status.phase = Some(Phase::Pending);
    }
    let text = format!("{wanted} is tried again as asked");
    ctx.tell(false, Reason::RetryRequested, &text);
    report::progressing(ctx, Reason::RetryRequested, &text);
    Outcome::Taken
}
