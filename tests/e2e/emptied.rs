//! Lists that a plan applies empty, of which the API server stores nothing.

use belay::api::Reason;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Scene, deployment, image_of};

fn plan(image: &str, args: &str) -> String {
    format!(
        "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template:
      spec:
        containers: [{{name: app, image: 'shop/cart:{image}', args: {args}}}]
"
    )
}

async fn fill(scene: &Scene, argument: &str) {
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    let containers = json!([{"name": "app", "args": [argument]}]);
    let patch =
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    scene
        .deployments()
        .patch("cart", &params, &patch)
        .await
        .unwrap();
}

async fn args(scene: &Scene) -> serde_json::Value {
    scene.template("cart").await["spec"]["containers"][0]["args"].clone()
}

/// Whether Belay's one entry owns the arguments.
async fn owns_args(scene: &Scene) -> bool {
    let live = scene.deployments().get("cart").await.unwrap();
    let entries = live.metadata.managed_fields.unwrap_or_default();
    let ours: Vec<_> = entries
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some("belay"))
        .collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    let fields = serde_json::to_string(&ours[0].fields_v1).unwrap();
    fields.contains("f:args")
}

/// The release takes the arguments away, a rollback and an undo bring that
/// state back although somebody filled them meanwhile, and a rollback of the
/// release that took them away brings the arguments back.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_is_released_restored_and_undone_to() {
    let scene = Scene::new("emptied").await;
    let with_args = deployment("cart", "shop/cart:1", 2) + "        args: [-v]\n";
    scene.apply(&with_args).await;
    scene.available("cart").await;
    let filled = plan("1", "[-v]");
    scene.apply(&filled).await;
    scene.ready("shop").await;

    scene.apply(&plan("2-pullerror", "[]")).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(args(&scene).await, json!(["-v"]));

    scene.apply(&plan("2", "[]")).await;
    let emptied = scene.ready("shop").await.stable_revision.unwrap();
    assert_eq!(args(&scene).await, json!(null));
    assert!(owns_args(&scene).await);

    scene.apply(&plan("3-unready", "[]")).await;
    scene
        .deployment_until("cart", "gets 3", |d| image_of(d) == "shop/cart:3-unready")
        .await;
    fill(&scene, "-x").await;
    scene
        .deployment_until("cart", "is emptied again", |d| {
            let spec = d.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            spec.containers[0].args.is_none()
        })
        .await;
    scene.apply(&plan("3-pullerror", "[-y]")).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(args(&scene).await, json!(null));
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    assert!(owns_args(&scene).await);

    scene.apply(&plan("4", "[-y]")).await;
    scene.ready("shop").await;
    assert_eq!(args(&scene).await, json!(["-y"]));
    let undo = format!("belay.dev/undo={emptied}");
    scene.kubectl(&["annotate", "relplan", "shop", &undo]).await;
    scene.because("shop", Reason::Undone).await;
    assert_eq!(args(&scene).await, json!(null));
    assert!(owns_args(&scene).await);
    scene.assert_quiet("shop", 2).await;
}
