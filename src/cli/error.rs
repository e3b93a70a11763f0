//! Why a command cannot do what it is asked, and what to do about it.
//!
//! Each error says what was tried, on which object, and, where there is one,
//! the next thing to do. What the API server or the webhook said is passed on
//! in its own words.

use std::{io, path::PathBuf};

use kube::core::Status;

use super::{Exit, deadline::Silent, status::Caller};

/// Why a command ends without having done its work.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// What was typed makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead.
        hint: Option<String>,
    },
    /// There is no usable way to a cluster.
    #[error("there is no way to a cluster: {reason}")]
    NoCluster {
        /// What is wrong with it.
        reason: String,
        /// The contexts that there are, if one of them can be named instead.
        contexts: Vec<String>,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The object is not there.
    #[error("{what} not found{}", within(namespace))]
    NotFound {
        /// What was looked for.
        what: String,
        /// Where.
        namespace: String,
        /// What to try.
        hint: Option<String>,
    },
    /// Nobody would act on it, or it would hit something else.
    #[error("{message}")]
    Refused {
        /// What is so at present.
        message: String,
        /// What can be done.
        hint: Option<String>,
    },
    /// The status of a plan is none that this version can read, so that nothing
    /// it says can be told.
    #[error("this version cannot read the status of {what}: {reason}")]
    Unreadable {
        /// The plan.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An admission webhook said no, in these words.
    #[error("{doing}: {message}")]
    Denied {
        /// What was tried.
        doing: String,
        /// The webhook's message.
        message: String,
    },
    /// The API server does not allow it.
    #[error("{doing}: {message}")]
    Forbidden {
        /// What was tried.
        doing: String,
        /// The API server's message.
        message: String,
    },
    /// The API server did not do it.
    #[error("{doing}: {}", said(source))]
    Api {
        /// What was tried.
        doing: String,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The answer cannot be written.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
    /// The answer cannot be put into the form asked for.
    #[error("cannot put the answer into this form: {0}")]
    Form(String),
}

fn within(namespace: &str) -> String {
    if namespace.is_empty() {
        return String::new();
    }
    format!(" in namespace {namespace}")
}

impl CliError {
    /// Wrong usage, with what to type instead.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// An order that is not given, with what can be done.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// An error of the client, while `doing` something such as `read plan shop`.
    pub fn api(doing: impl Into<String>, error: kube::Error) -> Self {
        let doing = format!("cannot {}", doing.into());
        match error {
            kube::Error::Api(status) if is_denial(&status) => Self::Denied {
                doing,
                message: plain(&status.message),
            },
            kube::Error::Api(status) if status.is_forbidden() => Self::Forbidden {
                doing,
                message: status.message.clone(),
            },
            error => Self::Api {
                doing,
                source: Box::new(error),
            },
        }
    }

    /// The exit code that it ends in.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        Exit::Error
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.hint_for(&Caller::default())
    }

    /// What to do about it, with commands against the cluster of this call.
    #[must_use]
    pub fn hint_for(&self, caller: &Caller) -> Option<String> {
        match self {
            Self::Usage { hint, .. } | Self::NotFound { hint, .. } | Self::Refused { hint, .. } => {
                hint.clone()
            }
            Self::NoCluster { contexts, .. } if !contexts.is_empty() => Some(format!(
                "name a context with --context; there are: {}",
                contexts.join(", ")
            )),
            Self::NoCluster { .. } => Some(
                "name a kubeconfig with KUBECONFIG or --kubeconfig FILE, and a context of it with \
                 --context NAME"
                    .into(),
            ),
            Self::Forbidden { message, .. } => Some(match right(message) {
                Some((verb, resource)) if resource != "releaseplans" => {
                    format!("ask for the right to {verb} {resource}")
                }
                _ => {
                    "orders need patch on releaseplans, looking needs get, waiting and lists also list and watch"
                        .into()
                }
            }),
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if status.code == 404 => {
                    Some("is Belay installed in this cluster?".into())
                }
                kube::Error::Api(status) if status.is_conflict() => {
                    Some("somebody changed it at the same time: look again, then repeat".into())
                }
                kube::Error::Api(status) if is_unreachable(status) => {
                    let check = caller.about("check");
                    Some(format!("does the operator run? try: {check}"))
                }
                kube::Error::Api(_) => None,
                _ => {
                    let ready = caller.anywhere("get --raw /readyz");
                    Some(format!("does the API server answer? try: {ready}"))
                }
            },
            Self::Unreadable { .. } => {
                Some(format!("take the version of this command that the operator has: {}", caller.about("check")))
            }
            Self::File { .. } | Self::Denied { .. } | Self::Output(_) | Self::Form(_) => None,
        }
    }

    /// Whether the reader went away, as `head` does; that is nobody's fault.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// What the client says, without the debugging output of an answer.
fn said(error: &kube::Error) -> String {
    let mut below: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = below {
        if let Some(silent) = error.downcast_ref::<Silent>() {
            return silent.to_string();
        }
        below = error.source();
    }
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => error.to_string(),
    }
}

/// Whether the API server could not ask an admission webhook.
fn is_unreachable(status: &Status) -> bool {
    status.code == 500 && status.message.contains("failed calling webhook")
}

/// Whether an answer comes from an admission webhook.
fn is_denial(status: &Status) -> bool {
    status.message.starts_with("admission webhook ") && status.message.contains(DENIED)
}

/// The verb and the resource that the API server does not allow.
fn right(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, _) = rest.split_once('"')?;
    Some((verb, resource))
}

/// The API server's words between the webhook's name and its message.
const DENIED: &str = "denied the request: ";

/// A denial without the API server's frame around it.
fn plain(message: &str) -> String {
    message
        .split_once(DENIED)
        .map_or(message, |(_, rest)| rest)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, reason: &str, message: &str) -> CliError {
        let status = Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Status::default()
        };
        CliError::api("abort releaseplan/shop", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_webhooks_denial_is_told_in_its_own_words() {
        let words = "admission webhook \"validate.belay.dev\" denied the request: \
                     metadata.annotations[belay.dev/abort]: Invalid value: nothing is released";
        let error = answer(422, "Invalid", words);
        assert_eq!(
            error.to_string(),
            "cannot abort releaseplan/shop: metadata.annotations[belay.dev/abort]: \
             Invalid value: nothing is released"
        );
        assert_eq!(error.exit(), Exit::Error);
    }

    #[test]
    fn a_missing_right_says_which_rights_are_needed() {
        let error = answer(403, "Forbidden", "User \"joe\" cannot patch resource");
        assert!(error.to_string().contains("joe"), "{error}");
        assert!(error.hint().unwrap().contains("patch"), "{error:?}");
        let words = "pods is forbidden: User \"joe\" cannot list resource \"pods\" in API group";
        let error = answer(403, "Forbidden", words);
        assert_eq!(error.hint().unwrap(), "ask for the right to list pods");
    }

    #[test]
    fn a_cluster_without_belay_is_told_from_one_that_does_not_answer() {
        let error = answer(404, "NotFound", "the server could not find the resource");
        assert!(error.hint().unwrap().contains("installed"), "{error:?}");
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error() {
        let error = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert!(error.is_broken_pipe());
        assert!(!answer(500, "", "").is_broken_pipe());
    }

    #[test]
    fn an_answer_is_told_in_its_own_words_and_a_webhook_that_is_away_by_what_to_do() {
        let message = "Internal error occurred: failed calling webhook \"x\": connection refused";
        let error = answer(500, "InternalError", message);
        assert_eq!(
            error.to_string(),
            format!("cannot abort releaseplan/shop: {message}")
        );
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("belay check"))
        );
        let caller = Caller {
            program: "kubectl belay".to_owned(),
            cluster: vec!["--context".to_owned(), "prod".to_owned()],
        };
        let told = error.hint_for(&caller).unwrap();
        assert!(
            told.ends_with("kubectl belay check --context prod"),
            "{told}"
        );
        let silent = CliError::api("read it", kube::Error::LinesCodecMaxLineLengthExceeded);
        let told = silent.hint_for(&caller).unwrap();
        assert!(told.ends_with("/readyz --context prod"), "{told}");
        let bare = answer(500, "InternalError", "");
        assert!(bare.to_string().contains("InternalError"), "{bare}");
        assert_eq!(bare.hint(), None);
    }
}
