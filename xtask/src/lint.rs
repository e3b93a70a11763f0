//! `lint`: every check that needs no cluster. All of them run, so that one
//! call shows all that is wrong.

use std::process::Command;

use belay_testenv::{Terminal, cargo_tool, workspace_root};

use crate::cargo;
use crate::error::Error;
use crate::ui;

const CARGO_DENY: &str = "0.20.2";
const CRD: &str = "crds/releaseplans.belay.dev.yaml";

type Check = (&'static str, fn() -> Result<(), Error>);

const CHECKS: &[Check] = &[
    ("format", format),
    ("clippy", clippy),
    ("generated CRD", crd),
    ("dependencies: licences, bans, sources", dependencies),
    ("dependencies: advisories", advisories),
];

/// Runs all checks; fails if one of them does.
pub(crate) fn run() -> Result<(), Error> {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        ui::step(name);
        if let Err(error) = check() {
            ui::error(&error.to_string());
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        ui::say("all checks passed");
        Ok(())
    } else {
        Err(Error::Checks(failed.join("; ")))
    }
}

fn format() -> Result<(), Error> {
    cargo::run(&mut cargo::command(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Error> {
    cargo::run(&mut cargo::command(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

fn crd() -> Result<(), Error> {
    let path = workspace_root().join(CRD);
    let generated = cargo::stdout(&mut cargo::command(&[
        "run", "--quiet", "--bin", "belay", "--", "crd",
    ]))?;
    let committed =
        std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    if generated == committed {
        Ok(())
    } else {
        Err(Error::CrdDrift {
            path: CRD.to_owned(),
        })
    }
}

fn dependencies() -> Result<(), Error> {
    cargo::run(deny()?.args(["check", "licenses", "bans", "sources"]))
}

/// The database of advisories is not a package; where it cannot be fetched
/// nothing can be checked, which is said and is no failure.
fn advisories() -> Result<(), Error> {
    if cargo::run(deny()?.args(["fetch", "db"])).is_err() {
        ui::say("SKIPPED: the advisory database cannot be reached from here");
        return Ok(());
    }
    cargo::run(deny()?.args(["--offline", "check", "advisories"]))
}

fn deny() -> Result<Command, Error> {
    let binary = cargo_tool("cargo-deny", CARGO_DENY, &Terminal)?;
    let mut command = Command::new(binary);
    command.current_dir(workspace_root());
    Ok(command)
}
