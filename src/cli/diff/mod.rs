//! `belay diff`: what the next release would change, as the API server would
//! merge it.
//!
//! Asks by server dry run with the caller's own rights, so it needs `patch` on
//! the Deployments, and says so where that is missing: a guess of ours could say
//! "nothing" and be wrong. Writes nothing.

mod contents;
mod file;
mod model;
mod part;
mod render;
mod server;

#[cfg(test)]
mod tests;

use clap::Args;

pub use self::model::{ComponentDiff, FieldChange, Part, PlanDiff};
use self::{file::plans_in, server::Shared};
use super::{
    CliError, Document, Exit, Invocation, OnePlan, Output, print_all, read, status::Caller,
};

/// Which plan, and in which form.
#[derive(Args, Clone, Debug, Default)]
pub struct DiffArgs {
    #[command(flatten)]
    plan: OnePlan,

    /// Print one line for each field instead of a unified diff.
    #[arg(long)]
    paths: bool,

    #[command(flatten)]
    output: Output,
}

/// Shows what the next release of a plan would change.
///
/// # Errors
/// It cannot be told; the plan would be refused; the answer cannot be written.
pub async fn run(args: &DiffArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?;
    let caller = Caller::of(call);
    let wanted = match &args.plan.file {
        Some(path) => {
            let text = read(path).await?;
            plans_in(&text, &session, path)?
        }
        None => vec![session.plan(&args.plan).await?],
    };
    let from_file = args.plan.file.is_some();
    let mut diffs: Vec<PlanDiff> = Vec::new();
    let mut shared = Shared::of(&wanted);
    for plan in &wanted {
        let namespace = plan.metadata.namespace.clone().unwrap_or_default();
        let here = shared.entry(namespace).or_default();
        diffs.push(server::diff(&session, plan, from_file, &caller, here).await?);
    }
    let faulty = diffs.iter().any(|diff| !diff.faults.is_empty());
    let changed = diffs.iter().any(PlanDiff::is_change);
    match args.output.output {
        None => {
            for diff in &diffs {
                render::write(diff, args.paths, &mut call.streams)?;
            }
        }
        Some(format) => {
            let names: Vec<String> = diffs.iter().flat_map(PlanDiff::names).collect();
            let all = diffs
                .into_iter()
                .map(|diff| Document::new("PlanDiff", diff));
            let all = all.collect();
            print_all(&mut call.streams, format, "PlanDiffList", all, true, &names)?;
        }
    }
    Ok(match (faulty, changed) {
        (true, _) => Exit::Error,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Done,
    })
}
