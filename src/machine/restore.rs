//! The way back: everything the release moved gets its stable template again,
//! contents before the code that reads them, and without waiting for each other.

use std::time::Duration;

use super::{
    Action, adopt,
    back::{back, is_newer, surroundings, touched},
    contents,
    context::{Context, View, cut, is_at, is_complete},
    desired::Obstacle,
    held, judge,
    records::{prune, record},
    report,
    rollout::{narrow, reset},
    scope::backwards,
    snapshots,
    stable::{self, may_write},
    stopped, ways,
};
use crate::{
    api::{
        Cause, ComponentState, Failure, Phase, RETRY, Reason, RefusedContent, RefusedTemplate,
        ReleaseKind, ReleaseResult, Stage,
    },
    fields::{canon, project},
    plan::{Target, missing_containers},
    revision::Revision,
};

/// Pace at which a rollback that does not come to its end is looked at.
const SLOW: Duration = Duration::from_secs(60);
/// Deadline where the plan cannot be read.
pub(super) const DEADLINE: Duration = Duration::from_secs(600);

/// Turns a release around. Nothing is written in this pass: once the status
/// says that the way is back, a crash cannot lead forward again.
pub(super) fn begin(ctx: &mut Context<'_>, failure: Failure) {
    if ctx.status.stable_revision.is_none() {
        return fail(ctx, &failure);
    }
    ctx.discard_writes();
    let failure = Failure {
        message: cut(&failure.message),
        ..failure
    };
    to_proven(ctx, &failure);
    let stable = ctx.status.stable_revision.clone().unwrap_or_default();
    let from = ctx.status.target_revision.as_ref();
    let from = from.map_or_else(String::new, |name| format!(" from {name}"));
    let text = format!(
        "{}; all components go back{from} to {stable}",
        reason(&failure)
    );
    let reason = if failure.cause == Cause::Reverted {
        Reason::Reverted
    } else {
        Reason::RollbackStarted
    };
    ctx.tell(failure.cause != Cause::Reverted, reason, &text);
    let now = ctx.micros();
    if let Some(release) = ctx.status.release.as_mut() {
        release.stage = Stage::Restore;
        release.stage_since = now;
        release.held_since = None;
        release.failure = Some(failure);
    }
    ctx.status.phase = Some(Phase::Rollback);
    ctx.status.step = Some("Restore".to_owned());
    reset(ctx, ComponentState::Waiting);
    report::progressing(ctx, reason, &text);
}

/// A failure leads past a stable revision that has not run yet, which may be
/// what is wrong.
fn to_proven(ctx: &mut Context<'_>, failure: &Failure) {
    if matches!(
        failure.cause,
        Cause::Reverted | Cause::Aborted | Cause::PlanDeleted
    ) {
        return;
    }
    let proven = ctx.status.proven_revision.clone();
    // A component that joined since can only go back to what it joined with.
    let holds_all = ctx.revision(proven.as_ref()).is_some_and(|revision| {
        let mut components = ctx.components();
        components.all(|view| revision.data.of(&view.scope.target).is_some())
    });
    if !holds_all {
        return;
    }
    let unproven = std::mem::replace(&mut ctx.status.stable_revision, proven);
    ctx.status.proven_revision = None;
    for component in &mut ctx.status.components {
        component.unproven = false;
    }
    if let (Some(release), Some(unproven)) = (ctx.status.release.as_mut(), unproven)
        && !release.applied.contains(&unproven)
    {
        release.applied.insert(0, unproven);
    }
}

/// Turns a release around whose newest content cannot be released.
pub(super) fn refused(ctx: &mut Context<'_>, message: String) {
    let failure = Failure {
        component: None,
        cause: Cause::TemplateRefused,
        message,
        at: ctx.micros(),
    };
    stopped::failed(ctx, failure);
}

/// Turns a release around whose content went back to the stable one.
pub(super) fn revert(ctx: &mut Context<'_>) {
    let failure = Failure {
        component: None,
        cause: Cause::Reverted,
        message: "the content is the stable one again".to_owned(),
        at: ctx.micros(),
    };
    begin(ctx, failure);
}

/// Why a release went back, or stopped, short enough to stand before a way out.
pub(super) fn reason(failure: &Failure) -> String {
    ways::brief(&failure.told())
}

/// Ends a release that has nothing to return to, where it is.
fn fail(ctx: &mut Context<'_>, failure: &Failure) {
    ctx.discard_writes();
    record(ctx, ReleaseResult::Failed, Some(reason(failure)));
    ctx.status.target_revision = None;
    ctx.status.release = None;
    stable::remember(ctx, None);
    ctx.status.phase = Some(Phase::Failed);
    report::judged(ctx);
    let text = failed(ctx);
    report::stalled(ctx, Reason::ReleaseFailed, &text);
}

/// What is said of a first release that failed.
pub(super) fn failed(ctx: &Context<'_>) -> String {
    let last = ctx.status.history.last();
    let why = last.and_then(|record| record.message.as_deref());
    let again = last.and_then(|record| record.revision.as_deref());
    let again = again.map(|name| {
        let again = ways::order(ctx, &[(RETRY, name)]);
        format!(", or try the same again: {again}")
    });
    format!(
        "{}. There was no healthy revision to return to, so the new templates stay as they are. {}{}",
        ways::brief(why.unwrap_or("a release failed")),
        ways::change(ctx),
        again.unwrap_or_default()
    )
}

pub(super) fn run(ctx: &mut Context<'_>) {
    let Some(stable) = ctx.stable() else {
        let name = ctx.status.stable_revision.clone().unwrap_or_default();
        let text = format!(
            "controllerrevision {name} is gone or damaged, so the rollback cannot go on. Restore it, or take what is live as stable: {} && {} ; then apply the plan again",
            ways::let_go(ctx),
            ways::delete(ctx)
        );
        return report::stalled(ctx, Reason::RevisionLost, &text);
    };
    let deadline = ctx
        .input
        .plan
        .map_or(DEADLINE, |plan| plan.progress_deadline());
    let mut waiting = Vec::new();
    let mut contended = None;
    let mut refused = None;
    let mut lost: Option<Obstacle> = None;
    let mut late = false;
    for index in backwards(&ctx.scope) {
        let Some(scope) = ctx.scope.get(index).cloned() else {
            continue;
        };
        let Some(observed) = ctx.input.world.components.get(index) else {
            continue;
        };
        let view = View {
            index,
            scope: &scope,
            observed,
        };
        let Some(frozen) = stable.data.of(&scope.target) else {
            continue;
        };
        let Some(workload) = &observed.workload else {
            // It cannot be brought back, and must not hold the others.
            if let Some(component) = ctx.component(index) {
                component.state = Some(ComponentState::Missing);
            }
            continue;
        };
        let touched = touched(ctx, &scope.target);
        let newer = is_newer(ctx, view, workload);
        if newer {
            // It was not moved by this release; it is judged when this is over.
            if let Some(component) = ctx.component(index) {
                component.state = Some(ComponentState::Waiting);
            }
            continue;
        }
        let at = is_at(workload, frozen, &touched);
        // Contents go back before the code that reads them.
        let writes = match contents::bring(ctx, frozen) {
            Ok(writes) => writes,
            // It was edited and not moved: that is judged when this is over.
            Err(obstacle) if obstacle.reason == Reason::ConfigMapEdited && at => Vec::new(),
            Err(obstacle) => {
                waiting.push(format!("{} to go back", scope.target));
                lost.get_or_insert(obstacle);
                continue;
            }
        };
        // Also where the template is back: its pods need what it names.
        let kept = snapshots::store(ctx, &frozen.config_maps);
        if at && !writes.is_empty() {
            waiting.push(format!("configmaps of {} to go back", scope.target));
            if let Err(obstacle) = kept {
                lost.get_or_insert(obstacle);
            } else if may_write(ctx, index, 1 + stable::REASSERTIONS) {
                for write in writes {
                    ctx.act_once(write);
                }
            } else {
                contended.get_or_insert(contents::refilled(ctx, index, &stable.name).0);
            }
            continue;
        }
        if !at {
            waiting.push(format!("{} to go back", scope.target));
            let own = project(&frozen.template, &touched);
            if let Some(gone) = missing_containers(&own, &workload.template)
                .into_iter()
                .next()
            {
                // Writing it would add the container instead of changing it.
                let text = format!(
                    "{} has {gone}, so its fields cannot go back. Put the container back",
                    scope.target
                );
                refused.get_or_insert(text);
                continue;
            }
            if let Some(text) = &workload.refusal {
                // It must not hold the others.
                refused.get_or_insert(format!(
                    "{} refuses its stable template: {}. Change what refuses it",
                    scope.target,
                    ways::brief(text)
                ));
                continue;
            }
            if let Err(obstacle) = kept {
                lost.get_or_insert(obstacle);
                continue;
            }
            if let Some(text) = back(ctx, view, workload, frozen, &touched, writes) {
                contended.get_or_insert(text);
            }
            continue;
        }
        if let Some(left) = judge::progress(ctx, index, workload, deadline) {
            let over = left == Duration::ZERO;
            late |= over;
            ctx.wake_in(if over { SLOW } else { left });
            let mut text = adopt::availability(view, workload);
            if workload.paused {
                let resume = ways::resume_workload(ctx, &scope.target.name);
                text = format!("{text} (paused by its own spec.paused; to go on: {resume} )");
            }
            waiting.push(text);
            if over && surroundings(ctx, view, workload, frozen) {
                continue;
            }
        }
        let complete = is_complete(workload);
        if let Some(component) = ctx.component(index) {
            component.state = Some(if complete {
                ComponentState::Stable
            } else {
                ComponentState::Restoring
            });
        }
    }
    let total = ctx.components().count();
    ctx.status.step = Some(format!("Restore {}/{total}", total - waiting.len()));
    if waiting.is_empty() {
        return finish(ctx, stable);
    }
    let stuck = late || contended.is_some() || refused.is_some() || lost.is_some();
    if stuck && newer_spec(ctx) && !ctx.input.world.plan.deleting {
        return supersede(ctx);
    }
    if let Some(obstacle) = lost {
        ctx.wake_in(SLOW);
        let but = if obstacle.reason == Reason::TargetsMissing {
            ";"
        } else {
            ", but"
        };
        let mut text = format!("all others went back{but} {}", obstacle.message);
        if ctx.input.world.plan.deleting {
            text.push_str(&format!(
                ". To let the plan go without it: {}",
                ways::let_go(ctx)
            ));
        }
        if obstacle.reason == Reason::TargetsMissing {
            return report::progressing(ctx, obstacle.reason, &text);
        }
        return report::stalled(ctx, obstacle.reason, &text);
    }
    if let Some(text) = refused {
        let text = format!("{text}, or change the content of the plan. All others went back");
        return report::stalled(ctx, Reason::TemplateRefused, &text);
    }
    verdict(ctx, &waiting, contended, late);
}

fn verdict(ctx: &mut Context<'_>, waiting: &[String], contended: Option<String>, late: bool) {
    if let Some(text) = contended {
        return report::stalled(ctx, Reason::Contended, &text);
    }
    let stable = ctx.status.stable_revision.clone().unwrap_or_default();
    let deleting = ctx.input.world.plan.deleting;
    if late {
        let text = format!(
            "everything was sent back to {stable}, but it does not become available: {}. {}",
            ways::brief(&waiting.join(", ")),
            ways::out_of_rollback(ctx, &stable)
        );
        let known = ctx.input.status.decisions.last().map(|d| d.reason);
        if known != Some(Reason::RollbackStalled) {
            ctx.tell(true, Reason::RollbackStalled, &text);
        }
        return report::stalled(ctx, Reason::RollbackStalled, &text);
    }
    let reason = if deleting {
        Reason::Deleting
    } else {
        Reason::RollingBack
    };
    let why = ctx
        .release()
        .and_then(|r| r.failure.as_ref())
        .map(self::reason);
    let mut text = format!(
        "going back to {stable} ({}); waiting for {}",
        why.unwrap_or_default(),
        ways::brief(&waiting.join(", "))
    );
    if deleting {
        text = format!(
            "{text}. To let the plan go without it: {}",
            ways::let_go(ctx)
        );
    }
    report::progressing(ctx, reason, &text);
}

/// Whether the spec asks for something that is neither stable nor what failed.
fn newer_spec(ctx: &Context<'_>) -> bool {
    let Ok(plan) = ctx.input.plan else {
        return false;
    };
    let known = |revision: Option<&Revision>| {
        revision.is_some_and(|revision| revision.data.spec == plan.content())
    };
    let tried = ctx
        .release()
        .is_some_and(|release| release.content == plan.content());
    snapshots::is_resolved(ctx)
        && !tried
        && !ctx.spec_refused(plan)
        && !known(ctx.target())
        && !known(ctx.stable())
}

/// Leaves a rollback that does not come to its end for newer content.
fn supersede(ctx: &mut Context<'_>) {
    refuse(ctx);
    record(
        ctx,
        ReleaseResult::RolledBack,
        Some("the rollback stalled and newer content took its place".to_owned()),
    );
    let now = ctx.micros();
    if let Some(release) = ctx.status.release.as_mut() {
        release.number += 1;
        release.kind = ReleaseKind::Content;
        release.stage = Stage::Settle;
        release.started_at = now.clone();
        release.stage_since = now;
        release.failure = None;
        release.undo = None;
        release.retried = false;
    }
    held::lift_hold(ctx);
    ctx.status.target_revision = None;
    ctx.status.phase = Some(Phase::RollingOut);
    ctx.wake_in(Duration::from_secs(1));
    let text = "newer content takes the place of the stalled rollback";
    ctx.tell(false, Reason::Superseded, text);
    report::progressing(ctx, Reason::Settling, text);
}

/// Enters what failed among the refused contents.
pub(super) fn refuse(ctx: &mut Context<'_>) {
    let at = ctx.time();
    let Some(failure) = ctx.release().and_then(|release| release.failure.clone()) else {
        return;
    };
    let (Some(target), Some(stable)) = (ctx.target(), ctx.stable()) else {
        return;
    };
    let spec = (target.data.spec != stable.data.spec).then(|| target.data.spec.clone());
    let live = target
        .data
        .components
        .iter()
        .filter(|frozen| {
            let known =
                Target::from_ref(&frozen.workload).and_then(|t| stable.data.of(&t).cloned());
            let own = frozen.partial_digest.is_some()
                && known
                    .as_ref()
                    .is_none_or(|known| known.partial_digest != frozen.partial_digest);
            !own && known.is_none_or(|known| !canon::equal(&known.template, &frozen.template))
        })
        .map(|frozen| RefusedTemplate {
            workload: frozen.workload.clone(),
            digest: canon::digest(&frozen.template),
        })
        .collect();
    ctx.status
        .refused
        .retain(|refused| refused.revision != target.name);
    ctx.status.refused.push(RefusedContent {
        revision: target.name.clone(),
        spec,
        live,
        cause: failure.cause,
        component: failure.component,
        message: failure.message,
        at,
    });
}

fn finish(ctx: &mut Context<'_>, stable: &Revision) {
    let narrowed: Vec<Action> = ctx
        .components()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            let frozen = stable.data.of(&view.scope.target)?;
            narrow(view, workload, frozen)
        })
        .collect();
    for action in narrowed {
        ctx.act(action);
    }
    let failure = ctx.release().and_then(|release| release.failure.clone());
    let reverted = failure
        .as_ref()
        .is_some_and(|f| matches!(f.cause, Cause::Reverted));
    let deleted = failure
        .as_ref()
        .is_some_and(|f| matches!(f.cause, Cause::PlanDeleted));
    let why = failure.as_ref().map(self::reason);
    let result = if reverted {
        ReleaseResult::Reverted
    } else {
        ReleaseResult::RolledBack
    };
    record(ctx, result, why.clone());
    if !reverted && !deleted {
        refuse(ctx);
    }
    ctx.status.target_revision = None;
    held::lift_hold(ctx);
    ctx.status.release = None;
    reset(ctx, ComponentState::Stable);
    // What is refused is remembered as known, so the list has its length first.
    let limit = ctx.input.plan.map_or(10, |plan| plan.history_limit());
    prune(ctx, limit);
    stable::remember(ctx, Some(stable));
    let text = format!(
        "everything that was moved is back on {} and available ({})",
        stable.name,
        why.unwrap_or_default()
    );
    let reason = if reverted {
        Reason::Reverted
    } else {
        Reason::RolledBack
    };
    ctx.tell(!reverted, reason, &text);
    ctx.status.phase = Some(Phase::Stable);
    match ctx.input.plan {
        Ok(plan) if !ctx.input.world.plan.deleting => stable::rest(ctx, plan),
        _ => report::stalled(ctx, reason, &text),
    }
}
