//! Releases that fail, and everything going back.

use belay::api::{Cause, Phase, Reason, ReleaseResult};

use crate::support::{Scene, deployment, holds, image_of, message, plan};

/// Three components, the third crash loops: all three are back on the templates
/// they had, each restored once.
#[tokio::test(flavor = "multi_thread")]
async fn three_components_go_back_when_the_third_crash_loops() {
    let scene = Scene::new("rollback-three").await;
    let names = ["cart", "web", "pay"];
    for name in names {
        scene.deployment(name, &format!("shop/{name}:1"), 2).await;
    }
    let before = [
        scene.template("cart").await,
        scene.template("web").await,
        scene.template("pay").await,
    ];
    let all = |tag: [&str; 3]| {
        let images: Vec<String> = names
            .iter()
            .zip(tag)
            .map(|(name, tag)| format!("shop/{name}:{tag}"))
            .collect();
        let pairs: Vec<(&str, &str)> = names
            .iter()
            .copied()
            .zip(images.iter().map(String::as_str))
            .collect();
        plan("shop", &pairs, "")
    };
    scene.apply(&all(["1", "1", "1"])).await;
    let stable = scene.ready("shop").await.stable_revision;

    scene.apply(&all(["2", "2", "2-crash"])).await;
    let going = scene.phase("shop", Phase::Rollback).await;
    let failure = going.release.unwrap().failure.unwrap();
    assert_eq!(failure.cause, Cause::ContainerRestarts);
    assert_eq!(failure.component.as_deref(), Some("pay"));
    let status = scene.because("shop", Reason::RolledBack).await;

    for (name, before) in names.iter().zip(before) {
        assert_eq!(scene.template(name).await, before, "{name}");
    }
    assert_eq!(status.stable_revision, stable);
    assert!(holds(&status, "Stable", "True") && holds(&status, "Stalled", "True"));
    assert!(
        message(&status, "Ready").contains("restarted 3 times (spec.failFast.restarts is 3)"),
        "{}",
        message(&status, "Ready")
    );
    let writes = scene.writes_to_deployments().await;
    for name in names {
        let to = |tag: &str| {
            let image = format!("shop/{name}:{tag}\"");
            writes
                .iter()
                .filter(|w| {
                    w.name == name
                        && w.request_object
                            .as_ref()
                            .is_some_and(|o| o.to_string().contains(&image))
                })
                .count()
        };
        // Once to own the fields, once back.
        assert_eq!(to("1"), 2, "{name} is restored once: {writes:#?}");
    }
    // Within five seconds of the pod status that fulfils failFast.
    let last = writes.iter().map(|w| w.completed).max().unwrap();
    let took = last.duration_since(failure.at.0);
    assert!(
        took.as_secs_f64() < 5.0,
        "everything was written back after {took}"
    );
    scene.assert_quiet("shop", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_ends_the_release_without_the_deadline() {
    let scene = Scene::new("rollback-pull").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], ""))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(
        status.refused.last().unwrap().cause,
        Cause::ImagePullBackOff
    );
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_never_get_ready_end_the_release_at_the_deadline() {
    let scene = Scene::new("rollback-deadline").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let rest = "  progressDeadline: 5s\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], rest))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], rest))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let refused = status.refused.last().unwrap();
    assert_eq!(refused.cause, Cause::ProgressDeadlineExceeded);
    assert!(
        refused.message.contains("no progress for 5s"),
        "{}",
        refused.message
    );
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// Everything that the release added or overrode is back as it was, in the order
/// it was, also what an earlier, superseded target of the same release wrote. So
/// the old pods are still the right ones, and none is started. What the plan
/// owned before, it owns again, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_release_added_is_gone_and_what_it_overrode_is_back() {
    let scene = Scene::new("rollback-fields").await;
    let env = "- {name: MODE, value: a}
        - {name: ADDR, value: x}
        - {name: LOG, value: info}
        - {name: LAST, value: z}";
    let manifest = deployment("cart", "shop/cart:1", 2);
    scene
        .apply(&manifest.replace("- {name: LOG, value: info}", env))
        .await;
    scene.available("cart").await;
    let before = scene.template("cart").await;
    let pods = async || {
        let path = "jsonpath={.items[*].metadata.name}";
        let pods = scene.kubectl(&["get", "pods", "-o", path]).await;
        let mut pods: Vec<_> = pods.split_whitespace().map(str::to_owned).collect();
        pods.sort();
        pods
    };
    let old = pods().await;
    let with = |container: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template:
      spec:
        containers: [{{name: app, {container}}}]
"
        )
    };
    scene.apply(&with("image: 'shop/cart:1'")).await;
    scene.ready("shop").await;
    scene
        .apply(&with(
            "image: 'shop/cart:2-unready', env: [{name: LOG, value: debug}, {name: A, value: a}, {name: MODE, value: b}]",
        ))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene
        .apply(&with(
            "image: 'shop/cart:3-pullerror', env: [{name: B, value: b}]",
        ))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.template("cart").await, before);
    assert_eq!(pods().await, old, "the pods of before serve again");
    let live = scene.deployments().get("cart").await.unwrap();
    let entries = live.metadata.managed_fields.unwrap();
    let ours: Vec<_> = entries
        .iter()
        .filter(|e| e.manager.as_deref() == Some("belay"))
        .collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(ours[0].operation.as_deref(), Some("Apply"));
    let fields = serde_json::to_value(&ours[0].fields_v1).unwrap();
    let app = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"app\"}"];
    assert!(
        app.get("f:image").is_some() && app.get("f:env").is_none(),
        "{fields}"
    );
}

/// Refused content is not tried again: not by the same apply, not by a rollout
/// restart. Newer content is, and so is refused content on request.
#[tokio::test(flavor = "multi_thread")]
async fn refused_content_waits_for_a_retry_or_newer_content() {
    let scene = Scene::new("rollback-refused").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    let bad = plan("shop", &[("cart", "shop/cart:2-pullerror")], "");
    scene.apply(&bad).await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let refused = status.refused.last().unwrap().revision.clone();

    scene.apply(&bad).await;
    scene.assert_quiet("shop", 1).await;
    scene
        .kubectl(&["rollout", "restart", "deployment", "cart"])
        .await;
    let status = scene
        .plan_until("shop", "the restart is guarded", |s| {
            s.history
                .last()
                .is_some_and(|r| r.result == ReleaseResult::Succeeded)
        })
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    assert!(
        holds(&status, "Ready", "False"),
        "the plan's content is still refused"
    );

    let wrong = scene
        .kubectl_raw(&["annotate", "relplan", "shop", "belay.dev/retry=shop-nosuch"])
        .await;
    assert!(
        !wrong.success() && wrong.stderr.contains(&refused),
        "{}",
        wrong.stderr
    );
    let attempts = status.history.len();
    scene
        .kubectl(&[
            "annotate",
            "relplan",
            "shop",
            &format!("belay.dev/retry={refused}"),
        ])
        .await;
    let status = scene
        .plan_until("shop", "the retry failed too", |s| {
            s.history.len() > attempts && s.release.is_none()
        })
        .await;
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::RolledBack
    );
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(
        stored.annotation("belay.dev/retry"),
        None,
        "a request counts once"
    );

    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

/// RB-01: the old ReplicaSet is pruned at once and deleted by hand, and the
/// failure comes late, in the bake time. The template comes from the plan's own
/// copy.
#[tokio::test(flavor = "multi_thread")]
async fn rb_01_a_rollback_needs_no_old_replica_set() {
    let scene = Scene::new("rb-01").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .kubectl(&[
            "patch",
            "deployment",
            "cart",
            "-p",
            r#"{"spec":{"revisionHistoryLimit":0}}"#,
        ])
        .await;
    let rest = "  bakeTime: 10m\n  progressDeadline: 20s\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], rest))
        .await;
    scene
        .plan_until("shop", "is at rest", |s| holds(s, "Ready", "True"))
        .await;
    let before = scene.template("cart").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-dies")], rest))
        .await;
    scene.because("shop", Reason::Baking).await;
    scene
        .deployment_until("cart", "is on 2", |d| image_of(d) == "shop/cart:2-dies")
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.template("cart").await, before);
    let cause = status.refused.last().unwrap().cause;
    assert!(
        matches!(
            cause,
            Cause::ContainerRestarts | Cause::ProgressDeadlineExceeded
        ),
        "{cause:?}"
    );
}

/// RB-01, the other half: `kubectl delete rs` of the old one in mid-release.
#[tokio::test(flavor = "multi_thread")]
async fn rb_01_the_old_replica_set_is_deleted_by_hand() {
    let scene = Scene::new("rb-01-rs").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1")],
            "  progressDeadline: 8s\n",
        ))
        .await;
    scene.ready("shop").await;
    let before = scene.template("cart").await;
    let old = scene.kubectl(&["get", "rs", "-o", "name"]).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2-unready")],
            "  progressDeadline: 8s\n",
        ))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-unready")
        .await;
    scene.kubectl(&["delete", old.trim()]).await;
    scene.because("shop", Reason::RolledBack).await;
    scene.available("cart").await;
    assert_eq!(scene.template("cart").await, before);
}

/// SM-09: members move in lockstep and fail as one, a member without a change
/// is not restarted, and one that was already through goes back too.
#[tokio::test(flavor = "multi_thread")]
async fn sm_09_several_workloads_fail_as_one() {
    let scene = Scene::new("sm-09").await;
    for name in ["cart", "web", "pay", "idle"] {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    let with = |cart: &str, web: &str, pay: &str| {
        plan(
            "shop",
            &[
                ("cart", cart),
                ("web", web),
                ("pay", pay),
                ("idle", "shop/idle:1"),
            ],
            "  bakeTime: 30s\n  progressDeadline: 15s\n",
        )
    };
    scene
        .apply(&with("shop/cart:1", "shop/web:1", "shop/pay:1"))
        .await;
    scene
        .plan_until("shop", "is at rest", |s| holds(s, "Ready", "True"))
        .await;
    let idle = scene
        .deployments()
        .get("idle")
        .await
        .unwrap()
        .metadata
        .generation;
    scene
        .apply(&with("shop/cart:2", "shop/web:2", "shop/pay:2-dies"))
        .await;
    scene
        .deployment_until("cart", "is on 2", |d| image_of(d) == "shop/cart:2")
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    for name in ["cart", "web", "pay"] {
        assert_eq!(scene.image(name).await, format!("shop/{name}:1"));
    }
    assert_eq!(
        scene
            .deployments()
            .get("idle")
            .await
            .unwrap()
            .metadata
            .generation,
        idle
    );
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::RolledBack
    );
}

/// A rollback goes on where it stands when the pods it brings back do not get
/// ready, says so, and heals by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_stalls_says_so_and_heals_by_itself() {
    let scene = Scene::new("rollback-stalled").await;
    scene.deployment("cart", "shop/cart:1-slow", 1).await;
    let rest = "  progressDeadline: 4s\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1-slow")], rest))
        .await;
    scene.ready("shop").await;
    // The old pod is gone by the time of the failure, and a new one takes 10 s.
    scene
        .kubectl(&[
            "patch",
            "deployment",
            "cart",
            "-p",
            r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#,
        ])
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], rest))
        .await;
    let status = scene.because("shop", Reason::RollbackStalled).await;
    assert!(holds(&status, "Stalled", "True") && holds(&status, "Reconciling", "False"));
    assert_eq!(status.phase, Some(Phase::Rollback));
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(status.phase, Some(Phase::Stable));
}
