//! Makes snapshots of ConfigMaps, and takes away those that nothing names any
//! more.
//!
//! Whether anything does is looked up when revisions are pruned, and never on a
//! timer: a snapshot stays as long as a kept revision, a Deployment, a
//! ReplicaSet of any size or a pod names it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, Deployment, ReplicaSet},
        core::v1::{ConfigMap, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::ApiResource,
};
use serde_json::{Value, json};

use super::{
    Context, ReconcileError,
    config_maps::{Snapshot, get},
};
use crate::{
    api::{FIELD_MANAGER, PLAN_UID, StoredPlan},
    config_maps::{Contents, Kept, Tracked, judge, names, snapshot_object},
    revision::Revision,
};

/// Objects that are listed at a time.
const PAGE: u32 = 100;

/// Copies the contents of a ConfigMap into a snapshot, unless that is there.
pub(super) async fn create(
    ctx: &Context,
    plan: &StoredPlan,
    tracked: &Tracked,
) -> Result<(), ReconcileError> {
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    let changed = |name: &str| ReconcileError::Conflict {
        what: format!("configmap {namespace}/{name}"),
    };
    let source = get(ctx, namespace, &tracked.name).await?;
    let contents = source.as_ref().map(Contents::of);
    let contents = contents.filter(|contents| contents.digest() == tracked.digest);
    let Some(contents) = contents else {
        return Err(changed(&tracked.name));
    };
    let object = snapshot_object(tracked, contents, &plan.name_any(), uid);
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    match api.create(&PostParams::default(), &object).await {
        Ok(created) => {
            ctx.config_maps.found_whole(uid, &created);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let stored = get(ctx, namespace, &tracked.snapshot).await?;
            match judge(stored.as_ref(), &tracked.digest, uid) {
                Kept::Whole => Ok(()),
                // What it is instead is decided upon.
                _ => Err(changed(&tracked.snapshot)),
            }
        }
        Err(error) => {
            let doing = format!("store configmap {namespace}/{}", tracked.snapshot);
            Err(ReconcileError::api(doing)(error))
        }
    }
}

/// Writes the contents that a snapshot holds back into the ConfigMap that they
/// came from, as long as that is what it was when this was decided.
pub(super) async fn write_back(
    ctx: &Context,
    plan: &StoredPlan,
    tracked: &Tracked,
    uid: &str,
    resource_version: &str,
) -> Result<(), ReconcileError> {
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let plan_uid = plan.metadata.uid.as_deref().unwrap_or_default();
    let Tracked { name, snapshot, .. } = tracked;
    let conflict = |name: &str| ReconcileError::Conflict {
        what: format!("configmap {namespace}/{name}"),
    };
    let stored = get(ctx, namespace, snapshot).await?;
    if judge(stored.as_ref(), &tracked.digest, plan_uid) != Kept::Whole {
        return Err(conflict(snapshot));
    }
    let contents = stored.as_ref().map(Contents::of).unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    let doing = format!("write the contents of configmap {namespace}/{name}");
    let written = if uid.is_empty() {
        let object = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            data: Some(contents.data),
            binary_data: Some(contents.binary_data),
            ..ConfigMap::default()
        };
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        api.create(&params, &object).await
    } else {
        let operations = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/data", "value": contents.data},
            {"op": "add", "path": "/binaryData", "value": contents.binary_data},
        ]);
        let patch = serde_json::from_value(operations).map(Patch::<()>::Json);
        let patch = patch.map_err(|error| ReconcileError::Api {
            doing: doing.clone(),
            source: Box::new(kube::Error::SerdeError(error)),
        })?;
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(name, &params, &patch).await
    };
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Err(conflict(name)),
        Err(error) => Err(ReconcileError::api(doing)(error)),
    }
}

/// Deletes the snapshots of a plan that nothing names any more. If the plan
/// goes, those in use are handed over to the Deployments that use them.
pub(super) async fn collect(
    ctx: &Context,
    plan: &StoredPlan,
    parting: bool,
) -> Result<(), ReconcileError> {
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    let ours = |s: &Snapshot| s.namespace == namespace && s.plan_uid == uid;
    let mut candidates = ctx.config_maps.snapshots(ours);
    if candidates.is_empty() {
        return Ok(());
    }
    if !parting {
        let Some(kept) = by_revisions(ctx, namespace, uid).await? else {
            return Ok(());
        };
        candidates.retain(|snapshot| !kept.contains(&snapshot.name));
    }
    let wanted = candidates.iter().map(|s| s.name.clone()).collect();
    let users = users(ctx, namespace, &wanted).await?;
    for snapshot in &candidates {
        match users.get(&snapshot.name) {
            None => delete(ctx, snapshot).await?,
            Some(owners) if parting => hand_over(ctx, snapshot, owners).await?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// The same for snapshots whose plan is gone.
pub(super) async fn part(
    ctx: &Context,
    namespace: &str,
    snapshots: &[Snapshot],
) -> Result<(), ReconcileError> {
    let wanted = snapshots.iter().map(|s| s.name.clone()).collect();
    let users = users(ctx, namespace, &wanted).await?;
    for snapshot in snapshots {
        match users.get(&snapshot.name) {
            None => delete(ctx, snapshot).await?,
            Some(owners) => hand_over(ctx, snapshot, owners).await?,
        }
    }
    Ok(())
}

/// Snapshots that kept revisions name; none if one of these cannot be read, so
/// that nobody knows.
async fn by_revisions(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
) -> Result<Option<BTreeSet<String>>, ReconcileError> {
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{PLAN_UID}={plan_uid}"));
    let doing = format!("list controllerrevisions of namespace {namespace}");
    let listed = api
        .list(&params)
        .await
        .map_err(ReconcileError::api(doing))?;
    let mut kept = BTreeSet::new();
    for object in &listed.items {
        match Revision::from_object(object, plan_uid) {
            Ok(revision) => {
                let frozen = revision.data.components.into_iter();
                kept.extend(frozen.flat_map(|f| f.config_maps).map(|t| t.snapshot));
            }
            Err(error) => {
                tracing::warn!(%error, "no snapshot is taken away while a revision cannot be read");
                return Ok(None);
            }
        }
    }
    Ok(Some(kept))
}

type Users = BTreeMap<String, Vec<OwnerReference>>;

/// Who names these ConfigMaps, and the Deployments behind it.
async fn users(
    ctx: &Context,
    namespace: &str,
    wanted: &BTreeSet<String>,
) -> Result<Users, ReconcileError> {
    let mut users = Users::new();
    if wanted.is_empty() {
        return Ok(users);
    }
    let mut owners = BTreeMap::new();
    each::<Deployment>(ctx, namespace, |object| {
        let owner = OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        owners.insert(owner.uid.clone(), owner.clone());
        let template = object.data.pointer("/spec/template");
        note(&mut users, wanted, template, Some(&owner));
    })
    .await?;
    let mut sets = BTreeMap::new();
    each::<ReplicaSet>(ctx, namespace, |object| {
        let owner = object.owner_references().iter();
        let owner = owner.filter_map(|owner| owners.get(&owner.uid)).next();
        if let Some(owner) = owner {
            sets.insert(object.uid().unwrap_or_default(), owner.clone());
        }
        note(
            &mut users,
            wanted,
            object.data.pointer("/spec/template"),
            owner,
        );
    })
    .await?;
    each::<Pod>(ctx, namespace, |object| {
        let owner = object.owner_references().iter();
        let owner = owner.filter_map(|owner| sets.get(&owner.uid)).next();
        note(&mut users, wanted, Some(&object.data), owner);
    })
    .await?;
    Ok(users)
}

fn note(
    users: &mut Users,
    wanted: &BTreeSet<String>,
    template: Option<&Value>,
    owner: Option<&OwnerReference>,
) {
    let Some(template) = template else { return };
    for name in names(template).intersection(wanted) {
        let owners = users.entry(name.clone()).or_default();
        if let Some(owner) = owner.filter(|owner| !owners.contains(owner)) {
            owners.push(owner.clone());
        }
    }
}

/// Calls `of` with every object of a kind in a namespace, a page at a time.
async fn each<K>(
    ctx: &Context,
    namespace: &str,
    mut of: impl FnMut(&DynamicObject),
) -> Result<(), ReconcileError>
where
    K: Resource<DynamicType = ()>,
{
    let resource = ApiResource::erase::<K>(&());
    let api = Api::<DynamicObject>::namespaced_with(ctx.client.clone(), namespace, &resource);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let doing = format!("list {} of namespace {namespace}", resource.plural);
        let page = api
            .list(&params)
            .await
            .map_err(ReconcileError::api(doing))?;
        page.items.iter().for_each(&mut of);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn delete(ctx: &Context, snapshot: &Snapshot) -> Result<(), ReconcileError> {
    let Snapshot {
        namespace, name, ..
    } = snapshot;
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(snapshot.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => {
            let doing = format!("delete configmap {namespace}/{name}");
            Err(ReconcileError::api(doing)(error))
        }
    }
}

async fn hand_over(
    ctx: &Context,
    snapshot: &Snapshot,
    owners: &[OwnerReference],
) -> Result<(), ReconcileError> {
    let Snapshot {
        namespace, name, ..
    } = snapshot;
    if owners.is_empty() {
        // Only pods of somebody else use it; whoever made them knows.
        return Ok(());
    }
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    let patch = json!({"metadata": {"uid": snapshot.uid, "ownerReferences": owners}});
    match api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => {
            let doing = format!("set the owners of configmap {namespace}/{name}");
            Err(ReconcileError::api(doing)(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_a_snapshot_uses_it() {
        let wanted = BTreeSet::from(["web-1".to_owned()]);
        let owner = OwnerReference {
            uid: "d".to_owned(),
            ..OwnerReference::default()
        };
        let template = json!({"spec": {"volumes": [{"configMap": {"name": "web-1"}}, {"configMap": {"name": "web"}}]}});
        let mut users = Users::new();
        note(&mut users, &wanted, Some(&template), Some(&owner));
        note(&mut users, &wanted, Some(&template), Some(&owner));
        note(&mut users, &wanted, Some(&template), None);
        note(&mut users, &wanted, None, None);
        assert_eq!(users, Users::from([("web-1".to_owned(), vec![owner])]));
    }
}
