//! The `belay` binary: reads the command line and hands over.

use std::process::ExitCode;

use belay::{
    config::{Cli, Command, RunArgs},
    run, telemetry,
};
use clap::Parser as _;

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the CRD is output, and a failure to start may come before there are logs"
)]
fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Crd => belay::api::crd_yaml().map(|yaml| print!("{yaml}")),
        Command::Run(args) => start(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &RunArgs) -> Result<(), String> {
    telemetry::init(args.log_format, &args.log).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let controller = |context: run::Context| async move {
        tracing::warn!("this build has no controller: plans are admitted, and nothing else");
        context.stop.cancelled().await;
        Ok(())
    };
    runtime
        .block_on(run::run(args, controller))
        .map_err(|error| error.to_string())
}
