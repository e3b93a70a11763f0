//! What the API server answered to the dry runs of the last moments.
//!
//! A release is looked at several times while its content settles, and the same
//! question has the same answer then. The answers are kept only until the plan
//! asks no more, and are never older than [`AGE`]: policies of the cluster, which
//! no question shows, may have changed since. What is written later is judged by
//! the API server anyway.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    cluster::Snapshot,
    fields::{Found, canon},
    machine::{DryRun, Scope},
    plan::Target,
};

/// Longest time for which an answer is taken as it was.
const AGE: Duration = Duration::from_secs(2);

/// Answers by the uid of the plan and the workload.
#[derive(Debug, Default)]
pub(super) struct Trials(Mutex<HashMap<String, HashMap<Target, Kept>>>);

#[derive(Debug)]
struct Kept {
    question: Question,
    answer: Answer,
    at: Instant,
}

/// All that a dry run depends on, as far as Belay can see it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    uid: String,
    live: String,
    ownership: String,
    partial: Option<String>,
    found: Found,
    frozen: Option<String>,
}

/// What the API server made of it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Of the partial template.
    pub(super) dry_run: Option<DryRun>,
    /// Of the frozen template.
    pub(super) stable_today: Option<Value>,
}

impl Question {
    /// The question that a component asks. `ownership` is a digest of who owns
    /// which of the workload's fields, `frozen` the digest of the template that
    /// the stable revision holds.
    pub(super) fn new(
        scope: &Scope,
        workload: &Snapshot,
        ownership: &str,
        found: &Found,
        frozen: Option<&Value>,
    ) -> Self {
        Self {
            uid: workload.uid.clone(),
            live: canon::digest_json(&workload.template),
            ownership: ownership.to_owned(),
            partial: scope.template.as_ref().map(canon::digest_json),
            found: found.clone(),
            frozen: frozen.map(canon::digest_json),
        }
    }
}

impl Question {
    /// Whether who asked this knows what `other` asks.
    fn includes(&self, other: &Self) -> bool {
        let frozen = if other.frozen.is_none() {
            &None
        } else {
            &self.frozen
        };
        let asked = (&self.uid, &self.live, &self.ownership);
        asked == (&other.uid, &other.live, &other.ownership)
            && (&self.partial, &self.found, frozen) == (&other.partial, &other.found, &other.frozen)
    }
}

impl Trials {
    /// The answer to this question, if it was given a moment ago.
    pub(super) fn get(
        &self,
        uid: &str,
        target: &Target,
        question: &Question,
        now: Instant,
    ) -> Option<Answer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get(uid)?.get(target)?;
        let fresh = now.saturating_duration_since(kept.at) < AGE;
        (fresh && kept.question.includes(question)).then(|| kept.answer.clone())
    }

    /// Keeps an answer that was given at `at`.
    pub(super) fn keep(
        &self,
        uid: &str,
        target: &Target,
        question: Question,
        answer: Answer,
        at: Instant,
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Kept {
            question,
            answer,
            at,
        };
        all.entry(uid.to_owned())
            .or_default()
            .insert(target.clone(), kept);
    }

    /// Drops what is kept of a plan.
    pub(super) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::WorkloadKind;

    fn target() -> Target {
        Target {
            kind: WorkloadKind::Deployment,
            name: "cart".to_owned(),
        }
    }

    fn question(live: &str, partial: &str, owners: &str, frozen: Option<&str>) -> Question {
        let scope = Scope {
            name: "cart".to_owned(),
            target: target(),
            after: Vec::new(),
            template: Some(json!({"image": partial})),
            template_digest: None,
            config_maps: Vec::new(),
            tracked: Vec::new(),
            leaving: false,
        };
        let workload = Snapshot {
            uid: "u".to_owned(),
            template: json!({"image": live}),
            ..Snapshot::default()
        };
        let frozen = frozen.map(|image| json!({"image": image}));
        Question::new(
            &scope,
            &workload,
            owners,
            &Found::default(),
            frozen.as_ref(),
        )
    }

    fn kept(question: Question, at: Instant) -> Trials {
        let trials = Trials::default();
        let answer = Answer {
            dry_run: Some(DryRun::Refused("no".to_owned())),
            stable_today: None,
        };
        trials.keep("plan", &target(), question, answer, at);
        trials
    }

    #[test]
    fn the_same_question_has_the_same_answer_for_a_moment() {
        let now = Instant::now();
        let asked = question("1", "2", "me", None);
        let trials = kept(asked.clone(), now);
        let get = |passed| trials.get("plan", &target(), &asked, now + passed);
        assert!(get(AGE / 2).is_some());
        assert!(get(AGE).is_none(), "policies may have changed");
        assert!(trials.get("other", &target(), &asked, now).is_none());
        trials.forget("plan");
        assert!(trials.get("plan", &target(), &asked, now).is_none());
    }

    #[test]
    fn another_question_is_asked() {
        let now = Instant::now();
        let trials = kept(question("1", "2", "me", Some("1")), now);
        let knows = |question| trials.get("plan", &target(), &question, now).is_some();
        assert!(knows(question("1", "2", "me", Some("1"))));
        assert!(knows(question("1", "2", "me", None)), "less is asked");
        assert!(!knows(question("1", "2", "me", Some("0"))));
        assert!(!knows(question("3", "2", "me", None)));
        assert!(!knows(question("1", "3", "me", None)));
        assert!(!knows(question("1", "2", "you", None)));
        let trials = kept(question("1", "2", "me", None), now);
        let more = question("1", "2", "me", Some("1"));
        assert!(trials.get("plan", &target(), &more, now).is_none());
    }
}
