//! What is said of a plan whose first release failed, once something is stable.
//!
//! Nothing went back for it, so that it was not rolled back: what is live is what
//! somebody made of the workloads, or other content that was released since.

use super::verdict::Facts;
use crate::api::{ReleaseKind, ReleaseRecord, ReleaseResult};

impl Facts<'_> {
    /// Whether what holds the plan failed as the first content, so that nothing went
    /// back for it.
    pub(super) fn first_failed(&self) -> bool {
        let Some(refused) = self.refused() else {
            return false;
        };
        let mut records = self.status.history.iter().rev();
        let record = records.find(|r| r.revision.as_ref() == Some(&refused.revision));
        record.is_some_and(|record| {
            record.kind == ReleaseKind::First && record.result == ReleaseResult::Failed
        })
    }

    /// What is the matter with such a plan: what is live was released since, or is what
    /// somebody made of the workloads.
    pub(super) fn after_first(&self) -> String {
        let stable = self.status.stable_revision.as_ref();
        let released = |record: &ReleaseRecord| {
            record.result == ReleaseResult::Succeeded && record.revision.as_ref() == stable
        };
        match stable {
            Some(stable) if !self.status.history.iter().any(released) => {
                format!("The first release failed; a repair, {stable}, is live and stable since")
            }
            _ => "The first release failed; its content is not tried again by itself".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cli::{
        status::{
            Caller,
            render::{Layout, tree},
            tree::summary,
        },
        testing::{conditions, noon, with},
    };
    use crate::plan::Plan;

    const CRASH: &str = "ContainerRestarts of component cart: it restarted 3 times";

    /// Plan `shop` after its first release failed.
    fn shown(change: impl FnOnce(&mut Value)) -> String {
        let asks = Plan::parse(&with(|_| {}).spec).unwrap();
        let plan = with(|plan| {
            let status = &mut plan["status"];
            status["stableRevision"] = json!("shop-fixed");
            status["history"] = json!([{
                "number": 1, "kind": "First", "revision": "shop-bbbb", "requestedBy": "jane",
                "startedAt": "2026-03-01T11:00:00Z", "endedAt": "2026-03-01T11:02:30Z",
                "result": "Failed", "message": CRASH,
            }]);
            status["refused"] = json!([{
                "revision": "shop-bbbb", "spec": asks.content(), "cause": "ContainerRestarts",
                "component": "cart", "message": "it restarted 3 times",
                "at": "2026-03-01T11:02:30Z",
            }]);
            let message = format!(
                "the first release failed: {CRASH}. shop-fixed is live, and shop-bbbb is not released again by itself. Change the content of the plan or deployment web, or try the same again: kubectl annotate relplan shop -n s belay.dev/retry=shop-bbbb --overwrite"
            );
            status["conditions"] = conditions("False", "RolledBack", &message);
            change(status);
        });
        let layout = Layout {
            width: 200,
            height: None,
        };
        let lines = tree(&summary(&plan, noon(), &Caller::default()), noon(), layout);
        lines.iter().map(|line| line.plain() + "\n").collect()
    }

    #[test]
    fn a_first_release_that_failed_and_was_repaired_was_not_rolled_back() {
        let repaired = shown(|_| {});
        let top = "✗ shop  The first release failed; a repair, shop-fixed, is live and stable since (RolledBack)\n";
        assert!(repaired.starts_with(top), "{repaired}");
        assert!(
            repaired.contains(&format!("  Why     {CRASH}\n")),
            "{repaired}"
        );
        let released = shown(|status| {
            let mut record = status["history"][0].clone();
            (record["kind"], record["result"]) = (json!("Content"), json!("Succeeded"));
            record["revision"] = json!("shop-fixed");
            status["history"].as_array_mut().unwrap().push(record);
        });
        let top = "✗ shop  The first release failed; its content is not tried again by itself";
        assert!(released.starts_with(top), "{released}");
        let later = shown(|status| status["history"][0]["kind"] = json!("Content"));
        assert!(later.starts_with("✗ shop  Rolled back; "), "{later}");
    }

    #[test]
    fn a_first_release_that_failed_has_all_its_ways_out_once() {
        let text = shown(|status| {
            status["phase"] = json!("Failed");
            status["stableRevision"] = json!(null);
            let message = format!(
                "{CRASH}. There was no healthy revision to return to, so the new templates stay as they are. Change the content of the plan or deployment web, or try the same again: kubectl annotate relplan shop -n s belay.dev/retry=shop-bbbb --overwrite"
            );
            status["conditions"] = conditions("False", "ReleaseFailed", &message);
        });
        let why = format!(
            "  Why     {CRASH}. There was no healthy revision to return to, so the new templates stay as they are\n"
        );
        assert!(text.contains(&why), "{text}");
        let ways = [
            "  Do      change the content of the plan or deployment web\n",
            "  or      repair the workload: once it is available, it is what is returned to from then on\n",
            "  or      try the same again: belay retry shop --revision shop-bbbb -n s\n",
        ];
        assert!(text.contains(&ways.concat()), "{text}");
    }
}
