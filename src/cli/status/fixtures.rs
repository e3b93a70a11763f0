//! A shop of three workloads, in the states that a plan can be in.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Caller, PlanStatus,
    objects::{DeploymentView, PodView, ReplicaSetView, RevisionView},
    tree::{World, tree},
};
use crate::{
    api::StoredPlan,
    config_maps::{Tracked, snapshot_name},
    fields::canon::digest_json,
};

pub(in crate::cli) const STABLE: &str = "shop-99134e0901";
pub(in crate::cli) const TARGET: &str = "shop-b59eb8dcf7";

pub(in crate::cli) fn now() -> Timestamp {
    "2026-03-01T03:04:12Z".parse().unwrap()
}

/// What a cluster holds.
#[derive(Default)]
pub(in crate::cli) struct Cluster {
    pub(in crate::cli) plan: Option<StoredPlan>,
    pub(super) deployments: Vec<DeploymentView>,
    pub(super) sets: Vec<ReplicaSetView>,
    pub(super) pods: Vec<PodView>,
    pub(super) revisions: Vec<RevisionView>,
    pub(super) unread: Vec<String>,
}

impl Cluster {
    pub(in crate::cli) fn new(spec: &Value, status: &Value) -> Self {
        let plan = json!({
            "metadata": {"name": "shop", "namespace": "web", "uid": "p", "generation": 4,
                         "creationTimestamp": "2026-02-01T00:00:00Z"},
            "spec": spec,
            "status": status,
        });
        Self {
            plan: Some(serde_json::from_value(plan).unwrap()),
            ..Self::default()
        }
    }

    /// A Deployment: pods wanted, and of its ReplicaSets, newest first, the
    /// image, the pods wanted and the pods ready.
    pub(in crate::cli) fn deployment(
        mut self,
        name: &str,
        wanted: i32,
        sets: &[(&str, i32, i32)],
    ) -> Self {
        let updated = sets.first().map_or(0, |(_, wanted, _)| *wanted);
        let total: i32 = sets.iter().map(|(_, wanted, _)| wanted).sum();
        let ready: i32 = sets.iter().map(|(_, _, ready)| ready).sum();
        let newest = sets.len();
        self.deployments.push(from(json!({
            "metadata": {"name": name, "uid": name, "generation": 7,
                         "annotations": {"deployment.kubernetes.io/revision": newest.to_string()},
                         "managedFields": [{"manager": "kubectl"}]},
            "spec": {"replicas": wanted, "selector": {"matchLabels": {"app": name}}},
            "status": {"observedGeneration": 7, "replicas": total, "updatedReplicas": updated,
                       "readyReplicas": ready, "availableReplicas": ready},
        })));
        for (index, (image, wanted, ready)) in sets.iter().enumerate() {
            let number = newest - index;
            let set = format!("{name}-{number}c8c9d7754");
            self.sets.push(from(json!({
                "metadata": {"name": set, "uid": set,
                    "creationTimestamp": format!("2026-03-01T0{number}:00:00Z"),
                    "annotations": {"deployment.kubernetes.io/revision": number.to_string()},
                    "ownerReferences": [owner("Deployment", name)]},
                "spec": {"replicas": wanted,
                    "template": {"spec": {"containers": [{"name": "app", "image": image}]}}},
                "status": {"replicas": wanted, "readyReplicas": ready},
            })));
        }
        self
    }

    /// Pods of a ReplicaSet of a Deployment.
    pub(in crate::cli) fn pods(
        mut self,
        deployment: &str,
        number: usize,
        count: usize,
        status: &Value,
    ) -> Self {
        let set = format!("{deployment}-{number}c8c9d7754");
        for _ in 0..count {
            let suffix = format!("{:05x}", 0xcd54b + self.pods.len() * 7);
            self.pods.push(from(json!({
                "metadata": {"name": format!("{set}-{suffix}"), "uid": suffix,
                    "creationTimestamp": "2026-03-01T03:04:00Z",
                    "ownerReferences": [owner("ReplicaSet", &set)]},
                "spec": {"nodeName": "node-1"},
                "status": status,
            })));
        }
        self
    }

    /// As a list shows it, which reads Deployments alone.
    pub(in crate::cli) fn line(&self) -> PlanStatus {
        let unread = self.unread.clone();
        let world = World::new(&self.deployments, [], [], [], unread);
        let plan = self.plan.as_ref().unwrap();
        super::tree::line(plan, &world, now(), &Caller::default())
    }

    pub(in crate::cli) fn status(&self) -> PlanStatus {
        let unread = self.unread.clone();
        let world = World::new(
            &self.deployments,
            &self.sets,
            &self.pods,
            &self.revisions,
            unread,
        );
        tree(
            self.plan.as_ref().unwrap(),
            &world,
            now(),
            &Caller::default(),
        )
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn owner(kind: &str, uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": true})
}

/// A plan of `web`, which comes after `cart`, which comes after `db`.
pub(in crate::cli) fn spec() -> Value {
    let component = |name: &str, after: &[&str]| {
        json!({"workload": {"kind": "Deployment", "name": name}, "after": after,
               "template": {"spec": {"containers": [{"name": "app", "image": "shop/x:3"}]}}})
    };
    json!({"components": [component("web", &["cart"]), component("cart", &["db"]), component("db", &[])]})
}

/// Conditions of which one holds beside `Ready`.
pub(in crate::cli) fn conditions(reason: &str, type_: &str, since: &str, message: &str) -> Value {
    let condition = |name: &str| {
        let holds = name == type_;
        json!({"type": name, "status": if holds { "True" } else { "False" }, "reason": reason,
               "message": if holds || name == "Ready" { message } else { "" },
               "observedGeneration": 4, "lastTransitionTime": since})
    };
    json!([
        condition("Ready"),
        condition("Reconciling"),
        condition("Stalled")
    ])
}

pub(in crate::cli) fn component(name: &str, state: &str, progress: Option<&str>) -> Value {
    json!({"name": name, "workload": {"kind": "Deployment", "name": name}, "state": state,
           "replicas": 2, "bestReady": 0, "progressAt": progress})
}

pub(in crate::cli) fn release(stage: &str, since: &str, failure: Value) -> Value {
    json!({"number": 3, "kind": "Content", "stage": stage, "content": "c",
           "startedAt": "2026-03-01T03:03:58.000000Z", "stageSince": since,
           "requestedBy": "alice@example.com", "applied": [TARGET], "failure": failure})
}

pub(in crate::cli) const CRASH: &str = "deployment web: pod web-2c8c9d7754-cd54b container app restarted 3 times (spec.failFast.restarts is 3): last exit code 1 (Error)";

pub(in crate::cli) fn failure() -> Value {
    json!({"component": "web", "cause": "ContainerRestarts", "message": CRASH,
           "at": "2026-03-01T03:04:05.000000Z"})
}

pub(in crate::cli) fn crashing() -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "ready": false, "restartCount": 2, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})
}

pub(in crate::cli) fn unpullable() -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "app", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message":
            "Back-off pulling image \"registry.example.com/team-checkout/cart:3.1.0-rc.7\": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image: not found"}}}]})
}

pub(in crate::cli) fn running() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

pub(in crate::cli) fn unschedulable() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "lastTransitionTime": "2026-03-01T03:04:01Z",
        "message": "0/3 nodes are available: 3 Insufficient cpu."}]})
}

/// A release whose last component crashes.
pub(in crate::cli) fn promoting() -> Cluster {
    let status = json!({
        "observedGeneration": 4, "phase": "RollingOut", "step": "Promote 2/3",
        "stableRevision": STABLE, "targetRevision": TARGET,
        "conditions": conditions("Promoting", "Reconciling", "2026-03-01T03:03:58Z",
            "2 of 3 components are available on shop-b59eb8dcf7; waiting for deployment web: 1 of 2 pods have the template, 2 are available in all; 2 old ones are still there"),
        "components": [component("web", "Updating", Some("2026-03-01T03:04:02.000000Z")),
                       component("cart", "Updated", None), component("db", "Updated", None)],
        "release": release("Promote", "2026-03-01T03:03:59.000000Z", Value::Null),
    });
    Cluster::new(&spec(), &status)
        .deployment(
            "web",
            2,
            &[("shop/web:3-crash", 1, 0), ("shop/web:2", 2, 2)],
        )
        .deployment(
            "cart",
            3,
            &[
                ("shop/cart:3", 3, 3),
                ("shop/cart:2", 0, 0),
                ("shop/cart:1", 0, 0),
            ],
        )
        .deployment("db", 1, &[("shop/db:3", 1, 1)])
        .pods("web", 2, 1, &crashing())
        .pods("web", 1, 2, &running())
        .pods("cart", 3, 3, &running())
}

/// The same on its way back.
pub(in crate::cli) fn going_back() -> Cluster {
    let status = json!({
        "observedGeneration": 4, "phase": "Rollback", "step": "Restore 1/3",
        "stableRevision": STABLE, "targetRevision": TARGET,
        "conditions": conditions("RollingBack", "Reconciling", "2026-03-01T03:03:58Z",
            &format!("going back to {STABLE} ({CRASH}); waiting for deployment cart to go back")),
        "components": [component("web", "Stable", None), component("cart", "Restoring", Some("2026-03-01T03:04:06.000000Z")),
                       component("db", "Restoring", None)],
        "release": release("Restore", "2026-03-01T03:04:05.000000Z", failure()),
    });
    Cluster::new(&spec(), &status)
        .deployment(
            "web",
            2,
            &[("shop/web:2", 2, 2), ("shop/web:3-crash", 0, 0)],
        )
        .deployment("cart", 3, &[("shop/cart:2", 1, 0), ("shop/cart:3", 3, 3)])
        .deployment("db", 1, &[("shop/db:3", 1, 1)])
        .pods("cart", 2, 1, &json!({"phase": "Pending"}))
}

/// Digests of contents of a ConfigMap, as the operator writes them.
pub(in crate::cli) fn digest(letter: char) -> String {
    digest_json(&json!(letter))
}

impl Cluster {
    /// A revision with what `cart-config` and `web-config` held.
    pub(in crate::cli) fn revision(mut self, name: &str, cart: char, web: char) -> Self {
        let component = |workload: &str, letter| {
            let map = format!("{workload}-config");
            json!({"name": workload, "workload": {"kind": "Deployment", "name": workload},
                   "template": {"spec": {}},
                   "partialDigest": (workload == "cart").then_some("p"),
                   "configMaps": [Tracked::new(&map, &digest(letter), "p")]})
        };
        self.revisions.push(from(json!({
            "metadata": {"name": name, "namespace": "web"}, "revision": 1,
            "data": {"canon": 1, "spec": "s",
                     "components": [component("cart", cart), component("web", web)]},
        })));
        self
    }

    /// What the template of a Deployment names.
    pub(in crate::cli) fn names(mut self, deployment: &str, config_map: &str) -> Self {
        for view in &mut self.deployments {
            if view.metadata.name.as_deref() == Some(deployment) {
                view.spec.template.config_maps = [config_map.to_owned()].into();
            }
        }
        self
    }
}

/// A plan of `cart`, whose ConfigMap is kept in snapshots, and `web`, which is
/// followed.
pub(in crate::cli) fn tracking(status: &Value) -> Cluster {
    let spec = json!({"components": [
        {"workload": {"kind": "Deployment", "name": "cart"}, "configMaps": ["cart-config"],
         "template": {"spec": {"containers": [{"name": "app", "image": "shop/cart:3"}],
            "volumes": [{"name": "config", "configMap": {"name": "cart-config"}}]}}},
        {"workload": {"kind": "Deployment", "name": "web"}, "configMaps": ["web-config"]},
    ]});
    Cluster::new(&spec, status)
        .deployment("cart", 2, &[("shop/cart:3", 2, 2)])
        .deployment("web", 1, &[("shop/web:3", 1, 1)])
        .revision(STABLE, 'a', 'b')
        .revision(TARGET, 'c', 'd')
}

/// Name of the snapshot of what `cart-config` held.
pub(in crate::cli) fn snapshot(letter: char) -> String {
    snapshot_name("cart-config", &digest(letter), "p")
}

/// What the operator read of both ConfigMaps.
pub(in crate::cli) fn seen(cart: char, web: char, missing: bool) -> Value {
    json!([{"name": "cart-config", "digest": digest(cart), "missing": missing},
           {"name": "web-config", "digest": digest(web)}])
}

/// A release of contents of ConfigMaps, on its way or back.
pub(in crate::cli) fn configuration(stage: &str, live: char) -> Cluster {
    let reason = if stage == "Restore" {
        "RollingBack"
    } else {
        "Promoting"
    };
    let failure = if stage == "Restore" {
        failure()
    } else {
        Value::Null
    };
    tracking(&json!({
        "observedGeneration": 4, "phase": "RollingOut", "step": "Promote 1/2",
        "stableRevision": STABLE, "targetRevision": TARGET,
        "conditions": conditions(reason, "Reconciling", "2026-03-01T03:03:58Z", "waiting for deployment cart"),
        "components": [component("cart", "Waiting", None), component("web", "Updated", None)],
        "configMaps": seen('c', 'd', false),
        "release": release(stage, "2026-03-01T03:03:59.000000Z", failure),
    }))
    .names("cart", &snapshot(live))
}

/// A plan at rest, with what the ConfigMaps hold and what `cart` names.
pub(in crate::cli) fn configured(cart: char, web: char, live: &str, missing: bool) -> Cluster {
    tracking(&json!({
        "observedGeneration": 4, "phase": "Stable", "stableRevision": STABLE,
        "conditions": conditions("Released", "Ready", "2026-03-01T03:03:58Z", "released and healthy"),
        "components": [component("cart", "Stable", None), component("web", "Stable", None)],
        "configMaps": seen(cart, web, missing),
    }))
    .names("cart", live)
}

/// The same once it is over.
pub(in crate::cli) fn rolled_back() -> Cluster {
    let plan = crate::plan::Plan::parse(&spec()).unwrap();
    let status = json!({
        "observedGeneration": 4, "phase": "Stable", "stableRevision": STABLE,
        "conditions": conditions("RolledBack", "Stalled", "2026-03-01T00:58:00Z",
            &format!("rolled back: ContainerRestarts of component web: {CRASH}. {STABLE} is live, and {TARGET} is not released again by itself. Change the content of the plan, or try the same again: kubectl annotate relplan shop -n web belay.dev/retry={TARGET} --overwrite")),
        "components": [component("web", "Stable", None), component("cart", "Stable", None),
                       component("db", "Stable", None)],
        "refused": [{"revision": TARGET, "spec": plan.content(), "cause": "ContainerRestarts", "component": "web",
                     "message": CRASH, "at": "2026-03-01T00:58:00Z"}],
        "history": [{"number": 3, "kind": "Content", "revision": TARGET, "requestedBy": "alice@example.com",
                     "from": STABLE, "startedAt": "2026-03-01T00:57:48Z", "endedAt": "2026-03-01T00:58:00Z",
                     "result": "RolledBack", "message": format!("ContainerRestarts of component web: {CRASH}")}],
    });
    Cluster::new(&spec(), &status)
        .deployment(
            "web",
            2,
            &[("shop/web:2", 2, 2), ("shop/web:3-crash", 0, 0)],
        )
        .deployment("cart", 3, &[("shop/cart:2", 3, 3), ("shop/cart:3", 0, 0)])
        .deployment("db", 1, &[("shop/db:2", 1, 1)])
}

/// The same of what somebody did to workloads that the plan follows.
pub(in crate::cli) fn followed() -> StoredPlan {
    let mut plan = rolled_back().plan.unwrap();
    for component in plan.spec["components"].as_array_mut().unwrap() {
        component.as_object_mut().unwrap().remove("template");
    }
    for refused in &mut plan.status.as_mut().unwrap().refused {
        refused.spec = None;
    }
    plan
}

/// A rollback to pods that do not run either, with every kind of trouble.
pub(in crate::cli) fn stalled() -> Cluster {
    let status = json!({
        "observedGeneration": 4, "phase": "Rollback", "step": "Restore 1/3",
        "stableRevision": STABLE, "targetRevision": TARGET,
        "conditions": conditions("RollbackStalled", "Stalled", "2026-03-01T02:40:00Z",
            &format!("everything was sent back to {STABLE}, but it does not become available: deployment cart: 2 of 3 pods have the template, 0 are available in all; it ends by itself once they are available; new content in the plan takes its place at once")),
        "components": [component("web", "Stable", None), component("cart", "Restoring", Some("2026-03-01T02:30:00.000000Z")),
                       component("db", "Missing", None)],
        "release": release("Restore", "2026-03-01T02:30:00.000000Z", failure()),
        "history": [{"number": 2, "kind": "Content", "revision": STABLE, "from": "shop-0123456789",
                     "startedAt": "2026-02-01T00:00:00Z", "endedAt": "2026-02-01T00:01:00Z",
                     "result": "Succeeded"}],
    });
    let mut cluster = Cluster::new(&spec(), &status)
        .deployment("web", 2, &[("shop/web:2", 2, 2)])
        .deployment(
            "cart",
            30,
            &[
                ("registry.example.com/team-checkout/cart:3.1.0-rc.7", 25, 0),
                ("shop/cart:3", 5, 0),
            ],
        )
        .pods("cart", 2, 20, &unpullable())
        .pods("cart", 2, 5, &unschedulable())
        .pods("cart", 1, 5, &crashing());
    cluster
        .unread
        .push("you may not list replicasets in namespace web, so none are shown".to_owned());
    cluster
}

/// Many components, of which two are in trouble.
pub(in crate::cli) fn many(components: usize, pods: usize) -> Cluster {
    let names: Vec<String> = (0..components).map(|n| format!("service-{n:02}")).collect();
    let parts: Vec<Value> = names
        .iter()
        .map(|name| json!({"workload": {"kind": "Deployment", "name": name}}))
        .collect();
    let states: Vec<Value> = names
        .iter()
        .map(|name| component(name, "Updated", None))
        .collect();
    let status = json!({
        "observedGeneration": 4, "phase": "RollingOut", "step": format!("Promote 2/{components}"),
        "stableRevision": STABLE, "targetRevision": TARGET,
        "conditions": conditions("Promoting", "Reconciling", "2026-03-01T03:03:58Z", "waiting for deployment service-07"),
        "components": states,
        "release": release("Promote", "2026-03-01T03:03:59.000000Z", Value::Null),
    });
    let mut cluster = Cluster::new(&json!({"components": parts}), &status);
    let count = i32::try_from(pods).unwrap();
    for (index, name) in names.iter().enumerate() {
        let broken = [7, 20].contains(&index);
        let ready = if broken { count - 1 } else { count };
        cluster = cluster
            .deployment(
                name,
                count,
                &[("shop/service:3", count, ready), ("shop/service:2", 0, 0)],
            )
            .pods(name, 2, if broken { pods - 1 } else { pods }, &running())
            .pods(name, 2, usize::from(broken), &crashing());
    }
    cluster
}
