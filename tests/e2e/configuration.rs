//! ConfigMaps that are released with the templates that name them.

use std::{collections::BTreeMap, time::Duration};

use belay::{
    api::{PLAN_UID, Reason, ReleaseResult},
    config_maps::{names, snapshot_name},
};
use belay_testenv::{AuditEntry, AuditFilter};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{SOON, Scene, holds, image_of, message};

/// A Deployment whose pods read a ConfigMap in three ways.
pub fn deployment(name: &str, image: &str, config: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: 1
  revisionHistoryLimit: 0
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: app
        image: {image}
        envFrom: [{{configMapRef: {{name: {config}}}}}]
        volumeMounts: [{{name: config, mountPath: /config}}]
      volumes:
      - name: config
        projected: {{sources: [{{configMap: {{name: {config}}}}}]}}
"
    )
}

/// A component that tracks what its Deployment reads.
pub fn tracking(name: &str, image: &str, config: &str) -> String {
    format!(
        "  - workload: {{kind: Deployment, name: {name}}}
    configMaps: [{config}]
    template:
      spec:
        containers:
        - {{name: app, image: \"{image}\", envFrom: [{{configMapRef: {{name: {config}}}}}]}}
        volumes:
        - {{name: config, projected: {{sources: [{{configMap: {{name: {config}}}}}]}}}}
"
    )
}

pub fn plan(components: &[String], rest: &str) -> String {
    format!(
        "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
{}{rest}",
        components.concat()
    )
}

/// What users do with ConfigMaps, and what is made of them.
pub struct Configs<'a> {
    scene: &'a Scene,
    pub api: Api<ConfigMap>,
}

impl<'a> Configs<'a> {
    pub fn of(scene: &'a Scene) -> Self {
        Self {
            scene,
            api: Api::namespaced(scene.client.clone(), &scene.namespace),
        }
    }

    pub async fn create(&self, name: &str, text: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                            "data": {"text": text}, "binaryData": {"raw": ByteString(text.as_bytes().to_vec())}});
        let object = serde_json::from_value(object).unwrap();
        let created = self.api.create(&PostParams::default(), &object).await;
        created.unwrap();
    }

    pub async fn edit(&self, name: &str, text: &str) {
        let patch = json!({"data": {"text": text}, "binaryData": {"raw": ByteString(text.as_bytes().to_vec())}});
        let params = PatchParams::default();
        let patched = self.api.patch(name, &params, &Patch::Merge(patch)).await;
        patched.unwrap();
    }

    /// The snapshots that there are: contents by name.
    pub async fn snapshots(&self) -> BTreeMap<String, String> {
        let params = ListParams::default().labels(PLAN_UID);
        let listed = self.api.list(&params).await.unwrap();
        let text = |object: ConfigMap| {
            assert_eq!(object.immutable, Some(true));
            assert!(object.metadata.owner_references.is_none());
            let text = object.data.as_ref().unwrap()["text"].clone();
            let raw = &object.binary_data.as_ref().unwrap()["raw"].0;
            assert_eq!(raw, text.as_bytes());
            (object.name_any(), text)
        };
        listed.items.into_iter().map(text).collect()
    }

    /// What the pods of a Deployment read, each way that they read it.
    pub async fn read_by(&self, deployment: &str) -> Vec<String> {
        let pods = Api::<Pod>::namespaced(self.scene.client.clone(), &self.scene.namespace);
        let params = ListParams::default().labels(&format!("app={deployment}"));
        let mut read = Vec::new();
        for pod in pods.list(&params).await.unwrap().items {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            for name in names(&serde_json::to_value(&pod).unwrap()) {
                if name == "kube-root-ca.crt" {
                    continue;
                }
                let object = self.api.get_opt(&name).await.unwrap();
                let object =
                    object.unwrap_or_else(|| panic!("{name}, which a pod reads, is there"));
                read.push(object.data.unwrap()["text"].clone());
            }
        }
        read
    }
}

/// Lets a plan and contents become one release.
async fn together(scene: &Scene, configs: &Configs<'_>, plan: &str, text: &str) {
    scene.apply(&format!("{plan}  paused: true\n")).await;
    configs.edit("settings", text).await;
    scene.because("shop", Reason::Paused).await;
    scene.apply(&format!("{plan}  paused: false\n")).await;
}

/// Names of ConfigMaps in a template that was written.
fn named(write: &AuditEntry) -> Vec<String> {
    let body = write.request_object.clone().unwrap_or_default();
    let patched = body.as_array().into_iter().flatten();
    let patched = patched.filter(|o| o["path"] == "/spec/template");
    let templates: Vec<Value> = patched
        .map(|o| o["value"].clone())
        .chain([body["spec"]["template"].clone()])
        .collect();
    templates.iter().flat_map(names).collect()
}

/// RB-06: code and configuration of three components are released together and
/// the third is broken. Nothing ever named a snapshot that was not there, and
/// what comes back reads the old contents, byte for byte, also since the
/// ConfigMap was deleted. The users' manifests differ from what is live only in
/// the name of the ConfigMap.
#[tokio::test(flavor = "multi_thread")]
async fn rb_06_code_and_configuration_go_back_together() {
    let scene = Scene::new("rb-06").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "old \u{1f600}").await;
    let apps = ["cart", "web", "mail"];
    for app in apps {
        scene
            .apply(&deployment(app, &format!("shop/{app}:1"), "settings"))
            .await;
    }
    for app in apps {
        scene.available(app).await;
    }
    let with = |version: &str, last: &str| {
        let components =
            ["cart", "web"].map(|a| tracking(a, &format!("shop/{a}:{version}"), "settings"));
        let last = tracking("mail", &format!("shop/mail:{last}"), "settings");
        plan(&[&components[..], &[last]].concat(), "")
    };
    scene.apply(&with("1", "1")).await;
    scene.ready("shop").await;
    assert_eq!(configs.snapshots().await.len(), 1, "one for all of them");
    together(&scene, &configs, &with("2", "2-crash"), "new").await;
    scene
        .deployment_until("mail", "gets 2", |d| image_of(d) == "shop/mail:2-crash")
        .await;
    let params = DeleteParams::default();
    configs.api.delete("settings", &params).await.unwrap();
    let status = scene.because("shop", Reason::RolledBack).await;
    for app in apps {
        scene.available(app).await;
        assert_eq!(scene.image(app).await, format!("shop/{app}:1"));
        assert_eq!(configs.read_by(app).await, ["old \u{1f600}"]);
    }
    let record = status.history.last().unwrap();
    assert_eq!(record.result, ReleaseResult::RolledBack);
    let changes = record.changes.join("\n");
    assert!(
        changes.contains("mail: containers[app].image: shop/mail:1 → shop/mail:2-crash")
            && changes.contains("mail: configmap settings: "),
        "{changes}"
    );

    let writes = scene.writes().await;
    let mut counted = 0;
    for (at, write) in writes.iter().enumerate() {
        if write.resource != "deployments" {
            continue;
        }
        for name in named(write) {
            let before = writes[..at].iter();
            let made = before.filter(|w| w.resource == "configmaps" && w.verb == "create");
            let mut made = made.filter(|w| w.completed <= write.received);
            assert!(
                made.any(|w| w.name == name),
                "{name} is there before {}",
                write.name
            );
            counted += 1;
        }
    }
    assert!(counted >= 9, "{counted} references were written");

    configs.create("settings", "old \u{1f600}").await;
    for app in apps {
        let manifest = deployment(app, &format!("shop/{app}:1"), "settings");
        let file = std::env::temp_dir().join(format!("belay-rb-06-{app}-{}", std::process::id()));
        std::fs::write(&file, manifest).unwrap();
        let diff = scene
            .kubectl_raw(&["diff", "-f", file.to_str().unwrap()])
            .await;
        std::fs::remove_file(&file).unwrap();
        let changed = diff.stdout.lines().filter(|l| {
            l.starts_with(['+', '-']) && !l.starts_with("+++") && !l.starts_with("---")
        });
        let odd: Vec<&str> = changed
            .filter(|l| !l.contains("name: settings") && !l.contains("generation:"))
            .collect();
        assert_eq!(odd, [""; 0], "{}", diff.stdout);
    }
}

/// Only other contents are a release: labels are not, and a hundred edits in ten
/// seconds end in a few releases and the last contents. An idle plan reads no
/// ConfigMap.
#[tokio::test(flavor = "multi_thread")]
async fn only_contents_are_released_and_bursts_are_few_releases() {
    let scene = Scene::new("config-edits").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "first").await;
    scene
        .apply(&deployment("cart", "shop/cart:1", "settings"))
        .await;
    scene.available("cart").await;
    scene
        .apply(&plan(&[tracking("cart", "shop/cart:1", "settings")], ""))
        .await;
    let before = scene.ready("shop").await.history.len();
    scene.assert_quiet("shop", 1).await;
    let reads = async || {
        let filter = AuditFilter::new()
            .service_account("belay-system", "belay")
            .namespace(&scene.namespace)
            .resource("configmaps")
            .verbs(["get"]);
        scene.audited(filter).await.len()
    };
    let read = reads().await;
    scene.assert_quiet("shop", 3).await;
    assert_eq!(reads().await, read, "an idle plan reads nothing");
    scene
        .kubectl(&["label", "configmap", "settings", "team=shop"])
        .await;
    scene.assert_quiet("shop", 2).await;
    assert!(reads().await <= read + 1, "another version is read once");
    let status = scene.ready("shop").await;
    assert_eq!(status.history.len(), before);

    let mut pace = tokio::time::interval(Duration::from_millis(100));
    for edit in 0..100 {
        pace.tick().await;
        configs.edit("settings", &format!("edit {edit}")).await;
    }
    let digest = digest("edit 99");
    let status = scene
        .plan_until("shop", "released the last edit", |status| {
            status.phase == Some(belay::api::Phase::Stable)
                && holds(status, "Ready", "True")
                && status.config_maps[0].digest.as_deref() == Some(&digest)
        })
        .await;
    let releases = status.history.len() - before;
    assert!((1..=6).contains(&releases), "{:#?}", status.history);
    scene.available("cart").await;
    assert_eq!(configs.read_by("cart").await, ["edit 99"]);
}

fn digest(text: &str) -> String {
    belay::config_maps::Contents {
        data: [("text".to_owned(), text.to_owned())].into(),
        binary_data: [("raw".to_owned(), ByteString(text.as_bytes().to_vec()))].into(),
    }
    .digest()
}

/// WV-06: the plan first, its Deployment and its ConfigMap later: it goes on
/// without an edit.
#[tokio::test(flavor = "multi_thread")]
async fn wv_06_a_plan_waits_for_its_config_map() {
    let scene = Scene::new("wv-06-config").await;
    let configs = Configs::of(&scene);
    let shop = |image| plan(&[tracking("cart", image, "settings")], "");
    let answer = scene.try_apply(&shop("shop/cart:2"), &[]).await;
    assert!(answer.success(), "{}", answer.stderr);
    for line in [
        "Warning: deployment cart does not exist yet: the plan waits for it",
        "Warning: configmap settings does not exist yet: the plan waits for it (spec.components[0].configMaps[0])",
    ] {
        assert!(answer.stderr.contains(line), "{}", answer.stderr);
    }
    let status = scene.because("shop", Reason::TargetsMissing).await;
    let text = message(&status, "Ready");
    assert!(
        text.contains("deployment cart") && text.contains("configmap settings"),
        "{text}"
    );
    scene
        .apply(&deployment("cart", "shop/cart:1", "settings"))
        .await;
    scene.available("cart").await;
    scene
        .plan_until("shop", "waits for the ConfigMap", |status| {
            let text = message(status, "Ready");
            text.contains("configmap settings") && !text.contains("deployment cart")
        })
        .await;
    configs.create("settings", "first").await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    assert_eq!(configs.read_by("cart").await, ["first"]);
    assert_eq!(
        scene.plans().get("shop").await.unwrap().metadata.generation,
        Some(1)
    );
    // What exists is no warning, whatever else is asked for.
    let answer = scene.try_apply(&shop("shop/cart:3"), &[]).await;
    assert!(
        answer.success() && !answer.stderr.contains("Warning"),
        "{}",
        answer.stderr
    );
}

/// GO-01 with configuration: what was rolled back is applied again and again,
/// contents included, and is not released again; newer contents are.
#[tokio::test(flavor = "multi_thread")]
async fn go_01_refused_configuration_is_not_released_again() {
    let scene = Scene::new("go-01-config").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "good").await;
    scene
        .apply(&deployment("cart", "shop/cart:1", "settings"))
        .await;
    scene.available("cart").await;
    let with = |image: &str| plan(&[tracking("cart", image, "settings")], "");
    scene.apply(&with("shop/cart:1")).await;
    scene.ready("shop").await;
    together(&scene, &configs, &with("shop/cart:2-crash"), "bad").await;
    let status = scene.because("shop", Reason::RolledBack).await;
    // UX-01: what ended it and what to do are said wherever people look.
    let refused = &status.refused[0];
    let text = message(&status, "Ready");
    let record = status.history.last().unwrap().message.clone().unwrap();
    assert!(text.contains(&refused.message) && record.contains(&refused.message));
    assert!(
        text.contains(&format!("belay.dev/retry={}", refused.revision)),
        "{text}"
    );
    let described = scene.kubectl(&["describe", "relplan", "shop"]).await;
    assert!(described.contains("configmap settings: "), "{described}");
    // What people are told to paste is taken, and is another attempt.
    let attempts = status.history.len();
    let (_, command) = text.split_once("kubectl ").unwrap();
    let command: Vec<&str> = command.split(' ').collect();
    scene.kubectl(&command).await;
    scene
        .plan_until("shop", "is rolled back again", |status| {
            status.history.len() == attempts + 1 && message(status, "Ready").contains("rolled back")
        })
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(configs.read_by("cart").await, ["good"]);
    let before = scene.writes().await.len();
    for _ in 0..10 {
        configs.edit("settings", "bad").await;
        scene.apply(&with("shop/cart:2-crash")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    scene.assert_quiet("shop", 2).await;
    let now = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert_eq!(now.history.len(), status.history.len());
    let extra = scene.writes().await.len() - before;
    assert!(extra <= 2, "{extra} writes");
    assert_eq!(configs.read_by("cart").await, ["good"]);
    configs.edit("settings", "better").await;
    scene.apply(&with("shop/cart:3")).await;
    scene.ready("shop").await;
    assert_eq!(configs.read_by("cart").await, ["better"]);
}

/// An object under a snapshot's name that is not the plan's is not written over;
/// contents that are too large are refused with their size, and 900 kB are not
/// too large.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_refused_by_name_and_size() {
    let scene = Scene::new("config-refused").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "first").await;
    scene
        .apply(&deployment("cart", "shop/cart:1", "settings"))
        .await;
    scene.available("cart").await;
    scene
        .apply(&plan(&[tracking("cart", "shop/cart:1", "settings")], ""))
        .await;
    scene.ready("shop").await;
    let uid = scene.plans().get("shop").await.unwrap().uid().unwrap();
    let name = snapshot_name("settings", &digest("second"), &uid);
    scene
        .kubectl(&["create", "configmap", &name, "--from-literal=text=mine"])
        .await;
    configs.edit("settings", "second").await;
    let status = scene.because("shop", Reason::ConfigMapRefused).await;
    assert!(message(&status, "Ready").contains(&name));
    let mine = configs.api.get(&name).await.unwrap();
    assert_eq!(mine.data.unwrap()["text"], "mine");
    assert_eq!(configs.read_by("cart").await, ["first"]);
    scene.kubectl(&["delete", "configmap", &name]).await;
    scene.ready("shop").await;
    assert_eq!(configs.read_by("cart").await, ["second"]);

    let patch = |bytes: usize| json!({"data": null, "binaryData": {"raw": null, "big": ByteString(vec![0xfe; bytes])}});
    let params = PatchParams::default();
    let large = Patch::Merge(patch(1_000_000));
    configs
        .api
        .patch("settings", &params, &large)
        .await
        .unwrap();
    let status = scene.because("shop", Reason::ConfigMapRefused).await;
    assert!(message(&status, "Ready").contains("1000003 bytes"));
    let fits = Patch::Merge(patch(900_000));
    configs.api.patch("settings", &params, &fits).await.unwrap();
    scene.ready("shop").await;
    let listed = configs
        .api
        .list(&ListParams::default().labels(PLAN_UID))
        .await
        .unwrap();
    let big = listed.items.iter().find(|s| {
        let binary = s.binary_data.as_ref();
        binary.is_some_and(|b| b.get("big").is_some_and(|b| b.0 == vec![0xfe; 900_000]))
    });
    assert!(big.is_some(), "900 kB are kept byte for byte");
}

/// Snapshots that nothing names any more go, those in use stay; when the plan
/// goes they belong to the Deployments that use them, and go with these.
#[tokio::test(flavor = "multi_thread")]
async fn snapshots_go_when_nothing_names_them() {
    let scene = Scene::new("config-collected").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "edit 0").await;
    scene
        .apply(&deployment("cart", "shop/cart:1", "settings"))
        .await;
    scene.available("cart").await;
    let rest = "  revisionHistoryLimit: 1\n";
    scene
        .apply(&plan(&[tracking("cart", "shop/cart:1", "settings")], rest))
        .await;
    scene.ready("shop").await;
    for edit in 1..=4 {
        let text = format!("edit {edit}");
        let releases = scene.ready("shop").await.history.last().map(|r| r.number);
        configs.edit("settings", &text).await;
        scene
            .plan_until("shop", "released it", |status| {
                status.history.last().map(|r| r.number) > releases && holds(status, "Ready", "True")
            })
            .await;
        scene.available("cart").await;
    }
    let kept: Vec<String> = configs.snapshots().await.into_values().collect();
    assert!(
        kept.contains(&"edit 4".to_owned()) && kept.contains(&"edit 3".to_owned()),
        "{kept:?}"
    );
    assert!(
        kept.len() <= 3 && !kept.contains(&"edit 0".to_owned()),
        "{kept:?}"
    );

    scene.kubectl(&["delete", "relplan", "shop"]).await;
    let left = configs
        .api
        .list(&ListParams::default().labels(PLAN_UID))
        .await
        .unwrap();
    let [used] = left.items.as_slice() else {
        panic!("only what is in use stays: {left:#?}")
    };
    let owner = &used.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("Deployment", "cart")
    );
    assert_eq!(configs.read_by("cart").await, ["edit 4"]);
    let user = configs.api.get("settings").await.unwrap();
    assert!(user.metadata.owner_references.is_none() && user.metadata.labels.is_none());
    let name = used.name_any();
    scene.kubectl(&["delete", "deployment", "cart"]).await;
    let uid = used.uid().unwrap();
    let gone = kube::runtime::wait::conditions::is_deleted(&uid);
    let gone = kube::runtime::wait::await_condition(configs.api.clone(), &name, gone);
    tokio::time::timeout(SOON, gone)
        .await
        .expect("the snapshot goes with its Deployment")
        .unwrap();
}
