//! Storms: edits in every stage, a Deployment that is written all the time, an
//! operator that is killed again and again.

use std::{sync::Arc, time::Duration};

use belay::api::{Phase, Reason, ReleaseResult};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Scene, following, holds, image_of, own, pass_time, why};

/// Edits in every stage. Whenever the plan says Ready of the spec that it has,
/// that spec is what is live.
#[tokio::test(flavor = "multi_thread")]
async fn edits_in_every_stage_end_on_the_last_one() {
    let scene = Scene::new("storms-edits").await;
    let rest = "  bakeTime: 1s\n";
    let apply = async |tag: &str| {
        let (cart, web) = (format!("shop/cart:{tag}"), format!("shop/web:{tag}"));
        scene.shop(&[("cart", &cart), ("web", &web)], rest).await;
    };
    scene
        .stable(&[("cart", "shop/cart:1"), ("web", "shop/web:1")], rest)
        .await;
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
    // Before a release, while it settles, in the middle of it, and after it.
    let paces = [50, 1200, 300, 2500, 1500];
    for (tag, pace) in tags.iter().zip(paces.iter().cycle()) {
        apply(tag).await;
        pass_time(Duration::from_millis(*pace)).await;
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
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_rapid_set_images_on_a_followed_deployment() {
    let scene = Scene::new("storms-thirty").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    for n in 2..32 {
        scene.set_image("cart", &format!("shop/cart:{n}")).await;
    }
    scene.available("cart").await;
    let end = scene
        .plan_until("shop", "is Ready", |s| {
            let last = s.history.last();
            holds(s, "Ready", "True")
                && s.release.is_none()
                && last.is_some_and(|r| r.result == ReleaseResult::Succeeded)
        })
        .await;
    assert_eq!(scene.image("cart").await, "shop/cart:31");
    assert!(end.history.len() <= 10, "{}", end.history.len());
    let revisions = scene.revisions().await;
    assert!(revisions <= 12, "{revisions} revisions");
    scene.assert_no_deployment_written_since(0).await;
    // The thirty-second is bad.
    scene.set_image("cart", "shop/cart:x-pullerror").await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:31");
    scene.assert_calm().await;
}

/// A Deployment that somebody writes all the time neither stops a release nor a
/// rollback.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_written_all_the_time_is_released_and_goes_back() {
    let scene = Scene::new("storms-written").await;
    let both = async |tag: &str| {
        let cart = format!("shop/cart:{tag}");
        scene
            .shop(&[("cart", &cart), ("web", "shop/web:1")], "")
            .await;
    };
    scene
        .stable(&[("cart", "shop/cart:1"), ("web", "shop/web:1")], "")
        .await;
    let api = scene.deployments();
    let storm = tokio::spawn(async move {
        for n in 0u64.. {
            let patch = json!({
                "metadata": {"annotations": {"n": n.to_string()}},
                "spec": {"replicas": 2 + (n / 40).min(3)},
            });
            // It may lose a race; the next one follows at once.
            let _ = api
                .patch("cart", &PatchParams::default(), &Patch::Merge(patch))
                .await;
            // After the answer: on a busy machine the storm is slower as well.
            pass_time(Duration::from_millis(50)).await;
        }
    });
    both("2-crash").await;
    scene.phase("shop", Phase::Rollback).await;
    scene
        .deployment_until("cart", "is back", |d| image_of(d) == "shop/cart:1")
        .await;
    storm.abort();
    let _ = storm.await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=0"])
        .await;
    both("3").await;
    scene.ready("shop").await;
    both("4-slow").await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=2"])
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:4-slow");
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_again_and_again() {
    let (cluster, operator) = own().await;
    let scene = Scene::on(&cluster, "storms-killed").await;
    scene
        .stable(&[("cart", "shop/x:1"), ("web", "shop/x:1")], "")
        .await;
    let mut good = "shop/x:1".to_owned();
    for round in 2..9u64 {
        let bad = round % 2 == 0;
        let image = format!("shop/x:{round}");
        let broken = format!("{image}-crash");
        let web = if bad { &broken } else { &image };
        scene.shop(&[("cart", &image), ("web", web)], "").await;
        for _ in 0..3 {
            // Any moment will do, and another one in each round.
            pass_time(Duration::from_millis(200 + 377 * round % 1100)).await;
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
            good = image;
        }
        for name in ["cart", "web"] {
            assert_eq!(scene.image(name).await, good, "round {round}: {name}");
        }
    }
    scene.assert_calm().await;
    scene.delete_plans(&["shop"]).await;
    assert_eq!(scene.revisions().await, 0);
}
