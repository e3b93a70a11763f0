//! Whether what an order wants back is still kept.
//!
//! The status names revisions; whether they and their contents are whole only
//! the objects say. An order that nothing can come of is a fault, so that who
//! gives it hears of it. What cannot be found out is a warning, since the
//! controller asks the same again.

use std::collections::BTreeSet;

use tokio::time::{Instant, timeout_at};

use super::{
    checks::{BUDGET, Findings},
    lookup::{Held, Lookup, LookupError},
};
use crate::{
    api::{ConditionType, RETRY, ReleasePlanStatus, StoredPlan, UNDO, WorkloadRef},
    config_maps::{Tracked, names},
    fields::{canon, put_back},
    plan::{Plan, Violation, ViolationKind, given_orders, rests_on_revision, undoable},
    revision::{Frozen, RevisionData},
};

/// Judges the orders that an update gives to `plan`, which is what `new` says.
pub(super) async fn check(
    lookup: &dyn Lookup,
    namespace: &str,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
) -> Findings {
    let Some(old) = old else {
        return Findings::default();
    };
    let deadline = Instant::now() + BUDGET;
    let mut findings = Findings::default();
    for (order, wanted) in given_orders(old, new) {
        if !rests_on_revision(old.status.as_ref(), order, wanted) {
            continue;
        }
        let touches = |workload: &WorkloadRef| match order {
            RETRY => is_refused_of(old.status.as_ref(), wanted, workload),
            _ => plan
                .components()
                .iter()
                .any(|c| c.target.to_ref() == *workload),
        };
        let look = fault(lookup, namespace, old, (order, wanted), touches, plan);
        let found = timeout_at(deadline, look).await;
        let found =
            found.unwrap_or_else(|_| Err(LookupError("the cluster did not answer in time".into())));
        match found {
            Ok(None) => {}
            Ok(Some(text)) => findings.faults.push(Violation {
                path: format!("metadata.annotations[{order}]"),
                kind: ViolationKind::Invalid,
                message: format!("\"{wanted}\" {text}"),
            }),
            Err(error) => findings.warnings.push(format!(
                "{order}: it was not checked whether {wanted} is whole: {error}"
            )),
        }
    }
    findings
}

/// Whether a live template of a workload was refused with a revision.
fn is_refused_of(status: Option<&ReleasePlanStatus>, revision: &str, of: &WorkloadRef) -> bool {
    let refused = status.into_iter().flat_map(|status| &status.refused);
    let mut refused = refused.filter(|refused| refused.revision == revision);
    refused.any(|refused| refused.live.iter().any(|live| live.workload == *of))
}

/// Why nothing can come of an order, if so. `touches`: the workloads that it is
/// about.
async fn fault(
    lookup: &dyn Lookup,
    namespace: &str,
    plan: &StoredPlan,
    (order, wanted): (&str, &str),
    touches: impl Fn(&WorkloadRef) -> bool,
    asks: &Plan,
) -> Result<Option<String>, LookupError> {
    let cannot = match order {
        RETRY => "cannot be tried again",
        _ => "cannot be brought back",
    };
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    let Some(revision) = lookup.revision(namespace, uid, wanted).await? else {
        let others = others(plan, order, wanted);
        return Ok(Some(format!(
            "{cannot}: its ControllerRevision was deleted or changed{others}"
        )));
    };
    let mut lost = Vec::new();
    let stable = plan
        .status
        .as_ref()
        .and_then(|s| s.stable_revision.as_deref());
    if let Some(stable) = stable.filter(|_| order == UNDO) {
        let Some(live) = lookup.revision(namespace, uid, stable).await? else {
            return Ok(Some(format!(
                "{cannot}: ControllerRevision {stable}, which is stable, was deleted or changed, so that nothing could go back to it; restore that one first"
            )));
        };
        if is_live(plan, asks, &live.data, &revision.data) {
            return Ok(Some(format!(
                "is what is live already, by the name {stable}: nothing would change"
            )));
        }
    }
    let frozen = revision.data.components.iter();
    let frozen: Vec<&Frozen> = frozen.filter(|f| touches(&f.workload)).collect();
    let untracked: BTreeSet<&str> = frozen
        .iter()
        .flat_map(|frozen| untracked(frozen, asks))
        .collect();
    if !untracked.is_empty() {
        let names: Vec<&str> = untracked.into_iter().collect();
        return Ok(Some(format!(
            "{cannot}: it holds contents of configmap {}, which the plan does not track any more; add it to spec.components[].configMaps first",
            names.join(" and ")
        )));
    }
    let contents: BTreeSet<&Tracked> = frozen.iter().flat_map(|f| f.keeps()).collect();
    for tracked in contents {
        let Tracked {
            name,
            snapshot,
            digest,
        } = tracked;
        match lookup.contents(namespace, uid, tracked).await? {
            Held::Whole => {}
            Held::Lost => lost.push(format!(
                "configmap {snapshot}, which kept contents of configmap {name}, was deleted, and {name} does not have them any more; give {name} the contents with the digest {digest} back first"
            )),
            Held::Blocked => lost.push(format!(
                "configmap {snapshot} does not hold the contents of configmap {name} that it has to keep; delete it first, and let {name} hold those with the digest {digest}"
            )),
        }
    }
    Ok((!lost.is_empty()).then(|| format!("{cannot}: {}", lost.join("; "))))
}

/// Whether a plan at rest runs what a revision would bring back: the fields that one of
/// the two had of the plan are the same, and no name in them stands for other contents
/// by now.
fn is_live(plan: &StoredPlan, asks: &Plan, stable: &RevisionData, to: &RevisionData) -> bool {
    let Some(status) = &plan.status else {
        return false;
    };
    let mut conditions = status.conditions.iter();
    let rests = conditions.any(|c| c.type_ == ConditionType::Stable.as_str() && c.status == "True");
    if status.release.is_some() || !rests {
        return false;
    }
    asks.components().iter().all(|component| {
        let Some(live) = stable.of(&component.target) else {
            return false;
        };
        let then = to.of(&component.target).unwrap_or(live);
        let touched = live.touched().union(&then.touched());
        let back = if touched.is_empty() {
            then.template.clone()
        } else {
            put_back(&live.template, &then.template, &touched)
        };
        let names = names(&back);
        let mut named = then.named.iter().filter(|kept| names.contains(&kept.name));
        let is_as_then = |kept: &Tracked| {
            let mut seen = status.config_maps.iter();
            let seen = seen.find(|seen| seen.name == kept.name && !seen.missing);
            seen.and_then(|seen| seen.digest.as_ref()) == Some(&kept.digest)
        };
        canon::equal(&back, &live.template) && named.all(is_as_then)
    })
}

/// ConfigMaps of a followed workload whose contents a revision holds and that the
/// plan does not track any more.
fn untracked<'a>(frozen: &'a Frozen, plan: &Plan) -> impl Iterator<Item = &'a str> {
    let tracked = plan.config_maps();
    let tracked: BTreeSet<String> = tracked.into_iter().map(str::to_owned).collect();
    let followed = frozen.partial_digest.is_none();
    let maps = frozen.config_maps.iter().filter(move |_| followed);
    let names = maps.map(|tracked| tracked.name.as_str());
    names.filter(move |name| !tracked.contains(*name))
}

/// " (others are: shop-1, shop-2)": what an undo could name instead, as far as
/// the history knows.
fn others(plan: &StoredPlan, order: &str, wanted: &str) -> String {
    let status = plan.status.as_ref().filter(|_| order == UNDO);
    let Some(status) = status else {
        return String::new();
    };
    let stable = status.stable_revision.as_deref();
    let mut others = undoable(status);
    others.retain(|name| *name != wanted && Some(*name) != stable);
    if others.is_empty() {
        return String::new();
    }
    format!(" (others are: {})", others.join(", "))
}
