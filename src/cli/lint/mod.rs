//! `belay lint`: what is wrong with the plans in files, told without a cluster.
//!
//! Decides which files are read and what is said about them. It talks to no
//! API server, and it has no rules of its own: the schema, its CEL and the
//! webhook's own judgement are asked, so that what passes here passes there.

mod files;
mod judge;
mod metadata;
mod place;
mod report;
mod rules;
mod scalar;
mod schema;
#[cfg(test)]
mod tests;
mod yaml;

use std::{io::Read, path::PathBuf};

use clap::Args;

use super::{CliError, Document, Exit, Invocation, Output};

pub use files::Unreadable;
use judge::Judge;
pub use judge::Rule;
#[cfg(test)]
use judge::crd_schema;
pub use report::{Finding, Report};

/// Arguments of `lint`.
#[derive(Args, Debug)]
pub struct LintArgs {
    /// File, folder with all below it, or - for standard input; may be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs `lint`.
///
/// # Errors
/// The report cannot be written.
pub(super) fn run(args: &LintArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let report = lint(&args.files, &mut std::io::stdin().lock());
    let streams = &mut call.streams;
    match args.output.output {
        None => streams
            .out
            .write_all(report.text(streams.width).as_bytes())?,
        Some(format) => {
            let document = Document::new("LintReport", &report);
            super::print(streams, format, &document, &report.faulty())?;
        }
    }
    for unreadable in &report.unreadable {
        writeln!(streams.err, "{}", super::clean(unreadable))?;
    }
    Ok(report.exit())
}

/// Judges the plans in files, folders and standard input (`-`).
pub fn lint(names: &[PathBuf], stdin: &mut dyn Read) -> Report {
    let (sources, unreadable) = files::read(names, stdin);
    Report::of(&Judge::new(), &sources, &unreadable)
}
