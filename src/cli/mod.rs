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
//! [`Verb`] by a variant there, and a line in `each!` and in [`Verb::run`].

mod access;
mod age;
pub mod check;
mod completion;
mod deadline;
pub mod diff;
mod error;
mod events;
mod exit;
pub mod explain;
mod find;
mod history;
pub mod lint;
mod meanwhile;
mod names;
mod orders;
mod output;
mod program;
mod proxy;
pub mod status;
mod table;
mod target;
mod terminal;
#[cfg(test)]
mod testing;
mod wait;

use clap::{Args, Subcommand};

pub use access::{Access, Session};
pub use age::{age, span};
pub use completion::{answer_kubectl, answer_shell};
pub use error::CliError;
pub use exit::Exit;
pub use find::{holder, list_all};
use find::{pages, scopes};
pub use output::{API_VERSION, Document, Format, Output, plan_name, print, print_all};
use output::{PerPlan, counted, tell};
pub use program::Program;
pub use table::{Cell, Table, wrap};
pub use target::{Kind, OnePlan, SomePlans, Target, read};
pub use terminal::{
    BAD, Color, FAINT, GOOD, HEADING, Standard, Streams, WAITS, clean, clean_lines, styled,
    terminal,
};

use crate::clock::Clock;

/// Heading of the flags that every command has.
const COMMON: &str = "Common options";

/// The commands for people.
#[derive(Debug, Subcommand)]
pub enum Verb {
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
The API server is asked by a dry run, which needs patch on the Deployments, and
list to find them.")]
    Diff(With<diff::DiffArgs>),
    /// Wait until a release has ended, and tell how.
    #[command(after_help = "\
Without --generation or a file that says it, this waits for what the plan asks
for now; of a Deployment, for what was applied to it, also where content of the
plan that holds it stays refused. The last line of the output is for programs:
  result=Released reason=Released plan=shop/shop generation=4 revision=... exit=0

Examples:
  belay wait shop --timeout 15m
  kubectl apply -f shop.yaml -o yaml | belay wait -f -
  belay wait deploy/cart                # what was applied to that Deployment
  belay wait shop --timeout 0           # how it is now, by exit code
  belay wait shop --for rolledback

Exit codes: 0 it is so; 1 rolled back, failed, refused, undone, overtaken or
deleted; 2 usage or API error; 3 waiting for a person; 124 timeout; 130
interrupted.")]
    Wait(With<wait::WaitArgs>),
    /// Show the releases of plans: what changed, who, when, how it ended.
    #[command(after_help = "\
Examples:
  belay history shop
  belay history -A -o json")]
    History(With<history::HistoryArgs>),
    /// Show what happened to plans, their workloads and pods, in order.
    ///
    /// What the plan decided is shown also after the events are gone.
    #[command(after_help = "\
Examples:
  belay events shop
  belay events deploy/cart -o json")]
    Events(With<events::EventsArgs>),
    /// End a release: everything goes back. In a rollback: what is live stays.
    #[command(after_help = "\
Examples:
  belay abort shop
  belay abort shop --revision shop-b59eb8dcf7   # only if that is released
  belay abort shop --show-patch")]
    Abort(With<orders::AbortArgs>),
    /// Try refused content again.
    #[command(after_help = "\
Examples:
  belay retry shop
  belay retry shop --revision shop-b59eb8dcf7")]
    Retry(With<orders::RetryArgs>),
    /// Go back to an earlier revision.
    #[command(after_help = "\
Examples:
  belay undo shop                       # to the revision before
  belay undo shop --to shop-7010d899a3
  belay undo shop --dry-run server")]
    Undo(With<orders::UndoArgs>),
    /// Stop forward motion; judging and rollback go on.
    #[command(after_help = "\
Examples:
  belay pause shop")]
    Pause(With<orders::OrderArgs>),
    /// Go on after a pause.
    #[command(after_help = "\
Examples:
  belay resume shop")]
    Resume(With<orders::OrderArgs>),
    /// Find the faults of plans in files, without a cluster.
    #[command(after_help = "\
Examples:
  belay lint -f shop.yaml               # one file
  belay lint -f deploy -o json          # all YAML and JSON files below a folder
  kustomize build . | belay lint -f -   # what another program makes

Exit codes: 0 no faults, also where files hold no plan, which is said; 1 faults;
2 usage, a file that cannot be read, an empty input, or a folder without YAML
and JSON.")]
    Lint(With<lint::LintArgs>),
    /// Find out whether Belay works in a cluster, and what to do if not.
    #[command(after_help = "\
Examples:
  belay check --pre                     # before an installation
  belay check -n shop                   # plans are tried in the namespace shop
  belay check -A -o json                # with the workloads of all plans

Exit codes: 0 no failures, 1 failures, 2 usage or no answer of the API server.")]
    Check(With<check::CheckArgs>),
    /// Print the script that makes a shell complete commands.
    #[command(after_help = "\
For kubectl, link the program as kubectl_complete-belay beside kubectl-belay.

Examples:
  belay completion bash > ~/.local/share/bash-completion/completions/belay
  belay completion fish > ~/.config/fish/completions/belay.fish")]
    Completion(With<completion::CompletionArgs>),
}

/// Calls the same expression with the arguments of whichever command it is.
macro_rules! each {
    ($verb:expr, $with:ident => $body:expr) => {
        match $verb {
            Verb::Status($with) => $body,
            Verb::Explain($with) => $body,
            Verb::Diff($with) => $body,
            Verb::Wait($with) => $body,
            Verb::History($with) => $body,
            Verb::Events($with) => $body,
            Verb::Abort($with) => $body,
            Verb::Retry($with) => $body,
            Verb::Undo($with) => $body,
            Verb::Pause($with) => $body,
            Verb::Resume($with) => $body,
            Verb::Lint($with) => $body,
            Verb::Check($with) => $body,
            Verb::Completion($with) => $body,
        }
    };
}

impl Verb {
    /// Does what is asked.
    ///
    /// # Errors
    /// It cannot be done; the error says why and what to do.
    pub async fn run(&self, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
        match self {
            Self::Status(verb) => status::run(&verb.args, call).await,
            Self::Explain(verb) => explain::run(&verb.args, call).await,
            Self::Diff(verb) => diff::run(&verb.args, call).await,
            Self::Wait(verb) => wait::run(&verb.args, call).await,
            Self::History(verb) => history::run(&verb.args, call).await,
            Self::Events(verb) => events::run(&verb.args, call).await,
            Self::Abort(verb) => orders::abort(&verb.args, call).await,
            Self::Retry(verb) => orders::retry(&verb.args, call).await,
            Self::Undo(verb) => orders::undo(&verb.args, call).await,
            Self::Pause(verb) => orders::pause(&verb.args, call).await,
            Self::Resume(verb) => orders::resume(&verb.args, call).await,
            Self::Lint(verb) => lint::run(&verb.args, call),
            Self::Check(verb) => check::run(&verb.args, call).await,
            Self::Completion(verb) => completion::run(&verb.args, call),
        }
    }

    /// Whether it shows what changes until somebody has enough.
    #[must_use]
    pub const fn is_endless(&self) -> bool {
        matches!(self, Self::Status(verb) if verb.args.is_watch())
    }

    /// The flags that every command has, as they stand after this one.
    #[must_use]
    pub const fn access(&self) -> &Access {
        each!(self, verb => &verb.access)
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
pub fn report(
    error: &CliError,
    program: Program,
    access: &Access,
    err: &mut dyn std::io::Write,
) -> Exit {
    // Only of what has no end is this told: nobody reads it any more.
    if error.is_broken_pipe() {
        return Exit::Done;
    }
    let label = styled(BAD, "error:");
    // With nowhere to write to, the exit code is all there is left to say.
    let _ = writeln!(err, "{label} {}", clean_lines(&error.to_string()));
    if let Some(hint) = error.hint_for(&status::Caller::new(program, access)) {
        let _ = writeln!(err, "hint: {}", clean_lines(&program.rename(&hint)));
    }
    error.exit()
}
