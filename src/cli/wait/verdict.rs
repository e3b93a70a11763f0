//! What became of the release that somebody asked for, told from the plan.
//!
//! Pure, and the one place that decides it. A result is never told before it
//! belongs to what was asked for: the plan must have been looked at since its
//! last change, its content judged up to the release generation asked for, and
//! every order on it carried out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::{
    api::{
        ABORT, ConditionType, RELEASE_GENERATION, RETRY, Reason, ReleaseKind, ReleasePlanStatus,
        ReleaseRecord, ReleaseResult, StoredPlan, UNDO,
    },
    plan::current,
};

/// The reason while the operator has not looked at what was changed.
pub(super) const UNSEEN: &str = "Unseen";
/// The same in words.
pub(super) const NOT_YET: &str = "the operator has not looked at it yet";

/// How what was asked for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    /// It is released and healthy.
    Released,
    /// Everything is back on the stable revision.
    RolledBack,
    /// An earlier revision is live, as a person asked.
    Undone,
    /// It failed, and what is live stays.
    Failed,
    /// It cannot be released as it is.
    Refused,
    /// Newer content took its place.
    Superseded,
    /// It does not go on until a person decides.
    Held,
    /// An order on the plan was dropped, since it means nothing any more.
    Ignored,
    /// The plan is gone.
    Deleted,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// How it ended; none while it goes on.
    pub(super) outcome: Option<Outcome>,
    /// The plan's reason.
    pub(super) reason: String,
    /// The plan's message.
    pub(super) message: String,
    /// How far it is.
    pub(super) step: Option<String>,
    /// The revision that it is about.
    pub(super) revision: Option<String>,
    /// The revision that a rollback returns to.
    pub(super) stable: Option<String>,
}

/// The release generation that the plan stands at.
#[must_use]
pub(super) fn generation(plan: &StoredPlan) -> Option<i64> {
    plan.annotation(RELEASE_GENERATION)?.parse().ok()
}

/// What became of release generation `asked`; without one, of whatever the plan
/// says now.
#[must_use]
pub(super) fn judge(plan: &StoredPlan, asked: Option<i64>) -> State {
    let empty = ReleasePlanStatus::default();
    let status = plan.status.as_ref().unwrap_or(&empty);
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    let state = |outcome, reason: &str, message: &str| State {
        outcome,
        reason: reason.to_owned(),
        message: message.to_owned(),
        step: status.step.clone(),
        revision: about(status, ready.map(|ready| ready.reason.as_str())),
        stable: status.stable_revision.clone(),
    };
    if plan.is_deleting() {
        return state(None, Reason::Deleting.as_str(), "the plan is being deleted");
    }
    let Some(ready) = ready else {
        return state(None, UNSEEN, NOT_YET);
    };
    let judged = asked.is_none_or(|asked| status.observed_release_generation >= Some(asked));
    let newer = asked.is_some_and(|asked| generation(plan) > Some(asked));
    if newer {
        // What the plan says may still be about what was asked for.
        let of_asked = judged && status.observed_release_generation == asked;
        let outcome = of_asked.then(|| outcome(ready, judged)).flatten();
        let text = "newer content took the place of what was asked for";
        return match outcome {
            Some(outcome) => state(Some(outcome), &ready.reason, &ready.message),
            None => state(Some(Outcome::Superseded), Reason::Superseded.as_str(), text),
        };
    }
    if status.observed_generation < plan.metadata.generation {
        return state(None, UNSEEN, NOT_YET);
    }
    if let Some((order, revision)) = order(plan) {
        let text = format!("{order} names {revision} and is not carried out yet");
        return state(None, &ready.reason, &text);
    }
    state(outcome(ready, judged), &ready.reason, &ready.message)
}

/// The same for whoever named Deployments and not the plan: what was applied to
/// them and released since is done, also while content of the plan stays refused.
/// Where the plan writes into one of them (`templated`) only a release of what
/// surrounds its fields is certain to be theirs.
#[must_use]
pub(super) fn of_deployments(state: State, plan: &StoredPlan, templated: bool) -> State {
    if !matches!(state.outcome, Some(Outcome::RolledBack | Outcome::Undone)) {
        return state;
    }
    let status = plan.status.iter();
    let last = status.clone().find_map(|status| status.history.last());
    let idle = status.clone().all(|status| status.release.is_none());
    let is_theirs = |record: &&ReleaseRecord| {
        record.result == ReleaseResult::Succeeded
            && match record.kind {
                ReleaseKind::Surroundings => true,
                ReleaseKind::Content | ReleaseKind::First => !templated,
                ReleaseKind::Undo => false,
            }
    };
    let Some(record) = last.filter(|_| idle).filter(is_theirs) else {
        return state;
    };
    let revision = record.revision.clone().or_else(|| state.stable.clone());
    let name = revision.as_deref().unwrap_or_default();
    State {
        outcome: Some(Outcome::Released),
        reason: Reason::Released.as_str().to_owned(),
        message: format!(
            "release {} of {name} is done and healthy; content of the plan stays refused: {}",
            record.number, state.message
        ),
        revision,
        ..state
    }
}

/// The order on a plan that is still to be carried out.
fn order(plan: &StoredPlan) -> Option<(&'static str, &str)> {
    [ABORT, UNDO, RETRY]
        .into_iter()
        .find_map(|name| Some((name, plan.annotation(name)?)))
}

/// What the plan's word means for whoever waits. `judged`: whether it is about
/// the content that was asked for.
fn outcome(ready: &Condition, judged: bool) -> Option<Outcome> {
    let reason: Result<Reason, _> = serde_json::from_value(ready.reason.clone().into());
    if ready.status == "True" {
        return judged.then_some(Outcome::Released);
    }
    match reason.ok()? {
        Reason::RolledBack => judged.then_some(Outcome::RolledBack),
        Reason::Undone => judged.then_some(Outcome::Undone),
        Reason::ReleaseFailed | Reason::RollbackAborted => judged.then_some(Outcome::Failed),
        Reason::TemplateMismatch
        | Reason::TemplateRefused
        | Reason::ConfigMapRefused
        | Reason::InvalidPlan
        | Reason::NotAvailableYet => Some(Outcome::Refused),
        Reason::Frozen
        | Reason::Paused
        | Reason::WorkloadPaused
        | Reason::Conflict
        | Reason::Contended
        | Reason::RollbackStalled
        | Reason::RevisionLost
        | Reason::SnapshotLost
        | Reason::ConfigMapEdited
        | Reason::StatusLost => Some(Outcome::Held),
        // Work, or what the operator waits for or tries again by itself.
        Reason::Released
        | Reason::TargetsMissing
        | Reason::BaselineUnavailable
        | Reason::BaselineTaken
        | Reason::Settling
        | Reason::ReleaseStarted
        | Reason::Promoting
        | Reason::Baking
        | Reason::Superseded
        | Reason::Reverted
        | Reason::RollbackStarted
        | Reason::RollingBack
        | Reason::Reasserted
        | Reason::RetryRequested
        | Reason::RetryIgnored
        | Reason::AbortIgnored
        | Reason::UndoRequested
        | Reason::UndoIgnored
        | Reason::StatusRebuilt
        | Reason::ReconcileError
        | Reason::Deleting
        | Reason::ConfigMapMissing
        | Reason::DeletionFinished => None,
    }
}

/// The revision that a plan's word is about: what is being released, what was
/// refused last, or what is stable.
fn about(status: &ReleasePlanStatus, ready: Option<&str>) -> Option<String> {
    let refused = status.refused.last().map(|refused| &refused.revision);
    let refused = refused.filter(|_| ready == Some(Reason::RolledBack.as_str()));
    let released = current(status).map(str::to_owned);
    released
        .or_else(|| refused.cloned())
        .or_else(|| status.stable_revision.clone())
}
