//! What people do in tests again and again.

use std::sync::Arc;

use belay::api::ReleasePlanStatus;
use belay_testenv::{Cluster, ClusterOptions, KubectlOutput, Operator};

use super::{PATIENCE, SOON, Scene, manifests::plan, options};

/// A cluster of the test's own, with an operator.
pub async fn own() -> (Arc<Cluster>, Arc<Operator>) {
    tokio::task::spawn_blocking(|| {
        let cluster = Arc::new(Cluster::start(ClusterOptions::new()).unwrap());
        let operator = Operator::start(&cluster, &options()).unwrap();
        (cluster, Arc::new(operator))
    })
    .await
    .unwrap()
}

impl Scene {
    /// Applies the plan `shop` with an image for each component.
    pub async fn shop(&self, components: &[(&str, &str)], rest: &str) {
        self.apply(&plan("shop", components, rest)).await;
    }

    /// Makes Deployments of one pod, and a plan `shop` that took them as they
    /// are as stable.
    pub async fn stable(&self, components: &[(&str, &str)], rest: &str) -> ReleasePlanStatus {
        for (name, image) in components {
            self.deployment(name, image, 1).await;
        }
        self.shop(components, rest).await;
        self.ready("shop").await
    }

    /// Waits until a release ended, whatever came of it.
    pub async fn ended(&self, name: &str) -> ReleasePlanStatus {
        self.plan_until(name, "ends", |s| {
            s.release.is_none() && !s.history.is_empty()
        })
        .await
    }

    /// A merge patch by kubectl, which must succeed.
    pub async fn merge(&self, kind: &str, name: &str, patch: &serde_json::Value) {
        let patch = patch.to_string();
        self.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch])
            .await;
    }

    /// A merge patch of a plan's status by kubectl.
    pub async fn merge_status(&self, plan: &str, patch: &serde_json::Value) -> KubectlOutput {
        let patch = patch.to_string();
        let args = [
            "patch",
            "relplan",
            plan,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        self.kubectl_raw(&args).await
    }

    /// Takes the status off a plan, as a restored backup does.
    pub async fn wipe_status(&self, plan: &str) {
        let args = [
            "patch",
            "relplan",
            plan,
            "--subresource=status",
            "--type=json",
            "-p",
            r#"[{"op":"remove","path":"/status"}]"#,
        ];
        self.kubectl(&args).await;
    }

    /// Sets the image of container `app`, as people do.
    pub async fn set_image(&self, deployment: &str, image: &str) {
        let (target, image) = (format!("deployment/{deployment}"), format!("app={image}"));
        self.kubectl(&["set", "image", &target, &image]).await;
    }

    /// Makes the operator look at a plan at once, whatever pace it has come to
    /// after errors. What was wrong is mended, and no watch tells of it.
    pub async fn nudge(&self, plan: &str) {
        self.kubectl(&[
            "annotate",
            "--overwrite",
            "relplan",
            plan,
            "belay-test/nudge=1",
        ])
        .await;
    }

    /// Deletes plans and waits until they are gone.
    pub async fn delete_plans(&self, names: &[&str]) {
        let mut args = vec!["delete", "relplan", PATIENCE];
        args.extend(names);
        self.kubectl(&args).await;
    }

    /// How many revisions there are in the namespace.
    pub async fn revisions(&self) -> usize {
        let args = ["get", "controllerrevisions", "-o", "name"];
        self.kubectl(&args).await.lines().count()
    }

    /// A policy of the house for updates of the Deployments of this namespace,
    /// and what it refuses; returns once the API server enforces it.
    pub async fn policy(&self, name: &str, expression: &str, refused: &[&str]) {
        let namespace = &self.namespace;
        self.apply(&format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules:
    - {{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}}
  validations:
  - expression: \"{expression}\"
    message: the policy of the house
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
        ))
        .await;
        self.refused(refused).await;
    }

    /// Takes the effect of a policy away.
    pub async fn lift(&self, policy: &str) {
        self.kubectl(&["delete", "validatingadmissionpolicybinding", policy])
            .await;
    }

    /// Waits until the API server refuses what kubectl asks for.
    pub async fn refused(&self, probe: &[&str]) {
        let deadline = tokio::time::Instant::now() + SOON;
        while self.kubectl_raw(probe).await.success() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "still allowed: {probe:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}
