//! What `belay status` knows of a plan: one structure for people and programs.
//!
//! Everything that a rendering shows stands here, so that `-o json` never says
//! less than the text does. Field names are part of the output's version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::api::{Cause, ComponentState, Phase, ReleaseKind, ReleaseResult, Stage};

/// A plan and everything below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// Namespace of the plan.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// How far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The one thing that it waits for.
    pub verdict: Verdict,
    /// From where to where.
    pub revisions: Revisions,
    /// The release in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<CurrentRelease>,
    /// The release that ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRelease>,
    /// The components, those that others come after first; none in a list of
    /// plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<Vec<ComponentView>>,
    /// What holds newer content that waits for the end of a rollback, as
    /// `KIND/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// What could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// How something is, at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Health {
    /// As it should be.
    Ok,
    /// On its way by itself.
    Working,
    /// Held by somebody's wish.
    Held,
    /// Broken, or waits for a person.
    Failed,
}

/// The one thing that a plan waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// At a glance.
    pub health: Health,
    /// The reason on its conditions.
    pub reason: String,
    /// What is the matter, in a few words.
    pub title: String,
    /// The operator's own words, as they stand in the condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Why it goes back, went back or stopped, as it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseView>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What happens next without anybody's help.
    pub next: String,
    /// When at the latest, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// What a person can do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

/// Something that a person can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// What it brings about.
    pub effect: String,
    /// The command for it, if one command does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Why a release went back.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseView {
    /// The cause.
    pub cause: Cause,
    /// The component that failed, where it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What was seen, as it was recorded then.
    pub message: String,
    /// When.
    pub at: Time,
}

/// From where to where.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Revisions {
    /// What a rollback returns to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// What is being released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The last one whose pods all ran, where that is another than the stable
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<String>,
}

/// The release in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentRelease {
    /// Its number.
    pub number: i64,
    /// What started it.
    pub kind: ReleaseKind,
    /// What it does now.
    pub stage: Stage,
    /// Since when it does that.
    pub stage_since: Time,
    /// When it started.
    pub started_at: Time,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// What is live of a release whose place it takes, while it is prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
}

/// A release that ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRelease {
    /// Its number.
    pub number: i64,
    /// What was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// How it ended.
    pub result: ReleaseResult,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
}

/// A component and what is below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentView {
    /// Its name.
    pub name: String,
    /// Its workload, as `deployment/NAME`.
    pub workload: String,
    /// Components that it comes after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// At a glance.
    pub health: Health,
    /// What the plan does with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ComponentState>,
    /// Whether what is live is another writer's, to whom the operator gave in.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub contended: bool,
    /// Whether it left the plan and is only let go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Its Deployment; none if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentCounts>,
    /// ReplicaSets, newest first.
    pub replica_sets: Vec<ReplicaSetStatus>,
    /// The ConfigMaps that it tracks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<ConfigMapView>,
}

/// How the contents of a tracked ConfigMap go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConfigMapMode {
    /// By the reference of the plan's template to a snapshot.
    Snapshot,
    /// In place, since the template is not the plan's.
    Contents,
}

/// A tracked ConfigMap and the contents that belong to the revisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapView {
    /// Its name.
    pub name: String,
    /// How its contents go back.
    pub mode: ConfigMapMode,
    /// Whether it does not exist, or no longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Digest of what it held when the operator last read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The ConfigMap that the live template names for it: a snapshot, or itself.
    /// Absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// What belongs to the stable revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<ContentsView>,
    /// What belongs to the revision that is being released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ContentsView>,
}

/// Contents of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentsView {
    /// Their digest.
    pub digest: String,
    /// The ConfigMap that keeps them.
    pub snapshot: String,
}

/// A Deployment in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentCounts {
    /// Pods wanted.
    pub wanted: i32,
    /// Pods there are, of any template.
    pub replicas: i32,
    /// Pods that are ready, of any template.
    pub ready: i32,
    /// Pods of the live template.
    pub updated: i32,
    /// Pods that are available, of any template.
    pub available: i32,
    /// Whether its own `spec.paused` is set.
    pub paused: bool,
    /// Whether its controller has seen the live spec.
    pub observed: bool,
}

/// A ReplicaSet and its pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSetStatus {
    /// Its name.
    pub name: String,
    /// Whether it has the Deployment's live template.
    pub live: bool,
    /// Images of its containers.
    pub images: Vec<String>,
    /// Pods wanted of it.
    pub wanted: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// Why its pods cannot be created, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Pods that are not ready yet and have nothing wrong with them.
    pub starting: usize,
    /// Pods in trouble, worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<PodTrouble>,
}

/// A pod in trouble.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTrouble {
    /// Name of the pod.
    pub pod: String,
    /// The container that it is about, if one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// What is wrong, in one word (`CrashLoopBackOff`).
    pub reason: String,
    /// What the kubelet or the scheduler says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Restarts of the container.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// How it ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<Exit>,
    /// Since when it is like this, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it was made.
    #[serde(skip)]
    pub(super) created: Option<Time>,
    /// When the container restarted last.
    #[serde(skip)]
    pub(super) restarted: Option<Time>,
    /// When it restarted before that, where that is known.
    #[serde(skip)]
    pub(super) restarted_before: Option<Time>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// The kubelet's word for it (`OOMKilled`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CauseView {
    /// The cause as it is told everywhere.
    #[must_use]
    pub fn told(&self) -> String {
        self.cause.told(self.component.as_deref(), &self.message)
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl PlanStatus {
    /// The components; none in a list of plans.
    #[must_use]
    pub fn components(&self) -> &[ComponentView] {
        self.components.as_deref().unwrap_or_default()
    }
}

impl ComponentView {
    /// All pods in trouble, newest ReplicaSet first.
    pub fn trouble(&self) -> impl Iterator<Item = &PodTrouble> {
        self.replica_sets.iter().flat_map(|set| &set.trouble)
    }
}
