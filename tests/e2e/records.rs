//! The operator's memory: statuses and revisions that are deleted, wiped or
//! forged, and what is kept of them in the long run.

use belay::api::{FINALIZER, Reason, ReleasePlanStatus};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::{Value, json};

use crate::support::{PATIENCE, SOON, Scene, following, holds, image_of, plan, why};

async fn delete_revisions(scene: &Scene) {
    scene
        .kubectl(&["delete", "controllerrevisions", "--all"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_at_rest_are_missed_loudly_and_a_new_plan_helps() {
    let scene = Scene::new("records-rest").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    delete_revisions(&scene).await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    scene.because("shop", Reason::RevisionLost).await;
    scene.assert_calm().await;
    scene.delete_plans(&["shop"]).await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

/// Nothing else happens to the plans: the operator looks for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_revision_deleted_at_rest_is_made_again_or_told_before_it_is_needed() {
    let cluster = crate::recovery::cluster().await;
    let _operator = {
        let cluster = cluster.clone();
        let options = crate::support::options().arg("--resync").arg("2s");
        let start = move || belay_testenv::Operator::start(&cluster, &options).unwrap();
        tokio::task::spawn_blocking(start).await.unwrap()
    };
    let scene = Scene::on(&cluster, "records-looked-for").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.apply(&following("site", &["web"], "")).await;
    let site = scene.ready("site").await.stable_revision.unwrap();
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    delete_revisions(&scene).await;
    let told = |s: &ReleasePlanStatus| why(s).contains("is gone, so nothing could go back to it");
    let shop = scene.plan_until("shop", "tells of it", told).await;
    assert!(holds(&shop, "Ready", "True"), "{}", why(&shop));
    let (client, namespace) = (scene.client.clone(), &scene.namespace);
    let revisions = kube::Api::<ControllerRevision>::namespaced(client, namespace);
    let made =
        kube::runtime::wait::await_condition(revisions, &site, |found: Option<&_>| found.is_some());
    tokio::time::timeout(SOON, made).await.unwrap().unwrap();
    let site = scene.ready("site").await;
    assert!(!told(&site), "{}", why(&site));
    scene
        .kubectl(&["set", "image", "deployment/web", "app=shop/web:2-pullerror"])
        .await;
    scene.because("site", Reason::RolledBack).await;
    assert_eq!(scene.image("web").await, "shop/web:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_in_mid_release_are_told_and_keep_lets_go() {
    let scene = Scene::new("records-mid").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene.shop(&[("cart", "shop/cart:2-unready")], "").await;
    scene.because("shop", Reason::Promoting).await;
    delete_revisions(&scene).await;
    // The running release still knows them.
    scene.shop(&[("cart", "shop/cart:1")], "").await;
    scene
        .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
        .await;
    scene.ready("shop").await;
    scene.shop(&[("cart", "shop/cart:3")], "").await;
    let end = scene.because("shop", Reason::RevisionLost).await;
    assert!(holds(&end, "Stalled", "True") && holds(&end, "Ready", "False"));
    scene.assert_calm().await;
    let keep = json!({"spec": {"deletionPolicy": "Keep"}});
    scene.merge("relplan", "shop", &keep).await;
    scene.delete_plans(&["shop"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_at_rest_is_made_again() {
    let scene = Scene::new("records-wiped").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.shop(&[("cart", "shop/cart:2")], "").await;
    scene.ready("shop").await;
    scene.wipe_status("shop").await;
    scene.ready("shop").await;
    // And a failure still goes back.
    scene.shop(&[("cart", "shop/cart:3-pullerror")], "").await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    scene.assert_calm().await;
    scene.delete_plans(&["shop"]).await;
    assert_eq!(scene.revisions().await, 0);
}

/// Never Ready on content that crashes, whatever becomes of the status.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_in_mid_release_does_not_make_broken_content_ready() {
    let scene = Scene::new("records-wiped-mid").await;
    let rest = "  progressDeadline: 5s\n";
    scene.stable(&[("cart", "shop/cart:1")], rest).await;
    scene.shop(&[("cart", "shop/cart:2-unready")], rest).await;
    scene.because("shop", Reason::Promoting).await;
    scene.wipe_status("shop").await;
    let status = scene.because("shop", Reason::StatusLost).await;
    assert!(!holds(&status, "Ready", "True"), "{}", why(&status));
    scene.assert_calm().await;
    // The way out that it names.
    let path = "jsonpath={.items[?(@.revision==0)].metadata.name}";
    let stable = scene
        .kubectl(&["get", "controllerrevisions", "-o", path])
        .await;
    assert!(why(&status).contains(stable.trim()), "{}", why(&status));
    let undo = format!("belay.dev/undo={}", stable.trim());
    scene.kubectl(&["annotate", "relplan", "shop", &undo]).await;
    scene
        .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
        .await;
    scene.shop(&[("cart", "shop/cart:3")], rest).await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

/// A release that a status tells of which never was.
fn release(revisions: [&str; 2], phase: &str, stage: &str) -> Value {
    let since = "2020-01-01T00:00:00.000000Z";
    json!({"status": {
        "stableRevision": revisions[0], "targetRevision": revisions[1], "phase": phase,
        "release": {
            "number": 1, "kind": "Content", "stage": stage, "content": "x",
            "startedAt": since, "stageSince": since, "applied": revisions,
        },
    }})
}

/// Statuses that somebody made up: names of nothing, a stage that does not fit,
/// times of the far future. Whatever they lead to is told, no plan is Ready on
/// content that it does not have, nothing spins, and there is always a way out.
#[tokio::test(flavor = "multi_thread")]
async fn forged_statuses_neither_spin_nor_panic() {
    let scene = Scene::new("records-forged").await;
    let mut no_stable = release(["", ""], "Rollback", "Restore");
    no_stable["status"]["stableRevision"] = Value::Null;
    no_stable["status"]["targetRevision"] = Value::Null;
    no_stable["status"]["release"]["applied"] = json!([]);
    let mut future = release(["", ""], "RollingOut", "Settle");
    let late = "9999-01-01T00:00:00.000000Z";
    future["status"] = json!({"phase": "RollingOut", "release": {
        "number": i64::MAX, "kind": "Content", "stage": "Settle", "content": "x",
        "startedAt": late, "stageSince": late, "applied": [],
    }});
    let odd = json!({"status": {
        "stableRevision": "../../x?y=z", "phase": "Stable", "components": [],
    }});
    let frozen = json!({"status": {"phase": "Frozen"}});
    let lost = Some("RevisionLost");
    let forged = [
        (
            "names",
            release(["nope", "nada"], "RollingOut", "Bake"),
            lost,
        ),
        ("empty", release(["", ""], "RollingOut", "Restore"), lost),
        ("none", no_stable, lost),
        ("odd", odd, lost),
        ("frozen", frozen, None),
        ("future", future, None),
    ];
    for (name, ..) in &forged {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
    }
    for (name, ..) in &forged {
        scene.ready(name).await;
    }
    for (name, patch, _) in &forged {
        let out = scene.merge_status(name, patch).await;
        assert!(out.success(), "{name}: {}", out.stderr);
        scene.apply(&plan(name, &[(name, "shop/x:2")], "")).await;
    }
    for (name, _, verdict) in &forged {
        let told = |s: &ReleasePlanStatus| match verdict {
            Some(reason) => why(s).starts_with(reason) && holds(s, "Ready", "False"),
            None => why(s).starts_with("Released"),
        };
        scene.plan_until(name, "has a verdict", told).await;
        let image = match verdict {
            Some(_) => "shop/x:1",
            None => "shop/x:2",
        };
        scene
            .deployment_until(name, "is what the plan says", |d| image_of(d) == image)
            .await;
    }
    scene.assert_calm().await;
    for (name, ..) in &forged {
        let keep = json!({"spec": {"deletionPolicy": "Keep"}});
        scene.merge("relplan", name, &keep).await;
    }
    let names = forged.each_ref().map(|(name, ..)| *name);
    scene
        .kubectl(&[&["delete", "relplan", PATIENCE], &names[..]].concat())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_removed_by_hand_comes_back() {
    let scene = Scene::new("records-finalizer").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    let none = json!({"metadata": {"finalizers": null}});
    scene.merge("relplan", "shop", &none).await;
    let stored = scene.plans().get("shop").await.unwrap();
    let finalizers = stored.metadata.finalizers.unwrap_or_default();
    assert!(finalizers.iter().any(|f| f == FINALIZER), "{finalizers:?}");
}

/// A component gets another name again and again, which releases nothing.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_components_leave_no_revisions_behind() {
    let scene = Scene::new("records-renames").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    for n in 0..8 {
        let manifest = plan("shop", &[("cart", "shop/cart:1")], "")
            .replace("  - workload", &format!("  - name: c{n}\n    workload"));
        scene.apply(&manifest).await;
        scene
            .plan_until("shop", "has the new name", |s| {
                s.components.iter().any(|c| c.name == format!("c{n}")) && holds(s, "Ready", "True")
            })
            .await;
    }
    let count = scene.revisions().await;
    assert!(
        count <= 3,
        "{count} revisions after 8 renames and not one release"
    );
}

/// Many edits in one long release stay within `revisionHistoryLimit`.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_superseded_many_times_keeps_its_records_bounded() {
    let scene = Scene::new("records-superseded").await;
    let rest = "  revisionHistoryLimit: 3\n";
    scene.stable(&[("cart", "shop/cart:1")], rest).await;
    for n in 2..12 {
        let image = format!("shop/cart:{n}-unready");
        scene.shop(&[("cart", &image)], rest).await;
        scene
            .deployment_until("cart", &image, |d| image_of(d) == image)
            .await;
    }
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(
        status.history.len() <= 4,
        "{} records with a limit of 3",
        status.history.len()
    );
    // What a restore has to take back: one for each that was applied.
    let applied = status.release.unwrap().applied.len();
    assert!(applied <= 10, "{applied} applied");
}
