//! Takes away what is left of plans that are gone: somebody took the finalizer
//! off by hand, or the operator was away for good when the plan went. Decides
//! only that something belongs to no plan; must not touch a value of anybody's.

use std::{collections::HashSet, time::Duration};

use k8s_openapi::{
    api::apps::v1::{ControllerRevision, Deployment},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PartialObjectMeta},
};

use super::{Context, apply, config_maps::Snapshot, naming, snapshots};
use crate::{
    api::{FIELD_MANAGER, PLAN_UID, WorkloadKind},
    fields::FieldSet,
    plan::Target,
};

/// Younger things are left alone: their plan may not be known here yet.
const AGE: Duration = Duration::from_secs(60);
/// Deployments in one answer of the API server.
const PAGE: u32 = 500;

/// Looks for what is left of plans that are gone, once. To be called when all
/// plans are known. Failures are logged: the next start looks again.
pub(super) async fn sweep(ctx: &Context) {
    revisions(ctx).await;
    orphaned(ctx, ctx.clock.now()).await;
    marks(ctx).await;
}

/// Deletes revisions of plans that are gone.
async fn revisions(ctx: &Context) {
    let all = Api::<ControllerRevision>::all(ctx.client.clone());
    // The plans are read after the revisions, so that the plan of a revision is
    // among them if it is there at all.
    let listed = match all
        .list_metadata(&ListParams::default().labels(PLAN_UID))
        .await
    {
        Ok(listed) => listed.items,
        Err(error) => {
            return tracing::warn!(%error, "revisions of plans that are gone were not looked for");
        }
    };
    let plans = known(ctx);
    let now = ctx.clock.now();
    for revision in listed
        .iter()
        .filter(|revision| is_orphan(revision, &plans, now))
    {
        let (name, namespace) = (
            revision.name_any(),
            revision.namespace().unwrap_or_default(),
        );
        let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), &namespace);
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => tracing::info!(%namespace, %name, "deleted a revision whose plan is gone"),
            Err(error) => {
                tracing::warn!(%error, %namespace, %name, "a revision whose plan is gone was not deleted")
            }
        }
    }
}

/// Gives up the fields of Deployments that no plan names.
async fn marks(ctx: &Context) {
    let all = Api::<Deployment>::all(ctx.client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = match all.list_metadata(&page).await {
            Ok(listed) => listed,
            Err(error) => {
                return tracing::warn!(%error, "marks of plans that are gone were not looked for");
            }
        };
        let now = ctx.clock.now();
        for deployment in listed.items.iter().filter(|found| is_marked(found, now)) {
            let namespace = deployment.namespace().unwrap_or_default();
            let target = Target {
                kind: WorkloadKind::Deployment,
                name: deployment.name_any(),
            };
            if !naming(&ctx.plans, Some(&namespace), &target).is_empty() {
                continue;
            }
            // As it was read: a plan that came since has changed it.
            let (read, none) = (&deployment.metadata, FieldSet::new());
            match apply::own_as_read(ctx, &namespace, &target, read, &none).await {
                Ok(()) => {
                    tracing::info!(%namespace, workload = %target, "gave up fields that no plan names")
                }
                Err(error) => {
                    tracing::warn!(%error, %namespace, workload = %target, "fields that no plan names were not given up")
                }
            }
        }
        page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            return;
        }
    }
}

/// Uids of the plans that there are.
fn known(ctx: &Context) -> HashSet<String> {
    let plans = ctx.plans.state();
    plans.iter().filter_map(|plan| plan.uid()).collect()
}

/// Takes away snapshots of plans that are gone, and hands over those in use.
async fn orphaned(ctx: &Context, now: Timestamp) {
    if ctx.config_maps.listed().await.is_err() {
        return tracing::warn!("snapshots of plans that are gone were not looked for");
    }
    let unowned = |snapshot: &Snapshot| {
        let created = snapshot.meta.creation_timestamp.as_ref();
        snapshot.meta.owner_references.is_none() && created.is_some_and(|at| is_old(at.0, now))
    };
    let mut orphans = ctx.config_maps.snapshots(unowned);
    let plans = known(ctx);
    orphans.retain(|orphan| !plans.contains(&orphan.plan_uid));
    let namespaces: HashSet<&String> = orphans.iter().map(|orphan| &orphan.namespace).collect();
    for namespace in namespaces {
        let here = orphans
            .iter()
            .filter(|orphan| orphan.namespace == *namespace);
        let here: Vec<_> = here.cloned().collect();
        if let Err(error) = snapshots::part(ctx, namespace, &here).await {
            tracing::warn!(%error, %namespace, "snapshots of plans that are gone were not taken away");
        }
    }
}

/// Whether Belay owns something here, and not only just now. What was taken
/// without a change of values has no time.
fn is_marked(deployment: &PartialObjectMeta<Deployment>, now: Timestamp) -> bool {
    let mut ours = deployment
        .managed_fields()
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
        .peekable();
    ours.peek().is_some()
        && ours.all(|entry| entry.time.as_ref().is_none_or(|time| is_old(time.0, now)))
}

fn is_old(then: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(then)).is_ok_and(|age| age >= AGE)
}

fn is_orphan(
    revision: &PartialObjectMeta<ControllerRevision>,
    plans: &HashSet<String>,
    now: Timestamp,
) -> bool {
    let plan = revision.labels().get(PLAN_UID);
    let created = revision.creation_timestamp();
    plan.is_some_and(|uid| !plans.contains(uid))
        && created.is_some_and(|created| is_old(created.0, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_old_revisions_of_plans_that_are_gone_are_orphans() {
        let revision = |uid: &str, created: &str| -> PartialObjectMeta<ControllerRevision> {
            serde_json::from_value(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "r", "creationTimestamp": created, "labels": {PLAN_UID: uid}}
            }))
            .unwrap()
        };
        let plans = HashSet::from(["here".to_owned()]);
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let (old, young) = ("2026-01-01T00:00:00Z", "2026-01-01T00:59:30Z");
        assert!(is_orphan(&revision("gone", old), &plans, now));
        assert!(!is_orphan(&revision("gone", young), &plans, now));
        assert!(!is_orphan(&revision("here", old), &plans, now));
    }

    #[test]
    fn only_old_fields_of_our_own_are_marks() {
        let deployment = |entries: serde_json::Value| -> PartialObjectMeta<Deployment> {
            serde_json::from_value(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "cart", "managedFields": entries}
            }))
            .unwrap()
        };
        let entry = |manager: &str, time: &str| json!({"manager": manager, "operation": "Apply", "time": time});
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let (old, young) = ("2026-01-01T00:00:00Z", "2026-01-01T00:59:30Z");
        let marked = |entries| is_marked(&deployment(entries), now);
        assert!(marked(json!([entry("helm", young), entry("belay", old)])));
        assert!(!marked(json!([entry("belay", old), entry("belay", young)])));
        assert!(marked(json!([{"manager": "belay", "operation": "Apply"}])));
        assert!(!marked(json!([entry("helm", old)])));
        assert!(!marked(json!([])));
    }
}
