//! The way back: everything the release moved gets its stable template again,
//! contents before the code that reads them, and without waiting for each other.

use std::time::Duration;

use super::{
    Action, adopt,
    again::{self, CAME_AGAIN},
    back::{back, is_newer, surroundings, touched},
    contents,
    context::{Context, View, WAITING, cut, is_at, is_complete},
    desired::Obstacle,
    first, held, judge, pinned, rebuild,
    records::{prune, record},
    refused::{came_again, refuse},
    report,
    rollout::{narrow, reset},
    scope::backwards,
    snapshots,
    stable::{self, may_write},
    stopped, ways,
};
use crate::{
    api::{
        Cause, ComponentState, Failure, Phase, Reason, RefusedContent, ReleaseKind, ReleaseResult,
        Stage,
    },
    fields::project,
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
        return first::fail(ctx, failure);
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
    let again = if came_again(ctx) {
        "it came again: "
    } else {
        ""
    };
    let text = format!(
        "{again}{}; all components go back{from} to {stable}",
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
    ) || came_again(ctx)
    {
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

/// Turns a release around of which nothing is left but what was refused before. It
/// is told as that from here on.
pub(super) fn again(ctx: &mut Context<'_>, refused: RefusedContent) {
    ctx.status.target_revision = Some(refused.revision);
    let failure = Failure {
        component: refused.component,
        cause: refused.cause,
        message: refused.message,
        at: ctx.micros(),
    };
    begin(ctx, failure);
}

/// Why a release went back, or stopped, short enough to stand before a way out.
pub(super) fn reason(failure: &Failure) -> String {
    ways::brief(&failure.told())
}

pub(super) fn run(ctx: &mut Context<'_>) {
    let Some(stable) = ctx.stable() else {
        let name = ctx.status.stable_revision.clone().unwrap_or_default();
        let text = format!(
            "controllerrevision {name} is gone or damaged, so the rollback cannot go on. Restore it, labels and annotations included, or take what is live as stable: {} && {} ; then apply the plan again",
            ways::let_go(ctx),
            ways::delete(ctx)
        );
        return report::stalled(ctx, Reason::RevisionLost, &text);
    };
    let deleting = ctx.input.world.plan.deleting;
    let let_go = deleting && contents::is_overdue(ctx);
    // Nor may a record that cannot be stored hold a plan that is to go.
    if !let_go && pinned::pin(ctx) {
        return;
    }
    let deadline = ctx
        .input
        .plan
        .map_or(DEADLINE, |plan| plan.progress_deadline());
    let mut held = Held::default();
    let mut edited = Vec::new();
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
        let (mut writes, is_edited) = match contents::bring(ctx, frozen, !at) {
            Ok(writes) => (writes, false),
            // It was edited and not moved: that is judged when this is over.
            Err(obstacle) if obstacle.reason == Reason::ConfigMapEdited && at => (Vec::new(), true),
            Err(obstacle) => {
                held.lose(&scope.target, obstacle);
                continue;
            }
        };
        // Also where the template is back: its pods need what it names.
        let mut kept = snapshots::store(ctx, &frozen.reads());
        if let_go && kept.is_err() {
            // Neither rights nor contents that are lost may hold a plan that is
            // to go for ever.
            if scope.template.is_some() && snapshots::is_gone(ctx, &frozen.reads()) {
                // No pod of the stable template would start.
                continue;
            }
            kept = Ok(());
            writes.clear();
        }
        if at && !writes.is_empty() {
            if let Err(obstacle) = kept {
                held.lose(&scope.target, obstacle);
            } else if may_write(ctx, index, 1 + stable::REASSERTIONS) {
                let text = format!("configmaps of {} to go back", scope.target);
                held.waiting.push(text);
                for write in writes {
                    ctx.act_once(write);
                }
            } else {
                let names = contents::names(&writes);
                let text = contents::refilled(&names, &stable.name);
                held.contend(&scope.target, text);
            }
            continue;
        }
        if !at {
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
                held.refuse(&scope.target, text);
                continue;
            }
            if let Some(text) = &workload.refusal {
                // It must not hold the others.
                let text = format!(
                    "{} refuses its stable template: {}. Change what refuses it",
                    scope.target,
                    ways::brief(text)
                );
                held.refuse(&scope.target, text);
                continue;
            }
            if let Err(obstacle) = kept {
                held.lose(&scope.target, obstacle);
                continue;
            }
            match back(ctx, view, workload, frozen, &touched, writes) {
                Some(text) => held.contend(&scope.target, text),
                None => held.waiting.push(format!("{} to go back", scope.target)),
            }
            continue;
        }
        if let Some(left) = judge::progress(ctx, index, workload, deadline) {
            let over = left == Duration::ZERO;
            if over && is_edited {
                // What it had was not enough. The edit may be what mends it,
                // and is released when this is over.
                edited.push(scope.target.to_string());
                continue;
            }
            held.late |= over;
            ctx.wake_in(if over { SLOW } else { left });
            let mut text = adopt::availability(view, workload);
            if workload.paused {
                let resume = ways::resume_workload(ctx, &scope.target.name);
                text = format!("{text} (paused by its own spec.paused; to go on: {resume} )");
            }
            held.waiting.push(text);
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
    let left = held.waiting.len();
    ctx.status.step = Some(format!("Restore {}/{total}", total - left));
    if held.waiting.is_empty() {
        return finish(ctx, stable, &edited);
    }
    if held.is_stuck() && newer_spec(ctx) && !deleting {
        return supersede(ctx);
    }
    verdict(ctx, &held);
}

/// What a pass over the components found in the way of some of them.
#[derive(Default)]
struct Held {
    waiting: Vec<String>,
    contended: Option<String>,
    refused: Option<String>,
    lost: Option<Obstacle>,
    late: bool,
}

impl Held {
    fn lose(&mut self, target: &Target, obstacle: Obstacle) {
        self.waiting.push(format!("{target} to go back"));
        self.lost.get_or_insert(obstacle);
    }

    fn refuse(&mut self, target: &Target, text: String) {
        let waiting = format!("{target} to go back, which is refused");
        self.waiting.push(waiting);
        self.refused.get_or_insert(text);
    }

    fn contend(&mut self, target: &Target, text: String) {
        let waiting = format!("{target} to go back, which somebody keeps undoing");
        self.waiting.push(waiting);
        self.contended.get_or_insert(text);
    }

    const fn is_stuck(&self) -> bool {
        self.late || self.contended.is_some() || self.refused.is_some() || self.lost.is_some()
    }

    /// What people are told of a fault: how it can end, and behind that, which
    /// may change often, what else is awaited.
    fn text(&self, ctx: &Context<'_>, fault: &str) -> String {
        let fault = and_let_go(ctx, fault.to_owned());
        let gap = if fault.contains(": kubectl ") {
            " "
        } else {
            ""
        };
        let others = if ctx.components().count() > 1 {
            "all others were sent back; "
        } else {
            ""
        };
        let waiting = ways::brief(&self.waiting.join(", "));
        format!("{fault}{gap}{WAITING}{others}waiting for {waiting}")
    }
}

/// With the way to let a plan go that is deleted.
fn and_let_go(ctx: &Context<'_>, text: String) -> String {
    if ctx.input.world.plan.deleting {
        format!(
            "{text}. To let the plan go without it: {}",
            ways::let_go(ctx)
        )
    } else {
        text
    }
}

fn verdict(ctx: &mut Context<'_>, held: &Held) {
    if let Some(obstacle) = &held.lost {
        ctx.wake_in(SLOW);
        let (reason, text) = (obstacle.reason, held.text(ctx, &obstacle.message));
        if reason == Reason::TargetsMissing {
            return report::progressing(ctx, reason, &text);
        }
        return report::stalled(ctx, reason, &text);
    }
    if let Some(fault) = &held.refused {
        let or = if ctx.input.world.plan.deleting {
            ""
        } else {
            ", or change the content of the plan"
        };
        let text = held.text(ctx, &format!("{fault}{or}"));
        return report::stalled(ctx, Reason::TemplateRefused, &text);
    }
    if let Some(fault) = &held.contended {
        let text = held.text(ctx, fault);
        return report::stalled(ctx, Reason::Contended, &text);
    }
    let stable = ctx.status.stable_revision.clone().unwrap_or_default();
    let waiting = ways::brief(&held.waiting.join(", "));
    if held.late {
        let text = format!(
            "everything was sent back to {stable}, but it does not become available: {waiting}. {}",
            ways::out_of_rollback(ctx, &stable)
        );
        let known = ctx.input.status.decisions.last().map(|d| d.reason);
        if known != Some(Reason::RollbackStalled) {
            ctx.tell(true, Reason::RollbackStalled, &text);
        }
        return report::stalled(ctx, Reason::RollbackStalled, &text);
    }
    let reason = if ctx.input.world.plan.deleting {
        Reason::Deleting
    } else {
        Reason::RollingBack
    };
    let why = ctx
        .release()
        .and_then(|r| r.failure.as_ref())
        .map(self::reason);
    let text = format!(
        "going back to {stable} ({}); waiting for {waiting}",
        why.unwrap_or_default()
    );
    let text = and_let_go(ctx, text);
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
    // What would go back gets the newer content instead.
    ctx.discard_writes();
    refuse(ctx);
    again::expire(ctx);
    pinned::begin_anew(ctx);
    let (result, what) = if rebuild::is_asked_for_in_loss(ctx) {
        (ReleaseResult::Superseded, "undo")
    } else {
        (ReleaseResult::RolledBack, "rollback")
    };
    let text = format!("the {what} stalled and newer content took its place");
    record(ctx, result, Some(text));
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

/// `edited` are workloads that are left to what their ConfigMaps hold by now.
fn finish(ctx: &mut Context<'_>, stable: &Revision, edited: &[String]) {
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
    let asked = rebuild::is_asked_for_in_loss(ctx);
    let result = if reverted {
        ReleaseResult::Reverted
    } else if asked {
        ReleaseResult::Succeeded
    } else {
        ReleaseResult::RolledBack
    };
    let told = why.clone().map(|why| {
        if came_again(ctx) {
            format!("{CAME_AGAIN}: {why}")
        } else {
            why
        }
    });
    // A rollback is a verdict on whatever came beside it.
    let beside = if result == ReleaseResult::RolledBack {
        Vec::new()
    } else {
        again::in_release(ctx, stable)
    };
    record(ctx, result, told);
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
    let but = if edited.is_empty() {
        contents::left(ctx, stable)
    } else {
        let edited = ways::brief(&edited.join(" and "));
        format!(" but for {edited}, whose configmap was edited")
    };
    let text = format!(
        "everything that was moved is back on {} and available{but} ({})",
        stable.name,
        why.unwrap_or_default()
    );
    let (told, reason) = if reverted {
        (Reason::Reverted, Reason::Reverted)
    } else if asked {
        (Reason::Released, Reason::Undone)
    } else {
        (Reason::RolledBack, Reason::RolledBack)
    };
    ctx.tell(told.is_warning(), told, &text);
    ctx.status.phase = Some(Phase::Stable);
    match ctx.input.plan {
        Ok(plan) if !ctx.input.world.plan.deleting => {
            again::after(ctx, plan, beside);
            stable::rest(ctx, plan);
        }
        _ => report::stalled(ctx, reason, &text),
    }
}
