//! `test`: the tools first, with progress on the screen, then all tests.

use belay_testenv::{Terminal, Tools};

use crate::error::Error;
use crate::{cargo, local, ui};

/// Tests at a time. Most of them wait for a cluster most of the time, so more of
/// them than there are cores get on well side by side.
const THREADS: &str = "6";
/// Variable by which the test harness takes it.
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";

/// Seed of the generated histories, so that a change is judged by itself and not
/// by its luck; `cargo test --lib` explores.
const SEED: &str = "1";
/// Variable by which proptest takes it.
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";

/// Runs `cargo test --workspace` with these further arguments.
pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    ui::step("tools");
    Tools::ensure(&Terminal)?.link_into(&local::dir().join("bin"))?;
    ui::step("cargo test --workspace");
    let mut command = cargo::command(&["test", "--workspace"]);
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        command.env(THREADS_VARIABLE, THREADS);
    }
    if std::env::var_os(SEED_VARIABLE).is_none() {
        command.env(SEED_VARIABLE, SEED);
    }
    cargo::run(command.args(args))
}
