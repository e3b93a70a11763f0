//! The longest time that a request of a command may take.
//!
//! A server that takes a connection and says nothing would keep a person waiting
//! without end. Watches have none: their answer goes on as long as they do.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Bytes, HttpBody},
    http::{Request, Response},
};
use futures::{Stream, StreamExt as _, future::BoxFuture, stream};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Layer, Service};

/// Longest time until the whole answer is there.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// The server was silent for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server has not answered within {}s", LIMIT.as_secs())]
pub(super) struct Silent;

/// Ends requests that take too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline(inner)
    }
}

/// A service whose requests end in time.
#[derive(Clone, Debug)]
pub(super) struct Deadline<S>(S);

impl<S, A, B> Service<Request<A>> for Deadline<S>
where
    S: Service<Request<A>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let endless = is_watch(&request);
        let answer = self.0.call(request);
        Box::pin(async move {
            if endless {
                return Ok(answer.await?.map(BodyExt::boxed_unsync));
            }
            let until = Instant::now() + LIMIT;
            let answer = timeout_at(until, answer).await.map_err(|_| Silent)??;
            Ok(answer.map(|body| StreamBody::new(frames(body, until)).boxed_unsync()))
        })
    }
}

fn is_watch<A>(request: &Request<A>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| part == "watch=true")
}

/// The parts of a body that come until a time, and then an error.
fn frames<B>(
    body: B,
    until: Instant,
) -> impl Stream<Item = <BodyStream<B> as Stream>::Item> + Send + use<B>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    stream::unfold(Some(BodyStream::new(body)), move |body| async move {
        let mut body = body?;
        match timeout_at(until, body.next()).await {
            Ok(frame) => Some((frame?, Some(body))),
            Err(_) => Some((Err(Silent.into()), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use kube::{Client, api::ListParams, api::WatchParams};
    use tower::service_fn;

    use super::*;
    use crate::{api::StoredPlan, cli::CliError};

    /// A client of a server that says what `answer` makes, and then nothing.
    fn client(answer: fn() -> Option<&'static str>) -> Client {
        let silent = service_fn(move |_: Request<kube::client::Body>| async move {
            let Some(begin) = answer() else {
                return futures::future::pending().await;
            };
            let begin = stream::iter([Ok::<_, BoxError>(begin)]);
            let body = Body::from_stream(begin.chain(stream::pending()));
            Ok::<_, BoxError>(Response::new(body.map_err(BoxError::from)))
        });
        Client::new(DeadlineLayer.layer(silent), "s")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_told_and_not_waited_for() {
        for answer in [|| None, || Some("{\"items\": [")] {
            let api = kube::Api::<StoredPlan>::namespaced(client(answer), "s");
            let begun = Instant::now();
            let error = api.list(&ListParams::default()).await.unwrap_err();
            assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
            let error = CliError::api("list releaseplans", error);
            assert_eq!(
                error.to_string(),
                "cannot list releaseplans: the API server has not answered within 30s"
            );
            assert_eq!(error.exit().code(), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_however_long_nothing_happens() {
        for answer in [|| None, || Some("")] {
            let api = kube::Api::<StoredPlan>::namespaced(client(answer), "s");
            let watching = async {
                let params = WatchParams::default();
                let mut events = std::pin::pin!(api.watch(&params, "0").await?);
                events.next().await.transpose()
            };
            let ended = tokio::time::timeout(20 * LIMIT, watching).await;
            assert!(ended.is_err(), "{ended:?}");
        }
    }
}
