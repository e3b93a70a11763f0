//! `belay check`: whether Belay works in a cluster, and what to do if not.
//!
//! Asks the API server and nothing else, changes nothing, and takes no longer
//! than the slowest answer. What it asks is in `gather`, what follows from the
//! answers in `judge`.
//!
//! The rights of the operator are asked for by SubjectAccessReview, with its
//! ServiceAccount as the subject: only so is it the operator that is looked at,
//! and not whoever calls. Where the caller may not ask, it says so. The caller's
//! own rights are asked for by SelfSubjectAccessReview, which everybody may.

mod admission;
mod cures;
mod facts;
mod gather;
mod hooks;
mod judge;
mod owners;
mod report;
mod rights;
#[cfg(test)]
mod tests;

use clap::Args;

pub use report::{Finding, Level, Report};

use super::{CliError, Document, Exit, Invocation, Output, names, print, status::Caller};

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Look at a cluster in which Belay is to be installed.
    #[arg(long)]
    pre: bool,

    /// Look at the workloads of the plans of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "pre")]
    all_namespaces: bool,

    /// Namespace of the operator [default: where the webhooks lead].
    #[arg(long, value_name = "NAME", conflicts_with = "pre", value_parser = names::namespace)]
    operator_namespace: Option<String>,

    #[command(flatten)]
    output: Output,
}

/// Runs `check`.
///
/// # Errors
/// The API server does not answer at all, or the report cannot be written.
pub(super) async fn run(args: &CheckArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?;
    let report = if args.pre {
        judge::judge_before(&gather::before(&session).await?)
    } else {
        let operator = args.operator_namespace.as_deref();
        let now = call.clock.now();
        let all = args.all_namespaces;
        let caller = Caller::of(call);
        judge::judge(&gather::facts(&session, all, operator, now, caller).await?)
    };
    match args.output.output {
        None => call.streams.out.write_all(report.text().as_bytes())?,
        Some(format) => {
            let document = Document::new("CheckReport", &report);
            print(&mut call.streams, format, &document, &report.failed())?;
        }
    }
    Ok(report.exit())
}
