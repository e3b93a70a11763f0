//! What comes after what: newer content in mid-release, a newer operator over
//! an older record, and the same content over and over.

use std::collections::BTreeSet;

use belay::api::{Phase, Reason, ReleaseKind, ReleaseResult};
use belay_testenv::AuditFilter;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    support::{Scene, deployment, following, image_of, plan},
    witness::Witness,
};

/// Names of the pods of the namespace.
async fn pods(scene: &Scene) -> BTreeSet<String> {
    let path = "jsonpath={.items[*].metadata.name}";
    let pods = scene.kubectl(&["get", "pods", "-o", path]).await;
    pods.split_whitespace().map(str::to_owned).collect()
}

/// SM-03: v3 comes while v2 is under way, in the moment of a stage change, and
/// turns out to be broken. The way back leads to v1 with all that v1 had, never
/// to v2, which was superseded and did not succeed.
#[tokio::test(flavor = "multi_thread")]
async fn sm_03_newer_content_in_mid_release_leads_back_to_the_first() {
    let scene = Scene::new("sm-03").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |cart: &str, env: &str, web: &str| {
        plan("shop", &[("cart", cart), ("web", web)], "").replace(
            &format!("image: \"{cart}\""),
            &format!("image: \"{cart}\"{env}"),
        )
    };
    scene.apply(&with("shop/cart:1", "", "shop/web:1")).await;
    let first = scene.ready("shop").await;
    let before = [scene.template("cart").await, scene.template("web").await];
    let witness = Witness::of(&scene, "shop").await;

    // v2 also sets a field that v3 does not know.
    let env = ", env: [{name: LOG, value: debug}, {name: TWO, value: '2'}]";
    scene
        .apply(&with("shop/cart:2", env, "shop/web:2-unready"))
        .await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .apply(&with("shop/cart:3", "", "shop/web:3-pullerror"))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;

    assert_eq!(scene.template("cart").await, before[0]);
    assert_eq!(scene.template("web").await, before[1]);
    assert_eq!(status.stable_revision, first.stable_revision);
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(
        results,
        [ReleaseResult::Superseded, ReleaseResult::RolledBack]
    );
    assert_ne!(status.history[0].revision, status.history[1].revision);
    assert_eq!(
        status
            .refused
            .iter()
            .map(|r| Some(&r.revision))
            .collect::<Vec<_>>(),
        [status.history[1].revision.as_ref()],
        "only what failed is refused"
    );
    for seen in witness.seen() {
        assert_eq!(seen.stable_revision, first.stable_revision);
    }
    witness.assert_coherent();
}

/// SM-06: a record that an older algorithm wrote is no reason to release, and
/// neither is another spelling of a quantity; another quantity is.
#[tokio::test(flavor = "multi_thread")]
async fn sm_06_an_older_record_or_another_spelling_starts_nothing() {
    let scene = Scene::new("sm-06").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let with = |cpu: &str| {
        plan("shop", &[("cart", "shop/cart:1")], "").replace(
            "image: \"shop/cart:1\"",
            &format!("image: \"shop/cart:1\", resources: {{requests: {{cpu: {cpu}}}}}"),
        )
    };
    scene.apply(&with("100m")).await;
    let released = scene.ready("shop").await;
    let old = pods(&scene).await;
    let writes = scene.writes_to_deployments().await.len();

    let digest = |value: &str| json!({"op": "replace", "path": value, "value": "older:0123"});
    let patch = json!([
        digest("/status/components/0/liveDigest"),
        digest("/status/components/0/partialDigest"),
    ]);
    let patch = patch.to_string();
    let args = ["patch", "relplan", "shop", "--subresource=status"];
    let args = [&args[..], &["--type=json", "-p", &patch]].concat();
    scene.kubectl(&args).await;
    let status = scene
        .plan_until("shop", "the record is renewed", |s| {
            s.components[0].live_digest == released.components[0].live_digest
                && s.components[0].partial_digest == released.components[0].partial_digest
        })
        .await;
    assert_eq!(status.history, released.history);
    assert_eq!(status.stable_revision, released.stable_revision);

    scene.apply(&with("'0.1'")).await;
    let status = scene.ready("shop").await;
    assert_eq!(status.history, released.history, "0.1 is 100m");
    assert_eq!(pods(&scene).await, old, "no pod was replaced");
    let respelt = scene.writes_to_deployments().await.len();
    assert!(
        respelt <= writes + 1,
        "at most the ownership of the new spelling: {writes} then {respelt}"
    );

    scene.apply(&with("200m")).await;
    let status = scene.ready("shop").await;
    assert_eq!(status.history.len(), released.history.len() + 1);
    assert_ne!(pods(&scene).await, old);
}

/// SM-06, the other half: a field of a pod that the linked API crate does not
/// know comes back from a rollback byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn sm_06_fields_newer_than_the_operator_survive_a_rollback() {
    let scene = Scene::new("sm-06-newer").await;
    let manifest = |name: &str| {
        deployment(name, &format!("shop/{name}:1"), 1).replace(
            "      containers:\n",
            "      hostnameOverride: till.example\n      containers:\n",
        )
    };
    for name in ["cart", "web"] {
        scene.apply(&manifest(name)).await;
        scene.available(name).await;
    }
    let components = "  - workload: {kind: Deployment, name: web}\n";
    let with = |image: &str| plan("shop", &[("cart", image)], components);
    scene.apply(&with("shop/cart:1")).await;
    scene.ready("shop").await;
    let before = [scene.template("cart").await, scene.template("web").await];
    for template in &before {
        assert_eq!(template["spec"]["hostnameOverride"], "till.example");
        let typed: k8s_openapi::api::core::v1::PodTemplateSpec =
            serde_json::from_value(template.clone()).unwrap();
        let typed = serde_json::to_value(typed).unwrap();
        assert_eq!(
            typed["spec"]["hostnameOverride"],
            Value::Null,
            "a field that the crate knows proves nothing"
        );
    }
    scene.apply(&with("shop/cart:2-pullerror")).await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["set", "image", "deployment/web", "app=shop/web:2-pullerror"])
        .await;
    scene
        .plan_until("shop", "web is back", |s| {
            s.history.len() == 2 && s.release.is_none()
        })
        .await;
    for (name, before) in ["cart", "web"].iter().zip(before) {
        let live = scene.template(name).await;
        assert_eq!(live.to_string(), before.to_string(), "{name}");
    }
}

/// RB-03: A, B, A, B. Revision numbers and ReplicaSet names come back and mean
/// nothing: four releases, two contents, and the right one is stable each time.
#[tokio::test(flavor = "multi_thread")]
async fn rb_03_going_to_and_fro_keeps_the_right_content_stable() {
    let scene = Scene::new("rb-03").await;
    scene.deployment("cart", "shop/cart:0", 1).await;
    let mut revisions = Vec::new();
    for image in ["shop/cart:a", "shop/cart:b", "shop/cart:a", "shop/cart:b"] {
        scene.apply(&plan("shop", &[("cart", image)], "")).await;
        let status = scene.ready("shop").await;
        assert_eq!(scene.image("cart").await, image);
        revisions.push(status.stable_revision.unwrap());
    }
    assert_eq!(revisions[0], revisions[2]);
    assert_eq!(revisions[1], revisions[3]);
    assert_ne!(revisions[0], revisions[1]);
    let status = scene.ready("shop").await;
    let history: Vec<_> = status
        .history
        .iter()
        .map(|r| (r.number, r.kind, r.result, r.revision.clone().unwrap()))
        .collect();
    let wanted: Vec<_> = (1..)
        .zip(revisions)
        .map(|(number, revision)| {
            let (kind, result) = (ReleaseKind::Content, ReleaseResult::Succeeded);
            (number, kind, result, revision)
        })
        .collect();
    assert_eq!(history, wanted);
}

/// RB-03, with failures: B fails, fails again when it is tried again, and the
/// way back is to A each time.
#[tokio::test(flavor = "multi_thread")]
async fn rb_03_content_that_fails_twice_goes_back_to_the_same_twice() {
    let scene = Scene::new("rb-03-fails").await;
    scene.deployment("cart", "shop/cart:0", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:a")], ""))
        .await;
    let stable = scene.ready("shop").await.stable_revision;
    let before = scene.template("cart").await;
    let set = scene.kubectl(&["get", "rs", "-o", "name"]).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:b-pullerror")], ""))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let refused = status.refused.last().unwrap().revision.clone();
    for attempts in 3..=4 {
        let retry = format!("belay.dev/retry={refused}");
        scene
            .kubectl(&["annotate", "relplan", "shop", &retry])
            .await;
        let status = scene
            .plan_until("shop", "it failed again", |s| {
                s.history.len() == attempts && s.release.is_none()
            })
            .await;
        assert_eq!(status.phase, Some(Phase::Stable));
        assert_eq!(status.stable_revision, stable);
        assert_eq!(scene.template("cart").await, before);
        let last = status.history.last().unwrap();
        assert_eq!(last.result, ReleaseResult::RolledBack);
        assert_eq!(last.revision.as_ref(), Some(&refused));
    }
    // The Deployment brought its ReplicaSets back instead of making new ones.
    let sets = scene.kubectl(&["get", "rs", "-o", "name"]).await;
    assert_eq!(sets.lines().count(), 3, "one each for 0, a and b: {sets}");
    assert!(sets.contains(set.lines().next().unwrap()));
    let creates = AuditFilter::new()
        .service_account("belay-system", "belay")
        .namespace(&scene.namespace)
        .resource("controllerrevisions")
        .verbs(["create"]);
    let collisions = scene
        .audited(creates)
        .await
        .into_iter()
        .filter(|entry| entry.code == 409);
    assert!(collisions.count() <= 4, "no loop over what exists already");
}

/// Followed content that is wanted again: A, B, A by somebody's hand.
#[tokio::test(flavor = "multi_thread")]
async fn rb_03_a_followed_workload_goes_to_and_fro() {
    let scene = Scene::new("rb-03-followed").await;
    scene.deployment("cart", "shop/cart:a", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    let first = scene.ready("shop").await.stable_revision;
    for (count, image) in [(1, "shop/cart:b"), (2, "shop/cart:a")] {
        let set = format!("app={image}");
        scene
            .kubectl(&["set", "image", "deployment/cart", &set])
            .await;
        scene
            .plan_until("shop", image, |s| {
                s.history.len() == count && s.release.is_none()
            })
            .await;
        scene
            .deployment_until("cart", image, |d: &Deployment| image_of(d) == image)
            .await;
    }
    let status = scene.ready("shop").await;
    assert_eq!(status.stable_revision, first, "the same content");
    assert!(
        status
            .history
            .iter()
            .all(|r| r.result == ReleaseResult::Succeeded)
    );
    let live = scene.deployments().get("cart").await.unwrap();
    assert_eq!(live.annotations()["deployment.kubernetes.io/revision"], "3");
}
