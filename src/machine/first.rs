//! First releases that failed: there was nothing to return to, so what is live
//! stays until somebody repairs it or changes the content.
//!
//! Decides what is said of them and what becomes of the content. What may be
//! returned to from then on is decided in [`super::adopt`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    contents,
    context::{Context, View, is_complete},
    needs::is_news,
    records::{prune, record},
    report, restore, stable, ways,
};
use crate::{
    api::{
        ConditionType, Failure, Phase, RETRY, Reason, RefusedContent, ReleaseKind,
        ReleasePlanStatus, ReleaseResult,
    },
    fields::canon,
    plan::Plan,
};

/// Stands in the message of one that failed where somebody changed the workload
/// since.
const TOUCHED: &str = "what somebody made of it since";

/// Whether the plan says of a workload that was changed after its first release
/// failed that it was looked at: no digest of it is kept, for it is judged by
/// nothing but whether it gets available.
#[must_use]
pub fn is_touched_after_failure(status: &ReleasePlanStatus) -> bool {
    let told = |condition: &Condition| {
        condition.type_ == ConditionType::Ready.as_str() && condition.message.contains(TOUCHED)
    };
    status.phase == Some(Phase::Failed)
        && status.release.is_none()
        && status.conditions.iter().any(told)
}

/// Ends a release that has nothing to return to, where it is.
pub(super) fn fail(ctx: &mut Context<'_>, failure: Failure) {
    ctx.discard_writes();
    record(ctx, ReleaseResult::Failed, Some(restore::reason(&failure)));
    let tried = ctx.target().is_some();
    refuse(ctx, failure);
    ctx.status.target_revision = None;
    ctx.status.release = None;
    if let Ok(plan) = ctx.input.plan {
        prune(ctx, plan.history_limit());
    }
    stable::remember(ctx, None);
    ctx.status.phase = Some(Phase::Failed);
    let newer = |plan| tried && !ctx.spec_refused(plan);
    if ctx.input.plan.is_ok_and(newer) {
        // What was edited while the release was held was not tried yet.
        ctx.wake_in(std::time::Duration::ZERO);
    } else {
        report::judged(ctx);
    }
    let text = verdict(ctx);
    report::stalled(ctx, Reason::ReleaseFailed, &text);
}

/// Enters what failed among the refused contents. Followed workloads got nothing
/// by it, so their templates are not refused.
fn refuse(ctx: &mut Context<'_>, failure: Failure) {
    let Some(target) = ctx.target() else { return };
    let at = ctx.time();
    let refused = &mut ctx.status.refused;
    refused.retain(|refused| refused.revision != target.name);
    refused.push(RefusedContent {
        revision: target.name.clone(),
        spec: Some(target.data.spec.clone()),
        live: Vec::new(),
        cause: failure.cause,
        component: failure.component,
        corrected: false,
        held: false,
        message: super::context::cut(&failure.message),
        at,
    });
}

/// Whether nothing may be released as the first content: what the plan asks for
/// failed, and nothing else is healthy either.
pub(super) fn is_held(ctx: &Context<'_>, plan: &Plan) -> bool {
    let healthy = ctx
        .components()
        .all(|c| c.observed.workload.as_ref().is_some_and(is_complete));
    if healthy {
        return false;
    }
    let last = ctx.status.history.last();
    let last = last.and_then(|record| record.revision.as_ref());
    let is_known = ctx.status.refused.iter().any(|r| Some(&r.revision) == last);
    // What failed before it got a name is known by what it left alone.
    let nameless = ctx.status.phase == Some(Phase::Failed) && !is_known && !is_touched(ctx);
    nameless || ctx.spec_refused(plan)
}

/// Whether anything was changed since the release failed.
fn is_touched(ctx: &Context<'_>) -> bool {
    ctx.components()
        .any(|view| is_news(view.scope, view.observed.workload.as_ref(), &ctx.status))
}

/// Says again what came of the content of the plan.
pub(super) fn hold(ctx: &mut Context<'_>, plan: &Plan) {
    ctx.status.phase = Some(Phase::Failed);
    if ctx.spec_refused(plan) {
        report::judged(ctx);
    }
    let text = verdict(ctx);
    report::stalled(ctx, Reason::ReleaseFailed, &text);
}

/// What is said of a first release that failed.
fn verdict(ctx: &Context<'_>) -> String {
    let content = ctx.input.plan.map(Plan::content).ok();
    let mut refused = ctx.status.refused.iter().rev();
    let refused = refused.find(|r| content.is_some() && r.spec.as_deref() == content);
    let last = ctx.status.history.last();
    let why = refused.map(|refused| ways::brief(&refused.told()));
    let why = why.or_else(|| last?.message.clone());
    let again = refused.map(|refused| refused.revision.as_str());
    let again = again.or_else(|| last?.revision.as_deref());
    let again = again.map(|name| {
        let again = ways::order(ctx, &[(RETRY, name)]);
        format!(", or try the same again: {again}")
    });
    let stays = if is_touched(ctx) {
        format!("and {TOUCHED} is not available. Once it is, it becomes what is returned to")
    } else {
        "so the new templates stay as they are".to_owned()
    };
    format!(
        "{}. There was no healthy revision to return to, {stays}. {}{}",
        ways::brief(why.as_deref().unwrap_or("a release failed")),
        ways::change(ctx),
        again.unwrap_or_default()
    )
}

/// What becomes of refused content now that something is stable, which has the
/// content of `spec`: what is live and healthy is refused no more, nor is what
/// stands beside a followed workload that failed and was given something else.
pub(super) fn taken(ctx: &mut Context<'_>, spec: &str) {
    let corrected: Vec<String> = ctx
        .components()
        .filter(|view| view.scope.template.is_none() && is_other(ctx, *view))
        .map(|view| view.scope.name.clone())
        .collect();
    // Nor may what the plan says take the place of a repair of its own workload.
    let repaired = ctx
        .components()
        .any(|view| view.scope.template.is_some() && is_other(ctx, view));
    ctx.status.refused.retain(|refused| {
        let failed = refused.component.as_ref();
        refused.spec.as_deref() != Some(spec)
            && (repaired || !failed.is_some_and(|failed| corrected.contains(failed)))
    });
}

/// Whether a workload runs something else than when the release failed.
fn is_other(ctx: &Context<'_>, view: View<'_>) -> bool {
    let reference = view.scope.target.to_ref();
    let mut components = ctx.status.components.iter();
    let then = components.find(|c| c.workload == reference);
    let then = then.and_then(|component| component.live_digest.as_deref());
    view.observed.workload.as_ref().is_some_and(|live| {
        let plain = contents::unrestarted(&live.template);
        let now = [canon::digest(&live.template), canon::digest(&plain)];
        then.is_some_and(|then| now.iter().all(|now| now != then))
    })
}

/// Whether content failed as the first, so that nothing went back for it.
pub(super) fn was(ctx: &Context<'_>, refused: &RefusedContent) -> bool {
    let mut records = ctx.status.history.iter().rev();
    let record = records.find(|r| r.revision.as_ref() == Some(&refused.revision));
    record.is_some_and(|record| {
        record.kind == ReleaseKind::First && record.result == ReleaseResult::Failed
    })
}
