//! Objects that are deleted and made again, or go with their namespace.

use belay::api::Reason;
use serde_json::json;

use crate::support::{PATIENCE, Scene, deployment, image_of, plan, why};

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_replaced_by_force_again_and_again_is_taken_again() {
    let scene = Scene::new("recreated-force").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    scene.ready("shop").await;
    for round in 0..5 {
        scene.kubectl(&["delete", "deployment", "cart"]).await;
        scene.apply(&deployment("cart", "shop/cart:1", 1)).await;
        let what = format!("has the plan's image, round {round}");
        scene
            .deployment_until("cart", &what, |d| image_of(d) == "shop/cart:2")
            .await;
    }
    scene.available("cart").await;
    scene.ready("shop").await;
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_recreated_in_mid_release_are_released_or_go_back() {
    let scene = Scene::new("recreated-mid").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let web = "  - workload: {kind: Deployment, name: web}\n";
    let with = async |tag: &str| {
        let image = format!("shop/cart:{tag}");
        scene.shop(&[("cart", &image)], web).await;
    };
    with("1").await;
    scene.ready("shop").await;
    with("2-slow").await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["delete", "deployment", "cart", "web"])
        .await;
    scene.apply(&deployment("cart", "shop/cart:1", 1)).await;
    scene.apply(&deployment("web", "shop/web:2", 1)).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    assert_eq!(scene.image("web").await, "shop/web:2");
    // The same with content that fails.
    with("3-unready").await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&["delete", "deployment", "web"]).await;
    scene.kubectl(&["delete", "deployment", "cart"]).await;
    scene
        .apply(&deployment("web", "shop/web:4-pullerror", 1))
        .await;
    scene.apply(&deployment("cart", "shop/cart:1", 1)).await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(
        scene.image("cart").await,
        "shop/cart:2-slow",
        "{}",
        why(&end)
    );
    assert_eq!(scene.image("web").await, "shop/web:2");
    scene.assert_calm().await;
}

/// A plan that is paused in mid-release is deleted as well, and one of the same
/// name starts afresh.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_deleted_and_made_again_in_mid_release_starts_afresh() {
    let scene = Scene::new("recreated-plan").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene.shop(&[("cart", "shop/cart:2-unready")], "").await;
    scene.because("shop", Reason::Promoting).await;
    let paused = json!({"spec": {"paused": true}});
    scene.merge("relplan", "shop", &paused).await;
    scene.because("shop", Reason::Paused).await;
    scene.delete_plans(&["shop"]).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    assert_eq!(scene.revisions().await, 0);
    scene.shop(&[("cart", "shop/cart:3")], "").await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_can_be_deleted_in_mid_release() {
    let scene = Scene::new("recreated-namespace").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene.shop(&[("cart", "shop/cart:2-unready")], "").await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["delete", "ns", &scene.namespace, PATIENCE])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_and_forced_deletion_in_mid_release_go_back_first() {
    let scene = Scene::new("recreated-cascade").await;
    let ways = [
        ("cart", "--cascade=foreground"),
        ("web", "--cascade=orphan"),
    ];
    for (name, how) in ways {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
        scene.ready(name).await;
        scene
            .apply(&plan(name, &[(name, "shop/x:2-unready")], ""))
            .await;
        scene.because(name, Reason::Promoting).await;
        let forced = ["--force", "--grace-period=0", PATIENCE];
        scene
            .kubectl(&[&["delete", "relplan", name, how], &forced[..]].concat())
            .await;
        scene.gone(name).await;
        assert_eq!(scene.image(name).await, "shop/x:1", "{how}");
    }
    assert_eq!(scene.revisions().await, 0);
}
