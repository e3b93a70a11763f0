//! A plan as the controller and the webhook read it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{ReleasePlan, ReleasePlanStatus};

/// A `ReleasePlan` whose spec is not decoded, so that no stored plan, however
/// old or damaged, can stop a watch or a review. [`crate::plan::Plan::parse`]
/// makes sense of the spec.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct StoredPlan {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The spec as stored.
    #[serde(default)]
    pub spec: Value,
    /// The status; absent also if what is stored cannot be read.
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<ReleasePlanStatus>,
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

fn lenient<'de, D: Deserializer<'de>>(input: D) -> Result<Option<ReleasePlanStatus>, D::Error> {
    let value = Option::<Value>::deserialize(input)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
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
        let empty: StoredPlan = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty.spec, Value::Null);
    }
}
