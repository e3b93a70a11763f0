//! Sets the release generation right that a webhook outage left behind.
//!
//! While the webhook is away content can be stored that no release generation
//! was given to. The controller goes by digests and loses nothing, but pipelines
//! wait for the number.

use super::{Context, ReconcileError, apply::patch_plan};
use crate::{
    api::{RELEASE_DIGEST, StoredPlan},
    plan::{Plan, generation_patch},
};

/// Gives the content of a plan its release generation, if it has none.
pub(super) async fn heal(
    ctx: &Context,
    plan: &mut StoredPlan,
    parsed: &Plan,
) -> Result<(), ReconcileError> {
    if plan.is_deleting() || plan.annotation(RELEASE_DIGEST) == Some(parsed.spec_digest()) {
        return Ok(());
    }
    let unwritten = |error| ReconcileError::Api {
        doing: "write the release generation down".to_owned(),
        source: Box::new(kube::Error::SerdeError(error)),
    };
    let object = serde_json::to_value(&*plan).map_err(unwritten)?;
    let Some(json_patch::Patch(operations)) = generation_patch(&object) else {
        return Ok(());
    };
    let operations = operations.iter().map(serde_json::to_value);
    let operations = operations.collect::<Result<_, _>>().map_err(unwritten)?;
    patch_plan(ctx, plan, "set the release generation of", operations).await
}
