//! The commands for people: `belay`, and by its name `kubectl-belay`, a plugin
//! of kubectl.
//!
//! Decides what is typed and how answers look. Everything that is known of a
//! plan comes from the API server, with the rights of whoever calls; a command
//! writes nothing but the annotations and the one field that give orders, and
//! never a status.
//!
//! A command is a module with its arguments and
//! `run(&Args, &mut Invocation) -> Result<Exit, CliError>`; it is registered in
//! [`Verb`] by one line, and called by one line in [`Verb::run`].

mod access;
mod completion;
pub mod diff;
mod error;
mod exit;
pub mod explain;
mod find;
mod output;
mod program;
pub mod status;
mod target;
mod terminal;

use clap::{Args, Subcommand};

pub use access::{Access, Session};
pub use completion::{answer_kubectl, answer_shell};
pub use error::CliError;
pub use exit::Exit;
pub use find::{holder, list_all};
pub use output::{API_VERSION, Document, Format, Output, plan_name, print, print_all};
pub use program::Program;
pub use target::{Kind, OnePlan, SomePlans, Target, read};
pub use terminal::{BAD, Color, FAINT, GOOD, HEADING, Standard, Streams, WAITS, styled, terminal};

use crate::clock::Clock;

/// Heading of the flags that every command has.
const COMMON: &str = "Common options";

/// The commands for people.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the script that makes a shell complete commands.
    #[command(after_help = "\
Examples:
  source <(belay completion bash)       # in ~/.bashrc
  belay completion fish | source        # in config.fish

For `kubectl belay`, link the program as kubectl_complete-belay, too.")]
    Completion(With<completion::CompletionArgs>),
    /// Show where plans are, what they wait for and what is in trouble.
    #[command(after_help = "\
Examples:
  belay status                 # all plans of the namespace, those in trouble first
  belay status shop            # one plan with everything below it
  belay status deploy/cart -w  # the plan of a Deployment, kept up to date
  belay status -A -o json      # all plans, for programs")]
    Status(With<status::StatusArgs>),
    /// Say why a plan is where it is and what would move it.
    #[command(after_help = "\
Examples:
  belay explain shop         # the decisions, their grounds and the ways out
  belay explain deploy/cart  # which plan holds it, and which fields are the plan's")]
    Explain(With<explain::ExplainArgs>),
    /// Show what the next release of a plan would change.
    #[command(after_help = "\
Examples:
  belay diff shop           # what is in the plan against what is live
  belay diff -f shop.yaml   # a plan that is not applied yet
  belay diff shop --paths   # one line for each field

Exit codes: 0 nothing would change, 1 something would, 2 it cannot be told.
The API server is asked by a dry run, which needs patch on the Deployments.")]
    Diff(With<diff::DiffArgs>),
}

impl Verb {
    /// Does what is asked. `outer` are flags that stood before the command.
    ///
    /// # Errors
    /// It cannot be done; the error says why and what to do.
    pub async fn run(self, outer: Access, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
        match self {
            Self::Completion(verb) => completion::run(verb.args(outer, call), call),
            Self::Status(verb) => status::run(verb.args(outer, call), call).await,
            Self::Explain(verb) => explain::run(verb.args(outer, call), call).await,
            Self::Diff(verb) => diff::run(verb.args(outer, call), call).await,
        }
    }

    /// When this command's answers are coloured, where it says so.
    #[must_use]
    pub const fn color(&self) -> Option<Color> {
        match self {
            Self::Completion(verb) => verb.access.color,
            Self::Status(verb) => verb.access.color,
            Self::Explain(verb) => verb.access.color,
            Self::Diff(verb) => verb.access.color,
        }
    }
}

/// Arguments of a command, with the flags that every command has.
#[derive(Args, Debug)]
pub struct With<T: Args> {
    #[command(flatten)]
    args: T,
    #[command(flatten)]
    access: Access,
}

impl<T: Args> With<T> {
    /// The command's own arguments; the flags go to the invocation.
    fn args(&self, outer: Access, call: &mut Invocation<'_>) -> &T {
        call.access = self.access.clone().over(outer);
        &self.args
    }
}

/// One call of a command.
pub struct Invocation<'a> {
    /// The name that it was called by.
    pub program: Program,
    /// Which cluster, and whom to act as.
    pub access: Access,
    /// Where it writes.
    pub streams: Streams<'a>,
    /// What time it is.
    pub clock: &'a dyn Clock,
}

impl Invocation<'_> {
    /// A client for the cluster that is meant.
    ///
    /// # Errors
    /// There is no way to one.
    pub async fn connect(&self) -> Result<Session, CliError> {
        self.access.connect().await
    }
}

/// Tells why a command could not do its work, and what to do about it.
pub fn report(error: &CliError, program: Program, err: &mut dyn std::io::Write) -> Exit {
    if error.is_broken_pipe() {
        return Exit::Done;
    }
    let label = styled(BAD, "error:");
    // With nowhere to write to, the exit code is all there is left to say.
    let _ = writeln!(err, "{label} {error}");
    if let Some(hint) = error.hint() {
        let _ = writeln!(err, "hint: {}", program.rename(&hint));
    }
    error.exit()
}
