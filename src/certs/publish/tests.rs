use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::*;

fn service() -> Address {
    Address::Service {
        namespace: "belay-system".into(),
        name: "belay".into(),
        port: 443,
    }
}

fn url() -> Address {
    Address::Url {
        base: "https://127.0.0.1:9443/".into(),
    }
}

fn installed() -> Value {
    json!([
        {"name": "other.acme.dev", "clientConfig": {"url": "https://acme.dev/x"}},
        {"name": "mutate.releaseplans.belay.dev", "clientConfig": {"service": {
            "namespace": "belay-system", "name": "belay", "path": "/mutate", "port": 443
        }}},
        {"name": "guard.deployments.belay.dev", "clientConfig": {"service": {
            "namespace": "elsewhere", "name": "belay", "path": "/guard", "port": 443
        }}}
    ])
}

fn applied(mut webhooks: Value, address: &Address, bundle: &str) -> Value {
    let changes = changes(&webhooks, address, MUTATE, bundle).unwrap();
    let mut object = json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks.take()});
    json_patch::patch(&mut object, &patch(Some("7"), changes)).unwrap();
    object["webhooks"].take()
}

#[test]
fn every_webhook_of_ours_gets_the_bundle_and_no_other() {
    let webhooks = applied(installed(), &service(), "CA");
    assert_eq!(webhooks[0], installed()[0]);
    for (index, path) in [(1, "/mutate"), (2, "/guard")] {
        assert_eq!(
            webhooks[index]["clientConfig"],
            json!({"caBundle": "Q0E=", "service": {
                "namespace": "belay-system", "name": "belay", "path": path, "port": 443
            }})
        );
    }
}

#[test]
fn nothing_is_written_where_nothing_differs() {
    for address in [service(), url()] {
        let webhooks = applied(installed(), &address, "CA");
        assert_eq!(changes(&webhooks, &address, MUTATE, "CA"), Some(vec![]));
        let other = changes(&webhooks, &address, MUTATE, "CB").unwrap();
        assert_eq!(other.len(), 2, "bundles are compared by content");
    }
}

#[test]
fn service_and_url_take_each_others_place_and_keep_the_path() {
    let by_url = applied(installed(), &url(), "CA");
    assert_eq!(
        by_url[2]["clientConfig"],
        json!({"caBundle": "Q0E=", "url": "https://127.0.0.1:9443/guard"})
    );
    let back = applied(by_url, &service(), "CA");
    assert_eq!(back, applied(installed(), &service(), "CA"));
    let bare = json!([{"name": "mutate.releaseplans.belay.dev"}]);
    let changes = changes(&bare, &url(), MUTATE, "CA").unwrap();
    assert_eq!(changes[0].1["url"], "https://127.0.0.1:9443/mutate");
}

#[test]
fn a_configuration_without_webhooks_of_ours_is_an_error() {
    assert_eq!(changes(&Value::Null, &url(), MUTATE, "CA"), None);
    let foreign = json!([{"name": "x.acme.dev"}, {"name": "notbelay.dev"}, {}]);
    assert_eq!(changes(&foreign, &url(), MUTATE, "CA"), None);
}

#[test]
fn the_patch_is_bound_to_the_version_that_was_read() {
    let patch = patch(Some("7"), vec![(1, json!({}))]);
    assert_eq!(
        serde_json::to_value(patch).unwrap(),
        json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "replace", "path": "/webhooks/1/clientConfig", "value": {}}
        ])
    );
}

/// An API server that holds webhook configurations by their path.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    patches: usize,
    /// Changes by others just before our next patches.
    rivals: usize,
}

const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/belay.dev";
const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/belay.dev";

impl Server {
    fn installed() -> Self {
        let server = Self::default();
        for (path, kind) in [
            (MUTATING, "MutatingWebhookConfiguration"),
            (VALIDATING, "ValidatingWebhookConfiguration"),
        ] {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "belay.dev", "resourceVersion": "1"},
                "webhooks": [{"name": "x.releaseplans.belay.dev", "clientConfig": {}}]
            });
            server.0.lock().unwrap().objects.insert(path.into(), object);
        }
        server
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut state = server.0.lock().unwrap();
                let (code, answer) = state.answer(&parts.method, parts.uri.path(), &body);
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn config(&self, path: &str) -> Value {
        self.0.lock().unwrap().objects[path]["webhooks"][0]["clientConfig"].clone()
    }

    fn patches(&self) -> usize {
        self.0.lock().unwrap().patches
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let failure = |code: u16, reason: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": reason
            });
            (code, status)
        };
        let Some(object) = self.objects.get_mut(path) else {
            return failure(404, "NotFound");
        };
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let next = |object: &Value| {
            let version: u64 = version(object).as_str().unwrap().parse().unwrap();
            json!((version + 1).to_string())
        };
        match *method {
            Method::GET => (200, object.clone()),
            Method::PATCH => {
                if self.rivals > 0 {
                    self.rivals -= 1;
                    object["metadata"]["resourceVersion"] = next(object);
                }
                let mut patched = object.clone();
                let patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
                json_patch::patch(&mut patched, &patch).unwrap();
                if version(&patched) != version(object) {
                    return failure(409, "Conflict");
                }
                patched["metadata"]["resourceVersion"] = next(object);
                *object = patched.clone();
                self.patches += 1;
                (200, patched)
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn both_configurations_are_written_once_and_then_left_alone() {
    let server = Server::installed();
    for _ in 0..3 {
        publish(&server.client(), &url(), "CA", in_seconds(5))
            .await
            .unwrap();
    }
    assert_eq!(server.patches(), 2);
    assert_eq!(
        server.config(MUTATING)["url"],
        "https://127.0.0.1:9443/mutate"
    );
    assert_eq!(
        server.config(VALIDATING)["url"],
        "https://127.0.0.1:9443/validate"
    );
    publish(&server.client(), &url(), "CB", in_seconds(5))
        .await
        .unwrap();
    assert_eq!(server.patches(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_changes_meanwhile_is_read_again() {
    let server = Server::installed();
    server.0.lock().unwrap().rivals = 3;
    publish(&server.client(), &url(), "CA", in_seconds(5))
        .await
        .unwrap();
    assert_eq!(server.patches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_never_holds_still_is_given_up_at_the_deadline() {
    let server = Server::installed();
    server.0.lock().unwrap().rivals = usize::MAX;
    let start = Instant::now();
    let error = publish(&server.client(), &url(), "CA", in_seconds(5))
        .await
        .unwrap_err();
    assert!(matches!(error, PublishError::Contended { .. }), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_is_not_installed_is_waited_for_until_the_deadline() {
    let server = Server::default();
    let start = Instant::now();
    let error = publish(&server.client(), &url(), "CA", in_seconds(5))
        .await
        .unwrap_err();
    assert!(matches!(error, PublishError::Missing { .. }), "{error}");
    assert!(
        error.to_string().contains("deploy/webhooks.yaml"),
        "{error}"
    );
    assert!(start.elapsed() >= Duration::from_secs(4));
}
