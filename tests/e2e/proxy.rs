//! A proxy between the operator and the API server, for what cannot be provoked
//! on the real thing: something that happens between two requests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::State,
    http::{Request, Response, StatusCode, request::Parts},
};
use belay_testenv::{Cluster, Operator};
use futures::{StreamExt as _, future::BoxFuture, stream};
use http_body_util::BodyExt as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep_until};

use crate::support::options;

/// What a test does before and after a request is passed on.
pub trait Meddler: Send + Sync + 'static {
    /// Before the request is passed on.
    fn before<'a>(&'a self, _: &'a Parts, _: &'a Bytes) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// What the proxy answers itself, without asking the API server.
    fn instead<'a>(&'a self, _: &'a Parts, _: &'a Bytes) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(async { None })
    }

    /// How much later than they come the events of a watch are passed back.
    fn lag(&self, _: &Parts) -> Duration {
        Duration::ZERO
    }

    /// After it was answered, before the answer is passed back.
    fn after<'a>(&'a self, _: &'a Parts, _: &'a Bytes, _: StatusCode) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// An error of the API server's making.
pub struct Failure {
    pub code: StatusCode,
    pub reason: &'static str,
}

impl Failure {
    fn answer(&self) -> Response<Body> {
        let status = serde_json::json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "reason": self.reason, "code": self.code.as_u16(),
            "message": format!("{} made by a test", self.reason),
        });
        Response::builder()
            .status(self.code)
            .header("content-type", "application/json")
            .body(Body::from(status.to_string()))
            .unwrap()
    }
}

/// Starts an operator whose requests go through a proxy.
pub async fn operator(cluster: &Arc<Cluster>, meddler: Arc<dyn Meddler>) -> Operator {
    let address = start(cluster, meddler).await;
    let cluster = Arc::clone(cluster);
    let options = options().server(format!("http://{address}"));
    tokio::task::spawn_blocking(move || Operator::start(&cluster, &options).unwrap())
        .await
        .unwrap()
}

struct Proxy {
    client: Client,
    meddler: Arc<dyn Meddler>,
}

/// Starts a proxy to the API server of a cluster. It passes the caller's own
/// credentials on and ends with the test's runtime.
pub async fn start(cluster: &Cluster, meddler: Arc<dyn Meddler>) -> SocketAddr {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.auth_info = Default::default();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let router = Router::new()
        .fallback(pass)
        .with_state(Arc::new(Proxy { client, meddler }));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = axum_server::from_tcp(listener).unwrap();
    tokio::spawn(server.serve(router.into_make_service()));
    address
}

async fn pass(State(proxy): State<Arc<Proxy>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    proxy.meddler.before(&parts, &body).await;
    if let Some(failure) = proxy.meddler.instead(&parts, &body).await {
        return failure.answer();
    }
    let mut onward = Request::builder().method(&parts.method).uri(&parts.uri);
    for (name, value) in &parts.headers {
        if name != "host" {
            onward = onward.header(name, value);
        }
    }
    let onward = onward
        .body(kube::client::Body::from(body.to_vec()))
        .unwrap();
    match proxy.client.send(onward).await {
        Ok(answer) => {
            proxy.meddler.after(&parts, &body, answer.status()).await;
            let lag = proxy.meddler.lag(&parts);
            if lag.is_zero() {
                answer.map(Body::new)
            } else {
                answer.map(|body| late(body, lag))
            }
        }
        Err(error) => {
            let mut answer = Response::new(Body::from(error.to_string()));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

/// Passes a body on, every part of it `lag` after it came.
fn late(body: kube::client::Body, lag: Duration) -> Body {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut parts = body.into_data_stream();
        while let Some(part) = parts.next().await {
            if sender.send((Instant::now() + lag, part)).is_err() {
                return;
            }
        }
    });
    Body::from_stream(stream::unfold(receiver, async |mut receiver| {
        let (due, part) = receiver.recv().await?;
        sleep_until(due).await;
        Some((part, receiver))
    }))
}
