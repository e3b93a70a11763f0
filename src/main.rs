//! The `belay` binary: reads the command line and hands over.

use std::{io::Write as _, process::ExitCode};

use belay::{
    cli::{self, Access, CliError, Exit, Invocation, Program, Standard, Verb},
    clock::SystemClock,
    config::{Cli, Command, RunArgs},
    controller, run, telemetry,
};
use clap::FromArgMatches as _;

fn main() -> ExitCode {
    let argv0 = std::env::args_os().next();
    let program = Program::from_argv0(argv0.as_deref());
    if program == Program::Complete {
        let words = std::env::args_os().skip(1).collect();
        // A shell in the middle of a line has no use for an error.
        let _ = cli::answer_kubectl(words, &mut std::io::stdout());
        return ExitCode::SUCCESS;
    }
    match cli::answer_shell() {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => error.exit(),
    }
    let matches = program.command().get_matches();
    let Cli { access, command } = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match command {
        Command::Verb(verb) => person(program, &verb, access).into(),
        Command::Run(_) | Command::Crd if access != Access::default() => {
            let _ =
                fail("flags in front of the command are for people's commands: put them after it");
            Exit::Error.into()
        }
        Command::Run(args) => match start(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        Command::Crd => match print_crd() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
    }
}

/// A failure to start, which may come before there are logs.
#[allow(clippy::print_stderr, reason = "there may be no logs yet")]
fn fail(error: &str) -> ExitCode {
    eprintln!("belay: {error}");
    ExitCode::FAILURE
}

fn print_crd() -> Result<(), String> {
    let yaml = belay::api::crd_yaml()?;
    std::io::stdout()
        .write_all(yaml.as_bytes())
        .map_err(|error| error.to_string())
}

fn start(args: &RunArgs) -> Result<(), String> {
    telemetry::init(args.log_format, &args.log).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime
        .block_on(run::run(args, controller::run))
        .map_err(|error| error.to_string())
}

/// A command for people, which one thread is enough for.
fn person(program: Program, verb: &Verb, access: Access) -> Exit {
    let access = verb.access().clone().over(access);
    let mut standard = Standard::new(access.color.unwrap_or_default(), verb.is_endless());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let mut call = Invocation {
                program,
                access: access.clone(),
                streams: standard.streams(),
                clock: &SystemClock,
            };
            let outcome = runtime.block_on(async {
                tokio::select! {
                    // First, so that what never waits is interrupted as any
                    // program is.
                    biased;
                    outcome = verb.run(&mut call) => outcome,
                    Ok(()) = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
                }
            });
            // A read of standard input may never come to its end.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(CliError::Output(error)),
    };
    let streams = standard.streams();
    let report = |error| cli::report(&error, program, &access, streams.err);
    let exit = outcome.unwrap_or_else(report);
    let _ = streams.out.flush();
    exit
}
