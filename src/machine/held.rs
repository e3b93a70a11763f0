//! What an undo holds: content that it takes away must not come back by itself.
//!
//! It is entered among what was refused, with a cause of its own, and ends when
//! the undo is taken back or something else was released in its place.

use super::{
    context::Context,
    desired::desired,
    refused::{forms, runs_as},
};
use crate::{
    api::{Cause, RefusedContent, RefusedTemplate, WorkloadRef},
    fields::canon,
    plan::Plan,
    revision::Revision,
};

/// Makes what is asked for admissible, whatever came of it before.
pub(super) fn lift(ctx: &mut Context<'_>, to: &Revision) {
    ctx.status.refused.retain(|r| r.revision != to.name);
    for refused in &mut ctx.status.refused {
        // Templates of others that went back with the same stay refused.
        refused.spec.take_if(|spec| *spec == to.data.spec);
        for frozen in &to.data.components {
            let digest = canon::digest(&frozen.template);
            let of = |live: &&RefusedTemplate| live.workload == frozen.workload;
            // The first of its forms is what failed, the others are halves of it.
            let whole = refused.live.iter().find(of);
            let whole = whole.is_some_and(|live| live.digest == digest);
            let asked = |live: &RefusedTemplate| of(&live) && (whole || live.digest == digest);
            refused.live.retain(|live| !asked(live));
        }
    }
    ctx.status.refused.retain(holds_any);
}

/// Holds what an undo takes away, as if it were refused: it would come back by
/// itself otherwise. That is what is stable, and what the plan asked for since.
pub(super) fn hold(ctx: &mut Context<'_>, plan: &Plan, to: &Revision, stable: &Revision, by: &str) {
    let content = plan.content();
    let waits = ![&to.data.spec, &stable.data.spec].contains(&&content.to_owned())
        && !ctx.spec_refused(plan);
    // What was never prepared has no name yet. Where none can be told, it goes by
    // that of the stable one.
    let waiting = waits.then(|| desired(ctx, plan).ok()).flatten();
    let facts = &ctx.input.world.plan;
    let waiting = waiting.map(|waiting| waiting.data().named(&facts.name, &facts.uid).name);
    let spec = match &waiting {
        None if waits => Some(content.to_owned()),
        _ => (stable.data.spec != to.data.spec).then(|| stable.data.spec.clone()),
    };
    let live: Vec<RefusedTemplate> = ctx
        .components()
        .filter(|view| view.scope.template.is_none())
        .filter_map(|view| {
            let now = stable.data.of(&view.scope.target)?;
            let then = to.data.of(&view.scope.target)?;
            (!canon::equal(&now.template, &then.template)).then(|| forms(now, Some(then)))
        })
        .flatten()
        .collect();
    for refused in &mut ctx.status.refused {
        if refused.spec.as_deref() == Some(content) {
            refused.held = !waits;
        }
    }
    let at = ctx.time();
    let mut enter = |revision: &str, spec: Option<String>, live: Vec<RefusedTemplate>| {
        if spec.is_none() && live.is_empty() {
            return;
        }
        ctx.status.refused.retain(|r| r.revision != revision);
        ctx.status.refused.push(RefusedContent {
            revision: revision.to_owned(),
            spec,
            live,
            cause: Cause::Undone,
            component: None,
            corrected: false,
            held: false,
            message: format!("{} was asked for{by}", to.name),
            at: at.clone(),
        });
    };
    enter(&stable.name, spec, live);
    if let Some(name) = waiting {
        enter(&name, Some(content.to_owned()), Vec::new());
    }
}

/// Lets what an undo took away come again where something else was released in
/// its place: whoever asks for it from here on means it. What the plan, or a
/// workload that this release did not change, still asks for stays away.
pub(super) fn let_come(ctx: &mut Context<'_>, plan: &Plan, target: &Revision) {
    let stable = ctx.stable();
    let same = |workload: &WorkloadRef| {
        let of = |revision: &Revision| {
            let mut frozen = revision.data.components.iter();
            let frozen = frozen.find(|frozen| frozen.workload == *workload)?;
            Some(canon::digest(&frozen.template))
        };
        of(target).is_some() && stable.and_then(of) == of(target)
    };
    for refused in &mut ctx.status.refused {
        refused.held &= refused.spec.as_deref() == Some(plan.content());
        if refused.cause == Cause::Undone {
            refused.spec.take_if(|spec| spec != plan.content());
            refused.live.retain(|live| same(&live.workload));
        }
    }
    ctx.status
        .refused
        .retain(|refused| refused.cause != Cause::Undone || holds_any(refused));
}

/// Lets come again what went back beside content in whose place other content was
/// released since: it is new beside that.
pub(super) fn let_others_come(ctx: &mut Context<'_>, target: &Revision) {
    let of = |revision: Option<&Revision>, workload: &WorkloadRef| {
        let mut frozen = revision?.data.components.iter();
        frozen.find(|frozen| frozen.workload == *workload).cloned()
    };
    let stable = ctx.stable();
    let before = stable.map(|stable| stable.data.spec.clone());
    let is_changed = |workload: &WorkloadRef| {
        let (now, before) = (of(Some(target), workload), of(stable, workload));
        now.zip(before)
            .is_some_and(|(now, before)| !runs_as(&now.template, &before.template))
    };
    for refused in &mut ctx.status.refused {
        if matches!(refused.cause, Cause::Undone | Cause::StatusLost) {
            continue;
        }
        let mut components = target.data.components.iter();
        let failed = components.find(|f| Some(&f.name) == refused.component.as_ref());
        if let Some(failed) = failed.filter(|failed| is_changed(&failed.workload)) {
            let of = |live: &RefusedTemplate| live.workload == failed.workload;
            let now = Some(target.data.spec.clone());
            let other = ![&refused.spec, &before].contains(&&now);
            refused.corrected |= other || refused.live.iter().any(of);
        }
    }
    ctx.status.refused.retain(holds_any);
}

pub(super) fn holds_any(refused: &RefusedContent) -> bool {
    refused.spec.is_some() || !refused.live.is_empty()
}

/// Ends the hold on the stable revision, and on what waited beside it, where an
/// undo did not take it away.
pub(super) fn lift_hold(ctx: &mut Context<'_>) {
    let stable = ctx.status.stable_revision.clone();
    let mut refused = ctx.status.refused.iter();
    let undone = |r: &&RefusedContent| r.cause == Cause::Undone;
    let hold = refused.rfind(|r| undone(r) && Some(&r.revision) == stable.as_ref());
    let Some((at, message)) = hold.map(|hold| (hold.at.clone(), hold.message.clone())) else {
        return;
    };
    ctx.status
        .refused
        .retain(|r| r.cause != Cause::Undone || r.at != at || r.message != message);
    for refused in &mut ctx.status.refused {
        refused.held = false;
    }
}
