//! Whether the process lives, whether it may be sent traffic, and its metrics:
//! plain HTTP on a listener of its own.
//!
//! Readiness is the sum of named gates that the parts of the process open and
//! close; what a gate means is decided by its owner.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};

use crate::metrics::{CONTENT_TYPE, Metrics};

/// The gates of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<Gates>>);

#[derive(Debug, Default)]
struct Gates {
    /// Why each gate is closed; none for an open one.
    closed: BTreeMap<&'static str, Option<String>>,
    stopping: bool,
}

/// One condition of readiness, held by whoever knows whether it is met.
#[derive(Clone, Debug)]
pub struct Gate {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// A process that is ready as soon as it has no closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new gate, closed. The name says what has to be true.
    #[must_use]
    pub fn gate(&self, name: &'static str) -> Gate {
        let gate = Gate {
            name,
            readiness: self.clone(),
        };
        gate.close("not yet");
        gate
    }

    /// From here on the process is unready, whatever its gates say.
    pub fn stop(&self) {
        self.with(|gates| gates.stopping = true);
    }

    /// What keeps the process from being ready; empty if it is.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        self.with(|gates| {
            let stopping = gates.stopping.then(|| "the process is stopping".to_owned());
            let closed = gates.closed.iter().filter_map(|(name, why)| {
                let why = why.as_ref()?;
                Some(format!("{name}: {why}"))
            });
            stopping.into_iter().chain(closed).collect()
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Gates) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Gate {
    /// The condition is met.
    pub fn open(&self) {
        self.readiness
            .with(|gates| gates.closed.insert(self.name, None));
    }

    /// The condition is not met, and why.
    pub fn close(&self, why: &str) {
        self.readiness
            .with(|gates| gates.closed.insert(self.name, Some(why.to_owned())));
    }
}

#[derive(Clone)]
struct Health {
    readiness: Readiness,
    metrics: Metrics,
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn router(readiness: Readiness, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(numbers))
        .with_state(Health { readiness, metrics })
}

async fn readyz(State(health): State<Health>) -> Response {
    let unmet = health.readiness.unmet();
    if unmet.is_empty() {
        return "ok\n".into_response();
    }
    let body = unmet.join("\n") + "\n";
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn numbers(State(health): State<Health>) -> Response {
    match health.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn get_(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_only_while_every_gate_is_open_and_says_which_is_not() {
        let readiness = Readiness::new();
        let router = router(readiness.clone(), Metrics::new());
        let (plans, listener) = (readiness.gate("plans"), readiness.gate("listener"));
        assert_eq!(
            get_(&router, "/readyz").await,
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "listener: not yet\nplans: not yet\n".into()
            )
        );
        plans.open();
        listener.open();
        assert_eq!(
            get_(&router, "/readyz").await,
            (StatusCode::OK, "ok\n".into())
        );
        plans.close("the watch broke");
        assert_eq!(get_(&router, "/readyz").await.1, "plans: the watch broke\n");
        assert_eq!(get_(&router, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_stopping_process_is_unready_but_alive() {
        let readiness = Readiness::new();
        let router = router(readiness.clone(), Metrics::new());
        readiness.gate("plans").open();
        readiness.stop();
        let (status, body) = get_(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "the process is stopping\n");
        assert_eq!(get_(&router, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_served() {
        let metrics = Metrics::new();
        metrics.set_queue_depth(3);
        let router = router(Readiness::new(), metrics);
        let (status, body) = get_(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("belay_queue_depth 3"), "{body}");
    }
}
