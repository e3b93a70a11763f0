//! What would change, for people and for programs.

use serde::Serialize;
use serde_json::Value;

/// What the next release of a plan would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanDiff {
    /// Namespace of the plan.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is to be known beside the differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why it cannot be released, or cannot be told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Components that would change.
    pub components: Vec<ComponentDiff>,
}

/// What would change of a component.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentDiff {
    /// Its name.
    pub name: String,
    /// Its workload, as `deployment/NAME`.
    pub workload: String,
    /// Objects that would be other ones, each with its differences.
    pub parts: Vec<Part>,
}

/// An object, or the part of one, that a release brings.
///
/// The pod template is one; whatever else belongs to the content of a component
/// becomes another in the same list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// What it is, such as `pod template of deployment/web`.
    pub what: String,
    /// Fields that differ.
    pub changes: Vec<FieldChange>,
    /// The same as a unified diff of YAML.
    pub unified: String,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Where, in short: `containers[app].image`.
    pub path: String,
    /// What stands there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// What would stand there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// The same in one line, without values that may be secrets.
    pub text: String,
}

impl PlanDiff {
    /// Whether anything would change.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !self.components.is_empty()
    }

    /// Workloads that would change, as `-o name` prints them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let all = self.components.iter();
        all.map(|c| c.workload.replacen("deployment/", "deployment.apps/", 1))
            .collect()
    }
}
