//! `ReleasePlan.status`: what people see, and the engine's memory.
//!
//! Whatever a restart must not lose stands here or in the revisions. Users'
//! wishes never do: those are in spec and annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reason, WorkloadRef};

/// What is known of a plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReleasePlanStatus {
    /// `metadata.generation` that the rest of the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Release generation (annotation `belay.dev/release-generation`) whose
    /// content has been judged: released, rolled back or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_release_generation: Option<i64>,
    /// Digest of the spec's release content (annotation
    /// `belay.dev/release-digest`) that was judged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_content: Option<String>,
    /// Where the plan is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What the release in progress does right now, and how many components are
    /// done with it: Settle, Promote 1/2, Bake 2/2, Restore 1/2, Stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The revision that a rollback returns to: a ControllerRevision in the plan's
    /// namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable_revision: Option<String>,
    /// The last revision whose pods all ran, while the stable one has not been
    /// seen running yet: a release that fails returns to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_revision: Option<String>,
    /// The revision that is being released; belay.dev/abort names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_revision: Option<String>,
    /// Conditions: Ready, Reconciling and Stalled as in kstatus, and Stable,
    /// RollingOut, RollbackInProgress.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The components, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentStatus>,
    /// The tracked ConfigMaps as they were last seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<ConfigMapStatus>,
    /// The release in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseProgress>,
    /// Content that was rolled back. It is not tried again without
    /// `belay.dev/retry`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedContent>,
    /// A command that was carried out and whose annotation is still to be
    /// removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled: Option<HandledCommand>,
    /// Releases that ended, newest last; belay.dev/undo names a revision in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ReleaseRecord>,
    /// The last decisions, newest last: what was decided, on which grounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionEntry>,
}

/// A tracked ConfigMap as it was last seen.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapStatus {
    /// Its name.
    pub name: String,
    /// Digest of its contents when it was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether it does not exist.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// An annotation that was dealt with.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct HandledCommand {
    /// Name of the annotation.
    pub annotation: String,
    /// Its value.
    pub value: String,
    /// Who set it, as far as the webhook saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Where the plan is. Pending: workloads are missing, or what is live is not
/// known to be healthy yet. Stable: no release is in progress. RollingOut: a
/// release is. Rollback: everything is going back. Frozen: a failed release
/// waits for a person or newer content. Failed: a release failed and what is
/// live stays, since there was nothing to return to or a person said so.
// The schema has this text for the field, whatever the field says.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Targets are missing, or what is live is not yet known to be healthy.
    Pending,
    /// The stable revision is live.
    Stable,
    /// A release is under way.
    RollingOut,
    /// Everything is going back to the stable revision.
    Rollback,
    /// A failed release waits for a person.
    Frozen,
    /// A release failed and there is nothing to return to.
    Failed,
}

/// One component as it is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentStatus {
    /// Name of the component.
    pub name: String,
    /// Its workload.
    pub workload: WorkloadRef,
    /// What is happening to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ComponentState>,
    /// Pods wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods of the live template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Pods available, of whichever template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// What keeps it from going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when this plan holds the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<MicroTime>,
    /// Uid of the workload that was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Digest of the partial template that was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_digest: Option<String>,
    /// Digest of the contents of a followed workload's ConfigMaps that was
    /// judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Digest of the live template that was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_digest: Option<String>,
    /// Best number of available pods of the new template in this stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_ready: Option<i32>,
    /// When progress was last made in this stage; the deadline counts from
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_at: Option<MicroTime>,
    /// Whether its stable template has not run yet: it was released with no pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// When the fields of the plan were written in this stage: more than one
    /// entry means that somebody took them back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub written_at: Vec<MicroTime>,
    /// Refused content that came again last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_again: Option<RefusedAgain>,
    /// How it was left by a first release that failed, until something is stable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_first: Option<FailedFirst>,
}

impl ComponentStatus {
    /// Digest of the live template that the operator looked at last.
    #[must_use]
    pub fn looked_at(&self) -> Option<&str> {
        let repair = self.failed_first.as_ref();
        let repair = repair.and_then(|failed| failed.repair_digest.as_deref());
        repair.or(self.live_digest.as_deref())
    }
}

/// A workload whose first release failed, with nothing to return to.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedFirst {
    /// Digest of the pod spec with which it failed; empty where that is not known.
    pub spec_digest: String,
    /// Digest of the template that somebody gave it since, as it was looked at
    /// last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_digest: Option<String>,
    /// Since when it has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired_at: Option<MicroTime>,
}

/// Refused content that a workload was given again.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedAgain {
    /// When the last of it was seen.
    pub at: MicroTime,
    /// As what it was refused.
    pub revision: String,
    /// Whether it is put back, or was.
    pub put_back: bool,
    /// Whether it had come and was put back before in the same release.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
    /// What of it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<RefusedPart>,
    /// Digests of the templates that the way back leaves between two writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Whether it is not there any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// What of refused content came again.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum RefusedPart {
    /// The pod template.
    Template,
    /// Contents of ConfigMaps.
    Contents,
    /// Both.
    Both,
}

/// What is happening to a component.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentState {
    /// The workload does not exist.
    Missing,
    /// Waits for its turn.
    Waiting,
    /// Moves to the target.
    Updating,
    /// Available on the target.
    Updated,
    /// Goes back to the stable revision.
    Restoring,
    /// Available on the stable revision.
    Stable,
}

/// The release in progress.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseProgress {
    /// Number of the release, counted up over the life of the plan.
    pub number: i64,
    /// What started it.
    pub kind: ReleaseKind,
    /// What it does now.
    pub stage: Stage,
    /// Digest of the content that is released.
    pub content: String,
    /// When it started.
    pub started_at: MicroTime,
    /// When the stage began; in `Settle`, when the content last changed.
    pub stage_since: MicroTime,
    /// Who asked for it, as far as the webhook saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Release generation of the plan that it was begun for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Revisions whose templates may have been applied since the stable one,
    /// the target included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<String>,
    /// Since when forward motion is held; the deadline does not count from
    /// here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<MicroTime>,
    /// Why it goes back, or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The earlier revision that it brings back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Whether it goes on after a failure because a person said so. Its pods
    /// keep their restart counts, so that only the deadline judges it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
}

/// What started a release.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseKind {
    /// Content of the plan, or the template of a followed workload.
    Content,
    /// Fields of a templated workload that the plan does not own.
    Surroundings,
    /// The first release of a plan whose workloads were not healthy before.
    First,
    /// An earlier revision, as a person asked.
    Undo,
}

/// What a release does now.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Waits until the content stands still, then prepares: dry runs, revision.
    Settle,
    /// The workloads get the new template.
    Promote,
    /// All are available; judging goes on.
    Bake,
    /// The workloads get the stable template back.
    Restore,
    /// Nothing is written or judged until a person, or newer content, decides.
    Stopped,
}

/// Why a release goes back.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Component that failed, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What happened.
    pub cause: Cause,
    /// What was seen, with numbers.
    pub message: String,
    /// When it was seen.
    pub at: MicroTime,
}

/// Causes of a way back.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A container of a new pod restarted too often.
    ContainerRestarts,
    /// The image of a new pod cannot be pulled.
    ImagePullBackOff,
    /// The image name of a new pod is not valid.
    InvalidImageName,
    /// A container of a new pod cannot be created from its configuration.
    CreateContainerConfigError,
    /// New pods are refused (quota, admission, limits).
    ReplicaFailure,
    /// No progress for the length of `spec.progressDeadline`.
    ProgressDeadlineExceeded,
    /// The API server refused the template in mid-release.
    TemplateRefused,
    /// A workload disappeared in mid-release.
    WorkloadMissing,
    /// A ConfigMap that was to be released did not exist or could not be read for
    /// the whole deadline.
    ConfigMapUnavailable,
    /// The record of what was being released was deleted or changed.
    RevisionLost,
    /// The snapshot of a ConfigMap that is part of what was being released was
    /// deleted or changed.
    SnapshotLost,
    /// The content went back to the stable one.
    Reverted,
    /// The plan was deleted.
    PlanDeleted,
    /// A person ended the release.
    Aborted,
    /// A person asked for an earlier revision.
    Undone,
    /// The status was gone, and with it how this ended.
    StatusLost,
}

impl Cause {
    /// A failure in the one form that it has everywhere: in conditions, events,
    /// records and commands. What says itself what it is has no name before it.
    #[must_use]
    pub fn told(self, component: Option<&str>, message: &str) -> String {
        match (self, component) {
            (
                Self::Reverted
                | Self::PlanDeleted
                | Self::Aborted
                | Self::Undone
                | Self::StatusLost,
                _,
            ) => message.to_owned(),
            (cause, Some(component)) => format!("{cause:?} of component {component}: {message}"),
            (cause, None) => format!("{cause:?}: {message}"),
        }
    }
}

impl Failure {
    /// What failed, in one sentence.
    #[must_use]
    pub fn told(&self) -> String {
        self.cause.told(self.component.as_deref(), &self.message)
    }
}

impl RefusedContent {
    /// Why it was refused, in one sentence.
    #[must_use]
    pub fn told(&self) -> String {
        self.cause.told(self.component.as_deref(), &self.message)
    }
}

/// Content that was rolled back.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedContent {
    /// Revision that held it; name it in `belay.dev/retry` to try it again.
    pub revision: String,
    /// Digest of the plan's own templates, if they were part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Templates of followed workloads that were part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<RefusedTemplate>,
    /// Why.
    pub cause: Cause,
    /// Component that failed, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Whether other content of that component was released since. The rest is
    /// then refused only together with what failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub corrected: bool,
    /// Whether an undo was asked for since: no other content of what failed brings
    /// the plan's own templates then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// What was seen.
    pub message: String,
    /// When it was refused.
    pub at: Time,
}

/// A form in which the template of a followed workload was rolled back: with the
/// contents of its ConfigMaps, or either of the two beside what is stable of the
/// other.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedTemplate {
    /// The workload, whatever its component is called by now.
    pub workload: WorkloadRef,
    /// Digest of that template.
    pub digest: String,
}

/// A release that ended.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRecord {
    /// Number of the release.
    pub number: i64,
    /// What started it.
    pub kind: ReleaseKind,
    /// The revision that was released; none if it ended before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Who asked for it, as far as the webhook saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The revision that was stable when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether components had no pods, and have not been seen running since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// What it changed against the revision that was stable: images, other
    /// fields, ConfigMaps. Empty if that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// How it ended.
    pub result: ReleaseResult,
    /// Why, where it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a release ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseResult {
    /// All components are available on it.
    Succeeded,
    /// Everything went back to the stable revision.
    RolledBack,
    /// Newer content took its place.
    Superseded,
    /// The content went back to the stable one.
    Reverted,
    /// It failed, and there was nothing to return to.
    Failed,
}

/// One decision and its grounds.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEntry {
    /// When it was made.
    pub at: Time,
    /// What was decided.
    pub reason: Reason,
    /// On which grounds.
    pub message: String,
}
