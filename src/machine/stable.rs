//! Between two releases: sees what is new, keeps the plan's fields as they
//! should be, and starts nothing without a difference in content.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{
    Action, Scope, Workload, adopt,
    again::{self, CAME_AGAIN, REFUSED_CONTENTS},
    contents,
    context::{Context, View, is_complete},
    desired::{Desired, desired},
    first, lost,
    needs::is_news,
    pinned, reassert,
    records::failed_before,
    report, settle, snapshots,
    types::TemplateWrite,
    ways,
};
use crate::{
    api::{
        Cause, ComponentState, ComponentStatus, Phase, RETRY, Reason, RefusedContent,
        RefusedTemplate, ReleaseKind, ReleasePlanStatus, ReleaseRecord, ReleaseResult,
    },
    fields::{FieldSet, canon},
    plan::{Plan, is_gone_from_plan, last_word},
    revision::Revision,
};

/// Span in which writes over somebody else's are counted.
pub(super) const CONTENTION_WINDOW: Duration = Duration::from_secs(600);
/// Writes over somebody else's in that span.
pub(super) const REASSERTIONS: usize = 3;

pub(super) fn run(ctx: &mut Context<'_>, plan: &Plan) {
    let news = ctx
        .views()
        .any(|view| is_news(view.scope, view.observed.workload.as_ref(), &ctx.status))
        || ctx.scope.len() != ctx.status.components.len();
    if let Some(text) = super::desired::missing(ctx) {
        return report::progressing(ctx, Reason::TargetsMissing, &text);
    }
    let too_large = snapshots::too_large(ctx);
    // Where the content of the plan went back, that is what has to be told first.
    if let Some(text) = too_large
        .as_ref()
        .filter(|_| held_back(ctx, plan).is_none())
    {
        return report::stalled(ctx, Reason::ConfigMapRefused, text);
    }
    if !news {
        prove(ctx);
        snapshots::renew(ctx);
        return rest(ctx, plan);
    }
    let Some(stable) = ctx.stable() else {
        let text = format!(
            "controllerrevision {} is gone or damaged, so nothing can go back to it. Restore it, labels and annotations included, or take what is live as stable: {} ; then apply the plan again",
            ctx.status
                .stable_revision
                .as_deref()
                .unwrap_or("of the stable revision"),
            ways::delete(ctx)
        );
        return report::stalled(ctx, Reason::RevisionLost, &text);
    };
    if adopt::changed_set(ctx, stable) {
        return;
    }
    if pinned::take(ctx) {
        let text = "the record of the stable revision follows the plan";
        return report::progressing(ctx, Reason::BaselineTaken, text);
    }
    let desired = match desired(ctx, plan) {
        Ok(desired) => desired,
        Err(obstacle) => {
            if let Some(text) = too_large {
                return report::stalled(ctx, Reason::ConfigMapRefused, &text);
            }
            return obstructed(ctx, obstacle.reason, &obstacle.message);
        }
    };
    // The record of what was found in a field has to stand before the field is
    // taken: a crash between the two would lose it.
    if !desired.changed() && rotate(ctx, &desired, stable) {
        let text = "the record of the stable revision follows the plan";
        return report::progressing(ctx, Reason::BaselineTaken, text);
    }
    let refused = ctx.components().find_map(|view| {
        let text = view.observed.workload.as_ref()?.refusal.as_ref()?;
        Some(format!(
            "{} refuses the template: {}. Correct the template, or change what refuses it",
            view.scope.target,
            ways::brief(text)
        ))
    });
    if let Some(text) = refused {
        return report::stalled(ctx, Reason::TemplateRefused, &text);
    }
    let reasserted = reassert::run(ctx, plan, stable, &desired);
    if let Some(obstacle) = reasserted.lost {
        return obstructed(ctx, obstacle.reason, &obstacle.message);
    }
    if let Some(mut text) = reasserted.contended {
        if desired.changed() {
            text.push_str(". New content waits until then");
        }
        return report::stalled(ctx, Reason::Contended, &text);
    }
    if reasserted.waits {
        let text = "what was refused together with other content came again, and is put back in a moment unless the other content is new by then";
        return report::progressing(ctx, Reason::Settling, text);
    }
    if reasserted.wrote {
        let text = "fields of the plan were changed by another writer and are set again";
        return report::progressing(ctx, Reason::Promoting, text);
    }
    if desired.changed() {
        if let Some(text) = too_large {
            return report::stalled(ctx, Reason::ConfigMapRefused, &text);
        }
        return begin(ctx, plan, &desired);
    }
    remember(ctx, None);
    rest(ctx, plan);
}

/// Takes the stable revision as proven once all of it was seen running.
fn prove(ctx: &mut Context<'_>) {
    let known = |c: &ComponentStatus| c.unproven;
    if ctx.status.proven_revision.is_none() && !ctx.status.components.iter().any(known) {
        return;
    }
    let running: Vec<usize> = ctx
        .components()
        .filter(|view| {
            let workload = view.observed.workload.as_ref();
            workload.is_some_and(|w| w.replicas > 0 && is_complete(w))
        })
        .map(|view| view.index)
        .collect();
    for index in running {
        if let Some(component) = ctx.component(index) {
            component.unproven = false;
        }
    }
    if ctx.status.components.iter().any(known) {
        return;
    }
    ctx.status.proven_revision = None;
    let stable = ctx.status.stable_revision.clone();
    // The record may have got another name than that of its release.
    let word = last_word(&ctx.status.history).map(|record| record.number);
    for record in &mut ctx.status.history {
        if record.revision == stable || Some(record.number) == word {
            record.unproven = false;
        }
    }
    let text = format!(
        "{} was seen running, and is what a release that fails returns to",
        stable.unwrap_or_default()
    );
    ctx.log(Reason::Released, &text);
}

/// The refused content that holds a plan where it is; `content` is what the plan
/// says now, if that is known.
#[must_use]
pub fn holding<'a>(
    scope: &[Scope],
    status: &'a ReleasePlanStatus,
    content: Option<&str>,
) -> Option<&'a RefusedContent> {
    // What was refused of followed workloads is no longer live, so only that
    // nothing has succeeded since tells that it is still the last word.
    let last = status.history.last();
    let last = last.filter(|record| record.result == ReleaseResult::RolledBack);
    let again = last.and_then(|record| record.message.as_deref());
    let again = again.is_some_and(|message| message.starts_with(CAME_AGAIN));
    let last = last.and_then(|record| record.revision.as_deref());
    // Once something else was released it still stays away, and is no last word.
    let word = last_word(&status.history);
    let is_undone = word.is_some_and(|record| record.kind == ReleaseKind::Undo);
    let is_last = |r: &&RefusedContent| {
        let followed = r.spec.is_none() || again;
        let undone = r.cause == Cause::Undone && !again;
        followed && !undone && last == Some(r.revision.as_str())
    };
    // Then what the plan asks for itself, which a person can try again.
    let same = |r: &&RefusedContent| content.is_some() && r.spec.as_deref() == content;
    let refused = || status.refused.iter().rev();
    let others = || {
        refused().find(|r| {
            // What was undone of them stays away until something else comes.
            let present = |live: &RefusedTemplate| {
                let mut present = scope.iter().filter(|scope| !scope.leaving);
                present.any(|scope| scope.target.to_ref() == live.workload)
            };
            let undone = is_undone && r.cause == Cause::Undone && r.live.iter().any(present);
            undone || (r.spec.is_none() && last == Some(r.revision.as_str()))
        })
    };
    let first = refused().find(is_last);
    first.or_else(|| refused().find(same)).or_else(others)
}

/// Whether what failed of refused content came again, or only what went back beside
/// it; none if the last record is not of that.
fn came_again(refused: &RefusedContent, last: Option<&ReleaseRecord>) -> Option<bool> {
    let last = last.filter(|last| last.revision.as_ref() == Some(&refused.revision))?;
    let message = last.message.as_deref().unwrap_or_default();
    let failed = refused.component.as_ref();
    // Contents that stood beside its template may come back beside a corrected one.
    let is_of = |change: &String| {
        let what = |failed: &String| change.strip_prefix(failed)?.strip_prefix(": ");
        let beside = |what: &str| what == REFUSED_CONTENTS || what.starts_with("configmap ");
        failed.is_none_or(|failed| what(failed).is_some_and(|what| !beside(what)))
    };
    message
        .starts_with(CAME_AGAIN)
        .then(|| last.changes.iter().any(is_of))
}

/// The refused content that holds the plan as it is now.
fn held_back(ctx: &Context<'_>, plan: &Plan) -> Option<RefusedContent> {
    let refused = holding(&ctx.scope, &ctx.status, Some(plan.content()));
    // A refusal of followed workloads is no word on content that came since.
    let refused = refused.filter(|_| !is_edited(ctx, plan) || ctx.spec_refused(plan));
    refused.cloned()
}

/// Whether the plan asks for other content than the stable revision has, where
/// that was read.
fn is_edited(ctx: &Context<'_>, plan: &Plan) -> bool {
    let stable = ctx.stable();
    stable.is_some_and(|stable| stable.data.spec != plan.content())
}

fn told(ctx: &mut Context<'_>) {
    // What came again is told by now, unless the rest of the apply begins a release.
    again::expire(ctx);
    report::judged(ctx);
}

/// The verdict on a plan of which nothing is new.
pub(super) fn rest(ctx: &mut Context<'_>, plan: &Plan) {
    // What was changed while a release was under way is judged next.
    let unseen = ctx
        .status
        .components
        .iter()
        .any(|c| c.live_digest.is_none());
    if unseen {
        ctx.wake_in(Duration::ZERO);
    }
    let revision = ctx.status.stable_revision.clone().unwrap_or_default();
    if let Some(refused) = held_back(ctx, plan) {
        // Content that was refused before a person asked for another revision.
        let undone = ctx.status.history.last().filter(|record| {
            record.kind == ReleaseKind::Undo && record.result == ReleaseResult::Succeeded
        });
        let by = undone.and_then(|record| record.requested_by.as_ref());
        let by = by.map_or_else(String::new, |by| format!(" by {by}"));
        let (what, reason) = if refused.cause == Cause::Undone {
            // The last of several undos is what is live.
            let text = format!("{revision} was asked for{by}");
            let text = undone.map_or(&refused.message, |_| &text);
            let before = failed_before(ctx, &refused.revision);
            (format!("undone: {text}. {before}"), Reason::Undone)
        } else if undone.is_some() && refused.cause == Cause::StatusLost {
            let (tried, why) = (&refused.revision, &refused.message);
            let why = why.strip_prefix("it ").unwrap_or(why);
            let text = format!("undone: {revision} was asked for{by}. {tried} {why}. ");
            (text, Reason::Undone)
        } else if undone.is_some() {
            let why = ways::brief(&refused.told());
            let text = format!(
                "undone: {revision} was asked for{by}. {} was rolled back before: {why}. ",
                refused.revision
            );
            (text, Reason::Undone)
        } else if refused.cause == Cause::StatusLost {
            (format!("{}. ", refused.message), Reason::RolledBack)
        } else {
            let why = ways::brief(&refused.told());
            let last = ctx.status.history.last();
            let what = if came_again(&refused, last).is_some() {
                let name = &refused.revision;
                format!(
                    "rolled back: what came again of {name} was put back. It failed before: {why}. "
                )
            } else if first::was(ctx, &refused) {
                format!("the first release failed: {why}. ")
            } else {
                format!("rolled back: {why}. ")
            };
            (what, Reason::RolledBack)
        };
        let again = &refused.revision;
        let caveats = snapshots::caveats(ctx) + &lost::caveat(ctx, plan);
        let retry = if is_gone_from_plan(&ctx.status, plan.content(), again) {
            String::new()
        } else if refused.corrected
            && came_again(&refused, ctx.status.history.last()) == Some(false)
        {
            // With what failed it would be tried as it was.
            ", or apply what went back once more: beside the correction it is new".to_owned()
        } else {
            let retry = ways::order(ctx, &[(RETRY, again)]);
            format!(", or try the same again: {retry}")
        };
        let text = format!(
            "{what}{revision} is live, and {again} is not released again by itself. {}{retry}{}{caveats}",
            ways::change_of(ctx, refused.component.as_deref()),
            if caveats.is_empty() || retry.is_empty() {
                ""
            } else {
                " "
            },
        );
        told(ctx);
        return report::stalled(ctx, reason, &text);
    }
    if is_edited(ctx, plan) || unseen {
        ctx.wake_in(Duration::ZERO);
        let text = "content changed while a release was under way and is looked at now";
        return report::progressing(ctx, Reason::Settling, text);
    }
    told(ctx);
    if let Some(text) = snapshots::too_large(ctx) {
        return report::stalled(ctx, Reason::ConfigMapRefused, &text);
    }
    let caveats = snapshots::caveats(ctx) + &lost::caveat(ctx, plan);
    report::ready(ctx, &format!("{revision} is released and healthy{caveats}"));
}

/// Something stands in the way of knowing what is wanted. Nothing has been
/// touched.
pub(super) fn obstructed(ctx: &mut Context<'_>, reason: Reason, text: &str) {
    match reason {
        Reason::TargetsMissing | Reason::BaselineUnavailable => {
            report::progressing(ctx, reason, text);
        }
        _ => {
            report::judged(ctx);
            report::stalled(ctx, reason, text);
        }
    }
}

fn begin(ctx: &mut Context<'_>, plan: &Plan, desired: &Desired) {
    if plan.paused() && !desired.has_begun() {
        let text = format!(
            "new content waits: the plan is paused (spec.paused). To go on: {}",
            ways::resume(ctx)
        );
        return report::progressing(ctx, Reason::Paused, &text);
    }
    settle::begin(ctx, desired);
}

/// Whether Belay owns more of a workload than these fields.
pub(super) fn strays(workload: &Workload, fields: &FieldSet) -> bool {
    workload.stray || !workload.owned.is_subset(fields)
}

/// Replaces the record of the stable revision by one that freezes the same
/// templates with what is owned now: a component was renamed, or fields came to
/// be owned. True if there was something to replace.
fn rotate(ctx: &mut Context<'_>, desired: &Desired, stable: &Revision) -> bool {
    let facts = &ctx.input.world.plan;
    let data = desired.data();
    if data.clone().named(&facts.name, &facts.uid).name == stable.name {
        return false;
    }
    for action in desired.keep.clone() {
        ctx.act_once(action);
    }
    // Releases that ended keep the names that they had.
    let _ = adopt::set_stable(ctx, data);
    true
}

/// Takes what is there as judged: the fingerprint of an idle plan. After a
/// release only the templates of its revision were judged; whatever else is
/// live is news. So is what the plan says by now, unless it is refused.
pub(super) fn remember(ctx: &mut Context<'_>, released: Option<&Revision>) {
    let of = |view: &View<'_>| released.map(|revision| revision.data.of(&view.scope.target));
    let is_judged = |view: &View<'_>, workload: &Workload| {
        of(view).is_none_or(|frozen| {
            frozen.is_some_and(|f| {
                // What it keeps in vain is dropped when it is looked at next.
                canon::equal(&f.template, &workload.template) && !pinned::keeps_stale(*view, f)
            })
        })
    };
    let refused = ctx.input.plan.is_ok_and(|plan| ctx.spec_refused(plan));
    let partial = |view: &View<'_>| match of(view) {
        Some(_) if refused => view.scope.template_digest.clone(),
        Some(frozen) => frozen.and_then(|frozen| frozen.partial_digest.clone()),
        None => view.scope.template_digest.clone(),
    };
    let contents_of = |view: &View<'_>| match of(view) {
        Some(frozen) => frozen
            .filter(|frozen| frozen.partial_digest.is_none())
            .and_then(|frozen| contents::digest(&frozen.config_maps)),
        None => view.scope.config_digest(),
    };
    type Seen = (
        usize,
        [Option<String>; 2],
        String,
        Option<String>,
        ComponentStatus,
    );
    let seen: Vec<Seen> = ctx
        .components()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            Some((
                view.index,
                [partial(&view), contents_of(&view)],
                workload.uid.clone(),
                is_judged(&view, workload).then(|| canon::digest(&workload.template)),
                numbers(workload),
            ))
        })
        .collect();
    let is_stable = ctx.status.stable_revision.is_some();
    for (index, [partial, contents], uid, live, numbers) in seen {
        let Some(component) = ctx.component(index) else {
            continue;
        };
        component.partial_digest = partial;
        component.config_digest = contents;
        component.uid = Some(uid);
        component.live_digest = live;
        component.replicas = numbers.replicas;
        component.updated_replicas = None;
        component.available_replicas = None;
        component.state = Some(ComponentState::Stable);
        component.message = None;
        component.best_ready = None;
        component.progress_at = None;
        if is_stable {
            // What is stable is what is returned to from then on.
            component.failed_first = None;
        }
    }
    ctx.status.phase = Some(Phase::Stable);
    ctx.status.step = None;
}

/// The numbers of pods that people see.
pub(super) fn numbers(workload: &Workload) -> ComponentStatus {
    ComponentStatus {
        replicas: Some(workload.replicas),
        updated_replicas: Some(workload.updated),
        available_replicas: Some(workload.available),
        ..ComponentStatus::default()
    }
}

/// Whether one more write over somebody else's is allowed.
pub(super) fn can_write(ctx: &mut Context<'_>, index: usize, limit: usize) -> bool {
    let Ok(window) = k8s_openapi::jiff::SignedDuration::try_from(CONTENTION_WINDOW) else {
        return false;
    };
    let oldest = ctx.now().checked_sub(window).unwrap_or(Timestamp::MIN);
    let Some(component) = ctx.component(index) else {
        return false;
    };
    component.written_at.retain(|at| at.0 > oldest);
    component.written_at.len() < limit
}

/// The same; counts it if so.
pub(super) fn may_write(ctx: &mut Context<'_>, index: usize, limit: usize) -> bool {
    let now = ctx.micros();
    let can = can_write(ctx, index, limit);
    if let Some(component) = ctx.component(index).filter(|_| can) {
        component.written_at.push(now);
    }
    can
}

pub(super) fn write(
    view: View<'_>,
    workload: &Workload,
    template: serde_json::Value,
) -> TemplateWrite {
    TemplateWrite {
        target: view.scope.target.clone(),
        uid: workload.uid.clone(),
        resource_version: workload.resource_version.clone(),
        template,
        seen: canon::digest(&workload.template),
        // Filled in where all revisions are known; see `Context::finish`.
        config_maps: BTreeSet::new(),
    }
}

pub(super) fn own(view: View<'_>, workload: &Workload, fields: FieldSet) -> Action {
    Action::Own {
        target: view.scope.target.clone(),
        uid: workload.uid.clone(),
        fields,
    }
}
