//! Workloads that a plan only follows.

use belay::api::{Cause, Reason, ReleaseResult};

use crate::support::{Scene, following, image_of};

/// A Deployment that is only followed rolls itself back after `kubectl set
/// image` to an image that cannot be pulled.
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_deployment_rolls_itself_back() {
    let scene = Scene::new("followed-back").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.apply(&following("shop", &["cart", "web"], "")).await;
    scene.ready("shop").await;
    let before = scene.template("cart").await;
    scene
        .kubectl(&[
            "set",
            "image",
            "deployment/cart",
            "app=shop/cart:2-pullerror",
        ])
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(
        status.refused.last().unwrap().cause,
        Cause::ImagePullBackOff
    );
    assert_eq!(scene.template("cart").await, before);
    scene.available("cart").await;
    let live = scene.deployments().get("cart").await.unwrap();
    let ours = live
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.manager.as_deref() == Some("belay"))
        .count();
    assert_eq!(ours, 0, "nothing of Belay stays on a followed workload");
    assert!(
        scene
            .writes_to_deployments()
            .await
            .iter()
            .all(|w| w.name == "cart")
    );

    // A good change afterwards is a release that ends well.
    scene
        .kubectl(&["set", "image", "deployment/cart", "app=shop/cart:3"])
        .await;
    let status = scene.ready("shop").await;
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::Succeeded
    );
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

/// Refused content that somebody sets again is sent back a few times, and then
/// left where it is, loudly: no ping-pong.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_who_insists_is_named_and_left_alone() {
    let scene = Scene::new("followed-contended").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    let bad = [
        "set",
        "image",
        "deployment/cart",
        "app=shop/cart:2-pullerror",
    ];
    scene.kubectl(&bad).await;
    scene.because("shop", Reason::RolledBack).await;
    let first = scene.writes_to_deployments().await.len();
    for _ in 0..3 {
        scene.kubectl(&bad).await;
        scene
            .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
            .await;
    }
    scene.kubectl(&bad).await;
    let status = scene.because("shop", Reason::Contended).await;
    let text = crate::support::message(&status, "Stalled");
    assert!(
        text.contains("kubectl-set") && text.contains("deployment cart"),
        "{text}"
    );
    assert_eq!(scene.image("cart").await, "shop/cart:2-pullerror");
    // Three templates, and as many times the ownership given up.
    let writes = scene.writes_to_deployments().await;
    let templates = writes
        .iter()
        .filter(|w| {
            w.request_object
                .as_ref()
                .is_some_and(|o| o.to_string().contains("/spec/template"))
        })
        .count();
    assert_eq!(
        templates,
        4,
        "one rollback and three corrections, of {} then {}",
        first,
        writes.len()
    );
}
