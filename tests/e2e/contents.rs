//! ConfigMaps of followed workloads: their contents go back themselves.

use std::time::Duration;

use belay::api::{CONFIG_DIGEST, Phase, Reason, ReleasePlanStatus};
use belay_testenv::AuditEntry;
use serde_json::{Value, json};

use crate::{
    configuration::{Configs, plan},
    support::{Scene, deployment, holds, image_of, message},
};

fn reading(name: &str) -> String {
    format!("  - workload: {{kind: Deployment, name: {name}}}\n    configMaps: [settings]\n")
}

async fn text(configs: &Configs<'_>) -> String {
    configs.api.get("settings").await.unwrap().data.unwrap()["text"].clone()
}

/// Writes of contents; giving up fields again is none.
fn contents(write: &AuditEntry) -> bool {
    let body = write.request_object.as_ref().map(ToString::to_string);
    write.resource == "configmaps"
        && write.name == "settings"
        && body.is_some_and(|body| body.contains("\"/data\"") || body.contains("\"kind\""))
}

/// What of the ConfigMap is Belay's.
async fn marks(configs: &Configs<'_>) -> Vec<String> {
    let object = configs.api.get("settings").await.unwrap();
    let managers = object.metadata.managed_fields.unwrap_or_default();
    let managers = managers.into_iter().filter_map(|entry| entry.manager);
    managers.filter(|manager| manager == "belay").collect()
}

async fn stamp(scene: &Scene, name: &str) -> Option<String> {
    let template = scene.template(name).await;
    let stamp = template["metadata"]["annotations"][CONFIG_DIGEST].as_str();
    stamp.map(str::to_owned)
}

async fn scene(name: &str) -> Scene {
    let scene = Scene::new(name).await;
    Configs::of(&scene).create("settings", "old").await;
    for app in ["cart", "web"] {
        scene
            .apply(&deployment(app, &format!("shop/{app}:1"), 1))
            .await;
    }
    for app in ["cart", "web"] {
        scene.available(app).await;
    }
    let rest = "  progressDeadline: 30s\n";
    scene
        .apply(&plan(&[reading("cart"), reading("web")], rest))
        .await;
    scene.ready("shop").await;
    assert_eq!(
        scene.writes_to_deployments().await.len(),
        0,
        "nothing restarts"
    );
    scene
}

fn released(status: &ReleasePlanStatus) -> bool {
    status.phase == Some(Phase::Stable) && holds(status, "Ready", "True")
}

/// An edit of the ConfigMap rolls the pods by one annotation.
#[tokio::test(flavor = "multi_thread")]
async fn other_contents_roll_the_pods_of_followed_workloads() {
    let scene = scene("contents-release").await;
    let configs = Configs::of(&scene);
    configs.edit("settings", "new").await;
    let status = scene
        .plan_until("shop", "released it", |s| {
            released(s) && s.history.len() == 1
        })
        .await;
    let changes = &status.history[0].changes;
    assert!(
        changes[0].starts_with("cart: configmap settings: ") && changes.len() == 2,
        "{changes:?}"
    );
    for app in ["cart", "web"] {
        scene.available(app).await;
        assert!(stamp(&scene, app).await.is_some());
    }
    scene
        .kubectl(&["label", "configmap", "settings", "team=shop"])
        .await;
    scene.assert_quiet("shop", 2).await;
    let before = scene.template("web").await;
    scene.kubectl(&["delete", "relplan", "shop"]).await;
    assert_eq!(scene.template("web").await, before);
    let live = scene.deployments().get("web").await.unwrap();
    let managers = live.metadata.managed_fields.unwrap();
    assert!(
        managers
            .iter()
            .all(|m| m.manager.as_deref() != Some("belay"))
    );
}

/// RB-06 and GO-01 for followed workloads: contents go back before any template
/// does, and are sent back a few times when they are applied again.
#[tokio::test(flavor = "multi_thread")]
async fn rb_06_contents_go_back_before_the_templates() {
    let scene = scene("contents-back").await;
    let configs = Configs::of(&scene);
    scene
        .kubectl(&["set", "image", "deployment/web", "app=shop/web:2-crash"])
        .await;
    configs.edit("settings", "bad").await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(text(&configs).await, "old");
    assert_eq!(scene.image("web").await, "shop/web:1");
    assert_eq!(
        (stamp(&scene, "cart").await, stamp(&scene, "web").await),
        (None, None)
    );
    let writes = scene.writes().await;
    let first = writes.iter().position(contents);
    let first = first.expect("the contents are written");
    let back = writes.iter().position(|w| {
        let body = w
            .request_object
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        w.resource == "deployments" && w.name == "web" && body.contains("shop/web:1")
    });
    assert!(Some(first) < back, "{first} {back:?}");
    assert_eq!(writes.iter().filter(|w| contents(w)).count(), 1);
    assert_eq!(marks(&configs).await, [""; 0]);

    // Somebody who insists, at a pace of their own.
    let insists = async {
        loop {
            configs.edit("settings", "bad").await;
            scene
                .kubectl(&["set", "image", "deployment/web", "app=shop/web:2-crash"])
                .await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = insists => {}
        _ = scene.because("shop", Reason::Contended) => {}
    }
    let now = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert_eq!(now.history.len(), status.history.len());
    let writes = scene.writes().await;
    let again = writes.iter().filter(|w| contents(w));
    // Three for each of the two that read it, and the rollback itself.
    assert!(again.count() <= 7);
    scene
        .kubectl(&["set", "image", "deployment/web", "app=shop/web:3"])
        .await;
    configs.edit("settings", "good").await;
    scene.plan_until("shop", "released it", released).await;
    assert_eq!(text(&configs).await, "good");
}

/// RB-06: an earlier revision brings its contents back.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_writes_the_contents_of_then() {
    let scene = scene("contents-undo").await;
    let configs = Configs::of(&scene);
    let first = scene.ready("shop").await.stable_revision.unwrap();
    configs.edit("settings", "new").await;
    scene
        .plan_until("shop", "released it", |s| {
            released(s) && s.history.len() == 1
        })
        .await;
    let undo = format!("belay.dev/undo={first}");
    scene.kubectl(&["annotate", "relplan", "shop", &undo]).await;
    scene
        .plan_until("shop", "went back to the first", |status| {
            let mut conditions = status.conditions.iter();
            let undone = conditions.any(|c| c.reason == Reason::Undone.as_str());
            undone && status.stable_revision.as_ref() == Some(&first)
        })
        .await;
    assert_eq!(text(&configs).await, "old");
    scene.assert_quiet("shop", 2).await;
    assert_eq!(text(&configs).await, "old");
}

/// What an order would bring back has to be there: who gives it hears of it at
/// once, and not only from an event.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_to_what_is_lost_is_refused() {
    let scene = scene("contents-lost").await;
    let configs = Configs::of(&scene);
    let first = scene.ready("shop").await.stable_revision.unwrap();
    configs.edit("settings", "new").await;
    scene
        .plan_until("shop", "released it", |s| {
            released(s) && s.history.len() == 1
        })
        .await;
    let undo = format!("belay.dev/undo={first}");
    let annotate = ["annotate", "relplan", "shop", &undo, "--dry-run=server"];
    let refused = async |words: &str| {
        let output = scene.kubectl_raw(&annotate).await;
        let flat = output.stderr.replace('\n', " ");
        assert!(!output.success() && flat.contains(words), "{flat}");
        let field = "metadata.annotations[belay.dev/undo]";
        assert!(flat.contains(field), "{flat}");
    };
    scene.kubectl(&annotate).await;
    let listed = scene
        .kubectl(&[
            "get",
            "configmap",
            "-l",
            "belay.dev/plan=shop",
            "-o",
            "json",
        ])
        .await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut snapshots = listed["items"].as_array().unwrap().iter();
    let old = snapshots.find(|map| map["data"]["text"] == "old").unwrap();
    let digest = old["metadata"]["annotations"]["belay.dev/digest"].as_str();
    let name = old["metadata"]["name"].as_str().unwrap();
    scene.kubectl(&["delete", "configmap", name]).await;
    let words = format!("the digest {} back first", digest.unwrap());
    refused(&words).await;
    // Something else under its name is in the way.
    configs.create(name, "old").await;
    refused("delete it first, and let settings hold").await;
    scene.kubectl(&["delete", "configmap", name]).await;
    // Where the ConfigMap has the contents, the snapshot can be made again.
    let pause = r#"{"spec":{"paused":true}}"#;
    let patch = ["patch", "relplan", "shop", "--type=merge", "-p", pause];
    scene.kubectl(&patch).await;
    configs.edit("settings", "old").await;
    scene.kubectl(&annotate).await;
    let delete = ["delete", "controllerrevision", &first];
    scene.kubectl(&delete).await;
    refused("its ControllerRevision was deleted or changed").await;
}

/// A ConfigMap that was deleted with the content that failed is made again, and
/// is as nobody's as one that was there.
#[tokio::test(flavor = "multi_thread")]
async fn no_mark_stays_on_what_went_back() {
    let scene = scene("contents-marks").await;
    let configs = Configs::of(&scene);
    scene
        .kubectl(&["set", "image", "deployment/web", "app=shop/web:2-crash"])
        .await;
    scene
        .plan_until("shop", "sees it", |s| s.phase == Some(Phase::RollingOut))
        .await;
    scene.kubectl(&["delete", "configmap", "settings"]).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(text(&configs).await, "old");
    assert_eq!(marks(&configs).await, [""; 0]);
    let again = scene
        .writes()
        .await
        .into_iter()
        .filter(|w| w.verb == "create" && contents(w));
    assert_eq!(again.count(), 1, "it was made again");
}

/// RB-06: contents that cannot be written hold only the workloads that read
/// them; all others go back at once.
#[tokio::test(flavor = "multi_thread")]
async fn contents_that_cannot_be_written_hold_no_other_workload() {
    let scene = Scene::new("contents-denied").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "old").await;
    for app in ["cart", "web"] {
        scene
            .apply(&deployment(app, &format!("shop/{app}:1"), 1))
            .await;
    }
    for app in ["cart", "web"] {
        scene.available(app).await;
    }
    // The way back begins with the last, which is the one that reads.
    let alone = "  - workload: {kind: Deployment, name: cart}\n".to_owned();
    let rest = "  progressDeadline: 30s\n";
    scene.apply(&plan(&[alone, reading("web")], rest)).await;
    scene.ready("shop").await;
    let objects =
        "apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]";
    deny(
        &scene,
        "contents-denied",
        objects,
        "object.data.text != 'old'",
    )
    .await;
    let probe = [
        "label",
        "configmap",
        "settings",
        "probe=x",
        "--dry-run=server",
    ];
    scene.refused(&probe).await;
    configs.edit("settings", "bad").await;
    scene.set_image("cart", "shop/cart:2-crash").await;
    scene
        .plan_until("shop", "goes back", |s| s.phase == Some(Phase::Rollback))
        .await;
    scene
        .deployment_until("cart", "goes back", |cart| image_of(cart) == "shop/cart:1")
        .await;
    assert_eq!(text(&configs).await, "bad");
    let waits = stamp(&scene, "web").await;
    assert!(waits.is_some(), "web waits for its contents");
    let status = scene.because("shop", Reason::ConfigMapRefused).await;
    let said = message(&status, "Ready");
    assert!(said.contains("the policy of the house"), "{said}");
    let failed = status.release.and_then(|release| release.failure);
    assert!(failed.is_some(), "why it goes back is recorded");
    scene.lift("contents-denied").await;
    scene.nudge("shop").await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(text(&configs).await, "old");
    assert_eq!(stamp(&scene, "web").await, None);
}

/// What cannot be taken away keeps no release from ending; the next one takes
/// it away.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_ends_though_its_garbage_stays() {
    let scene = scene("contents-garbage").await;
    let configs = Configs::of(&scene);
    let keep = json!({"spec": {"revisionHistoryLimit": 1}});
    scene.merge("relplan", "shop", &keep).await;
    let objects = "apiGroups: ['', apps], apiVersions: [v1], operations: [DELETE], resources: [configmaps, controllerrevisions]";
    deny(&scene, "contents-garbage", objects, "false").await;
    let probe = [
        "delete",
        "configmap",
        "kube-root-ca.crt",
        "--dry-run=server",
    ];
    scene.refused(&probe).await;
    for (number, text) in [(1, "b"), (2, "c"), (3, "d")] {
        configs.edit("settings", text).await;
        released_as(&scene, number).await;
    }
    let kept = configs.snapshots().await;
    assert_eq!(kept.len(), 4, "{kept:?}");
    scene.lift("contents-garbage").await;
    configs.edit("settings", "e").await;
    released_as(&scene, 4).await;
    // The binding may take a moment to go, and each release takes away.
    configs.edit("settings", "f").await;
    released_as(&scene, 5).await;
    let kept = configs.snapshots().await;
    let texts: Vec<&str> = kept.values().map(String::as_str).collect();
    assert!(texts.contains(&"f") && !texts.contains(&"old"), "{kept:?}");
}

async fn released_as(scene: &Scene, number: i64) {
    scene
        .plan_until("shop", "released it", |s| {
            let last = s.history.last().map(|record| record.number);
            released(s) && last.is_some_and(|last| last == number)
        })
        .await;
}

/// Makes the API server refuse something of this namespace.
async fn deny(scene: &Scene, name: &str, objects: &str, unless: &str) {
    let namespace = &scene.namespace;
    scene
        .apply(&format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules:
    - {{{objects}}}
  validations:
  - expression: \"{unless}\"
    message: the policy of the house
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
        ))
        .await;
}
