//! Recorded reviews, handed to the router without a listener.

use std::sync::{Mutex, atomic::AtomicUsize};

use axum::http::Request;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{
    api::StoredPlan,
    clock::TestClock,
    cluster::{ApplyFailure, Snapshot},
    config_maps::Tracked,
    plan::Target,
    revision::Revision,
};

mod answers;
mod lookups;
mod orders;
mod plans;
mod robustness;

const OPERATOR: &str = "system:serviceaccount:belay-system:belay";
const BOTH: [&str; 2] = [MUTATE, VALIDATE];
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A cluster of which only what the tests say is known.
#[derive(Default)]
struct Cluster {
    workloads: Vec<(&'static str, Snapshot)>,
    plans: Vec<StoredPlan>,
    config_maps: Vec<&'static str>,
    revisions: Vec<Revision>,
    held: Vec<(&'static str, Held)>,
    dry_run: Mutex<Vec<ApplyFailure>>,
    merged: Merged,
    broken: bool,
    hangs: bool,
    reads: AtomicUsize,
    dry_runs: AtomicUsize,
}

impl Cluster {
    fn with(workloads: &[(&'static str, &[&str])]) -> Self {
        let workloads = workloads.iter().map(|(name, containers)| {
            let containers: Vec<Value> = containers.iter().map(|c| json!({"name": c})).collect();
            let workload = Snapshot {
                uid: format!("uid-{name}"),
                resource_version: "7".into(),
                template: json!({"spec": {"containers": containers}}),
                ..Snapshot::default()
            };
            (*name, workload)
        });
        Self {
            workloads: workloads.collect(),
            ..Self::default()
        }
    }

    fn asked(&self) -> (usize, usize) {
        use std::sync::atomic::Ordering::SeqCst;
        (self.reads.load(SeqCst), self.dry_runs.load(SeqCst))
    }

    async fn answer<T>(&self, value: T) -> Result<T, LookupError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if self.broken {
            return Err(LookupError("deployments.apps is forbidden".into()));
        }
        Ok(value)
    }
}

impl Lookup for Cluster {
    fn workload<'a>(
        &'a self,
        _: &'a str,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, LookupError>> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut workloads = self.workloads.iter();
        let found = workloads.find(|(name, _)| *name == target.name);
        Box::pin(self.answer(found.map(|(_, workload)| workload.clone())))
    }

    fn dry_run<'a>(
        &'a self,
        _: &'a str,
        _: &'a Target,
        _: &'a Snapshot,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<Merged, ApplyFailure>> {
        self.dry_runs
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let next = self.dry_run.lock().unwrap().pop();
        let merged = self.merged.clone();
        Box::pin(async move { next.map_or(Ok(merged), Err) })
    }

    fn plans<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<StoredPlan>, LookupError>> {
        Box::pin(self.answer(self.plans.clone()))
    }

    fn config_map<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, LookupError>> {
        Box::pin(self.answer(self.config_maps.contains(&name)))
    }

    fn revision<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Revision>, LookupError>> {
        let found = self.revisions.iter().find(|revision| revision.name == name);
        Box::pin(self.answer(found.cloned()))
    }

    fn contents<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        tracked: &'a Tracked,
    ) -> BoxFuture<'a, Result<Held, LookupError>> {
        let mut held = self.held.iter();
        let held = held.find(|(name, _)| *name == tracked.name);
        Box::pin(self.answer(held.map_or(Held::Lost, |(_, held)| *held)))
    }
}

fn webhooks(cluster: Arc<Cluster>) -> Router {
    let webhook = Webhook::new(cluster, Metrics::new(), clock(), Some(OPERATOR));
    router(webhook)
}

/// A clock that stands still.
fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock::at(Timestamp::from_second(60).unwrap()))
}

/// What came back.
#[derive(Debug)]
struct Answer {
    code: StatusCode,
    body: Value,
}

impl Answer {
    fn response(&self) -> &Value {
        assert_eq!(self.code, StatusCode::OK, "{self:?}");
        assert_eq!(self.body["apiVersion"], API_VERSION, "{self:?}");
        assert_eq!(self.body["kind"], KIND, "{self:?}");
        assert_eq!(self.body["response"]["uid"], UID, "{self:?}");
        &self.body["response"]
    }

    #[track_caller]
    fn accepted(&self) -> &Value {
        let response = self.response();
        assert_eq!(response["allowed"], true, "{self:?}");
        response
    }

    #[track_caller]
    fn denied(&self, code: u16) -> &str {
        let response = self.response();
        assert_eq!(response["allowed"], false, "{self:?}");
        assert_eq!(response["status"]["code"], code, "{self:?}");
        assert!(response.get("patch").is_none(), "{self:?}");
        response["status"]["message"].as_str().unwrap()
    }

    fn warnings(&self) -> Vec<&str> {
        let warnings = self.response()["warnings"].as_array();
        let warnings = warnings.into_iter().flatten();
        warnings.map(|warning| warning.as_str().unwrap()).collect()
    }

    /// The object with the patch applied to it.
    fn patched(&self, object: &Value) -> Value {
        let response = self.accepted();
        let mut object = object.clone();
        if let Some(patch) = response.get("patch") {
            assert_eq!(response["patchType"], "JSONPatch");
            let bytes: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
            let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
            assert!(!patch.0.is_empty());
            json_patch::patch(&mut object, &patch).unwrap();
        } else {
            assert!(response.get("patchType").is_none());
        }
        object
    }
}

async fn send(router: &Router, path: &str, content_type: Option<&str>, body: Body) -> Answer {
    let mut request = Request::post(path);
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let request = request.body(body).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { code, body }
}

async fn ask(router: &Router, path: &str, review: &Value) -> Answer {
    let body = Body::from(review.to_string());
    send(router, path, Some("application/json"), body).await
}

/// A review as the API server sends it.
fn review(operation: &str, object: Value, old: Value) -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": "belay.dev", "version": "v1alpha1", "kind": "ReleasePlan"},
            "resource": {"group": "belay.dev", "version": "v1alpha1", "resource": "releaseplans"},
            "requestKind": {"group": "belay.dev", "version": "v1alpha1", "kind": "ReleasePlan"},
            "requestResource": {"group": "belay.dev", "version": "v1alpha1", "resource": "releaseplans"},
            "name": object["metadata"].get("name").unwrap_or(&old["metadata"]["name"]),
            "namespace": "shop",
            "operation": operation,
            "userInfo": {
                "username": "ann",
                "groups": ["system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=0"]}
            },
            "object": object,
            "oldObject": old,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
        }
    })
}

fn create(object: &Value) -> Value {
    review("CREATE", object.clone(), Value::Null)
}

fn update(old: &Value, new: &Value) -> Value {
    review("UPDATE", new.clone(), old.clone())
}

/// A valid plan as a user writes it.
fn plan() -> Value {
    json!({
        "apiVersion": "belay.dev/v1alpha1",
        "kind": "ReleasePlan",
        "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {"components": [
            {
                "workload": {"kind": "Deployment", "name": "cart"},
                "template": {"spec": {"containers": [{"name": "app", "image": "cart:2"}]}}
            },
            {"workload": {"kind": "Deployment", "name": "db"}}
        ]}
    })
}

/// A plan with two faults.
fn invalid() -> Value {
    let mut plan = plan();
    plan["spec"]["components"][0]["after"] = json!(["nobody"]);
    plan["spec"]["progressDeadline"] = json!("soon");
    plan
}

/// The plan as it is stored once the webhook has seen it.
async fn stored(plan: &Value) -> Value {
    let router = webhooks(Arc::default());
    let mut stored = ask(&router, MUTATE, &create(plan)).await.patched(plan);
    stored["metadata"]["uid"] = json!("uid-shop");
    stored["metadata"]["resourceVersion"] = json!("41");
    stored["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    stored
}

/// The fields that `/mutate` finds fault with in a new plan; none if it is
/// allowed.
pub(crate) async fn faults_at_creation(object: &Value) -> Vec<String> {
    let answer = ask(&webhooks(Arc::default()), MUTATE, &create(object)).await;
    let response = answer.response();
    if response["allowed"] == true {
        return Vec::new();
    }
    let causes = response["status"]["details"]["causes"].as_array();
    let causes = causes.unwrap_or_else(|| panic!("a denial without causes: {response}"));
    let fields = causes.iter().map(|cause| cause["field"].as_str().unwrap());
    fields.map(str::to_owned).collect()
}

/// Whether `/mutate` can read a new plan at all, faulty or not.
pub(crate) async fn is_read_at_creation(object: &Value) -> bool {
    let answer = ask(&webhooks(Arc::default()), MUTATE, &create(object)).await;
    answer.response()["status"]["code"] != 400
}
