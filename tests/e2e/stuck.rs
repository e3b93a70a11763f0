//! Rollbacks that cannot come to their end at once.

use belay::api::{Phase, Reason, ReleaseResult};

use crate::{
    support::{Scene, holds, message, plan},
    witness::{Witness, image_in},
};

/// The quota that the pods of v1 no longer fit into, and those of others do.
const TIGHT: &str = "apiVersion: v1
kind: ResourceQuota
metadata: {name: cpu}
spec: {hard: {requests.cpu: 100m}}
";

fn with(image: &str, cpu: &str) -> String {
    let rest = "  progressDeadline: 4s\n";
    plan("shop", &[("cart", image)], rest).replace(
        &format!("image: \"{image}\""),
        &format!("image: \"{image}\", resources: {{requests: {{cpu: {cpu}}}}}"),
    )
}

/// Brings a plan to where its rollback cannot go on: the old pods are gone and
/// new ones of the old template are refused.
async fn stalled(scene: &Scene) {
    scene.deployment("cart", "shop/cart:1", 1).await;
    let recreate = r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", recreate])
        .await;
    scene.apply(&with("shop/cart:1", "200m")).await;
    scene.ready("shop").await;
    scene.available("cart").await;
    scene.apply(TIGHT).await;
    scene.apply(&with("shop/cart:2-pullerror", "50m")).await;
    let status = scene.because("shop", Reason::RollbackStalled).await;
    assert_eq!(status.phase, Some(Phase::Rollback));
    assert!(holds(&status, "Stalled", "True") && holds(&status, "Ready", "False"));
    let text = message(&status, "Stalled");
    assert!(
        text.contains("deployment cart") && text.contains("new content"),
        "{text}"
    );
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// How often the operator wrote a template.
async fn templates(scene: &Scene) -> usize {
    let writes = scene.writes_to_deployments().await;
    writes
        .iter()
        .filter_map(|w| image_in(w.request_object.as_ref()?))
        .count()
}

/// RB-04: the pods of v1 cannot come back. The plan says so within a bounded
/// time and never that it succeeded; when they can, it heals without an edit.
#[tokio::test(flavor = "multi_thread")]
async fn rb_04_a_stuck_rollback_says_so_and_heals_without_an_edit() {
    let scene = Scene::new("rb-04-heals").await;
    stalled(&scene).await;
    let templates = templates(&scene).await;
    let witness = Witness::of(&scene, "shop").await;
    let roomy = r#"{"spec":{"hard":{"requests.cpu":"2"}}}"#;
    scene
        .kubectl(&["patch", "resourcequota", "cpu", "-p", roomy])
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(status.phase, Some(Phase::Stable));
    assert_eq!(
        status.history.last().unwrap().result,
        ReleaseResult::RolledBack
    );
    scene.available("cart").await;
    assert_eq!(
        self::templates(&scene).await,
        templates,
        "everything had been written already"
    );
    witness.saw(&status).await;
    assert_eq!(witness.phases(), [Phase::Rollback, Phase::Stable]);
    witness.assert_coherent();
}

/// RB-04: newer content is accepted while the rollback is stuck, and gets it
/// out.
#[tokio::test(flavor = "multi_thread")]
async fn rb_04_newer_content_gets_a_stuck_rollback_out() {
    let scene = Scene::new("rb-04-newer").await;
    stalled(&scene).await;
    scene.apply(&with("shop/cart:3", "50m")).await;
    let status = scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(
        results[results.len() - 2..],
        [ReleaseResult::RolledBack, ReleaseResult::Succeeded]
    );
    assert_eq!(status.refused.len(), 1, "v2 stays refused");
}
