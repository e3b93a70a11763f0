//! What is left of plans that vanished while no operator ran.

use std::sync::Arc;

use belay::api::{PLAN_UID, Reason};
use belay_testenv::AuditFilter;
use k8s_openapi::{api::apps::v1::ControllerRevision, jiff::SignedDuration};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::support::{Scene, now, own, owned, pass_time, plan};

/// Things younger than this are left alone by the sweep.
const AGE: SignedDuration = SignedDuration::from_secs(60);

async fn revisions(scene: &Scene) -> Vec<ControllerRevision> {
    let api = Api::<ControllerRevision>::namespaced(scene.client.clone(), &scene.namespace);
    api.list(&ListParams::default()).await.unwrap().items
}

/// Names of the revisions of a plan of this uid.
async fn revisions_of(scene: &Scene, uid: &str) -> Vec<String> {
    let all = revisions(scene).await;
    let of_plan = |r: &&ControllerRevision| r.labels().get(PLAN_UID).is_some_and(|u| u == uid);
    all.iter().filter(of_plan).map(|r| r.name_any()).collect()
}

/// Sets what the API server does about plans while nobody answers for the
/// webhooks.
async fn failure_policy(scene: &Scene, policy: &str) {
    let patch = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]);
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        let patch = patch.to_string();
        let args = ["patch", kind, "belay.dev", "--type=json", "-p", &patch];
        scene.kubectl(&args).await;
    }
}

/// Two plans vanish while no operator runs, one at rest and one in mid-release:
/// somebody took their finalizers off. The next operator deletes their revisions
/// and gives up their fields, whose values stay. Nothing of a plan that is
/// there, and nothing of others', is touched.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_vanished_plans_is_swept_at_start_and_nothing_else() {
    let (cluster, operator) = own().await;
    let scene = Scene::on(&cluster, "swept").await;
    let names = ["rest", "middle", "living", "moving"];
    for name in names {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
    }
    for name in names {
        scene.ready(name).await;
    }
    for name in ["middle", "moving"] {
        let manifest = plan(name, &[(name, "shop/x:2-unready")], "");
        scene.apply(&manifest).await;
        scene.because(name, Reason::Promoting).await;
        scene
            .deployment_until(name, "has 2", |d| {
                crate::support::image_of(d) == "shop/x:2-unready"
            })
            .await;
    }
    // Others': a revision without our label, and an applier of our kind.
    let other = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "metadata": {"name": "other", "labels": {"app": "other"}}, "data": {"a": "b"},
    });
    scene.apply(&other.to_string()).await;
    scene.deployment("other", "shop/x:1", 1).await;
    let mut uids = std::collections::BTreeMap::new();
    for name in names {
        let uid = scene.plans().get(name).await.unwrap().uid().unwrap();
        assert!(!revisions_of(&scene, &uid).await.is_empty(), "{name}");
        let live = scene.deployments().get(name).await.unwrap();
        assert_eq!(owned(&live).len(), 1, "{name}");
        uids.insert(name, uid);
    }

    let stopped = Arc::clone(&operator);
    tokio::task::spawn_blocking(move || stopped.kill().unwrap())
        .await
        .unwrap();
    failure_policy(&scene, "Ignore").await;
    for name in ["rest", "middle"] {
        scene
            .kubectl(&["delete", "relplan", name, "--wait=false"])
            .await;
        let none = json!({"metadata": {"finalizers": Value::Null}});
        scene.merge("relplan", name, &none).await;
        scene.gone(name).await;
    }
    failure_policy(&scene, "Fail").await;
    // The sweep leaves alone what its plan may not be known of yet.
    let youngest = revisions(&scene).await;
    let youngest = youngest.iter().filter_map(|r| r.creation_timestamp()).max();
    let written = scene.writes_to_deployments().await;
    let written = written.last().unwrap().completed;
    let old = youngest.unwrap().0.max(written) + AGE + SignedDuration::from_secs(1);
    let wait = old.duration_since(now()).max(SignedDuration::ZERO);
    pass_time(wait.unsigned_abs()).await;
    let before: Vec<_> = names.to_vec();
    let mut templates = Vec::new();
    for name in &before {
        templates.push(scene.template(name).await);
    }
    let kept = [&uids["living"], &uids["moving"]];
    let mut kept_revisions = Vec::new();
    for uid in kept {
        kept_revisions.push(revisions_of(&scene, uid).await);
    }
    let writes = scene.writes().await.len();
    let restarted = Arc::clone(&operator);
    tokio::task::spawn_blocking(move || restarted.restart().unwrap())
        .await
        .unwrap();

    for name in ["rest", "middle"] {
        scene
            .deployment_until(name, "is unmarked", |d| owned(d).is_empty())
            .await;
        let left = revisions_of(&scene, &uids[name]).await;
        assert_eq!(left, Vec::<String>::new(), "{name}");
    }
    for (name, template) in before.iter().zip(templates) {
        assert_eq!(scene.template(name).await, template, "{name}");
    }
    for (uid, revisions) in kept.iter().zip(kept_revisions) {
        assert_eq!(revisions_of(&scene, uid).await, revisions);
    }
    for name in ["living", "moving"] {
        let live = scene.deployments().get(name).await.unwrap();
        assert_eq!(owned(&live).len(), 1, "{name}");
    }
    let others = AuditFilter::new()
        .namespace(&scene.namespace)
        .name("other")
        .service_account("belay-system", "belay");
    let others = scene.audited(others.writes()).await;
    assert!(others.is_empty(), "{others:#?}");
    scene.kubectl(&["get", "controllerrevision", "other"]).await;
    // Revisions and marks of the two, and nothing else.
    let writes = scene.writes().await.split_off(writes);
    for write in &writes {
        let swept = match (write.verb.as_str(), write.resource.as_str()) {
            ("delete", "controllerrevisions") => {
                write.name.starts_with("rest-") || write.name.starts_with("middle-")
            }
            ("patch", "deployments") => write.name == "rest" || write.name == "middle",
            _ => write.name == "moving" || write.resource == "events",
        };
        assert!(swept, "{write:#?}");
    }
    // Both can still go back.
    scene
        .apply(&plan("moving", &[("moving", "shop/x:1")], ""))
        .await;
    scene.ready("moving").await;
    assert_eq!(scene.image("moving").await, "shop/x:1");
    // A new plan takes what the vanished one left.
    scene
        .apply(&plan("rest", &[("rest", "shop/x:3")], ""))
        .await;
    scene.ready("rest").await;
    assert_eq!(scene.image("rest").await, "shop/x:3");
}
