//! The one thing that a plan waits for, in words for somebody who was woken up:
//! what, since when, what happens next by itself, and what a person can do.
//!
//! What the operator recorded is passed on in its own words. Only what follows
//! from it is said here, and nothing is judged anew.

use std::time::Duration;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
    jiff::{SignedDuration, Timestamp},
};

use super::{
    Caller,
    model::{CauseView, Health, Verdict, Way},
    said::once,
    tree::seconds,
    undone, words,
};
use crate::{
    api::{
        Cause, ComponentState, ConditionType, Phase, Reason, RefusedContent, ReleaseKind,
        ReleasePlanStatus, ReleaseResult, Stage, StoredPlan,
    },
    machine::{holding, scope, stalled_since},
    plan::{Plan, as_seen},
};

/// An edit that the operator has not seen for this long tells that it is away.
pub(in crate::cli) const AWAY: Duration = Duration::from_secs(10);
/// The reason while the operator has not looked at what was edited.
pub(super) const EDITED: &str = "Edited";

/// What a verdict is made from.
pub(super) struct Facts<'a> {
    pub(super) stored: &'a StoredPlan,
    pub(super) status: &'a ReleasePlanStatus,
    pub(super) plan: Option<&'a Plan>,
    pub(super) now: Timestamp,
    pub(super) caller: &'a Caller,
}

/// When somebody last edited an object, as its managedFields tell; writes of its
/// status are none.
pub(in crate::cli) fn last_edit(meta: &ObjectMeta) -> Option<Time> {
    let entries = meta.managed_fields.iter().flatten();
    let edits = entries.filter(|entry| entry.subresource.is_none());
    let times = edits.filter_map(|entry| entry.time.clone());
    times.max_by_key(|time| time.0)
}

/// The end of a deadline or of a bake that nobody judged, once that is too long ago
/// for an operator that runs: it wakes at exactly these times.
pub(in crate::cli) fn overdue(stored: &StoredPlan, now: Timestamp) -> Option<Time> {
    by(stored, now, |facts| facts.overdue())
}

/// Whether a release has stopped that any other live template would take out of it.
pub(in crate::cli) fn stops_exactly(stored: &StoredPlan) -> bool {
    by(stored, Timestamp::UNIX_EPOCH, |facts| facts.stops_exactly())
}

fn by<T>(stored: &StoredPlan, now: Timestamp, ask: impl FnOnce(&Facts<'_>) -> T) -> T {
    let parsed = as_seen(stored);
    let empty = ReleasePlanStatus::default();
    ask(&Facts {
        stored,
        status: stored.status.as_ref().unwrap_or(&empty),
        plan: parsed.as_ref().ok(),
        now,
        caller: &Caller::default(),
    })
}

/// What a plan waits for.
pub(super) fn of(facts: &Facts<'_>) -> Verdict {
    let Facts { stored, status, .. } = facts;
    if let Some(fault) = &stored.status_fault {
        return facts.plain(
            "StatusUnreadable",
            "This version of the command cannot read the status",
            fault.clone(),
            "the operator goes on without regard to this",
        );
    }
    let Some(ready) = condition(status, ConditionType::Ready) else {
        return facts.unseen();
    };
    if status.observed_generation < stored.metadata.generation {
        return facts.edited(ready);
    }
    if let Some(order) = facts.open_order(ready) {
        return facts.ordered(ready, &order);
    }
    if let Some(due) = overdue(stored, facts.now) {
        return facts.unjudged(ready, due);
    }
    facts.told(ready)
}

pub(super) fn condition(status: &ReleasePlanStatus, type_: ConditionType) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|c| c.type_ == type_.as_str())
}

fn holds(status: &ReleasePlanStatus, type_: ConditionType) -> Option<&Condition> {
    condition(status, type_).filter(|c| c.status == "True")
}

/// A verdict that another one took the place of. Its message may begin with its reason.
pub(super) fn was(reason: &str, message: &str, ways: &[Way]) -> String {
    let said = once(message, ways);
    let words = [("RolledBack", "rolled back: "), ("Undone", "undone: ")];
    let own = words.iter().find(|(own, _)| *own == reason);
    let rest = own.and_then(|(_, word)| said.strip_prefix(word));
    format!("before that it was {reason}: {}", rest.unwrap_or(&said))
}

/// The reason of a condition; none if it is of a later version.
pub(super) fn reason_of(condition: &Condition) -> Option<Reason> {
    let mut all = Reason::ALL.iter();
    all.find(|r| r.as_str() == condition.reason).copied()
}

impl Facts<'_> {
    pub(super) fn name(&self) -> &str {
        self.stored.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.stored
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
    }

    /// The operator's words.
    pub(super) fn message(&self) -> &str {
        condition(self.status, ConditionType::Ready).map_or("", |ready| &ready.message)
    }

    /// A command about this plan, as it can be pasted anywhere.
    pub(super) fn command(&self, verb: &str, more: &str) -> Option<String> {
        let name = if verb == "check" { "" } else { self.name() };
        let namespace = self.namespace();
        Some(self.caller.command(verb, name, more, namespace))
    }

    pub(super) fn kubectl(&self, rest: &str) -> Option<String> {
        Some(self.caller.kubectl(rest, self.namespace()))
    }

    pub(super) fn plain(&self, reason: &str, title: &str, message: String, next: &str) -> Verdict {
        Verdict {
            health: Health::Failed,
            reason: reason.to_owned(),
            title: title.to_owned(),
            message,
            cause: None,
            since: None,
            next: next.to_owned(),
            next_at: None,
            ways: Vec::new(),
        }
    }

    /// A plan that the operator has not looked at.
    fn unseen(&self) -> Verdict {
        let since = self.stored.metadata.creation_timestamp.clone();
        let away = self.is_long(since.as_ref());
        let title = if away {
            "Nobody has looked at this plan yet: is the operator running?"
        } else {
            "Not looked at by the operator yet"
        };
        let next = "the operator looks at a new plan within seconds while it runs";
        Verdict {
            health: if away {
                Health::Failed
            } else {
                Health::Working
            },
            since,
            ways: if away {
                vec![self.doctor()]
            } else {
                Vec::new()
            },
            ..self.plain("New", title, String::new(), next)
        }
    }

    /// A plan whose newest edit the operator has not looked at.
    fn edited(&self, ready: &Condition) -> Verdict {
        let edit = last_edit(&self.stored.metadata);
        let deleted = self.stored.metadata.deletion_timestamp.clone();
        // A delete raises the generation, and is no edit of anybody's.
        let is_delete = deleted
            .as_ref()
            .is_some_and(|deleted| edit.as_ref().is_none_or(|edit| edit.0 <= deleted.0));
        let since = if is_delete { deleted } else { edit };
        let away = self.is_long(since.as_ref());
        let title = match (away, is_delete) {
            (true, true) => "Nobody has looked at the deleted plan: is the operator running?",
            (false, true) => "Deleted, and not looked at by the operator yet",
            (true, false) => {
                "Nobody has looked at the last edit of the plan: is the operator running?"
            }
            (false, false) => "The last edit is not looked at by the operator yet",
        };
        let message = format!(
            "the plan is at generation {}, the operator has seen {}; {}",
            self.stored.metadata.generation.unwrap_or_default(),
            self.status.observed_generation.unwrap_or_default(),
            self.before(ready),
        );
        let next = if is_delete {
            "the operator lets its workloads go, or back first, while it runs"
        } else {
            "the operator looks at an edit within seconds while it runs"
        };
        Verdict {
            health: if away {
                Health::Failed
            } else {
                Health::Working
            },
            since,
            ways: if away {
                vec![self.doctor()]
            } else {
                Vec::new()
            },
            ..self.plain(EDITED, title, message, next)
        }
    }

    pub(super) fn is_long(&self, since: Option<&Time>) -> bool {
        since.is_some_and(|since| super::pods::age(since, self.now) > AWAY)
    }

    fn told(&self, ready: &Condition) -> Verdict {
        let reason = reason_of(ready);
        let stalled = holds(self.status, ConditionType::Stalled);
        let (next, next_at) = self.next(reason);
        Verdict {
            health: self.health(ready, reason),
            reason: ready.reason.clone(),
            title: match reason {
                Some(Reason::RolledBack) if self.first_failed() => self.after_first(),
                Some(reason) => words::title(reason, self.is_paused()).to_owned(),
                None => ready.reason.clone(),
            },
            message: ready.message.clone(),
            cause: self.cause(reason),
            since: self.since(reason, stalled),
            next,
            next_at,
            ways: self.ways(reason),
        }
    }

    /// What the operator said last, without what could be done then: the ways out are
    /// those of now.
    pub(super) fn before(&self, ready: &Condition) -> String {
        was(&ready.reason, &ready.message, &self.ways(reason_of(ready)))
    }

    fn health(&self, ready: &Condition, reason: Option<Reason>) -> Health {
        if ready.status == "True" {
            return Health::Ok;
        }
        match reason {
            Some(Reason::Paused | Reason::WorkloadPaused | Reason::Undone) => Health::Held,
            Some(Reason::RollbackStarted | Reason::RollingBack) => Health::Failed,
            Some(reason) if words::waits_for_person(reason) => Health::Failed,
            _ if holds(self.status, ConditionType::Stalled).is_some() => Health::Failed,
            _ if self.status.phase == Some(Phase::Rollback) => Health::Failed,
            _ => Health::Working,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.plan.is_some_and(Plan::paused)
    }

    /// Since when it is like this.
    fn since(&self, reason: Option<Reason>, stalled: Option<&Condition>) -> Option<Time> {
        let release = self.status.release.as_ref();
        if let Some(reason) = reason
            && matches!(reason, Reason::Paused | Reason::WorkloadPaused)
            && let Some(held) = release.and_then(|r| r.held_since.as_ref())
        {
            return Some(seconds(held));
        }
        if stalled.is_some() {
            return stalled_since(self.status).cloned();
        }
        if let Some(release) = release {
            return Some(seconds(&release.stage_since));
        }
        let ready = holds(self.status, ConditionType::Ready)
            .or_else(|| holds(self.status, ConditionType::Reconciling))
            .or_else(|| condition(self.status, ConditionType::Ready))?;
        Some(ready.last_transition_time.clone())
    }

    /// Why it goes back, went back or stopped.
    fn cause(&self, reason: Option<Reason>) -> Option<CauseView> {
        let failure = self
            .status
            .release
            .as_ref()
            .and_then(|r| r.failure.as_ref());
        if let Some(failure) = failure {
            return Some(CauseView {
                cause: failure.cause,
                component: failure.component.clone(),
                message: failure.message.clone(),
                at: seconds(&failure.at),
            });
        }
        if !matches!(reason, Some(Reason::RolledBack | Reason::Undone)) {
            return None;
        }
        let refused = self.refused()?;
        if self.message().contains(" was put back. It failed before: ") {
            // What came again is told by the message as well.
            return None;
        }
        if reason == Some(Reason::Undone) && refused.cause != Cause::Undone {
            // It says why that content is held, not who asked for what is live: the
            // message has both.
            return None;
        }
        // Of several undos it is the last one that says what is live.
        let last = self.status.history.last().filter(|record| {
            record.kind == ReleaseKind::Undo && record.result == ReleaseResult::Succeeded
        });
        if refused.cause == Cause::Undone
            && let (Some(undone), Some(stable)) = (last, &self.status.stable_revision)
        {
            let by = undone.requested_by.as_deref();
            return Some(CauseView {
                cause: Cause::Undone,
                component: None,
                message: undone::asked(stable, by, &refused.revision),
                at: undone.started_at.clone(),
            });
        }
        Some(CauseView {
            cause: refused.cause,
            component: refused.component.clone(),
            message: undone::message(refused.cause, &refused.message, &refused.revision),
            at: refused.at.clone(),
        })
    }

    /// The refused content that holds the plan where it is.
    pub(super) fn refused(&self) -> Option<&RefusedContent> {
        let content = self.plan.map(Plan::content);
        holding(&scope(self.plan, self.status), self.status, content)
    }

    /// The first component whose deadline comes, and when that is.
    fn deadline(&self) -> Option<(&str, Timestamp)> {
        let held = self
            .status
            .release
            .as_ref()
            .is_some_and(|r| r.held_since.is_some());
        if held || self.is_paused() && self.status.phase == Some(Phase::RollingOut) {
            return None;
        }
        let deadline = SignedDuration::try_from(self.plan?.progress_deadline()).ok()?;
        // What cannot go back is not waited for.
        let goes_back = self.status.phase == Some(Phase::Rollback);
        let running = self.status.components.iter().filter(|c| {
            use ComponentState::{Missing, Restoring, Updated, Updating};
            match c.state {
                Some(Updating | Updated | Restoring) => true,
                Some(Missing) => !goes_back,
                _ => false,
            }
        });
        let ends = running.filter_map(|c| {
            let at = c.progress_at.as_ref()?.0.checked_add(deadline).ok()?;
            Some((c.name.as_str(), at))
        });
        ends.min_by_key(|(_, at)| *at)
    }

    /// Whether all components are there that the bake is to judge.
    fn all_bake(&self) -> bool {
        let step = self.status.step.as_deref().unwrap_or_default();
        let counts = step.strip_prefix("Bake ").and_then(|n| n.split_once('/'));
        counts.is_none_or(|(done, total)| done == total)
    }

    /// What happens next by itself, and when at the latest.
    pub(super) fn next(&self, reason: Option<Reason>) -> (String, Option<Time>) {
        let stage = self.status.release.as_ref().map(|release| release.stage);
        let stalled = holds(self.status, ConditionType::Stalled).is_some();
        if let (Some(Stage::Promote | Stage::Bake), Some((component, at)), false) =
            (stage, self.deadline(), stalled)
        {
            let text = format!("{} if {component} makes no progress", self.end());
            return (text, Some(Time(at)));
        }
        if reason == Some(Reason::Baking)
            && self.all_bake()
            && let (Some(plan), Some(release)) = (self.plan, &self.status.release)
            && let Ok(bake) = SignedDuration::try_from(plan.bake_time())
            && let Ok(end) = release.stage_since.0.checked_add(bake)
        {
            return ("stable if nothing fails".to_owned(), Some(Time(end)));
        }
        if let (Some(Stage::Restore), Some((component, at)), false) =
            (stage, self.deadline(), stalled)
        {
            let end = if self.stored.is_deleting() {
                "the plan goes once all are back and available"
            } else {
                "rolled back once all are available"
            };
            let text = format!("{end}; called stalled if {component} makes no progress");
            return (text, Some(Time(at)));
        }
        if reason == Some(Reason::RollbackStalled) && self.stored.is_deleting() {
            // It takes no content any more.
            let text = "the plan goes once what was stable gets available";
            return (text.to_owned(), None);
        }
        (words::next(reason).to_owned(), None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::testing::{conditions, noon, with};

    fn verdict(plan: &StoredPlan) -> Verdict {
        of(&Facts {
            stored: plan,
            status: &plan.status.clone().unwrap(),
            plan: None,
            now: noon(),
            caller: &Caller::default(),
        })
    }

    /// The plan itself was last edited long before.
    #[test]
    fn a_delete_that_was_just_made_is_no_old_edit_that_nobody_saw() {
        let deleted = |at: &str| {
            verdict(&with(|plan| {
                plan["metadata"]["generation"] = json!(8);
                plan["metadata"]["deletionTimestamp"] = json!(at);
                plan["metadata"]["managedFields"] = json!([{"manager": "kubectl",
                    "operation": "Update", "time": "2026-03-01T09:00:00Z"}]);
            }))
        };
        let fresh = deleted("2026-03-01T11:59:58Z");
        assert_eq!(fresh.health, Health::Working);
        assert_eq!(
            fresh.title,
            "Deleted, and not looked at by the operator yet"
        );
        assert!(fresh.ways.is_empty(), "{fresh:?}");
        let old = deleted("2026-03-01T11:59:00Z");
        assert_eq!(old.health, Health::Failed);
        assert!(old.title.contains("the deleted plan"), "{}", old.title);
        assert_eq!(old.since.unwrap().0.to_string(), "2026-03-01T11:59:00Z");
    }

    /// Nothing of it was written, so nothing goes back.
    #[test]
    fn an_undo_that_has_not_begun_is_dropped_and_not_gone_back_from() {
        let waits = |applied: &[&str]| {
            verdict(&with(|plan| {
                let message = "the undo to shop-aaaa waits: the plan is paused (spec.paused). To go on: kubectl patch relplan shop -n s --type merge -p '{\"spec\":{\"paused\":false}}' ; to drop it: kubectl annotate relplan shop -n s belay.dev/abort=shop-aaaa --overwrite";
                plan["status"]["conditions"] = conditions("False", "Paused", message);
                plan["status"]["release"] = json!({
                    "number": 2, "kind": "Content", "stage": "Settle", "content": "c",
                    "undo": "shop-aaaa", "startedAt": "2026-03-01T11:59:00.000000Z",
                    "stageSince": "2026-03-01T11:59:00.000000Z", "applied": applied,
                });
            }))
        };
        let verdict = waits(&[]);
        let effects: Vec<&str> = verdict.ways.iter().map(|way| way.effect.as_str()).collect();
        assert_eq!(effects, ["go on", "drop the undo to shop-aaaa"]);
        let told = crate::cli::status::said::once(&verdict.message, &verdict.ways);
        assert_eq!(
            told,
            "the undo to shop-aaaa waits: the plan is paused (spec.paused)"
        );
        // Without a way that says the same, the operator's words stay whole.
        let told = crate::cli::status::said::once(&verdict.message, &verdict.ways[..1]);
        assert!(told.contains("to drop it: kubectl annotate"), "{told}");
        let begun = waits(&["shop-aaaa"]);
        assert!(!begun.ways.iter().any(|way| way.effect.contains("drop")));
    }

    #[test]
    fn an_abort_of_a_first_release_is_not_called_a_way_back() {
        let under_way = |stable: Option<&str>| {
            let verdict = verdict(&with(|plan| {
                plan["status"]["conditions"] = conditions("False", "Promoting", "waiting");
                plan["status"]["phase"] = json!("RollingOut");
                plan["status"]["stableRevision"] = json!(stable);
                plan["status"]["targetRevision"] = json!("shop-cccc");
                plan["status"]["release"] = json!({
                    "number": 1, "kind": "First", "stage": "Promote", "content": "c",
                    "startedAt": "2026-03-01T11:59:00.000000Z",
                    "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
                });
            }));
            verdict.ways[0].effect.clone()
        };
        assert_eq!(under_way(Some("shop-bbbb")), "go back now");
        assert_eq!(
            under_way(None),
            "end the release; there is nothing to go back to, so what is live stays as it is"
        );
    }

    #[test]
    fn a_plan_that_is_deleted_takes_no_orders_but_lets_go() {
        let plan = with(|plan| {
            plan["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
            plan["status"]["phase"] = json!("Rollback");
            plan["status"]["targetRevision"] = json!("shop-cccc");
            plan["status"]["conditions"] = conditions("False", "RollingBack", "");
            plan["status"]["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Restore", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
            });
        });
        let told = |plan: &StoredPlan| {
            let status = plan.status.clone().unwrap();
            let verdict = of(&Facts {
                stored: plan,
                status: &status,
                plan: None,
                now: noon(),
                caller: &Caller::default(),
            });
            let ways = verdict.ways.into_iter();
            ways.filter_map(|way| way.command).collect::<Vec<_>>()
        };
        let commands = told(&plan);
        assert_eq!(commands.len(), 1, "{commands:?}");
        let stalled = with(|stalled| {
            *stalled = serde_json::to_value(&plan).unwrap();
            stalled["status"]["conditions"] = conditions("False", "RollbackStalled", "");
        });
        let next = verdict(&stalled).next;
        assert_eq!(next, "the plan goes once what was stable gets available");
        assert!(commands[0].contains("deletionPolicy"), "{commands:?}");
        let mut kept = plan;
        kept.spec["deletionPolicy"] = json!("Keep");
        assert!(told(&kept).is_empty());
    }
}
