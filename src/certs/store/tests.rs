use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex as StdMutex},
    time::Duration,
};

use axum::http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// An API server that holds one Secret.
#[derive(Clone, Default)]
struct Server(Arc<StdMutex<State>>);

#[derive(Default)]
struct State {
    secret: Option<Value>,
    version: u64,
    /// Secrets that somebody else stores just before our next writes.
    rivals: VecDeque<Secret>,
    writes: usize,
    forbidden: bool,
}

impl Server {
    fn store(&self) -> Store {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, answer) = server.0.lock().unwrap().answer(&parts.method, body);
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        Store::Secret {
            client: Client::new(service, "ops"),
            namespace: "ops".into(),
            name: "tls".into(),
        }
    }

    fn held(&self) -> Option<Credentials> {
        let state = self.0.lock().unwrap();
        let secret = state.secret.clone()?;
        read(&serde_json::from_value(secret).unwrap())
    }

    fn put(&self, secret: &Secret) {
        self.0
            .lock()
            .unwrap()
            .put(serde_json::to_value(secret).unwrap());
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }
}

impl State {
    fn put(&mut self, mut secret: Value) -> Value {
        self.version += 1;
        secret["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.secret = Some(secret.clone());
        secret
    }

    fn answer(&mut self, method: &Method, body: Value) -> (u16, Value) {
        let failure = |code: u16, reason: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": reason
            });
            (code, status)
        };
        if self.forbidden {
            return failure(403, "Forbidden");
        }
        if *method == Method::GET {
            return match &self.secret {
                Some(secret) => (200, secret.clone()),
                None => failure(404, "NotFound"),
            };
        }
        if let Some(rival) = self.rivals.pop_front() {
            self.put(serde_json::to_value(rival).unwrap());
        }
        let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
        match (method, &self.secret) {
            (&Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (&Method::PUT, None) => failure(404, "NotFound"),
            (&Method::PUT, Some(stored)) if version(stored) != version(&body) => {
                failure(409, "Conflict")
            }
            (&Method::POST | &Method::PUT, _) => {
                self.writes += 1;
                (200, self.put(body))
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}

fn names() -> Vec<String> {
    vec!["belay.ops.svc".into()]
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn later(days: u64) -> Timestamp {
    now()
        .checked_add(Duration::from_secs(days * 24 * 3600))
        .unwrap()
}

async fn load(store: &Store, at: Timestamp) -> Result<Credentials, StoreError> {
    store.load(&names(), Lifetimes::default(), at).await
}

fn credentials() -> Credentials {
    issue(&names(), Lifetimes::default(), now()).unwrap()
}

fn secret(credentials: &Credentials) -> Secret {
    fill(fresh("tls"), credentials)
}

#[tokio::test]
async fn certificates_in_memory_stay_the_same_until_they_are_due() {
    let store = Store::memory();
    let first = load(&store, now()).await.unwrap();
    assert_eq!(load(&store, later(300)).await.unwrap(), first);
    let renewed = load(&store, later(340)).await.unwrap();
    assert_eq!(renewed.ca, first.ca);
    assert_ne!(renewed.certificate, first.certificate);
}

#[tokio::test]
async fn ce_02_the_first_creates_the_secret_and_the_others_adopt_it() {
    let server = Server::default();
    let (one, two) = (server.store(), server.store());
    let (first, second) = tokio::join!(load(&one, now()), load(&two, now()));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first, second);
    assert_eq!(server.held(), Some(first));
    assert_eq!(server.writes(), 1);
    let stored = server.0.lock().unwrap().secret.clone().unwrap();
    assert_eq!(stored["type"], "kubernetes.io/tls");
}

#[tokio::test]
async fn ce_02_who_loses_the_race_serves_what_is_stored() {
    let server = Server::default();
    let theirs = credentials();
    server.0.lock().unwrap().rivals = [secret(&theirs)].into();
    assert_eq!(load(&server.store(), now()).await.unwrap(), theirs);
    assert_eq!(server.writes(), 0);
}

#[tokio::test]
async fn good_content_is_never_written_over() {
    let server = Server::default();
    let stored = credentials();
    server.put(&secret(&stored));
    assert_eq!(load(&server.store(), now()).await.unwrap(), stored);
    assert_eq!(server.writes(), 0);
}

#[tokio::test]
async fn broken_content_is_replaced_and_the_rest_of_the_secret_stays() {
    let server = Server::default();
    let mut broken = secret(&credentials());
    let data = broken.data.get_or_insert_default();
    data.insert(CA.into(), ByteString(b"garbage".to_vec()));
    data.insert("note".into(), ByteString(b"ours".to_vec()));
    broken.metadata.labels = Some(BTreeMap::from([("team".into(), "ops".into())]));
    server.put(&broken);
    let new = load(&server.store(), now()).await.unwrap();
    assert_eq!(server.held(), Some(new.clone()));
    assert_eq!(
        judge(&new, &names(), Lifetimes::default(), now()),
        Standing::Good
    );
    let stored = server.0.lock().unwrap().secret.clone().unwrap();
    assert_eq!(stored["metadata"]["labels"]["team"], "ops");
    assert!(stored["data"]["note"].is_string());
}

#[tokio::test]
async fn an_empty_secret_is_filled() {
    let server = Server::default();
    server.put(&fresh("tls"));
    let new = load(&server.store(), now()).await.unwrap();
    assert_eq!(server.held(), Some(new));
}

#[tokio::test]
async fn of_two_replicas_that_renew_one_writes_and_the_other_adopts() {
    let server = Server::default();
    let old = credentials();
    server.put(&secret(&old));
    let theirs = renew_leaf(&old, &names(), Lifetimes::default(), later(340)).unwrap();
    server.0.lock().unwrap().rivals = [secret(&theirs)].into();
    assert_eq!(load(&server.store(), later(340)).await.unwrap(), theirs);
    assert_eq!(server.writes(), 0);
}

#[tokio::test]
async fn a_secret_that_never_holds_still_is_an_error_and_no_endless_loop() {
    let server = Server::default();
    let broken = fresh("tls");
    server.put(&broken);
    server.0.lock().unwrap().rivals = vec![broken; 20].into();
    let error = load(&server.store(), now()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("secret ops/tls keeps changing")
    );
}

#[tokio::test]
async fn lacking_rights_are_told_with_the_name_of_the_secret() {
    let server = Server::default();
    server.0.lock().unwrap().forbidden = true;
    let error = load(&server.store(), now()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("secret ops/tls cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn an_authority_with_the_key_of_another_is_replaced() {
    let server = Server::default();
    let mixed = Credentials {
        ca_key: credentials().ca_key,
        certificate: credentials().certificate,
        ..credentials()
    };
    server.put(&secret(&mixed));
    let new = load(&server.store(), now()).await.unwrap();
    assert_ne!(new.ca, mixed.ca);
    let standing = judge(&new, &names(), Lifetimes::default(), now());
    assert_eq!(standing, Standing::Good);
}
