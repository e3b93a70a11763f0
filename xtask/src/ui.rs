//! What the commands print. The only place that does.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these commands talk to a person at a terminal"
)]

/// One line of the command's own answer.
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// The beginning of a part of the work.
pub(crate) fn step(text: &str) {
    eprintln!("==> {text}");
}

/// What went wrong.
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}
