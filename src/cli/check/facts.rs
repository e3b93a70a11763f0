//! What is known of a cluster, as far as it answered.
//!
//! Plain data, so that what follows from it can be judged without a cluster.

use std::fmt;

use k8s_openapi::{ByteString, api::apps::v1::Deployment, jiff::Timestamp};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::rights::Right;
use crate::{api::StoredPlan, cli::status::Caller};

/// An answer of the API server, or why there is none.
pub(super) type Answer<T> = Result<T, Silence>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The caller may not ask, in the API server's words.
    Forbidden(String),
    /// It did not come in time.
    Late,
    /// Anything else.
    Failed(String),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(message) | Self::Failed(message) => f.write_str(message),
            Self::Late => f.write_str("the API server did not answer in time"),
        }
    }
}

/// What is known of a cluster in which Belay is installed.
pub(super) struct Facts {
    pub(super) now: Timestamp,
    /// Whom commands are told to.
    pub(super) caller: Caller,
    /// Where plans are tried and looked at; none for all namespaces.
    pub(super) namespace: Option<String>,
    /// The namespace of the operator.
    pub(super) operator: String,
    /// Whether the caller named it.
    pub(super) named: bool,
    pub(super) version: String,
    pub(super) crd: Answer<Option<Value>>,
    pub(super) mutating: Answer<Option<Hooks>>,
    pub(super) validating: Answer<Option<Hooks>>,
    /// What came of a plan that must be accepted.
    pub(super) accepted: Answer<Reply>,
    /// What came of one that only the webhook can refuse.
    pub(super) refused: Answer<Reply>,
    /// Rights that the operator lacks.
    pub(super) operator_lacks: Answer<Vec<Right>>,
    /// Rights that the caller lacks.
    pub(super) caller_lacks: Answer<Vec<Right>>,
    pub(super) deployment: Answer<Option<Deployment>>,
    /// The certificate of the webhook server; none where there is no Secret.
    pub(super) leaf: Answer<Option<String>>,
    /// When the lease was renewed, and for how many seconds; none without one.
    pub(super) lease: Answer<Option<(Timestamp, i32)>>,
    pub(super) owners: Answer<Owners>,
}

/// A webhook configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hooks {
    /// What each of its webhooks trusts.
    pub(super) trusted: Vec<ByteString>,
    /// The namespace of the Service that they are reached by, if any.
    pub(super) service: Option<String>,
    /// The URL that they are reached by without one, as far as the host.
    pub(super) url: Option<String>,
    /// Operations on plans that none of them is asked about.
    pub(super) unasked: Vec<&'static str>,
    /// What keeps some requests from them: a selector, a condition, or that they
    /// may be passed over.
    pub(super) leaks: Vec<&'static str>,
}

/// What the API server answered to a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// The plan as it would be stored, or a status.
    pub(super) body: Value,
    pub(super) warnings: Vec<String>,
}

/// Who writes to workloads.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    pub(super) plans: Vec<StoredPlan>,
    pub(super) deployments: Vec<PartialObjectMeta<Deployment>>,
    pub(super) others: Vec<Other>,
}

/// An object of another tool that has a Deployment as its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Other {
    /// Tool, kind and name, as messages name it.
    pub(super) what: String,
    pub(super) namespace: String,
    pub(super) deployment: String,
}

/// What is known of a cluster before Belay is installed.
pub(super) struct Before {
    pub(super) version: String,
    pub(super) crd: Answer<Option<Value>>,
    /// Rights that the caller lacks to install.
    pub(super) lacks: Answer<Vec<Right>>,
    /// All resources that are served.
    pub(super) resources: Answer<Vec<Served>>,
}

/// A resource that is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) short_names: Vec<String>,
}
