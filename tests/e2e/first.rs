//! What is live when a plan comes is not healthy, and first releases that fail.

use std::time::Duration;

use belay::api::{Phase, Reason};

use crate::support::{Scene, deployment, following, holds, pass_time, why};

const DEADLINE: Duration = Duration::from_secs(3);

/// What is live is never healthy and what the plan wants is live already.
#[tokio::test(flavor = "multi_thread")]
async fn a_baseline_that_is_not_healthy_within_the_deadline_does_not_spin() {
    let scene = Scene::new("first-baseline").await;
    scene
        .apply(&deployment("cart", "shop/cart:1-unready", 1))
        .await;
    scene
        .apply(&following("shop", &["cart"], "  progressDeadline: 3s\n"))
        .await;
    scene.because("shop", Reason::BaselineUnavailable).await;
    pass_time(2 * DEADLINE).await;
    scene.assert_calm().await;
    let status = scene.because("shop", Reason::BaselineUnavailable).await;
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_eq!(status.history, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_release_that_failed_rests_and_good_content_heals_it() {
    let scene = Scene::new("first-failed").await;
    let rest = "  progressDeadline: 3s\n";
    scene
        .apply(&deployment("cart", "shop/cart:1-pullerror", 1))
        .await;
    scene.shop(&[("cart", "shop/cart:2-pullerror")], rest).await;
    scene.phase("shop", Phase::Failed).await;
    let failed = scene.at_rest("shop").await;
    assert!(
        why(&failed).starts_with("ReleaseFailed"),
        "{}",
        why(&failed)
    );
    scene.assert_calm().await;
    scene
        .kubectl(&["rollout", "restart", "deployment/cart"])
        .await;
    // Not a success, and not tried again by itself.
    let restarted = scene.at_rest("shop").await;
    assert!(holds(&restarted, "Ready", "False"), "{}", why(&restarted));
    assert_eq!(restarted.history.len(), 1, "{:#?}", restarted.history);
    assert_eq!(scene.image("cart").await, "shop/cart:2-pullerror");
    scene.assert_calm().await;
    scene.shop(&[("cart", "shop/cart:3")], rest).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}
