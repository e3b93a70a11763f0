//! The CustomResourceDefinition, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::ReleasePlan;

/// The CRD of `ReleasePlan` as it is installed.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ReleasePlan::crd();
    for version in &mut crd.spec.versions {
        let Some(schema) = version.schema.as_mut() else {
            continue;
        };
        // Optional fields are made nullable by the derive. The API server does
        // not default a nullable field that is null, so none of ours is.
        if let Ok(Value::Object(mut tree)) = serde_json::to_value(&*schema) {
            tree.values_mut().for_each(tidy);
            // What is not known of a status is absent, not defaulted, but for
            // that it is not known.
            let status = tree
                .values_mut()
                .find_map(|root| root.pointer_mut("/properties/status"));
            if let Some(status) = status {
                undefault(status);
                mark_unseen(status);
            }
            if let Ok(tidied) = serde_json::from_value(Value::Object(tree)) {
                *schema = tidied;
            }
        }
    }
    crd
}

/// Lets a plan that the operator has not seen say so. Users of kstatus compare
/// this number with the generation, and take a plan without it for finished.
fn mark_unseen(status: &mut Value) {
    if let Value::Object(fields) = status {
        fields.insert("default".into(), json!({"observedGeneration": -1}));
    }
}

/// Takes the defaults out of a schema.
fn undefault(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    fields.remove("default");
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(undefault);
    }
    if let Some(items) = fields.get_mut("items") {
        undefault(items);
    }
}

fn tidy(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
            }
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The CRD as YAML, as it stands in `crds/`.
///
/// # Errors
/// Only if serialising fails.
pub fn crd_yaml() -> Result<String, String> {
    serde_saphyr::to_string(&crd()).map_err(|error| error.to_string())
}
