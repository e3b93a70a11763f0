//! Why a release had stopped that then ended for another reason.
//!
//! Pure. The record has the last word alone; what froze it before stands among the
//! decisions while they are kept.

use crate::api::{Reason, ReleasePlanStatus, ReleaseRecord, ReleaseResult};

/// What stands behind the cause in the message of a stop.
const END: &str = ". The release of ";

/// The message of a record, with what stopped the release before.
pub(super) fn message(status: &ReleasePlanStatus, record: &ReleaseRecord) -> Option<String> {
    let message = record.message.as_ref()?;
    let (from, to) = (record.started_at.0, record.ended_at.0);
    let mut decisions = status.decisions.iter().rev();
    let stop = decisions.find(|decision| {
        decision.reason == Reason::Frozen && decision.at.0 >= from && decision.at.0 <= to
    });
    let cause = stop.and_then(|stop| stop.message.split_once(END));
    let cause = cause
        .filter(|(cause, _)| record.result != ReleaseResult::Succeeded && !message.contains(cause));
    Some(match cause {
        Some((cause, _)) => format!("{message}; it had stopped before: {cause}"),
        None => message.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::testing::with;

    #[test]
    fn a_stop_that_was_left_by_a_revert_is_told_with_its_cause() {
        let told = |at: &str, result: &str, words: &str| {
            let plan = with(|plan| {
                plan["status"]["history"][0]["result"] = json!(result);
                plan["status"]["history"][0]["message"] = json!(words);
                plan["status"]["decisions"] = json!([{
                    "at": at, "reason": "Frozen",
                    "message": "x crashed. The release of shop-bbbb stops here and nothing is written",
                }]);
            });
            let status = plan.status.unwrap();
            message(&status, &status.history[0]).unwrap()
        };
        let (within, before) = ("2026-03-01T11:01:00Z", "2026-03-01T10:59:00Z");
        assert_eq!(
            told(within, "Reverted", "stable again"),
            "stable again; it had stopped before: x crashed"
        );
        assert_eq!(told(before, "Reverted", "stable again"), "stable again");
        assert_eq!(told(within, "Failed", "x crashed"), "x crashed");
        assert_eq!(told(within, "Succeeded", "y"), "y");
    }
}
