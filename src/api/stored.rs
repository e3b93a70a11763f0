//! A plan as the controller and the webhook read it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ReleasePlan, ReleasePlanStatus};

/// A `ReleasePlan` whose spec is not decoded, so that no stored plan, however
/// old or damaged, can stop a watch or a review. [`crate::plan::Plan::parse`]
/// makes sense of the spec.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(from = "Raw")]
pub struct StoredPlan {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The spec as stored.
    pub spec: Value,
    /// The status; absent also if what is stored cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ReleasePlanStatus>,
    /// Why the stored status cannot be read, if that is so. It holds the memory
    /// of releases, so it must not be taken for an empty one.
    #[serde(skip)]
    pub status_fault: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl From<Raw> for StoredPlan {
    fn from(raw: Raw) -> Self {
        let (status, status_fault) = match decode(raw.status) {
            Ok(status) => (status, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            metadata: raw.metadata,
            spec: raw.spec,
            status,
            status_fault,
        }
    }
}

fn decode(mut status: Value) -> Result<Option<ReleasePlanStatus>, serde_json::Error> {
    match serde_json::from_value(status.clone()) {
        Ok(status) => Ok(status),
        // The log of decisions is for people: an entry of another version is no
        // reason to forget the rest.
        Err(error) => match status.as_object_mut().and_then(|s| s.remove("decisions")) {
            Some(_) => serde_json::from_value(status),
            None => Err(error),
        },
    }
}

impl StoredPlan {
    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(name)
            .map(String::as_str)
    }

    /// Whether the plan is being deleted.
    #[must_use]
    pub const fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Resource for StoredPlan {
    type DynamicType = ();
    type Scope = <ReleasePlan as Resource>::Scope;

    fn kind(dt: &()) -> Cow<'_, str> {
        ReleasePlan::kind(dt)
    }

    fn group(dt: &()) -> Cow<'_, str> {
        ReleasePlan::group(dt)
    }

    fn version(dt: &()) -> Cow<'_, str> {
        ReleasePlan::version(dt)
    }

    fn plural(dt: &()) -> Cow<'_, str> {
        ReleasePlan::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_damaged_plan_is_read_all_the_same() {
        let plan: StoredPlan = serde_json::from_value(json!({
            "metadata": {"name": "shop"},
            "spec": {"components": "none", "paused": {}},
            "status": {"phase": "FromTheFuture"}
        }))
        .unwrap();
        assert_eq!(plan.spec["components"], "none");
        assert_eq!(plan.status, None);
        assert!(
            plan.status_fault
                .is_some_and(|fault| fault.contains("FromTheFuture"))
        );
        let empty: StoredPlan = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty.spec, Value::Null);
    }

    /// What an older version refused has no component, and is told without one.
    #[test]
    fn refused_content_of_an_older_version_is_read() {
        let plan: StoredPlan = serde_json::from_value(json!({
            "status": {"refused": [
                {"revision": "shop-1", "cause": "ContainerRestarts", "message": "m",
                 "at": "2026-01-01T00:00:00Z"},
                {"revision": "shop-2", "cause": "ContainerRestarts", "component": "web",
                 "message": "m", "at": "2026-01-01T00:00:00Z"},
                {"revision": "shop-3", "cause": "Aborted", "component": "web",
                 "message": "m", "at": "2026-01-01T00:00:00Z"},
            ]}
        }))
        .unwrap();
        let refused = plan.status.unwrap().refused;
        let told: Vec<String> = refused
            .iter()
            .map(crate::api::RefusedContent::told)
            .collect();
        assert_eq!(
            told,
            [
                "ContainerRestarts: m",
                "ContainerRestarts of component web: m",
                "m"
            ]
        );
    }

    #[test]
    fn a_decision_of_a_later_version_does_not_cost_the_rest_of_the_status() {
        let plan: StoredPlan = serde_json::from_value(json!({
            "status": {
                "phase": "Stable",
                "stableRevision": "shop-1",
                "decisions": [{"at": "2026-01-01T00:00:00Z", "reason": "New", "message": ""}]
            }
        }))
        .unwrap();
        assert_eq!(plan.status_fault, None);
        assert_eq!(
            plan.status.unwrap().stable_revision.as_deref(),
            Some("shop-1")
        );
    }
}
