//! Two versions of an object, and how they differ. Pure.

use serde_json::Value;
use similar::TextDiff;

use super::model::{FieldChange, Part};
use crate::{
    cli::CliError,
    fields::{Change, canon, diff},
};

/// How two pod templates differ; none where the API server means the same by
/// both.
///
/// # Errors
/// One of them cannot be written as YAML.
pub(super) fn template(
    workload: &str,
    live: &Value,
    wanted: &Value,
) -> Result<Option<Part>, CliError> {
    if canon::equal(live, wanted) {
        return Ok(None);
    }
    let changes = diff(live, wanted).iter().map(change).collect();
    Ok(Some(Part {
        what: format!("pod template of {workload}"),
        changes,
        unified: unified(
            (&format!("{workload} now"), &yaml(live)?),
            (
                &format!("{workload} after the next release"),
                &yaml(wanted)?,
            ),
        ),
    }))
}

fn change(change: &Change) -> FieldChange {
    FieldChange {
        path: change.path.brief(),
        from: change.from.clone(),
        to: change.to.clone(),
        text: change.to_string(),
    }
}

fn yaml(value: &Value) -> Result<String, CliError> {
    serde_saphyr::to_string(value).map_err(|error| CliError::Form(error.to_string()))
}

/// A unified diff of two texts with their titles.
pub(super) fn unified(from: (&str, &str), to: (&str, &str)) -> String {
    let diff = TextDiff::from_lines(from.1, to.1);
    let mut unified = diff.unified_diff();
    unified.context_radius(3).header(from.0, to.0).to_string()
}
