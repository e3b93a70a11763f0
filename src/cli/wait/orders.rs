//! Orders that were taken off without being carried out.
//!
//! Pure. An order that a plan bears leaves it either way, so whoever waits for
//! what it asks for has to be told which it was. Only the log of decisions says
//! so, and only what was decided since the order was seen counts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{ABORT, DecisionEntry, RETRY, Reason, StoredPlan, UNDO},
    plan::ORDERS,
};

/// The orders that were seen on a plan since somebody waits.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// By annotation and revision, with the last decision before each was seen.
    seen: Vec<(&'static str, String, Option<Time>)>,
}

impl Orders {
    /// Takes in the orders that stand on a plan. The first of those that stood
    /// there and were dropped since is told, with the decision on it.
    pub(super) fn dropped<'a>(&mut self, plan: &'a StoredPlan) -> Option<&'a DecisionEntry> {
        let stands = |order: &str, revision: &str| plan.annotation(order) == Some(revision);
        let decisions = plan.status.as_ref().map(|status| &status.decisions);
        let decisions = decisions.map_or(&[][..], Vec::as_slice);
        let gone = self
            .seen
            .extract_if(.., |(order, revision, _)| !stands(order, revision));
        let dropped: Vec<&DecisionEntry> = gone
            .filter_map(|(order, revision, since)| {
                decisions.iter().find(|decision| {
                    Some(&decision.at) >= since.as_ref() && is_about(decision, order, &revision)
                })
            })
            .collect();
        for order in ORDERS {
            let Some(revision) = plan.annotation(order) else {
                continue;
            };
            let known = self
                .seen
                .iter()
                .any(|(o, r, _)| *o == order && r == revision);
            if !known {
                let last = decisions.last().map(|decision| decision.at.clone());
                self.seen.push((order, revision.to_owned(), last));
            }
        }
        dropped.first().copied()
    }
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

    fn plan(undo: Option<&str>, decisions: &[(&str, &str, &str)]) -> StoredPlan {
        with(|plan| {
            if let Some(undo) = undo {
                plan["metadata"]["annotations"]["belay.dev/undo"] = json!(undo);
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
        "2027-01-01T00:00:05Z",
        "UndoIgnored",
        "belay.dev/undo names shop-1, asked for by jane: newer content came after it",
    );
    const OTHER: (&str, &str, &str) = (
        "2027-01-01T00:00:03Z",
        "Released",
        "shop-2 is released and healthy",
    );

    #[test]
    fn an_order_that_was_dropped_is_told_with_the_decision_on_it() {
        let mut orders = Orders::default();
        let standing = plan(Some("shop-1"), &[BEFORE, OTHER]);
        assert_eq!(orders.dropped(&standing), None);
        let gone = plan(None, &[BEFORE, OTHER, NOW]);
        assert_eq!(orders.dropped(&gone).unwrap().message, NOW.2);
        assert_eq!(orders.dropped(&gone), None, "once");
    }

    #[test]
    fn an_order_that_was_carried_out_is_not_told() {
        let mut orders = Orders::default();
        let standing = plan(Some("shop-1"), &[BEFORE, OTHER]);
        assert_eq!(orders.dropped(&standing), None);
        let longer = (
            "2027-01-01T00:00:05Z",
            "UndoIgnored",
            "belay.dev/undo names shop-11: x",
        );
        let gone = plan(None, &[BEFORE, OTHER, longer]);
        assert_eq!(orders.dropped(&gone), None);
    }

    #[test]
    fn what_was_dropped_before_somebody_waited_is_not_told() {
        let mut orders = Orders::default();
        assert_eq!(orders.dropped(&plan(None, &[NOW])), None);
    }
}
