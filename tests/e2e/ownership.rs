//! Who owns which field of a Deployment, and what becomes of it when a release
//! goes back while others write, wipe, share and rename.

use belay::api::{Phase, Reason, ReleaseKind};
use serde_json::json;

use crate::support::{Scene, following, holds, image_of, owned, plan_of, why};

/// The names of the containers of a live template.
async fn containers(scene: &Scene, name: &str) -> Vec<String> {
    let template = scene.template(name).await;
    let containers = template["spec"]["containers"].as_array().unwrap();
    let name = |c: &serde_json::Value| c["name"].as_str().unwrap().to_owned();
    containers.iter().map(name).collect()
}

/// A workload whose records of ownership were wiped by hand still goes back in
/// full.
#[tokio::test(flavor = "multi_thread")]
async fn managed_fields_wiped_in_mid_release_do_not_hold_the_way_back() {
    let scene = Scene::new("ownership-wiped").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let before = scene.template("cart").await;
    let with = |container: &str| plan_of("shop", &[("cart", container)], "");
    scene.apply(&with("image: 'shop/cart:1'")).await;
    scene.ready("shop").await;
    scene
        .apply(&with(
            "image: 'shop/cart:2-unready', env: [{name: LOG, value: debug}, {name: A, value: a}]",
        ))
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let wiped = json!({"metadata": {"managedFields": [{}]}});
    scene.merge("deployment", "cart", &wiped).await;
    scene.apply(&with("image: 'shop/cart:3-pullerror'")).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.template("cart").await, before);
    scene.assert_calm().await;
}

/// What a user does to the surroundings in mid-release outlives the rollback,
/// and all of the plan's fields are back.
#[tokio::test(flavor = "multi_thread")]
async fn surroundings_edited_in_mid_release_outlive_the_rollback() {
    let scene = Scene::new("ownership-edited").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene
        .shop(
            &[("cart", "shop/cart:2-unready")],
            "  progressDeadline: 12s\n",
        )
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let limits = "--limits=cpu=200m,memory=64Mi";
    scene
        .kubectl(&["set", "resources", "deployment/cart", limits])
        .await;
    let side =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", side])
        .await;
    scene
        .plan_until("shop", "is back and has seen the surroundings", |s| {
            let last = s.history.last();
            s.release.is_none()
                && holds(s, "Stalled", "True")
                && last.is_some_and(|r| r.kind == ReleaseKind::Surroundings)
        })
        .await;
    let end = scene.at_rest("shop").await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert!(end.release.is_none() && holds(&end, "Stalled", "True"));
    let template = scene.template("cart").await.to_string();
    for kept in ["shop/cart:1", "side:1", "200m"] {
        assert!(template.contains(kept), "{kept}: {template}");
    }
    scene.available("cart").await;
    scene.assert_calm().await;
}

/// A sync tool took what the release added for its own (server-side apply with
/// the same value). The way back ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_another_applier_shares_does_not_hold_the_way_back() {
    let scene = Scene::new("ownership-shared").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let before = scene.template("cart").await;
    let with =
        |container: &str| plan_of("shop", &[("cart", container)], "  progressDeadline: 10s\n");
    scene.apply(&with("image: 'shop/cart:1'")).await;
    scene.ready("shop").await;
    scene
        .apply(&with(
            "image: 'shop/cart:2-unready', env: [{name: A, value: a}]",
        ))
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let shared = "apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  template:
    spec:
      containers:
      - name: app
        env: [{name: A, value: a}]
";
    let out = scene
        .try_apply(shared, &["--server-side", "--field-manager=sync"])
        .await;
    assert!(out.success(), "{}", out.stderr);
    let end = scene
        .plan_until("shop", "is stalled", |s| holds(s, "Stalled", "True"))
        .await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(scene.template("cart").await, before);
}

/// A container that somebody renamed in mid-release is not added a second time
/// by the way back, and does not keep the other component from it.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_does_not_add_a_container_that_was_renamed_in_mid_release() {
    let scene = Scene::new("ownership-renamed").await;
    let rest = "  progressDeadline: 8s\n";
    scene
        .stable(&[("cart", "shop/cart:1"), ("web", "shop/web:1")], rest)
        .await;
    scene
        .shop(
            &[("cart", "shop/cart:2"), ("web", "shop/web:2-unready")],
            rest,
        )
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let main =
        r#"[{"op":"replace","path":"/spec/template/spec/containers/0/name","value":"main"}]"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "--type=json", "-p", main])
        .await;
    scene.because("shop", Reason::TemplateMismatch).await;
    // web never gets ready, so it is not left there for the sake of cart.
    scene
        .deployment_until("web", "is back", |d| image_of(d) == "shop/web:1")
        .await;
    let told = scene
        .plan_until("shop", "says why cart cannot go back", |s| {
            s.phase == Some(Phase::Rollback)
                && why(s).contains("has no container app (it has: main)")
        })
        .await;
    assert!(holds(&told, "Ready", "False"), "{}", why(&told));
    let before = scene.writes_to_deployments().await.len();
    scene.at_rest("shop").await;
    scene.nudge("shop").await;
    scene.assert_calm().await;
    scene.assert_no_deployment_written_since(before).await;
    assert_eq!(containers(&scene, "cart").await, ["main"]);
}

/// A rollback of the surroundings leaves no mark on them: another applier may
/// set them without a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_of_the_surroundings_leaves_no_ownership_behind() {
    let scene = Scene::new("ownership-marks").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    let side = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1-pullerror"}]}}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", side])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["set", "env", "deployment/cart", "LOG=debug"])
        .await;
    scene.at_rest("shop").await;
    let ours = owned(&scene.deployments().get("cart").await.unwrap());
    assert_eq!(ours.len(), 1, "{ours:#?}");
    let fields = serde_json::to_string(&ours[0].fields_v1).unwrap();
    assert!(
        fields.contains("f:image") && !fields.contains("side") && !fields.contains("f:env"),
        "{fields}"
    );
}

/// A template that leaves the plan in mid-release: the release goes on to its
/// end, what it brought stays and is the user's, and the plan guards it.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_leaves_in_mid_release_is_given_up_with_its_values() {
    let scene = Scene::new("ownership-left").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene.shop(&[("cart", "shop/cart:2-slow")], "").await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    scene.assert_calm().await;
    scene.set_image("cart", "shop/cart:3-pullerror").await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    let ours = owned(&scene.deployments().get("cart").await.unwrap());
    assert!(ours.is_empty(), "{ours:#?}");
}
