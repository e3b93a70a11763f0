//! What was refused: by what it is known again, and whether it still is.
//!
//! What was released together is refused together, and each part of it also
//! beside what the others went back to. Beside other content of what failed the
//! rest is new. Decides nothing about how refused content is put back.

use serde_json::Value;

use super::{
    again::is_left,
    contents,
    context::{Context, View},
    pinned,
};
use crate::{
    api::{Cause, RefusedContent, RefusedTemplate, WorkloadRef},
    config_maps::Tracked,
    fields::canon,
    plan::{Plan, Target},
    revision::Frozen,
};

/// Most ConfigMaps of which each is told apart: of more every part would be a form
/// of its own.
const MAPS: usize = 3;

/// The contents of which some are those of one template and the rest those of
/// another.
fn mixed(frozen: &Frozen, stable: &Frozen) -> Vec<Vec<Tracked>> {
    let before = |now: &Tracked| {
        let mut before = stable.config_maps.iter();
        let before = before.find(|before| before.name == now.name);
        before.filter(|before| before.digest != now.digest).cloned()
    };
    let all = frozen.config_maps.iter().enumerate();
    let moved: Vec<(usize, Tracked)> = all.filter_map(|(i, now)| Some((i, before(now)?))).collect();
    let mix = |is_before: &dyn Fn(usize) -> bool| {
        let mut maps = frozen.config_maps.clone();
        for (bit, (index, before)) in moved.iter().enumerate() {
            if is_before(bit)
                && let Some(map) = maps.get_mut(*index)
            {
                map.clone_from(before);
            }
        }
        maps
    };
    if moved.len() > MAPS {
        // At least those between which a put-back may end.
        let some = 1..moved.len();
        return some.map(|some| mix(&|bit| bit < some)).collect();
    }
    // Neither none nor all of them.
    let some = 1..(1_usize << moved.len()).saturating_sub(1);
    some.map(|some| mix(&|bit| some & (1 << bit) != 0))
        .collect()
}

/// The forms in which the template of a workload may come again: with the
/// contents of its ConfigMaps, any part of the two beside what is stable of the
/// rest, and all of it without a restart by hand.
pub(super) fn forms(frozen: &Frozen, stable: Option<&Frozen>) -> Vec<RefusedTemplate> {
    let mut forms = vec![frozen.template.clone()];
    if let Some(stable) = stable.filter(|_| frozen.partial_digest.is_none()) {
        forms.push(contents::stamped_as(&frozen.template, &stable.template));
        // Where nothing was stamped yet, it will be once other contents were released.
        for maps in [&frozen.config_maps, &stable.config_maps] {
            forms.push(contents::stamped(&frozen.template, maps));
        }
        forms.push(contents::stamped_as(&stable.template, &frozen.template));
        for maps in mixed(frozen, stable) {
            forms.push(contents::stamped(&frozen.template, &maps));
            forms.push(contents::stamped(&stable.template, &maps));
        }
    }
    digests_of(forms, &frozen.workload, stable)
}

/// The forms in which a template is left where contents are put back before it.
pub(super) fn left_of(frozen: &Frozen, wanted: &Frozen) -> Vec<String> {
    let template = &frozen.template;
    let mut forms = vec![contents::stamped_as(template, &wanted.template)];
    let mixed = mixed(frozen, wanted);
    forms.extend(mixed.iter().map(|maps| contents::stamped(template, maps)));
    let left = digests_of(forms, &frozen.workload, Some(wanted));
    left.into_iter().map(|left| left.digest).collect()
}

/// Forms and the same without a restart by hand, but for what is stable.
fn digests_of(
    mut forms: Vec<Value>,
    workload: &WorkloadRef,
    stable: Option<&Frozen>,
) -> Vec<RefusedTemplate> {
    // What is stable is so under each stamp of its contents.
    let stamped = stable.map(|s| contents::stamped(&s.template, &s.config_maps));
    let stable = stable.map(|stable| &stable.template);
    let all: Vec<&Value> = stable.into_iter().chain(&stamped).collect();
    let before: Vec<Value> = all.iter().map(|form| contents::unrestarted(form)).collect();
    let plain: Vec<Value> = forms.iter().map(contents::unrestarted).collect();
    // A restart that failed is no word on the same pods without it.
    forms.extend(plain.into_iter().filter(|plain| !before.contains(plain)));
    let mut digests: Vec<String> = Vec::new();
    for form in forms.iter().filter(|form| !all.contains(form)) {
        let digest = canon::digest(form);
        if !digests.contains(&digest) {
            digests.push(digest);
        }
    }
    let of = |digest| RefusedTemplate {
        workload: workload.clone(),
        digest,
    };
    digests.into_iter().map(of).collect()
}

/// The digests by which a live template may be refused.
fn digests(now: &Value, stable: Option<&Frozen>) -> Vec<String> {
    let plain = contents::unrestarted(now);
    let is_stable = |stable: &Frozen| contents::unrestarted(&stable.template) == plain;
    let mut digests = vec![canon::digest(now)];
    if plain != *now && !stable.is_some_and(is_stable) {
        digests.push(canon::digest(&plain));
    }
    digests
}

/// Whether pods of two templates run the same: what only marks a template makes
/// no other content of it.
pub(super) fn runs_as(one: &Value, other: &Value) -> bool {
    canon::equal(
        one.get("spec").unwrap_or(&Value::Null),
        other.get("spec").unwrap_or(&Value::Null),
    )
}

/// What was refused that is asked for where nothing else is new, be it by the plan
/// or by who changed a followed workload.
pub(super) fn asked_again<'a>(ctx: &'a Context<'_>, plan: &Plan) -> Option<&'a RefusedContent> {
    if ctx.release().is_some_and(|release| release.undo.is_some()) {
        return None;
    }
    let is_stable = ctx.stable().is_some_and(|s| s.data.spec == plan.content());
    let spec = || {
        let mut refused = ctx.status.refused.iter().rev();
        refused.find(|r| r.spec.as_deref() == Some(plan.content()))
    };
    let by_plan = (!is_stable && ctx.spec_refused(plan)).then(spec).flatten();
    let live = || {
        ctx.components()
            .filter(|view| view.scope.template.is_none())
            .find_map(|view| {
                let live = view.observed.workload.as_ref()?;
                let now = contents::now(ctx, view.scope, live);
                let target = &view.scope.target;
                (ctx.live_refused(target, &now) && !is_left(ctx, view, live))
                    .then(|| ctx.refused_as(target, &now))
                    .flatten()
            })
    };
    by_plan
        .or_else(live)
        .filter(|refused| refused.cause != Cause::Undone)
}

/// Enters what failed among the refused contents.
pub(super) fn refuse(ctx: &mut Context<'_>) {
    if came_again(ctx) {
        return;
    }
    let at = ctx.time();
    let Some(failure) = ctx.release().and_then(|release| release.failure.clone()) else {
        return;
    };
    let (Some(target), Some(stable)) = (ctx.target(), pinned::began(ctx)) else {
        return;
    };
    let spec = (target.data.spec != stable.data.spec).then(|| target.data.spec.clone());
    let live = target
        .data
        .components
        .iter()
        .filter_map(|frozen| {
            let known =
                Target::from_ref(&frozen.workload).and_then(|t| stable.data.of(&t).cloned());
            let own = frozen.partial_digest.is_some()
                && known
                    .as_ref()
                    .is_none_or(|known| known.partial_digest != frozen.partial_digest);
            let same = |known: &Frozen| canon::equal(&known.template, &frozen.template);
            (!own && !known.as_ref().is_some_and(same)).then(|| forms(frozen, known.as_ref()))
        })
        .flatten()
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
        corrected: false,
        held: false,
        message: failure.message,
        at,
    });
}

/// Whether what goes back was refused before this release.
pub(super) fn came_again(ctx: &Context<'_>) -> bool {
    let target = ctx.status.target_revision.as_ref();
    target.is_some_and(|name| ctx.release().is_some_and(|r| !r.applied.contains(name)))
}

fn holds(refused: &RefusedContent, target: &Target, digests: &[String]) -> bool {
    let workload = target.to_ref();
    let is = |live: &RefusedTemplate| live.workload == workload && digests.contains(&live.digest);
    refused.live.iter().any(is)
}

impl Context<'_> {
    /// Whether the content of the spec was refused. The stable templates hold
    /// instead.
    pub(super) fn spec_refused(&self, plan: &Plan) -> bool {
        let refused = self.status.refused.iter();
        let mut refused = refused.filter(|r| r.spec.as_deref() == Some(plan.content()));
        refused.any(|refused| !self.is_corrected(refused, None))
    }

    /// Whether a live template of a workload was refused. What only went back
    /// beside the component that failed is refused with it: beside other content
    /// of that one it is new.
    pub(super) fn live_refused(&self, target: &Target, now: &Value) -> bool {
        if self.status.refused.is_empty() {
            return false;
        }
        let stable = self.stable().and_then(|stable| stable.data.of(target));
        // What was released beside other content since is refused no more.
        if stable.is_some_and(|stable| canon::equal(&stable.template, now)) {
            return false;
        }
        let digests = digests(now, stable);
        let mut refused = self.status.refused.iter();
        refused.any(|r| self.has(r, target, &digests) && !self.is_corrected(r, Some(target)))
    }

    /// The last content of which a live template of a workload was refused.
    pub(super) fn refused_as(&self, target: &Target, now: &Value) -> Option<&RefusedContent> {
        let stable = self.stable().and_then(|stable| stable.data.of(target));
        if stable.is_some_and(|stable| canon::equal(&stable.template, now)) {
            return None;
        }
        let digests = digests(now, stable);
        let mut refused = self.status.refused.iter().rev();
        refused.find(|refused| self.has(refused, target, &digests))
    }

    /// Whether a workload has refused content, or what the way back from it leaves
    /// between two writes.
    fn has(&self, refused: &RefusedContent, target: &Target, digests: &[String]) -> bool {
        let workload = target.to_ref();
        let mut components = self.status.components.iter();
        let component = components.find(|component| component.workload == workload);
        let again = component.and_then(|component| component.refused_again.as_ref());
        let again = again.filter(|again| again.revision == refused.revision && !again.gone);
        holds(refused, target, digests)
            || again.is_some_and(|again| again.left.iter().any(|left| digests.contains(left)))
    }

    /// Whether what failed has other content by now. Where nothing says what that
    /// was, only what somebody sets again can be new, beside other content of
    /// anything that went back with it. The part is a workload, or what the plan
    /// says.
    fn is_corrected(&self, refused: &RefusedContent, part: Option<&Target>) -> bool {
        // What an undo brings is in the place of nothing that failed.
        let undo = self.release().is_some_and(|release| release.undo.is_some());
        if undo || matches!(refused.cause, Cause::Undone | Cause::StatusLost) {
            return false;
        }
        if refused.held && part.is_none() {
            return false;
        }
        // The plan asks for something else than it did, or, where it was no part of
        // what was refused, for something new.
        let is_withdrawn = |plan: &Plan| {
            let now = Some(plan.content());
            let stable = self.stable().map(|stable| stable.data.spec.as_str());
            // Who takes what failed out of the plan has corrected it.
            let taken_out = refused.spec.is_some() && refused.component.is_some();
            refused.spec.as_deref() != now
                && (taken_out || stable != now)
                && !self.spec_refused(plan)
        };
        let says_other = || part.is_some() && self.input.plan.is_ok_and(is_withdrawn);
        let mut others = self.components().filter(|v| Some(&v.scope.target) != part);
        let Some(failed) = &refused.component else {
            let plan = refused.spec.is_some() && says_other();
            return plan || part.is_some() && others.any(|view| self.is_other(refused, view));
        };
        let failed = others.find(|view| view.scope.name == *failed);
        failed.is_some_and(|failed| {
            if refused.corrected {
                return !self.is_back(refused, failed);
            }
            let templated = failed.scope.template.is_some();
            let surroundings = templated && refused.spec.is_none();
            templated && says_other()
                || (!templated || surroundings) && self.is_other(refused, failed)
        })
    }

    /// Whether what failed is asked for again.
    fn is_back(&self, refused: &RefusedContent, view: View<'_>) -> bool {
        if let Some(spec) = refused
            .spec
            .as_deref()
            .filter(|_| view.scope.template.is_some())
        {
            return self.input.plan.is_ok_and(|plan| plan.content() == spec);
        }
        let target = &view.scope.target;
        let stable = self.stable().and_then(|stable| stable.data.of(target));
        view.observed.workload.as_ref().is_some_and(|live| {
            let now = contents::now(self, view.scope, live);
            holds(refused, target, &digests(&now, stable))
        })
    }

    /// Whether a workload runs something else than what it went back to, and that
    /// was not refused either.
    fn is_other(&self, refused: &RefusedContent, view: View<'_>) -> bool {
        let target = &view.scope.target;
        let reference = target.to_ref();
        let stable = self.stable().and_then(|stable| stable.data.of(target));
        let (Some(stable), Some(live)) = (stable, &view.observed.workload) else {
            return false;
        };
        if refused.live.iter().all(|live| live.workload != reference) {
            return false;
        }
        let now = contents::now(self, view.scope, live);
        // Defaults that an API server adds are nobody's correction.
        let today = live.stable_today.iter();
        let mut same = today.chain([&stable.template]);
        let digests = digests(&now, Some(stable));
        let mut refused = self.status.refused.iter();
        !same.any(|same| runs_as(same, &now)) && !refused.any(|r| self.has(r, target, &digests))
    }
}
