//! From a plan to why it is where it is. Pure: what the operator recorded is
//! put together, what holds is found as the operator finds it, and nothing is
//! judged anew.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

use super::model::{Content, Limit, Measure, PlanExplanation, Refused, Waiting};
use crate::{
    api::{
        ABORT, Cause, ConditionType, GatewayDuration, OnFailure, RETRY, RefusedContent,
        ReleasePlanStatus, Stage, StoredPlan, UNDO,
    },
    cli::{
        meanwhile::waits,
        status::{
            PlanStatus,
            held::{comes_again, held},
            later::passed_by,
            undone::failed_before,
        },
    },
    plan::{Plan, abortable, as_seen, current, is_gone_from_plan, retryable, unbegun, undoable},
};

/// Why a plan is where it is.
pub(super) fn explain(stored: &StoredPlan, shown: PlanStatus) -> PlanExplanation {
    let status = stored.status.clone().unwrap_or_default();
    let parsed = as_seen(stored);
    let plan = parsed.as_ref().ok();
    PlanExplanation {
        content: content(stored, plan, &status),
        limits: plan.map(limits).unwrap_or_default(),
        measures: measures(plan, &status),
        decisions: status.decisions.clone(),
        refused: refused(plan, &status),
        orders: orders(stored, plan, &status),
        status: shown,
    }
}

fn content(stored: &StoredPlan, plan: Option<&Plan>, status: &ReleasePlanStatus) -> Content {
    let Some(plan) = plan else {
        return Content {
            digest: None,
            text: "not valid, so nothing of it is released".to_owned(),
        };
    };
    let digest = plan.content();
    let release = status.release.as_ref();
    // Of the spec alone: the contents of its ConfigMaps are as the status saw
    // them in any case.
    let seen = status.observed_content.as_deref() == Some(plan.spec_digest());
    let text = if let Some((refused, own)) = held(Some(plan), status) {
        let what = if own {
            ""
        } else {
            ", with what was done to its workloads"
        };
        let revision = &refused.revision;
        format!("held since it failed, was aborted or undone, as {revision}{what}")
    } else if let Some(stage) = release.and_then(|release| passed_by(stored, release)) {
        let text = match stage {
            _ if status.observed_generation < stored.metadata.generation => "not looked at yet",
            Stage::Restore => "newer than what is under way, and waits for its end",
            _ => "newer than what is under way, and waits",
        };
        text.to_owned()
    } else if let Some(release) = release {
        match (release.stage, current(status)) {
            (Stage::Settle, _) | (_, None) => "being prepared for release".to_owned(),
            (Stage::Restore, Some(name)) => format!("on its way back from {name}"),
            (Stage::Stopped, Some(name)) => format!("stopped in the release of {name}"),
            (Stage::Promote | Stage::Bake, Some(name)) => format!("being released as {name}"),
        }
    } else if let Some(again) = again(plan, status).next() {
        let revision = &again.revision;
        format!(
            "about to be released again: other content of what failed in {revision} was released since"
        )
    } else if seen {
        let stable = status.stable_revision.as_deref().unwrap_or("(none)");
        format!("judged; the stable revision is {stable}")
    } else {
        "not judged yet".to_owned()
    };
    Content {
        digest: Some(digest.to_owned()),
        text,
    }
}

/// What was refused of the content that the plan has now, and is not held any more.
fn again<'a>(
    plan: &'a Plan,
    status: &'a ReleasePlanStatus,
) -> impl Iterator<Item = &'a RefusedContent> {
    let own = |r: &&RefusedContent| r.spec.as_deref() == Some(plan.content());
    let refused = status.refused.iter().rev().filter(own);
    refused.filter(|r| comes_again(Some(plan), status, r))
}

fn limits(plan: &Plan) -> Vec<Limit> {
    let failed = match plan.on_failure() {
        OnFailure::Rollback => "all goes back",
        OnFailure::Freeze => "everything stops where it is",
    };
    let duration = |time| GatewayDuration::from(time).to_string();
    let mut limits = vec![
        Limit {
            field: "spec.failFast.restarts",
            value: plan.restarts().to_string(),
            effect: format!("restarts of one container of a new pod, then {failed}"),
        },
        Limit {
            field: "spec.progressDeadline",
            value: duration(plan.progress_deadline()),
            effect: format!("without one more available pod, then {failed}"),
        },
        Limit {
            field: "spec.bakeTime",
            value: duration(plan.bake_time()),
            effect: "judged after all are available, then stable".to_owned(),
        },
    ];
    if plan.paused() {
        limits.push(Limit {
            field: "spec.paused",
            value: "true".to_owned(),
            effect: "nothing moves forward".to_owned(),
        });
    }
    limits
}

fn measures(plan: Option<&Plan>, status: &ReleasePlanStatus) -> Vec<Measure> {
    let Some(release) = &status.release else {
        return Vec::new();
    };
    let judged = !matches!(release.stage, Stage::Settle | Stage::Stopped);
    let runs = release.held_since.is_none() && judged;
    let deadline = plan.map(Plan::progress_deadline);
    let deadline = deadline.and_then(|time| SignedDuration::try_from(time).ok());
    let stuck = |since: Timestamp| since.checked_add(deadline?).ok().map(Time);
    let moving = status.components.iter().filter_map(|component| {
        let since = component.progress_at.as_ref()?.0;
        Some(Measure {
            component: component.name.clone(),
            best_available: component.best_ready.unwrap_or_default(),
            wanted: component.replicas.unwrap_or_default(),
            progress_at: Time(since),
            stuck_at: stuck(since).filter(|_| runs),
        })
    });
    moving.collect()
}

fn refused(plan: Option<&Plan>, status: &ReleasePlanStatus) -> Vec<Refused> {
    let last = held(plan, status).map(|(last, _)| last);
    let again: Vec<&RefusedContent> = plan.iter().flat_map(|plan| again(plan, status)).collect();
    let all = status.refused.iter().rev();
    all.map(|refused| Refused {
        revision: refused.revision.clone(),
        cause: refused.cause,
        component: refused.component.clone(),
        message: refused.message.clone(),
        at: refused.at.clone(),
        current: last.is_some_and(|last| last.revision == refused.revision),
        corrected: refused.corrected,
        comes_again: again.contains(&refused),
        failed_before: Some(&refused.revision)
            .filter(|_| refused.cause == Cause::Undone)
            .and_then(|revision| failed_before(status, revision)),
    })
    .collect()
}

fn orders(stored: &StoredPlan, plan: Option<&Plan>, status: &ReleasePlanStatus) -> Vec<Waiting> {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    let ready = ready.map(|ready| ready.message.as_str());
    let given = [ABORT, UNDO, RETRY].into_iter().filter_map(|name| {
        let revision = stored.annotation(name)?;
        Some(Waiting {
            annotation: name.to_owned(),
            revision: revision.to_owned(),
            // Only what it says nothing of is left to guess.
            text: ready
                .and_then(|ready| waits(ready, name, revision))
                .map_or_else(|| order(name, revision, plan, status), str::to_owned),
        })
    });
    given.collect()
}

/// What becomes of an order that can be carried out.
const NEXT: &str = "is carried out in the operator's next look";
/// What becomes of one that cannot.
const NOTHING: &str = "names nothing that it could mean, so it will be dropped with an event";

/// What an order waits for, as far as the status tells.
fn order(name: &str, revision: &str, plan: Option<&Plan>, status: &ReleasePlanStatus) -> String {
    let handled = status.handled.as_ref();
    if handled.is_some_and(|h| h.annotation == name && h.value == revision) {
        return "carried out; the annotation is about to be removed".to_owned();
    }
    let Some(plan) = plan.filter(|_| name != ABORT) else {
        return match name {
            ABORT if abortable(status) == Some(revision) => NEXT.to_owned(),
            ABORT => NOTHING.to_owned(),
            _ => "waits until the plan is valid".to_owned(),
        };
    };
    let stage = status.release.as_ref().map(|release| release.stage);
    // An undo that has not begun gives way to another order.
    let gives_way = unbegun(status).is_some_and(|before| name != UNDO || before != revision);
    let moving = stage.is_some_and(|stage| stage != Stage::Stopped) && !gives_way;
    // During a release the stable revision is where an abort leads, too.
    let back = name == UNDO
        && status.stable_revision.as_deref() == Some(revision)
        && (gives_way || matches!(stage, Some(Stage::Promote | Stage::Bake | Stage::Stopped)));
    if moving && !back {
        return "waits until the release or rollback in progress has ended".to_owned();
    }
    let is_gone =
        || stage != Some(Stage::Stopped) && is_gone_from_plan(status, plan.content(), revision);
    let text = match name {
        UNDO if back || undoable(status).contains(&revision) => NEXT,
        RETRY if retryable(status).contains(&revision) && is_gone() => {
            "its content is no longer what the plan asks for, so it will be dropped with an event"
        }
        RETRY if retryable(status).contains(&revision) => NEXT,
        _ => NOTHING,
    };
    text.to_owned()
}
