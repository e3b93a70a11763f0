//! Why a plan is where it is, for people and for programs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::{
    api::{Cause, DecisionEntry},
    cli::status::PlanStatus,
};

/// Why a plan is where it is, and what would move it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The Deployment that was asked about, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentExplanation>,
    /// The plan, as `belay status` knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanExplanation>,
}

/// Why a plan is where it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanExplanation {
    /// Where it is.
    pub status: PlanStatus,
    /// What the content in its spec is at present.
    pub content: Content,
    /// What a release is judged by.
    pub limits: Vec<Limit>,
    /// What is measured of components that the plan waits for.
    pub measures: Vec<Measure>,
    /// What was decided, oldest first.
    pub decisions: Vec<DecisionEntry>,
    /// Content that is not tried again by itself.
    pub refused: Vec<Refused>,
    /// What people asked for and has not been done yet.
    pub orders: Vec<Waiting>,
}

/// What the content in a spec is at present.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Its digest; none if the plan is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What became of it, in words.
    pub text: String,
}

/// A setting that a release is judged by.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it does.
    pub effect: String,
}

/// What is measured of a component.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measure {
    /// The component.
    pub component: String,
    /// Best number of available pods of the new template.
    pub best_available: i32,
    /// Pods wanted.
    pub wanted: i32,
    /// When progress was last made.
    pub progress_at: Time,
    /// When it counts as stuck; none while the clock does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_at: Option<Time>,
}

/// Refused content.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The revision that held it.
    pub revision: String,
    /// Why.
    pub cause: Cause,
    /// The component that failed, where it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What was seen, as it was recorded.
    pub message: String,
    /// When.
    pub at: Time,
    /// Whether it is what the plan asks for now.
    pub current: bool,
    /// Whether it is refused only together with what failed, of which other content was
    /// released since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub corrected: bool,
    /// Whether the release in progress brings it, or what waits to be released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub comes_again: bool,
    /// How it had failed by itself, where it was refused for something else since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<String>,
}

/// An order that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The annotation.
    pub annotation: String,
    /// The revision that it names.
    pub revision: String,
    /// What it waits for.
    pub text: String,
}

/// What a Deployment has to do with plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentExplanation {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it exists.
    pub exists: bool,
    /// The plan that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// The component that it is of that plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Whether the plan says its template; otherwise it is followed.
    pub templated: bool,
    /// Plans that name it, too, and wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_named_by: Vec<String>,
    /// Fields of its pod template that are the plan's.
    pub fields: Vec<OwnedField>,
    /// Who else writes its pod template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_writers: Vec<String>,
}

/// A field that is the plan's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedField {
    /// Where, in short: `containers[app].image`.
    pub path: String,
    /// What stands there, where it is one value and no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
