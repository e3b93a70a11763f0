//! What tests of commands share: a plan to look at, and what was printed.

use axum::{
    body::Body,
    http::{Request, Response},
};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::{Access, Session, Streams};
use crate::api::StoredPlan;

/// A moment that fixtures count from.
pub(super) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Plan `shop` with `cart` (templated) and `web` (followed), at release
/// generation 4, as the operator left it: released.
pub(super) fn shop() -> Value {
    json!({
        "apiVersion": "belay.dev/v1alpha1",
        "kind": "ReleasePlan",
        "metadata": {
            "name": "shop", "namespace": "s", "uid": "u1", "generation": 7,
            "annotations": {"belay.dev/release-generation": "4"},
        },
        "spec": {"components": [
            {"workload": {"kind": "Deployment", "name": "cart"},
             "template": {"spec": {"containers": [{"name": "app", "image": "cart:2"}]}}},
            {"workload": {"kind": "Deployment", "name": "web"}},
        ]},
        "status": {
            "observedGeneration": 7,
            "observedReleaseGeneration": 4,
            "phase": "Stable",
            "stableRevision": "shop-bbbb",
            "conditions": conditions("True", "Released", "shop-bbbb is released and healthy"),
            "history": [
                {"number": 1, "kind": "Content", "revision": "shop-bbbb", "from": "shop-aaaa",
                 "requestedBy": "jane", "startedAt": "2026-03-01T11:00:00Z",
                 "endedAt": "2026-03-01T11:02:30Z", "result": "Succeeded"},
            ],
        },
    })
}

/// Conditions with `Ready` and its reason.
pub(super) fn conditions(ready: &str, reason: &str, message: &str) -> Value {
    let stands = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-03-01T11:02:30Z",
        })
    };
    json!([stands("Ready", ready)])
}

/// The plan with what `change` makes of it.
pub(super) fn with(change: impl FnOnce(&mut Value)) -> StoredPlan {
    let mut plan = shop();
    change(&mut plan);
    serde_json::from_value(plan).unwrap()
}

/// Plan `shop` after release 2 was rolled back.
pub(super) fn rolled_back(plan: &mut Value) {
    let seen = "deployment web: pod web-1 container app restarted 3 times \
                (spec.failFast.restarts is 3)";
    let why = format!("ContainerRestarts of component web: {seen}");
    plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("5");
    plan["metadata"]["generation"] = json!(8);
    let status = &mut plan["status"];
    status["observedGeneration"] = json!(8);
    status["observedReleaseGeneration"] = json!(5);
    status["conditions"] = conditions("False", "RolledBack", &format!("rolled back: {why}"));
    status["refused"] = json!([{
        "revision": "shop-cccc", "cause": "ContainerRestarts", "component": "web",
        "message": seen, "at": "2026-03-01T11:50:00Z",
    }]);
    let records = status["history"].as_array_mut().unwrap();
    records.push(json!({
        "number": 2, "kind": "Content", "revision": "shop-cccc", "from": "shop-bbbb",
        "requestedBy": "joe", "startedAt": "2026-03-01T11:49:00Z",
        "endedAt": "2026-03-01T11:50:00Z", "result": "RolledBack",
        "message": why,
    }));
}

/// What is written by `write`, without styles.
pub(super) fn printed(width: Option<usize>, write: impl FnOnce(&mut Streams<'_>)) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    write(&mut Streams {
        out: &mut out,
        err: &mut err,
        width,
        height: None,
    });
    out.extend(err);
    let text = String::from_utf8(out).unwrap();
    anstream::adapter::strip_str(&text).to_string()
}

/// A session with a server that answers each path by `answer`; what it has no answer
/// for nobody may read.
pub(super) fn session(answer: fn(&str) -> Option<Value>) -> Session {
    let server = service_fn(move |request: Request<kube::client::Body>| async move {
        let (code, body) = match answer(request.uri().path()) {
            Some(body) => (200, body),
            None => (
                403,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                       "reason": "Forbidden", "code": 403, "message": "no"}),
            ),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = code.try_into()?;
        Ok::<_, BoxError>(response)
    });
    Session {
        client: Client::new(server, "s"),
        namespace: "s".to_owned(),
        chosen: false,
        access: Access::default(),
        unreadable: false,
        by_patch: false,
    }
}
