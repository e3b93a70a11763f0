//! Sets the release generation right that a webhook outage left behind.
//!
//! While the webhook is away content can be stored that no release generation
//! was given to. The controller goes by digests and loses nothing, but pipelines
//! wait for the number.

use kube::{
    Api,
    api::{Patch, PatchParams},
};

use super::{Context, ReconcileError};
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
    let name = plan.metadata.name.clone().unwrap_or_default();
    let namespace = plan.metadata.namespace.clone().unwrap_or_default();
    let doing = format!("set the release generation of releaseplan {namespace}/{name}");
    let object = serde_json::to_value(&*plan).map_err(|error| ReconcileError::Api {
        doing: doing.clone(),
        source: Box::new(kube::Error::SerdeError(error)),
    })?;
    let Some(patch) = generation_patch(&object) else {
        return Ok(());
    };
    let patched = Api::<StoredPlan>::namespaced(ctx.client.clone(), &namespace)
        .patch(&name, &PatchParams::default(), &Patch::Json::<()>(patch))
        .await;
    match patched {
        Ok(patched) => {
            *plan = patched;
            Ok(())
        }
        Err(error) => Err(ReconcileError::api(doing)(error)),
    }
}
