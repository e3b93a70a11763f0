//! Content that was refused stays refused, whatever comes between.

use belay::api::{Reason, ReleasePlanStatus, ReleaseRecord, ReleaseResult};

use crate::support::{Scene, following, image_of, why};

/// How many releases of a plan were rolled back.
fn rollbacks(status: &ReleasePlanStatus) -> usize {
    let back = |result: &&ReleaseResult| **result == ReleaseResult::RolledBack;
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    results.iter().filter(back).count()
}

/// Bad content from the first moment; then somebody restarts the rollout, which
/// the README calls harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_after_the_very_first_release_was_rolled_back_is_harmless() {
    let scene = Scene::new("refused-first-bad").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.shop(&[("cart", "shop/cart:2-pullerror")], "").await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["rollout", "restart", "deployment", "cart"])
        .await;
    let end = scene.at_rest("shop").await;
    assert!(
        end.refused[0].spec.is_some(),
        "the content of the spec is refused: {:?}",
        end.refused
    );
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(rollbacks(&end), 1, "{:#?}", end.history);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.assert_calm().await;
}

/// The same for a component that joined with bad content.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_after_a_component_joined_with_bad_content_is_harmless() {
    let scene = Scene::new("refused-joined-bad").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene
        .shop(
            &[("cart", "shop/cart:1"), ("web", "shop/web:2-pullerror")],
            "",
        )
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["rollout", "restart", "deployment", "web"])
        .await;
    let end = scene.at_rest("shop").await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(rollbacks(&end), 1, "{:#?}", end.history);
    assert!(
        scene
            .template("web")
            .await
            .to_string()
            .contains("restartedAt")
    );
    assert_eq!(scene.image("web").await, "shop/web:1");
    scene.assert_calm().await;
}

/// The same with a value that is changed instead of added.
#[tokio::test(flavor = "multi_thread")]
async fn surroundings_of_a_component_that_joined_with_bad_content_are_the_users() {
    let scene = Scene::new("refused-joined-env").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene
        .shop(
            &[("cart", "shop/cart:1"), ("web", "shop/web:2-pullerror")],
            "",
        )
        .await;
    scene.because("shop", Reason::RolledBack).await;
    let before = scene.writes_to_deployments().await.len();
    scene
        .kubectl(&["set", "env", "deployment", "web", "LOG=debug"])
        .await;
    let end = scene.at_rest("shop").await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    let env = scene.template("web").await["spec"]["containers"][0]["env"].to_string();
    assert!(
        env.contains("debug"),
        "the user's own setting is undone: {env}"
    );
    // Nothing of the plan changed.
    scene.assert_no_deployment_written_since(before).await;
}

/// A followed component that was refused is known under its workload, not only
/// under the name that it happens to have in the plan.
#[tokio::test(flavor = "multi_thread")]
async fn refused_followed_content_stays_refused_when_the_component_is_renamed() {
    let scene = Scene::new("refused-renamed").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    scene.set_image("cart", "shop/cart:2-pullerror").await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .apply(
            &following("shop", &["cart"], "")
                .replace("  - workload", "  - name: other\n    workload"),
        )
        .await;
    scene.at_rest("shop").await;
    scene.set_image("cart", "shop/cart:2-pullerror").await;
    let end = scene.at_rest("shop").await;
    assert_eq!(end.history.len(), 1, "{:#?}", end.history);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// Refused content of a followed workload is not released again because it came
/// in mid-release, and takes the place of nothing.
#[tokio::test(flavor = "multi_thread")]
async fn refused_followed_content_that_comes_in_mid_release_is_not_tried_again() {
    let scene = Scene::new("refused-mid").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    scene.set_image("cart", "shop/cart:2-pullerror").await;
    let first = scene.because("shop", Reason::RolledBack).await;
    let refused = first.refused.last().unwrap().revision.clone();
    scene.set_image("cart", "shop/cart:3-slow").await;
    scene.because("shop", Reason::Promoting).await;
    scene.set_image("cart", "shop/cart:2-pullerror").await;
    scene
        .deployment_until("cart", "goes on", |d| image_of(d) == "shop/cart:3-slow")
        .await;
    let end = scene
        .plan_until("shop", "rests", |s| {
            s.release.is_none()
                && s.history
                    .last()
                    .is_some_and(|r| r.number > first.history.last().unwrap().number + 1)
        })
        .await;
    // That it came again is told; that is no try.
    let is_try = |r: &&ReleaseRecord| {
        let again = r.message.as_ref().is_some_and(|m| m.contains("came again"));
        r.revision.as_ref() == Some(&refused) && !again
    };
    let tries = end.history.iter().filter(is_try).count();
    assert_eq!(tries, 1, "{:#?}", end.history);
    assert_eq!(scene.image("cart").await, "shop/cart:3-slow");
    // Who set it is told so, although something else was released.
    scene.because("shop", Reason::RolledBack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_in_mid_release_of_something_else_is_refused_and_changes_nothing() {
    let scene = Scene::new("refused-retry").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    for retry in ["", "a/b", "../x", "shop-0000000000"] {
        let out = scene
            .kubectl_raw(&[
                "annotate",
                "--overwrite",
                "relplan",
                "shop",
                &format!("belay.dev/retry={retry}"),
            ])
            .await;
        assert!(!out.success(), "{retry:?} is admitted");
    }
    scene.shop(&[("cart", "shop/cart:2-pullerror")], "").await;
    let refused = scene.because("shop", Reason::RolledBack).await.refused[0]
        .revision
        .clone();
    scene.shop(&[("cart", "shop/cart:3-slow")], "").await;
    scene.because("shop", Reason::Promoting).await;
    let out = scene
        .kubectl_raw(&[
            "annotate",
            "relplan",
            "shop",
            &format!("belay.dev/retry={refused}"),
        ])
        .await;
    assert!(
        !out.success() && out.stderr.contains("no longer what the plan asks for"),
        "{}",
        out.stderr
    );
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3-slow");
    scene.assert_calm().await;
    let annotations = scene
        .plans()
        .get("shop")
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap();
    assert!(
        !annotations.contains_key("belay.dev/retry"),
        "{annotations:?}"
    );
}
