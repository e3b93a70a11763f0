//! Holds what is stable against other writers between releases: fields of the
//! plan that somebody took, and content that was refused and came again.
//!
//! Decides which writes that takes, and gives up where they are undone again and
//! again. What is new content is not decided here.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use super::{
    Action, Workload, contents,
    context::{Context, View, current_name, is_at},
    desired::{Change, Desired, Obstacle},
    records::{changes_of, prune},
    rivals, snapshots,
    stable::{CONTENTION_WINDOW, REASSERTIONS, holding, may_write, own, strays, write},
    types::DryRun,
    ways,
};
use crate::{
    api::{Reason, RefusedAgain, RefusedContent, ReleaseKind, ReleaseRecord, ReleaseResult},
    fields::{FieldSet, canon, put_back},
    plan::Plan,
    revision::{Frozen, Revision},
};

/// Begins what is recorded of refused content that came again.
pub(super) const CAME_AGAIN: &str = "it came again and was put back";
/// For how long content is awaited that belongs to what came again.
const REST: SignedDuration = SignedDuration::from_secs(2);

/// A write that a component needs between releases.
struct Due {
    index: usize,
    action: Action,
    /// Whether it goes over somebody else's.
    fight: bool,
    /// Who is in the way if it does so too often.
    who: String,
    /// What to tell of it.
    text: String,
}

/// What came of holding the plan's fields against other writers.
pub(super) struct Reasserted {
    pub(super) wrote: bool,
    pub(super) contended: Option<String>,
    /// Contents that the templates count on are not kept.
    pub(super) lost: Option<Obstacle>,
    /// Some of it may be part of content that is on its way.
    pub(super) waits: bool,
}

/// Sets the plan's fields again where somebody took them, and takes those that
/// have the wanted value but are not owned yet. Refused templates of followed
/// workloads that come back are sent back again. All of it a few times only.
pub(super) fn run(
    ctx: &mut Context<'_>,
    plan: &Plan,
    stable: &'_ Revision,
    desired: &Desired,
) -> Reasserted {
    let refused = ctx.spec_refused(plan);
    let mut due: Vec<Due> = Vec::new();
    for (view, (wanted, change)) in ctx
        .components()
        .zip(desired.frozen.iter().zip(&desired.changes))
    {
        let Some(workload) = &view.observed.workload else {
            continue;
        };
        let Some(frozen) = stable.data.of(&view.scope.target) else {
            continue;
        };
        if let Some((action, fight)) =
            correction(ctx, view, workload, frozen, wanted, *change, refused)
        {
            let none = FieldSet::default();
            let fields = ways::fields(&workload.template, &wanted.template, &none);
            let text = format!(
                "{} changed what the plan holds in {}: {fields}; it is set again",
                rivals::writer(workload),
                view.scope.target
            );
            due.push(Due {
                index: view.index,
                action,
                fight,
                who: rivals::managers(ctx, view, workload, &fields),
                text,
            });
        }
    }
    let mut outcome = Reasserted {
        wrote: false,
        contended: None,
        lost: None,
        waits: false,
    };
    for due in due {
        let Due {
            index,
            action,
            fight,
            ..
        } = due;
        let bring = match before(ctx, index, &action, stable) {
            Ok(writes) => writes,
            Err(obstacle) => {
                outcome.lost.get_or_insert(obstacle);
                continue;
            }
        };
        let settled = contents::is_settled(ctx, &action);
        let (who, text) = if settled {
            contents::refilled(ctx, index, &stable.name)
        } else {
            (due.who, due.text)
        };
        let written = ctx.component(index).map(|c| c.written_at.clone());
        if fight && !may_write(ctx, index, REASSERTIONS) {
            outcome.contended.get_or_insert(who);
            ctx.wake_in(CONTENTION_WINDOW);
            continue;
        }
        if fight && is_refused(ctx, index) && !has_waited(ctx) {
            outcome.waits = true;
            if let (Some(component), Some(written)) = (ctx.component(index), written) {
                component.written_at = written;
            }
            continue;
        }
        outcome.wrote |= fight;
        if fight {
            refuse_again(ctx, plan, index, stable);
            ctx.tell(true, Reason::Reasserted, &text);
        }
        for write in bring {
            ctx.act_once(write);
        }
        if !settled {
            ctx.act(action);
        }
    }
    outcome
}

/// What was refused that a workload has again.
fn refused<'a>(ctx: &'a Context<'_>, index: usize) -> Option<&'a RefusedContent> {
    let mut components = ctx.components();
    let view = components.find(|view| view.index == index)?;
    let live = view.observed.workload.as_ref()?;
    let now = contents::now(ctx, view.scope, live);
    let target = &view.scope.target;
    ctx.refused_as(target, &now)
}

fn is_refused(ctx: &Context<'_>, index: usize) -> bool {
    refused(ctx, index).is_some()
}

/// Enters refused content that came again where other content was released since:
/// whoever set it would take the verdict on that for one on this.
fn refuse_again(ctx: &mut Context<'_>, plan: &Plan, index: usize, stable: &Revision) {
    let Some(again) = refused(ctx, index).cloned() else {
        return;
    };
    came_again(ctx, index, &again.revision, true);
    let mut came = stable.data.clone();
    for view in ctx.components().filter(|view| view.index == index) {
        let reference = view.scope.target.to_ref();
        let mut components = came.components.iter_mut();
        let frozen = components.find(|frozen| frozen.workload == reference);
        if let (Some(frozen), Some(live)) = (frozen, &view.observed.workload) {
            frozen.template.clone_from(&live.template);
            frozen.config_maps.clone_from(&view.scope.tracked);
        }
    }
    let changes = changes_of(&stable.data, &came);
    enter(ctx, plan, again, changes);
}

fn enter(ctx: &mut Context<'_>, plan: &Plan, again: RefusedContent, changes: Vec<String>) {
    if holding(&ctx.scope, &ctx.status, None).is_some() {
        return;
    }
    let mut last = ctx.status.history.iter().rev();
    let came = |record: &&ReleaseRecord| {
        let message = record.message.as_deref();
        message.is_some_and(|message| message.starts_with(CAME_AGAIN))
    };
    let known = |record: &ReleaseRecord| record.revision.as_ref() == Some(&again.revision);
    let last_try = last.clone().find(|record| !came(record));
    let last_try = last_try.filter(|record| record.result == ReleaseResult::RolledBack);
    if last.by_ref().take_while(came).any(known) || last_try.is_some_and(known) {
        // Told already, however often it comes.
        return;
    }
    let at = ctx.time();
    let why = ways::brief(&again.told());
    let last = ctx.status.history.last().map_or(0, |record| record.number);
    ctx.status.history.push(ReleaseRecord {
        number: last + 1,
        kind: ReleaseKind::Content,
        revision: Some(again.revision),
        from: ctx.status.stable_revision.clone(),
        requested_by: None,
        changes,
        unproven: false,
        started_at: at.clone(),
        ended_at: at,
        result: ReleaseResult::RolledBack,
        message: Some(format!("{CAME_AGAIN}: {why}")),
    });
    prune(ctx, plan.history_limit());
}

fn came_again(ctx: &mut Context<'_>, index: usize, revision: &str, put_back: bool) {
    let at = ctx.micros();
    let content = ctx.input.plan.map(|plan| plan.content().to_owned()).ok();
    for refused in &mut ctx.status.refused {
        if put_back && refused.revision == revision && refused.spec == content {
            // What the plan says came with it, and stays where it is.
            refused.corrected = false;
        }
    }
    if let Some(component) = ctx.component(index) {
        component.refused_again = Some(RefusedAgain {
            at,
            revision: revision.to_owned(),
            put_back,
        });
    }
}

/// Whether the rest of an apply is awaited before what came again in mid-release
/// is put back: it may be a correction of what failed of it.
pub(super) fn awaits_rest(ctx: &mut Context<'_>, index: usize) -> bool {
    let revision = refused(ctx, index).map(|refused| refused.revision.clone());
    let Some(revision) = revision else {
        return false;
    };
    let seen = ctx.component(index).and_then(|c| c.refused_again.clone());
    let seen = seen.filter(|seen| seen.revision == revision);
    let Some(seen) = seen else {
        came_again(ctx, index, &revision, false);
        ctx.wake_in(Duration::from_secs(1));
        return true;
    };
    let left = REST - ctx.now().duration_since(seen.at.0);
    if seen.put_back || !left.is_positive() {
        return false;
    }
    ctx.wake_in(Duration::try_from(left).unwrap_or_default());
    true
}

/// Tells of refused content that came in mid-release, which the release puts back.
pub(super) fn tell_in_release(ctx: &mut Context<'_>, view: View<'_>, live: &Workload) {
    let now = contents::now(ctx, view.scope, live);
    let target = &view.scope.target;
    let Some(again) = ctx.refused_as(target, &now) else {
        return;
    };
    let text = format!(
        "{} gave {target} what was refused as {}; the release that is under way puts it back",
        rivals::writer(live),
        again.revision
    );
    let revision = again.revision.clone();
    ctx.tell(true, Reason::Reasserted, &text);
    came_again(ctx, view.index, &revision, true);
}

/// Puts refused contents back that came in mid-release where the template stayed.
/// Says who is in the way if they keep coming.
pub(super) fn contents_in_release(
    ctx: &mut Context<'_>,
    view: View<'_>,
    live: &Workload,
    frozen: &Frozen,
) -> Result<(), Obstacle> {
    let now = contents::now(ctx, view.scope, live);
    let target = &view.scope.target;
    let is_refused = view.scope.template.is_none() && ctx.live_refused(target, &now);
    let undo = ctx.release().is_some_and(|release| release.undo.is_some());
    if undo || !is_refused || awaits_rest(ctx, view.index) {
        return Ok(());
    }
    let writes = contents::force(ctx, frozen)?;
    if writes.is_empty() {
        return Ok(());
    }
    let revision = current_name(ctx);
    let (who, _) = contents::refilled(ctx, view.index, &revision);
    if !may_write(ctx, view.index, 1 + REASSERTIONS) {
        return Err(Obstacle {
            reason: Reason::Contended,
            message: who,
        });
    }
    snapshots::store(ctx, &frozen.reads())?;
    tell_in_release(ctx, view, live);
    for write in writes {
        ctx.act_once(write);
    }
    Ok(())
}

/// What came again beside the release that ends now: while it was under way, or
/// in the apply that began it.
pub(super) fn in_release(ctx: &mut Context<'_>) -> Vec<(String, RefusedContent)> {
    let mut all = Vec::new();
    for component in &mut ctx.status.components {
        let Some(again) = component.refused_again.take() else {
            continue;
        };
        let mut refused = ctx.status.refused.iter();
        let refused = refused.find(|refused| refused.revision == again.revision);
        if let Some(refused) = refused.filter(|_| again.put_back) {
            let change = format!("{}: what was refused", component.name);
            all.push((change, refused.clone()));
        }
    }
    all
}

/// Enters what came again in a release that has ended.
pub(super) fn after(ctx: &mut Context<'_>, plan: &Plan, again: Vec<(String, RefusedContent)>) {
    for (change, again) in again {
        let mut refused = ctx.status.refused.iter();
        if refused.any(|refused| refused.revision == again.revision) {
            enter(ctx, plan, again, vec![change]);
        }
    }
}

/// Whether it was waited for the rest of what somebody applies, or another reason
/// already stands in front.
fn has_waited(ctx: &Context<'_>) -> bool {
    let of = |name: &str| {
        let mut conditions = ctx.input.status.conditions.iter();
        conditions.find(|c| c.type_ == name)
    };
    let reason = of("Ready").map_or("", |ready| &ready.reason);
    let rest = [Reason::Released, Reason::RolledBack, Reason::Undone];
    if reason != Reason::Settling.as_str() {
        return rest.iter().all(|rest| rest.as_str() != reason);
    }
    of("Reconciling").is_none_or(|c| ctx.now().duration_since(c.last_transition_time.0) >= REST)
}

/// What has to be stored and written before a write to a component: contents
/// that it counts on, and those that go back before its template does.
fn before(
    ctx: &mut Context<'_>,
    index: usize,
    action: &Action,
    stable: &Revision,
) -> Result<Vec<Action>, Obstacle> {
    let scope = ctx.scope.get(index);
    let frozen = scope.and_then(|scope| stable.data.of(&scope.target));
    let Some(frozen) = frozen.filter(|_| !matches!(action, Action::Own { .. })) else {
        return Ok(Vec::new());
    };
    snapshots::store(ctx, &frozen.reads())?;
    contents::force(ctx, frozen)
}

/// The write that a component needs to be as it should between releases, and
/// whether it goes over somebody else's.
fn correction(
    ctx: &Context<'_>,
    view: View<'_>,
    workload: &Workload,
    stable: &Frozen,
    wanted: &Frozen,
    change: Change,
    refused: bool,
) -> Option<(Action, bool)> {
    if view.scope.template.is_none() {
        let now = contents::now(ctx, view.scope, workload);
        if ctx.live_refused(&view.scope.target, &now) {
            let write = write(view, workload, stable.template.clone());
            return Some((Action::Replace { write }, true));
        }
        if change == Change::None && !canon::equal(&workload.template, &wanted.template) {
            // Somebody put another stamp on it than that of its contents.
            let write = write(view, workload, wanted.template.clone());
            return Some((Action::Replace { write }, true));
        }
        let fields = &wanted.fields;
        let wrong = strays(workload, fields) || !fields.is_subset(&workload.owned);
        return (change == Change::None && workload.marked && wrong)
            .then(|| (own(view, workload, fields.clone()), false));
    }
    let surroundings = refused || change == Change::Surroundings;
    if surroundings && ctx.live_refused(&view.scope.target, &workload.template) {
        let write = write(view, workload, stable.template.clone());
        return Some((Action::Replace { write }, true));
    }
    if refused {
        let fields = stable.fields.union(&workload.owned);
        if fields.is_empty() {
            // Nothing of it was the plan's, so nothing of it is held.
            return None;
        }
        if !is_at(workload, stable, &fields) {
            let template = put_back(&workload.template, &stable.template, &fields);
            let write = write(view, workload, template);
            return Some((Action::Replace { write }, true));
        }
        return strays(workload, &stable.fields)
            .then(|| (own(view, workload, stable.fields.clone()), false));
    }
    let Some(DryRun::Merged {
        body,
        owned,
        template,
        ..
    }) = &workload.dry_run
    else {
        return None;
    };
    let reverted = !canon::equal(template, &workload.template);
    if change == Change::None && (reverted || !owned.is_subset(&workload.owned)) {
        let write = write(view, workload, body.clone());
        return Some((Action::Apply { write }, reverted));
    }
    (change == Change::None && strays(workload, owned))
        .then(|| (own(view, workload, owned.clone()), false))
}
