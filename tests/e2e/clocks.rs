//! What counts as time without progress, and what does not.

use std::time::Duration;

use belay::api::{Cause, Phase, Reason, ReleaseKind, ReleaseResult};
use k8s_openapi::jiff::Timestamp;

use crate::{
    support::{Scene, deployment, holds, image_of, now, pass_time, plan, why},
    witness::Witness,
};

const DEADLINE: Duration = Duration::from_secs(5);
/// What a busy machine may be late by.
const SLACK: Duration = Duration::from_secs(10);

/// Whether a Deployment says that it made no progress for too long.
fn exceeded(deployment: &k8s_openapi::api::apps::v1::Deployment) -> bool {
    let status = deployment.status.as_ref();
    status
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded"))
        })
}

fn seconds_since(then: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(then).as_secs_f64()
}

/// SM-01: a pause longer than the deadline is not a failure. After the resume
/// the clock starts afresh, and pods that never get ready fail the release one
/// deadline later.
#[tokio::test(flavor = "multi_thread")]
async fn sm_01_pause_time_is_not_progress_time() {
    let scene = Scene::new("sm-01").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let with = |image: &str, paused: bool| {
        let rest = format!("  progressDeadline: 5s\n  paused: {paused}\n");
        plan("shop", &[("cart", image)], &rest)
    };
    scene.apply(&with("shop/cart:1", false)).await;
    scene.ready("shop").await;
    scene.apply(&with("shop/cart:2-unready", false)).await;
    scene.because("shop", Reason::Promoting).await;
    scene.apply(&with("shop/cart:2-unready", true)).await;
    scene.because("shop", Reason::Paused).await;
    let witness = Witness::of(&scene, "shop").await;
    pass_time(2 * DEADLINE).await;
    scene
        .kubectl(&["annotate", "relplan", "shop", "belay-test/look=1"])
        .await;
    assert_eq!(witness.phases(), [Phase::RollingOut]);

    let resumed = now();
    scene.apply(&with("shop/cart:2-unready", false)).await;
    let status = scene.phase("shop", Phase::Rollback).await;
    let failure = status.release.unwrap().failure.unwrap();
    assert_eq!(failure.cause, Cause::ProgressDeadlineExceeded);
    let took = seconds_since(resumed, failure.at.0);
    assert!(
        took >= DEADLINE.as_secs_f64() && took < (DEADLINE + SLACK).as_secs_f64(),
        "failed {took} s after the resume"
    );
    scene.because("shop", Reason::RolledBack).await;
    witness.assert_coherent();
}

/// SM-01, the user's own pause: a workload paused in mid-release holds the
/// release without failing it, and is never resumed or paused by Belay.
#[tokio::test(flavor = "multi_thread")]
async fn sm_01_the_pause_of_a_workload_stops_the_clock_too() {
    let scene = Scene::new("sm-01-workload").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let rest = "  progressDeadline: 5s\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], rest))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], rest))
        .await;
    scene.because("shop", Reason::WorkloadPaused).await;
    let witness = Witness::of(&scene, "shop").await;
    pass_time(2 * DEADLINE).await;
    scene
        .kubectl(&["annotate", "relplan", "shop", "belay-test/look=1"])
        .await;
    assert_eq!(witness.phases(), [Phase::RollingOut]);
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    let status = scene.ready("shop").await;
    let last = status.history.last().unwrap();
    assert_eq!(last.result, ReleaseResult::Succeeded);
    for write in scene.writes_to_deployments().await {
        let body = write.request_object.unwrap().to_string();
        assert!(!body.contains("paused"), "{body}");
    }
}

/// SM-01, the other clock: a Deployment that already says
/// ProgressDeadlineExceeded, of an older template, does not fail the release
/// that mends it, although that takes longer than one look.
#[tokio::test(flavor = "multi_thread")]
async fn sm_01_an_old_verdict_of_the_deployment_fails_no_new_release() {
    let scene = Scene::new("sm-01-stale").await;
    let broken = deployment("cart", "shop/cart:1-unready", 1).replace(
        "  replicas: 1\n",
        "  replicas: 1\n  progressDeadlineSeconds: 2\n",
    );
    scene.apply(&broken).await;
    scene
        .deployment_until("cart", "says that it is stuck", exceeded)
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    let witness = Witness::of(&scene, "shop").await;
    let status = scene.ready("shop").await;
    let last = status.history.last().unwrap();
    assert_eq!(
        (last.kind, last.result),
        (ReleaseKind::First, ReleaseResult::Succeeded)
    );
    assert_eq!(status.history.len(), 1, "one attempt: {:?}", status.history);
    witness.assert_coherent();

    // The same where there is a way back: the old verdict is one of a template
    // that somebody gave up again.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "is stuck on 3", |d| {
            image_of(d) == "shop/cart:3-unready" && exceeded(d)
        })
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:4-slow")], ""))
        .await;
    let status = scene.ready("shop").await;
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(
        results,
        [
            ReleaseResult::Succeeded,
            ReleaseResult::Superseded,
            ReleaseResult::Succeeded
        ]
    );
}

/// A workload that is paused in mid-release of broken content, and again on the
/// way back: each time its clock stands still, and the end is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_paused_on_both_ways_goes_back_once_it_is_resumed() {
    let scene = Scene::new("clocks-paused").await;
    let rest = "  progressDeadline: 5s\n";
    scene.stable(&[("cart", "shop/cart:1")], rest).await;
    scene.shop(&[("cart", "shop/cart:2-unready")], rest).await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    scene.because("shop", Reason::WorkloadPaused).await;
    pass_time(2 * DEADLINE).await;
    let held = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(why(&held).starts_with("WorkloadPaused"), "{}", why(&held));
    assert_eq!(held.phase, Some(Phase::RollingOut));
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.phase("shop", Phase::Rollback).await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    // It may be back already when the pause comes.
    let paused = scene
        .plan_until("shop", "says that it is paused, or is back", |s| {
            why(s).contains("paused by its own spec.paused") || s.release.is_none()
        })
        .await;
    assert!(holds(&paused, "Ready", "False"), "{}", why(&paused));
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.assert_calm().await;
}
