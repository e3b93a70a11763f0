//! ConfigMaps as far as they are read: metadata of all of them by a watch, the
//! contents of a tracked one only when its resourceVersion is another.
//!
//! Contents are not kept in memory, only their digests.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, future::join_all};
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};

use super::{Context, ReconcileError, snapshots::disown};
use crate::{
    api::{PLAN_UID, ReleasePlanStatus, StoredPlan},
    config_maps::{Kept, Tracked, judge},
    machine::{self, Source},
    plan::Plan,
};

/// Longest wait for the first list of ConfigMaps.
const LISTED: Duration = Duration::from_secs(10);
/// Longest wait for the contents of one.
const READ: Duration = Duration::from_secs(10);

/// What is known of ConfigMaps.
pub(super) struct ConfigMaps {
    metas: Store<PartialObjectMeta<ConfigMap>>,
    /// Contents that were read, by the uid of the plan and the name.
    seen: Mutex<HashMap<String, HashMap<String, Source>>>,
    /// Uids of snapshots that were found whole; they cannot change since.
    whole: Mutex<HashMap<String, HashMap<String, String>>>,
}

/// A snapshot that is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) plan_uid: String,
    pub(super) uid: String,
    pub(super) meta: ObjectMeta,
}

impl Snapshot {
    /// What carries the label of a plan.
    pub(super) fn of(object: &PartialObjectMeta<ConfigMap>) -> Option<Self> {
        Some(Self {
            namespace: object.namespace()?,
            name: object.name_any(),
            plan_uid: object.labels().get(PLAN_UID)?.clone(),
            uid: object.uid()?,
            meta: object.metadata.clone(),
        })
    }
}

impl ConfigMaps {
    /// Watches all ConfigMaps; the stream tells of each that changed.
    pub(super) fn watch(
        client: &Client,
    ) -> (
        Self,
        impl Stream<Item = Result<PartialObjectMeta<ConfigMap>, watcher::Error>> + Send + use<>,
    ) {
        let (metas, writer) = reflector::store();
        let stream = watcher(
            Api::<PartialObjectMeta<ConfigMap>>::all(client.clone()),
            watcher::Config::default(),
        )
        .default_backoff()
        .modify(|object| trim(&mut object.metadata))
        .reflect(writer)
        .touched_objects();
        let known = Self {
            metas,
            seen: Mutex::default(),
            whole: Mutex::default(),
        };
        (known, stream)
    }

    /// Drops what is kept of a plan.
    pub(super) fn forget(&self, uid: &str) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.remove(uid);
        drop(whole);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(uid);
    }

    fn meta(&self, namespace: &str, name: &str) -> Option<Arc<PartialObjectMeta<ConfigMap>>> {
        self.metas.get(&ObjectRef::new(name).within(namespace))
    }

    fn seen(&self, plan_uid: &str, name: &str) -> Option<Source> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(plan_uid)?.get(name).cloned()
    }

    /// Keeps exactly these of a plan.
    fn keep(&self, plan_uid: &str, sources: &BTreeMap<String, Source>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: HashMap<String, Source> = sources
            .iter()
            .filter(|(_, source)| source.digest.is_some() && source.unreadable.is_none())
            .map(|(name, source)| (name.clone(), source.clone()))
            .collect();
        if kept.is_empty() {
            seen.remove(plan_uid);
        } else {
            seen.insert(plan_uid.to_owned(), kept);
        }
    }

    /// Keeps what a ConfigMap is after a write, which the watch may not have
    /// told of yet.
    pub(super) fn wrote(&self, plan_uid: &str, name: &str, source: Source) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let of_plan = seen.entry(plan_uid.to_owned()).or_default();
        of_plan.insert(name.to_owned(), source);
    }

    /// Takes a ConfigMap as what it is no longer: a write found another one than
    /// the watch has told of, so the next look reads it.
    pub(super) fn doubt(&self, plan_uid: &str, name: &str) {
        // Also where nothing was there: what is neither told of nor seen is
        // taken as absent.
        self.wrote(plan_uid, name, Source::default());
    }

    /// Keeps no other snapshots of a plan than these.
    fn keep_whole(&self, plan_uid: &str, wanted: &BTreeMap<String, Kept>) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_plan) = whole.get_mut(plan_uid) else {
            return;
        };
        of_plan.retain(|name, _| wanted.contains_key(name));
        if of_plan.is_empty() {
            whole.remove(plan_uid);
        }
    }

    /// Whether a snapshot is the object that was found whole, as far as the watch
    /// has told of it, and still carries the mark of its plan.
    fn is_whole(&self, namespace: &str, name: &str, plan_uid: &str) -> bool {
        let Some(meta) = self.meta(namespace, name) else {
            return false;
        };
        let labels = meta.metadata.labels.as_ref();
        let marked = labels.and_then(|labels| labels.get(PLAN_UID));
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let known = whole.get(plan_uid).and_then(|of_plan| of_plan.get(name));
        marked.is_some_and(|uid| uid == plan_uid)
            && known.is_some()
            && known == meta.metadata.uid.as_ref()
    }

    /// Takes a snapshot as whole no longer: a reader found something else.
    pub(super) fn found_otherwise(&self, plan_uid: &str, name: &str) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_plan) = whole.get_mut(plan_uid) {
            of_plan.remove(name);
        }
    }

    /// Takes a snapshot as whole.
    pub(super) fn found_whole(&self, plan_uid: &str, object: &ConfigMap) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let of_plan = whole.entry(plan_uid.to_owned()).or_default();
        of_plan.insert(object.name_any(), object.uid().unwrap_or_default());
    }

    /// The snapshots that `wanted` wants, as far as the watch has told of them.
    pub(super) fn snapshots(&self, wanted: impl Fn(&Snapshot) -> bool) -> Vec<Snapshot> {
        let metas = self.metas.state();
        let found = metas.iter().filter_map(|object| Snapshot::of(object));
        found.filter(wanted).collect()
    }

    /// Waits for the first list.
    pub(super) async fn listed(&self) -> Result<(), ReconcileError> {
        match tokio::time::timeout(LISTED, self.metas.wait_until_ready()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ReconcileError::Unlisted),
        }
    }
}

/// Drops what nobody reads, above all from ConfigMaps that are no snapshots.
fn trim(meta: &mut ObjectMeta) {
    let plan = meta
        .labels
        .as_mut()
        .and_then(|labels| labels.remove(PLAN_UID));
    let owners = meta.owner_references.take();
    let created = meta.creation_timestamp.take();
    *meta = ObjectMeta {
        name: meta.name.take(),
        namespace: meta.namespace.take(),
        uid: meta.uid.take(),
        resource_version: meta.resource_version.take(),
        ..ObjectMeta::default()
    };
    if let Some(plan) = plan {
        meta.creation_timestamp = created;
        meta.labels = Some([(PLAN_UID.to_owned(), plan)].into());
        meta.owner_references = owners.filter(|owners: &Vec<OwnerReference>| !owners.is_empty());
    }
}

/// Reads the ConfigMaps that a pass looks at. One that cannot be read is no
/// change, and ends nothing: what that means is decided like everything else.
pub(super) async fn read(
    ctx: &Context,
    stored: &StoredPlan,
    plan: Option<&Plan>,
    status: &ReleasePlanStatus,
) -> BTreeMap<String, Source> {
    let names = machine::sources(plan, status);
    let uid = stored.metadata.uid.as_deref().unwrap_or_default();
    let namespace = stored.metadata.namespace.as_deref().unwrap_or_default();
    if names.is_empty() {
        return BTreeMap::new();
    }
    let unlisted = ctx.config_maps.listed().await.err();
    let reads = names.into_iter().map(async |name| {
        let source = match &unlisted {
            Some(error) => unread(error),
            None => source(ctx, namespace, uid, &name)
                .await
                .unwrap_or_else(|error| unread(&error)),
        };
        (name, source)
    });
    let sources = join_all(reads).await.into_iter().collect();
    ctx.config_maps.keep(uid, &sources);
    sources
}

fn unread(error: &ReconcileError) -> Source {
    tracing::warn!(%error, "contents are taken as they were last seen");
    Source {
        unreadable: Some(error.in_short()),
        ..Source::default()
    }
}

async fn source(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
    name: &str,
) -> Result<Source, ReconcileError> {
    let meta = ctx.config_maps.meta(namespace, name);
    let seen = ctx.config_maps.seen(plan_uid, name);
    if let Some(known) = known(meta.as_ref().map(|meta| &meta.metadata), seen) {
        return Ok(known);
    }
    let Some(object) = get(ctx, namespace, name).await? else {
        return Ok(Source::default());
    };
    let clean = disown(ctx, namespace, &object)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(%error, "a mark stays on a configmap for now");
            None
        });
    Ok(Source::of(&clean.unwrap_or(object)))
}

/// What a ConfigMap is, if that is known without reading it. The watch may not
/// have told yet of what was read or written last, be it that it is there.
fn known(meta: Option<&ObjectMeta>, seen: Option<Source>) -> Option<Source> {
    let (meta, seen) = match (meta, seen) {
        (None, None) => return Some(Source::default()),
        (Some(meta), Some(seen)) => (meta, seen),
        _ => return None,
    };
    let same = meta.uid.as_deref() == Some(&seen.uid)
        && meta.resource_version.as_deref() == Some(&seen.resource_version);
    same.then_some(seen)
}

/// One ConfigMap with its contents, if it exists.
pub(super) async fn get(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<ConfigMap>, ReconcileError> {
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), namespace);
    let doing = format!("read configmap {namespace}/{name}");
    match tokio::time::timeout(READ, api.get_opt(name)).await {
        Ok(read) => read.map_err(ReconcileError::api(doing)),
        Err(_) => Err(ReconcileError::Timeout(READ)),
    }
}

/// What stands under the names of snapshots. One that was found whole and is
/// still the same object is not read again.
pub(super) async fn kept(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
    wanted: &[Tracked],
) -> BTreeMap<String, Kept> {
    let looks = wanted.iter().map(async |tracked| {
        let name = &tracked.snapshot;
        if ctx.config_maps.is_whole(namespace, name, plan_uid) {
            return (name.clone(), Kept::Whole);
        }
        let kept = match get(ctx, namespace, name).await {
            Ok(object) => {
                let kept = judge(object.as_ref(), &tracked.digest, plan_uid);
                if let (Kept::Whole, Some(object)) = (&kept, &object) {
                    ctx.config_maps.found_whole(plan_uid, object);
                }
                kept
            }
            Err(error) => {
                tracing::warn!(%namespace, %error, "what stands under the name of a snapshot is not known");
                Kept::Unknown(error.in_short())
            }
        };
        (name.clone(), kept)
    });
    let kept: BTreeMap<String, Kept> = join_all(looks).await.into_iter().collect();
    ctx.config_maps.keep_whole(plan_uid, &kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_written_counts_until_the_watch_has_caught_up() {
        let told = |uid: &str, version: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let seen = Source {
            digest: Some("d".to_owned()),
            uid: "u".to_owned(),
            resource_version: "8".to_owned(),
            ..Source::default()
        };
        let known = |meta: Option<ObjectMeta>, seen: Option<&Source>| {
            super::known(meta.as_ref(), seen.cloned())
        };
        assert_eq!(known(Some(told("u", "8")), Some(&seen)), Some(seen.clone()));
        assert_eq!(known(None, None), Some(Source::default()));
        for read in [
            known(Some(told("u", "7")), Some(&seen)),
            known(Some(told("v", "8")), Some(&seen)),
            known(None, Some(&seen)),
            known(Some(told("u", "8")), None),
        ] {
            assert_eq!(read, None);
        }
    }

    #[test]
    fn what_a_write_found_to_be_another_is_read_whatever_the_watch_says() {
        let (metas, _writer) = reflector::store();
        let known = ConfigMaps {
            metas,
            seen: Mutex::default(),
            whole: Mutex::default(),
        };
        let told = ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        };
        let source = Source {
            digest: Some("d".to_owned()),
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            ..Source::default()
        };
        let look = |meta| super::known(meta, known.seen("p", "web"));
        assert_eq!(look(None), Some(Source::default()));
        known.doubt("p", "web");
        assert_eq!(look(None), None, "the watch has not told that it is there");
        known.wrote("p", "web", source.clone());
        assert_eq!(look(Some(&told)), Some(source.clone()));
        known.doubt("p", "web");
        assert_eq!(look(Some(&told)), None, "the watch lags behind");
        // What was read then stands, and it is read until the watch says so too.
        let newer = Source {
            resource_version: "8".to_owned(),
            ..source
        };
        known.keep("p", &[("web".to_owned(), newer)].into());
        assert_eq!(look(Some(&told)), None);
    }

    #[test]
    fn a_snapshot_is_read_again_once_it_may_be_another() {
        let (metas, mut writer) = reflector::store();
        let known = ConfigMaps {
            metas,
            seen: Mutex::default(),
            whole: Mutex::default(),
        };
        let object = |uid: &str, plan: &str| -> ConfigMap {
            let labels = json!({PLAN_UID: plan});
            let meta = json!({"name": "web-1", "namespace": "shop", "uid": uid, "labels": labels});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        let mut tell = |object: &ConfigMap| {
            let meta = serde_json::to_value(&object.metadata).unwrap();
            let mut partial: PartialObjectMeta<ConfigMap> = serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}),
            )
            .unwrap();
            trim(&mut partial.metadata);
            writer.apply_watcher_event(&watcher::Event::Apply(partial));
        };
        let is_whole = || known.is_whole("shop", "web-1", "p");
        let snapshot = object("u", "p");
        known.found_whole("p", &snapshot);
        assert!(!is_whole(), "nothing was told of it");
        tell(&snapshot);
        assert!(is_whole());
        tell(&object("u", ""));
        assert!(!is_whole(), "its mark is gone");
        tell(&object("v", "p"));
        assert!(!is_whole(), "it was made anew");
        tell(&snapshot);
        known.found_otherwise("p", "web-1");
        assert!(!is_whole(), "a reader found something else");
    }

    #[test]
    fn of_other_config_maps_only_the_name_and_the_version_are_kept() {
        let meta = |plan: Option<&str>| {
            let mut labels = json!({"app": "web"});
            if let Some(plan) = plan {
                labels[PLAN_UID] = json!(plan);
            }
            let mut meta: ObjectMeta = serde_json::from_value(json!({
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": labels, "annotations": {"a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}],
            }))
            .unwrap();
            trim(&mut meta);
            serde_json::to_value(meta).unwrap()
        };
        assert_eq!(
            meta(None),
            json!({"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"})
        );
        let snapshot = meta(Some("p"));
        assert_eq!(snapshot["labels"], json!({PLAN_UID: "p"}));
        assert!(snapshot["ownerReferences"].is_array());
    }
}
