//! How often a plan is looked at while things happen around it.
//!
//! A rolling update is dozens of events, and most of them say the same: a pod
//! more. A pass that only such an event asks for is put off until [`SPACING`]
//! after the last one. What a person or a failing pod asks for is not, and
//! neither is what a pass itself wanted to come back for. Decides only when, never
//! what; forgetting all of it costs a pass too many.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

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
    /// Tells of that who waits for a turn.
    hurry: Arc<Notify>,
}

impl Pace {
    fn change<T>(&self, plan: &ObjectRef<StoredPlan>, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(entries.entry(key(plan)).or_default())
    }

    /// The next pass over a plan must not wait.
    pub(super) fn hurry(&self, plan: &ObjectRef<StoredPlan>) {
        self.change(plan, |entry| {
            entry.urgent = true;
            entry.hurry.notify_one();
        });
    }

    /// Whether a pass at `now` is in time, and then who tells when it becomes, or
    /// is, urgent; else how long it has to wait.
    pub(super) fn ask(
        &self,
        plan: &ObjectRef<StoredPlan>,
        now: Instant,
    ) -> Result<Arc<Notify>, Duration> {
        self.change(plan, |entry| {
            let spaced = entry.last.map(|last| last + SPACING);
            let due = entry.due.into_iter().chain(spaced).min();
            match due {
                Some(due) if due > now && !entry.urgent => Err(due - now),
                _ => Ok(Arc::clone(&entry.hurry)),
            }
        })
    }

    /// Begins a pass: what happens from here on is for the next one.
    pub(super) fn begin(&self, plan: &ObjectRef<StoredPlan>) {
        self.change(plan, |entry| {
            entry.urgent = false;
            // Whoever holds the old one has its turn by now.
            entry.hurry = Arc::default();
        });
    }

    /// Ends a pass at `now` that wants to be made again after `wake`.
    pub(super) fn end(&self, plan: &ObjectRef<StoredPlan>, now: Instant, wake: Option<Duration>) {
        self.change(plan, |entry| {
            entry.last = Some(now);
            entry.due = wake.and_then(|wake| now.checked_add(wake));
        });
    }

    /// Forgets all plans but those that `is` answers yes to.
    pub(super) fn keep(&self, is: impl Fn(&ObjectRef<StoredPlan>) -> bool) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(namespace, name), _| is(&ObjectRef::new(name).within(namespace)));
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

    /// Whether a pass is urgent, or how long it waits.
    fn ask(pace: &Pace, now: Instant) -> Result<bool, Duration> {
        use futures::FutureExt as _;
        let hurry = pace.ask(&plan(), now)?;
        Ok(hurry.notified().now_or_never().is_some())
    }

    #[test]
    fn passes_that_nothing_hurries_keep_their_distance() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(ask(&pace, start), Ok(false), "the first one");
        pace.end(&plan(), start, Some(Duration::from_secs(60)));
        let later = start + Duration::from_millis(200);
        let left = Duration::from_millis(300);
        assert_eq!(ask(&pace, later), Err(left));
        assert_eq!(ask(&pace, later + left), Ok(false));
    }

    #[test]
    fn what_must_not_wait_does_not_and_hurries_one_pass_only() {
        let (pace, start) = (Pace::default(), Instant::now());
        pace.end(&plan(), start, None);
        pace.hurry(&plan());
        assert_eq!(ask(&pace, start), Ok(true));
        pace.begin(&plan());
        pace.end(&plan(), start, None);
        assert_eq!(ask(&pace, start), Err(SPACING));
    }

    #[test]
    fn a_pass_comes_back_when_it_wanted_to() {
        let (pace, start) = (Pace::default(), Instant::now());
        let wake = Duration::from_millis(20);
        pace.end(&plan(), start, Some(wake));
        assert_eq!(ask(&pace, start), Err(wake));
        assert_eq!(ask(&pace, start + wake), Ok(false));
    }

    #[test]
    fn hurry_in_the_middle_of_a_pass_is_for_the_next() {
        let (pace, start) = (Pace::default(), Instant::now());
        pace.begin(&plan());
        pace.hurry(&plan());
        pace.end(&plan(), start, None);
        assert_eq!(ask(&pace, start), Ok(true));
    }

    #[test]
    fn of_a_plan_that_is_gone_nothing_is_kept() {
        let (pace, start) = (Pace::default(), Instant::now());
        pace.end(&plan(), start, None);
        pace.keep(|kept| *kept == plan());
        assert_eq!(ask(&pace, start), Err(SPACING));
        pace.keep(|_| false);
        assert_eq!(ask(&pace, start), Ok(false));
        pace.end(&plan(), start, None);
        pace.forget(&plan());
        assert_eq!(ask(&pace, start), Ok(false));
    }
}
