//! What a release comes after: the one that it tries again, and what was live before
//! all of them.
//!
//! Pure. A record does not say that somebody asked for it by a retry; that its content
//! failed before does, since what was refused is not released again without one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{Reason, ReleaseKind, ReleasePlanStatus, ReleaseRecord, ReleaseResult};

/// What begins the message of a record of refused content that somebody applied again
/// and that was put back: nobody tried it.
const CAME_AGAIN: &str = "it came again and was put back";

/// A release that may be one more attempt.
pub(super) struct Attempt<'a> {
    pub(super) number: i64,
    pub(super) kind: ReleaseKind,
    pub(super) revision: Option<&'a str>,
    pub(super) ended_at: Option<&'a Time>,
    pub(super) message: Option<&'a str>,
}

impl<'a> From<&'a ReleaseRecord> for Attempt<'a> {
    fn from(record: &'a ReleaseRecord) -> Self {
        Self {
            number: record.number,
            kind: record.kind,
            revision: record.revision.as_deref(),
            ended_at: Some(&record.ended_at),
            message: record.message.as_deref(),
        }
    }
}

impl Attempt<'_> {
    /// Whether it brought content, and that as a release.
    fn is_one(&self) -> bool {
        let came_again = self.message.is_some_and(|m| m.starts_with(CAME_AGAIN));
        matches!(self.kind, ReleaseKind::Content | ReleaseKind::First) && !came_again
    }
}

/// The number of the last release of the same content, where a person asked for that
/// to be tried again.
pub(super) fn retried(status: &ReleasePlanStatus, release: &Attempt<'_>) -> Option<i64> {
    let revision = release.revision.filter(|_| release.is_one())?;
    let mut older = status.history.iter().rev();
    let older = older.find(|record| {
        record.number < release.number
            && record.revision.as_deref() == Some(revision)
            && Attempt::from(*record).is_one()
    })?;
    let failed = [ReleaseResult::RolledBack, ReleaseResult::Failed].contains(&older.result);
    // What an undo took away had succeeded.
    let ended = release.ended_at;
    let asked = status.decisions.iter().any(|decision| {
        decision.reason == Reason::RetryRequested
            && decision.message.starts_with(&format!("{revision} "))
            && decision.at.0 >= older.ended_at.0
            && ended.is_none_or(|ended| decision.at.0 <= ended.0)
    });
    (failed || asked).then_some(older.number)
}

/// What was live before the first release that is kept, and that one did not bring.
/// What came of it later, such as an undo that went there, makes no difference.
pub(super) fn baseline(history: &[ReleaseRecord]) -> Option<&String> {
    let first = history.iter().position(|record| record.from.is_some())?;
    let name = history[first].from.as_ref()?;
    let mut older = history[..first].iter();
    let released = older.any(|record| record.revision.as_ref() == Some(name));
    (!released).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::testing::with;

    /// Records of kind, revisions and result; a minute each.
    fn status(records: &[(&str, &str, &str, &str)]) -> ReleasePlanStatus {
        let plan = with(|plan| {
            let records = records.iter().enumerate();
            let records: Vec<Value> = records
                .map(|(n, (kind, from, to, result))| {
                    let from = Some(from).filter(|from| !from.is_empty());
                    json!({"number": n + 1, "kind": kind, "from": from, "revision": to,
                           "startedAt": format!("2026-03-01T11:{n:02}:00Z"),
                           "endedAt": format!("2026-03-01T11:{n:02}:30Z"), "result": result})
                })
                .collect();
            plan["status"]["history"] = json!(records);
        });
        plan.status.unwrap()
    }

    fn attempts(status: &ReleasePlanStatus) -> Vec<Option<i64>> {
        let records = status.history.iter();
        records
            .map(|record| retried(status, &record.into()))
            .collect()
    }

    #[test]
    fn what_failed_and_is_released_again_was_tried_again() {
        let mut told = status(&[
            ("Content", "a", "b", "RolledBack"),
            ("Content", "a", "b", "RolledBack"),
            ("Content", "a", "b", "Succeeded"),
            ("Content", "b", "c", "Succeeded"),
            ("Content", "c", "b", "Succeeded"),
        ]);
        assert_eq!(attempts(&told), [None, Some(1), Some(2), None, None]);
        // Somebody applied it again, and it was put back.
        told.history[1].message = Some(format!("{CAME_AGAIN}: x"));
        assert_eq!(attempts(&told), [None, None, Some(1), None, None]);
        let first = status(&[
            ("First", "", "b", "Failed"),
            ("First", "", "b", "Succeeded"),
        ]);
        assert_eq!(attempts(&first), [None, Some(1)]);
    }

    /// It had not failed: only the decision tells.
    #[test]
    fn what_was_undone_and_is_released_again_was_tried_again_if_somebody_asked() {
        let mut told = status(&[
            ("Content", "a", "b", "Succeeded"),
            ("Undo", "b", "a", "Succeeded"),
            ("Content", "a", "b", "Succeeded"),
        ]);
        assert_eq!(attempts(&told), [None; 3]);
        let decision = json!({"at": "2026-03-01T11:02:00Z", "reason": "RetryRequested",
                              "message": "b is tried again as asked by jane"});
        told.decisions = vec![serde_json::from_value(decision).unwrap()];
        assert_eq!(attempts(&told), [None, None, Some(1)]);
    }

    #[test]
    fn what_was_live_before_all_releases_stays_told_when_an_undo_goes_there() {
        let of = |records: &[_]| baseline(&status(records).history).cloned();
        let one = ("Content", "a", "b", "Succeeded");
        assert_eq!(of(&[one]).as_deref(), Some("a"));
        let undone = [one, ("Undo", "b", "a", "Succeeded")];
        assert_eq!(of(&undone).as_deref(), Some("a"));
        let first = ("First", "", "a", "Succeeded");
        assert_eq!(of(&[first, one]), None);
    }
}
