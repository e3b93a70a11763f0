//! What a status and a Deployment say.

use belay::api::{FIELD_MANAGER, ReleasePlanStatus};
use k8s_openapi::{
    api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
};

/// Whether a condition has a status.
pub fn holds(status: &ReleasePlanStatus, type_: &str, value: &str) -> bool {
    status
        .conditions
        .iter()
        .any(|c| c.type_ == type_ && c.status == value)
}

/// A condition's message.
pub fn message(status: &ReleasePlanStatus, type_: &str) -> String {
    let condition = status.conditions.iter().find(|c| c.type_ == type_);
    condition.map(|c| c.message.clone()).unwrap_or_default()
}

pub fn image_of(deployment: &Deployment) -> String {
    let spec = deployment
        .spec
        .as_ref()
        .unwrap()
        .template
        .spec
        .as_ref()
        .unwrap();
    spec.containers[0].image.clone().unwrap()
}

/// Why a plan is Ready, or not: the reason and the message.
pub fn why(status: &ReleasePlanStatus) -> String {
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    ready.map_or_else(String::new, |c| format!("{}: {}", c.reason, c.message))
}

/// What Belay owns of a Deployment, by its managed fields.
pub fn owned(deployment: &Deployment) -> Vec<ManagedFieldsEntry> {
    let entries = deployment.metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
        .cloned()
        .collect()
}
