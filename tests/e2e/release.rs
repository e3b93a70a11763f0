//! Releases that go well, and what does not start one.

use belay::api::{ReleaseKind, ReleaseResult};

use crate::support::{Scene, deployment, image_of, plan};

#[tokio::test(flavor = "multi_thread")]
async fn two_deployments_are_released_together() {
    let scene = Scene::new("release-two").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 2).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:1")],
            "",
        ))
        .await;
    let first = scene.ready("shop").await;
    assert_eq!(first.history, [], "what is live already is no release");

    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2"), ("web", "shop/web:2")],
            "",
        ))
        .await;
    let status = scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    assert_eq!(scene.image("web").await, "shop/web:2");
    let last = status.history.last().unwrap();
    assert_eq!(
        (last.result, last.kind, last.number),
        (ReleaseResult::Succeeded, ReleaseKind::Content, 1)
    );
    assert_eq!(status.stable_revision, last.revision);
    assert_eq!(status.observed_release_generation, Some(2));
    assert_ne!(status.stable_revision, first.stable_revision);
    scene.assert_quiet("shop", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_fields_of_the_plan_are_owned_and_the_rest_stays() {
    let scene = Scene::new("release-fields").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {name: shop}
spec:
  components:
  - workload: {kind: Deployment, name: cart}
    template:
      metadata: {annotations: {team: shop}}
      spec:
        containers:
        - name: app
          image: shop/cart:2
          env: [{name: NEW, value: '1'}]
",
        )
        .await;
    scene.ready("shop").await;
    let template = scene.template("cart").await;
    assert_eq!(template["metadata"]["annotations"]["team"], "shop");
    let env = template["spec"]["containers"][0]["env"].as_array().unwrap();
    let mut names: Vec<_> = env.iter().map(|e| e["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["LOG", "NEW"]);
    let live = scene.deployments().get("cart").await.unwrap();
    let ours: Vec<_> = live
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| entry.manager.as_deref() == Some("belay"))
        .collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(ours[0].operation.as_deref(), Some("Apply"));
    let fields = serde_json::to_string(&ours[0].fields_v1).unwrap();
    assert!(
        !fields.contains("f:replicas") && !fields.contains("LOG"),
        "{fields}"
    );
}

/// A field that leaves the plan goes back to what the user had there, and a
/// field that the plan had added is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_leaves_the_plan_goes_back_to_what_was_there() {
    let scene = Scene::new("release-shrink").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let with = |env: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template: {{spec: {{containers: [{{name: app, {env}}}]}}}}
"
        )
    };
    scene
        .apply(&with(
            "image: 'shop/cart:2', env: [{name: LOG, value: debug}, {name: NEW, value: '1'}]",
        ))
        .await;
    scene.ready("shop").await;
    scene.apply(&with("env: [{name: NEW, value: '2'}]")).await;
    scene.ready("shop").await;
    let template = scene.template("cart").await;
    let container = &template["spec"]["containers"][0];
    assert_eq!(
        container["image"], "shop/cart:1",
        "the user's image is back"
    );
    let mut env: Vec<_> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            format!(
                "{}={}",
                e["name"].as_str().unwrap(),
                e["value"].as_str().unwrap()
            )
        })
        .collect();
    env.sort();
    assert_eq!(env, ["LOG=info", "NEW=2"]);
    let live = scene.deployments().get("cart").await.unwrap();
    let ours = live.metadata.managed_fields.unwrap();
    let ours = ours
        .iter()
        .find(|entry| entry.manager.as_deref() == Some("belay"))
        .unwrap();
    let fields = serde_json::to_string(&ours.fields_v1).unwrap();
    assert!(
        !fields.contains("f:image") && !fields.contains("LOG"),
        "{fields}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_waits_for_those_it_comes_after() {
    let scene = Scene::new("release-after").await;
    scene.deployment("db", "shop/db:1", 1).await;
    scene.deployment("api", "shop/api:1", 1).await;
    let with = |tag: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: api}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/api:{tag}'}}]}}}}
    after: [db]
  - workload: {{kind: Deployment, name: db}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/db:{tag}'}}]}}}}
"
        )
    };
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    // db gets ready only after ten seconds.
    scene
        .apply(&with("2-slow").replace("shop/api:2-slow", "shop/api:2"))
        .await;
    scene.ready("shop").await;
    let writes = scene.writes_to_deployments().await;
    let released: Vec<_> = writes
        .iter()
        .filter(|w| {
            w.request_object
                .as_ref()
                .is_some_and(|o| o.to_string().contains(":2"))
        })
        .collect();
    assert_eq!(
        released.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(),
        ["db", "api"]
    );
    let waited = released[1].received.duration_since(released[0].completed);
    assert!(
        waited.as_secs_f64() > 8.0,
        "api was written {waited} after db, which takes 10 s"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_content_takes_the_place_of_a_release_in_progress() {
    let scene = Scene::new("release-supersede").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    let status = scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(
        results,
        [ReleaseResult::Superseded, ReleaseResult::Succeeded]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_goes_back_in_mid_release_is_reverted_and_not_refused() {
    let scene = Scene::new("release-revert").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let before = scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let status = scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    assert_eq!(status.refused, []);
    assert_eq!(status.stable_revision, before.stable_revision);
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::Reverted
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_plan_starts_nothing_until_it_is_resumed() {
    let scene = Scene::new("release-paused").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2")],
            "  paused: true\n",
        ))
        .await;
    scene.because("shop", belay::api::Reason::Paused).await;
    scene.assert_quiet("shop", 2).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2")],
            "  paused: false\n",
        ))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

/// SM-05: labels and annotations on Deployment and plan, an identical apply, a
/// touch of managedFields by another manager, a change of replicas: none of it
/// is a release. A rollout restart does change the template and is one, also of
/// a workload that is only followed.
#[tokio::test(flavor = "multi_thread")]
async fn sm_05_metadata_only_updates_start_nothing() {
    let scene = Scene::new("sm-05").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 2).await;
    let content = plan(
        "shop",
        &[("cart", "shop/cart:2")],
        "  - workload: {kind: Deployment, name: web}\n",
    );
    scene.apply(&content).await;
    let before = scene.ready("shop").await;
    let writes = scene.writes_to_deployments().await.len();

    scene
        .kubectl(&["label", "deployment", "cart", "web", "team=shop"])
        .await;
    scene
        .kubectl(&["annotate", "deployment", "cart", "web", "note=x"])
        .await;
    scene
        .kubectl(&["label", "relplan", "shop", "team=shop"])
        .await;
    scene.apply(&content).await;
    scene
        .kubectl(&["scale", "deployment", "cart", "web", "--replicas=3"])
        .await;
    let same = deployment("web", "shop/web:1", 3);
    let args = [
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
    ];
    let output = scene.try_apply(&same, &args).await;
    assert!(output.success(), "{}", output.stderr);
    scene.available("cart").await;
    scene.available("web").await;
    scene.assert_quiet("shop", 2).await;
    let after = scene.ready("shop").await;
    assert_eq!(after.history, before.history);
    assert_eq!(after.stable_revision, before.stable_revision);
    assert_eq!(scene.writes_to_deployments().await.len(), writes);

    scene
        .kubectl(&["rollout", "restart", "deployment", "web"])
        .await;
    let status = scene
        .plan_until("shop", "the restart is a release", |s| {
            s.history.len() > after.history.len()
        })
        .await;
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::Succeeded
    );
    assert_eq!(
        scene.writes_to_deployments().await.len(),
        writes,
        "only followed"
    );
    // Of a templated workload it is a guarded release of its surroundings.
    scene
        .kubectl(&["rollout", "restart", "deployment", "cart"])
        .await;
    let status = scene
        .plan_until("shop", "the restart is guarded", |s| {
            s.history.len() > after.history.len() + 1
        })
        .await;
    assert_eq!(
        status.history.last().unwrap().kind,
        ReleaseKind::Surroundings
    );
}
