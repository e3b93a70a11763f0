//! What tells that the operator does not come: the end of a deadline that nobody
//! judged, content that nobody prepares, and orders that nobody carries out.
//!
//! A plan that was edited tells so by its generation; an annotation and a clock do
//! not raise that.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::SignedDuration,
};

use super::{
    model::{Health, Verdict},
    said::MEANWHILE,
    verdict::{Facts, condition, last_edit, reason_of},
};
use crate::{
    api::{ABORT, ConditionType, ORDERED_BY, Phase, RETRY, Reason, Stage, UNDO},
    plan::{ORDERS, Stamps},
};

/// The reason where the operator had to judge something, and did not.
pub(in crate::cli) const OVERDUE: &str = "Overdue";
/// The reason while the operator has not carried out an order.
pub(super) const ORDERED: &str = "Ordered";

/// Content is prepared after this time at the latest, also if it keeps changing.
pub(super) const SETTLED: SignedDuration = SignedDuration::from_secs(5);
/// What the message begins with while it is the API server that does not answer.
const UNANSWERED: &str = "waiting for ";

/// An order that was neither carried out nor dropped, and of which the operator says
/// nothing.
pub(super) struct OpenOrder {
    /// "abort of shop-1".
    what: String,
    /// Who gave it, as far as that is known.
    user: Option<String>,
    at: Option<Time>,
}

/// Whether a deadline or a bake ends what has this reason. With any other one the
/// operator may have had a cause not to act on it.
const fn is_timed(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Promoting
            | Reason::Baking
            | Reason::RollbackStarted
            | Reason::RollingBack
            | Reason::Reverted
            | Reason::Deleting
    )
}

/// As the operator names an order.
fn named(order: &str, revision: &str) -> String {
    match order {
        ABORT => format!("abort of {revision}"),
        UNDO => format!("undo to {revision}"),
        RETRY => format!("retry of {revision}"),
        other => format!("{other} of {revision}"),
    }
}

impl Facts<'_> {
    /// The first order on the plan that nobody has dealt with.
    pub(super) fn open_order(&self, ready: &Condition) -> Option<OpenOrder> {
        // It says itself that it does not get on; and a plan that goes takes no order.
        let fails = reason_of(ready) == Some(Reason::ReconcileError);
        if fails || self.stored.is_deleting() {
            return None;
        }
        let stamps = Stamps::read(self.stored.annotation(ORDERED_BY));
        let waiting = ready.message.split_once(MEANWHILE).map(|(_, text)| text);
        let waits = |what: &str| {
            let mut told = waiting.into_iter().flat_map(|text| text.split("; "));
            told.any(|told| {
                let rest = told.strip_prefix("meanwhile, ").unwrap_or(told);
                let rest = rest.strip_prefix(what);
                rest.is_some_and(|rest| rest.starts_with([' ', ',']))
            })
        };
        let handled = |order: &str, revision: &str| {
            let handled = self.status.handled.as_ref();
            handled.is_some_and(|h| h.annotation == order && h.value == revision)
        };
        ORDERS.into_iter().find_map(|order| {
            let revision = self.stored.annotation(order)?;
            let what = named(order, revision);
            if handled(order, revision) || waits(&what) {
                return None;
            }
            let stamp = stamps.of(order, revision);
            // Where no webhook saw it, it is not older than the last edit.
            let at = stamp.map(|stamp| Time(stamp.at));
            Some(OpenOrder {
                what,
                user: stamp.map(|stamp| stamp.user.clone()),
                at: at.or_else(|| last_edit(&self.stored.metadata)),
            })
        })
    }

    /// A plan with an order that nobody has dealt with.
    pub(super) fn ordered(&self, ready: &Condition, order: &OpenOrder) -> Verdict {
        let away = self.is_long(order.at.as_ref());
        let what = &order.what;
        let title = if away {
            format!("Nobody has carried out the {what}: is the operator running?")
        } else {
            format!("The {what} is not carried out yet")
        };
        let by = order.user.as_ref();
        let by = by.map_or_else(String::new, |user| format!("asked for by {user}; "));
        let message = format!("{by}{}", self.before(ready));
        let next = "the operator carries out an order, or drops it, within seconds while it runs";
        let health = if away {
            Health::Failed
        } else {
            Health::Working
        };
        Verdict {
            health,
            since: order.at.clone(),
            ways: away.then(|| self.doctor()).into_iter().collect(),
            ..self.plain(ORDERED, &title, message, next)
        }
    }

    /// When something had to be judged that nobody did.
    pub(super) fn overdue(&self) -> Option<Time> {
        let ready = condition(self.status, ConditionType::Ready)?;
        let reason = reason_of(ready)?;
        if reason == Reason::Settling {
            return self.settled(ready).filter(|at| self.is_long(Some(at)));
        }
        if !is_timed(reason) {
            return None;
        }
        // In a rollback, one of which the ConfigMap was edited is left to the edit.
        let mut components = self.plan?.components().iter();
        let tracks = components.any(|c| c.template.is_none() && !c.config_maps.is_empty());
        if tracks && self.status.phase == Some(Phase::Rollback) {
            return None;
        }
        let (_, at) = self.next(Some(reason));
        at.filter(|at| self.is_long(Some(at)))
    }

    /// When content that was seen had to be prepared.
    fn settled(&self, ready: &Condition) -> Option<Time> {
        let works = condition(self.status, ConditionType::Reconciling);
        let works = works.filter(|works| works.status == "True")?;
        if ready.message.starts_with(UNANSWERED) {
            return None;
        }
        let release = self.status.release.as_ref();
        let begun = release.filter(|release| release.stage == Stage::Settle);
        let begun = begun.map(|release| release.stage_since.0);
        // The condition may have stood for longer, and with another reason.
        let writes = self.stored.metadata.managed_fields.iter().flatten();
        let writes = writes.filter(|entry| entry.subresource.is_some());
        let writes = writes.filter_map(|entry| entry.time.as_ref().map(|at| at.0));
        let since = begun.unwrap_or(works.last_transition_time.0);
        let since = writes.fold(since, Ord::max);
        since.checked_add(SETTLED).ok().map(Time)
    }

    /// A plan that nobody judged when it was time to.
    pub(super) fn unjudged(&self, ready: &Condition, due: Time) -> Verdict {
        let (text, _) = self.next(reason_of(ready));
        let message = format!("due was: {text}; {}", self.before(ready));
        let settles = reason_of(ready) == Some(Reason::Settling);
        let (title, next) = if settles {
            (
                "Nobody prepares the content that was seen: is the operator running?",
                "the operator prepares it within seconds once it runs",
            )
        } else {
            (
                "Nobody has judged this since it was due: is the operator running?",
                "the operator judges it within seconds once it runs",
            )
        };
        Verdict {
            since: Some(due),
            ways: vec![self.doctor()],
            ..self.plain(OVERDUE, title, message, next)
        }
    }
}
