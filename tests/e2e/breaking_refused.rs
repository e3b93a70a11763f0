//! Hostile cases of content that was refused.

use belay::api::{Reason, ReleaseResult};

use crate::{
    breaking::{rested, sane, why},
    support::{Scene, following, holds, plan},
};

/// Bad content from the first moment; then somebody restarts the rollout, which
/// the README calls harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_after_the_very_first_release_was_rolled_back_is_harmless() {
    let scene = Scene::new("break-first-bad").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], ""))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["rollout", "restart", "deployment", "cart"])
        .await;
    let end = rested(&scene, "shop").await;
    assert!(
        end.refused[0].spec.is_some(),
        "the content of the spec is refused: {:?}",
        end.refused
    );
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(
        end.history
            .iter()
            .filter(|r| r.result == ReleaseResult::RolledBack)
            .count(),
        1,
        "{:#?}",
        end.history
    );
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    sane(&scene).await;
}

/// The same for a component that joined with bad content.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_after_a_component_joined_with_bad_content_is_harmless() {
    let scene = Scene::new("break-joined-bad").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:2-pullerror")],
            "",
        ))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["rollout", "restart", "deployment", "web"])
        .await;
    let end = rested(&scene, "shop").await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(
        end.history
            .iter()
            .filter(|r| r.result == ReleaseResult::RolledBack)
            .count(),
        1,
        "{:#?}",
        end.history
    );
    assert!(
        scene
            .template("web")
            .await
            .to_string()
            .contains("restartedAt")
    );
    assert_eq!(scene.image("web").await, "shop/web:1");
    sane(&scene).await;
}

/// The same with a value that is changed instead of added.
#[tokio::test(flavor = "multi_thread")]
async fn surroundings_of_a_component_that_joined_with_bad_content_are_the_users() {
    let scene = Scene::new("break-joined-env").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:2-pullerror")],
            "",
        ))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    let before = scene.writes_to_deployments().await.len();
    scene
        .kubectl(&["set", "env", "deployment", "web", "LOG=debug"])
        .await;
    let end = rested(&scene, "shop").await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    let env = scene.template("web").await["spec"]["containers"][0]["env"].to_string();
    assert!(
        env.contains("debug"),
        "the user's own setting is undone: {env}"
    );
    let after = scene.writes_to_deployments().await;
    assert_eq!(
        after.len(),
        before,
        "nothing of the plan changed: {:#?}",
        &after[before..]
    );
}

/// A followed component that was refused is known under its workload, not only
/// under the name that it happens to have in the plan.
#[tokio::test(flavor = "multi_thread")]
async fn refused_followed_content_stays_refused_when_the_component_is_renamed() {
    let scene = Scene::new("break-renamed").await;
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
    scene
        .apply(
            &following("shop", &["cart"], "")
                .replace("  - workload", "  - name: other\n    workload"),
        )
        .await;
    rested(&scene, "shop").await;
    scene.kubectl(&bad).await;
    let end = rested(&scene, "shop").await;
    assert_eq!(end.history.len(), 1, "{:#?}", end.history);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// Refused content of a followed workload is not released again because it came
/// in mid-release.
#[tokio::test(flavor = "multi_thread")]
async fn refused_followed_content_that_comes_in_mid_release_is_not_tried_again() {
    let scene = Scene::new("break-refused-mid").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    let set = |tag: &str| {
        [
            "set".to_owned(),
            "image".to_owned(),
            "deployment/cart".to_owned(),
            format!("app=shop/cart:{tag}"),
        ]
    };
    let args = set("2-pullerror");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    scene.kubectl(&args).await;
    let first = scene.because("shop", Reason::RolledBack).await;
    let refused = first.refused.last().unwrap().revision.clone();
    let slow = set("3-slow");
    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
    scene.kubectl(&slow).await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&args).await;
    scene
        .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
        .await;
    let end = scene
        .plan_until("shop", "rests", |s| {
            s.release.is_none()
                && s.history
                    .last()
                    .is_some_and(|r| r.number > first.history.last().unwrap().number + 1)
        })
        .await;
    let tries = end
        .history
        .iter()
        .filter(|r| r.revision.as_ref() == Some(&refused))
        .count();
    assert_eq!(tries, 1, "{:#?}", end.history);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}
