//! Development commands of Belay, behind `cargo xtask`.

mod bench;
mod cargo;
mod demo;
mod error;
mod lint;
mod local;
mod metrics;
mod test;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// See the main job done on a real control plane, every claim checked.
    Demo(demo::Options),
    /// Start a control plane and the operator in the background, under
    /// target/cluster. What runs already is left alone.
    Up {
        /// Only the control plane.
        #[arg(long)]
        no_operator: bool,
    },
    /// End what `up` started and remove its data. Logs stay.
    Down,
    /// Run all tests, on control planes of their own.
    Test {
        /// Passed on to `cargo test --workspace`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure what the operator costs and how fast it is.
    Bench(bench::Options),
    /// Check format, lints, the generated CRD, and dependencies.
    Lint,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Up { no_operator } => local::up(!no_operator),
        Command::Down => local::down(),
        Command::Test { args } => test::run(&args),
        Command::Bench(options) => bench::run(&options),
        Command::Lint => lint::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui::error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
