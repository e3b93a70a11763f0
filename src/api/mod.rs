//! The API that users see: the `ReleasePlan` resource, its conditions and
//! reasons, and the names of everything Belay writes on objects.
//!
//! These are wire types. They decode whatever the API server may store; what a
//! plan *means* is decided by [`crate::plan::Plan::parse`] alone, and nothing in
//! here judges or fills in anything.

mod condition;
mod crd;
mod duration;
mod spec;
mod status;
mod stored;

pub use condition::{ConditionType, Reason, merge_conditions, stalled_for};
pub use crd::{crd, crd_yaml};
pub use duration::{GatewayDuration, InvalidDuration};
pub use spec::{
    BlueGreen, Canary, CanaryStep, Check, Component, DeletionPolicy, FailFast, OnFailure, Pause,
    PrometheusQuery, ReleasePlan, ReleasePlanSpec, Retry, Rolling, Strategy, Traffic, WorkloadKind,
    WorkloadRef,
};
pub use status::{
    Cause, ComponentState, ComponentStatus, ConfigMapStatus, DecisionEntry, FailedFirst, Failure,
    HandledCommand, Phase, RefusedAgain, RefusedContent, RefusedPart, RefusedTemplate, ReleaseKind,
    ReleasePlanStatus, ReleaseProgress, ReleaseRecord, ReleaseResult, Stage,
};
pub use stored::StoredPlan;

/// API group of everything Belay defines.
pub const GROUP: &str = "belay.dev";
/// API version of `ReleasePlan`.
pub const VERSION: &str = "v1alpha1";
/// Field manager under which Belay owns fields of the users' objects.
pub const FIELD_MANAGER: &str = "belay";
/// Keeps a plan until what an unfinished release moved is back.
pub const FINALIZER: &str = "belay.dev/rollback";
/// Annotation: rises by one exactly when the spec's release content changes.
pub const RELEASE_GENERATION: &str = "belay.dev/release-generation";
/// Annotation: digest of the spec's release content that the number belongs to.
pub const RELEASE_DIGEST: &str = "belay.dev/release-digest";
/// Annotation: who changed the release content last, stamped by the webhook.
pub const REQUESTED_BY: &str = "belay.dev/requested-by";
/// Annotation: the revision whose release, or rollback, a person wants ended.
pub const ABORT: &str = "belay.dev/abort";
/// Annotation: the earlier revision that a person wants back.
pub const UNDO: &str = "belay.dev/undo";
/// Annotation: the refused revision that a person wants tried again.
pub const RETRY: &str = "belay.dev/retry";
/// Annotation: who gave the orders above and when, stamped by the webhook.
pub const ORDERED_BY: &str = "belay.dev/ordered-by";
/// Label on what Belay creates: uid of the plan that it belongs to.
pub const PLAN_UID: &str = "belay.dev/plan-uid";
/// Label on what Belay creates: name of the plan, cut to fit a label.
pub const PLAN_NAME: &str = "belay.dev/plan";
/// Annotation on what Belay creates: digest of what it holds.
pub const DIGEST: &str = "belay.dev/digest";
/// Annotation of a snapshot: name of the ConfigMap whose contents it holds.
pub const SOURCE: &str = "belay.dev/source";
/// Annotation of the pod template of a followed workload: digest of the
/// contents of its tracked ConfigMaps.
pub const CONFIG_DIGEST: &str = "belay.dev/config-digest";
