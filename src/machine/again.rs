//! Refused content that came again: when it is put back, and what is told of it.
//!
//! Decides how long the rest of an apply is awaited, and what a release does with
//! refused content that comes into it. What is refused is decided in
//! [`super::refused`], and what is written between releases in
//! [`super::reassert`].

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;

use super::{
    Workload, contents,
    context::{Context, View, current_name},
    desired::Obstacle,
    records::{changes_of, prune},
    refused::left_of,
    rivals, snapshots,
    stable::{REASSERTIONS, holding, may_write},
    ways,
};
use crate::{
    api::{
        Reason, RefusedAgain, RefusedContent, RefusedPart, ReleaseKind, ReleaseRecord,
        ReleaseResult,
    },
    config_maps::Tracked,
    fields::canon,
    plan::{Plan, Target},
    revision::{Frozen, Revision},
};

/// What is recorded as changed where only contents of it came.
pub(super) const REFUSED_CONTENTS: &str = "refused contents";
/// Begins what is recorded of refused content that came again.
pub(super) const CAME_AGAIN: &str = "it came again and was put back";
/// For how long content is awaited that belongs to a template that came again: its
/// pods are made meanwhile.
const REST: SignedDuration = SignedDuration::from_secs(2);
/// The same for contents alone: an apply brings ConfigMaps before what reads them, and
/// nothing is restarted for them yet.
const REST_OF_CONTENTS: SignedDuration = SignedDuration::from_secs(10);
/// For how long after it was put back it belongs to the apply that begins a release.
const APPLY: SignedDuration = SignedDuration::from_secs(10);

/// What was refused that a workload has again.
pub(super) fn refused_now<'a>(ctx: &'a Context<'_>, index: usize) -> Option<&'a RefusedContent> {
    let mut components = ctx.components();
    let view = components.find(|view| view.index == index)?;
    let live = view.observed.workload.as_ref()?;
    let now = contents::now(ctx, view.scope, live);
    let target = &view.scope.target;
    ctx.refused_as(target, &now)
}

/// What a workload has in a release of what was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    Nothing,
    /// Contents that this release and those before it brought, beside a template
    /// that somebody took back.
    Left,
    /// What somebody set again.
    Again,
}

/// What a workload has in the release in progress, of which `frozen` is wanted. What
/// an undo did not come to yet is what it takes away.
pub(super) fn coming(
    ctx: &Context<'_>,
    view: View<'_>,
    live: &Workload,
    frozen: &Frozen,
) -> Coming {
    let target = &view.scope.target;
    let now = contents::now(ctx, view.scope, live);
    // What a release brings itself is not refused in it, whatever came of it before.
    let brings = canon::equal(&frozen.template, &now);
    if frozen.partial_digest.is_some() || brings || !ctx.live_refused(target, &now) {
        return Coming::Nothing;
    }
    let undo = ctx.release().is_some_and(|release| release.undo.is_some());
    let stable = ctx.stable().and_then(|stable| stable.data.of(target));
    let all = || {
        stable
            .into_iter()
            .chain([frozen])
            .chain(applied(ctx, target))
    };
    // Contents and templates go back one after the other, so each may be that of then.
    let known = |now: &Tracked| all().any(|then| then.config_maps.contains(now));
    let awaited = || all().any(|then| looks_as(then, &now));
    // Contents go first: beside a template that came they were set again.
    let came = looks_as(frozen, &now) && !stable.is_some_and(|stable| looks_as(stable, &now));
    if undo && !came && awaited() && view.scope.tracked.iter().all(known) {
        Coming::Nothing
    } else if is_left(ctx, view, live) {
        Coming::Left
    } else {
        Coming::Again
    }
}

/// What the releases of this chain gave a workload.
fn applied<'a>(ctx: &'a Context<'_>, target: &'a Target) -> impl Iterator<Item = &'a Frozen> {
    let applied = ctx.release().into_iter().flat_map(|r| &r.applied);
    applied.filter_map(|name| ctx.revision(Some(name))?.data.of(target))
}

fn looks_as(frozen: &Frozen, now: &Value) -> bool {
    canon::equal(&contents::plain(&frozen.template), &contents::plain(now))
}

/// Whether a workload has its stable template beside contents that releases of this
/// chain brought: nobody set what was refused, somebody took the rest of it back.
pub(super) fn is_left(ctx: &Context<'_>, view: View<'_>, live: &Workload) -> bool {
    let target = &view.scope.target;
    let Some(stable) = ctx.stable().and_then(|stable| stable.data.of(target)) else {
        return false;
    };
    let brought: Vec<&Tracked> = applied(ctx, target).flat_map(|f| &f.config_maps).collect();
    let mut tracked = view.scope.tracked.iter();
    looks_as(stable, &live.template)
        && tracked.all(|now| stable.config_maps.contains(now) || brought.contains(&now))
}

/// What is to be done about refused content that a workload has again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The rest of the apply is awaited: it may be a correction of what failed.
    Awaits,
    /// That it is put back is on record from this pass on. A crash after the first
    /// write must not hide it.
    Enters,
    /// It is put back.
    Due,
}

/// What is to be done where a workload has refused content again in the place of
/// `wanted`; `can` says whether it may be put back at all.
pub(super) fn turn(ctx: &mut Context<'_>, index: usize, wanted: &Frozen, can: bool) -> Turn {
    let revision = refused_now(ctx, index).map(|refused| refused.revision.clone());
    let Some(revision) = revision else {
        return Turn::Due;
    };
    let seen = ctx.component(index).and_then(|c| c.refused_again.clone());
    let seen = seen.filter(|seen| seen.revision == revision);
    let part = part(ctx, index, wanted);
    let (again, turn) = match seen {
        // What was put back before is told at the end of the release.
        seen if seen.as_ref().is_none_or(|seen| seen.gone) => {
            let came = RefusedAgain {
                at: ctx.micros(),
                revision,
                put_back: false,
                before: seen.is_some() && ctx.release().is_some(),
                part,
                left: Vec::new(),
                gone: false,
            };
            (came, Turn::Awaits)
        }
        None => return Turn::Due,
        // More of it came, and the rest of the apply may be on its way still.
        Some(seen) if seen.part.is_some() && seen.part != joined(seen.part, part) => {
            let more = RefusedAgain {
                at: ctx.micros(),
                part: joined(seen.part, part),
                ..seen
            };
            (more, Turn::Awaits)
        }
        Some(seen) if left(ctx) > Duration::ZERO => (seen, Turn::Awaits),
        Some(seen) if !can || is_stored(ctx, index) => (seen, Turn::Due),
        Some(seen) if seen.put_back => (seen, Turn::Awaits),
        Some(seen) => {
            withdraw(ctx, &revision);
            ctx.wake_in(Duration::ZERO);
            let entered = RefusedAgain {
                put_back: true,
                left: left_between(ctx, index, wanted),
                ..seen
            };
            (entered, Turn::Enters)
        }
    };
    if let Some(component) = ctx.component(index) {
        component.refused_again = Some(again);
    }
    if turn == Turn::Awaits {
        ctx.wake_in(left(ctx));
    }
    turn
}

/// Whether the status that is stored says that what a workload has is put back.
fn is_stored(ctx: &Context<'_>, index: usize) -> bool {
    let reference = ctx.scope.get(index).map(|scope| scope.target.to_ref());
    let mut stored = ctx.input.status.components.iter();
    let stored = stored.find(|stored| Some(&stored.workload) == reference.as_ref());
    let stored = stored.and_then(|stored| stored.refused_again.as_ref());
    stored.is_some_and(|again| again.put_back && !again.gone)
}

/// For how long the rest of an apply is awaited still, which sets one workload after
/// the other.
fn left(ctx: &Context<'_>) -> Duration {
    let components = ctx.status.components.iter();
    let again = components.filter_map(|component| component.refused_again.as_ref());
    let here: Vec<&RefusedAgain> = again.filter(|again| !again.gone).collect();
    let Some(last) = here.iter().map(|again| again.at.0).max() else {
        return Duration::ZERO;
    };
    let rest = here.iter().map(|again| rest(again)).min();
    let left = rest.unwrap_or(REST) - ctx.now().duration_since(last);
    Duration::try_from(left).unwrap_or_default()
}

fn rest(again: &RefusedAgain) -> SignedDuration {
    match again.part {
        Some(RefusedPart::Contents) => REST_OF_CONTENTS,
        _ => REST,
    }
}

/// Notes that a workload has no refused content any more: the next is awaited anew.
pub(super) fn gone(ctx: &mut Context<'_>, index: usize) {
    let any = ctx
        .component(index)
        .is_some_and(|c| c.refused_again.is_some());
    if !any || refused_now(ctx, index).is_some() {
        return;
    }
    if let Some(component) = ctx.component(index) {
        component
            .refused_again
            .take_if(|again| !again.put_back && !again.before);
        if let Some(again) = &mut component.refused_again {
            again.gone = true;
        }
    }
}

/// What of a workload is not as wanted.
fn part(ctx: &Context<'_>, index: usize, wanted: &Frozen) -> Option<RefusedPart> {
    let mut components = ctx.components();
    let view = components.find(|view| view.index == index)?;
    let live = view.observed.workload.as_ref()?;
    let contents = view.scope.template.is_none() && view.scope.tracked != wanted.config_maps;
    Some(match (looks_as(wanted, &live.template), contents) {
        (false, true) => RefusedPart::Both,
        (false, false) => RefusedPart::Template,
        (true, _) => RefusedPart::Contents,
    })
}

fn joined(one: Option<RefusedPart>, other: Option<RefusedPart>) -> Option<RefusedPart> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Some(RefusedPart::Both),
        (one, other) => one.or(other),
    }
}

/// Refuses with it what the plan says, if that came with it.
fn withdraw(ctx: &mut Context<'_>, revision: &str) {
    let content = ctx.input.plan.map(|plan| plan.content().to_owned()).ok();
    let released = ctx.target().map(|target| target.data.spec.clone());
    let mut refused = ctx.status.refused.iter_mut();
    let refused = refused.find(|refused| refused.revision == revision);
    let came = |r: &&mut RefusedContent| r.spec.is_some() && r.spec == content;
    if let Some(refused) = refused.filter(|r| came(r) && released != content) {
        refused.corrected = false;
    }
}

/// What of it is left where the way back ends in between: contents go back before the
/// template does.
fn left_between(ctx: &Context<'_>, index: usize, wanted: &Frozen) -> Vec<String> {
    let mut components = ctx.components();
    let view = components.find(|view| view.index == index && view.scope.template.is_none());
    let left = view.and_then(|view| {
        let live = view.observed.workload.as_ref()?;
        let now = Frozen {
            template: contents::now(ctx, view.scope, live),
            config_maps: view.scope.tracked.clone(),
            ..wanted.clone()
        };
        Some(left_of(&now, wanted))
    });
    left.unwrap_or_default()
}

/// Enters refused content that came again where other content was released since:
/// whoever set it would take the verdict on that for one on this.
pub(super) fn refuse_again(ctx: &mut Context<'_>, plan: &Plan, index: usize, stable: &Revision) {
    let Some(again) = refused_now(ctx, index).cloned() else {
        return;
    };
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
    ctx.tell(true, Reason::Reasserted, &text);
}

/// Puts refused contents back that came in mid-release where the template stayed;
/// true while they are there, in which the release does not end. Says who is in the
/// way if they keep coming.
pub(super) fn contents_in_release(
    ctx: &mut Context<'_>,
    view: View<'_>,
    live: &Workload,
    frozen: &Frozen,
) -> Result<bool, Obstacle> {
    let coming = coming(ctx, view, live, frozen);
    if coming == Coming::Nothing {
        return Ok(false);
    }
    if coming == Coming::Again && turn(ctx, view.index, frozen, true) != Turn::Due {
        return Ok(true);
    }
    let writes = contents::force(ctx, frozen)?;
    if writes.is_empty() {
        return Ok(false);
    }
    let revision = current_name(ctx);
    let who = contents::refilled(&contents::names(&writes), &revision);
    snapshots::store(ctx, &frozen.reads())?;
    if !may_write(ctx, view.index, 1 + REASSERTIONS) {
        return Err(Obstacle {
            reason: Reason::Contended,
            message: who,
        });
    }
    if coming == Coming::Again {
        tell_in_release(ctx, view, live);
    }
    for write in writes {
        ctx.act_once(write);
    }
    Ok(true)
}

/// Forgets what was put back: an order is never the rest of an apply.
pub(super) fn forget(ctx: &mut Context<'_>) {
    for component in &mut ctx.status.components {
        component.refused_again.take_if(|again| again.gone);
    }
}

/// Forgets what was put back some time ago: it was told then.
pub(super) fn expire(ctx: &mut Context<'_>) {
    let now = ctx.now();
    for index in 0..ctx.scope.len() {
        gone(ctx, index);
        if let Some(component) = ctx.component(index) {
            let old = |again: &RefusedAgain| now.duration_since(again.at.0) >= rest(again) + APPLY;
            component
                .refused_again
                .take_if(|again| again.gone && old(again));
        }
    }
}

/// What came again beside the release that ends now: while it was under way, or
/// in the apply that began it. A workload that has new content of that kind by this
/// release was given that since.
pub(super) fn in_release(
    ctx: &mut Context<'_>,
    target: &Revision,
) -> Vec<(String, RefusedContent)> {
    let started = ctx.release().map(|release| release.started_at.0);
    let stable = ctx.stable();
    let mut all = Vec::new();
    for component in &mut ctx.status.components {
        // Of a slow apply more than one release may come, each without what went back.
        let Some(again) = component.refused_again.clone() else {
            continue;
        };
        let of = |revision: &Revision| {
            let mut frozen = revision.data.components.iter();
            let found = frozen.find(|frozen| frozen.workload == component.workload)?;
            let template = canon::digest(&contents::plain(&found.template));
            Some((template, contents::digest(&found.config_maps)))
        };
        let (before, now) = (stable.and_then(of), of(target));
        let [template, contents] = match (&before, &now) {
            (Some(before), Some(now)) => [before.0 != now.0, before.1 != now.1],
            (before, now) => [before != now; 2],
        };
        // Long after it, whatever is new is another wish than the rest of the apply.
        let is_late = started
            .is_some_and(|started| started.duration_since(again.at.0) >= rest(&again) + APPLY);
        let is_new = match again.part {
            Some(RefusedPart::Template) if !is_late => template,
            Some(RefusedPart::Contents) if !is_late => contents,
            Some(RefusedPart::Both) if !is_late => template && contents,
            _ => template || contents,
        };
        if is_new && started.is_some_and(|started| again.at.0 < started) {
            // All of it was released after all.
            component.refused_again.take_if(|again| again.gone);
            continue;
        }
        let mut refused = ctx.status.refused.iter();
        let refused = refused.find(|refused| refused.revision == again.revision);
        if let Some(refused) = refused.filter(|_| again.put_back || again.before) {
            let what = match again.part {
                Some(RefusedPart::Contents) => REFUSED_CONTENTS,
                _ => "what was refused",
            };
            let change = format!("{}: {what}", component.name);
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
