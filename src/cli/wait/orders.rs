//! Orders that were taken off without being carried out.
//!
//! Pure. An order that a plan bears leaves it either way, so whoever waits for
//! what it asks for has to be told which it was. Only the log of decisions says
//! so, and only what was decided since the order was seen counts.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    api::{ABORT, DecisionEntry, ORDERED_BY, RETRY, Reason, StoredPlan, UNDO},
    plan::{ORDERS, Stamps},
};

/// Decisions tell their time in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The orders that are part of what somebody waits for, by annotation and
/// revision, with the time after which a decision is about them.
#[derive(Debug, Default)]
pub(super) struct Orders(Vec<(&'static str, String, Option<Timestamp>)>);

impl Orders {
    /// The orders that stand on a plan when the wait begins; what is given later
    /// is somebody else's matter, and so is what was meant for content before
    /// that of release generation `asked`.
    pub(super) fn on(plan: &StoredPlan, asked: Option<i64>) -> Self {
        let stamps = Stamps::read(plan.annotation(ORDERED_BY));
        let orders = ORDERS.into_iter().filter_map(|order| {
            let revision = plan.annotation(order)?;
            let stamp = stamps.of(order, revision);
            let meant = stamp.and_then(|stamp| stamp.generation);
            if meant.is_some_and(|meant| Some(meant) < asked) {
                return None;
            }
            // Where no webhook saw it, what was decided before was about another.
            let last = decisions(plan).last().map(|decision| decision.at.0);
            let second = |at: Timestamp| Timestamp::from_second(at.as_second()).ok();
            let since = stamp.and_then(|stamp| second(stamp.at));
            let since = since.or_else(|| last.map(|at| at + SECOND));
            Some((order, revision.to_owned(), since))
        });
        Self(orders.collect())
    }

    /// The decision that dropped one of these orders, if there is one.
    pub(super) fn dropped<'a>(&self, plan: &'a StoredPlan) -> Option<&'a DecisionEntry> {
        decisions(plan).iter().find(|decision| {
            let mut orders = self.0.iter();
            orders.any(|(order, revision, since)| {
                since.is_none_or(|since| decision.at.0 >= since)
                    && is_about(decision, order, revision)
            })
        })
    }
}

fn decisions(plan: &StoredPlan) -> &[DecisionEntry] {
    let decisions = plan.status.as_ref().map(|status| &status.decisions);
    decisions.map_or(&[], Vec::as_slice)
}

/// Whether a decision drops this order.
fn is_about(decision: &DecisionEntry, order: &str, revision: &str) -> bool {
    let reason = match order {
        ABORT => Reason::AbortIgnored,
        UNDO => Reason::UndoIgnored,
        RETRY => Reason::RetryIgnored,
        _ => return false,
    };
    let names = format!("{order} names {revision}");
    let text = decision.message.strip_prefix(names.as_str());
    decision.reason == reason && text.is_some_and(|text| text.starts_with([':', ',']))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::testing::with;

    /// A plan with an order that was given in the third second, if it is there
    /// still, and with decisions.
    fn plan(undo: Option<&str>, decisions: &[(&str, &str, &str)]) -> StoredPlan {
        with(|plan| {
            if let Some(undo) = undo {
                let stamp = json!([{
                    "order": "undo", "revision": undo, "user": "jane",
                    "at": "2027-01-01T00:00:03.7Z",
                }]);
                let annotations = &mut plan["metadata"]["annotations"];
                annotations["belay.dev/undo"] = json!(undo);
                annotations[ORDERED_BY] = json!(stamp.to_string());
            }
            let decisions: Vec<Value> = decisions
                .iter()
                .map(
                    |(at, reason, message)| json!({"at": at, "reason": reason, "message": message}),
                )
                .collect();
            plan["status"]["decisions"] = json!(decisions);
        })
    }

    const BEFORE: (&str, &str, &str) = (
        "2027-01-01T00:00:01Z",
        "UndoIgnored",
        "belay.dev/undo names shop-1: an older one",
    );
    const NOW: (&str, &str, &str) = (
        "2027-01-01T00:00:03Z",
        "UndoIgnored",
        "belay.dev/undo names shop-1, asked for by jane: newer content came after it",
    );

    #[test]
    fn an_order_that_was_dropped_is_told_with_the_decision_on_it() {
        // The annotation goes after the decision, or, to whoever sees it late,
        // before.
        for late in [None, Some("shop-1")] {
            let orders = Orders::on(&plan(Some("shop-1"), &[BEFORE]), Some(4));
            assert_eq!(orders.dropped(&plan(Some("shop-1"), &[BEFORE])), None);
            assert_eq!(orders.dropped(&plan(late, &[BEFORE])), None);
            let told = plan(late, &[BEFORE, NOW]);
            assert_eq!(orders.dropped(&told).unwrap().message, NOW.2);
        }
        let told = plan(Some("shop-1"), &[BEFORE, NOW]);
        let orders = Orders::on(&told, Some(4));
        assert_eq!(orders.dropped(&told).unwrap().message, NOW.2);
    }

    #[test]
    fn an_order_that_was_carried_out_is_not_told() {
        let orders = Orders::on(&plan(Some("shop-1"), &[BEFORE]), Some(4));
        let other = (NOW.0, NOW.1, "belay.dev/undo names shop-11: x");
        assert_eq!(orders.dropped(&plan(None, &[BEFORE, other])), None);
    }

    #[test]
    fn what_was_dropped_before_somebody_waited_is_not_told() {
        let told = plan(None, &[NOW]);
        assert_eq!(Orders::on(&told, Some(4)).dropped(&told), None);
    }

    /// Somebody's order on content that was there before must not fail a pipeline
    /// that has applied its own.
    #[test]
    fn an_order_that_was_meant_for_older_content_is_not_waited_for() {
        let of = |meant: Option<i64>| {
            let mut told = plan(Some("shop-1"), &[NOW]);
            let annotations = told.metadata.annotations.as_mut().unwrap();
            let stamp = json!([{
                "order": "undo", "revision": "shop-1", "user": "jane",
                "at": "2027-01-01T00:00:03.7Z", "generation": meant,
            }]);
            annotations.insert(ORDERED_BY.to_owned(), stamp.to_string());
            Orders::on(&told, Some(4)).dropped(&told).is_some()
        };
        assert!(!of(Some(3)));
        assert!(of(Some(4)));
        assert!(of(None));
    }

    #[test]
    fn an_order_that_no_webhook_saw_is_told_apart_from_an_older_one() {
        let mut bare = plan(Some("shop-1"), &[BEFORE]);
        let annotations = bare.metadata.annotations.as_mut().unwrap();
        annotations.remove(ORDERED_BY);
        let orders = Orders::on(&bare, Some(4));
        assert_eq!(orders.dropped(&bare), None);
        let told = plan(None, &[BEFORE, NOW]);
        assert_eq!(orders.dropped(&told).unwrap().message, NOW.2);
    }
}
