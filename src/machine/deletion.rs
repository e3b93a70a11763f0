//! The end of a plan: an unfinished release goes back first, then everything of
//! Belay's is taken off the users' objects, and the finalizer goes last.

use super::{Action, context::Context, report, restore, stable};
use crate::{
    api::{Cause, DeletionPolicy, Failure, Phase, Reason, Stage},
    fields::FieldSet,
};

pub(super) fn run(ctx: &mut Context<'_>) {
    let facts = &ctx.input.world.plan;
    if !facts.finalizer {
        return;
    }
    let keep = facts.deletion_policy == DeletionPolicy::Keep;
    let unfinished = ctx
        .release()
        .is_some_and(|release| !release.applied.is_empty());
    let returnable = ctx.status.stable_revision.is_some();
    // A person said that what is live stays.
    let left = ctx.status.phase == Some(Phase::Failed);
    if keep || left || !unfinished || !returnable {
        return finish(ctx, (keep || left) && unfinished);
    }
    if ctx
        .release()
        .is_some_and(|release| release.stage == Stage::Restore)
    {
        return restore::run(ctx);
    }
    let failure = Failure {
        component: None,
        cause: Cause::PlanDeleted,
        message: "the plan is deleted in mid-release".to_owned(),
        at: ctx.micros(),
    };
    restore::begin(ctx, failure);
}

fn finish(ctx: &mut Context<'_>, kept: bool) {
    let disowned: Vec<Action> = ctx
        .views()
        .filter(|view| view.observed.incumbent.is_none())
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            workload
                .marked
                .then(|| stable::own(view, workload, FieldSet::default()))
        })
        .collect();
    for action in disowned {
        ctx.act(action);
    }
    ctx.act(Action::PruneRevisions { keep: Vec::new() });
    ctx.act(Action::RemoveFinalizer);
    let text = if kept {
        "the plan was deleted in mid-release; what is live stays, as asked"
    } else {
        "the plan is deleted; the workloads keep their templates and Belay's field ownership is given up"
    };
    ctx.tell(false, Reason::DeletionFinished, text);
    report::progressing(ctx, Reason::DeletionFinished, text);
}
