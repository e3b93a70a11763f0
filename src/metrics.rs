//! What Belay counts and measures.
//!
//! Every label set is bounded: labels come from enums, never from names of
//! objects or from what users send. Nothing is decided in here, and recording
//! never fails.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::api::{Cause, Phase, Reason, ReleaseResult};

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    releases: Family<ByResult, Counter>,
    rollbacks: Family<ByCause, Counter>,
    plans: Family<ByPhase, Gauge>,
    stalled: Family<ByReason, Gauge>,
    reconcile_duration: Histogram,
    reconcile_errors: Counter,
    queue_depth: Gauge,
    admissions: Family<ByAdmission, Counter>,
    admission_duration: Family<ByEndpoint, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: Variant<ReleaseResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: Variant<Cause>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPhase {
    phase: Variant<Phase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: Variant<Reason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAdmission {
    endpoint: Variant<Endpoint>,
    operation: Variant<Operation>,
    verdict: Variant<Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEndpoint {
    endpoint: Variant<Endpoint>,
}

/// A unit variant as a label: by its name, which is also its name in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Variant<T>(T);

impl<T: fmt::Debug> EncodeLabelValue for Variant<T> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        fmt::Write::write_fmt(encoder, format_args!("{:?}", self.0))
    }
}

/// The webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/mutate`
    Mutate,
    /// `/validate`
    Validate,
}

/// Operations that a webhook is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An object is made.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection to an object is opened.
    Connect,
    /// Not known, because the review could not be read.
    Unknown,
}

/// What a webhook answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The request may pass.
    Allowed,
    /// The object was refused.
    Denied,
    /// The review could not be used.
    Malformed,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Fresh metrics, all zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("belay");
        let releases = Family::default();
        registry.register(
            "releases_finished",
            "Releases that ended, by how they ended",
            releases.clone(),
        );
        let rollbacks = Family::default();
        registry.register(
            "rollbacks",
            "Releases that went back to the stable revision, by cause",
            rollbacks.clone(),
        );
        let plans = Family::default();
        registry.register("plans", "ReleasePlans, by phase", plans.clone());
        let stalled = Family::default();
        registry.register(
            "plans_stalled",
            "ReleasePlans that wait for somebody to act, by the reason of their condition Stalled",
            stalled.clone(),
        );
        let reconcile_duration = histogram();
        registry.register_with_unit(
            "reconcile_duration",
            "Time that one reconciliation of a plan took",
            Unit::Seconds,
            reconcile_duration.clone(),
        );
        let reconcile_errors = Counter::default();
        registry.register(
            "reconcile_errors",
            "Reconciliations that failed and are tried again",
            reconcile_errors.clone(),
        );
        let queue_depth = Gauge::default();
        registry.register(
            "queue_depth",
            "Plans that wait to be reconciled",
            queue_depth.clone(),
        );
        let admissions = Family::default();
        registry.register(
            "admission_requests",
            "Admission reviews, by webhook, operation and answer",
            admissions.clone(),
        );
        let admission_duration =
            Family::<ByEndpoint, Histogram>::new_with_constructor(histogram as fn() -> Histogram);
        registry.register_with_unit(
            "admission_duration",
            "Time that the answer to an admission review took, by webhook",
            Unit::Seconds,
            admission_duration.clone(),
        );
        Self(Arc::new(Inner {
            registry,
            releases,
            rollbacks,
            plans,
            stalled,
            reconcile_duration,
            reconcile_errors,
            queue_depth,
            admissions,
            admission_duration,
        }))
    }

    /// A release ended.
    pub fn release_finished(&self, result: ReleaseResult) {
        let result = Variant(result);
        self.0.releases.get_or_create(&ByResult { result }).inc();
    }

    /// A release turned back.
    pub fn rollback_started(&self, cause: Cause) {
        let cause = Variant(cause);
        self.0.rollbacks.get_or_create(&ByCause { cause }).inc();
    }

    /// How many plans are in each phase; phases that are not named have none.
    pub fn set_plans(&self, counts: impl IntoIterator<Item = (Phase, usize)>) {
        const PHASES: [Phase; 6] = [
            Phase::Pending,
            Phase::Stable,
            Phase::RollingOut,
            Phase::Rollback,
            Phase::Frozen,
            Phase::Failed,
        ];
        let mut all = PHASES.map(|phase| (phase, 0));
        for (phase, count) in counts {
            if let Some((_, sum)) = all.iter_mut().find(|(one, _)| *one == phase) {
                *sum += count;
            }
        }
        for (phase, count) in all {
            let phase = Variant(phase);
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.plans.get_or_create(&ByPhase { phase }).set(count);
        }
    }

    /// How many plans are stalled for each reason. One that is not named has
    /// none; it is shown as zero if it ever had one, so that what went by is seen
    /// to have gone.
    pub fn set_stalled(&self, counts: impl IntoIterator<Item = (Reason, usize)>) {
        let mut left: Vec<Reason> = Reason::ALL.to_vec();
        let labels = |reason| ByReason {
            reason: Variant(reason),
        };
        for (reason, count) in counts {
            left.retain(|other| *other != reason);
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.stalled.get_or_create(&labels(reason)).set(count);
        }
        for reason in left {
            if let Some(gauge) = self.0.stalled.get(&labels(reason)) {
                gauge.set(0);
            }
        }
    }

    /// A reconciliation ended.
    pub fn reconciled(&self, took: Duration, failed: bool) {
        self.0.reconcile_duration.observe(took.as_secs_f64());
        if failed {
            self.0.reconcile_errors.inc();
        }
    }

    /// How many plans wait to be reconciled.
    pub fn set_queue_depth(&self, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.0.queue_depth.set(depth);
    }

    /// An admission review was answered.
    pub fn admission(
        &self,
        endpoint: Endpoint,
        operation: Operation,
        verdict: Verdict,
        took: Duration,
    ) {
        let endpoint = Variant(endpoint);
        let labels = ByAdmission {
            endpoint,
            operation: Variant(operation),
            verdict: Variant(verdict),
        };
        self.0.admissions.get_or_create(&labels).inc();
        self.0
            .admission_duration
            .get_or_create(&ByEndpoint { endpoint })
            .observe(took.as_secs_f64());
    }

    /// All numbers in the OpenMetrics text format.
    ///
    /// # Errors
    /// Only if formatting fails.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

fn histogram() -> Histogram {
    // From a cached decision to the 10 s at which the API server gives up.
    Histogram::new([
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_appear_under_their_conventional_names() {
        let metrics = Metrics::new();
        metrics.release_finished(ReleaseResult::RolledBack);
        metrics.rollback_started(Cause::ImagePullBackOff);
        metrics.reconciled(Duration::from_millis(30), true);
        metrics.set_queue_depth(4);
        metrics.admission(
            Endpoint::Mutate,
            Operation::Create,
            Verdict::Denied,
            Duration::from_millis(2),
        );
        let text = metrics.render().unwrap();
        for line in [
            r#"belay_releases_finished_total{result="RolledBack"} 1"#,
            r#"belay_rollbacks_total{cause="ImagePullBackOff"} 1"#,
            "belay_reconcile_errors_total 1",
            "belay_reconcile_duration_seconds_count 1",
            r#"belay_reconcile_duration_seconds_bucket{le="0.05"} 1"#,
            "belay_queue_depth 4",
            r#"belay_admission_requests_total{endpoint="Mutate",operation="Create",verdict="Denied"} 1"#,
            r#"belay_admission_duration_seconds_count{endpoint="Mutate"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_phase_without_plans_goes_back_to_zero() {
        let metrics = Metrics::new();
        metrics.set_plans([(Phase::RollingOut, 2), (Phase::Stable, 1)]);
        metrics.set_plans([(Phase::Stable, 3)]);
        let text = metrics.render().unwrap();
        assert!(
            text.contains(r#"belay_plans{phase="RollingOut"} 0"#),
            "{text}"
        );
        assert!(text.contains(r#"belay_plans{phase="Stable"} 3"#), "{text}");
    }

    #[test]
    fn a_reason_appears_with_its_first_stalled_plan_and_goes_back_to_zero() {
        let metrics = Metrics::new();
        let stalled = |counts: &[(Reason, usize)]| {
            metrics.set_stalled(counts.iter().copied());
            let text = metrics.render().unwrap();
            let lines = text
                .lines()
                .filter(|l| l.starts_with("belay_plans_stalled{"));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(stalled(&[]), [""; 0]);
        assert_eq!(
            stalled(&[(Reason::SnapshotLost, 2)]),
            [r#"belay_plans_stalled{reason="SnapshotLost"} 2"#]
        );
        assert_eq!(
            stalled(&[(Reason::RolledBack, 1)]),
            [
                r#"belay_plans_stalled{reason="RolledBack"} 1"#,
                r#"belay_plans_stalled{reason="SnapshotLost"} 0"#,
            ]
        );
    }

    #[test]
    fn labels_are_the_names_of_the_api() {
        let label = format!("{:?}", Cause::ProgressDeadlineExceeded);
        assert_eq!(
            serde_json::to_value(Cause::ProgressDeadlineExceeded).unwrap(),
            label
        );
    }
}
