//! What a person sees while something long happens.

use std::io::Write as _;
use std::time::Duration;

/// Receives one line at a time about work that takes a while.
pub trait Progress: Sync {
    /// Something began, went on or ended.
    fn line(&self, text: &str);
}

/// Writes to standard error, also from tests (whose own output the test
/// harness captures): a build of minutes must not look like a hang.
#[derive(Debug, Default, Clone, Copy)]
pub struct Terminal;

impl Progress for Terminal {
    fn line(&self, text: &str) {
        // A closed terminal is no reason to stop working.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

pub(crate) fn human(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s => format!("{} min {:02} s", s / 60, s % 60),
    }
}
