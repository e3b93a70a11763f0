//! What an undo took away, in words that name it, and whether that had failed before.
//!
//! Pure. Refused content has one cause, the last one; how it ended when it was
//! released stands in the history alone, as long as that is kept.

use crate::api::{Cause, RefusedContent, ReleasePlanStatus, ReleaseResult};

/// What the operator says of it, which names only what was asked for.
const PLACE: &str = " in its place";
/// Causes by which content fails by itself.
const OWN: [Cause; 11] = [
    Cause::ContainerRestarts,
    Cause::ImagePullBackOff,
    Cause::InvalidImageName,
    Cause::CreateContainerConfigError,
    Cause::ReplicaFailure,
    Cause::ProgressDeadlineExceeded,
    Cause::TemplateRefused,
    Cause::WorkloadMissing,
    Cause::ConfigMapUnavailable,
    Cause::RevisionLost,
    Cause::SnapshotLost,
];

/// Who asked for what in the place of this revision.
pub(in crate::cli) fn asked(to: &str, by: Option<&str>, revision: &str) -> String {
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    format!("{to} was asked for{by} in the place of {revision}")
}

/// Why content was refused, where the operator's words may lack its name.
pub(in crate::cli) fn message(cause: Cause, message: &str, revision: &str) -> String {
    match message.strip_suffix(PLACE) {
        Some(asked) if cause == Cause::Undone => format!("{asked} in the place of {revision}"),
        _ => message.to_owned(),
    }
}

/// How content failed by itself that was released as this revision; in a few words.
pub(in crate::cli) fn failed_before(status: &ReleasePlanStatus, revision: &str) -> Option<String> {
    let mut refused = status.refused.iter();
    let refused = refused.find(|r| r.revision == revision && OWN.contains(&r.cause));
    if let Some(refused) = refused {
        return short(&refused.told());
    }
    let of_it = |result| matches!(result, ReleaseResult::RolledBack | ReleaseResult::Failed);
    let records = status.history.iter().rev();
    let mut records =
        records.filter(|r| of_it(r.result) && r.revision.as_deref() == Some(revision));
    records.find_map(|record| short(record.message.as_deref()?))
}

/// "ContainerRestarts of component web".
fn short(told: &str) -> Option<String> {
    let own = OWN
        .iter()
        .filter_map(|cause| told.find(&format!("{cause:?}")));
    let told = &told[own.min()?..];
    Some(told.split(": ").next().unwrap_or(told).to_owned())
}

/// Of what an undo holds: how it had failed before, as a remark on an offer of it.
pub(in crate::cli) fn remark(
    status: &ReleasePlanStatus,
    refused: &RefusedContent,
) -> Option<String> {
    let failed = failed_before(status, &refused.revision)?;
    Some(format!("it failed before: {failed}"))
}
