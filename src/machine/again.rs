//! Refused content that came again: when it is put back, and what is told of it.
//!
//! Decides how long the rest of an apply is awaited, and what a release does with
//! refused content that comes into it. What is refused is decided in
//! [`super::refused`], and what is written between releases in
//! [`super::reassert`].

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use super::{
    Workload, contents,
    context::{Context, View, current_name},
    desired::Obstacle,
    records::{changes_of, prune},
    rivals, snapshots,
    stable::{REASSERTIONS, holding, may_write},
    ways,
};
use crate::{
    api::{Reason, RefusedAgain, RefusedContent, ReleaseKind, ReleaseRecord, ReleaseResult},
    fields::canon,
    plan::Plan,
    revision::{Frozen, Revision},
};

/// Begins what is recorded of refused content that came again.
pub(super) const CAME_AGAIN: &str = "it came again and was put back";
/// For how long content is awaited that belongs to what came again.
pub(super) const REST: SignedDuration = SignedDuration::from_secs(2);

/// What was refused that a workload has again.
pub(super) fn refused_now<'a>(ctx: &'a Context<'_>, index: usize) -> Option<&'a RefusedContent> {
    let mut components = ctx.components();
    let view = components.find(|view| view.index == index)?;
    let live = view.observed.workload.as_ref()?;
    let now = contents::now(ctx, view.scope, live);
    let target = &view.scope.target;
    ctx.refused_as(target, &now)
}

/// Enters refused content that came again where other content was released since:
/// whoever set it would take the verdict on that for one on this.
pub(super) fn refuse_again(ctx: &mut Context<'_>, plan: &Plan, index: usize, stable: &Revision) {
    let Some(again) = refused_now(ctx, index).cloned() else {
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
        if put_back
            && refused.revision == revision
            && refused.spec.is_some()
            && refused.spec == content
        {
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
    let revision = refused_now(ctx, index).map(|refused| refused.revision.clone());
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
    let who = contents::refilled(&contents::names(&writes), &revision);
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
/// in the apply that began it. A workload that has new content by this release was
/// given that since.
pub(super) fn in_release(
    ctx: &mut Context<'_>,
    target: &Revision,
) -> Vec<(String, RefusedContent)> {
    let started = ctx.release().map(|release| release.started_at.0);
    let stable = ctx.stable();
    let mut all = Vec::new();
    for component in &mut ctx.status.components {
        let Some(again) = component.refused_again.take() else {
            continue;
        };
        let of = |revision: &Revision| {
            let mut frozen = revision.data.components.iter();
            let frozen = frozen.find(|frozen| frozen.workload == component.workload)?;
            Some(canon::digest(&frozen.template))
        };
        let is_new = stable.and_then(of) != of(target);
        if is_new && started.is_some_and(|started| again.at.0 < started) {
            continue;
        }
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
