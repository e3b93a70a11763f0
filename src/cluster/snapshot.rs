//! A workload's template as it was read, and the shape of an apply to it.
//!
//! Nothing goes through typed structs: fields of a template that this version
//! does not know are kept.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch},
    core::ApiResource,
};
use serde_json::{Value, json};

use crate::{
    api::FIELD_MANAGER,
    fields::{FieldSet, FieldsError, owned_by},
    plan::Target,
};

/// A workload's template as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Uid of the workload.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Its pod template.
    pub template: Value,
    /// Fields of the template that Belay owns by apply.
    pub owned: FieldSet,
}

impl Snapshot {
    /// What is needed of a workload.
    ///
    /// # Errors
    /// If its `managedFields` cannot be read.
    pub fn of(object: &DynamicObject) -> Result<Self, FieldsError> {
        Ok(Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            template: object
                .data
                .pointer("/spec/template")
                .cloned()
                .unwrap_or_default(),
            owned: template_owned_by(object, FIELD_MANAGER)?,
        })
    }
}

/// Fields of the pod template that a manager owns by apply.
pub(super) fn template_owned_by(
    object: &DynamicObject,
    manager: &str,
) -> Result<FieldSet, FieldsError> {
    let entries = object
        .metadata
        .managed_fields
        .as_deref()
        .unwrap_or_default();
    Ok(owned_by(entries, manager)?.descend(&["spec", "template"]))
}

/// The Deployments of a namespace, untyped.
#[must_use]
pub fn deployments(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Deployment>(&());
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Server-side apply of a pod template. Uid and resourceVersion bind it to the
/// object it was decided on: without them a missing workload would be created.
#[must_use]
pub fn apply_body(
    namespace: &str,
    target: &Target,
    uid: &str,
    resource_version: &str,
    template: &Value,
) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": target.name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": resource_version,
        },
        "spec": {"template": template},
    })
}

/// JSON patch that replaces a whole pod template. A resourceVersion that does
/// not match is a clean conflict.
///
/// # Errors
/// Only if the template cannot be made part of a patch.
pub fn replace_template(
    uid: &str,
    resource_version: &str,
    template: &Value,
) -> Result<Patch<()>, serde_json::Error> {
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "replace", "path": "/spec/template", "value": template},
    ]);
    serde_json::from_value(operations).map(Patch::Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::WorkloadKind;

    #[test]
    fn an_apply_is_bound_to_the_workload_and_owns_nothing_but_the_template() {
        let target = Target {
            kind: WorkloadKind::Deployment,
            name: "cart".into(),
        };
        let body = apply_body("shop", &target, "u", "7", &json!({"spec": {}}));
        assert_eq!(body["metadata"]["uid"], "u");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        let spec = body["spec"].as_object().unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), ["template"]);
    }
}
