//! What an order says and whether it means anything now.
//!
//! Pure. Each order names a revision, so that one that comes late hits nothing;
//! what may be named is asked of [`crate::plan`], as the webhook does.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{
    before::{Before, before, is_live, renamed},
    retry::retry,
};
use crate::{
    api::{
        ABORT, Cause, ConditionType, Phase, RETRY, Reason, ReleasePlanStatus, Stage, StoredPlan,
        UNDO,
    },
    cli::{
        access::quoted,
        status::{Caller, pods::age, undone::remark},
    },
    plan::{TWICE, abortable, is_just_aborted, is_lost, undoable},
};

/// What is asked of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// End the release, or the rollback where it is.
    Abort,
    /// Bring an earlier revision back.
    Undo,
    /// Try refused content again.
    Retry,
    /// Stop forward motion.
    Pause,
    /// Go on.
    Resume,
}

/// An order as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// An annotation that names a revision.
    Annotation {
        /// Its name.
        name: &'static str,
        /// The revision.
        revision: String,
        /// What to say of the choice of it.
        note: Option<String>,
    },
    /// `spec.paused`.
    Paused(bool),
    /// It is so already; what is said of the plan.
    Nothing(String),
}

/// Why an order would hit nothing, or the wrong thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What is so now.
    pub(super) message: String,
    /// What can be done.
    pub(super) hint: String,
    /// Whether the plan is about to get on, so that it means something then.
    pub(super) soon: bool,
}

pub(super) fn refusal<T>(message: String, hint: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        message,
        hint: hint.into(),
        soon: false,
    })
}

/// The plan that an order is about, and how commands about it are written.
pub(super) struct About<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) caller: &'a Caller,
}

impl About<'_> {
    pub(super) fn command(&self, verb: &str, more: &str) -> String {
        self.caller.command(verb, self.name, more, self.namespace)
    }

    pub(super) fn history(&self) -> String {
        self.command("history", "")
    }

    /// What is said of a plan whose status is gone, and with it `what`; and the
    /// command that goes on.
    fn lost(&self, status: &ReleasePlanStatus, what: &str) -> (String, String) {
        let kept = ready(status).rsplit_once("; kept: ").map(|(_, kept)| kept);
        let kept = kept.and_then(|kept| kept.split("; ").next());
        let kept = kept.map_or_else(String::new, |kept| format!("; kept are: {kept}"));
        let name = self.name;
        let hint = match offered(status) {
            Some(to) => format!(
                "to go back to one: {}",
                self.command("undo", &format!("--to {to}"))
            ),
            None => format!(
                "name one with --to, once {} lists them",
                self.command("status", "")
            ),
        };
        (
            format!("the status of {name} is gone, and with it {what}{kept}"),
            hint,
        )
    }
}

/// Why no release of a plan is known, and a hint: its status is gone, or the operator
/// has not looked at it. None if there was none.
pub(in crate::cli) fn untold(
    plan: &StoredPlan,
    caller: &Caller,
) -> Option<(String, Option<String>)> {
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let about = About {
        name,
        namespace: plan.metadata.namespace.as_deref().unwrap_or_default(),
        caller,
    };
    match &plan.status {
        Some(status) if is_lost(status) => {
            let (message, hint) = about.lost(status, "the records of its releases");
            Some((message, Some(hint)))
        }
        Some(status) if !status.conditions.is_empty() => None,
        Some(_) | None => {
            let message = format!(
                "the operator has not looked at {name} yet, so that no release of it is known"
            );
            Some((message, None))
        }
    }
}

impl Verb {
    /// The order that this makes of a plan; `named` is the revision asked for.
    pub(super) fn order(
        self,
        plan: &StoredPlan,
        named: Option<&str>,
        caller: &Caller,
    ) -> Result<Order, Refusal> {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        let about = &About {
            name,
            namespace: plan.metadata.namespace.as_deref().unwrap_or_default(),
            caller,
        };
        let empty = ReleasePlanStatus::default();
        let status = plan.status.as_ref().unwrap_or(&empty);
        match self {
            Self::Abort => {
                let order = abort(about, status, named).map(|revision| Order::Annotation {
                    name: ABORT,
                    revision: revision.to_owned(),
                    note: stays(status),
                });
                order.map_err(|refusal| Refusal {
                    soon: refusal.soon || begins(plan, status),
                    ..refusal
                })
            }
            Self::Undo => undo(about, status, named),
            Self::Retry => retry(about, plan, status, named).map(|revision| {
                let mut refused = status.refused.iter();
                let undone = refused.find(|r| r.revision == revision && r.cause == Cause::Undone);
                Order::Annotation {
                    name: RETRY,
                    revision: revision.to_owned(),
                    note: undone.and_then(|refused| remark(status, refused)),
                }
            }),
            Self::Pause => Ok(paused(plan, true)),
            Self::Resume => Ok(paused(plan, false)),
        }
    }
}

/// What is said of an abort that goes back to nothing, or no further.
fn stays(status: &ReleasePlanStatus) -> Option<String> {
    let Some(stable) = &status.stable_revision else {
        let text = "nothing was stable before, so what is live stays as it is";
        return Some(text.to_owned());
    };
    let stage = status.release.as_ref().map(|release| release.stage);
    (stage == Some(Stage::Restore))
        .then(|| format!("this ends the rollback to {stable} where it is: what is live stays"))
}

/// What is said of an order that was given a moment ago, and that would undo itself if
/// it were given again: two people, or one who pressed twice, mean the same.
pub(super) fn again(
    verb: Verb,
    plan: &StoredPlan,
    named: Option<&str>,
    caller: &Caller,
    now: Timestamp,
) -> Option<Order> {
    match verb {
        Verb::Abort => goes_back(plan, now),
        Verb::Undo if named.is_none() => goes_already(plan, caller, now),
        Verb::Undo | Verb::Retry | Verb::Pause | Verb::Resume => None,
    }
}

/// An undo without a name goes to the stable revision while one is under way, which
/// would take it back.
fn goes_already(plan: &StoredPlan, caller: &Caller, now: Timestamp) -> Option<Order> {
    let release = plan.status.as_ref()?.release.as_ref()?;
    let goes_on = matches!(release.stage, Stage::Settle | Stage::Promote | Stage::Bake);
    let since = Time(release.started_at.0);
    let to = release.undo.as_ref()?;
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    // A retry of what froze goes to a revision in the same way.
    let is_asked = goes_on && !release.retried;
    (is_asked && age(&since, now) < TWICE).then(|| {
        Order::Nothing(format!(
            "goes to {to} already, as was asked a moment ago; to take that back: {}",
            caller.command("abort", name, "", namespace)
        ))
    })
}

/// What is said of an abort that the operator would not take again.
fn goes_back(plan: &StoredPlan, now: Timestamp) -> Option<Order> {
    let status = plan.status.as_ref()?;
    let stable = status.stable_revision.as_deref().unwrap_or_default();
    is_just_aborted(status, now).then(|| {
        Order::Nothing(format!(
            "was aborted a moment ago and goes back to {stable} already; to end that where it is, give the order again in {} s",
            TWICE.as_secs()
        ))
    })
}

fn paused(plan: &StoredPlan, wanted: bool) -> Order {
    let is_paused = plan.spec["paused"].as_bool().unwrap_or_default();
    match (is_paused, wanted) {
        (true, true) => Order::Nothing("is paused already".to_owned()),
        (false, false) => Order::Nothing("is not paused".to_owned()),
        _ => Order::Paused(wanted),
    }
}

/// Whether a release is about to begin: an edit that nobody has looked at, or content
/// that is prepared.
fn begins(plan: &StoredPlan, status: &ReleasePlanStatus) -> bool {
    let unseen = status.observed_generation < plan.metadata.generation;
    let settles = status.conditions.iter().any(|condition| {
        condition.type_ == "Ready" && condition.reason == Reason::Settling.as_str()
    });
    abortable(status).is_none() && (unseen || settles)
}

/// Whether a plan is at rest, so that what is live is what was judged unless somebody
/// changed it since. Where the operator gave in to another writer, that one's is.
pub(super) fn rests(plan: &StoredPlan) -> bool {
    plan.status.as_ref().is_some_and(|status| {
        let gave_in = |c: &Condition| {
            c.type_ == ConditionType::Ready.as_str() && c.reason == Reason::Contended.as_str()
        };
        status.release.is_none()
            && status.stable_revision.is_some()
            && !status.conditions.iter().any(gave_in)
    })
}

fn abort<'a>(
    about: &About<'_>,
    status: &'a ReleasePlanStatus,
    named: Option<&str>,
) -> Result<&'a str, Refusal> {
    let name = about.name;
    match (abortable(status), named) {
        (Some(now), None) => Ok(now),
        (Some(now), Some(named)) if now == named => Ok(now),
        (Some(now), Some(named)) => refusal(
            format!("{name} does not release {named} but {now}"),
            about.command("abort", &format!("--revision {now}")),
        ),
        (None, _) => {
            let settles = status.release.as_ref();
            let settles = settles.filter(|release| release.stage == Stage::Settle);
            if let Some(before) = settles.and_then(|release| release.applied.last()) {
                return Err(Refusal {
                    message: format!(
                        "{name} is preparing a release that has no name yet, so that nothing can end it; {before}, of which it takes the place, is live in part or whole: {}",
                        ready(status)
                    ),
                    hint: format!("once it has a name: {}", about.command("abort", "")),
                    soon: true,
                });
            }
            if settles.is_some() {
                return refusal(
                    format!(
                        "{name} is preparing a release that has no name yet; nothing of it is live"
                    ),
                    format!("to keep it from going on: {}", about.command("pause", "")),
                );
            }
            refusal(
                format!("{name} has no release to abort: {}", now(status)),
                about.history(),
            )
        }
    }
}

fn undo(
    about: &About<'_>,
    status: &ReleasePlanStatus,
    named: Option<&str>,
) -> Result<Order, Refusal> {
    let name = about.name;
    if named.is_none() && is_lost(status) {
        let (message, hint) = about.lost(status, "what was live before");
        return refusal(message, hint);
    }
    let kept = undoable(status);
    let stable = status.stable_revision.as_deref();
    let at_rest = status.release.is_none();
    let stage = status.release.as_ref().map(|release| release.stage);
    if let (None, Some(Stage::Restore), Some(stable)) = (named, stage, stable) {
        let hint = match out_of_rollback(status) {
            Some((older, left)) => format!(
                "to go to an older one instead: {}",
                about
                    .caller
                    .kubectl(&annotate(about.name, older, left), about.namespace)
            ),
            None => about.command("wait", "--for settled"),
        };
        return refusal(format!("{name} is going back to {stable} already"), hint);
    }
    let mut chosen = Before::default();
    let to = match named {
        Some(named) => Some(named),
        // In mid-release that is what an abort goes to, too.
        None if !at_rest => stable,
        None => {
            chosen = before(status, &kept);
            chosen.to
        }
    };
    let note = chosen.note();
    let Some(to) = to else {
        let message = format!("{name} has no earlier revision to go to: {}", now(status));
        return match (&note, &chosen.passed) {
            (Some(note), Some((passed, _))) => refusal(
                format!("{message}; {note}"),
                format!(
                    "to go there nevertheless: {}",
                    about.command("undo", &format!("--to {passed}"))
                ),
            ),
            _ => refusal(message, about.history()),
        };
    };
    let order = Order::Annotation {
        name: UNDO,
        revision: to.to_owned(),
        note,
    };
    if Some(to) == stable {
        if at_rest {
            return refusal(
                format!("{to} is the stable revision of {name} already"),
                format!("to see the others: {}", about.history()),
            );
        }
        return Ok(order);
    }
    if at_rest && is_live(status, to) {
        let stable = stable.unwrap_or_default();
        return refusal(
            format!("{to} is what is live in {name} already, by the name {stable}"),
            format!("to see the others: {}", about.history()),
        );
    }
    // Where the status was lost, the revisions alone say what is kept.
    if !kept.is_empty() && !kept.contains(&to) {
        if let Some(now) = renamed(status, to) {
            return refusal(
                format!("{name} does not keep {to} by that name: it is {now} by now"),
                match now {
                    now if at_rest && Some(now) == stable => about.history(),
                    now => about.command("undo", &format!("--to {now}")),
                },
            );
        }
        return refusal(
            format!("{name} does not keep {to}; kept are: {}", kept.join(", ")),
            about.history(),
        );
    }
    Ok(order)
}

fn ready(status: &ReleasePlanStatus) -> &str {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|c| c.type_ == ConditionType::Ready.as_str());
    ready.map_or("", |ready| &ready.message)
}

/// The revision that a plan offers to go back to whose status is lost.
pub(in crate::cli) fn offered(status: &ReleasePlanStatus) -> Option<&str> {
    let message = ready(status);
    let order = message.find(UNDO).filter(|_| is_lost(status))?;
    let named = message[order + UNDO.len()..].strip_prefix('=')?;
    named.split_whitespace().next()
}

/// What leads out of a rollback that does not come to its end: an older
/// revision, and the one whose rollback ends for it.
pub(in crate::cli) fn out_of_rollback(status: &ReleasePlanStatus) -> Option<(&str, &str)> {
    let left = abortable(status)?;
    let stable = status.stable_revision.as_deref();
    let mut older = undoable(status).into_iter().rev();
    let older = older.find(|name| Some(*name) != stable && *name != left)?;
    Some((older, left))
}

/// The orders of both in one write, which only kubectl gives.
pub(in crate::cli) fn annotate(plan: &str, older: &str, left: &str) -> String {
    format!(
        "annotate releaseplan {plan} --overwrite {} {}",
        quoted(&format!("{UNDO}={older}")),
        quoted(&format!("{ABORT}={left}")),
    )
}

/// The revision that `undo` goes to by itself, if it means anything now.
pub(in crate::cli) fn undo_to(plan: &StoredPlan) -> Option<String> {
    revision_of(Verb::Undo, plan)
}

/// The revision that `retry` tries by itself, if it means anything now.
pub(in crate::cli) fn retry_of(plan: &StoredPlan) -> Option<String> {
    revision_of(Verb::Retry, plan)
}

fn revision_of(verb: Verb, plan: &StoredPlan) -> Option<String> {
    match verb.order(plan, None, &Caller::default()).ok()? {
        Order::Annotation { revision, .. } => Some(revision),
        Order::Paused(_) | Order::Nothing(_) => None,
    }
}

/// What is so now, in a few words.
pub(super) fn now(status: &ReleasePlanStatus) -> String {
    match (status.phase, &status.stable_revision) {
        (None, _) => "the operator has not looked at it yet".to_owned(),
        (Some(Phase::Stable), Some(stable)) => format!("it is Stable on {stable}"),
        (Some(phase), Some(stable)) => format!("it is {phase:?}, and {stable} is stable"),
        (Some(phase), None) => format!("it is {phase:?}"),
    }
}

/// What of kubectl lets a plan that is being deleted go with what is live; none if
/// it does so anyway.
pub(in crate::cli) fn keep(plan: &StoredPlan) -> Option<String> {
    if plan.spec["deletionPolicy"] == "Keep" {
        return None;
    }
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "patch releaseplan {name} --type=merge -p '{{\"spec\":{{\"deletionPolicy\":\"Keep\"}}}}'"
    ))
}

impl Order {
    /// As a merge patch.
    pub(super) fn patch(&self) -> Option<Value> {
        match self {
            Self::Annotation { name, revision, .. } => {
                Some(json!({"metadata": {"annotations": {*name: revision}}}))
            }
            Self::Paused(paused) => Some(json!({"spec": {"paused": paused}})),
            Self::Nothing(_) => None,
        }
    }

    /// As a command of kubectl, with its flags for the cluster.
    pub(super) fn kubectl(&self, plan: &str, flags: &[String]) -> Option<String> {
        let mut words = vec!["kubectl".to_owned()];
        words.extend(flags.iter().cloned());
        let object = format!("releaseplan/{plan}");
        match self {
            Self::Annotation { name, revision, .. } => {
                words.extend(["annotate".into(), "--overwrite".into(), object]);
                words.push(quoted(&format!("{name}={revision}")));
            }
            Self::Paused(_) => {
                words.extend(["patch".into(), object, "--type=merge".into(), "-p".into()]);
                words.push(format!("'{}'", self.patch()?));
            }
            Self::Nothing(_) => return None,
        }
        Some(words.join(" "))
    }
}
