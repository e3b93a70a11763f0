//! The workloads and ConfigMaps that a stored plan names, read without judging the rest.

use serde_json::Value;

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

/// ConfigMaps that the spec tracks; also of a plan that is not valid.
pub fn config_maps_of(plan: &StoredPlan) -> impl Iterator<Item = &str> {
    let components = plan.spec.get("components").and_then(Value::as_array);
    components
        .into_iter()
        .flatten()
        .filter_map(|component| component.get("configMaps")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
}
