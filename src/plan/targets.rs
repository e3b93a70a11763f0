//! The workloads that a stored plan names, read without judging the rest.

use super::Target;
use crate::api::{StoredPlan, WorkloadKind};

/// Workloads that the spec names; also of a plan that is not valid.
#[must_use]
pub fn targets_of(plan: &StoredPlan) -> Vec<Target> {
    let components = plan
        .spec
        .get("components")
        .and_then(|components| components.as_array());
    components
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|component| {
            let workload = component.get("workload")?;
            let kind: WorkloadKind = serde_json::from_value(workload.get("kind")?.clone()).ok()?;
            Some(Target {
                kind,
                name: workload.get("name")?.as_str()?.to_owned(),
            })
        })
        .collect()
}
