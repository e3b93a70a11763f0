//! Hostile cases: records lost or forged, rivals, storms of edits, strategies,
//! an operator without rights, without webhooks, and killed again and again.

use std::{sync::Arc, time::Duration};

use belay::api::{Phase, Reason, ReleaseResult};
use belay_testenv::{Cluster, ClusterOptions, Operator};

use crate::{
    breaking::{revisions, sane, why},
    support::{Scene, deployment, following, holds, image_of, options, plan},
};

// ------------------------------------------------------------- records

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_at_rest_are_missed_loudly_and_a_new_plan_helps() {
    let scene = Scene::new("breakst-revs").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    scene.kubectl(&["delete", "controllerrevisions", "--all"]).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2")], "")).await;
    scene.because("shop", Reason::RevisionLost).await;
    sane(&scene).await;
    scene.kubectl(&["delete", "relplan", "shop", "--timeout=60s"]).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2")], "")).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_in_mid_release_are_told_and_keep_lets_go() {
    let scene = Scene::new("breakst-revs-mid").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-unready")], "")).await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&["delete", "controllerrevisions", "--all"]).await;
    let end = scene.because("shop", Reason::RevisionLost).await;
    assert!(holds(&end, "Stalled", "True") && holds(&end, "Ready", "False"));
    sane(&scene).await;
    scene.kubectl(&["patch", "relplan", "shop", "--type=merge", "-p", r#"{"spec":{"deletionPolicy":"Keep"}}"#]).await;
    scene.kubectl(&["delete", "relplan", "shop", "--timeout=60s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_at_rest_is_made_again() {
    let scene = Scene::new("breakst-wiped").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2")], "")).await;
    scene.ready("shop").await;
    scene.kubectl(&["patch", "relplan", "shop", "--subresource=status", "--type=json", "-p",
        r#"[{"op":"remove","path":"/status"}]"#]).await;
    scene.ready("shop").await;
    // And a failure still goes back.
    scene.apply(&plan("shop", &[("cart", "shop/cart:3-pullerror")], "")).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    sane(&scene).await;
    scene.kubectl(&["delete", "relplan", "shop", "--timeout=60s"]).await;
    assert_eq!(revisions(&scene).await, 0);
}

/// Never Ready on content that crashes, whatever becomes of the status.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_in_mid_release_does_not_make_broken_content_ready() {
    let scene = Scene::new("breakst-wiped-mid").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-unready")], "  progressDeadline: 5s\n")).await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&["patch", "relplan", "shop", "--subresource=status", "--type=json", "-p",
        r#"[{"op":"remove","path":"/status"}]"#]).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(!holds(&status, "Ready", "True"), "{}", why(&status));
    eprintln!("wiped in mid-release: {} image {}", why(&status), scene.image("cart").await);
    sane(&scene).await;
    // A way out.
    scene.apply(&plan("shop", &[("cart", "shop/cart:3")], "  progressDeadline: 5s\n")).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_statuses_neither_spin_nor_panic() {
    let scene = Scene::new("breakst-forged").await;
    let forged = [
        ("names", r#"{"status":{"stableRevision":"nope","targetRevision":"nada","phase":"RollingOut","release":{"number":1,"kind":"Content","stage":"Bake","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":["nope","nada"]}}}"#),
        ("emptynames", r#"{"status":{"stableRevision":"","targetRevision":"","phase":"RollingOut","release":{"number":1,"kind":"Content","stage":"Restore","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":[""]}}}"#),
        ("nostable", r#"{"status":{"stableRevision":null,"targetRevision":null,"phase":"Rollback","release":{"number":1,"kind":"Content","stage":"Restore","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":[]}}}"#),
        ("odd", r#"{"status":{"stableRevision":"../../x?y=z","phase":"Stable","components":[]}}"#),
        ("frozen", r#"{"status":{"phase":"Frozen"}}"#),
        ("future", r#"{"status":{"phase":"RollingOut","release":{"number":9223372036854775807,"kind":"Content","stage":"Settle","content":"x","startedAt":"9999-01-01T00:00:00.000000Z","stageSince":"9999-01-01T00:00:00.000000Z","applied":[]}}}"#),
    ];
    for (name, _) in forged {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
        scene.ready(name).await;
    }
    for (name, patch) in forged {
        let out = scene.kubectl_raw(&["patch", "relplan", name, "--subresource=status", "--type=merge", "-p", patch]).await;
        eprintln!("{name}: {} {}", out.stdout.trim(), out.stderr.trim());
        scene.apply(&plan(name, &[(name, "shop/x:2")], "")).await;
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let mut faults = Vec::new();
    for (name, _) in forged {
        let status = scene.plans().get(name).await.unwrap().status.unwrap_or_default();
        let image = scene.image(name).await;
        eprintln!("{name}: image {image}, {:?}, {}", status.phase, why(&status));
        if holds(&status, "Ready", "True") && image != "shop/x:2" {
            faults.push(format!("{name}: Ready with {image}"));
        }
    }
    sane(&scene).await;
    // There is always a way out.
    for (name, _) in forged {
        scene.kubectl(&["patch", "relplan", name, "--type=merge", "-p", r#"{"spec":{"deletionPolicy":"Keep"}}"#]).await;
        let out = scene.kubectl_raw(&["delete", "relplan", name, "--timeout=20s"]).await;
        if !out.success() {
            faults.push(format!("{name} cannot be deleted: {}", out.stderr));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_removed_by_hand_comes_back_and_renames_leave_no_revisions() {
    let scene = Scene::new("breakst-renames").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    scene.kubectl(&["patch", "relplan", "shop", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).await;
    let finalizers = scene.plans().get("shop").await.unwrap().metadata.finalizers;
    assert!(finalizers.unwrap_or_default().iter().any(|f| f == belay::api::FINALIZER));
    for n in 0..8 {
        let manifest = plan("shop", &[("cart", "shop/cart:1")], "").replace("  - workload", &format!("  - name: c{n}\n    workload"));
        scene.apply(&manifest).await;
        scene.plan_until("shop", "has the new name", |s| s.components.iter().any(|c| c.name == format!("c{n}")) && holds(s, "Ready", "True")).await;
    }
    let count = revisions(&scene).await;
    assert!(count <= 3, "{count} revisions after 8 renames and not one release but the first");
}

// -------------------------------------------------------------- rivals

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_overlap_in_part_and_a_workload_that_moves_between_them() {
    let scene = Scene::new("breakst-overlap").await;
    for name in ["xx", "yy", "zz"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene.apply(&plan("a", &[("xx", "shop/x:1"), ("yy", "shop/x:1")], "")).await;
    scene.ready("a").await;
    scene.apply(&plan("b", &[("yy", "shop/x:2"), ("zz", "shop/x:2")], "")).await;
    let b = scene.because("b", Reason::Conflict).await;
    assert!(why(&b).contains("releaseplan a"));
    assert_eq!(scene.image("zz").await, "shop/x:1", "a plan in conflict writes nothing");
    // In mid-release it stays.
    scene.apply(&plan("a", &[("xx", "shop/x:1-slow"), ("yy", "shop/x:1-slow")], "")).await;
    scene.because("a", Reason::Promoting).await;
    let out = scene.try_apply(&plan("a", &[("xx", "shop/x:1-slow")], ""), &[]).await;
    assert!(!out.success(), "the set of components is fixed in mid-release");
    scene.ready("a").await;
    scene.apply(&plan("a", &[("xx", "shop/x:1-slow")], "")).await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:2");
    assert_eq!(scene.image("xx").await, "shop/x:1-slow");
    // And back, and forth within one breath.
    scene.apply(&plan("b", &[("zz", "shop/x:2")], "")).await;
    scene.apply(&plan("a", &[("yy", "shop/x:5"), ("xx", "shop/x:1-slow")], "")).await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:5");
    sane(&scene).await;
    scene.kubectl(&["delete", "relplan", "a", "b", "--timeout=60s"]).await;
    assert_eq!(revisions(&scene).await, 0);
    for name in ["xx", "yy", "zz"] {
        let live = scene.deployments().get(name).await.unwrap();
        assert!(live.metadata.managed_fields.iter().flatten().all(|m| m.manager.as_deref() != Some("belay")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_whose_selector_takes_in_anothers_pods() {
    let scene = Scene::new("breakst-selector").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    let twin = deployment("twin", "shop/twin:1-crash", 1).replace("{app: twin}", "{app: cart, twin: \"1\"}");
    scene.apply(&twin).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-slow")], "")).await;
    scene.ready("shop").await;
    sane(&scene).await;
}

// -------------------------------------------------------------- storms

/// Edits in every stage. Whenever the plan says Ready of the spec that it has,
/// that spec is what is live.
#[tokio::test(flavor = "multi_thread")]
async fn edits_in_every_stage_end_on_the_last_one() {
    let scene = Scene::new("breakst-edits").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |tag: &str| plan("shop", &[("cart", &format!("shop/cart:{tag}")), ("web", &format!("shop/web:{tag}"))], "  bakeTime: 1s\n");
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    let tags = ["2", "3-crash", "1", "3-crash", "4-slow", "5-pullerror", "6", "1", "7-unready", "8"];
    for (n, tag) in tags.iter().enumerate() {
        scene.apply(&with(tag)).await;
        tokio::time::sleep(Duration::from_millis([50, 1200, 300, 2500, 1500][n % 5])).await;
        let plan = scene.plans().get("shop").await.unwrap();
        let status = plan.status.unwrap();
        if holds(&status, "Ready", "True") && status.observed_generation == plan.metadata.generation {
            assert_eq!(scene.image("cart").await, format!("shop/cart:{tag}"));
        }
    }
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:8");
    assert_eq!(scene.image("web").await, "shop/web:8");
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_rapid_set_images_on_a_followed_deployment() {
    let scene = Scene::new("breakst-thirty").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    for n in 2..32 {
        scene.kubectl(&["set", "image", "deployment/cart", &format!("app=shop/cart:{n}")]).await;
    }
    scene.available("cart").await;
    let end = scene.plan_until("shop", "is Ready", |s| holds(s, "Ready", "True") && s.release.is_none() && s.history.last().is_some_and(|r| r.result == ReleaseResult::Succeeded)).await;
    assert_eq!(scene.image("cart").await, "shop/cart:31");
    assert!(end.history.len() <= 10);
    assert!(revisions(&scene).await <= 12);
    let before = scene.writes_to_deployments().await.len();
    assert_eq!(before, 0);
    // The thirty-second is bad.
    scene.kubectl(&["set", "image", "deployment/cart", "app=shop/cart:x-pullerror"]).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:31");
    sane(&scene).await;
}

/// A Deployment that somebody writes all the time neither stops a release nor a
/// rollback.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_written_all_the_time_is_released_and_goes_back() {
    let scene = Scene::new("breakst-storm").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let both = |tag: &str| plan("shop", &[("cart", &format!("shop/cart:{tag}")), ("web", "shop/web:1")], "");
    scene.apply(&both("1")).await;
    scene.ready("shop").await;
    let api = scene.deployments();
    let storm = tokio::spawn(async move {
        for n in 0u64.. {
            let patch = serde_json::json!({"metadata": {"annotations": {"n": n.to_string()}}, "spec": {"replicas": 2 + (n / 40).min(3)}});
            let _ = api.patch("cart", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    scene.apply(&both("2-crash")).await;
    scene.plan_until("shop", "turns around", |s| s.phase == Some(Phase::Rollback)).await;
    scene.deployment_until("cart", "is back", |d| image_of(d) == "shop/cart:1").await;
    storm.abort();
    let _ = storm.await;
    scene.because("shop", Reason::RolledBack).await;
    scene.kubectl(&["scale", "deployment/cart", "--replicas=0"]).await;
    scene.apply(&both("3")).await;
    scene.ready("shop").await;
    scene.apply(&both("4-slow")).await;
    scene.kubectl(&["scale", "deployment/cart", "--replicas=2"]).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:4-slow");
    sane(&scene).await;
}

/// An autoscaler that swings within the deadline does not hide pods that never
/// get ready.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_that_swings_does_not_hide_that_nothing_gets_ready() {
    let scene = Scene::new("breakst-swing").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    let with = |tag: &str| plan("shop", &[("cart", &format!("shop/cart:{tag}"))], "  progressDeadline: 6s\n");
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    scene.apply(&with("2-unready")).await;
    scene.because("shop", Reason::Promoting).await;
    for n in 0..12 {
        scene.kubectl(&["scale", "deployment/cart", &format!("--replicas={}", 2 + n % 2)]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(!status.refused.is_empty() || status.phase == Some(Phase::Rollback), "four deadlines passed: {}", why(&status));
}

/// What is live is never healthy and what the plan wants is live already.
#[tokio::test(flavor = "multi_thread")]
async fn a_baseline_that_is_not_healthy_within_the_deadline_does_not_spin() {
    let scene = Scene::new("breakst-baseline").await;
    scene.apply(&deployment("cart", "shop/cart:1-unready", 1)).await;
    scene.apply(&following("shop", &["cart"], "  progressDeadline: 3s\n")).await;
    scene.because("shop", Reason::BaselineUnavailable).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_release_that_failed_rests_and_good_content_heals_it() {
    let scene = Scene::new("breakst-failed").await;
    scene.apply(&deployment("cart", "shop/cart:1-pullerror", 1)).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], "  progressDeadline: 3s\n")).await;
    scene.phase("shop", Phase::Failed).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    sane(&scene).await;
    scene.kubectl(&["rollout", "restart", "deployment/cart"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!("failed and restarted: {:?} {}", status.phase, why(&status));
    sane(&scene).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:3")], "  progressDeadline: 3s\n")).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_in_mid_release_of_something_else() {
    let scene = Scene::new("breakst-retry").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    for retry in ["", "a/b", "../x", "shop-0000000000"] {
        let out = scene.kubectl_raw(&["annotate", "--overwrite", "relplan", "shop", &format!("belay.dev/retry={retry}")]).await;
        assert!(!out.success(), "{retry:?} is admitted");
    }
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], "")).await;
    let refused = scene.because("shop", Reason::RolledBack).await.refused[0].revision.clone();
    scene.apply(&plan("shop", &[("cart", "shop/cart:3-slow")], "")).await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&["annotate", "relplan", "shop", &format!("belay.dev/retry={refused}")]).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3-slow");
    sane(&scene).await;
    let annotations = scene.plans().get("shop").await.unwrap().metadata.annotations.unwrap();
    assert!(!annotations.contains_key("belay.dev/retry"), "{annotations:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_leaves_in_mid_release() {
    let scene = Scene::new("breakst-untemplate").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    scene.ready("shop").await;
    scene.apply(&plan("shop", &[("cart", "shop/cart:2-slow")], "")).await;
    scene.because("shop", Reason::Promoting).await;
    let out = scene.try_apply(&following("shop", &["cart"], ""), &[]).await;
    eprintln!("untemplate: {} {}", out.stdout, out.stderr);
    if !out.success() {
        return;
    }
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    sane(&scene).await;
    scene.kubectl(&["set", "image", "deployment/cart", "app=shop/cart:3-pullerror"]).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    let live = scene.deployments().get("cart").await.unwrap();
    assert!(live.metadata.managed_fields.iter().flatten().all(|m| m.manager.as_deref() != Some("belay")));
}

// ---------------------------------------------------------- strategies

#[tokio::test(flavor = "multi_thread")]
async fn recreate_and_all_unavailable_and_min_ready_seconds() {
    let scene = Scene::new("breakst-strategy").await;
    let cases = [
        ("recreate", "  strategy: {type: Recreate}\n"),
        ("all", "  strategy: {rollingUpdate: {maxUnavailable: 100%, maxSurge: 0}}\n"),
        ("minready", "  minReadySeconds: 3\n"),
    ];
    for (name, extra) in cases {
        let manifest = deployment(name, "shop/x:1", 2).replace("spec:\n  replicas", &format!("spec:\n{extra}  replicas"));
        scene.apply(&manifest).await;
        scene.available(name).await;
    }
    let all = |tag: &str| {
        let image = format!("shop/x:{tag}");
        plan("shop", &[("recreate", &image), ("all", &image), ("minready", &image)], "")
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
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_paused_in_mid_release_of_broken_content() {
    let scene = Scene::new("breakst-pause").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    let with = |tag: &str| plan("shop", &[("cart", &format!("shop/cart:{tag}"))], "  progressDeadline: 8s\n");
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    scene.apply(&with("2-unready")).await;
    scene.because("shop", Reason::Promoting).await;
    scene.kubectl(&["rollout", "pause", "deployment/cart"]).await;
    scene.because("shop", Reason::WorkloadPaused).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let held = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(why(&held).starts_with("WorkloadPaused"), "{}", why(&held));
    scene.kubectl(&["rollout", "resume", "deployment/cart"]).await;
    scene.phase("shop", Phase::Rollback).await;
    scene.kubectl(&["rollout", "pause", "deployment/cart"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.kubectl(&["rollout", "resume", "deployment/cart"]).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    sane(&scene).await;
}

// ---------------------------------------- an operator of the test's own

async fn own() -> (Arc<Cluster>, Operator) {
    tokio::task::spawn_blocking(|| {
        let cluster = Arc::new(Cluster::start(ClusterOptions::new()).unwrap());
        let operator = Operator::start(&cluster, &options()).unwrap();
        (cluster, operator)
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_webhooks_and_without_rights() {
    let (cluster, _operator) = own().await;
    let scene = Scene::on(&cluster, "breakst-bare").await;
    for name in ["cart", "web", "pay"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    // Rights withdrawn in mid-release.
    let two = |tags: [&str; 2]| plan("shop", &[("cart", &format!("shop/x:{}", tags[0])), ("web", &format!("shop/x:{}", tags[1]))], "");
    let after = |tags| two(tags) + "    after: [cart]\n";
    scene.apply(&after(["1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&after(["2-slow", "2"])).await;
    scene.because("shop", Reason::Promoting).await;
    let role = scene.kubectl(&["get", "clusterrole", "belay", "-o", "json"]).await;
    let mut bare: serde_json::Value = serde_json::from_str(&role).unwrap();
    for rule in bare["rules"].as_array_mut().unwrap() {
        if rule["resources"] == serde_json::json!(["deployments"]) {
            rule["verbs"] = serde_json::json!(["get", "list", "watch"]);
        }
    }
    let rules = |value: &serde_json::Value| serde_json::json!({"rules": value["rules"]}).to_string();
    let whole: serde_json::Value = serde_json::from_str(&role).unwrap();
    scene.kubectl(&["patch", "clusterrole", "belay", "--type=merge", "-p", &rules(&bare)]).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!("without rights: {:?} {}", status.phase, why(&status));
    assert!(status.refused.is_empty(), "missing rights say nothing about the content");
    scene.kubectl(&["patch", "clusterrole", "belay", "--type=merge", "-p", &rules(&whole)]).await;
    // A slow cadence may have been entered.
    scene.kubectl(&["annotate", "relplan", "shop", "x/y=z"]).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:2");

    // Without webhooks.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        scene.kubectl(&["delete", kind, "belay.dev"]).await;
    }
    // An invalid plan at rest, in mid-release, and from the first moment.
    let cycle = |tags| {
        two(tags).replace("name: cart}\n", "name: cart}\n    after: [web]\n") + "    after: [cart]\n"
    };
    scene.apply(&cycle(["3", "3"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    assert_eq!(scene.image("cart").await, "shop/x:2-slow");
    scene.apply(&two(["4-slow", "4"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&cycle(["4-slow", "4"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    sane(&scene).await;
    scene.kubectl(&["annotate", "--overwrite", "relplan", "shop", "belay.dev/retry="]).await;
    scene.apply(&two(["4-slow", "5"])).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:5");
    for retry in ["a/b", "../../x", "shop-none"] {
        scene.kubectl(&["annotate", "--overwrite", "relplan", "shop", &format!("belay.dev/retry={retry}")]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    scene.ready("shop").await;
    // The set of components changes in mid-release, which only the webhook refuses.
    scene.apply(&two(["6-slow", "6"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&plan("shop", &[("cart", "shop/x:6-slow"), ("pay", "shop/x:6")], "")).await;
    scene.plan_until("shop", "has pay", |s| s.components.iter().any(|c| c.workload.name.as_deref() == Some("pay")) && holds(s, "Ready", "True")).await;
    assert_eq!(scene.image("pay").await, "shop/x:6");
    let web = scene.deployments().get("web").await.unwrap();
    assert!(web.metadata.managed_fields.iter().flatten().all(|m| m.manager.as_deref() != Some("belay")));
    scene.apply(&(plan("shop", &[("cart", "shop/x:6-slow")], "") + "  retry: {maxRetries: 5}\n  bakeTime: 9999h\n")).await;
    scene.because("shop", Reason::InvalidPlan).await;
    sane(&scene).await;
    scene.kubectl(&["delete", "relplan", "shop", "--timeout=60s"]).await;
    assert_eq!(revisions(&scene).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_again_and_again() {
    let (cluster, operator) = own().await;
    let operator = Arc::new(operator);
    let scene = Scene::on(&cluster, "breakst-killed").await;
    for name in ["cart", "web"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    let two = |tag: &str| plan("shop", &[("cart", "shop/x:0"), ("web", &format!("shop/x:{tag}"))], "").replace("shop/x:0", &format!("shop/x:{}", tag.trim_end_matches("-crash")));
    scene.apply(&two("1")).await;
    scene.ready("shop").await;
    let mut good = "1".to_owned();
    for round in 2..9u64 {
        let bad = round % 2 == 0;
        let tag = if bad { format!("{round}-crash") } else { round.to_string() };
        scene.apply(&two(&tag)).await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(200 + 377 * round % 1100)).await;
            let operator = Arc::clone(&operator);
            tokio::task::spawn_blocking(move || {
                operator.kill().unwrap();
                operator.restart().unwrap();
            })
            .await
            .unwrap();
        }
        if bad {
            let generation = scene.plans().get("shop").await.unwrap().metadata.generation;
            scene.plan_until("shop", "rolled back", |s| why(s).starts_with("RolledBack") && s.observed_generation == generation).await;
        } else {
            scene.ready("shop").await;
            good = tag;
        }
        assert_eq!(scene.image("cart").await, format!("shop/x:{good}"), "round {round}");
        assert_eq!(scene.image("web").await, format!("shop/x:{good}"), "round {round}");
    }
    sane(&scene).await;
    scene.kubectl(&["delete", "relplan", "shop", "--timeout=60s"]).await;
    assert_eq!(revisions(&scene).await, 0);
}
