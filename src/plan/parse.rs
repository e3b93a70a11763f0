//! The one way from a stored spec to a [`Plan`].
//!
//! Tells all faults at once, in the order of the fields: those that the schema
//! would name as well, since a plan may come from where no schema stood.

use serde_json::Value;

use super::{
    Plan, Violations,
    check_components::check_components,
    check_health::check_checks,
    check_strategy::check_strategy,
    check_values::{check_duration, check_range},
    decode::decode,
    defaults::{BAKE_TIME, MAX_RETRIES, PROGRESS_DEADLINE, RESTARTS, REVISION_HISTORY_LIMIT},
    digest::content_digest,
    faults::Faults,
};

impl Plan {
    /// Makes a plan of a stored spec. Absent fields have their defaults, null
    /// is the same as absent, unknown fields are passed over.
    ///
    /// # Errors
    /// All faults of the spec, in the order of its fields.
    pub fn parse(spec: &Value) -> Result<Self, Violations> {
        let mut faults = Faults::default();
        let wire = decode(spec, &mut faults);
        let components = check_components(wire.components.as_deref(), &mut faults);
        check_strategy(&wire, &mut faults);
        check_checks(wire.checks.as_deref().unwrap_or_default(), &mut faults);
        let progress_deadline = check_duration(
            "spec.progressDeadline",
            wire.progress_deadline
                .as_deref()
                .unwrap_or(PROGRESS_DEADLINE),
            false,
            &mut faults,
        );
        let bake_time = check_duration(
            "spec.bakeTime",
            wire.bake_time.as_deref().unwrap_or(BAKE_TIME),
            true,
            &mut faults,
        );
        let mut number = |path, value: Option<i32>, default| {
            let value = value.unwrap_or(default);
            check_range(path, value, &(1..=100), &mut faults);
            value
        };
        let restarts = number(
            "spec.failFast.restarts",
            wire.fail_fast.and_then(|fail_fast| fail_fast.restarts),
            RESTARTS,
        );
        let max_retries = number(
            "spec.retry.maxRetries",
            wire.retry.and_then(|retry| retry.max_retries),
            MAX_RETRIES,
        );
        let history_limit = number(
            "spec.revisionHistoryLimit",
            wire.revision_history_limit,
            REVISION_HISTORY_LIMIT,
        );
        faults.finish()?;
        let content = content_digest(spec);
        Ok(Self {
            components,
            progress_deadline,
            bake_time,
            restarts,
            paused: wire.paused.unwrap_or_default(),
            deletion_policy: wire.deletion_policy.unwrap_or_default(),
            on_failure: wire.on_failure.unwrap_or_default(),
            // Both are between 1 and 100 here.
            max_retries: max_retries.unsigned_abs(),
            history_limit: usize::try_from(history_limit).unwrap_or(1),
            content: content.clone(),
            spec: content,
        })
    }
}
