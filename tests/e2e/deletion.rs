//! Deleting a plan, in mid-release and at rest.

use std::time::Duration;

use belay::api::Reason;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, api::ListParams};

use crate::support::{PATIENCE, Scene, image_of, plan};

async fn nothing_of_ours_is_left(scene: &Scene) {
    let revisions = Api::<ControllerRevision>::namespaced(scene.client.clone(), &scene.namespace);
    assert_eq!(
        revisions.list(&ListParams::default()).await.unwrap().items,
        []
    );
    for deployment in scene
        .deployments()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let text = serde_json::to_string(&deployment).unwrap();
        assert!(!text.contains("belay"), "{text}");
    }
}

/// `kubectl delete` in mid-release returns only after the stable templates are
/// available again.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_in_mid_release_brings_the_stable_templates_back_first() {
    let scene = Scene::new("deletion-back").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 2).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:1")],
            "",
        ))
        .await;
    scene.ready("shop").await;
    let before = [scene.template("cart").await, scene.template("web").await];
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2"), ("web", "shop/web:2-unready")],
            "",
        ))
        .await;
    scene
        .deployment_until("web", "gets 2", |d| image_of(d) == "shop/web:2-unready")
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", PATIENCE])
        .await;
    for (name, before) in ["cart", "web"].iter().zip(before) {
        let live = scene.deployments().get(name).await.unwrap();
        assert_eq!(scene.template(name).await, before, "{name}");
        let status = live.status.unwrap();
        assert_eq!(status.observed_generation, live.metadata.generation);
        assert_eq!(status.available_replicas, Some(2), "{name}");
        assert_eq!(status.updated_replicas, Some(2), "{name}");
    }
    nothing_of_ours_is_left(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_policy_keep_leaves_what_is_live() {
    let scene = Scene::new("deletion-keep").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1")],
            "  deletionPolicy: Keep\n",
        ))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2-unready")],
            "  deletionPolicy: Keep\n",
        ))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", PATIENCE])
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-unready");
    nothing_of_ours_is_left(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_at_rest_goes_at_once_and_changes_nothing() {
    let scene = Scene::new("deletion-rest").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.ready("shop").await;
    let generation = scene
        .deployments()
        .get("cart")
        .await
        .unwrap()
        .metadata
        .generation;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=20s"])
        .await;
    let live = scene.deployments().get("cart").await.unwrap();
    assert_eq!(live.metadata.generation, generation);
    assert_eq!(image_of(&live), "shop/cart:2");
    nothing_of_ours_is_left(&scene).await;
}

/// Foreground deletion collects dependents while the finalizer still holds the
/// plan; what a rollback needs must not be among them.
#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_in_mid_release_still_finds_its_way_back() {
    let scene = Scene::new("deletion-foreground").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .kubectl(&[
            "delete",
            "relplan",
            "shop",
            "--cascade=foreground",
            PATIENCE,
        ])
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_a_release_in_progress() {
    let scene = Scene::new("deletion-namespace").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .kubectl(&["delete", "namespace", &scene.namespace, PATIENCE])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_whose_workload_is_gone_can_be_deleted() {
    let scene = Scene::new("deletion-missing").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene.kubectl(&["delete", "deployment", "cart"]).await;
    scene
        .kubectl(&["delete", "relplan", "shop", PATIENCE])
        .await;
}

/// While the stable templates are not available the plan stays, says what it
/// waits for and how to let it go.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_says_what_it_waits_for_and_keep_is_the_way_out() {
    let scene = Scene::new("deletion-stuck").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let rest = "  progressDeadline: 3s\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], rest))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], rest))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-slow")
        .await;
    // More pods than the node's quota of the namespace allows never get ready.
    scene
        .apply("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none}\nspec: {hard: {pods: '0'}}\n")
        .await;
    scene
        .kubectl(&["delete", "pods", "--all", "--wait=false"])
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--wait=false"])
        .await;
    let status = scene.because("shop", Reason::RollbackStalled).await;
    let text = crate::support::message(&status, "Stalled");
    assert!(
        text.contains("deployment cart") && text.contains(r#"{"deletionPolicy":"Keep"}"#),
        "{text}"
    );
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--type=merge",
            "-p",
            r#"{"spec":{"deletionPolicy":"Keep"}}"#,
        ])
        .await;
    tokio::time::timeout(Duration::from_secs(30), scene.gone("shop"))
        .await
        .unwrap();
}
