//! Deployments, ReplicaSets, pods and revisions as far as a person wants to see
//! them, trimmed while they are decoded: a plan may have a thousand pods, and
//! most of each is not shown.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, Deployment, ReplicaSet},
        core::v1::{ContainerStatus, Pod, PodCondition},
    },
    apimachinery::pkg::apis::meta::v1::{
        LabelSelector, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
    },
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    api::WorkloadRef,
    cluster::{Condition, replica_failure, view_of},
    config_maps::{self, Tracked},
    fields::canon,
};

/// Annotation by which the Deployment's controller numbers templates, on the
/// Deployment and on its ReplicaSets.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// A Deployment, trimmed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeploymentView {
    /// Trimmed metadata.
    #[serde(deserialize_with = "edited_meta")]
    pub(super) metadata: ObjectMeta,
    /// What is wanted.
    pub(super) spec: DeploymentSpecView,
    /// What is.
    pub(super) status: DeploymentStatusView,
}

/// What a Deployment wants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeploymentSpecView {
    /// Pods wanted; one if absent.
    pub(super) replicas: Option<i32>,
    /// Whether its rollout is held.
    pub(super) paused: bool,
    /// Which pods are its.
    pub(super) selector: LabelSelector,
    /// What is told of its pod template.
    #[serde(deserialize_with = "live_template")]
    pub(super) template: LiveTemplate,
}

/// What is told of the pod template of a Deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveTemplate {
    /// ConfigMaps that it names.
    pub(super) config_maps: BTreeSet<String>,
    /// Its digest as the operator makes it; empty where it was not read.
    pub(super) digest: String,
}

/// What a Deployment's controller says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeploymentStatusView {
    /// Generation that the numbers speak of.
    pub(super) observed_generation: i64,
    /// Pods of any template.
    pub(super) replicas: i32,
    /// Pods of the live template.
    pub(super) updated_replicas: i32,
    /// Pods that are ready.
    pub(super) ready_replicas: i32,
    /// Pods that are available.
    pub(super) available_replicas: i32,
}

/// A ReplicaSet, trimmed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSetView {
    /// Trimmed metadata.
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    /// What is wanted.
    pub(super) spec: ReplicaSetSpecView,
    /// What is.
    pub(super) status: ReplicaSetStatusView,
}

/// What a ReplicaSet wants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSetSpecView {
    /// Pods wanted.
    pub(super) replicas: Option<i32>,
    template: TemplateView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateView {
    spec: TemplateSpecView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpecView {
    containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerView {
    image: String,
}

/// What a ReplicaSet's controller says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReplicaSetStatusView {
    /// Pods there are.
    pub(super) replicas: i32,
    /// Pods that are ready.
    pub(super) ready_replicas: i32,
    /// What is in the way of more.
    pub(super) conditions: Vec<Condition>,
}

/// A pod, trimmed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodView {
    /// Trimmed metadata.
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    /// Where it runs.
    pub(super) spec: PodSpecView,
    /// How it is.
    pub(super) status: PodStatusView,
}

/// Where a pod runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpecView {
    /// Its node, once it has one.
    pub(super) node_name: Option<String>,
}

/// How a pod is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatusView {
    /// Its phase.
    pub(super) phase: String,
    /// Why it failed as a whole (`Evicted`).
    pub(super) reason: Option<String>,
    /// The same in words.
    pub(super) message: Option<String>,
    /// Its conditions.
    pub(super) conditions: Vec<PodCondition>,
    /// Its containers.
    pub(super) container_statuses: Vec<ContainerStatus>,
    /// Its init containers.
    pub(super) init_container_statuses: Vec<ContainerStatus>,
}

/// A revision of a plan, trimmed: which contents of ConfigMaps belong to it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RevisionView {
    /// Trimmed metadata.
    #[serde(deserialize_with = "meta")]
    pub(super) metadata: ObjectMeta,
    data: RevisionDataView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RevisionDataView {
    components: Vec<FrozenView>,
}

/// A component of a revision, trimmed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FrozenView {
    workload: WorkloadRef,
    partial_digest: Option<String>,
    config_maps: Vec<Tracked>,
}

impl RevisionView {
    /// The contents of ConfigMaps that belong to a workload; none if the revision
    /// does not know it.
    #[must_use]
    pub(super) fn config_maps(&self, workload: &WorkloadRef) -> Option<&[Tracked]> {
        Some(&self.of(workload)?.config_maps)
    }

    /// Whether the plan said what a workload is to run.
    #[must_use]
    pub(super) fn is_templated(&self, workload: &WorkloadRef) -> bool {
        self.of(workload)
            .is_some_and(|frozen| frozen.partial_digest.is_some())
    }

    fn of(&self, workload: &WorkloadRef) -> Option<&FrozenView> {
        let mut components = self.data.components.iter();
        components.find(|frozen| frozen.workload == *workload)
    }
}

impl DeploymentView {
    /// Pods wanted.
    #[must_use]
    pub(super) fn wanted(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether its controller has seen what is wanted now.
    #[must_use]
    pub(super) fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation.unwrap_or_default()
    }

    /// Whether all pods have the live template and are available.
    #[must_use]
    pub(super) fn is_complete(&self) -> bool {
        let (wanted, status) = (self.wanted(), &self.status);
        self.is_observed()
            && status.updated_replicas >= wanted
            && status.replicas <= status.updated_replicas
            && status.available_replicas >= wanted
    }
}

impl ReplicaSetView {
    /// Images of its containers, in their order.
    #[must_use]
    pub(super) fn images(&self) -> Vec<String> {
        let containers = self.spec.template.spec.containers.iter();
        containers.map(|c| c.image.clone()).collect()
    }

    /// Why it cannot create its pods, if that is so.
    #[must_use]
    pub(super) fn refused(&self) -> Option<&str> {
        replica_failure(&self.status.conditions)
    }
}

/// Number that the Deployment's controller gave to a template.
#[must_use]
pub(super) fn template_number(meta: &ObjectMeta) -> Option<i64> {
    meta.annotations.as_ref()?.get(REVISION)?.parse().ok()
}

/// Whether an object is owned by another.
#[must_use]
pub(super) fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner: &OwnerReference| owner.uid == uid)
}

/// A pod template, of which most is not kept.
fn live_template<'de, D: Deserializer<'de>>(input: D) -> Result<LiveTemplate, D::Error> {
    let template = Value::deserialize(input)?;
    Ok(LiveTemplate {
        config_maps: config_maps::names(&template),
        digest: canon::digest(&template),
    })
}

/// The same of a Deployment, and of `managedFields` the times.
fn edited_meta<'de, D: Deserializer<'de>>(input: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Edited {
        managed_fields: Vec<Edit>,
        #[serde(flatten)]
        rest: Value,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Edit {
        time: Option<Time>,
        subresource: Option<String>,
    }
    let Edited {
        managed_fields,
        rest,
    } = Edited::deserialize(input)?;
    let edits = managed_fields.into_iter().map(|edit| ManagedFieldsEntry {
        time: edit.time,
        subresource: edit.subresource,
        ..ManagedFieldsEntry::default()
    });
    let slim = meta(rest).map_err(serde::de::Error::custom)?;
    Ok(ObjectMeta {
        managed_fields: Some(edits.collect()),
        ..slim
    })
}

/// Metadata without what is large and not shown, `managedFields` above all.
fn meta<'de, D: Deserializer<'de>>(input: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        owner_references: Option<Vec<OwnerReference>>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let slim = Slim::deserialize(input)?;
    let number = slim
        .annotations
        .and_then(|mut annotations| annotations.remove_entry(REVISION));
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        owner_references: slim.owner_references,
        annotations: number.map(|number| [number].into()),
        ..ObjectMeta::default()
    })
}

view_of!(DeploymentView, Deployment);
view_of!(ReplicaSetView, ReplicaSet);
view_of!(PodView, Pod);
view_of!(RevisionView, ControllerRevision);
