//! Carries out the writes of a decision, one after the other.
//!
//! Decides nothing. Each write names the uid and resourceVersion that it was
//! decided on, so that it fails instead of hitting something else.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Context, ReconcileError, snapshots, templates};
use crate::{
    api::{FIELD_MANAGER, FINALIZER, ORDERED_BY, PLAN_UID, StoredPlan},
    cluster::{ApplyFailure, classify, deployments},
    fields::{FieldSet, owning_exactly},
    machine::Action,
    plan::{Stamps, Target},
    revision::Revision,
};

/// Carries out `actions` in order; `plan` follows what they do to the plan.
pub(super) async fn apply(
    ctx: &Context,
    plan: &mut StoredPlan,
    actions: &[Action],
) -> Result<(), ReconcileError> {
    // What cannot be taken off the users' objects must not hold a plan for ever
    // whose deletion has come to its end.
    let parting = actions.contains(&Action::RemoveFinalizer);
    let mut failures = Failures::default();
    for action in actions {
        if failures.ends(action) {
            break;
        }
        if failures.skips(action) {
            continue;
        }
        match carry_out(ctx, plan, action).await {
            Ok(()) => {}
            Err(error) if parting && error.is_denied() && *action != Action::RemoveFinalizer => {
                tracing::warn!(%error, "something of Belay's stays behind");
            }
            Err(error) => failures.note(action, error)?,
        }
    }
    failures.first.map_or(Ok(()), Err)
}

/// What failed of a pass. Workloads are independent of each other: one that
/// cannot be written now, or whose contents cannot, must not hold the others.
#[derive(Default)]
struct Failures {
    /// What the pass ends with.
    first: Option<ReconcileError>,
    /// ConfigMaps whose contents are not kept, or not in place.
    unwritten: BTreeSet<String>,
}

impl Failures {
    /// Whether nothing may follow: what comes after a revision may rest on it,
    /// and it may rest on all before it.
    const fn ends(&self, action: &Action) -> bool {
        self.first.is_some() && matches!(action, Action::CreateRevision { .. })
    }

    /// Whether an action rests on one that failed.
    fn skips(&self, action: &Action) -> bool {
        match action {
            Action::Apply { write } | Action::Replace { write } => {
                !self.unwritten.is_disjoint(&write.config_maps)
            }
            Action::EnsureFinalizer | Action::CreateSnapshot { .. } | Action::Own { .. } => false,
            Action::WriteContents { tracked, .. } => self.unwritten.contains(&tracked.name),
            // They say that what was decided is done.
            Action::RemoveFinalizer
            | Action::DropAnnotation { .. }
            | Action::CreateRevision { .. }
            | Action::PruneRevisions { .. } => self.first.is_some(),
        }
    }

    /// Notes a failure; gives it back if it ends the pass.
    fn note(&mut self, action: &Action, error: ReconcileError) -> Result<(), ReconcileError> {
        match action {
            // It is decided anew with what the API server said.
            Action::Apply { .. } | Action::Replace { .. } if !error.is_refusal() => {}
            Action::Own { .. } => {}
            Action::CreateSnapshot { tracked } | Action::WriteContents { tracked, .. }
                if !error.is_refusal() =>
            {
                self.unwritten.insert(tracked.name.clone());
            }
            _ => return Err(error),
        }
        // A lost race is made good by itself, and must not hide what is not.
        let known = self.first.as_ref();
        if known.is_none_or(|known| known.is_conflict() && !error.is_conflict()) {
            self.first = Some(error);
        }
        Ok(())
    }
}

async fn carry_out(
    ctx: &Context,
    plan: &mut StoredPlan,
    action: &Action,
) -> Result<(), ReconcileError> {
    let namespace = plan.metadata.namespace.clone().unwrap_or_default();
    match action {
        Action::EnsureFinalizer => ensure_finalizer(ctx, plan).await,
        Action::RemoveFinalizer => remove_finalizer(ctx, plan).await,
        Action::DropAnnotation { name, value } => drop_annotation(ctx, plan, name, value).await,
        Action::CreateRevision { revision, number } => {
            create_revision(ctx, plan, revision, *number).await
        }
        Action::CreateSnapshot { tracked } => snapshots::create(ctx, plan, tracked).await,
        Action::WriteContents {
            tracked,
            uid,
            resource_version,
        } => snapshots::write_back(ctx, plan, tracked, uid, resource_version).await,
        Action::PruneRevisions { keep } => prune(ctx, plan, keep).await,
        Action::Apply { write } => templates::apply(&ctx.client, &namespace, write).await,
        Action::Replace { write } => templates::replace(&ctx.client, &namespace, write).await,
        Action::Own {
            target,
            uid,
            fields,
        } => own(ctx, &namespace, target, uid, fields).await,
    }
}

/// Patches the plan as it was read; `plan` becomes what the patch made of it.
pub(super) async fn patch_plan(
    ctx: &Context,
    plan: &mut StoredPlan,
    doing: &str,
    mut operations: Vec<Value>,
) -> Result<(), ReconcileError> {
    let name = plan.metadata.name.clone().unwrap_or_default();
    let namespace = plan.metadata.namespace.clone().unwrap_or_default();
    // A resourceVersion that does not match is a clean conflict, where a failed
    // test would look like an invalid patch.
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion",
                         "value": plan.metadata.resource_version});
    operations.insert(0, version);
    let api = Api::<StoredPlan>::namespaced(ctx.client.clone(), &namespace);
    let doing = format!("{doing} releaseplan {namespace}/{name}");
    *plan = api
        .patch(
            &name,
            &PatchParams::default(),
            &json_patch(operations, &doing)?,
        )
        .await
        .map_err(conflict_or(doing))?;
    ctx.last_writes.note(plan);
    Ok(())
}

/// A JSON patch that no longer fits what is stored is refused as invalid,
/// although only somebody else was quicker.
pub(super) fn conflict_or(doing: String) -> impl FnOnce(kube::Error) -> ReconcileError {
    |error| match classify(&error) {
        ApplyFailure::Conflict => ReconcileError::Conflict { what: doing },
        _ => ReconcileError::Api {
            doing,
            source: Box::new(error),
        },
    }
}

pub(super) fn json_patch(operations: Vec<Value>, doing: &str) -> Result<Patch<()>, ReconcileError> {
    serde_json::from_value(Value::Array(operations))
        .map(Patch::Json)
        .map_err(unserialisable(doing.to_owned()))
}

pub(super) fn unserialisable(doing: String) -> impl FnOnce(serde_json::Error) -> ReconcileError {
    |error| ReconcileError::Api {
        doing,
        source: Box::new(kube::Error::SerdeError(error)),
    }
}

async fn ensure_finalizer(ctx: &Context, plan: &mut StoredPlan) -> Result<(), ReconcileError> {
    let seen = plan.metadata.finalizers.clone().unwrap_or_default();
    if seen.iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    let operations = if seen.is_empty() {
        vec![json!({"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]})]
    } else {
        vec![
            json!({"op": "test", "path": "/metadata/finalizers", "value": seen}),
            json!({"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}),
        ]
    };
    patch_plan(ctx, plan, "add the finalizer to", operations).await
}

async fn remove_finalizer(ctx: &Context, plan: &mut StoredPlan) -> Result<(), ReconcileError> {
    let seen = plan.metadata.finalizers.clone().unwrap_or_default();
    let Some(index) = seen.iter().position(|name| name == FINALIZER) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{index}");
    let operations = vec![
        json!({"op": "test", "path": path, "value": FINALIZER}),
        json!({"op": "remove", "path": path}),
    ];
    match patch_plan(ctx, plan, "remove the finalizer from", operations).await {
        Err(ReconcileError::Api { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
            Ok(())
        }
        other => other,
    }
}

async fn drop_annotation(
    ctx: &Context,
    plan: &mut StoredPlan,
    name: &str,
    value: &str,
) -> Result<(), ReconcileError> {
    let operations = without_annotation(plan, name, value);
    patch_plan(
        ctx,
        plan,
        &format!("remove the annotation {name} from"),
        operations,
    )
    .await
}

/// What takes an order off the plan, and with it the stamp of who gave it.
fn without_annotation(plan: &StoredPlan, name: &str, value: &str) -> Vec<Value> {
    let path = |name: &str| format!("/metadata/annotations/{}", name.replace('/', "~1"));
    let mut operations = vec![
        json!({"op": "test", "path": path(name), "value": value}),
        json!({"op": "remove", "path": path(name)}),
    ];
    // The webhook would do that too, but it may be away.
    if let Some(stamps) = plan.annotation(ORDERED_BY) {
        operations.push(match Stamps::read(Some(stamps)).without(name).write() {
            Some(left) => json!({"op": "replace", "path": path(ORDERED_BY), "value": left}),
            None => json!({"op": "remove", "path": path(ORDERED_BY)}),
        });
    }
    operations
}

async fn create_revision(
    ctx: &Context,
    plan: &StoredPlan,
    revision: &Revision,
    number: i64,
) -> Result<(), ReconcileError> {
    let (name, uid) = (plan.metadata.name.clone(), plan.metadata.uid.clone());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    let object = revision.to_object(&name, &uid, number);
    let doing = || format!("store controllerrevision {namespace}/{}", revision.name);
    match api.create(&kube::api::PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // The same content was frozen before: by an earlier release, or by a
        // pass that did not come to its end.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let stored = api
                .get(&revision.name)
                .await
                .map_err(ReconcileError::api(doing()))?;
            match Revision::from_object(&stored, &uid) {
                Ok(stored) if stored.data.digest(&uid) == revision.data.digest(&uid) => Ok(()),
                _ => Err(ReconcileError::ForeignRevision {
                    name: revision.name.clone(),
                }),
            }
        }
        Err(error) => Err(ReconcileError::api(doing())(error)),
    }
}

/// Takes away what nothing needs any more. While the plan stays that must not
/// hold what it does for others: the next time takes what is left.
async fn prune(ctx: &Context, plan: &StoredPlan, keep: &[String]) -> Result<(), ReconcileError> {
    let parting = keep.is_empty();
    let pruned = prune_revisions(ctx, plan, keep).await;
    let collected = snapshots::collect(ctx, plan, parting).await;
    let pruned = pruned.and(collected);
    if parting {
        return pruned;
    }
    if let Err(error) = pruned {
        tracing::warn!(%error, "something that nothing needs stays until the next release");
    }
    Ok(())
}

async fn prune_revisions(
    ctx: &Context,
    plan: &StoredPlan,
    keep: &[String],
) -> Result<(), ReconcileError> {
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{PLAN_UID}={uid}"));
    let doing = format!("list controllerrevisions of namespace {namespace}");
    let listed = api
        .list_metadata(&params)
        .await
        .map_err(ReconcileError::api(doing))?;
    for object in listed.items {
        let Some(name) = object.metadata.name else {
            continue;
        };
        if keep.contains(&name) {
            continue;
        }
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let doing = format!("delete controllerrevision {namespace}/{name}");
                return Err(ReconcileError::api(doing)(error));
            }
        }
    }
    Ok(())
}

/// Makes Belay own exactly some fields of the pod template; values and
/// generation stay. An apply without the fields would take the values with them.
async fn own(
    ctx: &Context,
    namespace: &str,
    target: &Target,
    uid: &str,
    fields: &FieldSet,
) -> Result<(), ReconcileError> {
    let api = deployments(&ctx.client, namespace);
    let doing = format!("set the ownership of fields of {target}");
    let object = api
        .get_opt(&target.name)
        .await
        .map_err(ReconcileError::api(doing))?;
    match object.filter(|object| object.metadata.uid.as_deref() == Some(uid)) {
        Some(object) => own_as_read(ctx, namespace, target, &object.metadata, fields).await,
        None => Ok(()),
    }
}

/// The same for an object as it was read; a conflict if it changed since.
pub(super) async fn own_as_read(
    ctx: &Context,
    namespace: &str,
    target: &Target,
    read: &ObjectMeta,
    fields: &FieldSet,
) -> Result<(), ReconcileError> {
    let doing = format!("set the ownership of fields of {target}");
    let seen = read.managed_fields.clone().unwrap_or_default();
    let fields = fields.clone().nest(&["spec", "template"]);
    let wanted = owning_exactly(&seen, FIELD_MANAGER, "apps/v1", &fields).map_err(|source| {
        ReconcileError::Ownership {
            target: target.clone(),
            source,
        }
    })?;
    let Some(wanted) = wanted else { return Ok(()) };
    let operations = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": read.resource_version}),
        json!({"op": "test", "path": "/metadata/uid", "value": read.uid}),
        json!({"op": "replace", "path": "/metadata/managedFields", "value": wanted}),
    ];
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    deployments(&ctx.client, namespace)
        .patch(&target.name, &params, &json_patch(operations, &doing)?)
        .await
        .map(drop)
        .map_err(conflict_or(doing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config_maps::Tracked, machine::TemplateWrite};

    fn write(name: &str, config_maps: &[&str]) -> Action {
        let target = Target {
            kind: crate::api::WorkloadKind::Deployment,
            name: name.to_owned(),
        };
        Action::Replace {
            write: TemplateWrite {
                target,
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                template: json!({}),
                seen: String::new(),
                config_maps: config_maps.iter().map(|&name| name.to_owned()).collect(),
            },
        }
    }

    fn contents(name: &str) -> Action {
        Action::WriteContents {
            tracked: Tracked::new(name, "d", "uid"),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
        }
    }

    fn error(code: u16) -> ReconcileError {
        let status = kube::core::Status::failure("no", "Test").with_code(code);
        ReconcileError::api("write it")(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn contents_that_cannot_be_written_hold_only_what_reads_them() {
        let snapshot = Action::CreateSnapshot {
            tracked: Tracked::new("settings", "d", "uid"),
        };
        for failed in [contents("settings"), snapshot] {
            let mut failures = Failures::default();
            failures.note(&failed, error(500)).unwrap();
            assert!(failures.skips(&write("cart", &["settings"])));
            assert!(failures.skips(&contents("settings")));
            assert!(!failures.skips(&write("web", &["other"])));
            assert!(!failures.skips(&write("web", &[])));
            assert!(!failures.skips(&contents("other")));
            let prune = Action::PruneRevisions { keep: vec![] };
            assert!(failures.skips(&prune) && failures.skips(&Action::RemoveFinalizer));
            assert!(failures.first.is_some());
            let data = json!({"canon": 1, "spec": "", "components": []});
            let data: crate::revision::RevisionData = serde_json::from_value(data).unwrap();
            let revision = data.named("shop", "uid");
            let create = Action::CreateRevision {
                revision: Box::new(revision),
                number: 1,
            };
            assert!(failures.ends(&create) && !Failures::default().ends(&create));
            assert!(!failures.skips(&Action::EnsureFinalizer));
        }
        assert!(!Failures::default().skips(&write("cart", &["settings"])));
    }

    #[test]
    fn a_lost_race_does_not_hide_a_failure() {
        for order in [[409, 500, 403], [500, 409, 403]] {
            let mut failures = Failures::default();
            for code in order {
                failures.note(&write("cart", &[]), error(code)).unwrap();
            }
            let first = failures.first.unwrap();
            let ReconcileError::Api { source, .. } = &first else {
                panic!("{first}")
            };
            assert!(matches!(&**source, kube::Error::Api(status) if status.code == 500));
        }
    }

    #[test]
    fn what_others_rest_on_ends_the_pass() {
        let mut failures = Failures::default();
        let drop = Action::DropAnnotation {
            name: "a".to_owned(),
            value: "b".to_owned(),
        };
        assert!(failures.note(&drop, error(500)).is_err());
        let refused = ReconcileError::Refused {
            target: Target {
                kind: crate::api::WorkloadKind::Deployment,
                name: "cart".to_owned(),
            },
            message: "no".to_owned(),
        };
        assert!(failures.note(&write("cart", &[]), refused).is_err());
        let refused = ReconcileError::ConfigMapRefused {
            name: "settings".to_owned(),
            message: "no".to_owned(),
        };
        assert!(failures.note(&contents("settings"), refused).is_err());
        assert!(failures.first.is_none());
    }

    /// The operator's own patch does what the webhook would do, were it there.
    #[test]
    fn an_order_is_taken_off_with_its_own_stamp_only() {
        let stamp = |order: &str| json!({"order": order, "revision": "r", "user": "jane", "at": "2026-01-01T00:00:00Z"});
        let stamps = json!([stamp("abort"), stamp("undo")]).to_string();
        let mut object = json!({"metadata": {"annotations": {
            "note": "x", "belay.dev/abort": "r", "belay.dev/undo": "r", ORDERED_BY: stamps,
        }}});
        for (name, left) in [("abort", Some("undo")), ("undo", None)] {
            let plan: StoredPlan = serde_json::from_value(object.clone()).unwrap();
            let operations = without_annotation(&plan, &format!("belay.dev/{name}"), "r");
            let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
            let stamps = object["metadata"]["annotations"].get(ORDERED_BY);
            let stamps = Stamps::read(stamps.and_then(Value::as_str));
            assert!(stamps.of(&format!("belay.dev/{name}"), "r").is_none());
            assert!(left.is_none_or(|left| stamps.of(&format!("belay.dev/{left}"), "r").is_some()));
        }
        assert_eq!(object["metadata"]["annotations"], json!({"note": "x"}));
    }
}
