//! How often a plan is looked at while things happen around it.
//!
//! A rolling update is dozens of events, and most of them say the same: a pod
//! more. A pass that only such an event asks for is put off until [`SPACING`]
//! after the last one. What a person or a failing pod asks for is not, and
//! neither is what a pass itself wanted to come back for. Decides only when, never
//! what; forgetting all of it costs a pass too many.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use kube::runtime::reflector::ObjectRef;

use crate::api::StoredPlan;

/// Shortest time between the end of a pass and one that nothing hurries.
const SPACING: Duration = Duration::from_millis(500);

/// Pace of all plans, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<(String, String), Entry>>);

#[derive(Debug, Default)]
struct Entry {
    /// End of the last pass.
    last: Option<Instant>,
    /// When that pass wanted to be made again.
    due: Option<Instant>,
    /// Whether something happened that must not wait.
    urgent: bool,
}

impl Pace {
    fn change<T>(&self, plan: &ObjectRef<StoredPlan>, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(entries.entry(key(plan)).or_default())
    }

    /// The next pass over a plan must not wait.
    pub(super) fn hurry(&self, plan: &ObjectRef<StoredPlan>) {
        self.change(plan, |entry| entry.urgent = true);
    }

    /// Begins a pass at `now`, or answers how long it has to wait.
    pub(super) fn begin(&self, plan: &ObjectRef<StoredPlan>, now: Instant) -> Result<(), Duration> {
        self.change(plan, |entry| {
            let spaced = entry.last.map(|last| last + SPACING);
            let due = entry.due.into_iter().chain(spaced).min();
            match due {
                Some(due) if due > now && !entry.urgent => Err(due - now),
                _ => {
                    entry.urgent = false;
                    Ok(())
                }
            }
        })
    }

    /// Ends a pass at `now` that wants to be made again after `wake`.
    pub(super) fn end(&self, plan: &ObjectRef<StoredPlan>, now: Instant, wake: Option<Duration>) {
        self.change(plan, |entry| {
            entry.last = Some(now);
            entry.due = wake.and_then(|wake| now.checked_add(wake));
        });
    }

    /// Forgets a plan that is gone.
    pub(super) fn forget(&self, plan: &ObjectRef<StoredPlan>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&key(plan));
    }
}

/// The reference without what differs between its sources.
fn key(plan: &ObjectRef<StoredPlan>) -> (String, String) {
    let namespace = plan.namespace.clone().unwrap_or_default();
    (namespace, plan.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ObjectRef<StoredPlan> {
        ObjectRef::new("shop").within("shop")
    }

    #[test]
    fn passes_that_nothing_hurries_keep_their_distance() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.begin(&plan(), start), Ok(()), "the first one");
        pace.end(&plan(), start, Some(Duration::from_secs(60)));
        let later = start + Duration::from_millis(200);
        let left = Duration::from_millis(300);
        assert_eq!(pace.begin(&plan(), later), Err(left));
        assert_eq!(pace.begin(&plan(), later + left), Ok(()));
    }

    #[test]
    fn what_must_not_wait_does_not_and_hurries_one_pass_only() {
        let (pace, start) = (Pace::default(), Instant::now());
        pace.end(&plan(), start, None);
        pace.hurry(&plan());
        assert_eq!(pace.begin(&plan(), start), Ok(()));
        pace.end(&plan(), start, None);
        assert_eq!(pace.begin(&plan(), start), Err(SPACING));
    }

    #[test]
    fn a_pass_comes_back_when_it_wanted_to() {
        let (pace, start) = (Pace::default(), Instant::now());
        let wake = Duration::from_millis(20);
        pace.end(&plan(), start, Some(wake));
        assert_eq!(pace.begin(&plan(), start), Err(wake));
        assert_eq!(pace.begin(&plan(), start + wake), Ok(()));
    }

    #[test]
    fn hurry_in_the_middle_of_a_pass_is_for_the_next() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.begin(&plan(), start), Ok(()));
        pace.hurry(&plan());
        pace.end(&plan(), start, None);
        assert_eq!(pace.begin(&plan(), start), Ok(()));
    }

    #[test]
    fn of_a_plan_that_is_gone_nothing_is_kept() {
        let (pace, start) = (Pace::default(), Instant::now());
        pace.end(&plan(), start, None);
        pace.forget(&plan());
        assert_eq!(pace.begin(&plan(), start), Ok(()));
    }
}
