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
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::ApiResource,
};
use serde_json::{Value, json};

use super::{
    Context, ReconcileError,
    apply::{conflict_or, json_patch},
    config_maps::{Snapshot, get},
    observe::is_ours,
};
use crate::{
    api::{FIELD_MANAGER, PLAN_UID, StoredPlan},
    config_maps::{Contents, Kept, Tracked, judge, names, snapshot_object},
    machine::Source,
    revision::{Frozen, Revision},
};

/// Objects that are listed at a time.
const PAGE: u32 = 100;
/// The same of revisions, which may take a MiB each.
const LARGE_PAGE: u32 = 10;

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
        ctx.config_maps.doubt(uid, &tracked.name);
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
            Err(ReconcileError::unwritten(&tracked.snapshot, doing)(error))
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
        // Or it would be decided again and again on what it was.
        ctx.config_maps.found_otherwise(plan_uid, snapshot);
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
        let operations = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}),
            json!({"op": "test", "path": "/metadata/uid", "value": uid}),
            json!({"op": "add", "path": "/data", "value": contents.data}),
            json!({"op": "add", "path": "/binaryData", "value": contents.binary_data}),
        ];
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(name, &params, &json_patch(operations, &doing)?)
            .await
    };
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            let error = match error {
                kube::Error::Api(status) if status.code == 404 => conflict(name),
                error => ReconcileError::unwritten(name, doing)(error),
            };
            if matches!(error, ReconcileError::Conflict { .. }) {
                // Or it would be decided on the same view until the watch has
                // caught up.
                ctx.config_maps.doubt(plan_uid, name);
            }
            return Err(error);
        }
    };
    match disown(ctx, namespace, &written).await {
        Ok(clean) => {
            let now = Source::of(&clean.unwrap_or(written));
            ctx.config_maps.wrote(plan_uid, name, now);
        }
        // The contents are in place. It is read again, and that tries again.
        Err(error) => tracing::warn!(%error, "a mark stays on a configmap for now"),
    }
    Ok(())
}

/// Gives up what Belay owns of a ConfigMap of a user: after contents went back
/// no mark stays, and nobody who applies theirs has a conflict with Belay. What
/// ended before that is made up for when the object is read. Gives back the
/// object if it was written.
pub(super) async fn disown(
    ctx: &Context,
    namespace: &str,
    object: &ConfigMap,
) -> Result<Option<ConfigMap>, ReconcileError> {
    let name = object.name_any();
    let doing = format!("give up fields of configmap {namespace}/{name}");
    let meta = &object.metadata;
    let Some(left) = without_marks(meta.managed_fields.as_deref().unwrap_or_default()) else {
        return Ok(None);
    };
    let operations = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version}),
        json!({"op": "test", "path": "/metadata/uid", "value": meta.uid}),
        json!({"op": "replace", "path": "/metadata/managedFields", "value": left}),
    ];
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace)
        .patch(&name, &params, &json_patch(operations, &doing)?)
        .await
        .map(Some)
        .map_err(conflict_or(doing))
}

/// `managedFields` without Belay's; none if there are none of Belay's.
fn without_marks(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let left: Vec<_> = entries.iter().filter(|e| !is_ours(e)).cloned().collect();
    if left.len() == entries.len() {
        return None;
    }
    if left.is_empty() {
        // An empty list would be taken for a client that knows no such field.
        return Some(vec![ManagedFieldsEntry::default()]);
    }
    Some(left)
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
    let mut candidates = if parting {
        // The watch may not have told of all, and nobody looks again.
        listed(ctx, namespace, uid).await?
    } else {
        let ours = |s: &Snapshot| s.namespace == namespace && s.plan_uid == uid;
        ctx.config_maps.snapshots(ours)
    };
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

/// The snapshots of a plan, as the API server has them.
async fn listed(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
) -> Result<Vec<Snapshot>, ReconcileError> {
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{PLAN_UID}={plan_uid}"));
    let doing = format!("list configmaps of namespace {namespace}");
    let listed = api
        .list_metadata(&params)
        .await
        .map_err(ReconcileError::api(doing))?;
    Ok(listed.items.iter().filter_map(Snapshot::of).collect())
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
    let mut kept = BTreeSet::new();
    let mut unreadable = None;
    let of_plan = ListParams::default()
        .labels(&format!("{PLAN_UID}={plan_uid}"))
        .limit(LARGE_PAGE);
    each::<ControllerRevision>(ctx, namespace, of_plan, |object| {
        let object = object.clone().try_parse::<ControllerRevision>();
        let object = object.map_err(|error| error.to_string());
        match object.and_then(|o| Revision::from_object(&o, plan_uid).map_err(|e| e.to_string())) {
            Ok(revision) => {
                let frozen = revision.data.components.iter();
                let contents = frozen.flat_map(Frozen::keeps);
                kept.extend(contents.map(|t| t.snapshot.clone()));
            }
            Err(error) => unreadable = Some(error),
        }
    })
    .await?;
    if let Some(error) = unreadable {
        tracing::warn!(%error, "no snapshot is taken away while a revision cannot be read");
        return Ok(None);
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
    let all = ListParams::default().limit(PAGE);
    let mut owners = BTreeMap::new();
    each::<Deployment>(ctx, namespace, all.clone(), |object| {
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
    each::<ReplicaSet>(ctx, namespace, all.clone(), |object| {
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
    each::<Pod>(ctx, namespace, all.clone(), |object| {
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
    mut params: ListParams,
    mut of: impl FnMut(&DynamicObject),
) -> Result<(), ReconcileError>
where
    K: Resource<DynamicType = ()>,
{
    let resource = ApiResource::erase::<K>(&());
    let api = Api::<DynamicObject>::namespaced_with(ctx.client.clone(), namespace, &resource);
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
    fn only_belays_marks_are_taken_off() {
        let entry = |manager: &str, operation: &str| -> ManagedFieldsEntry {
            serde_json::from_value(json!({"manager": manager, "operation": operation})).unwrap()
        };
        let ours = [entry("belay", "Update"), entry("belay", "Apply")];
        let theirs = entry("helm", "Apply");
        let both = [ours.as_slice(), std::slice::from_ref(&theirs)].concat();
        assert_eq!(without_marks(&both), Some(vec![theirs.clone()]));
        assert_eq!(without_marks(&[theirs]), None);
        assert_eq!(without_marks(&[]), None);
        let none = ManagedFieldsEntry::default();
        assert_eq!(without_marks(&ours), Some(vec![none]));
    }

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
