//! What a Deployment has to do with plans. Pure.

use kube::api::DynamicObject;
use serde_json::Value;

use super::model::{DeploymentExplanation, OwnedField};
use crate::{
    api::{FIELD_MANAGER, StoredPlan, WorkloadKind},
    cli::{CliError, holder},
    fields::{Path, PathElement, get, managed_by, owned_by},
    plan::{Plan, Target, targets_of},
};

/// Lists below which values are never shown: they may be secrets.
const HIDDEN: [&str; 2] = ["env", "httpHeaders"];

/// What a Deployment has to do with the plans of its namespace.
///
/// # Errors
/// Its `managedFields` cannot be read.
pub(super) fn explain(
    namespace: &str,
    name: &str,
    live: Option<&DynamicObject>,
    plans: &[StoredPlan],
) -> Result<DeploymentExplanation, CliError> {
    let target = Target {
        kind: WorkloadKind::Deployment,
        name: name.to_owned(),
    };
    let holder = holder(name, plans);
    let plan_name = |plan: &StoredPlan| plan.metadata.name.clone().unwrap_or_default();
    let held_by = holder.map(plan_name);
    let component = holder.and_then(|plan| {
        let parsed = Plan::parse(&plan.spec).ok()?;
        parsed
            .components()
            .iter()
            .find(|c| c.target == target)
            .cloned()
    });
    let naming = plans
        .iter()
        .filter(|plan| targets_of(plan).contains(&target))
        .map(plan_name);
    let (fields, other_writers) = live.map(written).transpose()?.unwrap_or_default();
    Ok(DeploymentExplanation {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        exists: live.is_some(),
        also_named_by: naming
            .filter(|name| Some(name) != held_by.as_ref())
            .collect(),
        templated: component.as_ref().is_some_and(|c| c.template.is_some()),
        component: component.map(|c| c.name),
        held_by,
        fields,
        other_writers,
    })
}

/// Fields that are Belay's, and who else writes the pod template.
fn written(live: &DynamicObject) -> Result<(Vec<OwnedField>, Vec<String>), CliError> {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let fault = |error| CliError::Form(format!("managedFields: {error}"));
    let template = live
        .data
        .pointer("/spec/template")
        .cloned()
        .unwrap_or_default();
    let owned = owned_by(entries, FIELD_MANAGER).map_err(fault)?;
    let fields = owned.descend(&["spec", "template"]).leaves();
    let fields = fields
        .iter()
        .filter(|path| !is_key(path))
        .map(|path| OwnedField {
            path: path.brief(),
            value: shown(&template, path),
        });
    let mut others = Vec::new();
    for entry in entries {
        let Some(manager) = entry.manager.as_deref() else {
            continue;
        };
        if manager == FIELD_MANAGER || others.iter().any(|known| known == manager) {
            continue;
        }
        let theirs = managed_by(std::slice::from_ref(entry), manager).map_err(fault)?;
        if !theirs.descend(&["spec", "template"]).is_empty() {
            others.push(manager.to_owned());
        }
    }
    Ok((fields.collect(), others))
}

/// Whether a field is the name by which an item of a list is found.
fn is_key(path: &Path) -> bool {
    matches!(path.elements(), [.., PathElement::Key(_), PathElement::Field(name)] if name == "name")
}

fn shown(template: &Value, path: &Path) -> Option<String> {
    let hidden = |element: &PathElement| match element {
        PathElement::Field(name) => HIDDEN.contains(&name.as_str()),
        PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => false,
    };
    if path.elements().iter().any(hidden) {
        return None;
    }
    match get(template, path)? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
