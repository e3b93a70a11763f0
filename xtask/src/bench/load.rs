//! The plans and Deployments that are measured with, each plan in a namespace
//! of its own as a team would have it.

use std::fmt::Write as _;
use std::time::Duration;

use belay_testenv::Cluster;

use crate::error::Error;

/// Names of the Deployments of each plan.
pub(super) const COMPONENTS: [&str; 2] = ["cart", "web"];
/// Pods of each Deployment.
pub(super) const REPLICAS: u32 = 2;

const LIMIT: Duration = Duration::from_secs(300);
const TIMEOUT: &str = "--timeout=280s";

/// The load on one cluster.
pub(super) struct Load<'a> {
    cluster: &'a Cluster,
    plans: u32,
}

impl<'a> Load<'a> {
    pub(super) const fn new(cluster: &'a Cluster, plans: u32) -> Self {
        Self { cluster, plans }
    }

    /// Makes the Deployments and waits until they are available.
    pub(super) fn deployments(&self) -> Result<(), Error> {
        let mut text = String::new();
        for namespace in self.namespaces() {
            let _ = write!(
                text,
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n"
            );
            for name in COMPONENTS {
                let _ = write!(
                    text,
                    "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}, labels: {{bench: load}}}}
spec:
  replicas: {REPLICAS}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: app, image: 'shop/{name}:1'}}]
"
                );
            }
        }
        self.apply(text)?;
        self.wait(&[
            "deployments",
            "-l",
            "bench=load",
            "--for=condition=Available",
        ])
    }

    /// Applies all plans with these tags of the two Deployments.
    pub(super) fn plans(&self, cart: &str, web: &str) -> Result<(), Error> {
        let mut text = String::new();
        for namespace in self.namespaces() {
            let _ = write!(
                text,
                "---
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop, namespace: {namespace}}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/cart:{cart}'}}]}}}}
  - workload: {{kind: Deployment, name: web}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/web:{web}'}}]}}}}
"
            );
        }
        self.apply(text)
    }

    /// Waits until every plan is Ready for the spec that it has.
    pub(super) fn wait_ready(&self) -> Result<(), Error> {
        self.wait(&["relplan", "--for=condition=Ready"])
    }

    /// Waits until every plan went back.
    pub(super) fn wait_rolled_back(&self) -> Result<(), Error> {
        let condition =
            r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=RolledBack"#;
        self.wait(&["relplan", condition])
    }

    fn namespaces(&self) -> impl Iterator<Item = String> {
        (1..=self.plans).map(|number| format!("bench-{number}"))
    }

    fn apply(&self, manifest: String) -> Result<(), Error> {
        // Server-side: one request for each object.
        let args = ["apply", "--server-side", "-f", "-", "-o", "name"];
        self.cluster
            .kubectl_command(&args)
            .stdin(manifest)
            .deadline(LIMIT)
            .run()?
            .ok()?;
        Ok(())
    }

    fn wait(&self, what: &[&str]) -> Result<(), Error> {
        let mut args = vec!["wait", "--all-namespaces", TIMEOUT];
        if !what.contains(&"-l") {
            args.push("--all");
        }
        args.extend(what);
        self.cluster
            .kubectl_command(&args)
            .deadline(LIMIT)
            .run()?
            .ok()?;
        Ok(())
    }
}
