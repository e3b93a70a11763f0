//! Reads what `belay status` shows: one paged list for each kind, as narrow as
//! labels and fields allow, and never a call for each object.
//!
//! What the caller may not read is left out and said, not taken for absent.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Caller, PlanStatus,
    objects::{DeploymentView, PodView, ReplicaSetView, RevisionView},
    tree::{World, common_selector, line, tree},
};
use crate::{
    api::{PLAN_UID, StoredPlan},
    cli::{CliError, list_all, scopes},
    machine::scope,
    plan::{Plan, Target, current, targets_of},
};

/// What was read of one namespace.
#[derive(Default)]
pub(super) struct Read {
    pub(super) deployments: Vec<DeploymentView>,
    pub(super) sets: Vec<ReplicaSetView>,
    pub(super) pods: Vec<PodView>,
    pub(super) revisions: Vec<RevisionView>,
    pub(super) unread: Vec<String>,
}

impl Read {
    /// As it is indexed for the plans of the namespace.
    pub(super) fn world(&self) -> World<'_> {
        World::new(
            &self.deployments,
            &self.sets,
            &self.pods,
            &self.revisions,
            self.unread.clone(),
        )
    }
}

/// The plans with everything below them, in their order.
pub(super) async fn trees(
    client: &Client,
    plans: &[StoredPlan],
    now: Timestamp,
    caller: &Caller,
) -> Result<Vec<PlanStatus>, CliError> {
    let mut read: BTreeMap<&str, Read> = BTreeMap::new();
    for plan in plans {
        let namespace = namespace_of(plan);
        if !read.contains_key(namespace) {
            let there = plans.iter().filter(|plan| namespace_of(plan) == namespace);
            let names = workloads(there.clone());
            let records = tracking(there.clone());
            let revisions = only(&revisions(there));
            let below = below(
                client,
                namespace,
                &names,
                (records.as_deref(), revisions.as_deref()),
            );
            let below = below.await?;
            read.insert(namespace, below);
        }
    }
    let worlds: BTreeMap<&str, World<'_>> = read
        .iter()
        .map(|(namespace, read)| (*namespace, read.world()))
        .collect();
    let trees = plans.iter().filter_map(|plan| {
        let world = worlds.get(namespace_of(plan))?;
        Some(tree(plan, world, now, caller))
    });
    Ok(trees.collect())
}

/// The plans as lines of a list, in their order: one list of Deployments for each
/// namespace, or for all of them.
pub(super) async fn lines(
    client: &Client,
    plans: &[StoredPlan],
    all_namespaces: bool,
    now: Timestamp,
    caller: &Caller,
) -> Result<Vec<PlanStatus>, CliError> {
    let mut read: BTreeMap<String, Read> = BTreeMap::new();
    for scope in scopes(plans, all_namespaces) {
        let api: Api<DeploymentView> = match scope {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let here = |plan: &&StoredPlan| scope.is_none_or(|scope| namespace_of(plan) == scope);
        let names = workloads(plans.iter().filter(here));
        let params = ListParams {
            field_selector: only(&names),
            ..ListParams::default()
        };
        let mut unread = Vec::new();
        let listed = list_all(&api, params).await;
        let place = scope.unwrap_or_default();
        let found = self::read("deployments", place, listed, &mut unread)?;
        for plan in plans.iter().filter(here) {
            let of = read.entry(namespace_of(plan).to_owned()).or_default();
            of.unread.clone_from(&unread);
        }
        for deployment in found {
            let namespace = deployment.metadata.namespace.as_ref();
            if let Some(of) = namespace.and_then(|namespace| read.get_mut(namespace)) {
                of.deployments.push(deployment);
            }
        }
    }
    let lines = plans.iter().filter_map(|plan| {
        let read = read.get(namespace_of(plan))?;
        Some(line(plan, &read.world(), now, caller))
    });
    Ok(lines.collect())
}

/// Namespace of a plan.
pub(super) fn namespace_of(plan: &StoredPlan) -> &str {
    plan.metadata.namespace.as_deref().unwrap_or_default()
}

/// Names of the workloads of plans.
pub(super) fn workloads<'a>(plans: impl Iterator<Item = &'a StoredPlan>) -> BTreeSet<String> {
    let targets = plans.flat_map(|plan| -> Vec<Target> {
        let parsed = Plan::parse(&plan.spec).ok();
        let status = plan.status.clone().unwrap_or_default();
        let scope = scope(parsed.as_ref(), &status);
        // Of a plan that is not valid the names alone can still be read.
        let named = targets_of(plan);
        scope
            .into_iter()
            .map(|scope| scope.target)
            .chain(named)
            .collect()
    });
    targets.map(|target| target.name).collect()
}

/// A selector of fields that names the only workload, if there is only one.
pub(super) fn only(names: &BTreeSet<String>) -> Option<String> {
    let first = names.first().filter(|_| names.len() == 1)?;
    Some(format!("metadata.name={first}"))
}

/// A selector of labels for the revisions of those plans that track ConfigMaps;
/// none if none does.
pub(super) fn tracking<'a>(plans: impl Iterator<Item = &'a StoredPlan>) -> Option<String> {
    let tracks = plans.filter(|plan| {
        let components = plan.spec.get("components").and_then(Value::as_array);
        let mut components = components.into_iter().flatten();
        components.any(|component| component.get("configMaps").is_some())
    });
    let uids: BTreeSet<&str> = tracks
        .filter_map(|plan| plan.metadata.uid.as_deref())
        .collect();
    let uids: Vec<&str> = uids.into_iter().collect();
    (!uids.is_empty()).then(|| format!("{PLAN_UID} in ({})", uids.join(",")))
}

/// Names of the revisions that plans stand at.
fn revisions<'a>(plans: impl Iterator<Item = &'a StoredPlan>) -> BTreeSet<String> {
    let status = plans.filter_map(|plan| plan.status.as_ref());
    let names = status.flat_map(|status| {
        let stable = status.stable_revision.as_deref();
        stable.into_iter().chain(current(status))
    });
    names.map(str::to_owned).collect()
}

/// What has to be told if a kind cannot be read; an error if that is not for
/// want of rights.
fn read<T>(
    kind: &str,
    namespace: &str,
    listed: Result<Vec<T>, kube::Error>,
    unread: &mut Vec<String>,
) -> Result<Vec<T>, CliError> {
    match listed {
        Ok(found) => Ok(found),
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            unread.push(forbidden(kind, namespace));
            Ok(Vec::new())
        }
        Err(error) => {
            let doing = format!("list {kind} in namespace {namespace}");
            Err(CliError::api(doing, error))
        }
    }
}

/// What is told of a kind that may not be read.
pub(super) fn forbidden(kind: &str, namespace: &str) -> String {
    let place = match namespace {
        "" => "all namespaces".to_owned(),
        name => format!("namespace {name}"),
    };
    format!("{kind} are not shown: you may not list them in {place}")
}

async fn below(
    client: &Client,
    namespace: &str,
    names: &BTreeSet<String>,
    records: (Option<&str>, Option<&str>),
) -> Result<Read, CliError> {
    let mut unread = Vec::new();
    let fields = only(names);
    let records = async {
        match records {
            (Some(labels), fields) => {
                list::<RevisionView>(client, namespace, fields, Some(labels)).await
            }
            (None, _) => Ok(Vec::new()),
        }
    };
    let (all, revisions) = futures::future::join(
        list::<DeploymentView>(client, namespace, fields.as_deref(), None),
        records,
    )
    .await;
    let mut deployments = read("deployments", namespace, all, &mut unread)?;
    let revisions = read("controllerrevisions", namespace, revisions, &mut unread)?;
    deployments.retain(|d| {
        d.metadata
            .name
            .as_ref()
            .is_some_and(|name| names.contains(name))
    });
    if deployments.is_empty() {
        return Ok(Read {
            revisions,
            unread,
            ..Read::default()
        });
    }
    let labels = common_selector(deployments.iter());
    let (sets, pods) = futures::future::join(
        list::<ReplicaSetView>(client, namespace, None, labels.as_deref()),
        list::<PodView>(client, namespace, None, labels.as_deref()),
    )
    .await;
    Ok(Read {
        sets: read("replicasets", namespace, sets, &mut unread)?,
        pods: read("pods", namespace, pods, &mut unread)?,
        deployments,
        revisions,
        unread,
    })
}

async fn list<K>(
    client: &Client,
    namespace: &str,
    fields: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let params = ListParams {
        field_selector: fields.map(str::to_owned),
        label_selector: labels.map(str::to_owned),
        ..ListParams::default()
    };
    list_all(&Api::<K>::namespaced(client.clone(), namespace), params).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::fixtures;
    use serde_json::json;

    #[test]
    fn revisions_are_read_only_of_plans_that_track_config_maps() {
        let plan = |uid: &str, components: Value| -> StoredPlan {
            let plan = json!({"metadata": {"uid": uid}, "spec": {"components": components}});
            serde_json::from_value(plan).unwrap()
        };
        let plans = [
            plan("b", json!([{}, {"configMaps": ["settings"]}])),
            plan("none", json!([{}])),
            plan("a", json!([{"configMaps": ["settings"]}])),
            plan("odd", json!("text")),
        ];
        let of = |plans: &[StoredPlan]| tracking(plans.iter());
        assert_eq!(of(&plans).as_deref(), Some("belay.dev/plan-uid in (a,b)"));
        assert_eq!(of(&plans[1..2]), None);
        assert_eq!(of(&[]), None);
    }

    /// A revision may be large, and at rest one is enough.
    #[test]
    fn at_rest_only_the_stable_revision_is_read() {
        let rests = fixtures::configured('a', 'b', "cart-config", false).plan;
        let goes = fixtures::configuration("Promote", 'a').plan;
        let of = |plan: &Option<StoredPlan>| only(&revisions(plan.iter()));
        assert_eq!(
            of(&rests),
            Some(format!("metadata.name={}", fixtures::STABLE))
        );
        assert_eq!(of(&goes), None);
    }
}
