//! Logs of the process: structured, to standard error.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

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
    let registry = tracing_subscriber::registry().with(parsed);
    match format {
        LogFormat::Json => registry
            .with(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_writer(std::io::stderr),
            )
            .try_init()?,
        LogFormat::Text => registry
            .with(fmt::layer().with_writer(std::io::stderr))
            .try_init()?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = init(LogFormat::Text, "belay=loud").unwrap_err();
        assert!(error.to_string().contains("\"belay=loud\""), "{error}");
    }
}
