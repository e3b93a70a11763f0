//! `belay wait`: waits until a release has ended, and tells how.
//!
//! Watches the plans, and never takes an older result for that of the release
//! asked for. Here is what can be asked for, and the order in which it is done;
//! what a plan's word means is decided in [`verdict`].

mod follow;
pub(super) mod live;
mod orders;
mod reads;
mod told;
mod verdict;
mod waited;

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;

use self::{
    follow::{follow, shared},
    reads::Reads,
    told::{WaitResult, exit, worse},
    waited::Waited,
};
use super::status::Caller;
use super::{CliError, Exit, Invocation, Kind, Session, SomePlans, Streams, Target};
use crate::api::{GatewayDuration, StoredPlan};

/// Longest time that a look takes without a wait; shorter than that of a request.
const LOOK: Duration = Duration::from_secs(20);
/// Longest time that is taken to find out why nothing has come to an end.
const LAST: Duration = Duration::from_secs(5);

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum For {
    /// The content asked for is released and healthy.
    Released,
    /// Everything is back on the stable revision.
    Rolledback,
    /// The earlier revision that was asked for is live.
    Undone,
    /// Nothing goes on by itself any more, however it ended.
    Settled,
}

/// Form of the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A JSON document on one line.
    Json,
}

/// Arguments of `wait`.
#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    plans: SomePlans,

    /// What to wait for.
    #[arg(
        long = "for",
        value_name = "WHAT",
        value_enum,
        default_value = "released"
    )]
    goal: For,

    /// Longest wait; 0 tells how it is now.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = timeout)]
    timeout: Duration,

    /// Release generation to wait for [default: that of the file, or else that
    /// of the plan now].
    #[arg(long, value_name = "NUMBER")]
    generation: Option<i64>,

    /// Print the result as JSON.
    #[arg(short, long, value_enum, value_name = "FORM", help_heading = super::COMMON)]
    output: Option<Form>,
}

fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    text.parse::<GatewayDuration>()
        .map(GatewayDuration::get)
        .map_err(|error| error.to_string())
}

/// Waits, and tells how it ended.
///
/// # Errors
/// A plan that is not there, or that cannot be watched.
pub(super) async fn run(args: &WaitArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let named = !args.plans.targets.is_empty() || !args.plans.files.is_empty();
    if !named && !args.plans.all_namespaces && args.plans.selector.is_none() {
        return Err(CliError::usage(
            "say which plan to wait for",
            "belay wait NAME",
        ));
    }
    let session = call.connect().await?;
    let targets = args.plans.targets().await?;
    let begun = tokio::time::Instant::now();
    let (limit, once) = if args.timeout.is_zero() {
        (LOOK, Some(call.clock.now()))
    } else {
        (args.timeout, None)
    };
    let first = begin(args, &targets, &session, once, &mut call.streams);
    let Ok(waited) = tokio::time::timeout_at(begun + limit, first).await else {
        let namespace = session.namespace.as_str();
        let namespace = Some(namespace).filter(|_| !args.plans.all_namespaces);
        let all = WaitResult::unanswered(&targets, namespace, args.generation, &session)?;
        for result in all {
            result.print(&mut call.streams, args.output, Exit::Timeout)?;
        }
        return Ok(Exit::Timeout);
    };
    let mut waited = waited?;
    if !waited.iter().all(|w| w.over) && once.is_none() {
        let going = follow(&session, &mut waited, &mut call.streams);
        if let Ok(outcome) = tokio::time::timeout_at(begun + limit, going).await {
            outcome?;
        }
    }
    let mut worst = Exit::Done;
    let (now, caller) = (call.clock.now(), Caller::of(call));
    let none = BTreeSet::new();
    let mut reads = Reads::new(&session, &none);
    let end = tokio::time::Instant::now() + LAST;
    for mut waited in waited {
        let exit = exit(waited.outcome(), args.goal);
        if exit == Exit::Timeout {
            let unseen = waited.unseen(&mut reads);
            // Whoever waited in vain is not to wait for the reason.
            let unseen = tokio::time::timeout_at(end, unseen)
                .await
                .unwrap_or_default();
            let due = waited.unjudged(&session, now, &caller);
            let due = tokio::time::timeout_at(end, due).await.unwrap_or_default();
            waited.late(args.timeout, now, &caller, (&unseen, due));
        }
        worst = worse(worst, exit);
        WaitResult::of(waited, exit).print(&mut call.streams, args.output, exit)?;
    }
    Ok(worst)
}

/// The plans as they are now.
async fn begin(
    args: &WaitArgs,
    targets: &[Target],
    session: &Session,
    once: Option<Timestamp>,
    streams: &mut Streams<'_>,
) -> Result<Vec<Waited>, CliError> {
    let some = SomePlans {
        targets: targets.to_vec(),
        files: Vec::new(),
        ..args.plans.clone()
    };
    let plans = session.plans(&some).await?;
    if plans.is_empty() {
        session.found_none(&args.plans, streams).await?;
        return Err(CliError::usage(
            "there is no plan to wait for",
            "belay wait NAME",
        ));
    }
    let namespaces = plans.iter().filter_map(|p| p.metadata.namespace.as_deref());
    let shared = shared(namespaces);
    let mut reads = Reads::new(session, &shared);
    let mut waited = Vec::new();
    for plan in plans {
        let told = targets
            .iter()
            .find(|target| is(target, &plan, &session.namespace));
        let of_file = told.and_then(|target| target.generation);
        let asked = (args.generation.or(of_file), args.generation.is_some());
        let mut one = Waited::new(plan.clone(), targets, &session.namespace, asked, once);
        if !one.over {
            one.see(&plan, &mut reads, streams).await?;
        }
        waited.push(one);
    }
    Ok(waited)
}

/// Whether a target is this plan; `namespace` is that of targets that name
/// none.
fn is(target: &Target, plan: &StoredPlan, namespace: &str) -> bool {
    let own = target.namespace.as_deref().unwrap_or(namespace);
    target.kind == Kind::Plan
        && plan.metadata.name.as_ref() == Some(&target.name)
        && plan.metadata.namespace.as_deref() == Some(own)
}
