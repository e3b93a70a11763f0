//! Which plan holds a workload that several plans name.
//!
//! Pure. Admission only warns: two plans created at the same moment cannot see
//! each other there, so the decision is made here, the same way by everyone.

use k8s_openapi::jiff::Timestamp;

use super::{Target, targets_of};
use crate::api::StoredPlan;

/// Name of the plan that holds `target` if it is not `me`. The plan that held
/// it longest keeps it; before anyone does, the oldest gets it, and of two
/// equally old ones that with the lower uid. A plan that is not stored yet comes
/// last.
#[must_use]
pub fn incumbent<'a>(
    me: &StoredPlan,
    target: &Target,
    others: impl Iterator<Item = &'a StoredPlan>,
) -> Option<String> {
    let mine = rank(me, target);
    others
        .filter(|other| {
            let (mine, theirs) = (&me.metadata, &other.metadata);
            theirs.namespace == mine.namespace && theirs.name.is_some() && theirs.name != mine.name
        })
        .filter(|other| claimed_at(other, target).is_some() || targets_of(other).contains(target))
        .map(|other| (rank(other, target), other))
        .filter(|(rank, _)| *rank < mine)
        .min_by(|(a, _), (b, _)| a.cmp(b))
        .and_then(|(_, other)| other.metadata.name.clone())
}

fn claimed_at(plan: &StoredPlan, target: &Target) -> Option<Timestamp> {
    let reference = target.to_ref();
    let component = plan
        .status
        .as_ref()?
        .components
        .iter()
        .find(|c| c.workload == reference)?;
    component.claimed_at.as_ref().map(|at| at.0)
}

fn rank(plan: &StoredPlan, target: &Target) -> impl Ord + use<> {
    let last = |time: Option<Timestamp>| time.unwrap_or(Timestamp::MAX);
    (
        last(claimed_at(plan, target)),
        last(plan.metadata.creation_timestamp.as_ref().map(|at| at.0)),
        plan.metadata.uid.is_none(),
        plan.metadata.uid.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(name: &str, uid: &str, created: &str, claimed: Option<&str>) -> StoredPlan {
        let status = claimed.map(|at| {
            json!({"components": [{
                "name": "cart",
                "workload": {"kind": "Deployment", "name": "cart"},
                "claimedAt": at
            }]})
        });
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "creationTimestamp": created},
            "spec": {"components": [{"workload": {"kind": "Deployment", "name": "cart"}}]},
            "status": status
        }))
        .unwrap()
    }

    fn cart() -> Target {
        Target {
            kind: crate::api::WorkloadKind::Deployment,
            name: "cart".to_owned(),
        }
    }

    #[test]
    fn exactly_one_of_several_plans_holds_a_workload() {
        let plans = [
            plan("a", "3", "2026-01-01T00:00:01Z", None),
            plan("b", "2", "2026-01-01T00:00:01Z", None),
            plan("c", "1", "2026-01-01T00:00:02Z", None),
        ];
        let holders: Vec<_> = plans
            .iter()
            .map(|me| incumbent(me, &cart(), plans.iter()))
            .collect();
        assert_eq!(holders, [Some("b".to_owned()), None, Some("b".to_owned())]);
    }

    #[test]
    fn who_held_it_longest_keeps_it_from_an_older_plan() {
        let plans = [
            plan("older", "1", "2026-01-01T00:00:00Z", None),
            plan(
                "holder",
                "2",
                "2026-01-02T00:00:00Z",
                Some("2026-01-02T00:00:01.000000Z"),
            ),
            plan(
                "later",
                "0",
                "2026-01-01T00:00:00Z",
                Some("2026-01-02T00:00:02.000000Z"),
            ),
        ];
        let holders: Vec<_> = plans
            .iter()
            .map(|me| incumbent(me, &cart(), plans.iter()))
            .collect();
        assert_eq!(
            holders,
            [Some("holder".to_owned()), None, Some("holder".to_owned())]
        );
    }

    #[test]
    fn a_plan_that_is_not_stored_yet_comes_last() {
        let mut me = plan("me", "0", "2026-01-01T00:00:00Z", None);
        (me.metadata.uid, me.metadata.creation_timestamp) = (None, None);
        let other = plan("other", "9", "2026-01-09T00:00:00Z", None);
        assert_eq!(
            incumbent(&me, &cart(), [&other].into_iter()),
            Some("other".to_owned())
        );
        assert_eq!(incumbent(&other, &cart(), [&me].into_iter()), None);
    }

    #[test]
    fn a_plan_of_another_namespace_or_workload_is_no_rival() {
        let me = plan("me", "9", "2026-01-02T00:00:00Z", None);
        let mut elsewhere = plan("x", "1", "2026-01-01T00:00:00Z", None);
        elsewhere.metadata.namespace = Some("other".to_owned());
        let mut different = plan("y", "2", "2026-01-01T00:00:00Z", None);
        different.spec["components"][0]["workload"]["name"] = json!("web");
        assert_eq!(incumbent(&me, &cart(), [elsewhere, different].iter()), None);
    }
}
