//! First releases that failed: there was nothing to return to, so what is live
//! stays until somebody repairs it or changes the content.
//!
//! Decides what is said of them and what becomes of the content. What may be
//! returned to from then on is decided in [`super::adopt`].

use std::time::Duration;

use serde_json::Value;

use super::{
    Workload,
    adopt::availability,
    context::{Context, View, is_complete},
    records::{prune, record},
    report, restore, stable, ways,
};
use crate::{
    api::{FailedFirst, Failure, Phase, RETRY, Reason, RefusedContent, ReleaseKind, ReleaseResult},
    fields::canon,
    plan::Plan,
};

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
    leave(ctx);
    ctx.status.phase = Some(Phase::Failed);
    let newer = |plan| tried && !ctx.spec_refused(plan);
    if ctx.input.plan.is_ok_and(newer) {
        // What was edited while the release was held was not tried yet.
        ctx.wake_in(std::time::Duration::ZERO);
    } else {
        report::judged(ctx);
    }
    let text = verdict(ctx, None);
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
    let untouched = !ctx.components().any(|view| is_touched(ctx, view));
    let nameless = ctx.status.phase == Some(Phase::Failed) && !is_known && untouched;
    nameless || ctx.spec_refused(plan)
}

/// Notes with what each workload is left.
fn leave(ctx: &mut Context<'_>) {
    let left: Vec<(usize, String)> = ctx
        .components()
        .filter_map(|view| Some((view.index, pod_spec(view.observed.workload.as_ref()?))))
        .collect();
    for (index, spec_digest) in left {
        if let Some(component) = ctx.component(index) {
            component.failed_first = Some(FailedFirst {
                spec_digest,
                repair_digest: None,
                repaired_at: None,
            });
        }
    }
}

/// Digest of what the pods of a workload run, whatever marks them.
fn pod_spec(live: &Workload) -> String {
    canon::digest(live.template.get("spec").unwrap_or(&Value::Null))
}

/// Whether a workload was changed since the release failed.
fn is_touched(ctx: &Context<'_>, view: View<'_>) -> bool {
    let reference = view.scope.target.to_ref();
    let mut known = ctx.status.components.iter();
    let known = known.find(|known| known.workload == reference);
    known
        .zip(view.observed.workload.as_ref())
        .is_some_and(|(known, live)| {
            known.uid.as_deref() != Some(live.uid.as_str())
                || known.config_digest != view.scope.config_digest()
                || known.live_digest.as_deref() != Some(canon::digest(&live.template).as_str())
        })
}

/// What somebody made of a workload since the release failed.
struct Repair {
    /// Digest of its template.
    digest: String,
    /// Why it is not available, in words.
    waits: Option<String>,
}

/// What somebody made of workloads since the release failed and that is not
/// available: in words, and how long that may still take. Notes what was looked at.
fn repairs(ctx: &mut Context<'_>, plan: &Plan) -> Option<(String, Duration)> {
    let now = ctx.micros();
    let mut left = None;
    let mut texts = Vec::new();
    let all: Vec<(usize, Option<Repair>)> = ctx
        .components()
        .map(|view| {
            let live = view.observed.workload.as_ref();
            let live = live.filter(|_| is_touched(ctx, view));
            let repair = live.map(|live| Repair {
                digest: canon::digest(&live.template),
                waits: (!is_complete(live)).then(|| availability(view, live)),
            });
            (view.index, repair)
        })
        .collect();
    for (index, repair) in all {
        let Some(component) = ctx.component(index) else {
            continue;
        };
        // Of one that was missing then nothing is known, but that it can be repaired.
        let failed = component.failed_first.get_or_insert_with(|| FailedFirst {
            spec_digest: String::new(),
            repair_digest: None,
            repaired_at: None,
        });
        let Some(Repair { digest, waits }) = repair else {
            (failed.repair_digest, failed.repaired_at) = (None, None);
            continue;
        };
        if failed.repair_digest.as_ref() != Some(&digest) {
            failed.repair_digest = Some(digest);
            failed.repaired_at = Some(now.clone());
        }
        let since = failed.repaired_at.clone().unwrap_or_else(|| now.clone());
        if let Some(text) = waits {
            let rest = plan.progress_deadline().saturating_sub(ctx.since(&since));
            left = left.max(Some(rest));
            texts.push(text);
        }
    }
    left.map(|left| (texts.join("; "), left))
}

/// Says again what came of the content of the plan.
pub(super) fn hold(ctx: &mut Context<'_>, plan: &Plan) {
    ctx.status.phase = Some(Phase::Failed);
    if ctx.spec_refused(plan) {
        report::judged(ctx);
    }
    let repairs = repairs(ctx, plan);
    let repair = repairs.as_ref().map(|(text, _)| text.as_str());
    let text = verdict(ctx, repair);
    match repairs {
        Some((_, left)) if left > Duration::ZERO => {
            ctx.wake_in(left);
            report::progressing(ctx, Reason::BaselineUnavailable, &text);
        }
        _ => report::stalled(ctx, Reason::ReleaseFailed, &text),
    }
}

/// What is said of a first release that failed, and of what somebody made of it
/// since.
fn verdict(ctx: &Context<'_>, repair: Option<&str>) -> String {
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
    let stays = repair.map_or_else(
        || "so the new templates stay as they are".to_owned(),
        |repair| format!("and what somebody made of it since is not available yet ({}). Once it is, it becomes what is returned to", ways::brief(repair)),
    );
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
    let then = then.and_then(|component| component.failed_first.as_ref());
    let live = view.observed.workload.as_ref();
    then.zip(live).is_some_and(|(then, live)| {
        !then.spec_digest.is_empty() && then.spec_digest != pod_spec(live)
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
