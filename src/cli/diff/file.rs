//! The plans in a file.

use std::path::Path;

use crate::{
    api::{GROUP, StoredPlan},
    cli::{CliError, Session, names, target::objects},
};

/// The plans in a manifest, in the namespace that they would be applied to.
///
/// # Errors
/// The file is no manifest, holds no plan, or names another namespace than the
/// command line does.
pub(super) fn plans_in(
    text: &str,
    session: &Session,
    path: &Path,
) -> Result<Vec<StoredPlan>, CliError> {
    let fault = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
    };
    let documents = objects(text).map_err(fault)?;
    let mut plans = Vec::new();
    for document in documents {
        let group = document["apiVersion"].as_str().unwrap_or_default();
        if document["kind"] != "ReleasePlan" || group.split('/').next() != Some(GROUP) {
            continue;
        }
        let mut plan: StoredPlan =
            serde_json::from_value(document).map_err(|error| fault(error.to_string()))?;
        let Some(name) = plan.metadata.name.clone() else {
            return Err(fault("a ReleasePlan in it has no metadata.name".to_owned()));
        };
        names::object(&name).map_err(|reason| fault(format!("metadata.name: {reason}")))?;
        let own = plan.metadata.namespace.take();
        let own = own.filter(|own| !own.is_empty());
        let own = own.unwrap_or_else(|| session.namespace.clone());
        names::namespace(&own)
            .map_err(|reason| fault(format!("metadata.namespace {own:?}: {reason}")))?;
        let own = plan.metadata.namespace.insert(own);
        if session.chosen && *own != session.namespace {
            return Err(CliError::usage(
                format!(
                    "the file says namespace {own} for releaseplan/{name}, and -n says {}",
                    session.namespace
                ),
                "leave out -n",
            ));
        }
        plans.push(plan);
    }
    if plans.is_empty() {
        return Err(fault("no ReleasePlan in it".to_owned()));
    }
    Ok(plans)
}
