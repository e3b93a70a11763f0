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

pub use files::Unreadable;
pub use judge::Rule;
#[cfg(test)]
use judge::crd_schema;
pub use report::{Finding, Report};

/// Judges the plans in files, folders and standard input (`-`).
pub fn lint(names: &[PathBuf], stdin: &mut dyn Read) -> Report {
    let (sources, unreadable) = files::read(names, stdin);
    Report::of(&sources, &unreadable)
}
