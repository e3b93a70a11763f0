//! A proxy between the operator and the API server, for what cannot be provoked
//! on the real thing: something that happens between two requests.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::State,
    http::{Request, Response, StatusCode, request::Parts},
};
use belay_testenv::Cluster;
use futures::future::BoxFuture;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// What a test does before and after a request is passed on.
pub trait Meddler: Send + Sync + 'static {
    /// Before the request is passed on.
    fn before<'a>(&'a self, _: &'a Parts, _: &'a Bytes) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// After it was answered, before the answer is passed back.
    fn after<'a>(&'a self, _: &'a Parts, _: &'a Bytes, _: StatusCode) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
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
            answer.map(Body::new)
        }
        Err(error) => {
            let mut answer = Response::new(Body::from(error.to_string()));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}
