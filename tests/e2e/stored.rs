//! Plans that were stored before a rule existed that they break.

use belay::api::Reason;
use serde_json::json;

use crate::support::{SOON, Scene, plan};

const SWITCH: &str = "belay-test/webhooks";

/// Lets a namespace opt out of the webhooks, whose state is thereby the one of
/// a cluster in which they are not installed yet.
async fn make_webhooks_optional(scene: &Scene) {
    let selector = json!({"matchExpressions": [
        {"key": SWITCH, "operator": "NotIn", "values": ["off"]},
    ]});
    let patch = json!([{"op": "add", "path": "/webhooks/0/namespaceSelector", "value": selector}]);
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        let patch = patch.to_string();
        let args = ["patch", kind, "belay.dev", "--type=json", "-p", &patch];
        scene.kubectl(&args).await;
    }
}

/// Waits until the API server asks the webhooks about this namespace, or no
/// longer does.
async fn webhooks(scene: &Scene, on: bool, invalid: &str) {
    let value = if on { "on" } else { "off" };
    let label = format!("{SWITCH}={value}");
    let args = [
        "label",
        "--overwrite",
        "namespace",
        &scene.namespace,
        &label,
    ];
    scene.kubectl(&args).await;
    let probe = invalid.replace("{name: shop", "{name: probe");
    let deadline = tokio::time::Instant::now() + SOON;
    // The API server hears of both changes by watches of its own.
    loop {
        let output = scene.try_apply(&probe, &["--dry-run=server"]).await;
        if output.success() != on {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "webhooks {value}: {}",
            output.stderr
        );
    }
}

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
    make_webhooks_optional(&scene).await;
    webhooks(&scene, false, &invalid).await;
    scene.apply(&invalid).await;
    scene.because("shop", Reason::InvalidPlan).await;
    webhooks(&scene, true, &invalid).await;

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
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let stored = scene.plans().get("shop").await.unwrap();
        if stored.metadata.finalizers.as_deref() == Some(&["example.com/hold".to_owned()]) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{stored:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    denied(json!([hold(0), worse])).await;
    let output = patch(json!([hold(0)])).await;
    assert!(output.success(), "{}", output.stderr);
    scene.gone("shop").await;
    assert_eq!(scene.writes_to_deployments().await.len(), 0);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}
