//! Newer content in the middle of a release: whether there is any, and the end of
//! the release that it takes the place of.
//!
//! What the newer content becomes is for the next stage to find out.

use std::{collections::BTreeSet, time::Duration};

use super::{
    commands, contents,
    context::{Context, View},
    held,
    records::record,
    report,
    rollout::held_fields,
    snapshots,
};
use crate::{
    api::{Reason, ReleaseKind, ReleaseResult, Stage},
    config_maps::Tracked,
    fields::canon,
    plan::Plan,
    revision::{Frozen, Revision},
};

/// Whether the plan asks for its stable content again.
pub(super) fn is_revert(ctx: &Context<'_>, plan: &Plan) -> bool {
    ctx.stable()
        .is_some_and(|stable| stable.data.spec == plan.content())
}

/// Ends the release in progress if newer content takes its place; true if so.
pub(super) fn run(ctx: &mut Context<'_>, plan: &Plan, target: &Revision) -> bool {
    let undo = ctx.release().is_some_and(|release| release.undo.is_some());
    // A pause holds what the plan would do, and nothing of what others did.
    let holds = plan.paused() && !is_revert(ctx, plan);
    let edited = !holds && is_edited(ctx, plan, target, undo);
    let changed = changed(ctx, target, undo);
    // Newer content of the plan that waits would be judged with it.
    let waits = holds && plan.content() != target.data.spec;
    let begun = |(_, template): &(String, bool)| !holds || (*template && !waits);
    if !edited && !changed.iter().any(begun) {
        return false;
    }
    let begun = ctx.release().and_then(|release| release.generation);
    let facts = &ctx.input.world.plan;
    // Where nobody numbered the contents of the plan, the contents of its
    // ConfigMaps are all that can be told apart.
    let maps = maps(ctx, target);
    let numbers = begun.zip(facts.release_generation);
    let by_plan = edited && numbers.map_or(maps.is_empty(), |(then, now)| now > then);
    let by_maps =
        ((edited && !by_plan) || changed.iter().any(|(_, template)| !template)) && !maps.is_empty();
    let templates = changed.into_iter().filter(|(_, template)| *template);
    let templates: Vec<String> = templates.map(|(name, _)| name).collect();
    let mut what = Vec::new();
    if by_plan || (!by_maps && templates.is_empty()) {
        what.push("the plan has newer content".to_owned());
    }
    if by_maps {
        what.push(format!("configmap {} has other contents", maps.join(", ")));
    }
    if !templates.is_empty() {
        what.push(format!("somebody changed {}", templates.join(", ")));
    }
    let what = what.join(" and ");
    // Who changed the plan did not ask for what others changed.
    let requested_by = facts.requested_by.clone().filter(|_| by_plan);
    let generation = facts.release_generation;
    let text = format!(
        "{what}; the release of {} ends here and what is wanted now takes its place",
        target.name
    );
    if undo {
        held::lift_hold(ctx);
    }
    commands::overtaken(ctx);
    record(ctx, ReleaseResult::Superseded, Some(text.clone()));
    ctx.tell(false, Reason::Superseded, &text);
    let now = ctx.micros();
    if let Some(release) = ctx.status.release.as_mut() {
        release.number += 1;
        release.stage = Stage::Settle;
        release.started_at = now.clone();
        release.stage_since = now;
        release.requested_by = requested_by;
        release.generation = generation;
        release.undo = None;
        release.retried = false;
        if undo {
            release.kind = ReleaseKind::Content;
        }
    }
    ctx.status.target_revision = None;
    ctx.status.step = Some("Settle".to_owned());
    ctx.wake_in(Duration::from_secs(1));
    report::progressing(ctx, Reason::Settling, &text);
    true
}

/// Whether the plan, or a ConfigMap that a template of it names, asks for
/// something else.
fn is_edited(ctx: &Context<'_>, plan: &Plan, target: &Revision, undo: bool) -> bool {
    if plan.content() == target.data.spec {
        // Whatever came of it before, it is what is being released.
        return false;
    }
    let spec = if ctx.spec_refused(plan) && undo {
        // The content of the plan is held while its place is taken.
        Some(target.data.spec.clone())
    } else if ctx.spec_refused(plan) {
        ctx.stable().map(|stable| stable.data.spec.clone())
    } else {
        Some(plan.content().to_owned())
    };
    // Another set of components waits for the end of the release,
    // as does one whose contents are not known.
    spec.as_ref() != Some(&target.data.spec)
        && !ctx.set_changed(plan)
        && snapshots::is_resolved(ctx)
}

/// The followed components with another template than the target's: one that
/// nobody knows, or the stable one again. With each, whether more than the
/// contents of its ConfigMaps is other.
fn changed(ctx: &Context<'_>, target: &Revision, undo: bool) -> Vec<(String, bool)> {
    let stable = ctx.stable();
    let moved = ctx.release().into_iter().flat_map(|r| &r.applied);
    let moved: Vec<&Revision> = moved.filter_map(|name| ctx.revision(Some(name))).collect();
    let differs = |view: &View<'_>| {
        let workload = view.observed.workload.as_ref()?;
        let frozen = target.data.of(&view.scope.target)?;
        // What surrounds the fields of a plan is no content.
        if !held_fields(ctx, view.scope, frozen).is_empty() {
            return None;
        }
        let stable = stable.and_then(|stable| stable.data.of(&view.scope.target));
        let now = contents::now(ctx, view.scope, workload);
        let plain = contents::plain(&now);
        let looks = |frozen: &Frozen| canon::equal(&contents::plain(&frozen.template), &plain);
        let known = if undo {
            // Contents and templates go back one after the other, so each may
            // be that of then while the other is still what it was before.
            let moved = moved.iter().filter_map(|r| r.data.of(&view.scope.target));
            let all: Vec<&Frozen> = stable.into_iter().chain([frozen]).chain(moved).collect();
            let kept = |now: &Tracked| all.iter().any(|then| then.config_maps.contains(now));
            // Of a workload that has a template by now they come by snapshot.
            let own = view.scope.template.is_some() || view.scope.tracked.iter().all(kept);
            all.iter().any(|then| looks(then)) && own
        } else {
            canon::equal(&frozen.template, &now)
        };
        // What is refused takes the place of nothing: the release puts that back.
        // Who brings back what is stable of it takes the release back.
        // What an undo did not come to yet takes nothing back.
        let back = stable.filter(|_| !undo).is_some_and(|stable| {
            let template = looks(stable) && !looks(frozen);
            let same = |then: &Frozen| then.config_maps == view.scope.tracked;
            let contents = same(stable) && !same(frozen);
            template || (contents && looks(frozen))
        });
        let stays = || {
            let held = ctx.live_refused(&view.scope.target, &now);
            held || goes_back_with_another(ctx, view, &[Some(frozen), stable])
        };
        let is_new = !known && (back || !stays());
        is_new.then(|| (view.scope.name.clone(), !looks(frozen)))
    };
    ctx.components().filter_map(|view| differs(&view)).collect()
}

/// Whether a workload differs by contents alone that another one has again of what was
/// refused of that: they go back with it.
fn goes_back_with_another(ctx: &Context<'_>, view: &View<'_>, known: &[Option<&Frozen>]) -> bool {
    let live = view.observed.workload.as_ref();
    let plain = live.map(|live| contents::plain(&live.template));
    let same = |known: &&Frozen| plain.as_ref() == Some(&contents::plain(&known.template));
    let Some(known) = known.iter().copied().flatten().find(same) else {
        return false;
    };
    let tracked = view.scope.tracked.iter();
    let moved: Vec<_> = tracked
        .filter(|now| !known.config_maps.contains(now))
        .collect();
    !moved.is_empty()
        && moved
            .iter()
            .all(|now| contents::are_refused(ctx, &now.name, Some(view.index)))
}

/// The ConfigMaps that hold something else than the target was made with: those
/// that were edited since the last look, or all of them where it was earlier.
fn maps(ctx: &Context<'_>, target: &Revision) -> Vec<String> {
    let frozen = target.data.components.iter();
    let then: Vec<_> = frozen.flat_map(|frozen| &frozen.config_maps).collect();
    let scopes = ctx.scope.iter().filter(|scope| !scope.leaving);
    let now = scopes.flat_map(|scope| &scope.tracked);
    let newer = now.filter(|now| {
        let mut then = then.iter().filter(|then| then.name == now.name);
        then.any(|then| then.digest != now.digest)
    });
    let newer: Vec<&Tracked> = newer.collect();
    let before = &ctx.input.status.config_maps;
    let same = |now: &Tracked| {
        let mut before = before.iter();
        before.any(|then| then.name == now.name && then.digest.as_ref() == Some(&now.digest))
    };
    let fresh: BTreeSet<&String> = newer.iter().filter(|n| !same(n)).map(|n| &n.name).collect();
    let all = || newer.iter().map(|now| &now.name).collect();
    let names = if fresh.is_empty() { all() } else { fresh };
    names.into_iter().cloned().collect()
}
