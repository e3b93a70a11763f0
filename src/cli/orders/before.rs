//! Which revision `undo` goes to by itself.
//!
//! Pure. What a person took away once is not brought back by the next undo: two
//! in a row go two revisions back, and never to the one that was bad.

use crate::{
    api::{
        Cause, Reason, RefusedContent, ReleaseKind, ReleasePlanStatus, ReleaseRecord, ReleaseResult,
    },
    cli::status::undone,
    plan::{brought_content, undoable},
};

/// The revision to go to, and what would have been nearer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Before<'a> {
    /// None if there is no older one.
    pub(super) to: Option<&'a str>,
    /// The last revision that is passed over, and why.
    pub(super) passed: Option<(&'a str, String)>,
}

impl Before<'_> {
    /// "shop-9 is passed over: ...".
    pub(super) fn note(&self) -> Option<String> {
        let (revision, why) = self.passed.as_ref()?;
        Some(format!("{revision} is passed over: {why}"))
    }
}

/// The revision that was stable before the content of the present one was released;
/// `kept` are those that there are, oldest first. A release of surroundings changes
/// nothing that an undo brings back.
pub(super) fn before<'a>(status: &'a ReleasePlanStatus, kept: &[&'a str]) -> Before<'a> {
    let mut found = Before::default();
    let Some(stable) = status.stable_revision.as_deref() else {
        return found;
    };
    let mut done = vec![stable];
    let ended = status.history.iter().rev();
    let records: Vec<&ReleaseRecord> = ended
        .filter(|record| record.result == ReleaseResult::Succeeded)
        .collect();
    let mut index = 0;
    while let Some(record) = records.get(index) {
        index += 1;
        let (Some(to), Some(from)) = (record.revision.as_deref(), record.from.as_deref()) else {
            continue;
        };
        done.push(to);
        if record.kind == ReleaseKind::Undo {
            done.push(from);
            let by = record.requested_by.as_deref();
            found.pass(from, || undone::asked(to, by, from));
            // What came of it may have another name than what was asked for.
            let asked = asked(status, from).unwrap_or(to);
            done.push(asked);
            // What came between is newer than what was gone back to.
            let end = origin(&records, index, asked);
            for newer in &records[index..end] {
                done.extend(match newer.kind {
                    ReleaseKind::Undo => newer.from.as_deref(),
                    _ => newer.revision.as_deref(),
                });
            }
            index = end;
        } else if !brought_content(record) {
            // Of a long row of them not all records are kept, but the one that they
            // follow is.
            done.push(from);
        } else if !done.contains(&from) && !found.is_refused(status, from) {
            found.to = Some(from);
            return found;
        }
    }
    let mut older = kept.iter().rev().copied();
    found.to = older.find(|name| !done.contains(name) && !found.is_refused(status, name));
    found
}

/// The revision that was asked for in the last undo that took this one away, as far
/// as the status still tells.
fn asked<'a>(status: &'a ReleasePlanStatus, left: &str) -> Option<&'a str> {
    let undone = |r: &&RefusedContent| r.cause == Cause::Undone && r.revision == left;
    let refused = status.refused.iter().find(undone);
    let refused = refused.map(|refused| &refused.message);
    let end = format!(" takes the place of {left}");
    let mut decisions = status.decisions.iter().rev();
    let decision =
        decisions.find(|d| d.reason == Reason::UndoRequested && d.message.ends_with(&end));
    let decision = decision.map(|decision| &decision.message);
    let message = refused.or(decision)?;
    message.split_once(" was asked for").map(|(name, _)| name)
}

/// Whether what is live came of an undo to this revision, be it by another name.
pub(super) fn is_live(status: &ReleasePlanStatus, revision: &str) -> bool {
    let succeeded = |record: &&ReleaseRecord| record.result == ReleaseResult::Succeeded;
    let last = status.history.iter().rev().find(succeeded);
    last.is_some_and(|record| {
        let from = record.from.as_deref().unwrap_or_default();
        record.kind == ReleaseKind::Undo
            && record.revision == status.stable_revision
            && asked(status, from) == Some(revision)
    })
}

/// The name that a stable revision has by now which had this one once, as far as the
/// decisions still tell.
pub(super) fn renamed<'a>(status: &'a ReleasePlanStatus, revision: &str) -> Option<&'a str> {
    const SINCE: [(&str, &str); 2] = [("it is ", " from here on"), ("it comes back as ", ", with")];
    let mut name = None;
    for decision in &status.decisions {
        let message = decision.message.as_str();
        let message = message
            .strip_prefix("the stable revision ")
            .unwrap_or(message);
        let Some((before, rest)) = message.split_once(" names ") else {
            continue;
        };
        if before == name.unwrap_or(revision)
            && let Some(now) = SINCE.iter().find_map(|(begin, end)| {
                let (_, now) = rest.rsplit_once(begin)?;
                Some(now.split_once(end)?.0)
            })
        {
            name = Some(now);
        }
    }
    let is_known = |name: &&str| {
        let stable = status.stable_revision.as_deref();
        stable == Some(*name) || undoable(status).contains(name)
    };
    name.filter(is_known)
}

/// Where the records begin, of newest first, from which a revision came; `from`
/// where they do not tell.
fn origin(records: &[&ReleaseRecord], from: usize, revision: &str) -> usize {
    let older = records.iter().enumerate().skip(from);
    let mut own = older.clone();
    let own =
        own.find(|(_, r)| r.kind != ReleaseKind::Undo && r.revision.as_deref() == Some(revision));
    if let Some((index, _)) = own {
        return index;
    }
    // What was there before any release has no record.
    let mut left = older.filter(|(_, r)| r.from.as_deref() == Some(revision));
    left.next_back().map_or(from, |(index, _)| index + 1)
}

impl<'a> Before<'a> {
    fn pass(&mut self, revision: &'a str, why: impl FnOnce() -> String) {
        self.passed.get_or_insert_with(|| (revision, why()));
    }

    /// Whether a revision is held as refused; it is passed over then.
    fn is_refused(&mut self, status: &'a ReleasePlanStatus, revision: &'a str) -> bool {
        let refused = status.refused.iter().find(|r| r.revision == revision);
        if let Some(refused) = refused {
            self.pass(revision, || match refused.cause {
                Cause::Undone => undone::message(refused.cause, &refused.message, revision),
                cause => format!("it is refused, {cause:?}"),
            });
        }
        refused.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::testing::with;

    fn told(stable: &str, records: &[(&str, &str, &str)], refused: &[&str]) -> String {
        let plan = with(|plan| {
            plan["status"]["stableRevision"] = json!(stable);
            let records: Vec<Value> = records
                .iter()
                .map(|(kind, from, to)| {
                    json!({
                        "number": 1, "kind": kind, "from": from, "revision": to,
                        "requestedBy": "jane", "result": "Succeeded",
                        "startedAt": "2026-03-01T11:00:00Z", "endedAt": "2026-03-01T11:00:00Z",
                    })
                })
                .collect();
            plan["status"]["history"] = json!(records);
            let refused: Vec<Value> = refused
                .iter()
                .map(|name| {
                    json!({
                        "revision": name, "cause": "Undone", "at": "2026-03-01T11:00:00Z",
                        "message": "another was asked for by joe in its place",
                    })
                })
                .collect();
            plan["status"]["refused"] = json!(refused);
        });
        let status = plan.status.unwrap();
        let before = before(&status, &undoable(&status));
        let note = before.note().unwrap_or_default();
        format!("{} {note}", before.to.unwrap_or("none"))
            .trim_end()
            .to_owned()
    }

    /// The second undo in a row must not bring back what the first took away.
    #[test]
    fn an_undo_after_an_undo_goes_to_the_next_older_revision() {
        let mut records = vec![
            ("Content", "r6", "r7"),
            ("Content", "r7", "r8"),
            ("Content", "r8", "r9"),
        ];
        assert_eq!(told("r9", &records, &[]), "r8");
        records.push(("Undo", "r9", "r8"));
        assert_eq!(
            told("r8", &records, &["r9"]),
            "r7 r9 is passed over: r8 was asked for by jane in the place of r9"
        );
        records.push(("Undo", "r8", "r7"));
        assert_eq!(
            told("r7", &records, &["r9"]),
            "r6 r8 is passed over: r7 was asked for by jane in the place of r8"
        );
        records.push(("Undo", "r7", "r6"));
        assert_eq!(
            told("r6", &records, &["r9"]),
            "none r7 is passed over: r6 was asked for by jane in the place of r7"
        );
    }

    /// What was live before the first release had no fields of the plan.
    #[test]
    fn what_came_of_an_undo_may_have_another_name_than_what_was_asked_for() {
        let plan = with(|plan| {
            let record = |kind: &str, from: &str, to: &str| {
                json!({
                    "number": 1, "kind": kind, "from": from, "revision": to,
                    "result": "Succeeded",
                    "startedAt": "2026-03-01T11:00:00Z", "endedAt": "2026-03-01T11:00:00Z",
                })
            };
            let status = &mut plan["status"];
            status["stableRevision"] = json!("twin");
            status["history"] = json!([
                record("Content", "base", "r1"),
                record("Undo", "r1", "twin"),
            ]);
            status["decisions"] = json!([{
                "at": "2026-03-01T11:00:00Z", "reason": "UndoRequested",
                "message": "base was asked for by jane; it takes the place of r1",
            }]);
        });
        let status = plan.status.unwrap();
        assert_eq!(before(&status, &undoable(&status)).to, None);
        assert!(is_live(&status, "base"));
        assert!(!is_live(&status, "r1"));
    }

    #[test]
    fn what_lies_between_an_undo_and_where_it_went_is_no_older_revision() {
        let mut records = vec![
            ("Content", "r5", "r6"),
            ("Content", "r6", "r7"),
            ("Content", "r7", "r8"),
            ("Content", "r8", "r9"),
            ("Undo", "r9", "r7"),
        ];
        assert!(told("r7", &records, &[]).starts_with("r6 r9 is"));
        // Newer content follows the revision that it took the place of.
        records.push(("Content", "r7", "r10"));
        assert_eq!(told("r10", &records, &[]), "r7");
        records.push(("Undo", "r10", "r7"));
        assert!(told("r7", &records, &[]).starts_with("r6 r10 is"));
    }

    #[test]
    fn what_was_released_again_after_an_undo_is_an_older_revision_like_others() {
        let mut records = vec![
            ("Content", "r7", "r8"),
            ("Content", "r8", "r9"),
            ("Undo", "r9", "r8"),
            ("Content", "r8", "r9"),
        ];
        assert_eq!(told("r9", &records, &[]), "r8");
        records.push(("Content", "r9", "r10"));
        assert_eq!(told("r10", &records, &[]), "r9");
    }

    #[test]
    fn a_revision_that_is_refused_by_now_is_passed_over() {
        let records = [("Content", "r7", "r8"), ("Content", "r8", "r9")];
        assert_eq!(
            told("r9", &records, &["r8"]),
            "r7 r8 is passed over: another was asked for by joe in the place of r8"
        );
    }
}
