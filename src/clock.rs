//! Where the time comes from.
//!
//! This is the only file that asks the system for it. Everything that decides
//! takes a time as an argument; everything that runs takes a [`Clock`].

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// The time now, in whole microseconds: what a `MicroTime` in an object
    /// can hold, so that a time survives being stored and read back.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that asks the system for the time"
    )]
    fn now(&self) -> Timestamp {
        to_micros(Timestamp::now())
    }
}

/// A clock that stands still until it is moved.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<Mutex<Timestamp>>);

impl TestClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(to_micros(start))))
    }

    /// Moves the clock to `time`, which may lie in its past.
    pub fn set(&self, time: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to_micros(time);
    }

    /// Moves the clock forward. A time beyond what a timestamp can hold leaves
    /// it where it is.
    pub fn advance(&self, by: std::time::Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(later) = now.checked_add(by) {
            *now = to_micros(later);
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use std::time::Duration;

    #[test]
    fn the_system_clock_shows_times_that_survive_being_stored() {
        let now = SystemClock.now();
        let stored = serde_json::to_value(MicroTime(now)).unwrap();
        let read: MicroTime = serde_json::from_value(stored).unwrap();
        assert_eq!(read.0, now);
    }

    #[test]
    fn a_test_clock_moves_only_when_it_is_moved() {
        let start = Timestamp::from_second(1_000).unwrap();
        let clock = TestClock::at(start);
        let shared = clock.clone();
        assert_eq!(clock.now(), start);
        shared.advance(Duration::from_millis(1_500));
        assert_eq!(clock.now().as_millisecond(), 1_001_500);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now().as_millisecond(), 1_001_500);
    }
}
