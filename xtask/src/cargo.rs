//! Runs cargo, in the workspace, with its output on the screen.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::Error;

/// A cargo call in the workspace, by the same cargo that runs this program.
pub(crate) fn command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(args)
        .current_dir(belay_testenv::workspace_root());
    // What cargo tells this program about itself is not meant for the builds it
    // starts: some build scripts look at it, and would run again each time
    // after a build that was started by hand.
    for (name, _) in std::env::vars_os() {
        let of_this_program = name.to_str().is_some_and(|name| {
            [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_BIN_",
                "CARGO_CRATE_",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        });
        if of_this_program {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let status = command.status().map_err(|source| Error::Run {
        program: name(command),
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed {
            command: words(command),
            status: status.to_string(),
        })
    }
}

/// Runs it to its end and returns what it printed; errors go to the screen.
pub(crate) fn stdout(command: &mut Command) -> Result<String, Error> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Error::Run {
            program: name(command),
            source,
        })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Failed {
            command: words(command),
            status: output.status.to_string(),
        })
    }
}

/// Builds a binary of the workspace for release and says where it is.
pub(crate) fn build_release(bin: &str) -> Result<PathBuf, Error> {
    let messages = stdout(&mut command(&[
        "build",
        "--release",
        "--bin",
        bin,
        "--message-format=json-render-diagnostics",
    ]))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == bin)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| Error::NoBinary(bin.to_owned()))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn words(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut words = program
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    for arg in command.get_args() {
        words.push(' ');
        words.push_str(&arg.to_string_lossy());
    }
    words
}
