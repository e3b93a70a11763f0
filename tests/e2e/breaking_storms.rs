//! Hostile cases: storms of edits, strategies, an operator without rights or
//! webhooks, and one killed again and again.

use std::{sync::Arc, time::Duration};

use belay::api::{Phase, Reason, ReleaseResult};
use belay_testenv::{Cluster, ClusterOptions, Operator};

use crate::{
    breaking::{revisions, sane, why},
    support::{Scene, deployment, following, holds, image_of, options, plan},
};

async fn own() -> (Arc<Cluster>, Operator) {
    tokio::task::spawn_blocking(|| {
        let cluster = Arc::new(Cluster::start(ClusterOptions::new()).unwrap());
        let operator = Operator::start(&cluster, &options()).unwrap();
        (cluster, operator)
    })
    .await
    .unwrap()
}

/// Edits in every stage. Whenever the plan says Ready of the spec that it has,
/// that spec is what is live.
#[tokio::test(flavor = "multi_thread")]
async fn edits_in_every_stage_end_on_the_last_one() {
    let scene = Scene::new("breakst-edits").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |tag: &str| {
        plan(
            "shop",
            &[
                ("cart", &format!("shop/cart:{tag}")),
                ("web", &format!("shop/web:{tag}")),
            ],
            "  bakeTime: 1s\n",
        )
    };
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    let tags = [
        "2",
        "3-crash",
        "1",
        "3-crash",
        "4-slow",
        "5-pullerror",
        "6",
        "1",
        "7-unready",
        "8",
    ];
    for (n, tag) in tags.iter().enumerate() {
        scene.apply(&with(tag)).await;
        tokio::time::sleep(Duration::from_millis([50, 1200, 300, 2500, 1500][n % 5])).await;
        let plan = scene.plans().get("shop").await.unwrap();
        let status = plan.status.unwrap();
        if holds(&status, "Ready", "True") && status.observed_generation == plan.metadata.generation
        {
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
        scene
            .kubectl(&[
                "set",
                "image",
                "deployment/cart",
                &format!("app=shop/cart:{n}"),
            ])
            .await;
    }
    scene.available("cart").await;
    let end = scene
        .plan_until("shop", "is Ready", |s| {
            holds(s, "Ready", "True")
                && s.release.is_none()
                && s.history
                    .last()
                    .is_some_and(|r| r.result == ReleaseResult::Succeeded)
        })
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:31");
    assert!(end.history.len() <= 10);
    assert!(revisions(&scene).await <= 12);
    let before = scene.writes_to_deployments().await.len();
    assert_eq!(before, 0);
    // The thirty-second is bad.
    scene
        .kubectl(&[
            "set",
            "image",
            "deployment/cart",
            "app=shop/cart:x-pullerror",
        ])
        .await;
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
    let both = |tag: &str| {
        plan(
            "shop",
            &[("cart", &format!("shop/cart:{tag}")), ("web", "shop/web:1")],
            "",
        )
    };
    scene.apply(&both("1")).await;
    scene.ready("shop").await;
    let api = scene.deployments();
    let storm = tokio::spawn(async move {
        for n in 0u64.. {
            let patch = serde_json::json!({"metadata": {"annotations": {"n": n.to_string()}}, "spec": {"replicas": 2 + (n / 40).min(3)}});
            let _ = api
                .patch(
                    "cart",
                    &kube::api::PatchParams::default(),
                    &kube::api::Patch::Merge(patch),
                )
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    scene.apply(&both("2-crash")).await;
    scene
        .plan_until("shop", "turns around", |s| s.phase == Some(Phase::Rollback))
        .await;
    scene
        .deployment_until("cart", "is back", |d| image_of(d) == "shop/cart:1")
        .await;
    storm.abort();
    let _ = storm.await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=0"])
        .await;
    scene.apply(&both("3")).await;
    scene.ready("shop").await;
    scene.apply(&both("4-slow")).await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=2"])
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:4-slow");
    sane(&scene).await;
}

/// Many edits in one long release stay within `revisionHistoryLimit`.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_superseded_many_times_keeps_its_records_bounded() {
    let scene = Scene::new("break-superseded").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let with = |tag: &str| {
        plan(
            "shop",
            &[("cart", &format!("shop/cart:{tag}"))],
            "  revisionHistoryLimit: 3\n",
        )
    };
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    for n in 2..12 {
        scene.apply(&with(&format!("{n}-unready"))).await;
        let image = format!("shop/cart:{n}-unready");
        scene
            .deployment_until("cart", &image, |d| image_of(d) == image)
            .await;
    }
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!(
        "superseded: {} records, {} applied",
        status.history.len(),
        status.release.as_ref().unwrap().applied.len()
    );
    assert!(
        status.history.len() <= 4,
        "{} records with a limit of 3",
        status.history.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recreate_and_all_unavailable_and_min_ready_seconds() {
    let scene = Scene::new("breakst-strategy").await;
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
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_paused_in_mid_release_of_broken_content() {
    let scene = Scene::new("breakst-pause").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    let with = |tag: &str| {
        plan(
            "shop",
            &[("cart", &format!("shop/cart:{tag}"))],
            "  progressDeadline: 8s\n",
        )
    };
    scene.apply(&with("1")).await;
    scene.ready("shop").await;
    scene.apply(&with("2-unready")).await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    scene.because("shop", Reason::WorkloadPaused).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let held = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(why(&held).starts_with("WorkloadPaused"), "{}", why(&held));
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.phase("shop", Phase::Rollback).await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_webhooks_and_without_rights() {
    let (cluster, _operator) = own().await;
    let scene = Scene::on(&cluster, "breakst-bare").await;
    for name in ["cart", "web", "pay"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    // Rights withdrawn in mid-release.
    let two = |tags: [&str; 2]| {
        plan(
            "shop",
            &[
                ("cart", &format!("shop/x:{}", tags[0])),
                ("web", &format!("shop/x:{}", tags[1])),
            ],
            "",
        )
    };
    let after = |tags| two(tags) + "    after: [cart]\n";
    scene.apply(&after(["1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&after(["2-slow", "2"])).await;
    scene.because("shop", Reason::Promoting).await;
    let role = scene
        .kubectl(&["get", "clusterrole", "belay", "-o", "json"])
        .await;
    let mut bare: serde_json::Value = serde_json::from_str(&role).unwrap();
    for rule in bare["rules"].as_array_mut().unwrap() {
        if rule["resources"] == serde_json::json!(["deployments"]) {
            rule["verbs"] = serde_json::json!(["get", "list", "watch"]);
        }
    }
    let rules =
        |value: &serde_json::Value| serde_json::json!({"rules": value["rules"]}).to_string();
    let whole: serde_json::Value = serde_json::from_str(&role).unwrap();
    scene
        .kubectl(&[
            "patch",
            "clusterrole",
            "belay",
            "--type=merge",
            "-p",
            &rules(&bare),
        ])
        .await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!("without rights: {:?} {}", status.phase, why(&status));
    assert!(
        status.refused.is_empty(),
        "missing rights say nothing about the content"
    );
    scene
        .kubectl(&[
            "patch",
            "clusterrole",
            "belay",
            "--type=merge",
            "-p",
            &rules(&whole),
        ])
        .await;
    // A slow cadence may have been entered.
    scene
        .kubectl(&["annotate", "relplan", "shop", "x/y=z"])
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:2");

    // Without webhooks.
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        scene.kubectl(&["delete", kind, "belay.dev"]).await;
    }
    // An invalid plan at rest, in mid-release, and from the first moment.
    let cycle = |tags| {
        two(tags).replace("name: cart}\n", "name: cart}\n    after: [web]\n")
            + "    after: [cart]\n"
    };
    scene.apply(&cycle(["3", "3"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    assert_eq!(scene.image("cart").await, "shop/x:2-slow");
    scene.apply(&two(["4-slow", "4"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&cycle(["4-slow", "4"])).await;
    scene.because("shop", Reason::InvalidPlan).await;
    sane(&scene).await;
    scene
        .kubectl(&[
            "annotate",
            "--overwrite",
            "relplan",
            "shop",
            "belay.dev/retry=",
        ])
        .await;
    scene.apply(&two(["4-slow", "5"])).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:5");
    for retry in ["a/b", "../../x", "shop-none"] {
        scene
            .kubectl(&[
                "annotate",
                "--overwrite",
                "relplan",
                "shop",
                &format!("belay.dev/retry={retry}"),
            ])
            .await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    scene.ready("shop").await;
    // The set of components changes in mid-release, which only the webhook refuses.
    scene.apply(&two(["6-slow", "6"])).await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/x:6-slow"), ("pay", "shop/x:6")],
            "",
        ))
        .await;
    scene
        .plan_until("shop", "has pay", |s| {
            s.components
                .iter()
                .any(|c| c.workload.name.as_deref() == Some("pay"))
                && holds(s, "Ready", "True")
        })
        .await;
    assert_eq!(scene.image("pay").await, "shop/x:6");
    let web = scene.deployments().get("web").await.unwrap();
    assert!(
        web.metadata
            .managed_fields
            .iter()
            .flatten()
            .all(|m| m.manager.as_deref() != Some("belay"))
    );
    scene
        .apply(
            &(plan("shop", &[("cart", "shop/x:6-slow")], "")
                + "  retry: {maxRetries: 5}\n  bakeTime: 9999h\n"),
        )
        .await;
    scene.because("shop", Reason::InvalidPlan).await;
    sane(&scene).await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
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
    let two = |tag: &str| {
        plan(
            "shop",
            &[("cart", "shop/x:0"), ("web", &format!("shop/x:{tag}"))],
            "",
        )
        .replace(
            "shop/x:0",
            &format!("shop/x:{}", tag.trim_end_matches("-crash")),
        )
    };
    scene.apply(&two("1")).await;
    scene.ready("shop").await;
    let mut good = "1".to_owned();
    for round in 2..9u64 {
        let bad = round % 2 == 0;
        let tag = if bad {
            format!("{round}-crash")
        } else {
            round.to_string()
        };
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
            scene
                .plan_until("shop", "rolled back", |s| {
                    why(s).starts_with("RolledBack") && s.observed_generation == generation
                })
                .await;
        } else {
            scene.ready("shop").await;
            good = tag;
        }
        assert_eq!(
            scene.image("cart").await,
            format!("shop/x:{good}"),
            "round {round}"
        );
        assert_eq!(
            scene.image("web").await,
            format!("shop/x:{good}"),
            "round {round}"
        );
    }
    sane(&scene).await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
    assert_eq!(revisions(&scene).await, 0);
}
