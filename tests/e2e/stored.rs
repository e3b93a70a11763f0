//! Plans that were stored before a rule existed that they break.

use belay::api::{Reason, ReleasePlanStatus, StoredPlan};
use serde_json::json;

use crate::support::{Scene, holds, owned, plan};

/// WV-03: a plan was stored before the rule that it breaks. It can be labelled
/// and deleted; it cannot be changed to something else that is invalid, and not
/// under the cover of a finalizer that goes, whether it is being deleted or not.
#[tokio::test(flavor = "multi_thread")]
async fn wv_03_an_invalid_stored_plan_can_be_finished_and_not_made_worse() {
    let scene = Scene::new("wv-03").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    // That two wait for each other only the webhook can tell.
    let invalid = plan(
        "shop",
        &[("cart", "shop/cart:2")],
        "    after: [web]
  - workload: {kind: Deployment, name: web}
    after: [cart]
  - workload: {kind: Deployment, name: pay}
    after: [cart]
",
    )
    .replace(
        "{name: shop}",
        "{name: shop, finalizers: [belay.dev/rollback, example.com/hold]}",
    );
    scene.make_webhooks_optional().await;
    scene.webhooks(false, &invalid).await;
    scene.apply(&invalid).await;
    scene.because("shop", Reason::InvalidPlan).await;
    scene.webhooks(true, &invalid).await;

    scene
        .kubectl(&["label", "relplan", "shop", "team=shop"])
        .await;
    let patch = async |patch: serde_json::Value| {
        let patch = patch.to_string();
        scene
            .kubectl_raw(&["patch", "relplan", "shop", "--type=json", "-p", &patch])
            .await
    };
    let worse = json!({"op": "replace", "path": "/spec/components/0/after", "value": ["pay"]});
    let hold = |at: u8| json!({"op": "remove", "path": format!("/metadata/finalizers/{at}")});
    let denied = async |operations: serde_json::Value| {
        let output = patch(operations.clone()).await;
        assert!(!output.success(), "{operations}: {}", output.stdout);
        assert!(
            output.stderr.contains("spec.components[0].after"),
            "{}",
            output.stderr
        );
    };
    denied(json!([worse])).await;
    denied(json!([hold(1), worse])).await;

    scene
        .kubectl(&["delete", "relplan", "shop", "--wait=false"])
        .await;
    // The operator takes its own finalizer off, through the same door.
    let foreign = ["example.com/hold".to_owned()];
    scene
        .stored_until("shop", "has the other finalizer only", |plan| {
            plan.metadata.finalizers.as_deref() == Some(&foreign)
        })
        .await;
    denied(json!([hold(0), worse])).await;
    let output = patch(json!([hold(0)])).await;
    assert!(output.success(), "{}", output.stderr);
    scene.gone("shop").await;
    assert_eq!(scene.writes_to_deployments().await.len(), 0);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

fn has_retry(plan: &StoredPlan) -> bool {
    plan.annotation("belay.dev/retry").is_some()
}

/// While the webhooks are away, everything gets in: plans that are not valid, at
/// rest and in mid-release, nonsense in annotations, another set of components
/// in mid-release. None of it is acted upon in part, and each is told.
#[tokio::test(flavor = "multi_thread")]
async fn what_got_past_the_webhooks_is_told_and_never_acted_upon_in_part() {
    let scene = Scene::new("stored-past").await;
    let two = |tags: [&str; 2]| {
        let [cart, web] = tags.map(|tag| format!("shop/x:{tag}"));
        plan("shop", &[("cart", &cart), ("web", &web)], "")
    };
    // Two that wait for each other.
    let cycle = |tags| {
        two(tags).replace("name: cart}\n", "name: cart}\n    after: [web]\n")
            + "    after: [cart]\n"
    };
    for name in ["cart", "web", "pay"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene.make_webhooks_optional().await;
    scene.webhooks(false, &cycle(["1", "1"])).await;
    scene.apply(&two(["2", "2"])).await;
    scene.ready("shop").await;

    scene.apply(&cycle(["3", "3"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    assert_eq!(scene.image("cart").await, "shop/x:2");
    scene.apply(&two(["4-unready", "4"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&cycle(["4-unready", "4"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    scene.assert_calm().await;

    scene.apply(&two(["5", "5"])).await;
    scene.ready("shop").await;
    for retry in ["", "a/b", "../../x", "shop-none"] {
        let retry = format!("belay.dev/retry={retry}");
        let args = ["annotate", "--overwrite", "relplan", "shop", &retry];
        scene.kubectl(&args).await;
        scene
            .stored_until("shop", "is rid of the annotation", |plan| !has_retry(plan))
            .await;
    }
    let status = scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:5");
    let ignored = |status: &ReleasePlanStatus| {
        let decisions = status.decisions.iter();
        decisions
            .filter(|d| d.reason == Reason::RetryIgnored)
            .count()
    };
    assert!(ignored(&status) > 0, "{:?}", status.decisions);

    // The set of components changes in mid-release, which only the webhook
    // refuses.
    scene.apply(&two(["6-slow", "6"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .shop(&[("cart", "shop/x:6-slow"), ("pay", "shop/x:6")], "")
        .await;
    scene
        .plan_until("shop", "has pay", |s| {
            let mut names = s.components.iter().map(|c| c.workload.name.as_deref());
            names.any(|name| name == Some("pay")) && holds(s, "Ready", "True")
        })
        .await;
    assert_eq!(scene.image("pay").await, "shop/x:6");
    let ours = owned(&scene.deployments().get("web").await.unwrap());
    assert!(ours.is_empty(), "{ours:#?}");
    scene
        .shop(
            &[("cart", "shop/x:6-slow")],
            "  retry: {maxRetries: 5}\n  bakeTime: 9999h\n",
        )
        .await;
    scene.because("shop", Reason::InvalidPlan).await;
    scene.assert_calm().await;
    scene.delete_plans(&["shop"]).await;
    assert_eq!(scene.revisions().await, 0);
}
