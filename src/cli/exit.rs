//! How a command ends: the exit codes, all of them, in one place.
//!
//! Pipelines live by these numbers, so they are part of the interface: what a
//! number means does not change, and no command invents one of its own.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// It did what was asked; what was waited for is so; there is nothing to
    /// find fault with.
    Done,
    /// The release was rolled back or failed; there are faults, or differences.
    Failed,
    /// The command was not understood, or the API server did not do it.
    Error,
    /// Nothing goes on until a person decides.
    Person,
    /// What was waited for did not come in time.
    Timeout,
    /// It was interrupted from the keyboard.
    Interrupted,
}

impl Exit {
    /// All there are, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Failed,
        Self::Error,
        Self::Person,
        Self::Timeout,
        Self::Interrupted,
    ];

    /// The number that the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Error => 2,
            Self::Person => 3,
            Self::Timeout => 124,
            Self::Interrupted => 130,
        }
    }

    /// What the number means, for help.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "rolled back or failed; faults or differences found",
            Self::Error => "usage or API error",
            Self::Person => "waiting for a person",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The codes as they stand at the end of the help.
#[must_use]
pub(super) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        text.push_str(&format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    }
    text
}
