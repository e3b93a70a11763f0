//! The one error type of the test environment. Every message names the thing
//! that failed and what to do next.

use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong between "no binaries" and "a cluster that works".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read, written or locked.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The verb, for example "write".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No home to keep built binaries in.
    #[error("cannot tell where to keep the built tools: set HOME or XDG_CACHE_HOME")]
    NoCacheDir,
    /// A compiler is missing.
    #[error(
        "{tool} is needed to build {what} and is not on PATH: install {hint}, or set KUBEBUILDER_ASSETS to a folder that has the binaries"
    )]
    MissingToolchain {
        /// The program, for example "go".
        tool: &'static str,
        /// What it would have built.
        what: String,
        /// What to install.
        hint: &'static str,
    },
    /// A build ended with an error.
    #[error("building {what} failed ({status}); the end of its output:\n{output}")]
    Build {
        /// What was built.
        what: String,
        /// The exit status of the compiler.
        status: String,
        /// The last lines it printed.
        output: String,
    },
    /// A program could not be started at all.
    #[error("cannot start {name}: {source}")]
    Spawn {
        /// The process, for example "kube-apiserver".
        name: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A process of the cluster ended although nobody asked it to.
    #[error("{name} ended unexpectedly ({status}); the end of {log}:\n{tail}", log = log.display())]
    Exited {
        /// The process.
        name: String,
        /// Its exit status.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of that file.
        tail: String,
    },
    /// Something did not come true in time.
    #[error("{what} did not come true within {after:?}{}", detail_of(detail))]
    Deadline {
        /// What was waited for.
        what: String,
        /// The deadline.
        after: Duration,
        /// What was seen last, for example the end of a log.
        detail: String,
    },
    /// The name given is not a process of this cluster.
    #[error("no process {name} in this cluster (there are: {known})")]
    UnknownProcess {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// kubectl said no.
    #[error("kubectl {args} failed ({status}):\n{stderr}")]
    Kubectl {
        /// The arguments.
        args: String,
        /// The exit status.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// The API server refused a request of the harness.
    #[error("{what}: {source}")]
    Api {
        /// What was asked.
        what: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A kubeconfig that cannot be used.
    #[error("the kubeconfig {path} cannot be used: {source}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<kube::config::KubeconfigError>,
    },
    /// A certificate or key could not be made.
    #[error("cannot make the certificates of the cluster: {0}")]
    Certificates(#[from] rcgen::Error),
    /// A file of ours holds something that we did not write.
    #[error("{path} cannot be understood ({reason}): remove it and try again", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No free TCP port.
    #[error("found no free TCP port on 127.0.0.1")]
    NoPort,
    /// An answer that is not HTTP.
    #[error("GET http://{address}{path}: {reason}")]
    Http {
        /// Host and port.
        address: std::net::SocketAddr,
        /// The path asked for.
        path: String,
        /// What went wrong.
        reason: String,
    },
}

fn detail_of(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!("; last seen:\n{detail}")
    }
}

impl Error {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api {
            what,
            source: Box::new(source),
        }
    }

    /// Whether a process lost the race for a port that was free a moment ago.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Exited { tail, .. } if tail.contains("address already in use"))
    }
}
