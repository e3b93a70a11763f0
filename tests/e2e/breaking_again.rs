//! Hostile cases: objects that are deleted and made again.

use belay::api::Reason;

use crate::{
    breaking::{revisions, sane, why},
    support::{Scene, deployment, image_of, plan},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_replaced_by_force_again_and_again_is_taken_again() {
    let scene = Scene::new("break-replace").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.ready("shop").await;
    for round in 0..5 {
        scene.kubectl(&["delete", "deployment", "cart"]).await;
        scene.apply(&deployment("cart", "shop/cart:1", 1)).await;
        scene
            .deployment_until(
                "cart",
                &format!("has the plan's image, round {round}"),
                |d| image_of(d) == "shop/cart:2",
            )
            .await;
    }
    scene.available("cart").await;
    scene.ready("shop").await;
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_recreated_in_mid_release() {
    let scene = Scene::new("break-recreate").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |tag: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template: {{spec: {{containers: [{{name: app, image: \"shop/cart:{tag}\"}}]}}}}
  - workload: {{kind: Deployment, name: web}}
"
        )
    };
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    scene.apply(&with("2-slow")).await;
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
    scene.apply(&with("3-unready")).await;
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
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_deleted_and_made_again_in_mid_release() {
    let scene = Scene::new("break-remade").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene.because("shop", Reason::Promoting).await;
    // A plan that is paused in mid-release is deleted as well.
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--type=merge",
            "-p",
            r#"{"spec":{"paused":true}}"#,
        ])
        .await;
    scene.because("shop", Reason::Paused).await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    assert_eq!(revisions(&scene).await, 0);
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_can_be_deleted_in_mid_release() {
    let scene = Scene::new("break-ns").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["delete", "ns", "break-ns", "--timeout=90s"])
        .await;
}
