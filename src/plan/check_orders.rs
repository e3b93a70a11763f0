//! Which orders mean something, and what to say of those that do not.
//!
//! Orders are bound to what they name: one that comes late, or names what
//! nothing can be done with, is refused with what is current and what can be
//! done instead.

use super::{
    Plan, Violations, abortable,
    change::{annotation, in_progress},
    commands::{is_gone_from_plan, left},
    current,
    decode::quoted,
    faults::Faults,
    is_lost, retryable,
    stamps::{ORDERS, contradict},
    undoable,
};
use crate::api::{
    ABORT, Phase, RETRY, ReleasePlanStatus, ReleaseProgress, Stage, StoredPlan, UNDO,
};

/// The orders that an update gives, by annotation and revision. Those that stood
/// there before are being dealt with.
#[must_use]
pub fn given_orders<'a>(old: &StoredPlan, new: &'a StoredPlan) -> Vec<(&'static str, &'a str)> {
    ORDERS
        .into_iter()
        .filter_map(|order| Some((order, new.annotation(order)?)))
        .filter(|(order, value)| old.annotation(order) != Some(value))
        .collect()
}

/// Judges the orders that an update gives.
pub(super) fn check_orders(old: &StoredPlan, new: &StoredPlan, faults: &mut Faults) {
    let given = given_orders(old, new);
    if new.is_deleting() {
        for (order, _) in given {
            let text = "the plan is being deleted and takes no orders; what becomes of its release is for spec.deletionPolicy to say";
            faults.forbidden(annotation(order), text);
        }
        return;
    }
    let none = ReleasePlanStatus::default();
    let status = old.status.as_ref().unwrap_or(&none);
    let uid = old.metadata.uid.as_deref().unwrap_or_default();
    let plan = Plan::parse(&new.spec).map(|plan| plan.as_seen(uid, status));
    for (order, wanted) in &given {
        let fault = match *order {
            ABORT => abort(status, wanted),
            RETRY => retry(status, plan.as_ref(), wanted),
            UNDO => undo(status, wanted),
            _ => None,
        };
        if let Some(text) = fault {
            faults.invalid(annotation(order), format!("{} {text}", quoted(wanted)));
        }
    }
    for (index, (order, _)) in given.iter().enumerate() {
        let before = given.iter().take(index);
        for (other, _) in before.filter(|(other, _)| contradict(order, other)) {
            let text = format!("contradicts {other}, which was given with it; give one of the two");
            faults.forbidden(annotation(order), text);
        }
    }
}

fn abort(status: &ReleasePlanStatus, wanted: &str) -> Option<String> {
    match (abortable(status), &status.release) {
        (Some(now), _) if now == wanted => None,
        (Some(now), _) => Some(format!(
            "is not the revision that is being released, which is {now}"
        )),
        (None, Some(release)) if status.phase == Some(Phase::Failed) => Some(format!(
            "cannot be aborted: {} and was aborted already{}",
            in_progress(release),
            way_back(status.stable_revision.as_deref())
        )),
        (None, Some(release)) => Some(format!(
            "cannot be aborted: {}, and nothing of it is live or has a name that could be aborted; spec.paused keeps it from going on",
            in_progress(release)
        )),
        (None, None) => {
            let mut text = "cannot be aborted: no release is in progress".to_owned();
            let mut records = status.history.iter().rev();
            if let Some(record) = records.find(|r| r.revision.as_deref() == Some(wanted)) {
                let (number, result) = (record.number, record.result);
                text.push_str(&format!(", release {number} of it has ended ({result:?})"));
                text.push_str(&way_back(left(status, wanted)));
            }
            Some(text)
        }
    }
}

/// "; to go back set belay.dev/undo to shop-1", where there is such a thing.
fn way_back(to: Option<&str>) -> String {
    to.map_or_else(String::new, |to| format!("; to go back set {UNDO} to {to}"))
}

fn retry(
    status: &ReleasePlanStatus,
    plan: Result<&Plan, &Violations>,
    wanted: &str,
) -> Option<String> {
    let known = retryable(status);
    let now = current(status).filter(|_| status.release.is_some());
    let release = status.release.as_ref();
    if !known.contains(&wanted) {
        if let (Some(now), Some(release)) = (now, release)
            && now == wanted
        {
            return Some(format!(
                "cannot be tried again yet: {}; wait until it has ended",
                in_progress(release)
            ));
        }
        return Some(if known.is_empty() {
            "cannot be tried again: this plan has no refused revision".to_owned()
        } else {
            format!(
                "is not a refused revision of this plan (refused: {})",
                known.join(", ")
            )
        });
    }
    if let (Some(now), Some(release)) = (now, release)
        && release.stage == Stage::Stopped
        && now != wanted
    {
        return Some(format!(
            "cannot be tried again: {} on {now}, which has to be aborted, undone or tried again first",
            in_progress(release)
        ));
    }
    let gone = plan.is_ok_and(|plan| is_gone_from_plan(status, plan.content(), wanted));
    gone.then(|| {
        "cannot be tried again: its content is no longer what the plan asks for; put it back into the spec first"
            .to_owned()
    })
}

fn undo(status: &ReleasePlanStatus, wanted: &str) -> Option<String> {
    let known = undoable(status);
    let is_stable = status.stable_revision.as_deref() == Some(wanted);
    if is_stable && status.release.is_none() {
        return Some("is the stable revision already".to_owned());
    }
    if let Some(release) = &status.release
        && is_on_the_way(status, release, wanted)
    {
        return Some(format!(
            "is being released already: {}",
            in_progress(release)
        ));
    }
    if is_stable || known.contains(&wanted) || is_lost(status) {
        return None;
    }
    Some(if known.is_empty() {
        "cannot be brought back: this plan keeps no earlier revision".to_owned()
    } else {
        format!(
            "is not a revision that this plan keeps (kept: {})",
            known.join(", ")
        )
    })
}

/// Whether a release goes to this revision right now.
fn is_on_the_way(status: &ReleasePlanStatus, release: &ReleaseProgress, wanted: &str) -> bool {
    match release.stage {
        Stage::Settle => release.undo.as_deref() == Some(wanted),
        Stage::Promote | Stage::Bake => {
            [&status.target_revision, &release.undo].contains(&&Some(wanted.to_owned()))
        }
        Stage::Restore | Stage::Stopped => false,
    }
}

#[cfg(test)]
#[path = "check_orders_tests.rs"]
mod tests;
