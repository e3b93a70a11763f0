//! What can go wrong in a pass.

use crate::{
    cluster::{ApplyFailure, ConnectError, classify, lacks_rights},
    machine::cut_to,
    plan::Target,
    revision::RevisionError,
};

/// Longest part of a message that why something cannot be read may take, in
/// bytes.
const SHORT: usize = 200;

/// Why a pass did not come to its end. Every kind is retried; a conflict
/// quietly, since it only means that something else was quicker.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The object changed since it was read.
    #[error("{what} changed while Belay was about to write it")]
    Conflict {
        /// The object.
        what: String,
    },
    /// The API server refuses a template.
    #[error("{target} refuses the template: {message}")]
    Refused {
        /// The workload.
        target: Target,
        /// What the API server says.
        message: String,
    },
    /// The API server refuses to store a ConfigMap.
    #[error("configmap {name} cannot be stored: {message}")]
    ConfigMapRefused {
        /// The ConfigMap.
        name: String,
        /// What the API server says.
        message: String,
    },
    /// A template could neither be written nor be refused.
    #[error("the template of {target} could not be judged: {message}")]
    Undecided {
        /// The workload.
        target: Target,
        /// What the API server says.
        message: String,
    },
    /// A request failed.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was being done, with the object's name.
        doing: String,
        /// What the client says.
        source: Box<kube::Error>,
    },
    /// A revision exists under the name of another content.
    #[error(
        "controllerrevision {name} exists and is not this plan's; delete it if nobody needs it"
    )]
    ForeignRevision {
        /// Its name.
        name: String,
    },
    /// The stored status cannot be read; it is not overwritten.
    #[error(
        "the status of releaseplan {name} cannot be read by this version ({fault}); run the version that wrote it, or repair it"
    )]
    Status {
        /// Name of the plan.
        name: String,
        /// What the decoder says.
        fault: String,
    },
    /// A stored revision cannot be used.
    #[error(transparent)]
    Revision(#[from] RevisionError),
    /// Field ownership on a workload cannot be read.
    #[error("managedFields of {target} cannot be read: {source}")]
    Ownership {
        /// The workload.
        target: Target,
        /// What is wrong with it.
        source: crate::fields::FieldsError,
    },
    /// The ConfigMaps of the cluster have not been listed yet.
    #[error(
        "the configmaps of the cluster are not known yet; may the operator list and watch them?"
    )]
    Unlisted,
    /// There is no connection for a watch.
    #[error("pods cannot be watched: {0}")]
    Connect(#[from] ConnectError),
    /// The pass took too long.
    #[error("the pass did not end within {0:?}")]
    Timeout(std::time::Duration),
    /// The pass panicked: a bug in Belay, which this plan alone has to bear.
    #[error("internal error: {0}; please report it")]
    Panic(String),
}

impl ReconcileError {
    /// A failed request, told apart from a mere conflict.
    pub(super) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        |source| {
            if matches!(&source, kube::Error::Api(status) if status.code == 409) {
                Self::Conflict { what: doing }
            } else {
                Self::Api {
                    doing,
                    source: Box::new(source),
                }
            }
        }
    }

    /// Whether the plan is simply to be read again.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl ReconcileError {
    /// Whether the API server refuses a write, which is then decided anew.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::ConfigMapRefused { .. })
    }

    /// A failed write of a ConfigMap. Rights that are missing refuse it like any
    /// policy: nothing else needs them, and people have to hear of both.
    pub(super) fn unwritten(name: &str, doing: String) -> impl FnOnce(kube::Error) -> Self {
        |error| {
            let name = name.to_owned();
            match classify(&error) {
                ApplyFailure::Refused(message) => Self::ConfigMapRefused { name, message },
                ApplyFailure::Conflict => Self::Conflict { what: doing },
                ApplyFailure::Undecided(message) if lacks_rights(&message) => {
                    Self::ConfigMapRefused { name, message }
                }
                ApplyFailure::Undecided(_) => Self::Api {
                    doing,
                    source: Box::new(error),
                },
            }
        }
    }

    /// Why a read failed, in short and in the same words each time: it stands in
    /// the status. What only the client knows of addresses and certificates is
    /// left to the log.
    pub(super) fn in_short(&self) -> String {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if !status.message.is_empty() => {
                    cut_to(&status.message, SHORT)
                }
                _ => "the API server did not answer".to_owned(),
            },
            Self::Timeout(limit) => format!("no answer within {limit:?}"),
            other => other.to_string(),
        }
    }

    /// Whether trying again is of no use: rights are missing, or a policy
    /// refuses it.
    pub(super) fn is_denied(&self) -> bool {
        match self {
            Self::Api { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if [403, 404, 422].contains(&status.code))
            }
            Self::Refused { .. } | Self::ConfigMapRefused { .. } | Self::Ownership { .. } => true,
            _ => false,
        }
    }
}

/// What a failed apply of a template means for a pass.
pub(super) fn judged(target: &Target, failure: ApplyFailure) -> ReconcileError {
    let target = target.clone();
    match failure {
        ApplyFailure::Refused(message) => ReconcileError::Refused { target, message },
        ApplyFailure::Conflict => ReconcileError::Conflict {
            what: target.to_string(),
        },
        ApplyFailure::Undecided(message) => ReconcileError::Undecided { target, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_read_failed_is_said_in_short_without_addresses() {
        let said = |message: &str, code| {
            let status = kube::core::Status::failure(message, "Test").with_code(code);
            ReconcileError::api("read it")(kube::Error::Api(status.boxed())).in_short()
        };
        let forbidden = r#"configmaps "web" is forbidden: User "belay" cannot get resource"#;
        assert_eq!(said(forbidden, 403), forbidden);
        assert!(said(&"x".repeat(500), 500).len() <= SHORT + '…'.len_utf8());
        let unreachable = std::io::Error::other("connect to 10.0.0.1:443");
        let unreachable = kube::Error::ReadEvents(unreachable);
        assert_eq!(
            ReconcileError::api("read it")(unreachable).in_short(),
            "the API server did not answer"
        );
        let late = ReconcileError::Timeout(std::time::Duration::from_secs(10));
        assert_eq!(late.in_short(), "no answer within 10s");
    }

    #[test]
    fn a_config_map_is_refused_by_policies_quotas_and_missing_rights_only() {
        let judged = |code: u16, message: &str, cause: Option<&str>| {
            let mut status = serde_json::json!({"status": "Failure", "code": code,
                "reason": "Test", "message": message});
            if let Some(cause) = cause {
                status["details"] = serde_json::json!({"causes": [{"reason": cause}]});
            }
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            let error = kube::Error::Api(status.boxed());
            ReconcileError::unwritten("web", "store it".to_owned())(error)
        };
        for (code, message) in [
            (403, "configmaps \"web\" is forbidden: exceeded quota: few"),
            (
                403,
                "configmaps is forbidden: User \"belay\" cannot create resource \"configmaps\"",
            ),
            (422, "ConfigMap \"web\" is invalid: data: Forbidden: no"),
            (400, "admission webhook \"x\" denied the request: no"),
        ] {
            let error = judged(code, message, None);
            let ReconcileError::ConfigMapRefused {
                name,
                message: said,
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!((name.as_str(), said.as_str()), ("web", message));
            assert!(error.is_refusal() && error.is_denied());
        }
        assert!(judged(409, "the object has been modified", None).is_conflict());
        for (code, cause) in [
            (403, Some("NamespaceTerminating")),
            (404, None),
            (500, None),
        ] {
            let error = judged(code, "no", cause);
            assert!(matches!(error, ReconcileError::Api { .. }), "{error}");
        }
    }
}
