//! How long to wait after an error, for each plan on its own.
//!
//! Grows with failures and only with failures: a change that wakes the plan
//! before its time is not a reason to wait longer afterwards. Also decides when
//! failures are more than a disturbance: many in a row, and for a while, since
//! the first of them come within a second.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(10);
/// How long failures in a row have to last, beside their number, before the plan
/// is reported as stalled: an API server that restarts is no reason to call
/// anybody.
pub(super) const LASTING: Duration = Duration::from_secs(30);
/// Pace once the plan is reported as stalled.
const SLOW: Duration = Duration::from_secs(60);

/// Backoff of all plans, by uid.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    delays: ExponentialBackoff,
    failures: u32,
    /// When the first of them was.
    since: Instant,
    not_before: Instant,
    stalled: bool,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// How long to wait.
    pub(super) delay: Duration,
    /// Failures in a row, early ones not counted.
    pub(super) failures: u32,
    /// Whether they are too many, and for too long.
    pub(super) stalled: bool,
}

impl Backoffs {
    /// Counts a failure at `now`; `most` or more in a row that have lasted for
    /// [`LASTING`] stall the plan and are taken slowly.
    pub(super) fn failed(&self, uid: &str, now: Instant, most: u32) -> Wait {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(uid.to_owned()).or_insert_with(|| Entry {
            delays: ExponentialBuilder::default()
                .with_min_delay(SHORTEST)
                .with_max_delay(LONGEST)
                .with_factor(2.0)
                .with_jitter()
                .without_max_times()
                .build(),
            failures: 0,
            since: now,
            not_before: now,
            stalled: false,
        });
        if now < entry.not_before {
            return Wait {
                delay: entry.not_before - now,
                failures: entry.failures,
                stalled: entry.stalled,
            };
        }
        entry.failures += 1;
        entry.stalled = entry.failures >= most && now.duration_since(entry.since) >= LASTING;
        let delay = if entry.stalled {
            SLOW
        } else {
            entry.delays.next().unwrap_or(LONGEST).min(LONGEST)
        };
        entry.not_before = now + delay;
        Wait {
            delay,
            failures: entry.failures,
            stalled: entry.stalled,
        }
    }

    /// Whether the last pass over a plan failed.
    pub(super) fn has_failed(&self, uid: &str) -> bool {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.contains_key(uid)
    }

    /// Forgets the failures of a plan: it succeeded, or is gone.
    pub(super) fn reset(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_cap_and_start_low_after_a_success() {
        let backoffs = Backoffs::default();
        let mut now = Instant::now();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let wait = backoffs.failed("a", now, u32::MAX);
            last = wait.delay;
            now += wait.delay;
        }
        assert!(last >= LONGEST / 2, "{last:?}");
        backoffs.reset("a");
        let wait = backoffs.failed("a", now, u32::MAX);
        assert_eq!(wait.failures, 1);
        assert!(wait.delay <= SHORTEST * 4, "{:?}", wait.delay);
    }

    #[test]
    fn being_woken_early_does_not_raise_the_level() {
        let backoffs = Backoffs::default();
        let now = Instant::now();
        let first = backoffs.failed("a", now, u32::MAX);
        for _ in 0..100 {
            let early = backoffs.failed("a", now, u32::MAX);
            assert_eq!(early, first);
        }
    }

    #[test]
    fn one_plan_does_not_slow_another() {
        let backoffs = Backoffs::default();
        let mut now = Instant::now();
        for _ in 0..10 {
            now += backoffs.failed("a", now, u32::MAX).delay;
        }
        assert_eq!(backoffs.failed("b", now, u32::MAX).failures, 1);
    }

    /// Fails until the plan is stalled; the time that took, and the last answer.
    fn until_stalled(backoffs: &Backoffs, start: Instant, most: u32) -> (Instant, Wait) {
        let mut now = start;
        loop {
            let wait = backoffs.failed("a", now, most);
            if wait.stalled {
                return (now, wait);
            }
            assert!(wait.delay <= LONGEST, "{wait:?}");
            assert!(wait.failures < 1000, "{wait:?}");
            now += wait.delay;
        }
    }

    #[test]
    fn failures_stall_a_plan_only_if_they_are_many_and_last() {
        let start = Instant::now();
        // Eight in a row come within seconds.
        let (at, wait) = until_stalled(&Backoffs::default(), start, 8);
        assert!(at - start >= LASTING && at - start < LASTING + LONGEST);
        assert!(wait.failures > 8, "{wait:?}");
        assert_eq!(wait.delay, SLOW);
        // Time alone is not enough either.
        let (at, wait) = until_stalled(&Backoffs::default(), start, 30);
        assert_eq!(wait.failures, 30);
        assert!(at - start > LASTING * 2);
    }

    #[test]
    fn a_stalled_plan_is_taken_slowly_until_a_success() {
        let backoffs = Backoffs::default();
        let (at, first) = until_stalled(&backoffs, Instant::now(), 3);
        let early = backoffs.failed("a", at + Duration::from_secs(1), 3);
        assert!(
            early.stalled && early.failures == first.failures,
            "{early:?}"
        );
        let again = backoffs.failed("a", at + SLOW, 3);
        assert!(again.stalled && again.delay == SLOW, "{again:?}");
        backoffs.reset("a");
        let (later, _) = until_stalled(&backoffs, at + SLOW, 3);
        assert!(later - (at + SLOW) >= LASTING, "the time counts anew");
    }
}
