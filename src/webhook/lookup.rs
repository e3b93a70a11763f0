//! What admission may ask the cluster.
//!
//! The questions stand behind a trait, so that the handlers can be tested
//! without a cluster. All of them are reads, or writes that are dry runs:
//! admission has no side effects. Nothing is judged here.

use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, PodTemplateSpec},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    api::{FIELD_MANAGER, StoredPlan, WorkloadKind},
    cluster::{self, ApplyFailure},
    plan::Target,
};

/// What admission needs to know of a live workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Its uid.
    pub uid: String,
    /// Its version when it was read.
    pub resource_version: String,
    /// Names of the containers of its pod template.
    pub containers: Vec<String>,
    /// Names of the init containers of its pod template.
    pub init_containers: Vec<String>,
}

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

/// Questions to the cluster. Callers set the deadline.
pub trait Lookup: Send + Sync + 'static {
    /// The workload, if it exists.
    fn workload<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Workload>, LookupError>>;

    /// Whether the API server would take the partial template for the workload
    /// as it was read. Changes nothing.
    fn dry_run<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
        workload: &'a Workload,
        template: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApplyFailure>>;

    /// The plans of the namespace.
    fn plans<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredPlan>, LookupError>>;
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

    fn deployments(&self, namespace: &str) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

impl Lookup for ClusterLookup {
    fn workload<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Workload>, LookupError>> {
        Box::pin(async move {
            match target.kind {
                WorkloadKind::Deployment => {
                    let found = self.deployments(namespace).get_opt(&target.name).await?;
                    Ok(found.map(|deployment| describe(&deployment)))
                }
            }
        })
    }

    fn dry_run<'a>(
        &'a self,
        namespace: &'a str,
        target: &'a Target,
        workload: &'a Workload,
        template: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApplyFailure>> {
        Box::pin(async move {
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::apply(FIELD_MANAGER).force()
            };
            let body = Patch::Apply(apply_body(namespace, target, workload, template));
            match target.kind {
                WorkloadKind::Deployment => self
                    .deployments(namespace)
                    .patch(&target.name, &params, &body)
                    .await
                    .map(drop)
                    .map_err(|error| cluster::classify(&error)),
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
}

fn describe(deployment: &Deployment) -> Workload {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let pod = template.and_then(|template: &PodTemplateSpec| template.spec.as_ref());
    let names = |containers: &[Container]| containers.iter().map(|c| c.name.clone()).collect();
    Workload {
        uid: deployment.uid().unwrap_or_default(),
        resource_version: deployment.resource_version().unwrap_or_default(),
        containers: pod.map(|pod| names(&pod.containers)).unwrap_or_default(),
        init_containers: pod
            .and_then(|pod| pod.init_containers.as_deref())
            .map(names)
            .unwrap_or_default(),
    }
}

/// Uid and version make the apply fail if the workload is no longer there:
/// without them it would be created.
fn apply_body(namespace: &str, target: &Target, workload: &Workload, template: &Value) -> Value {
    match target.kind {
        WorkloadKind::Deployment => json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": target.name,
                "namespace": namespace,
                "uid": workload.uid,
                "resourceVersion": workload.resource_version,
            },
            "spec": {"template": template},
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_is_bound_to_the_workload_it_was_decided_on() {
        let target = Target {
            kind: WorkloadKind::Deployment,
            name: "cart".into(),
        };
        let workload = Workload {
            uid: "u".into(),
            resource_version: "7".into(),
            ..Workload::default()
        };
        let body = apply_body("shop", &target, &workload, &json!({"spec": {}}));
        assert_eq!(body["metadata"]["uid"], "u");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        let spec = body["spec"].as_object().unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), ["template"]);
    }

    #[test]
    fn a_workload_is_described_by_its_containers() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "cart", "uid": "u", "resourceVersion": "7"},
            "spec": {"selector": {}, "template": {"spec": {
                "containers": [{"name": "app"}, {"name": "proxy"}],
                "initContainers": [{"name": "setup"}]
            }}}
        }))
        .unwrap();
        let workload = describe(&deployment);
        assert_eq!(workload.containers, ["app", "proxy"]);
        assert_eq!(workload.init_containers, ["setup"]);
        assert_eq!(
            (workload.uid.as_str(), workload.resource_version.as_str()),
            ("u", "7")
        );
    }
}
