//! What the annotations by which people give orders may name.
//!
//! Each is bound to a revision, so that an order that comes late does nothing.
//! Admission and the state machine ask the same questions here; what an order
//! does is decided by [`crate::machine`].

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{
    Cause, Phase, RETRY, Reason, ReleaseKind, ReleasePlanStatus, ReleaseProgress, ReleaseRecord,
    ReleaseResult, Stage, UNDO,
};

/// The revision that `belay.dev/abort` can name: what is being released, or
/// what a rollback leaves. None while nothing is, or has no name yet.
#[must_use]
pub fn abortable(status: &ReleasePlanStatus) -> Option<&str> {
    let release = status.release.as_ref()?;
    if let Some(name) = unbegun(status) {
        return Some(name);
    }
    let gave_up = release.stage == Stage::Stopped && status.phase == Some(Phase::Failed);
    (!gave_up).then(|| current(status)).flatten()
}

/// For how long an order that is given again is the same one: two people, or one who
/// pressed twice.
pub const TWICE: Duration = Duration::from_secs(10);
/// Stands in the decision that a stopped release goes back.
pub const AS_ASKED: &str = "sent back as asked";
/// How precise the times of decisions are.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Whether the way back began with an abort, so short a time ago that another one
/// is meant for the release as well.
#[must_use]
pub fn is_just_aborted(status: &ReleasePlanStatus, now: Timestamp) -> bool {
    let going_back = |release: &&ReleaseProgress| release.stage == Stage::Restore;
    let Some(release) = status.release.as_ref().filter(going_back) else {
        return false;
    };
    let failure = release.failure.as_ref();
    // What was aborted long ago and came again goes back with the cause of then.
    let target = status.target_revision.as_ref();
    let came_again = target.is_some_and(|target| !release.applied.contains(target));
    let aborted = failure.is_some_and(|failure| failure.cause == Cause::Aborted) && !came_again;
    let mut decisions = status.decisions.iter().rev();
    // One that stopped went back by the same order.
    let asked = decisions.any(|decision| {
        decision.reason == Reason::RollbackStarted
            && decision.at.0 >= release.stage_since.0 - SECOND
            && decision.message.contains(AS_ASKED)
    });
    let age = Duration::try_from(now.duration_since(release.stage_since.0));
    (aborted || asked) && age.unwrap_or_default() < TWICE
}

/// The revision that an undo is to bring back of which nothing was written yet:
/// it can still be taken back, or give way to another order.
#[must_use]
pub fn unbegun(status: &ReleasePlanStatus) -> Option<&str> {
    let release = status.release.as_ref()?;
    let untouched = release.applied.is_empty() && status.target_revision.is_none();
    let prepared = release.stage == Stage::Settle && untouched;
    release.undo.as_deref().filter(|_| prepared)
}

/// The revision that a release in progress is about.
#[must_use]
pub fn current(status: &ReleasePlanStatus) -> Option<&str> {
    let release = status.release.as_ref()?;
    let target = status.target_revision.as_deref();
    if release.stage == Stage::Settle {
        return target;
    }
    target.or_else(|| release.applied.last().map(String::as_str))
}

/// The revisions that `belay.dev/undo` can name, oldest first: those that were
/// released or stable once and are still kept.
#[must_use]
pub fn undoable(status: &ReleasePlanStatus) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for record in &status.history {
        let released = record
            .revision
            .as_deref()
            .filter(|_| record.result == ReleaseResult::Succeeded);
        for name in record.from.as_deref().into_iter().chain(released) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Whether the status is gone and a person has to say what was stable.
#[must_use]
pub fn is_lost(status: &ReleasePlanStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|c| c.type_ == "Ready" && c.reason == Reason::StatusLost.as_str())
}

/// The revisions that `belay.dev/retry` can name: refused ones, and the one
/// that a release stopped or failed on.
#[must_use]
pub fn retryable(status: &ReleasePlanStatus) -> Vec<&str> {
    let stopped = current(status).filter(|_| {
        let stage = status.release.as_ref().map(|release| release.stage);
        stage == Some(Stage::Stopped)
    });
    let refused = status.refused.iter().map(|r| r.revision.as_str());
    let mut names: Vec<&str> = refused.collect();
    for name in stopped.into_iter().chain(failed(status)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The revision that a first release failed on, with nothing to return to.
#[must_use]
pub fn failed(status: &ReleasePlanStatus) -> Option<&str> {
    let over = status.phase == Some(Phase::Failed) && status.release.is_none();
    let last = status.history.last().filter(|_| over)?;
    last.revision.as_deref()
}

/// Whether a refused revision holds templates that the plan no longer asks for:
/// to try the rest of it again would release what nobody ever asked for.
#[must_use]
pub fn is_gone_from_plan(status: &ReleasePlanStatus, content: &str, revision: &str) -> bool {
    let mut refused = status.refused.iter();
    refused
        .find(|r| r.revision == revision)
        .is_some_and(|r| r.spec.as_deref().is_some_and(|spec| spec != content))
}

/// The release of which the stable content is: the last one that brought any, or
/// that a person asked for.
#[must_use]
pub fn last_word(history: &[ReleaseRecord]) -> Option<&ReleaseRecord> {
    history.iter().rev().find(|record| {
        let undo = record.kind == ReleaseKind::Undo;
        record.result == ReleaseResult::Succeeded && (undo || brought_content(record))
    })
}

/// Whether a release brought other content than a restart of the pods.
#[must_use]
pub fn brought_content(record: &ReleaseRecord) -> bool {
    let restarts = |change: &String| change.contains("kubectl.kubernetes.io/restartedAt");
    let restart = !record.changes.is_empty() && record.changes.iter().all(restarts);
    record.kind != ReleaseKind::Surroundings && !restart
}

/// Whether an order can only be carried out while the revision that it names is
/// whole. An undo to the stable one ends a release like an abort; what was refused
/// of templates in the spec alone is made anew from the spec.
#[must_use]
pub fn rests_on_revision(status: Option<&ReleasePlanStatus>, order: &str, revision: &str) -> bool {
    let Some(status) = status else { return false };
    match order {
        UNDO => status.stable_revision.as_deref() != Some(revision),
        RETRY => {
            let mut refused = status.refused.iter();
            let put_back = refused.any(|r| r.revision == revision && !r.live.is_empty());
            // Nothing is made anew where nothing was ever stable.
            put_back || status.stable_revision.is_none()
        }
        _ => false,
    }
}

/// The revision that was left for another one when that became stable, if it
/// still is.
pub(super) fn left<'a>(status: &'a ReleasePlanStatus, revision: &str) -> Option<&'a str> {
    let stable = status.stable_revision.as_deref() == Some(revision);
    let mut records = status.history.iter().rev();
    let record = records.find(|record| {
        record.result == ReleaseResult::Succeeded && record.revision.as_deref() == Some(revision)
    })?;
    record.from.as_deref().filter(|_| stable)
}
