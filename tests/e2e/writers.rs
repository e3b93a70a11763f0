//! Others who write to the same Deployments: people, and machines that insist.

use std::time::Duration;

use belay::api::{Phase, Reason, ReleaseResult};
use tokio::time::Instant;

use crate::{
    support::{Scene, deployment, following, holds, image_of, message, plan},
    witness::{Witness, image_in},
};

/// How often the operator wrote a template with this image.
async fn templates(scene: &Scene, image: &str) -> usize {
    let writes = scene.writes_to_deployments().await;
    writes
        .iter()
        .filter_map(|w| image_in(w.request_object.as_ref()?))
        .filter(|written| written == image)
        .count()
}

/// DO-03: in mid-release somebody applies the original manifest by server-side
/// apply. Without force the API server names Belay; with force it takes the
/// image back, once, and gets it set again: no hot loop. What the manifest says
/// of other fields stays as its author wants it.
#[tokio::test(flavor = "multi_thread")]
async fn do_03_the_original_manifest_is_applied_in_mid_release() {
    let scene = Scene::new("do-03-apply").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-slow")
        .await;
    let original = deployment("cart", "shop/cart:1", 3).replace("value: info", "value: warn");
    let by_gitops = ["--server-side", "--field-manager=gitops"];
    let output = scene.try_apply(&original, &by_gitops).await;
    assert!(
        !output.success() && output.stderr.contains("\"belay\""),
        "{}",
        output.stderr
    );
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    let forced = [&by_gitops[..], &["--force-conflicts"]].concat();
    let output = scene.try_apply(&original, &forced).await;
    assert!(output.success(), "{}", output.stderr);
    let status = scene.ready("shop").await;
    let live = scene.deployments().get("cart").await.unwrap();
    assert_eq!(image_of(&live), "shop/cart:2-slow");
    assert_eq!(live.spec.as_ref().unwrap().replicas, Some(3));
    let template = scene.template("cart").await;
    let env = &template["spec"]["containers"][0]["env"][0];
    assert_eq!(env["value"], "warn", "{env}");
    assert!(
        status.history.iter().all(|r| matches!(
            r.result,
            ReleaseResult::Succeeded | ReleaseResult::Superseded
        )),
        "{:?}",
        status.history
    );
    let written = templates(&scene, "shop/cart:2-slow").await;
    assert!((2..=4).contains(&written), "written {written} times");
    scene.assert_quiet("shop", 2).await;
}

/// DO-03: in mid-release somebody pauses the Deployment and sets its strategy.
/// Both are theirs: the pause holds the release and ends when they end it, the
/// strategy is what they made it, and Belay touched neither.
#[tokio::test(flavor = "multi_thread")]
async fn do_03_pause_and_strategy_set_by_hand_stay_the_users_own() {
    let scene = Scene::new("do-03-hand").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-slow")
        .await;
    let recreate =
        r#"{"spec":{"paused":true,"strategy":{"type":"Recreate","rollingUpdate":null}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", recreate])
        .await;
    let status = scene.because("shop", Reason::WorkloadPaused).await;
    assert!(
        message(&status, "Ready").contains("deployment cart"),
        "{}",
        message(&status, "Ready")
    );
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.ready("shop").await;
    let live = scene.deployments().get("cart").await.unwrap();
    let spec = live.spec.unwrap();
    let type_ = spec.strategy.and_then(|strategy| strategy.type_);
    assert_eq!(type_.as_deref(), Some("Recreate"));
    assert!(!spec.paused.unwrap_or_default());
    assert_eq!(templates(&scene, "shop/cart:2-slow").await, 1);
    for write in scene.writes_to_deployments().await {
        let body = write.request_object.unwrap().to_string();
        assert!(
            !body.contains("\"paused\"") && !body.contains("\"strategy\""),
            "{body}"
        );
    }
}

/// DO-03 on the way back: the Deployment was paused by hand when its release
/// failed. The template goes back all the same; what waits for the resume is
/// only the Deployment, and the plan says so.
#[tokio::test(flavor = "multi_thread")]
async fn do_03_a_workload_paused_on_the_way_back_is_not_stuck_for_good() {
    let scene = Scene::new("do-03-back").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |cart: &str, web: &str| {
        let rest = "  progressDeadline: 8s\n";
        plan("shop", &[("cart", cart), ("web", web)], rest)
    };
    scene.apply(&with("shop/cart:1", "shop/web:1")).await;
    scene.ready("shop").await;
    let before = scene.template("cart").await;
    let recreate = r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", recreate])
        .await;
    scene
        .apply(&with("shop/cart:2", "shop/web:2-unready"))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2")
        .await;
    scene.available("cart").await;
    scene
        .kubectl(&["rollout", "pause", "deployment/cart"])
        .await;
    let status = scene.because("shop", Reason::RollbackStalled).await;
    assert!(
        message(&status, "Stalled").contains("rollout resume"),
        "{}",
        message(&status, "Stalled")
    );
    assert_eq!(scene.template("cart").await, before);
    scene
        .kubectl(&["rollout", "resume", "deployment/cart"])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene.available("cart").await;
    assert!(
        !scene
            .deployments()
            .get("cart")
            .await
            .unwrap()
            .spec
            .unwrap()
            .paused
            .unwrap_or_default()
    );
}

const INSISTENCE: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_millis(1500);

/// GO-01: a sync loop applies the refused content again and again, each time
/// with a stamp of its own. One release, one rollback, then nothing: the pods
/// stay on v1 and Belay writes nothing more. v3 starts at once.
#[tokio::test(flavor = "multi_thread")]
async fn go_01_a_sync_loop_with_refused_content_is_one_release_and_one_rollback() {
    let scene = Scene::new("go-01").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let before = scene.ready("shop").await;
    let witness = Witness::of(&scene, "shop").await;
    let synced = |round: usize| {
        plan("shop", &[("cart", "shop/cart:2-pullerror")], "").replace(
            "{name: shop}",
            &format!("{{name: shop, annotations: {{sync: 'n{round}'}}}}"),
        )
    };
    scene.apply(&synced(0)).await;
    scene.because("shop", Reason::RolledBack).await;
    scene.has_judged("shop", &before).await;
    let writes = scene.writes().await.len();
    let mut rounds = tokio::time::interval(PACE);
    let end = Instant::now() + INSISTENCE;
    let mut round = 0;
    while Instant::now() < end {
        rounds.tick().await;
        round += 1;
        scene.apply(&synced(round)).await;
    }
    assert!(round > 5, "it insisted {round} times");
    scene.assert_quiet("shop", 1).await;
    let after = scene.writes().await;
    assert_eq!(after.len(), writes, "{:#?}", &after[writes..]);
    assert_eq!(
        witness.phases(),
        [
            Phase::Stable,
            Phase::RollingOut,
            Phase::Rollback,
            Phase::Stable
        ]
    );
    witness.assert_coherent();
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.available("cart").await;

    let asked = Instant::now();
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 3", |d| image_of(d) == "shop/cart:3")
        .await;
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "v3 took {:?}",
        asked.elapsed()
    );
    scene.ready("shop").await;
}

/// GO-01 where the template lives in the Deployment: the sync loop applies the
/// bad Deployment. It is corrected a few times and then left to its writer,
/// loudly; v3 starts at once and settles it.
#[tokio::test(flavor = "multi_thread")]
async fn go_01_a_sync_loop_on_a_followed_deployment_is_corrected_a_few_times() {
    let scene = Scene::new("go-01-followed").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    let bad = deployment("cart", "shop/cart:2-pullerror", 2);
    scene.apply(&bad).await;
    scene.because("shop", Reason::RolledBack).await;
    let mut rounds = tokio::time::interval(PACE);
    let end = Instant::now() + INSISTENCE;
    while Instant::now() < end {
        rounds.tick().await;
        scene.apply(&bad).await;
    }
    let status = scene.because("shop", Reason::Contended).await;
    assert!(holds(&status, "Ready", "False") && holds(&status, "Stalled", "True"));
    assert!(
        message(&status, "Stalled").contains("kubectl"),
        "{}",
        message(&status, "Stalled")
    );
    assert_eq!(scene.image("cart").await, "shop/cart:2-pullerror");
    assert_eq!(
        templates(&scene, "shop/cart:1").await,
        4,
        "one rollback and three corrections"
    );
    let attempts: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(attempts, [ReleaseResult::RolledBack], "one release");
    let writes = scene.writes().await.len();
    assert!(writes < 40, "{writes} writes");

    let asked = Instant::now();
    scene.apply(&deployment("cart", "shop/cart:3", 2)).await;
    scene.phase("shop", Phase::RollingOut).await;
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "v3 took {:?}",
        asked.elapsed()
    );
    let status = scene.ready("shop").await;
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::Succeeded
    );
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}
