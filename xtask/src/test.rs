//! `test`: the tools first, with progress on the screen, then all tests.

use belay_testenv::{Terminal, Tools};

use crate::error::Error;
use crate::{cargo, local, ui};

/// Runs `cargo test --workspace` with these further arguments.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    ui::step("tools");
    Tools::ensure(&Terminal)?.link_into(&local::dir().join("bin"))?;
    ui::step("cargo test --workspace");
    cargo::run(cargo::command(&["test", "--workspace"]).args(args))
}
