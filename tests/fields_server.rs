//! Field ownership and canonical form against a real API server's own answers.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say why"
)]

use std::sync::LazyLock;

use belay::fields::{
    FieldSet, Found, canon, carry, complete, diff, emptied, get, owned_by, project, put_back,
    summary,
};
use belay_testenv::{Cluster, ClusterOptions};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

const MANAGER: &str = "belay";
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// One control plane for this file; it ends with the process.
static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::start(ClusterOptions::new()).expect("a cluster"));

/// A Deployment of a user, and how the operator would write to it.
struct Workload {
    api: Api<DynamicObject>,
    name: String,
}

impl Workload {
    /// A Deployment that `user` created with the given pod template.
    async fn create(name: &str, template: Value) -> Self {
        let client = client().await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
        let object = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "cart"}}, "template": template},
        }))
        .expect("an object");
        let params = PostParams {
            field_manager: Some("user".into()),
            ..PostParams::default()
        };
        api.create(&params, &object).await.expect("created");
        Self {
            api,
            name: name.into(),
        }
    }

    async fn template(&self) -> Value {
        let object = self.api.get(&self.name).await.expect("the workload");
        object.data["spec"]["template"].clone()
    }

    /// The template and our field set, relative to it, after a server-side apply.
    async fn apply_as(
        &self,
        manager: &str,
        template: &Value,
        dry_run: bool,
    ) -> kube::Result<(Value, FieldSet)> {
        let params = PatchParams {
            dry_run,
            ..PatchParams::apply(manager).force()
        };
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {"template": template},
        });
        let object = self
            .api
            .patch(&self.name, &params, &Patch::Apply(body))
            .await?;
        let entries = object.metadata.managed_fields.unwrap_or_default();
        let owned = owned_by(&entries, manager).expect("readable managedFields");
        let below = owned.descend(&TEMPLATE);
        assert_eq!(
            below.clone().nest(&TEMPLATE),
            owned,
            "owned outside the template"
        );
        Ok((object.data["spec"]["template"].clone(), below))
    }

    /// What an apply of `template` would own, whatever is owned now.
    ///
    /// A dry run as our own manager would also drop what `template` leaves out,
    /// and is refused where that is required.
    async fn foretell(&self, template: &Value) -> FieldSet {
        let (_, owned) = self
            .apply_as("belay-preview", template, true)
            .await
            .expect("a dry run");
        owned
    }

    /// Applies the next partial template as a release does: records what it
    /// takes, gives back what it drops. Returns the merged template.
    async fn take(&self, partial: &Value, taken: &mut Taken) -> Value {
        let wanted = self.foretell(partial).await;
        let newly = wanted.difference(&taken.now);
        taken
            .found
            .merge(Found::record(&self.template().await, &newly));
        let dropped = taken.now.difference(&wanted);
        let carried = carry(partial, &dropped, &taken.found).expect("a body");
        assert_eq!(carried.unknown, []);
        let (merged, now) = self.write(&carried.body).await;
        taken.ever = taken.ever.union(&now);
        taken.now = now;
        merged
    }

    /// A strategic merge patch by somebody else.
    async fn patch_as_user(&self, template: &Value) {
        let params = PatchParams {
            field_manager: Some("user".into()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(json!({"spec": {"template": template}}));
        let patched = self.api.patch(&self.name, &params, &patch).await;
        patched.expect("a patch");
    }

    /// A JSON patch of the whole template by ourselves.
    async fn replace(&self, template: &Value) {
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        let operations = json!([{"op": "replace", "path": "/spec/template", "value": template}]);
        let patch = Patch::<()>::Json(serde_json::from_value(operations).expect("a patch"));
        let patched = self.api.patch(&self.name, &params, &patch).await;
        patched.expect("a patch");
    }

    async fn preview(&self, template: &Value) -> (Value, FieldSet) {
        self.apply_as(MANAGER, template, true)
            .await
            .expect("a dry run")
    }

    async fn write(&self, template: &Value) -> (Value, FieldSet) {
        self.apply_as(MANAGER, template, false)
            .await
            .expect("an apply")
    }
}

/// What a series of applies has taken.
#[derive(Default)]
struct Taken {
    now: FieldSet,
    ever: FieldSet,
    found: Found,
}

async fn client() -> Client {
    CLUSTER.client().await.expect("a client")
}

fn assert_same(a: &Value, b: &Value, what: &str) {
    assert!(canon::equal(a, b), "{what}: {}", summary(&diff(a, b), 10));
}

/// A template with the environment variables of its containers by name.
fn unordered(template: &Value) -> Value {
    let mut template = template.clone();
    let containers = template["spec"]["containers"].as_array_mut();
    for container in containers.into_iter().flatten() {
        if let Some(env) = container["env"].as_array_mut() {
            env.sort_by_key(|env| env["name"].to_string());
        }
    }
    template
}

/// A template with something in most kinds of fields.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "cart", "tier": "web"}, "annotations": {"example.com/team": "shop"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "pull"}],
            "securityContext": {"runAsNonRoot": true},
            "containers": [
                {"name": "app", "image": "cart:1", "args": ["-v"],
                 "env": [{"name": "MODE", "value": "fast"}, {"name": "ADDR", "value": ":80"}, {"name": "LOG", "value": "info"}],
                 "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
                 "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
                 "securityContext": {"runAsUser": 5},
                 "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
                 "volumeMounts": [{"mountPath": "/tmp", "name": "tmp"}]},
                {"name": "proxy", "image": "envoy:1"},
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "config", "configMap": {"name": "cart"}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "cart"}}}],
        },
    })
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "app"});
    let (Some(all), Some(more)) = (container.as_object_mut(), fields.as_object()) else {
        panic!("objects");
    };
    all.extend(more.clone());
    json!({"spec": {"containers": [container]}})
}

/// Partial templates over [`template`]: each kind of field, changed and added.
fn partials() -> Vec<Value> {
    vec![
        container(json!({"image": "cart:2"})),
        container(json!({})),
        container(json!({"args": ["-q", "--fast"], "command": ["/cart"]})),
        container(json!({"args": []})),
        container(json!({"args": null, "command": []})),
        container(
            json!({"args": [], "securityContext": {}, "resources": {"limits": {}}, "envFrom": []}),
        ),
        container(
            json!({"env": [{"name": "NEW", "value": "1"}, {"name": "LOG", "value": "debug"}]}),
        ),
        container(
            json!({"env": [{"name": "LOG", "value": "debug"}, {"name": "NEW", "value": "1"}, {"name": "MODE", "value": "slow"}, {"name": "OTHER", "value": "2"}]}),
        ),
        container(
            json!({"env": [{"name": "MODE", "value": "slow"}, {"name": "OTHER", "value": "2"}, {"name": "LOG", "value": "warn"}, {"name": "NEW", "value": "1"}]}),
        ),
        container(json!({"env": []})),
        container(
            json!({"env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cart", "key": "k"}}}]}),
        ),
        container(json!({"envFrom": [{"configMapRef": {"name": "cart"}}]})),
        container(
            json!({"ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 9090, "protocol": "TCP"}]}),
        ),
        container(json!({"ports": [{"containerPort": 53, "protocol": "UDP", "name": "dns"}]})),
        container(
            json!({"resources": {"limits": {"cpu": "2000m"}, "requests": {"memory": "0.5Gi"}}}),
        ),
        container(json!({"resources": {}})),
        container(json!({"securityContext": {}})),
        container(json!({"securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 6}})),
        container(
            json!({"livenessProbe": {"httpGet": {"path": "/healthz", "port": 80, "httpHeaders": [{"name": "A", "value": "b"}]}}}),
        ),
        container(
            json!({"volumeMounts": [{"mountPath": "/tmp", "name": "tmp", "readOnly": true}, {"mountPath": "/config", "name": "config"}]}),
        ),
        container(json!({"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}})),
        json!({"metadata": {"labels": {"tier": "backend", "zone": "a"}, "annotations": {"example.com/x": "y"}}}),
        json!({"metadata": {"labels": {}, "annotations": {}}}),
        json!({"spec": {"nodeSelector": {}, "tolerations": [], "volumes": [{"name": "config", "configMap": {"items": []}}]}}),
        json!({"spec": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}}),
        json!({"spec": {"imagePullSecrets": [{"name": "other"}], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}]}}),
        json!({"spec": {"securityContext": {"fsGroup": 7, "supplementalGroups": [1, 2]}}}),
        json!({"spec": {"volumes": [{"name": "config", "configMap": {"name": "cart-2"}}, {"name": "new", "emptyDir": {}},
            {"name": "info", "projected": {"sources": [{"configMap": {"name": "cart"}}]}}]}}),
        json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}),
        json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}}),
        json!({"spec": {"volumes": []}}),
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}}}}),
        json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule"}]}}),
        json!({"spec": {"initContainers": [{"name": "init", "image": "init:1", "resources": {"limits": {"cpu": "0.5"}}}]}}),
        json!({"spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}, "terminationGracePeriodSeconds": 7}}),
    ]
}

#[tokio::test]
async fn a_projection_of_the_merged_template_owns_the_same_fields_and_changes_nothing() {
    let workload = Workload::create("projection", template()).await;
    for partial in partials() {
        let (merged, owned) = workload.preview(&partial).await;
        // What a revision keeps of the partial template is enough.
        let mut body = project(&merged, &owned);
        if let Some(kept) = emptied(&partial, &merged, &owned).expect("a record") {
            complete(&mut body, &kept, &owned).expect("a body");
        }
        if owned.is_empty() {
            // An empty list of a kind that is merged: nothing to apply.
            assert_eq!(body, json!({}), "{partial}");
            continue;
        }
        let (again, reowned) = workload.preview(&body).await;
        assert_same(
            &merged,
            &again,
            &format!("template after {body}, from {partial}"),
        );
        assert_eq!(
            reowned.to_value(),
            owned.to_value(),
            "ownership after {body}, from {partial}"
        );
    }
}

#[tokio::test]
async fn dropping_what_was_taken_brings_back_the_template_that_was_found() {
    for (index, partial) in partials().into_iter().enumerate() {
        let workload = Workload::create(&format!("dropping-{index}"), template()).await;
        let before = workload.template().await;
        let (_, owned) = workload.preview(&partial).await;
        let found = Found::record(&before, &owned);
        let (_, owned_now) = workload.write(&partial).await;
        assert_eq!(
            owned_now, owned,
            "the dry run foretells ownership of {partial}"
        );

        let carried = carry(&json!({}), &owned, &found).expect("a body");
        assert_eq!(carried.unknown, []);
        workload.write(&carried.body).await;
        // Where others' list items stand between those given back is the API
        // server's choice: the taken fields are compared, and the rest by key.
        let after = workload.template().await;
        assert_same(&project(&before, &owned), &project(&after, &owned), "taken");
        assert_same(
            &unordered(&before),
            &unordered(&after),
            &format!("after {partial} was dropped by {}", carried.body),
        );
    }
}

#[tokio::test]
async fn the_frozen_template_on_the_union_of_sets_restores_after_any_targets() {
    let all = partials();
    for index in 0..all.len() {
        let at = |offset: usize| &all[(index + offset) % all.len()];
        let (stable, first, second) = (at(0), at(1), at(11));
        let workload = Workload::create(&format!("restore-{index}"), template()).await;
        let mut taken = Taken::default();
        let frozen = workload.take(stable, &mut taken).await;
        workload.take(first, &mut taken).await;
        workload.take(second, &mut taken).await;

        let mut restore = project(&frozen, &taken.ever);
        complete(&mut restore, stable, &taken.ever).expect("a body");
        workload.write(&restore).await;
        let live = workload.template().await;
        assert_same(
            &project(&frozen, &taken.ever),
            &project(&live, &taken.ever),
            "taken",
        );
        assert_same(
            &unordered(&frozen),
            &unordered(&live),
            &format!("{stable}, then {first}, then {second}, restored by {restore}"),
        );
    }
}

#[tokio::test]
async fn quantities_are_canonical_as_the_api_server_has_them() {
    let workload = Workload::create("quantities", template()).await;
    for written in [
        json!("1"),
        json!(1),
        json!(0.5),
        json!("1000m"),
        json!("0.1"),
        json!(".5"),
        json!("5."),
        json!("1.5Gi"),
        json!("1024Mi"),
        json!("1e3"),
        json!("12e-4"),
        json!("1E2"),
        json!("1E"),
        json!("+3"),
        json!("0007"),
        json!("1.0000000001"),
        json!("100u"),
        json!("0.0001k"),
        json!("123456789n"),
        json!("1.1Ki"),
        json!("9007199254740993"),
    ] {
        let sized =
            json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": written}}]}});
        let (merged, _) = workload.preview(&sized).await;
        let stored = merged["spec"]["volumes"]
            .as_array()
            .and_then(|volumes| volumes.iter().find(|volume| volume["name"] == "tmp"))
            .cloned()
            .expect("the volume");
        let answer = json!({"spec": {"volumes": [stored]}});
        assert_same(&sized, &answer, &format!("{written}"));
    }
}

/// Whatever a plan applies empty, and however another writer fills it
/// meanwhile: an apply of the frozen template with what was kept of the partial
/// one empties it again, and so does putting the fields back in a whole template.
#[tokio::test]
async fn a_restore_empties_what_was_applied_empty_and_somebody_filled_again() {
    let fill = json!({"spec": {
        "nodeSelector": {"zone": "b"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "app", "args": ["-x"], "command": ["/bin/x"],
            "envFrom": [{"configMapRef": {"name": "x"}}]}],
    }});
    let mut emptying = 0;
    for (index, stable) in partials().into_iter().enumerate() {
        let workload = Workload::create(&format!("emptied-{index}"), template()).await;
        let (frozen, owned) = workload.write(&stable).await;
        let Some(kept) = emptied(&stable, &frozen, &owned).expect("a record") else {
            continue;
        };
        emptying += 1;
        for by_apply in [true, false] {
            workload.patch_as_user(&fill).await;
            let filled = workload.template().await;
            let said = |template: &Value| project(template, &owned);
            let filled_ours = !canon::equal(&said(&frozen), &said(&filled));
            if by_apply {
                let mut restore = said(&frozen);
                complete(&mut restore, &kept, &owned).expect("a body");
                let (_, now) = workload.write(&restore).await;
                assert_eq!(now, owned, "{stable}");
            } else {
                let back = put_back(&filled, &frozen, &owned);
                workload.replace(&back).await;
            }
            let live = workload.template().await;
            let what = format!("{stable}, by apply: {by_apply}");
            assert_same(&said(&frozen), &said(&live), &what);
            for path in owned.leaves() {
                let (frozen, live) = (get(&frozen, &path), get(&live, &path));
                if frozen.is_none() && filled_ours {
                    assert_eq!(live, None, "{path} of {what}");
                }
            }
        }
    }
    assert!(emptying >= 4, "{emptying}");
}

#[tokio::test]
async fn a_stored_template_keeps_its_digest_wherever_it_is_stored() {
    let workload = Workload::create("digest", template()).await;
    let live = workload.template().await;
    for (index, partial) in partials().into_iter().enumerate() {
        let (merged, _) = workload.preview(&partial).await;
        let copy = Workload::create(&format!("digest-{index}"), merged.clone()).await;
        let stored = copy.template().await;
        assert_eq!(
            canon::digest(&merged),
            canon::digest(&stored),
            "{partial}: {}",
            summary(&diff(&merged, &stored), 10)
        );
        // The API server's own answers differ only if the templates do.
        assert_eq!(merged == live, canon::equal(&merged, &live), "{partial}");
    }
}
