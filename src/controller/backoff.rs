//! How long to wait after an error, for each plan on its own.
//!
//! Grows with failures and only with failures: a change that wakes the plan
//! before its time is not a reason to wait longer afterwards.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(10);
/// Pace once the plan is reported as stalled.
const SLOW: Duration = Duration::from_secs(60);

/// Backoff of all plans, by uid.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    delays: ExponentialBackoff,
    failures: u32,
    not_before: Instant,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// How long to wait.
    pub(super) delay: Duration,
    /// Failures in a row, early ones not counted.
    pub(super) failures: u32,
}

impl Backoffs {
    /// Counts a failure at `now`; more than `most` in a row are taken slowly.
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
            not_before: now,
        });
        if now < entry.not_before {
            return Wait {
                delay: entry.not_before - now,
                failures: entry.failures,
            };
        }
        entry.failures += 1;
        let delay = if entry.failures >= most {
            SLOW
        } else {
            entry.delays.next().unwrap_or(LONGEST).min(LONGEST)
        };
        entry.not_before = now + delay;
        Wait {
            delay,
            failures: entry.failures,
        }
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

    #[test]
    fn too_many_failures_are_taken_slowly() {
        let backoffs = Backoffs::default();
        let mut now = Instant::now();
        let mut wait = backoffs.failed("a", now, 3);
        while wait.failures < 3 {
            now += wait.delay;
            wait = backoffs.failed("a", now, 3);
        }
        assert_eq!(wait.delay, SLOW);
    }
}
