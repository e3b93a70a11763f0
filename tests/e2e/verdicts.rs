//! UX-01: why did it stop? The plan itself says so, in `kubectl get` and
//! `kubectl describe`, in every end state, with what to do next.

use belay::api::{Reason, ReleasePlanStatus};

use crate::support::{Scene, following, holds, message, plan};

/// What a person sees, and that nothing of it contradicts itself.
async fn seen(scene: &Scene, status: &ReleasePlanStatus, reason: Reason, wanted: &[&str]) {
    assert!(!(holds(status, "Reconciling", "True") && holds(status, "Stalled", "True")));
    for condition in &status.conditions {
        assert!(condition.message.len() < 1024, "{condition:?}");
        assert!(condition.observed_generation.is_some(), "{condition:?}");
    }
    let row = scene.kubectl(&["get", "relplan"]).await;
    assert!(row.contains(reason.as_str()), "{row}");
    let described = scene.kubectl(&["describe", "relplan", "shop"]).await;
    for wanted in wanted {
        assert!(described.contains(wanted), "no {wanted:?} in {described}");
    }
    let text = message(status, "Ready");
    assert!(!text.is_empty(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ux_01_a_rolled_back_plan_says_why_and_what_next() {
    let scene = Scene::new("ux-01-back").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-crash")], ""))
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let revision = status.refused.last().unwrap().revision.clone();
    let retry = format!("belay.dev/retry={revision}");
    // The events, too, tell the story.
    seen(
        &scene,
        &status,
        Reason::RolledBack,
        &[
            "restarted 3 times (spec.failFast.restarts is 3)",
            &retry,
            "ReleaseStarted",
            "RollbackStarted",
            "exit code 1",
        ],
    )
    .await;
    let events = scene
        .kubectl(&[
            "get",
            "events",
            "-o",
            "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}",
        ])
        .await;
    let ours = |reason: &str| events.lines().filter(|line| *line == reason).count();
    assert_eq!(
        (
            ours("ReleaseStarted"),
            ours("RollbackStarted"),
            ours("RolledBack")
        ),
        (1, 1, 1),
        "{events}"
    );
    assert!(status.decisions.len() <= 20);
    assert!(
        status
            .decisions
            .iter()
            .any(|d| d.reason == Reason::RollbackStarted)
    );
}

/// Each release is told in events of its own, not in the words of the first.
#[tokio::test(flavor = "multi_thread")]
async fn ux_01_a_released_plan_says_what_is_live() {
    let scene = Scene::new("ux-01-ready").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let mut revisions = Vec::new();
    for image in ["shop/cart:2", "shop/cart:3"] {
        scene.apply(&plan("shop", &[("cart", image)], "")).await;
        revisions.push(scene.ready("shop").await.stable_revision.unwrap());
    }
    let status = scene.ready("shop").await;
    let path = "jsonpath={range .items[?(@.reason==\"Released\")]}{.message}{\"\\n\"}{end}";
    let told = scene.kubectl(&["get", "events", "-o", path]).await;
    for revision in &revisions {
        assert_eq!(
            told.lines().filter(|line| line.contains(revision)).count(),
            1,
            "{told}"
        );
    }
    let revision = status.stable_revision.clone().unwrap();
    seen(&scene, &status, Reason::Released, &[&revision, "Succeeded"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ux_01_a_first_release_without_a_way_back_says_so() {
    let scene = Scene::new("ux-01-failed").await;
    scene
        .apply(&crate::support::deployment(
            "cart",
            "shop/cart:1-pullerror",
            1,
        ))
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], ""))
        .await;
    let status = scene.because("shop", Reason::ReleaseFailed).await;
    seen(
        &scene,
        &status,
        Reason::ReleaseFailed,
        &["ImagePullBackOff", "so the new templates stay as they are"],
    )
    .await;
    assert_eq!(
        scene.image("cart").await,
        "shop/cart:2-pullerror",
        "it stays in place"
    );
    // Newer content gets it out.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    scene.ready("shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ux_01_a_missing_target_is_named() {
    let scene = Scene::new("ux-01-missing").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let status = scene.because("shop", Reason::TargetsMissing).await;
    seen(
        &scene,
        &status,
        Reason::TargetsMissing,
        &["waiting for deployment cart to exist"],
    )
    .await;
}

/// A workload of which a container disappears after admission.
#[tokio::test(flavor = "multi_thread")]
async fn ux_01_a_container_that_disappeared_is_named_and_nothing_is_added() {
    let scene = Scene::new("ux-01-mismatch").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.because("shop", Reason::TargetsMissing).await;
    let other =
        crate::support::deployment("cart", "shop/cart:1", 1).replace("name: app\n", "name: main\n");
    scene.apply(&other).await;
    // It is said before the baseline is taken and after it.
    scene.phase("shop", belay::api::Phase::Stable).await;
    let status = scene.because("shop", Reason::TemplateMismatch).await;
    seen(
        &scene,
        &status,
        Reason::TemplateMismatch,
        &["deployment cart has no container app (it has: main)"],
    )
    .await;
    assert_eq!(scene.writes_to_deployments().await.len(), 0);
}

/// Users of kstatus, such as Flux, compare this number with the generation, and
/// take a plan without it for finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_plan_does_not_look_finished_before_it_is_looked_at() {
    let scene = Scene::new("verdicts-new").await;
    let observed = ["-o", "jsonpath={.status.observedGeneration}"];
    let manifest = following("shop", &["web"], "");
    let created = scene.try_apply(&manifest, &observed).await;
    assert_eq!(created.stdout, "-1", "{created:?}");
    let status = scene.because("shop", Reason::TargetsMissing).await;
    assert_eq!(status.observed_generation, Some(1));
}
