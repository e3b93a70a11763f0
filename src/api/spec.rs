//! `ReleasePlan.spec` on the wire.
//!
//! Every field is optional here, also those that the schema requires: the
//! webhook has to read plans that the schema would refuse, to name all of their
//! faults at once.

#![allow(unreachable_pub, reason = "made by the schema derive")]
#![allow(
    clippy::duplicated_attributes,
    reason = "the columns of one list, which the lint takes for attributes"
)]

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GatewayDuration, ReleasePlanStatus};

/// A ReleasePlan names existing Deployments that are released together, how the
/// new version reaches them, and what must stay true on the way. If it does not
/// stay true, everything goes back to the last stable revision by itself.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "ReleasePlan",
    namespaced,
    status = "ReleasePlanStatus",
    shortname = "relplan",
    category = "belay",
    derive = "PartialEq",
    doc = "A ReleasePlan names existing Deployments that are released together, how the new version reaches them, and what must stay true on the way. If it does not stay true, everything goes back to the last stable revision by itself.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Stable",
        type_ = "string",
        json_path = ".status.stableRevision"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".status.targetRevision"
    ),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ReleasePlanSpec {
    /// The workloads that are released together, and go back together: 1 to 32.
    #[schemars(required, length(min = 1, max = 32))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Atomic,
        validation = kube::core::Rule::new(
            "self.all(c, self.exists_one(d, (has(d.name) ? d.name : d.workload.name) == (has(c.name) ? c.name : c.workload.name)))"
        ).message("component names must be unique (a component without a name has the name of its workload)"),
        validation = kube::core::Rule::new(
            "self.all(c, self.exists_one(d, d.workload.kind == c.workload.kind && d.workload.name == c.workload.name))"
        ).message("a workload may stand in one component only"),
        validation = kube::core::Rule::new(
            "self.all(c, !has(c.after) || c.after.all(a, self.exists(d, (has(d.name) ? d.name : d.workload.name) == a)))"
        ).message("after must name components of this plan"),
        validation = kube::core::Rule::new(
            "self.all(c, !has(c.after) || !c.after.exists(a, a == (has(c.name) ? c.name : c.workload.name)))"
        ).message("a component cannot come after itself")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<Vec<Component>>,

    /// How the new version reaches the components: exactly one of `rolling`,
    /// `canary` and `blueGreen`. Only `rolling` is available yet, and it is the
    /// default. To change from a default, set `rolling: null` beside the other
    /// one.
    #[schemars(extend("default" = {"rolling": {}}))]
    #[x_kube(validation = kube::core::Rule::new(
        "[has(self.rolling), has(self.canary), has(self.blueGreen)].filter(x, x).size() == 1"
    ).message("exactly one of rolling, canary and blueGreen must be set (rolling is the default; to change from it, set rolling: null beside the other one)"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,

    /// Health gates that judge a release in the background. Not available yet.
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Atomic,
        validation = kube::core::Rule::new(
            "self.all(c, self.exists_one(d, d.name == c.name))"
        ).message("check names must be unique")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<Check>>,

    /// A component that makes no progress for this long has failed the release.
    /// Progress is more new pods available than ever before in this stage. The
    /// clock starts afresh when the number of replicas changes, and does not
    /// run while the plan or the workload is paused. It also bounds a rollback:
    /// one that takes longer is reported as RollbackStalled. A duration such as
    /// 30s, 10m or 1h30m, more than 0s and up to 168h. Default: 10m.
    #[schemars(pattern(GatewayDuration::PATTERN), length(max = 24), extend("default" = "10m"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<String>,

    /// How long the new version is still judged after all of it is available,
    /// before it is called stable. What breaks later is not rolled back. A
    /// duration such as 30s, 10m or 1h30m, up to 168h. Default: 0s, which calls it
    /// stable at once.
    #[schemars(pattern(GatewayDuration::PATTERN), length(max = 24), extend("default" = "0s"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bake_time: Option<String>,

    /// What ends a release without waiting for progressDeadline. Images that
    /// cannot be pulled, containers that cannot be created and pods that are
    /// refused always do.
    #[schemars(extend("default" = {"restarts": 3}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<FailFast>,

    /// What a failed release does.
    #[schemars(extend("default" = "Rollback"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,

    /// Stops forward motion: no new release starts, no component is moved to the
    /// new version, and a release does not end. What was moved is still judged,
    /// and a rollback goes on. Default: false.
    #[schemars(extend("default" = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// What deleting the plan in mid-release does.
    #[schemars(extend("default" = "Rollback"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// When errors of the operator itself, not of the release, are reported.
    #[schemars(extend("default" = {"maxRetries": 8}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,

    /// How many records of releases (status.history) and how many refused contents
    /// (status.refused) are kept, 1 to 100. Revisions that neither names are
    /// deleted, so this is how far belay.dev/undo reaches. The record of the release
    /// that brought the stable content is kept beside them. Default: 10.
    #[schemars(range(min = 1, max = 100), extend("default" = 10))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// One workload of a plan.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Name of the component in this plan, for `after` and for messages. Default:
    /// the workload's name.
    #[schemars(
        length(min = 1, max = 253),
        pattern(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The workload, in the plan's namespace. It may be created after the plan.
    /// Another component or plan cannot have it as well.
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRef>,

    /// A partial pod template, merged over the workload's own by server-side
    /// apply. Only what stands here is owned by the plan. Lists with a key, such
    /// as containers and env, are merged by it; others, such as args, are replaced
    /// whole, also by an empty one. A component without a template is followed:
    /// what is applied to the workload itself is judged and rolled back.
    #[schemars(schema_with = "template_schema")]
    #[x_kube(
        validation = kube::core::Rule::new(
            "!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, self.spec.containers.exists_one(d, d.name == c.name))"
        ).message("container names must be unique"),
        validation = kube::core::Rule::new(
            "!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, self.spec.initContainers.exists_one(d, d.name == c.name))"
        ).message("init container names must be unique")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Value>,

    /// ConfigMaps whose contents are released and rolled back with the
    /// component. The template of a component that has one must name them.
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_maps: Option<Vec<String>>,

    /// Where the component's traffic is steered. Not available yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,

    /// Names of components that must be available on the new version before this
    /// one is moved to it. No cycles. A rollback does not wait. Default: none, and
    /// the components are moved at the same time.
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
}

/// A workload in the plan's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// Kind of the workload: Deployment (apps/v1).
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkloadKind>,
    /// Name of the workload.
    #[schemars(
        required,
        length(min = 1, max = 253),
        pattern(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Kinds of workloads that a plan can release.
#[derive(
    JsonSchema,
    Serialize,
    Deserialize,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
)]
pub enum WorkloadKind {
    /// `apps/v1` Deployment.
    #[default]
    Deployment,
}

/// How a release reaches the components. Exactly one key is set.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// Each workload gets the new template and carries it out by its own update
    /// strategy. Has no settings: `rolling: {}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
    /// In steps, by a second Deployment beside each one. Not available yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// At once, by switching Services. Not available yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blue_green: Option<BlueGreen>,
}

/// Settings of the rolling strategy: none yet.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]

pub struct Rolling {}

/// Settings of the canary strategy.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// The steps, in order.
    #[schemars(required, length(min = 1, max = 32))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<CanaryStep>>,
}

/// One step of a canary: a barrier over all components.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStep {
    /// Size of the canary: a number of pods, or a share of the workload's
    /// current replicas from 0% to 100%.
    #[schemars(schema_with = "int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Value>,
    /// Share of the traffic in percent, 0 to 100.
    #[schemars(range(min = 0, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// What the step waits for once it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Checks that must pass in this step.
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<String>>,
}

/// What a step waits for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Waits this long. A duration such as 30s, 10m or 1h30m.
    #[schemars(pattern(GatewayDuration::PATTERN), length(max = 24))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Whether to wait for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<bool>,
}

/// Settings of the blue/green strategy.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreen {
    /// Whether a person has to approve the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<bool>,
    /// Service that points at the new version before the switch.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview_service: Option<String>,
}

/// Where a component's traffic is steered.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// The Service in front of the component.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// HTTPRoutes that name the Service as a backend.
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_routes: Option<Vec<String>>,
}

/// A health gate.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Name of the check in this plan.
    #[schemars(
        required,
        length(min = 1, max = 63),
        pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time between two measurements. A duration such as 30s, 10m or 1h30m.
    #[schemars(pattern(GatewayDuration::PATTERN), length(max = 24))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// How many measurements may fail before the release has failed.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_limit: Option<i32>,
    /// CEL expression over `result` that is true when all is well.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<String>,
    /// A query to a Prometheus server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusQuery>,
}

/// A query to a Prometheus server.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusQuery {
    /// Base URL of the server.
    #[schemars(required, length(min = 1, max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// PromQL that yields one number.
    #[schemars(required, length(min = 1, max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// What ends a release without waiting for the deadline.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FailFast {
    /// A container of a new pod that restarted this often has failed, 1 to 100.
    /// Default: 3.
    #[schemars(range(min = 1, max = 100), extend("default" = 3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
}

/// How errors of the operator itself are reported.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Errors of the operator in a row, 1 to 100, after which the plan says
    /// Stalled=True with the reason ReconcileError and is tried once a minute. They
    /// also have to last 30 seconds: until then, an API server that is away for a
    /// moment is waited for. Default: 8.
    #[schemars(range(min = 1, max = 100), extend("default" = 8))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i32>,
}

/// What a failed release does. Rollback: all components go back to the stable
/// revision, and the content is not released again by itself. Freeze: the
/// release stops where it is and waits for newer content or a person, who
/// goes back with the annotation belay.dev/abort or on with belay.dev/retry.
/// Default: Rollback.
// The schema has this text for the field, whatever the field says.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Everything goes back to the stable revision.
    #[default]
    Rollback,
    /// The release stops where it is and waits for a person or newer content.
    Freeze,
}

/// What deleting the plan in mid-release does. Rollback: everything goes back
/// to the stable revision first, and the plan is gone only then. Keep: what is
/// live stays. It can be changed while the plan is being deleted. A plan
/// without a release in progress leaves its workloads as they are in either
/// case. Default: Rollback.
// The schema has this text for the field, whatever the field says.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// Everything goes back to the stable revision before the plan is gone.
    #[default]
    Rollback,
    /// What is live stays.
    Keep,
}

fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": 5,
        "pattern": "^([0-9]|[1-9][0-9]|100)%$",
        "minimum": 0,
    })
}

/// A pod template in full is too large for client-side apply and knows less
/// than the API server: the skeleton is typed, the rest is judged by a dry run.
fn template_schema(_: &mut SchemaGenerator) -> Schema {
    let containers = |what: &str| {
        json_schema!({
            "description": format!("{what} of the workload to change, by name. A name that the workload does not have is refused."),
            "type": "array",
            "maxItems": 64,
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {
                        "description": "Name of the container in the workload.",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 63
                    }
                },
                "x-kubernetes-preserve-unknown-fields": true
            }
        })
    };
    let strings = |what: &str| {
        json_schema!({
            "description": format!("{what} to set on the pods."),
            "type": "object",
            "maxProperties": 256,
            "additionalProperties": {"type": "string"}
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "metadata": {
                "type": "object",
                "properties": {
                    "labels": strings("Labels"),
                    "annotations": strings("Annotations")
                }
            },
            "spec": {
                "description": "Any fields of a pod spec.",
                "type": "object",
                "properties": {
                    "containers": containers("Containers"),
                    "initContainers": containers("Init containers")
                },
                "x-kubernetes-preserve-unknown-fields": true
            }
        }
    })
}
