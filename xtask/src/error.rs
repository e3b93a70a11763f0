//! The error type of the commands.

use std::path::PathBuf;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The control plane or the operator.
    #[error(transparent)]
    Environment(#[from] belay_testenv::Error),
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Run {
        program: String,
        source: std::io::Error,
    },
    /// A program said no; it has told the person why.
    #[error("{command} failed ({status})")]
    Failed { command: String, status: String },
    /// cargo did not say where the binary is.
    #[error("cargo built no binary {0}: is it still declared in Cargo.toml?")]
    NoBinary(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A link could not be made.
    #[error("cannot link {path}: {source}")]
    Link {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The generated CRD in the tree is not what the types say.
    #[error(
        "{path} is not what the Rust types say; write it anew with: cargo run --bin belay -- crd > {path}"
    )]
    CrdDrift { path: String },
    /// Some checks failed.
    #[error("failed: {0}")]
    Checks(String),
    /// Something that the demo claims does not hold.
    #[error("a claim did not hold: {0}")]
    Claim(String),
    /// The demo could not go on.
    #[error("{0}")]
    Demo(String),
    /// The operator does not count what is to be measured.
    #[error("/metrics of the operator has no {0}: was it renamed?")]
    NoMetric(String),
}
