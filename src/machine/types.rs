//! What [`super::step`] is told and what it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use serde_json::Value;

use crate::{
    api::{Cause, DeletionPolicy, Reason, ReleasePlanStatus},
    config_maps::{Contents, Kept, Tracked},
    fields::FieldSet,
    plan::{Plan, Stamps, Target, Violations},
    revision::Revision,
};

/// Everything that a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The plan, or what is wrong with it.
    pub plan: Result<&'a Plan, &'a Violations>,
    /// What was decided so far.
    pub status: &'a ReleasePlanStatus,
    /// What is.
    pub world: &'a World,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The world around a plan as it was read.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The plan object beside its spec.
    pub plan: PlanFacts,
    /// The components, aligned with [`super::scope`].
    pub components: Vec<Observed>,
    /// Revisions that were asked for by [`super::needs`] and are there and whole.
    pub revisions: BTreeMap<String, Arc<Revision>>,
    /// Whether the record of the stable revision of a plan at rest is known to be
    /// gone. It is looked for now and then.
    pub record_lost: bool,
    /// All revisions of the plan that are whole, where the status is gone.
    pub known: Vec<Known>,
    /// The ConfigMaps that [`super::sources`] names, by name.
    pub config_maps: BTreeMap<String, Source>,
    /// What stands under the names of snapshots that [`super::snapshots`]
    /// names.
    pub snapshots: BTreeMap<String, Kept>,
    /// What real writes of ConfigMaps, of users and of snapshots, were refused
    /// with in this pass, by name.
    pub refusals: BTreeMap<String, String>,
}

/// A ConfigMap of a user as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Digest of its contents; none if it does not exist, or could not be read.
    pub digest: Option<String>,
    /// Why it could not be read, if so. That is not a change.
    pub unreadable: Option<String>,
    /// Bytes of its contents.
    pub bytes: usize,
    /// Its uid; empty if it does not exist.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether its contents cannot be changed.
    pub immutable: bool,
}

impl Source {
    /// A ConfigMap as it was read.
    #[must_use]
    pub fn of(object: &ConfigMap) -> Self {
        let contents = Contents::of(object);
        let meta = &object.metadata;
        Self {
            digest: Some(contents.digest()),
            unreadable: None,
            bytes: contents.bytes(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            immutable: object.immutable == Some(true),
        }
    }
}

/// A kept revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Number of the release that it was stored for; 0 for one before any.
    pub number: i64,
    /// The revision.
    pub revision: Revision,
}

/// The plan object beside its spec.
#[derive(Clone, Debug, Default)]
pub struct PlanFacts {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Its release generation, if the webhook gave it one.
    pub release_generation: Option<i64>,
    /// Who asked for its content, if the webhook said so.
    pub requested_by: Option<String>,
    /// The revision whose release, or rollback, a person wants ended.
    pub abort: Option<String>,
    /// The earlier revision that a person wants back.
    pub undo: Option<String>,
    /// The refused revision that a person wants tried again.
    pub retry: Option<String>,
    /// Who gave these orders, as far as the webhook saw it.
    pub ordered_by: Stamps,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What deletion in mid-release does; read also from a plan that is not
    /// valid, so that there is always a way out.
    pub deletion_policy: DeletionPolicy,
    /// Whether it has Belay's finalizer.
    pub finalizer: bool,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
}

/// One component as it was read.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Another plan that holds the workload.
    pub incumbent: Option<String>,
    /// The workload; none if it does not exist.
    pub workload: Option<Workload>,
}

/// A workload as it was read.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion; every write names it.
    pub resource_version: String,
    /// Pods wanted.
    pub replicas: i32,
    /// Pods there are, of any template.
    pub total: i32,
    /// Pods of the live template.
    pub updated: i32,
    /// Pods available, of any template.
    pub available: i32,
    /// Whether its controller has seen the live spec.
    pub observed: bool,
    /// Whether its own `spec.paused` is set.
    pub paused: bool,
    /// The live pod template.
    pub template: Value,
    /// Fields of the pod template that Belay owns by apply.
    pub owned: FieldSet,
    /// Whether Belay has any entry in its `managedFields`.
    pub marked: bool,
    /// Whether Belay owns fields other than by apply: it replaced the template
    /// and has not set its ownership right yet.
    pub stray: bool,
    /// Who owns fields of the pod template beside Belay.
    pub managers: Vec<String>,
    /// Answer to a dry run of the partial template, where one was asked for.
    pub dry_run: Option<DryRun>,
    /// What the API server makes of the stable template today, where that was
    /// asked for: it may have learned new defaults since.
    pub stable_today: Option<Value>,
    /// What a real write of the template was refused with, in this pass.
    pub refusal: Option<String>,
    /// Pods of the live template, while they are watched.
    pub new_pods: Option<NewPods>,
}

/// Answer of the API server to a dry run.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRun {
    /// What the template would become.
    Merged {
        /// The merged, defaulted pod template.
        template: Value,
        /// Fields of it that the partial template would own.
        owned: FieldSet,
        /// Fields that left the partial template and go back to what was found
        /// in them; owned by the apply, and given up once it is proven.
        carried: FieldSet,
        /// The body that gave this answer: the partial template, and what
        /// fields that left it go back to.
        body: Value,
    },
    /// The template names containers that the workload does not have.
    Mismatch(String),
    /// The API server refuses the template.
    Refused(String),
    /// The template drops fields in a way that cannot be carried out yet.
    NotAvailable(String),
    /// The API server does not say, but may when it is asked again.
    Undecided(String),
}

/// Pods of the live template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPods {
    /// How many are available.
    pub available: i32,
    /// Why more of them cannot be created (quota, admission), if that is so.
    pub refused: Option<String>,
    /// What is wrong with them, worst first.
    pub faults: Vec<PodFault>,
}

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFault {
    /// Name of the pod.
    pub pod: String,
    /// Name of the container; empty if it is the pod as a whole.
    pub container: String,
    /// Times that the container restarted.
    pub restarts: i32,
    /// A cause that ends a release at once, if the kubelet reports one.
    pub cause: Option<Cause>,
    /// What the kubelet says.
    pub message: String,
}

impl PodFault {
    /// The pod, and the container where it is one.
    pub(crate) fn place(&self) -> String {
        let pod = format!("pod {}", self.pod);
        if self.container.is_empty() {
            return pod;
        }
        format!("{pod} container {}", self.container)
    }
}

/// What to do next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The status to record after the actions.
    pub status: ReleasePlanStatus,
    /// What to do, in this order. One that fails ends the pass, but for the
    /// writes to workloads: each of them is independent of the others.
    pub actions: Vec<Action>,
    /// What to tell, after the status is recorded.
    pub events: Vec<EventNote>,
    /// When to look again without being woken by a change.
    pub wake: Option<Duration>,
}

/// A transition worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// Whether it is a `Warning`.
    pub warning: bool,
    /// Its reason.
    pub reason: Reason,
    /// Its text.
    pub note: String,
}

/// One write. Each can be repeated without harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Adds the finalizer to the plan.
    EnsureFinalizer,
    /// Removes the finalizer from the plan.
    RemoveFinalizer,
    /// Removes an annotation of the plan if it still has this value.
    DropAnnotation {
        /// Its name.
        name: String,
        /// The value that was dealt with.
        value: String,
    },
    /// Stores a revision.
    CreateRevision {
        /// The revision.
        revision: Box<Revision>,
        /// Its number.
        number: i64,
    },
    /// Copies the contents of a ConfigMap into a snapshot, if they still are
    /// those that were decided on.
    CreateSnapshot {
        /// The ConfigMap with its contents.
        tracked: Tracked,
    },
    /// Writes the contents that a snapshot holds back into the ConfigMap that
    /// they came from.
    WriteContents {
        /// The ConfigMap with its contents of then.
        tracked: Tracked,
        /// Its uid; empty if it does not exist and has to be made.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
    },
    /// Deletes the plan's revisions but these, and the snapshots that nothing
    /// names any more. With none to keep the plan goes: snapshots that are in
    /// use are handed over to the workloads that use them.
    PruneRevisions {
        /// Names to keep.
        keep: Vec<String>,
    },
    /// Server-side apply of a pod template, partial or projected.
    Apply {
        /// The write.
        write: TemplateWrite,
    },
    /// Replaces the whole pod template.
    Replace {
        /// The write.
        write: TemplateWrite,
    },
    /// Makes Belay own exactly some fields of the pod template; all values
    /// stay.
    Own {
        /// The workload.
        target: Target,
        /// Its uid.
        uid: String,
        /// The fields.
        fields: FieldSet,
    },
}

/// A write of a pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateWrite {
    /// The workload.
    pub target: Target,
    /// Uid that the decision was made on.
    pub uid: String,
    /// resourceVersion that the decision was made on.
    pub resource_version: String,
    /// The template.
    pub template: Value,
    /// Digest of the live template that the decision was made on.
    pub seen: String,
    /// ConfigMaps that the workload has something to do with: if one of them
    /// cannot be kept or written in this pass, the template has to wait.
    pub config_maps: BTreeSet<String>,
}
