//! The admission webhooks for ReleasePlans.
//!
//! [`router`] is all there is to them: it has no listener, so that tests hand
//! it recorded reviews. Every request gets an answer: a review where there is a
//! uid to answer to, a plain 4xx where there is none. Nothing in here has side
//! effects on the cluster, whether the reviewed request is a dry run or not.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request as HttpRequest, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use tokio::time::Instant;

use crate::{
    clock::Clock,
    metrics::{self, Endpoint, Metrics},
};

mod checks;
mod config_maps;
mod handlers;
mod lookup;
mod orders;
mod review;
#[cfg(test)]
pub(crate) mod tests;
pub mod tls;
mod warning;

pub use lookup::{ClusterLookup, Held, Lookup, LookupError, Merged};
pub use review::{API_VERSION, KIND};

/// Largest review that is read, in bytes. The API server refuses objects over
/// 3 MiB; an update carries two of them, escaped.
pub const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Time for a review to arrive in full.
const BODY_TIMEOUT: Duration = Duration::from_secs(4);

/// Path of the mutating webhook.
pub const MUTATE: &str = "/mutate";
/// Path of the validating webhook.
pub const VALIDATE: &str = "/validate";

/// What the webhooks work with.
#[derive(Clone)]
pub struct Webhook {
    lookup: Arc<dyn Lookup>,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    operator: Option<Arc<str>>,
}

impl Webhook {
    /// Webhooks that look up through `lookup` and stamp orders with the time of
    /// `clock`. `operator` is the user name of
    /// the operator itself, who may do what users may not, such as finish a
    /// plan that is being deleted.
    #[must_use]
    pub fn new(
        lookup: Arc<dyn Lookup>,
        metrics: Metrics,
        clock: Arc<dyn Clock>,
        operator: Option<&str>,
    ) -> Self {
        Self {
            lookup,
            metrics,
            clock,
            operator: operator.map(Arc::from),
        }
    }
}

/// The webhooks as a service.
pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route(
            MUTATE,
            post(|state, request| serve(state, Endpoint::Mutate, request)),
        )
        .route(
            VALIDATE,
            post(|state, request| serve(state, Endpoint::Validate, request)),
        )
        .with_state(webhook)
}

async fn serve(
    State(webhook): State<Webhook>,
    endpoint: Endpoint,
    request: HttpRequest,
) -> Response {
    let start = Instant::now();
    let (response, operation, verdict) = match receive(request).await {
        Ok(body) => answer(&webhook, endpoint, &body).await,
        Err((code, message)) => (
            plain(code, message),
            metrics::Operation::Unknown,
            metrics::Verdict::Malformed,
        ),
    };
    webhook
        .metrics
        .admission(endpoint, operation, verdict, start.elapsed());
    response
}

async fn answer(
    webhook: &Webhook,
    endpoint: Endpoint,
    body: &[u8],
) -> (Response, metrics::Operation, metrics::Verdict) {
    let (echo, request) = match review::read(body) {
        Ok(review) => review,
        Err(unusable) => {
            let response = match unusable {
                review::Unusable::Http(code, message) => plain(code, message),
                review::Unusable::Answered(review) => json(&review),
            };
            return (
                response,
                metrics::Operation::Unknown,
                metrics::Verdict::Malformed,
            );
        }
    };
    let verdict = match endpoint {
        Endpoint::Mutate => handlers::mutate(webhook, &request),
        Endpoint::Validate => handlers::validate(webhook, &request).await,
    };
    let counted = if verdict.is_allowed() {
        metrics::Verdict::Allowed
    } else {
        metrics::Verdict::Denied
    };
    tracing::debug!(
        ?endpoint,
        operation = ?request.operation,
        namespace = request.namespace.as_deref(),
        subject = %request.subject(),
        user = request.user_info.username.as_deref(),
        dry_run = request.dry_run,
        verdict = ?counted,
        "review answered"
    );
    let response = json(&echo.answer(verdict));
    (response, request.operation.into(), counted)
}

/// Takes in a body that may be a review.
async fn receive(request: HttpRequest) -> Result<Vec<u8>, (StatusCode, String)> {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send an AdmissionReview as application/json".into(),
        ));
    }
    let too_large = || {
        let message = format!("the review is larger than {BODY_LIMIT} bytes");
        (StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BODY_LIMIT)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(error)) if is_too_large(&error) => Err(too_large()),
        Ok(Err(error)) => Err((
            StatusCode::BAD_REQUEST,
            format!("the body broke off: {error}"),
        )),
        Err(_) => Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time".into(),
        )),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn plain(code: StatusCode, message: String) -> Response {
    (code, message).into_response()
}

fn json(review: &review::Review) -> Response {
    match serde_json::to_vec(review) {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                header::HeaderValue::from_static("application/json"),
            );
            response
        }
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the answer cannot be written: {error}"),
        ),
    }
}

impl From<review::Operation> for metrics::Operation {
    fn from(operation: review::Operation) -> Self {
        match operation {
            review::Operation::Create => Self::Create,
            review::Operation::Update => Self::Update,
            review::Operation::Delete => Self::Delete,
            review::Operation::Connect => Self::Connect,
        }
    }
}
