//! What admission may ask the cluster.
//!
//! The questions stand behind a trait, so that the handlers can be tested
//! without a cluster. All of them are reads, or writes that are dry runs:
//! admission has no side effects. Nothing is judged here.

use futures::future::BoxFuture;
use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::ConfigMap};
use kube::{Api, Client, api::ListParams};
use serde_json::Value;

use crate::{
    api::{StoredPlan, WorkloadKind},
    cluster::{ApplyFailure, Snapshot, deployments, dry_run},
    config_maps::{Contents, Kept, Tracked, judge},
    fields::{FieldSet, Found},
    machine::DryRun,
    plan::Target,
    revision::Revision,
};

/// A read that failed. Its message says what the API server answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub String);

impl From<kube::Error> for LookupError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self(status.message.clone()),
            other => Self(other.to_string()),
        }
    }
}

/// What a dry run made of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The pod template.
    pub template: Value,
    /// Fields of it that the partial template would own.
    pub owned: FieldSet,
}

/// Whether the contents of a ConfigMap can be had as they were once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Their snapshot is whole, or the ConfigMap itself still has them.
    Whole,
    /// Neither has them.
    Lost,
    /// Something else stands under the name of the snapshot.
    Blocked,
}

/// Questions to the cluster. Callers set the deadline.
pub trait Lookup: Send + Sync + 'static {
    /// The workload, if it exists.
    fn workload<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, LookupError>>;

    /// What the API server would make of the workload as it was read with the
    /// partial template, or why it would not take it. Changes nothing.
    fn dry_run<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
        workload: &'a Snapshot,
        template: &'a Value,
    ) -> BoxFuture<'a, Result<Merged, ApplyFailure>>;

    /// The plans of the namespace.
    fn plans<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredPlan>, LookupError>>;

    /// Whether a ConfigMap exists.
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, LookupError>>;

    /// A revision of the plan with this uid, if it is there and whole.
    fn revision<'a>(
        &'a self,
        namespace: &'a str,
        plan_uid: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Revision>, LookupError>>;

    /// Where contents can be had from.
    fn contents<'a>(
        &'a self,
        namespace: &'a str,
        plan_uid: &'a str,
        tracked: &'a Tracked,
    ) -> BoxFuture<'a, Result<Held, LookupError>>;
}

/// [`Lookup`] on the API server, with the operator's own rights.
#[derive(Clone)]
pub struct ClusterLookup {
    client: Client,
}

impl ClusterLookup {
    /// Looks up through this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Lookup for ClusterLookup {
    fn workload<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, LookupError>> {
        Box::pin(async move {
            match target.kind {
                WorkloadKind::Deployment => {
                    let found = deployments(&self.client, namespace)
                        .get_opt(&target.name)
                        .await?;
                    let snapshot = found.as_ref().map(Snapshot::of).transpose();
                    snapshot.map_err(|error| LookupError(error.to_string()))
                }
            }
        })
    }

    fn dry_run<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
        workload: &'a Snapshot,
        template: &'a Value,
    ) -> BoxFuture<'a, Result<Merged, ApplyFailure>> {
        Box::pin(async move {
            let found = Found::default();
            match dry_run(&self.client, namespace, target, workload, template, &found).await? {
                DryRun::Merged {
                    template, owned, ..
                } => Ok(Merged { template, owned }),
                DryRun::Mismatch(text)
                | DryRun::Refused(text)
                | DryRun::NotAvailable(text)
                | DryRun::Undecided(text) => Err(ApplyFailure::Refused(text)),
            }
        })
    }

    fn plans<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredPlan>, LookupError>> {
        Box::pin(async move {
            let plans = Api::<StoredPlan>::namespaced(self.client.clone(), namespace);
            Ok(plans.list(&ListParams::default()).await?.items)
        })
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, LookupError>> {
        Box::pin(async move {
            let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
            Ok(maps.get_metadata_opt(name).await?.is_some())
        })
    }

    fn revision<'a>(
        &'a self,
        namespace: &'a str,
        plan_uid: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Revision>, LookupError>> {
        Box::pin(async move {
            let revisions = Api::<ControllerRevision>::namespaced(self.client.clone(), namespace);
            let found = revisions.get_opt(name).await?;
            Ok(found.and_then(|object| Revision::from_object(&object, plan_uid).ok()))
        })
    }

    fn contents<'a>(
        &'a self,
        namespace: &'a str,
        plan_uid: &'a str,
        tracked: &'a Tracked,
    ) -> BoxFuture<'a, Result<Held, LookupError>> {
        Box::pin(async move {
            let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
            let snapshot = maps.get_opt(&tracked.snapshot).await?;
            match judge(snapshot.as_ref(), &tracked.digest, plan_uid) {
                Kept::Whole => Ok(Held::Whole),
                Kept::Missing => {
                    let source = maps.get_opt(&tracked.name).await?;
                    let digest = source.map(|map| Contents::of(&map).digest());
                    Ok(if digest.as_ref() == Some(&tracked.digest) {
                        Held::Whole
                    } else {
                        Held::Lost
                    })
                }
                Kept::Damaged | Kept::Foreign | Kept::Unknown(_) => Ok(Held::Blocked),
            }
        })
    }
}
