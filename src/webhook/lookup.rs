//! What admission may ask the cluster.
//!
//! The questions stand behind a trait, so that the handlers can be tested
//! without a cluster. All of them are reads, or writes that are dry runs:
//! admission has no side effects. Nothing is judged here.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams};
use serde_json::Value;

use crate::{
    api::{StoredPlan, WorkloadKind},
    cluster::{ApplyFailure, Snapshot, deployments, dry_run},
    fields::{FieldSet, Found},
    machine::DryRun,
    plan::Target,
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
}
