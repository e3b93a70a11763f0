//! What people install.

use belay_testenv::workspace_root;

use crate::support::Scene;

/// The CRD in `crds/` is the one that the types say.
#[test]
fn the_committed_crd_is_the_generated_one() {
    let path = workspace_root().join("crds/releaseplans.belay.dev.yaml");
    let committed = std::fs::read_to_string(path).unwrap();
    let generated = belay::api::crd_yaml().unwrap();
    assert!(
        committed == generated,
        "crds/ is stale; write it again: cargo run --bin belay -- crd > crds/releaseplans.belay.dev.yaml"
    );
}

/// The API server accepts everything under `deploy/`, and the operator's rights
/// do not reach further than they have to.
#[tokio::test(flavor = "multi_thread")]
async fn the_kustomization_is_accepted_by_the_api_server() {
    let scene = Scene::new("installation").await;
    let deploy = workspace_root().join("deploy");
    let deploy = deploy.to_str().unwrap();
    let rendered = scene.kubectl(&["kustomize", deploy]).await;
    for kind in [
        "CustomResourceDefinition",
        "Deployment",
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ClusterRole",
        "Service",
    ] {
        assert!(rendered.contains(&format!("kind: {kind}\n")), "{kind}");
    }
    for object in rendered.split("\n---\n") {
        // The operator has put its address into these, which an apply would mix
        // with the Service's.
        let verb = if object.contains("WebhookConfiguration") {
            "replace"
        } else {
            "apply"
        };
        let args = [verb, "--dry-run=server", "-f", "-"];
        let output = scene.cluster.kubectl_stdin(&args, object).unwrap();
        assert!(output.success(), "{}\n{object}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_may_do_only_what_it_has_to() {
    let scene = Scene::new("installation-rights").await;
    let who = "--as=system:serviceaccount:belay-system:belay";
    for denied in [
        ["create", "deployments.apps"],
        ["delete", "deployments.apps"],
        ["get", "secrets"],
        ["create", "pods"],
        ["delete", "pods"],
        ["update", "configmaps"],
        ["create", "releaseplans.belay.dev"],
        ["delete", "releaseplans.belay.dev"],
        ["create", "clusterroles.rbac.authorization.k8s.io"],
        ["impersonate", "users"],
    ] {
        let output = scene
            .kubectl_raw(&["auth", "can-i", denied[0], denied[1], who])
            .await;
        assert_eq!(output.stdout.trim(), "no", "{denied:?} {}", output.stderr);
    }
    let output = scene
        .kubectl_raw(&["auth", "can-i", "patch", "deployments.apps", who])
        .await;
    assert_eq!(output.stdout.trim(), "yes");
}
