//! Whether the event of a plan says something that a pass has to look at.
//!
//! Most events of a plan in a release are the operator's own notes of how far it
//! is; looking at the plan again because of them would be a pass for each note.
//! Forgetting what was seen costs a pass too many.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use super::record::without_progress;
use crate::api::StoredPlan;

/// What plans said when they were last seen, by uid.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<HashMap<String, u64>>);

impl News {
    /// Whether a plan says something else than when it was last seen, how far a
    /// stage is left aside.
    pub(super) fn is_news(&self, plan: &StoredPlan) -> bool {
        let uid = plan.metadata.uid.clone().unwrap_or_default();
        let says = digest(plan);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(uid, says) != Some(says)
    }

    /// The uids of plans that were seen, but for these.
    pub(super) fn all_but(&self, present: &HashSet<&str>) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let vanished = seen.keys().filter(|uid| !present.contains(uid.as_str()));
        vanished.cloned().collect()
    }

    /// Forgets a plan that is gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(uid);
    }
}

fn digest(plan: &StoredPlan) -> u64 {
    let meta = &plan.metadata;
    let mut hasher = DefaultHasher::new();
    // It rises with each change of the spec, and when deletion begins.
    meta.generation.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    meta.annotations.hash(&mut hasher);
    meta.finalizers.hash(&mut hasher);
    plan.status_fault.hash(&mut hasher);
    let status = plan.status.as_ref().map(without_progress);
    // Nothing in a status can fail to be written; if it did, it would be news.
    serde_json::to_string(&status)
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(change: impl FnOnce(&mut Value)) -> StoredPlan {
        let mut plan = json!({
            "metadata": {"name": "shop", "uid": "u", "generation": 1, "resourceVersion": "1",
                         "annotations": {"a": "1"}, "finalizers": ["belay.dev/rollback"]},
            "spec": {},
            "status": {"phase": "RollingOut", "components": [{
                "name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
                "updatedReplicas": 1}]},
        });
        change(&mut plan);
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn how_far_a_stage_is_is_no_news_and_anything_else_is() {
        let news = News::default();
        let seen = |change: fn(&mut Value)| {
            news.is_news(&plan(|_| {}));
            news.is_news(&plan(change))
        };
        assert!(news.is_news(&plan(|_| {})), "a plan never seen before");
        assert!(!seen(|_| {}), "a list after a watch that broke");
        assert!(!seen(|p| p["metadata"]["resourceVersion"] = json!("2")));
        assert!(!seen(|p| p["metadata"]["labels"] = json!({"a": "b"})));
        assert!(!seen(
            |p| p["status"]["components"][0]["updatedReplicas"] = json!(2)
        ));
        assert!(seen(|p| p["metadata"]["generation"] = json!(2)));
        assert!(seen(|p| p["metadata"]["annotations"]["a"] = json!("2")));
        assert!(seen(|p| p["metadata"]["finalizers"] = json!([])));
        assert!(seen(|p| {
            p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }));
        assert!(seen(|p| p["status"]["phase"] = json!("Rollback")));
        assert!(seen(|p| p["status"]["phase"] = json!(7)), "not to be read");
        assert!(seen(|p| p["status"] = Value::Null), "lost");
    }

    #[test]
    fn of_a_plan_that_is_gone_nothing_is_kept() {
        let news = News::default();
        news.is_news(&plan(|_| {}));
        assert_eq!(news.all_but(&HashSet::from(["u"])), [""; 0]);
        assert_eq!(news.all_but(&HashSet::from(["v"])), ["u"]);
        news.forget("u");
        assert!(news.is_news(&plan(|_| {})));
    }
}
