//! What pods and their controllers say about a release, and what they do not:
//! old restarts, old refusals, others' pods; and what refuses new pods.

use belay::api::{Cause, Reason, ReleaseResult};
use k8s_openapi::api::apps::v1::Deployment;

use crate::support::{PATIENCE, Scene, deployment, image_of, plan, plan_of, why};

/// Waits until there is no room for more pods than there are.
async fn no_room(scene: &Scene, pods: u8) {
    let hard = format!("--hard=pods={pods}");
    scene.kubectl(&["create", "quota", "tight", &hard]).await;
    // It must be counted before it is hit.
    let used = format!("--for=jsonpath={{.status.used.pods}}={pods}");
    scene
        .kubectl(&["wait", "quota/tight", &used, PATIENCE])
        .await;
}

async fn assert_succeeded(scene: &Scene) {
    let end = scene.ended("shop").await;
    let last = end.history.last().unwrap();
    assert_eq!(last.result, ReleaseResult::Succeeded, "{}", why(&end));
}

/// A pod that restarted in the past, of a component that the release does not
/// touch, says nothing about the release.
#[tokio::test(flavor = "multi_thread")]
async fn old_restarts_of_an_untouched_component_do_not_fail_a_release() {
    let scene = Scene::new("evidence-restarts").await;
    scene
        .stable(&[("cart", "shop/cart:1"), ("web", "shop/web:1")], "")
        .await;
    let pod = scene
        .kubectl(&["get", "pods", "-l", "app=cart", "-o", "name"])
        .await;
    let patch = r#"[{"op":"replace","path":"/status/containerStatuses/0/restartCount","value":7}]"#;
    let args = ["--subresource=status", "--type=json", "-p", patch];
    scene
        .kubectl(&[&["patch", pod.trim()], &args[..]].concat())
        .await;
    scene
        .shop(&[("cart", "shop/cart:1"), ("web", "shop/web:2")], "")
        .await;
    assert_succeeded(&scene).await;
    assert_eq!(scene.image("web").await, "shop/web:2");
}

/// A ReplicaFailure that stands there because of the old ReplicaSet says nothing
/// about the new template.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_failure_from_before_the_release_does_not_fail_it() {
    let scene = Scene::new("evidence-stale").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let with = async |tag: u8, cpu: &str| {
        let container =
            format!("image: 'shop/cart:{tag}', resources: {{requests: {{cpu: {cpu}}}}}");
        scene
            .apply(&plan_of("shop", &[("cart", &container)], ""))
            .await;
    };
    with(1, "200m").await;
    scene.ready("shop").await;
    // Room for one pod of the old template and some of the new one.
    scene
        .kubectl(&["create", "quota", "tight", "--hard=requests.cpu=350m"])
        .await;
    let used = "--for=jsonpath={.status.used.requests\\.cpu}=200m";
    scene
        .kubectl(&["wait", "quota/tight", used, PATIENCE])
        .await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=2"])
        .await;
    let failing = |d: &Deployment| {
        let conditions = d.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|c| c.type_ == "ReplicaFailure" && c.status == "True")
    };
    scene
        .deployment_until("cart", "has pods refused", failing)
        .await;
    with(2, "50m").await;
    scene
        .deployment_until("cart", "has 2 and the old failure", |d| {
            image_of(d) == "shop/cart:2" && failing(d)
        })
        .await;
    assert_succeeded(&scene).await;
    scene.available("cart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_ends_a_release_and_the_retry_after_it_was_raised_succeeds() {
    let scene = Scene::new("evidence-quota").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    no_room(&scene, 1).await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(end.refused.last().unwrap().cause, Cause::ReplicaFailure);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.kubectl(&["delete", "quota", "tight"]).await;
    let retry = format!("belay.dev/retry={}", end.refused.last().unwrap().revision);
    scene
        .kubectl(&["annotate", "relplan", "shop", &retry])
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_pod_security_refuses_end_a_release() {
    let scene = Scene::new("evidence-security").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    scene
        .kubectl(&["label", "ns", &scene.namespace, restricted])
        .await;
    scene
        .refused(&["run", "probe", "--image=x", "--dry-run=server"])
        .await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(end.refused.last().unwrap().cause, Cause::ReplicaFailure);
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.assert_calm().await;
}

/// Another Deployment's pods have the labels of this one and crash.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_another_deployment_that_the_selector_takes_in_do_not_count() {
    let scene = Scene::new("evidence-selector").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    let twin = deployment("twin", "shop/twin:1-crash", 1)
        .replace("{app: twin}", "{app: cart, twin: \"1\"}");
    scene.apply(&twin).await;
    scene.shop(&[("cart", "shop/cart:2-slow")], "").await;
    assert_succeeded(&scene).await;
    scene.assert_calm().await;
}

/// However a Deployment replaces its pods, a crash loop of them is seen, and
/// good ones are.
#[tokio::test(flavor = "multi_thread")]
async fn recreate_and_all_unavailable_and_min_ready_seconds() {
    let scene = Scene::new("evidence-strategy").await;
    let cases = [
        ("recreate", "  strategy: {type: Recreate}\n"),
        (
            "all",
            "  strategy: {rollingUpdate: {maxUnavailable: 100%, maxSurge: 0}}\n",
        ),
        ("minready", "  minReadySeconds: 3\n"),
    ];
    for (name, extra) in cases {
        let manifest = deployment(name, "shop/x:1", 2)
            .replace("spec:\n  replicas", &format!("spec:\n{extra}  replicas"));
        scene.apply(&manifest).await;
        scene.available(name).await;
    }
    let all = |tag: &str| {
        let image = format!("shop/x:{tag}");
        plan(
            "shop",
            &[("recreate", &image), ("all", &image), ("minready", &image)],
            "",
        )
    };
    scene.apply(&all("1")).await;
    scene.ready("shop").await;
    scene.apply(&all("2-crash")).await;
    scene.because("shop", Reason::RolledBack).await;
    for (name, _) in cases {
        assert_eq!(scene.image(name).await, "shop/x:1");
        scene.available(name).await;
    }
    scene.apply(&all("3")).await;
    scene.ready("shop").await;
    scene.assert_calm().await;
}
