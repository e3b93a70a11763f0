//! Which refused content `retry` tries by itself.
//!
//! Pure. Without a name it is only what the plan stands on now: what stopped, failed
//! or is held. What was refused once and corrected since would put content live again
//! of which it is known that it is bad, so that has to be named.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::order::{About, Refusal, now, refusal};
use crate::{
    api::{Cause, ConditionType, Reason, RefusedContent, ReleasePlanStatus, Stage, StoredPlan},
    cli::status::held::{comes_again, held},
    plan::{Plan, as_seen, current, failed, is_gone_from_plan, retryable, unbegun},
};

/// Reasons that tell of content that was refused, wherever that came from.
const REFUSED: [Reason; 6] = [
    Reason::RolledBack,
    Reason::Undone,
    Reason::ReleaseFailed,
    Reason::RollbackAborted,
    Reason::Frozen,
    Reason::Contended,
];

/// What is to be tried again; `named` is the revision asked for.
pub(super) fn retry<'a>(
    about: &About<'_>,
    plan: &StoredPlan,
    status: &'a ReleasePlanStatus,
    named: Option<&'a str>,
) -> Result<&'a str, Refusal> {
    let name = about.name;
    let known = retryable(status);
    let content_of = as_seen(plan).ok();
    let content = content_of.as_ref().map(Plan::content);
    // Content that has left the plan cannot be tried again.
    let gone = |revision: &str| {
        content.is_some_and(|content| is_gone_from_plan(status, content, revision))
    };
    let stopped = current(status).or_else(|| failed(status).filter(|failed| !gone(failed)));
    // Nor is what is on its way again anyway.
    let comes = |revision: &str| {
        let mut refused = status.refused.iter().filter(|r| r.revision == revision);
        let asked = |r: &RefusedContent| content.is_some() && r.spec.as_deref() == content;
        refused.any(|r| asked(r) && comes_again(content_of.as_ref(), status, r))
    };
    let applies = |revision: &str| stopped == Some(revision) || !gone(revision) && !comes(revision);
    // What holds the plan is what it asks for, and what is live needs no release.
    let holds = held(content_of.as_ref(), status).map(|(refused, _)| refused.revision.as_str());
    let holds = holds.filter(|_| stopped.is_none_or(|stopped| !known.contains(&stopped)));
    let stable = status.stable_revision.as_deref();
    let others: Vec<&str> = known
        .iter()
        .copied()
        .filter(|name| Some(*name) != stable)
        .collect();
    let latest = others.iter().rev().copied().find(|name| applies(name));
    let default = holds
        .filter(|holds| others.contains(holds) && applies(holds))
        .or_else(|| latest.filter(|_| stands_on_refused(status)));
    match (default, named) {
        (_, Some(named)) if known.contains(&named) => Ok(named),
        (Some(last), None) => Ok(last),
        (Some(last), Some(named)) => refusal(
            format!(
                "{name} has not refused {named}; refused or failed are: {}",
                known.join(", ")
            ),
            about.command("retry", &format!("--revision {last}")),
        ),
        (None, None) if others.iter().any(|name| comes(name)) => {
            let coming: Vec<&str> = others.iter().copied().filter(|n| comes(n)).collect();
            refusal(
                format!(
                    "what was refused of {name} ({}) comes again by itself, beside other content of what failed: {}",
                    coming.join(", "),
                    now(status)
                ),
                about.command("status", ""),
            )
        }
        (None, None) if latest.is_some() => {
            let latest = latest.unwrap_or_default();
            refusal(
                format!(
                    "nothing that was refused of {name} is what it stands on now: {}; {}",
                    now(status),
                    told(status, latest, others.len())
                ),
                format!(
                    "to release that nevertheless: {}",
                    about.command("retry", &format!("--revision {latest}"))
                ),
            )
        }
        (None, None) if !others.is_empty() => refusal(
            format!(
                "what was refused of {name} is no longer what it asks for ({}): {}",
                known.join(", "),
                now(status)
            ),
            format!(
                "with its content in the plan again, name it with --revision: {}",
                about.history()
            ),
        ),
        (None, Some(named)) if !known.is_empty() => refusal(
            format!(
                "{name} has not refused {named}; refused or failed are: {}",
                known.join(", ")
            ),
            about.history(),
        ),
        (None, _) if !known.is_empty() => refusal(
            format!(
                "{} is stable, and nothing else was refused of {name}: {}",
                known.join(", "),
                now(status)
            ),
            match unbegun(status) {
                Some(to) => format!(
                    "to take the undo back: {}",
                    about.command("abort", &format!("--revision {to}"))
                ),
                None => about.history(),
            },
        ),
        (None, _) => refusal(
            format!("{name} has nothing to try again: {}", now(status)),
            about.history(),
        ),
    }
}

/// Whether the plan is where it is since something was refused. What goes on is about
/// other content.
fn stands_on_refused(status: &ReleasePlanStatus) -> bool {
    let stage = status.release.as_ref().map(|release| release.stage);
    if let Some(stage) = stage {
        return stage == Stage::Stopped;
    }
    if failed(status).is_some() {
        // Also while a repair of a first release may still get available.
        return true;
    }
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    ready.is_some_and(|ready| {
        ready.status != "True" && REFUSED.iter().any(|r| r.as_str() == ready.reason)
    })
}

/// "shop-1 was refused at 2026-03-01 11:50:00Z, ContainerRestarts of component web":
/// the last of several.
fn told(status: &ReleasePlanStatus, revision: &str, of: usize) -> String {
    let mut refused = status.refused.iter();
    let refused = refused.find(|refused| refused.revision == revision);
    let more = match of.saturating_sub(1) {
        0 => String::new(),
        more => format!(" ({more} more)"),
    };
    let Some(refused) = refused else {
        return format!("{revision} failed{more}");
    };
    let Time(at) = &refused.at;
    let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
    let why = match (refused.cause, &refused.component) {
        (Cause::Undone, _) => refused.message.clone(),
        (cause, Some(component)) => format!("{cause:?} of component {component}"),
        (cause, None) => format!("{cause:?}"),
    };
    format!("{revision} was refused at {at}, {why}{more}")
}
