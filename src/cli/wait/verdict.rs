//! What became of the release that somebody asked for, told from the plan.
//!
//! Pure, and the one place that decides it. A result is never told before it
//! belongs to what was asked for: the plan must have been looked at since its
//! last change, its content judged up to the release generation asked for, and
//! every order on it carried out.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use serde::Serialize;

use crate::{
    api::{
        ABORT, ConditionType, ORDERED_BY, RELEASE_GENERATION, RETRY, Reason, ReleaseKind,
        ReleasePlanStatus, ReleaseRecord, ReleaseResult, Stage, StoredPlan, UNDO,
    },
    cli::meanwhile::waits,
    machine::{holding, scope},
    plan::{Plan, Stamps, as_seen, current},
};

/// The reason while the operator has not looked at what was changed.
pub(super) const UNSEEN: &str = "Unseen";
/// The same in words.
pub(super) const NOT_YET: &str = "the operator has not looked at it yet";

/// The reason where the API server said nothing of the plan in time.
pub(super) const UNANSWERED: &str = "Unanswered";

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
    /// The order that is not carried out yet, of which the operator says nothing.
    pub(super) open: Option<Open>,
}

/// An order on the plan that the operator does not seem to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// The annotation and the revision that it names.
    pub(super) order: String,
    /// When it was given, where the webhook saw it.
    pub(super) at: Option<Timestamp>,
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
    let state = |outcome: Option<Outcome>, reason: &str, message: &str| State {
        outcome,
        reason: reason.to_owned(),
        message: message.to_owned(),
        step: status.step.clone(),
        revision: about(plan, status, outcome),
        stable: status.stable_revision.clone(),
        open: None,
    };
    if plan.is_deleting() {
        let seen = status.observed_generation >= plan.metadata.generation;
        let held = ready.filter(|ready| seen && told(plan, ready, true) == Some(Outcome::Held));
        return match held {
            // A deletion goes back first, and only a person ends what is in its way.
            Some(ready) => state(Some(Outcome::Held), &ready.reason, &ready.message),
            None => state(None, Reason::Deleting.as_str(), "the plan is being deleted"),
        };
    }
    let Some(ready) = ready else {
        return state(None, UNSEEN, NOT_YET);
    };
    let judged = asked.is_none_or(|asked| status.observed_release_generation >= Some(asked));
    let newer = asked.is_some_and(|asked| generation(plan) > Some(asked));
    if newer {
        // What the plan says may still be about what was asked for.
        let of_asked = judged && status.observed_release_generation == asked;
        let outcome = of_asked.then(|| told(plan, ready, judged)).flatten();
        // What waits for a person once the newer content was seen is about that.
        let waits = matches!(outcome, Some(Outcome::Held | Outcome::Refused));
        let seen = status.observed_generation >= plan.metadata.generation;
        let outcome = outcome.filter(|_| !(waits && seen));
        let text = "newer content took the place of what was asked for";
        return match outcome {
            Some(outcome) => state(Some(outcome), &ready.reason, &ready.message),
            None => state(Some(Outcome::Superseded), Reason::Superseded.as_str(), text),
        };
    }
    if status.observed_generation < plan.metadata.generation {
        return state(None, UNSEEN, NOT_YET);
    }
    let known = asked.is_none_or(|asked| generation(plan) >= Some(asked));
    let held = matches!(
        told(plan, ready, judged),
        Some(Outcome::Held | Outcome::Refused)
    );
    let waits = |order: &str, revision: &str| waits(&ready.message, order, revision).is_some();
    // An order that waits for what does not go on by itself ends no wait later.
    let mut open = orders(plan).filter(|(order, revision)| !(held && waits(order, revision)));
    if let Some((order, revision)) = open.next() {
        let text = format!("{order} names {revision} and is not carried out yet");
        let handled = status.handled.as_ref();
        let known = handled.is_some_and(|h| h.annotation == order && h.value == revision)
            || waits(order, revision)
            || ready.reason == Reason::ReconcileError.as_str();
        return State {
            open: (!known).then(|| Open::of(plan, order, revision)),
            ..state(None, &ready.reason, &text)
        };
    }
    let outcome = told(plan, ready, judged).filter(|_| known);
    if outcome == Some(Outcome::Held) && !judged && ready.reason == Reason::Frozen.as_str() {
        let text = "the plan is paused (spec.paused) before what was asked for";
        return state(outcome, Reason::Paused.as_str(), text);
    }
    state(outcome, &ready.reason, &ready.message)
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

/// The orders on a plan that are still to be carried out.
fn orders(plan: &StoredPlan) -> impl Iterator<Item = (&'static str, &str)> {
    [ABORT, UNDO, RETRY]
        .into_iter()
        .filter_map(|name| Some((name, plan.annotation(name)?)))
}

impl Open {
    fn of(plan: &StoredPlan, order: &str, revision: &str) -> Self {
        let stamps = Stamps::read(plan.annotation(ORDERED_BY));
        Self {
            order: format!("{order}={revision}"),
            at: stamps.of(order, revision).map(|stamp| stamp.at),
        }
    }
}

/// How it ended. What is in the way of going back holds a plan: what failed is
/// live, and a person has to see to it.
fn told(plan: &StoredPlan, ready: &Condition, judged: bool) -> Option<Outcome> {
    let mut status = plan.status.iter();
    let stage = status.find_map(|status| Some(status.release.as_ref()?.stage));
    let live = matches!(stage, Some(Stage::Restore | Stage::Stopped));
    match outcome(plan, ready, judged) {
        Some(Outcome::Refused) if live => Some(Outcome::Held),
        outcome => outcome,
    }
}

/// What the plan's word means for whoever waits. `judged`: whether it is about
/// the content that was asked for.
fn outcome(plan: &StoredPlan, ready: &Condition, judged: bool) -> Option<Outcome> {
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
        // Newer content leaves it by itself, unless nothing may go forward.
        Reason::Frozen => (judged || plan.spec["paused"] == true).then_some(Outcome::Held),
        Reason::Paused
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

/// The revision that a plan's word is about: what is being released, what is
/// refused, or what is stable. Content that never became a revision has none.
fn about(
    plan: &StoredPlan,
    status: &ReleasePlanStatus,
    outcome: Option<Outcome>,
) -> Option<String> {
    let released = || current(status).map(str::to_owned);
    let stable = || status.stable_revision.clone();
    match outcome {
        Some(Outcome::Superseded) => None,
        Some(Outcome::Refused) => released(),
        Some(Outcome::RolledBack | Outcome::Undone | Outcome::Failed) => {
            refused(plan, status).or_else(released).or_else(stable)
        }
        Some(Outcome::Released | Outcome::Held | Outcome::Ignored | Outcome::Deleted) | None => {
            released().or_else(stable)
        }
    }
}

/// The refused revision that holds the plan where it is; if what was asked for
/// has left the plan, that of the last release.
fn refused(plan: &StoredPlan, status: &ReleasePlanStatus) -> Option<String> {
    let parsed = as_seen(plan).ok();
    let content = parsed.as_ref().map(Plan::content);
    let held = holding(&scope(parsed.as_ref(), status), status, content);
    let last = status.history.last();
    let last = last.filter(|record| record.result == ReleaseResult::RolledBack);
    let last = last.and_then(|record| record.revision.clone());
    held.map(|refused| refused.revision.clone()).or(last)
}
