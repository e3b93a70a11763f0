//! What a valid plan consists of.

use std::{fmt, time::Duration};

use serde_json::Value;

use crate::api::{DeletionPolicy, OnFailure, WorkloadKind, WorkloadRef};
use crate::config_maps::Tracked;

/// A workload, named in full within the plan's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            WorkloadKind::Deployment => write!(f, "deployment {}", self.name),
        }
    }
}

impl Target {
    /// The same on the wire.
    #[must_use]
    pub fn to_ref(&self) -> WorkloadRef {
        WorkloadRef {
            kind: Some(self.kind),
            name: Some(self.name.clone()),
        }
    }

    /// The workload that a reference names; none if it is incomplete.
    #[must_use]
    pub fn from_ref(reference: &WorkloadRef) -> Option<Self> {
        Some(Self {
            kind: reference.kind.unwrap_or_default(),
            name: reference.name.clone()?,
        })
    }
}

/// A valid plan. Only [`Plan::parse`] makes one, hence the private fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub(super) components: Vec<ComponentPlan>,
    pub(super) progress_deadline: Duration,
    pub(super) bake_time: Duration,
    pub(super) restarts: i32,
    pub(super) paused: bool,
    pub(super) deletion_policy: DeletionPolicy,
    pub(super) on_failure: OnFailure,
    pub(super) max_retries: u32,
    pub(super) history_limit: usize,
    pub(super) spec: String,
    pub(super) content: String,
}

/// One component of a valid plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentPlan {
    /// Its name, unique in the plan.
    pub name: String,
    /// Its workload, in no other component of the plan.
    pub target: Target,
    /// Its partial template; none for a followed component.
    pub template: Option<Value>,
    /// Digest of the partial template; none for a followed component.
    pub template_digest: Option<String>,
    /// ConfigMaps whose contents are released with the component.
    pub config_maps: Vec<String>,
    /// The same with their contents, where these are known; see
    /// [`Plan::resolved`].
    pub tracked: Vec<Tracked>,
    /// Indices of the components that must be available before this one is
    /// written. Free of cycles.
    pub after: Vec<usize>,
}

impl Plan {
    /// The components: at least one, in the order of the plan.
    #[must_use]
    pub fn components(&self) -> &[ComponentPlan] {
        &self.components
    }

    /// No progress for this long is a failure.
    #[must_use]
    pub const fn progress_deadline(&self) -> Duration {
        self.progress_deadline
    }

    /// How long all must stay available before the target is called stable.
    #[must_use]
    pub const fn bake_time(&self) -> Duration {
        self.bake_time
    }

    /// Restarts of one container that end a release. At least one.
    #[must_use]
    pub const fn restarts(&self) -> i32 {
        self.restarts
    }

    /// Whether forward motion is held.
    #[must_use]
    pub const fn paused(&self) -> bool {
        self.paused
    }

    /// What deleting the plan in mid-release does.
    #[must_use]
    pub const fn deletion_policy(&self) -> DeletionPolicy {
        self.deletion_policy
    }

    /// What a failure does.
    #[must_use]
    pub const fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// Consecutive errors before the plan is reported as stalled.
    #[must_use]
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// How many revisions, records and refused contents are kept.
    #[must_use]
    pub const fn history_limit(&self) -> usize {
        self.history_limit
    }

    /// Digest of the spec's release content: names, workloads, partial
    /// templates and tracked ConfigMaps of the components, and nothing else.
    #[must_use]
    pub fn spec_digest(&self) -> &str {
        &self.spec
    }

    /// Digest of the release content, with the contents of the ConfigMaps that
    /// the partial templates name. It is that of the spec as long as no
    /// ConfigMap is tracked, or none is known.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.content
    }
}
