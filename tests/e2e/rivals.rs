//! Several plans, one workload; and plans before their workloads.

use std::collections::BTreeSet;

use belay::api::{Reason, ReleasePlan, StoredPlan};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};

use crate::support::{SOON, Scene, deployment, following, holds, owned, plan, why};

/// WV-06: one file with the plan first and its targets later. Admission warns
/// and lets it in, the plan waits for its targets and goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn wv_06_a_plan_may_come_before_its_targets() {
    let scene = Scene::new("wv-06").await;
    let output = scene
        .try_apply(
            &plan(
                "shop",
                &[("cart", "shop/cart:1"), ("web", "shop/web:1")],
                "",
            ),
            &[],
        )
        .await;
    assert!(output.success(), "{}", output.stderr);
    assert!(
        output.stderr.contains("deployment cart"),
        "a warning names it: {}",
        output.stderr
    );
    let status = scene.because("shop", Reason::TargetsMissing).await;
    let text = crate::support::message(&status, "Ready");
    assert!(
        text.contains("deployment cart") && text.contains("deployment web"),
        "{text}"
    );
    scene.apply(&deployment("cart", "shop/cart:1", 1)).await;
    scene
        .plan_until("shop", "only web is missing", |s| {
            !crate::support::message(s, "Ready").contains("deployment cart")
        })
        .await;
    scene.apply(&deployment("web", "shop/web:1", 1)).await;
    scene.ready("shop").await;
}

/// WV-07: twenty plans made at the same moment name one Deployment. Exactly one
/// of them writes; when it goes, exactly one takes over.
#[tokio::test(flavor = "multi_thread")]
async fn wv_07_of_twenty_plans_exactly_one_writes() {
    let scene = Scene::new("wv-07").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let api = Api::<ReleasePlan>::namespaced(scene.client.clone(), &scene.namespace);
    let creates = (0..20).map(|number| {
        let api = api.clone();
        let plan: ReleasePlan = serde_json::from_value(serde_json::json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
            "metadata": {"name": format!("plan-{number:02}")},
            "spec": {"components": [{
                "workload": {"kind": "Deployment", "name": "cart"},
                "template": {"spec": {"containers": [{"name": "app", "image": format!("shop/cart:v{number}")}]}},
            }]},
        }))
        .unwrap();
        async move { api.create(&PostParams::default(), &plan).await }
    });
    for created in futures::future::join_all(creates).await {
        created.unwrap();
    }
    let first = settled(&scene, 20).await;
    let images = images(&scene).await;
    assert_eq!(
        images,
        BTreeSet::from([format!("shop/cart:v{}", number(&first))])
    );

    api.delete(&first, &DeleteParams::default()).await.unwrap();
    let second = settled(&scene, 19).await;
    assert_ne!(first, second);
    let images = self::images(&scene).await;
    assert_eq!(
        images,
        BTreeSet::from([first, second].map(|plan| format!("shop/cart:v{}", number(&plan))))
    );
}

fn number(plan: &str) -> usize {
    plan.trim_start_matches("plan-").parse().unwrap()
}

/// Images that the operator wrote to the Deployment.
async fn images(scene: &Scene) -> BTreeSet<String> {
    let writes = scene.writes_to_deployments().await;
    writes
        .iter()
        .filter_map(|write| write.request_object.as_ref())
        .filter_map(|object| object.pointer("/spec/template/spec/containers/0/image"))
        .map(|image| image.as_str().unwrap().to_owned())
        .collect()
}

/// Waits until of `count` plans one is Ready and all others say Conflict, and
/// names the one.
async fn settled(scene: &Scene, count: usize) -> String {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let plans = scene
            .plans()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let status = |plan: &StoredPlan| plan.status.clone().unwrap_or_default();
        let ready: Vec<String> = plans
            .iter()
            .filter(|plan| holds(&status(plan), "Ready", "True"))
            .map(StoredPlan::name_any)
            .collect();
        let waiting = plans
            .iter()
            .filter(|plan| {
                status(plan)
                    .conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && c.reason == Reason::Conflict.as_str())
            })
            .count();
        if plans.len() == count && ready.len() == 1 && waiting == count - 1 {
            return ready.into_iter().next().unwrap();
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "of {} plans {ready:?} are ready and {waiting} wait",
            plans.len()
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_plan_is_admitted_with_a_warning_and_writes_nothing() {
    let scene = Scene::new("rivals-second").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("first", &["cart"], "")).await;
    scene.ready("first").await;
    let output = scene
        .try_apply(&plan("second", &[("cart", "shop/cart:2")], ""), &[])
        .await;
    assert!(
        output.success() && output.stderr.contains("first"),
        "{}",
        output.stderr
    );
    let status = scene.because("second", Reason::Conflict).await;
    assert!(crate::support::message(&status, "Stalled").contains("releaseplan first"));
    assert_eq!(scene.writes_to_deployments().await.len(), 0);
    scene.kubectl(&["delete", "relplan", "first"]).await;
    scene.ready("second").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_overlap_in_part_and_a_workload_that_moves_between_them() {
    let scene = Scene::new("rivals-overlap").await;
    for name in ["xx", "yy", "zz"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene
        .apply(&plan("a", &[("xx", "shop/x:1"), ("yy", "shop/x:1")], ""))
        .await;
    scene.ready("a").await;
    scene
        .apply(&plan("b", &[("yy", "shop/x:2"), ("zz", "shop/x:2")], ""))
        .await;
    let b = scene.because("b", Reason::Conflict).await;
    assert!(why(&b).contains("releaseplan a"));
    assert_eq!(
        scene.image("zz").await,
        "shop/x:1",
        "a plan in conflict writes nothing"
    );
    // In mid-release it stays.
    scene
        .apply(&plan(
            "a",
            &[("xx", "shop/x:1-slow"), ("yy", "shop/x:1-slow")],
            "",
        ))
        .await;
    scene.because("a", Reason::Promoting).await;
    let out = scene
        .try_apply(&plan("a", &[("xx", "shop/x:1-slow")], ""), &[])
        .await;
    assert!(
        !out.success(),
        "the set of components is fixed in mid-release"
    );
    scene.ready("a").await;
    scene
        .apply(&plan("a", &[("xx", "shop/x:1-slow")], ""))
        .await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:2");
    assert_eq!(scene.image("xx").await, "shop/x:1-slow");
    // And back, and forth within one breath.
    scene.apply(&plan("b", &[("zz", "shop/x:2")], "")).await;
    scene
        .apply(&plan(
            "a",
            &[("yy", "shop/x:5"), ("xx", "shop/x:1-slow")],
            "",
        ))
        .await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:5");
    scene.assert_calm().await;
    scene.delete_plans(&["a", "b"]).await;
    assert_eq!(scene.revisions().await, 0);
    for name in ["xx", "yy", "zz"] {
        let live = scene.deployments().get(name).await.unwrap();
        let ours = owned(&live);
        assert!(ours.is_empty(), "{name}: {ours:#?}");
    }
}
