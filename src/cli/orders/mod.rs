//! `belay abort`, `undo`, `retry`, `pause` and `resume`: orders to a plan.
//!
//! An order is one patch of the plan, by whoever calls, with no rights beyond
//! `patch` on releaseplans. What would hit nothing is refused here
//! with what is so now; the webhook, which sees it last, has the last word.

mod before;
pub(super) mod order;
mod retry;

#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::{Args, ValueEnum};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use tokio::time::Instant;

use self::order::{Order, Verb};
use super::{
    CliError, Document, Exit, GOOD, Invocation, OnePlan, Output, clean, plan_name, print,
    status::Caller, styled, wait::live::is_unseen,
};
use crate::api::StoredPlan;

/// Longest time that is given to a plan that is about to get on.
const SOON: Duration = Duration::from_secs(6);
/// Time between two looks at it.
const AGAIN: Duration = Duration::from_millis(300);

/// How far an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DryRun {
    /// The API server checks it, and changes nothing.
    Server,
}

/// Arguments of every order.
#[derive(Args, Clone, Debug)]
pub struct OrderArgs {
    #[command(flatten)]
    plan: OnePlan,

    /// Only have it checked by the API server and the webhook.
    #[arg(long, value_enum, value_name = "WHERE")]
    dry_run: Option<DryRun>,

    /// Print what kubectl can do instead, and do nothing.
    #[arg(long, conflicts_with = "dry_run")]
    show_patch: bool,

    #[command(flatten)]
    output: Output,
}

/// Arguments of `abort`.
#[derive(Args, Clone, Debug)]
pub struct AbortArgs {
    /// The revision whose release is to end [default: what is being released].
    #[arg(long, value_name = "REVISION", value_parser = crate::cli::names::object)]
    #[arg(add = super::completion::abortable_revisions())]
    revision: Option<String>,
    #[command(flatten)]
    order: OrderArgs,
}

/// Arguments of `undo`.
#[derive(Args, Clone, Debug)]
pub struct UndoArgs {
    /// The revision to go to [default: the one before the stable one, without those
    /// that were undone; during a release, the stable one].
    #[arg(long, value_name = "REVISION", value_parser = crate::cli::names::object)]
    #[arg(add = super::completion::undoable_revisions())]
    to: Option<String>,
    #[command(flatten)]
    order: OrderArgs,
}

/// Arguments of `retry`.
#[derive(Args, Clone, Debug)]
pub struct RetryArgs {
    /// The revision to try again [default: what the plan stands on now: what stopped,
    /// failed or is held].
    #[arg(long, value_name = "REVISION", value_parser = crate::cli::names::object)]
    #[arg(add = super::completion::retryable_revisions())]
    revision: Option<String>,
    #[command(flatten)]
    order: OrderArgs,
}

/// What became of an order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    namespace: String,
    name: String,
    order: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    /// What is to be said of the choice of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Whether anything was sent.
    changed: bool,
    dry_run: bool,
}

/// Ends a release.
///
/// # Errors
/// The order means nothing now, or is refused.
pub(super) async fn abort(args: &AbortArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    give(Verb::Abort, args.revision.as_deref(), &args.order, call).await
}

/// Goes back to an earlier revision.
///
/// # Errors
/// The order means nothing now, or is refused.
pub(super) async fn undo(args: &UndoArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    give(Verb::Undo, args.to.as_deref(), &args.order, call).await
}

/// Tries refused content again.
///
/// # Errors
/// The order means nothing now, or is refused.
pub(super) async fn retry(args: &RetryArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    give(Verb::Retry, args.revision.as_deref(), &args.order, call).await
}

/// Stops forward motion.
///
/// # Errors
/// The API server refuses it.
pub(super) async fn pause(args: &OrderArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    give(Verb::Pause, None, args, call).await
}

/// Goes on.
///
/// # Errors
/// The API server refuses it.
pub(super) async fn resume(args: &OrderArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    give(Verb::Resume, None, args, call).await
}

/// Why a plan that is being deleted takes no order, and what can be done. An abort
/// is meant to keep what is live, which has a setting of its own by then.
fn deleting(verb: Verb, plan: &StoredPlan, caller: &Caller) -> (String, String) {
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let message = format!("{name} is being deleted");
    match order::keep(plan).filter(|_| verb == Verb::Abort) {
        Some(keep) => {
            let keep = caller.kubectl(&keep, namespace);
            (message, format!("to let it go with what is live: {keep}"))
        }
        None => (message, caller.command("wait", name, "", namespace)),
    }
}

async fn give(
    verb: Verb,
    revision: Option<&str>,
    args: &OrderArgs,
    call: &mut Invocation<'_>,
) -> Result<Exit, CliError> {
    let mut session = call.connect().await?;
    // A pause is a matter of the spec alone.
    session.by_patch = true;
    session.unreadable = matches!(verb, Verb::Pause | Verb::Resume);
    let mut plan = session.plan(&args.plan).await?;
    let name = plan.metadata.name.clone().unwrap_or_default();
    let namespace = plan.metadata.namespace.clone().unwrap_or_default();
    let word = format!("{verb:?}").to_lowercase();
    let caller = Caller::of(call);
    let end = Instant::now() + SOON;
    let order = loop {
        if plan.is_deleting() {
            let (message, hint) = deleting(verb, &plan, &caller);
            return Err(CliError::refused(message, hint));
        }
        match verb.order(&plan, revision, &caller) {
            Ok(order) => {
                let again = order::again(verb, &plan, revision, &caller, call.clock.now());
                break again.unwrap_or(order);
            }
            Err(refusal) => {
                let soon = refusal.soon
                    || verb == Verb::Abort
                        && order::rests(&plan)
                        && is_unseen(&plan, &session).await;
                if !soon || Instant::now() >= end {
                    return Err(CliError::refused(refusal.message, refusal.hint));
                }
                tokio::time::sleep(AGAIN).await;
                plan = session.plan(&args.plan).await?;
            }
        }
    };
    if args.show_patch {
        let flags = call.access.kubectl_flags(&namespace);
        let line = order.kubectl(&name, &flags);
        let line = line.unwrap_or_else(|| "# nothing to do".to_owned());
        writeln!(call.streams.out, "{line}")?;
        if let Order::Annotation {
            note: Some(note), ..
        } = &order
        {
            writeln!(call.streams.err, "# {}", clean(note))?;
        }
        return Ok(Exit::Done);
    }
    let dry_run = args.dry_run.is_some();
    let mut given = Given {
        namespace,
        name: name.clone(),
        order: word.clone(),
        revision: None,
        note: None,
        changed: true,
        dry_run,
    };
    let text = match &order {
        Order::Nothing(text) => {
            given.changed = false;
            text.clone()
        }
        Order::Annotation { revision, note, .. } => {
            given.revision = Some(revision.clone());
            given.note.clone_from(note);
            let of = if verb == Verb::Undo { "to" } else { "of" };
            let note = note.as_ref();
            let note = note.map_or_else(String::new, |note| format!("; {note}"));
            format!("{word} {of} {revision} asked for{note}")
        }
        Order::Paused(true) => "paused".to_owned(),
        Order::Paused(false) => "resumed".to_owned(),
    };
    if let Some(patch) = order.patch() {
        let params = PatchParams {
            dry_run,
            ..PatchParams::default()
        };
        let api = Api::<StoredPlan>::namespaced(session.client, &given.namespace);
        api.patch(&name, &params, &Patch::Merge(&patch))
            .await
            .map_err(|error| CliError::api(format!("{word} releaseplan/{name}"), error))?;
    }
    if let Some(format) = args.output.output {
        let document = Document::new("Order", given);
        print(&mut call.streams, format, &document, &[plan_name(&name)])?;
        return Ok(Exit::Done);
    }
    let dry = if dry_run { " (server dry run)" } else { "" };
    let object = styled(GOOD, &plan_name(&name));
    writeln!(call.streams.out, "{object} {}{dry}", clean(&text))?;
    Ok(Exit::Done)
}
