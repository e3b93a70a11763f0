//! Whether a plan's word is about the templates that are live.
//!
//! A release generation cannot tell for a followed Deployment, whose content is
//! not in the plan: there, the operator must have judged the template that
//! stands on the Deployment now.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::verdict::Outcome;
use crate::{
    api::StoredPlan,
    cli::{CliError, Kind, Session, Target, list_all},
    fields::canon,
};

/// Time between two looks while the operator has not seen a Deployment's
/// change.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Deployments whose live template has to be the one that was judged.
pub(super) struct Live {
    /// Those that were named on the command line: they must be readable.
    named: Vec<String>,
    /// Those that the plan follows.
    followed: Vec<String>,
}

impl Live {
    pub(super) fn of(plan: &StoredPlan, targets: &[Target]) -> Self {
        let components = plan.spec["components"].as_array();
        let mut live = Self {
            named: Vec::new(),
            followed: Vec::new(),
        };
        for component in components.into_iter().flatten() {
            let Some(name) = component["workload"]["name"].as_str() else {
                continue;
            };
            let mut deployments = targets.iter().filter(|t| t.kind == Kind::Deployment);
            if deployments.any(|target| target.name == name) {
                live.named.push(name.to_owned());
            } else if component["template"].is_null() {
                live.followed.push(name.to_owned());
            }
        }
        live
    }

    /// Whether an outcome is about what is live.
    pub(super) async fn is_judged(
        &self,
        plan: &StoredPlan,
        outcome: Option<Outcome>,
        session: &Session,
    ) -> Result<bool, CliError> {
        // Elsewhere the template that was judged need not be the live one.
        let at_rest = matches!(
            outcome,
            Some(Outcome::Released | Outcome::RolledBack | Outcome::Undone)
        );
        let names: Vec<&String> = self.named.iter().chain(&self.followed).collect();
        if !at_rest || names.is_empty() {
            return Ok(true);
        }
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let live = match read(session, namespace, &names).await {
            Ok(live) => live,
            // Who may only see plans takes the plan's word for it.
            Err(kube::Error::Api(status)) if status.is_forbidden() && self.named.is_empty() => {
                return Ok(true);
            }
            Err(error) => return Err(CliError::api("read the plan's deployments", error)),
        };
        let judged = judged(plan);
        let is_current = |object: &DynamicObject| {
            let digest = canon::digest(&object.data["spec"]["template"]);
            let name = object.metadata.name.as_deref().unwrap_or_default();
            judged.get(name).is_some_and(|judged| *judged == digest)
        };
        let mut ours = live.iter().filter(|object| {
            let name = object.metadata.name.as_ref();
            name.is_some_and(|name| names.contains(&name))
        });
        Ok(ours.all(is_current))
    }
}

/// The Deployments of these names, and maybe others.
async fn read(
    session: &Session,
    namespace: &str,
    names: &[&String],
) -> Result<Vec<DynamicObject>, kube::Error> {
    let resource = ApiResource::erase::<Deployment>(&());
    let api = Api::<DynamicObject>::namespaced_with(session.client.clone(), namespace, &resource);
    match names {
        [name] => Ok(api.get_opt(name).await?.into_iter().collect()),
        _ => list_all(&api, ListParams::default()).await,
    }
}

/// Digests of the live templates that the plan's word is about, by workload.
fn judged(plan: &StoredPlan) -> HashMap<&str, &str> {
    let components = plan.status.iter().flat_map(|status| &status.components);
    components
        .filter_map(|c| Some((c.workload.name.as_deref()?, c.live_digest.as_deref()?)))
        .collect()
}
