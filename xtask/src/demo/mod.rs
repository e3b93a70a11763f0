//! `demo`: the main job from start to end, as a story whose every claim is
//! checked. It succeeds only if all of them held.

mod checks;
mod configuration;
mod manifests;
mod place;
mod screen;
mod shell;
mod story;
mod timing;

use std::path::Path;

use place::Place;
use screen::Screen;
use shell::Shell;

use crate::error::Error;

/// How the demo is to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave the cluster and the operator running, under target/cluster; end
    /// them with `cargo xtask down`. Only for a cluster of the demo's own.
    #[arg(long)]
    keep: bool,
    /// With KUBECONFIG: address of this machine at which that cluster's API
    /// server reaches the webhooks.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    webhook_host: std::net::IpAddr,
}

/// Why the story ended early.
pub(crate) enum Stop {
    /// A claim that did not hold.
    Claim(String),
    /// Something else that the person should know.
    Other(String),
}

impl Stop {
    fn file(path: &Path, source: &std::io::Error) -> Self {
        Self::Other(format!("cannot write {}: {source}", path.display()))
    }
}

impl From<belay_testenv::Error> for Stop {
    fn from(error: belay_testenv::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Claim(what) => Self::Claim(what),
            Stop::Other(text) => Self::Demo(text),
        }
    }
}

/// Tells the story.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let screen = Screen::new();
    screen.text("Belay, from start to end. Every line with ✓ was checked.");
    let place = Place::prepare(options, &screen)?;
    let told = Shell::new(&place, &screen).and_then(|shell| {
        let told = story::tell(&shell);
        if told.is_err() {
            dump(&shell);
        }
        told
    });
    screen.text("");
    // What went wrong in the story matters more than what does at its end.
    let ended = place.end(options.keep, &screen);
    told?;
    ended?;
    screen.text(&format!(
        "All {} claims held, in {:.0} s.",
        screen.claims(),
        screen.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Shows all that helps to understand why a claim did not hold.
fn dump(shell: &Shell<'_>) {
    let screen = shell.screen;
    screen.text("");
    screen.text("What there is:");
    for args in [
        ["get", "relplan", "-o", "yaml"].as_slice(),
        &["get", "deployments,replicasets,pods", "-o", "wide"],
        &["get", "events", "--sort-by=.metadata.creationTimestamp"],
    ] {
        // As much as there is.
        let _ = shell.kubectl(args, shell::Show::All);
    }
    screen.text("The end of the operator's log:");
    screen.quote(&shell.place.log_tail(40));
}
