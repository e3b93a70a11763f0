//! How the story looks: chapters, calls, answers, claims. Decides nothing but
//! colours and counts what was claimed.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use super::Stop;
use crate::ui;

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "1;31";

/// The screen of one demo.
pub(crate) struct Screen {
    colour: bool,
    chapters: Cell<usize>,
    claims: Cell<usize>,
    started: Instant,
}

impl Screen {
    /// With colours if a person looks at a terminal that wants them.
    pub(crate) fn new() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: std::io::stdout().is_terminal() && !unwanted,
            chapters: Cell::new(0),
            claims: Cell::new(0),
            started: Instant::now(),
        }
    }

    /// The beginning of a part of the story.
    pub(crate) fn chapter(&self, title: &str) {
        self.chapters.set(self.chapters.get() + 1);
        ui::say("");
        let title = format!("{}. {title}", self.chapters.get());
        ui::say(&self.paint(BOLD, &title));
    }

    /// What happens and why, in a sentence.
    pub(crate) fn text(&self, text: &str) {
        ui::say(text);
    }

    /// A call as one would type it.
    pub(crate) fn call(&self, line: &str) {
        ui::say(&self.paint(BOLD, &format!("  $ {line}")));
    }

    /// What a program answered, or a file.
    pub(crate) fn quote(&self, text: &str) {
        for line in text.lines() {
            ui::say(&self.paint(DIM, format!("    {line}").trim_end()));
        }
    }

    /// Says whether something holds. One that does not ends the story.
    pub(crate) fn claim(&self, what: &str, holds: Result<(), String>) -> Result<(), Stop> {
        match holds {
            Ok(()) => {
                self.claims.set(self.claims.get() + 1);
                ui::say(&format!("  {} {what}", self.paint(GREEN, "✓")));
                Ok(())
            }
            Err(detail) => {
                ui::say(&format!("  {} NOT SO: {what}", self.paint(RED, "✗")));
                self.quote(&detail);
                Err(Stop::Claim(what.to_owned()))
            }
        }
    }

    /// How many claims held.
    pub(crate) const fn claims(&self) -> usize {
        self.claims.get()
    }

    /// Time since the demo began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
