//! What leads out where somebody else holds what the plan holds: another writer, or
//! another plan.
//!
//! Pure. Who that is, and what it is about, only the operator's words say.

use super::{model::Way, verdict::Facts, ways::way};

/// What stands behind whoever keeps undoing what Belay does.
const KEEPS: &str = " keeps ";
/// What is undone: fields of the plan.
const FIELDS: &str = "changing what the plan holds in ";
/// What is undone: that refused content went back.
const REFUSED: &str = "giving ";
/// The same of contents of a ConfigMap.
const CONTENTS: &str = "being given refused contents";
/// What stands between a workload and the plan that has it.
const HELD: &str = " is held by releaseplan ";

impl Facts<'_> {
    /// To part another writer from the plan.
    pub(super) fn contended(&self) -> Vec<Option<Way>> {
        let unknown = || vec![Some(way("take the field out of one of the two", None))];
        let Some((who, what)) = self.message().split_once(KEEPS) else {
            return unknown();
        };
        if let Some((target, fields)) = of_fields(what) {
            let fields = match fields {
                "" => "what the plan holds there".to_owned(),
                fields => fields.to_owned(),
            };
            let effect = format!(
                "in {target}, take {fields} out of what {who} writes, or out of the plan; or give it the same value there"
            );
            return vec![Some(way(&effect, None))];
        }
        if what.starts_with(CONTENTS) {
            let effect = format!("stop what writes {who}, or have it write other contents");
            let retry = self.retry().filter(|_| !self.goes_back());
            return vec![Some(way(&effect, None)), retry];
        }
        let Some((target, revision)) = of_refused(what) else {
            return unknown();
        };
        let effect = format!("stop what {who} applies to {target}, or give it other content");
        let retry = self.command("retry", &format!("--revision {revision}"));
        let retry = retry
            .filter(|_| !self.goes_back())
            .map(|retry| way("release what it applies after all", Some(retry)));
        vec![Some(way(&effect, None)), retry]
    }

    /// To part two plans.
    pub(super) fn conflict(&self) -> Way {
        let mut held = self.message().split(HELD);
        let (first, second, more) = (held.next(), held.next(), held.next());
        let effect = match (first, second, more) {
            (Some(target), Some(other), None) => {
                let other = other.split(';').next().unwrap_or_default();
                format!("take {target} out of this plan or out of releaseplan {other}")
            }
            _ => "take each workload that is held out of one of the two plans".to_owned(),
        };
        way(&effect, None)
    }
}

/// The workload and the fields that are fought over.
fn of_fields(what: &str) -> Option<(&str, &str)> {
    let (target, rest) = what.strip_prefix(FIELDS)?.split_once(": ")?;
    let (fields, _) = rest.split_once(". Belay ")?;
    Some((target, fields))
}

/// The workload that is given refused content, and the revision that held it.
fn of_refused(what: &str) -> Option<(&str, &str)> {
    let (target, rest) = what
        .strip_prefix(REFUSED)?
        .split_once(" the template of ")?;
    let (revision, _) = rest.split_once(", which was ")?;
    Some((target, revision))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        api::Phase,
        cli::{
            status::{Caller, said::once, tree::summary},
            testing::{conditions, noon, with},
        },
    };

    fn told(reason: &str, message: &str, phase: Phase) -> (String, Vec<String>) {
        let plan = with(|plan| {
            plan["status"]["conditions"] = conditions("False", reason, message);
            plan["status"]["phase"] = json!(phase);
        });
        let verdict = summary(&plan, noon(), &Caller::default()).verdict;
        let ways = verdict.ways.iter().map(|way| match &way.command {
            Some(command) => format!("{}: {command}", way.effect),
            None => way.effect.clone(),
        });
        (once(&verdict.message, &verdict.ways), ways.collect())
    }

    /// As the operator says it.
    #[test]
    fn whoever_keeps_changing_what_the_plan_holds_is_named_with_what_to_do() {
        let fields = "field manager helm keeps changing what the plan holds in deployment cart: containers[app].image. Belay set it 3 times in 10m, holds now, and tries again once these are past. Take the field out of one of the two. Who owns what: kubectl get deployment cart -n s -o yaml --show-managed-fields";
        let (message, ways) = told("Contended", fields, Phase::Stable);
        assert_eq!(message, fields);
        assert_eq!(
            ways,
            [
                "in deployment cart, take containers[app].image out of what field manager helm writes, or out of the plan; or give it the same value there"
            ]
        );
        let refused = "field manager kubectl keeps giving deployment web the template of shop-cccc, which was refused. Belay sent the stable one back 3 times in 10m, holds now, and tries again once these are past. Stop what applies it, give it other content, or try that one again: kubectl annotate relplan shop -n s belay.dev/retry=shop-cccc --overwrite";
        let (message, ways) = told("Contended", refused, Phase::Stable);
        assert!(
            message.ends_with("Stop what applies it, give it other content"),
            "{message}"
        );
        assert_eq!(
            ways,
            [
                "stop what field manager kubectl applies to deployment web, or give it other content",
                "release what it applies after all: belay retry shop --revision shop-cccc -n s"
            ]
        );
        let contents = "configmap settings keeps being given refused contents; Belay wrote those of shop-bbbb back 3 times in 10m, holds now";
        let (_, ways) = told("Contended", contents, Phase::Stable);
        assert_eq!(
            ways,
            ["stop what writes configmap settings, or have it write other contents"]
        );
    }

    #[test]
    fn the_plan_that_holds_a_workload_is_named() {
        let held = "deployment cart is held by releaseplan other";
        let end = "; this plan writes nothing until that plan is deleted or no longer names it";
        let (_, ways) = told("Conflict", &format!("{held}{end}"), Phase::Stable);
        assert_eq!(
            ways,
            ["take deployment cart out of this plan or out of releaseplan other"]
        );
        let two = format!("{held}, deployment web is held by releaseplan more{end}");
        let (_, ways) = told("Conflict", &two, Phase::Stable);
        assert_eq!(
            ways,
            ["take each workload that is held out of one of the two plans"]
        );
    }
}
