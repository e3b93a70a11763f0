//! Logs of the process: structured, to standard error.

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::filter_fn,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object on a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// The client logs every answer of 500 as an error, also to dry runs, where it
/// is how the API server refuses a template. Given first, so that a filter that
/// names the target still brings it back.
const QUIET: &str = "kube_client::client::builder=off";

/// The span of everything that is logged about a plan.
#[must_use]
pub fn span_of(namespace: &str, plan: &str) -> Span {
    tracing::info_span!("releaseplan", namespace, plan)
}

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error(
        "log filter {filter:?} cannot be read (try \"info\" or \"info,belay=debug\"): {source}"
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else of this process writes logs already.
    #[error("logs are already set up: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts writing logs, for the rest of the process.
///
/// # Errors
/// A filter that cannot be read, or a second call.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let parsed = EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|source| {
        TelemetryError::Filter {
            filter: filter.to_owned(),
            source,
        }
    })?;
    tracing_subscriber::registry()
        .with(parsed)
        .with(filter_fn(is_ours))
        .with(lines(format, std::io::stderr, coloured(&std::io::stderr())))
        .try_init()?;
    Ok(())
}

/// Whether lines for people may have colours: on a terminal that takes them, unless
/// somebody said otherwise (NO_COLOR).
fn coloured(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Whether something is logged at all. The runtime's span around a pass names the
/// plan too, in one word with its kind: a line has namespace and name from ours.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() || !metadata.target().starts_with("kube_runtime")
}

/// Writes the lines, each with the span that it belongs to.
fn lines<S, W>(format: LogFormat, writer: W, coloured: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer);
    match format {
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed(),
        LogFormat::Text => layer.with_ansi(coloured).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = init(LogFormat::Text, "belay=loud").unwrap_err();
        assert!(error.to_string().contains("\"belay=loud\""), "{error}");
    }

    /// What is logged of an event in a pass, inside the runtime's own span.
    fn line_of_a_pass(format: LogFormat) -> String {
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let writer = Arc::clone(&written);
        let subscriber = tracing_subscriber::registry()
            .with(filter_fn(is_ours))
            .with(lines(format, move || Lines(Arc::clone(&writer)), false));
        tracing::subscriber::with_default(subscriber, || {
            let around = tracing::info_span!(
                target: "kube_runtime::controller",
                "reconciling object",
                "object.ref" = "ReleasePlan.v1alpha1.belay.dev/cart.shop"
            );
            let pass = || span_of("shop", "cart").in_scope(|| tracing::info!("released"));
            around.in_scope(pass);
        });
        let written = written.lock().unwrap();
        String::from_utf8(written.clone()).unwrap()
    }

    /// It may be a file.
    #[test]
    fn what_is_no_terminal_gets_no_colours() {
        let written: Vec<u8> = Vec::new();
        assert!(!coloured(&written));
    }

    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_namespace_and_name_of_its_plan_once() {
        let line = line_of_a_pass(LogFormat::Json);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        let plan = serde_json::json!({"name": "releaseplan", "namespace": "shop", "plan": "cart"});
        assert_eq!(json["span"], plan, "{line}");
        assert_eq!(json["message"], "released");
        for name in ["shop", "cart"] {
            assert_eq!(line.matches(name).count(), 1, "{line}");
        }
        let line = line_of_a_pass(LogFormat::Text);
        assert!(!line.contains('\u{1b}'), "{line:?}");
        assert!(line.contains("cart"), "{line}");
        assert_eq!(line.matches("shop").count(), 1, "{line}");
    }
}
