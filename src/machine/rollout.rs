//! The way forward: the workloads get the new templates in order, and are
//! judged until all of them are available and the bake time is over.

use std::time::Duration;

use super::{
    Action, Scope, Workload, adopt,
    again::{self, Coming, Turn},
    contents,
    context::{Context, View, is_at, is_complete},
    held, judge,
    records::{prune, record},
    report, restore, rivals, snapshots,
    stable::{self, can_write, may_write, numbers},
    stopped, supersede,
    types::TemplateWrite,
    ways,
};
use crate::{
    api::{
        Cause, ComponentState, Failure, GatewayDuration, Reason, ReleaseKind, ReleaseResult, Stage,
    },
    fields::{FieldSet, canon, put_back},
    plan::{Plan, Target, missing_containers},
    revision::{Frozen, Revision},
};

/// Starts the record of progress of all components afresh.
pub(super) fn reset(ctx: &mut Context<'_>, state: ComponentState) {
    for component in &mut ctx.status.components {
        component.state = Some(state);
        component.best_ready = None;
        component.progress_at = None;
        component.message = None;
        component.written_at.clear();
    }
}

/// What a release is judged by.
struct Limits {
    deadline: Duration,
    restarts: i32,
}

impl Limits {
    fn of(plan: &Plan) -> Self {
        Self {
            deadline: plan.progress_deadline(),
            restarts: plan.restarts(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: restore::DEADLINE,
            restarts: 3,
        }
    }
}

/// What one pass over the components found.
#[derive(Default)]
struct Pass {
    failure: Option<Failure>,
    waiting: Vec<String>,
    held: Option<(Reason, String)>,
    done: usize,
}

pub(super) fn run(ctx: &mut Context<'_>, plan: &Plan) {
    let Some(target) = ctx.target() else {
        return lost(ctx);
    };
    if supersede::run(ctx, plan, target) {
        return;
    }
    let held = plan.paused().then(|| {
        let text = format!(
            "forward motion is held: the plan is paused (spec.paused). To go on: {}",
            ways::resume(ctx)
        );
        (Reason::Paused, text)
    });
    let pass = walk(ctx, &Limits::of(plan), target, held);
    if let Some(failure) = pass.failure {
        return stopped::failed(ctx, failure);
    }
    let lacks = snapshots::way_back(ctx);
    let caveats = format!("{lacks}{}", snapshots::larger(ctx));
    let total = ctx.components().count();
    let baking = ctx
        .release()
        .is_some_and(|release| release.stage == Stage::Bake);
    ctx.status.step = Some(if baking {
        format!("Bake {}/{total}", pass.done)
    } else {
        format!("Promote {}/{total}", pass.done)
    });
    if let Some((reason, text)) = pass.held {
        // It may end with a command.
        let gap = if caveats.is_empty() { "" } else { " " };
        let text = format!("{text}{gap}{caveats}");
        return match reason {
            Reason::Paused | Reason::TargetsMissing => report::progressing(ctx, reason, &text),
            _ => report::stalled(ctx, reason, &text),
        };
    }
    if pass.done < total {
        let reason = if baking {
            Reason::Baking
        } else {
            Reason::Promoting
        };
        let text = format!(
            "{} of {total} components are available on {}; waiting for {}{caveats}",
            pass.done,
            target.name,
            ways::brief(&pass.waiting.join(", "))
        );
        return report::progressing(ctx, reason, &text);
    }
    bake(ctx, plan, target, baking, &caveats);
}

/// Holds forward motion because the plan cannot be read, and judges what was
/// moved by the defaults, since nobody can say what the plan would allow.
pub(super) fn hold(ctx: &mut Context<'_>, reason: Reason, text: &str) {
    let Some(target) = ctx.target() else {
        return lost(ctx);
    };
    let held = Some((reason, text.to_owned()));
    let pass = walk(ctx, &Limits::default(), target, held);
    if let Some(failure) = pass.failure {
        return restore::begin(ctx, failure);
    }
    report::stalled(ctx, reason, text);
}

fn bake(ctx: &mut Context<'_>, plan: &Plan, target: &Revision, baking: bool, caveats: &str) {
    let now = ctx.micros();
    let since = match ctx.status.release.as_mut() {
        Some(release) if baking => release.stage_since.clone(),
        Some(release) => {
            release.stage = Stage::Bake;
            release.stage_since = now.clone();
            now
        }
        None => return,
    };
    let left = plan.bake_time().saturating_sub(ctx.since(&since));
    if left > Duration::ZERO {
        if !baking {
            let time = GatewayDuration::from(plan.bake_time());
            let text = format!(
                "all components are available on {}; baking for {time}",
                target.name
            );
            ctx.log(Reason::Baking, &text);
            ctx.status.step = Some(format!("Bake {0}/{0}", ctx.components().count()));
        }
        ctx.wake_in(left);
        let until = ctx
            .now()
            .checked_add(left)
            .map(|until| until.strftime("%H:%M:%SZ").to_string());
        let text = format!(
            "all components are available on {} and are judged until {}{caveats}",
            target.name,
            until.unwrap_or_default()
        );
        return report::progressing(ctx, Reason::Baking, &text);
    }
    finish(ctx, plan, target);
}

/// Writes what is due, and judges what is written.
fn walk(
    ctx: &mut Context<'_>,
    limits: &Limits,
    target: &Revision,
    held: Option<(Reason, String)>,
) -> Pass {
    let mut pass = Pass::default();
    let deadline = limits.deadline;
    let done = done(ctx, target);
    pass.done = done.iter().filter(|done| **done).count();
    let holds = held.is_some();
    pass.held = held;
    let resumed = resume(ctx, holds);
    let retried = ctx.release().is_some_and(|release| release.retried);
    for (index, scope) in ctx.scope.clone().iter().enumerate() {
        let observed = ctx.input.world.components.get(index);
        let Some(observed) = observed else { continue };
        let view = View {
            index,
            scope,
            observed,
        };
        let Some(frozen) = target.data.of(&scope.target) else {
            continue;
        };
        let touched = held_fields(ctx, scope, frozen);
        let Some(workload) = &observed.workload else {
            gone(ctx, view, deadline, holds, &mut pass);
            continue;
        };
        if let Some(text) = &workload.refusal {
            pass.failure.get_or_insert(Failure {
                component: Some(scope.name.clone()),
                cause: Cause::TemplateRefused,
                message: format!("{} refuses the template: {text}", scope.target),
                at: ctx.micros(),
            });
            continue;
        }
        again::gone(ctx, index);
        let at = is_at(workload, frozen, &touched);
        let begun = !at && has_begun(ctx, workload, frozen, &scope.target);
        if !at {
            let ready = scope
                .after
                .iter()
                .all(|before| done.get(*before).copied().unwrap_or(true));
            let wrote = promote(ctx, view, workload, frozen, ready && !holds, &mut pass);
            if wrote || !begun {
                let numbers = numbers(workload);
                if let Some(component) = ctx.component(index) {
                    component.replicas = numbers.replicas;
                    component.updated_replicas = numbers.updated_replicas;
                    component.available_replicas = numbers.available_replicas;
                    component.progress_at = None;
                }
                continue;
            }
        }
        match again::contents_in_release(ctx, view, workload, frozen) {
            Ok(false) => {}
            Ok(true) => {
                pass.done -= usize::from(done.get(index).copied().unwrap_or_default());
                pass.waiting
                    .push(format!("what was applied to {}", scope.target));
            }
            Err(obstacle) => {
                pass.held.get_or_insert((obstacle.reason, obstacle.message));
            }
        }
        // Pods of a component without a change are old, and so are their
        // restarts. That they are available is judged like for all others.
        if !retried
            && (begun || is_changed(ctx, frozen, &scope.target))
            && let Some(failure) = judge::pods(ctx, limits.restarts, view, workload)
        {
            pass.failure.get_or_insert(failure);
        }
        if resumed && let Some(component) = ctx.component(index) {
            component.progress_at = None;
        }
        let complete = is_complete(workload);
        if let Some(left) = judge::progress(ctx, index, workload, deadline)
            && !holds
            && !workload.paused
        {
            if left == Duration::ZERO {
                let failure = judge::stuck(ctx, view, workload, deadline);
                pass.failure.get_or_insert(failure);
            }
            ctx.wake_in(left);
        }
        if begun {
            // It waits for the rest of what is released with it.
            continue;
        }
        if workload.paused && !complete {
            let text = format!(
                "{} is paused by its own spec.paused. To go on: {}",
                scope.target,
                ways::resume_workload(ctx, &scope.target.name)
            );
            pass.held.get_or_insert((Reason::WorkloadPaused, text));
            if let Some(component) = ctx.component(index) {
                component.progress_at = None;
            }
        }
        if !complete {
            pass.waiting.push(adopt::availability(view, workload));
        }
        if let Some(component) = ctx.component(index) {
            component.state = Some(if complete {
                ComponentState::Updated
            } else {
                ComponentState::Updating
            });
        }
    }
    pass
}

/// Whether a followed workload has the template of the target but for the
/// annotation for its contents, and got it with this release: its pods are new.
fn has_begun(ctx: &Context<'_>, workload: &Workload, frozen: &Frozen, target: &Target) -> bool {
    let live = contents::plain(&workload.template);
    let is_live = |frozen: &Frozen| canon::equal(&contents::plain(&frozen.template), &live);
    let stable = ctx.stable().and_then(|stable| stable.data.of(target));
    frozen.partial_digest.is_none() && is_live(frozen) && !stable.is_some_and(is_live)
}

/// Whether the target gives a workload another template than the stable one.
fn is_changed(ctx: &Context<'_>, frozen: &Frozen, target: &Target) -> bool {
    let stable = ctx.stable().and_then(|stable| stable.data.of(target));
    stable.is_none_or(|stable| !canon::equal(&stable.template, &frozen.template))
}

/// The fields of a workload that the plan holds, or held in this chain of releases.
/// One that is followed by now is held as a whole.
pub(super) fn held_fields(ctx: &Context<'_>, scope: &Scope, frozen: &Frozen) -> FieldSet {
    if scope.template.is_none() && frozen.partial_digest.is_none() {
        return FieldSet::default();
    }
    ctx.touched(&scope.target)
}

/// Which components are available on the target.
fn done(ctx: &Context<'_>, target: &Revision) -> Vec<bool> {
    ctx.components()
        .map(|view| {
            let (Some(workload), Some(frozen)) =
                (&view.observed.workload, target.data.of(&view.scope.target))
            else {
                return false;
            };
            let held = held_fields(ctx, view.scope, frozen);
            is_at(workload, frozen, &held) && is_complete(workload)
        })
        .collect()
}

/// Keeps the time since when forward motion is held; true on the pass that
/// ends the hold, from which all clocks start afresh.
fn resume(ctx: &mut Context<'_>, holds: bool) -> bool {
    let now = ctx.micros();
    let Some(release) = ctx.status.release.as_mut() else {
        return false;
    };
    if holds {
        release.held_since.get_or_insert(now);
        return false;
    }
    release.held_since.take().is_some()
}

fn gone(ctx: &mut Context<'_>, view: View<'_>, deadline: Duration, holds: bool, pass: &mut Pass) {
    let now = ctx.micros();
    let target = &view.scope.target;
    pass.waiting.push(format!("{target} to exist"));
    let Some(component) = ctx.component(view.index) else {
        return;
    };
    component.state = Some(ComponentState::Missing);
    if holds {
        component.progress_at = None;
        return;
    }
    let since = component.progress_at.get_or_insert(now).clone();
    let left = deadline.saturating_sub(ctx.since(&since));
    ctx.wake_in(left);
    if left == Duration::ZERO {
        pass.failure.get_or_insert(Failure {
            component: Some(view.scope.name.clone()),
            cause: Cause::WorkloadMissing,
            message: format!(
                "{target} was deleted in mid-release and did not come back for {}",
                GatewayDuration::from(deadline)
            ),
            at: ctx.micros(),
        });
    }
}

/// Writes the new template of a component if it is its turn; true if so.
fn promote(
    ctx: &mut Context<'_>,
    view: View<'_>,
    workload: &Workload,
    frozen: &Frozen,
    ready: bool,
    pass: &mut Pass,
) -> bool {
    let text = format!("{} to get the new template", view.scope.target);
    pass.waiting.push(text);
    if let Some(component) = ctx.component(view.index) {
        component.state = Some(ComponentState::Waiting);
    }
    let undo = ctx.release().is_some_and(|release| release.undo.is_some());
    let coming = again::coming(ctx, view, workload, frozen);
    let again = coming != Coming::Nothing;
    if (!ready && !again)
        || (coming == Coming::Again && again::turn(ctx, view.index, frozen, true) != Turn::Due)
    {
        return false;
    }
    // Between the dry run and now somebody may have removed a container: the
    // apply would then add it instead of changing it.
    let partial = if undo {
        Some(frozen.body(&frozen.fields))
    } else {
        view.scope.template.clone()
    };
    if let Some(gone) = partial.and_then(|t| {
        missing_containers(&t, &workload.template)
            .into_iter()
            .next()
    }) {
        let text = format!("{} has {gone}", view.scope.target);
        pass.held.get_or_insert((Reason::TemplateMismatch, text));
        return false;
    }
    // Contents go before the code that reads them. But for an undo, and beside
    // what was refused, they are what is live.
    let contents = if again {
        contents::force(ctx, frozen)
    } else if undo {
        contents::bring(ctx, frozen, true)
    } else {
        Ok(Vec::new())
    };
    let contents = match contents {
        Ok(writes) => writes,
        Err(obstacle) => {
            pass.held.get_or_insert((obstacle.reason, obstacle.message));
            return false;
        }
    };
    // One write forward, and a few more over somebody who takes it back.
    if !can_write(ctx, view.index, 1 + stable::REASSERTIONS) {
        let touched = held_fields(ctx, view.scope, frozen);
        let fields = ways::fields(&workload.template, &frozen.template, &touched);
        let text = rivals::managers(ctx, view, workload, &fields);
        pass.held.get_or_insert((Reason::Contended, text));
        return false;
    }
    if let Err(obstacle) = snapshots::store(ctx, &frozen.reads()) {
        match snapshots::lost(ctx, view, obstacle) {
            Ok(failure) => {
                pass.failure.get_or_insert(failure);
            }
            Err(held) => {
                pass.held.get_or_insert((held.reason, held.message));
            }
        }
        return false;
    }
    let written = ctx.component(view.index).map(|c| c.written_at.len());
    let taken_back = written.is_some_and(|written| written > 0);
    may_write(ctx, view.index, 1 + stable::REASSERTIONS);
    if let Some(component) = ctx.component(view.index) {
        component.state = Some(ComponentState::Updating);
    }
    if coming == Coming::Again {
        again::tell_in_release(ctx, view, workload);
    } else if taken_back && coming == Coming::Nothing {
        let touched = held_fields(ctx, view.scope, frozen);
        let fields = ways::fields(&workload.template, &frozen.template, &touched);
        let text = rivals::text(&view.scope.target, workload, &fields);
        ctx.tell(true, Reason::Reasserted, &text);
    }
    for write in contents {
        ctx.act_once(write);
    }
    let touched = ctx.touched(&view.scope.target).union(&workload.owned);
    let write = |template| -> TemplateWrite { stable::write(view, workload, template) };
    ctx.act(
        if undo && view.scope.template.is_some() && !touched.is_empty() {
            // What this revision did not own has to go back too, which an apply of
            // it would not do.
            Action::Replace {
                write: write(put_back(&workload.template, &frozen.template, &touched)),
            }
        } else if frozen.partial_digest.is_some() {
            Action::Apply {
                write: write(frozen.body(&frozen.touched())),
            }
        } else {
            Action::Replace {
                write: write(frozen.template.clone()),
            }
        },
    );
    true
}

fn finish(ctx: &mut Context<'_>, plan: &Plan, target: &Revision) {
    let narrowed: Vec<Action> = ctx
        .components()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            let frozen = target.data.of(&view.scope.target)?;
            narrow(view, workload, frozen)
        })
        .collect();
    for action in narrowed {
        ctx.act(action);
    }
    let again = again::in_release(ctx, target);
    record(ctx, ReleaseResult::Succeeded, None);
    unproven(ctx, target);
    if ctx
        .release()
        .is_some_and(|r| r.kind == ReleaseKind::Content)
    {
        held::let_come(ctx, plan, target);
        held::let_others_come(ctx, target);
    }
    ctx.status.stable_revision = Some(target.name.clone());
    ctx.status.target_revision = None;
    ctx.status.release = None;
    for refused in &mut ctx.status.refused {
        // It is stable by now.
        refused.spec.take_if(|spec| *spec == target.data.spec);
    }
    ctx.status
        .refused
        .retain(|refused| refused.revision != target.name && held::holds_any(refused));
    reset(ctx, ComponentState::Stable);
    prune(ctx, plan.history_limit());
    stable::remember(ctx, Some(target));
    let text = format!("{} is released and healthy", target.name);
    ctx.tell(false, Reason::Released, &text);
    again::after(ctx, plan, again);
    stable::rest(ctx, plan);
}

/// Marks what was released without having run. What was proven last stays the
/// way back.
fn unproven(ctx: &mut Context<'_>, target: &Revision) {
    let stable = ctx.stable();
    let unproven: Vec<(usize, bool)> = ctx
        .components()
        .map(|view| {
            let frozen = target.data.of(&view.scope.target);
            let before = stable.and_then(|stable| stable.data.of(&view.scope.target));
            let same = frozen
                .zip(before)
                .is_some_and(|(frozen, before)| canon::equal(&frozen.template, &before.template));
            let reference = view.scope.target.to_ref();
            let mut known = ctx.status.components.iter();
            let known = known.any(|c| c.workload == reference && c.unproven);
            let asleep = view
                .observed
                .workload
                .as_ref()
                .is_some_and(|w| w.replicas == 0);
            (view.index, asleep && (known || !same))
        })
        .collect();
    let any = unproven.iter().any(|(_, unproven)| *unproven);
    for (index, unproven) in unproven {
        if let Some(component) = ctx.component(index) {
            component.unproven = unproven;
        }
    }
    if let Some(record) = ctx.status.history.last_mut() {
        record.unproven = any;
    }
    let proven = ctx.status.proven_revision.take();
    if any {
        ctx.status.proven_revision = proven.or_else(|| ctx.status.stable_revision.clone());
    }
}

/// Sets what Belay owns of a workload to what a revision says.
pub(super) fn narrow(view: View<'_>, workload: &Workload, frozen: &Frozen) -> Option<Action> {
    let fields = &frozen.fields;
    let wrong = stable::strays(workload, fields) || !fields.is_subset(&workload.owned);
    wrong.then(|| stable::own(view, workload, fields.clone()))
}

/// The record of what is being released is gone.
fn lost(ctx: &mut Context<'_>) {
    let name = ctx.status.target_revision.clone().unwrap_or_default();
    let failure = Failure {
        component: None,
        cause: Cause::RevisionLost,
        message: format!("controllerrevision {name}, which is being released, is gone or damaged"),
        at: ctx.micros(),
    };
    restore::begin(ctx, failure);
}
