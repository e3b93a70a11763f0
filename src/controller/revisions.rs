//! Revisions that running releases need, read once.
//!
//! They never change, so what was read and found whole is kept for as long as a
//! release asks for it. An idle plan keeps none. It is kept as text: decoded, the
//! templates take several times as much, for the whole of a release, and to decode
//! them is a matter of microseconds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, api::ListParams};

use super::{Context, ReconcileError};
use crate::{
    api::PLAN_UID,
    machine::Known,
    names::is_subdomain,
    revision::{Revision, RevisionError},
};

/// Revisions as JSON, by the uid of their plan and their name.
#[derive(Default)]
pub(super) struct Revisions(
    Mutex<HashMap<String, HashMap<String, Arc<str>>>>,
    /// When the stable revision of a plan was last known to be there.
    Mutex<HashMap<String, (String, Instant)>>,
);

impl Revisions {
    /// Drops what is kept of a plan.
    pub(super) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
        self.1
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }

    /// Notes that the stable revision of a plan is there.
    fn saw(&self, uid: &str, name: &str, now: Instant) {
        let mut seen = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(uid.to_owned(), (name.to_owned(), now));
    }

    /// Whether it is time to look for the stable revision of a plan. One that was
    /// not heard of before was made, or read, not long ago: who starts must not
    /// look for those of all plans at once.
    fn is_due(&self, uid: &str, name: &str, now: Instant, every: Duration) -> bool {
        let last = {
            let seen = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let last = seen.get(uid).filter(|(known, _)| known == name);
            last.map(|(_, at)| *at)
        };
        if last.is_none() {
            self.saw(uid, name, now);
        }
        last.is_some_and(|at| now.duration_since(at) >= every)
    }

    fn get(&self, uid: &str, name: &str) -> Option<Revision> {
        let text = {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(kept.get(uid)?.get(name)?)
        };
        let data = serde_json::from_str(&text).ok()?;
        Some(Revision {
            name: name.to_owned(),
            data,
        })
    }

    /// Keeps exactly these of a plan.
    fn keep(&self, uid: &str, revisions: &[Arc<Revision>]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = kept.remove(uid).unwrap_or_default();
        known.retain(|name, _| revisions.iter().any(|r| r.name == *name));
        for revision in revisions {
            if known.contains_key(&revision.name) {
                continue;
            }
            // One that cannot be written down is read again the next time.
            if let Ok(text) = serde_json::to_string(&revision.data) {
                known.insert(revision.name.clone(), text.into());
            }
        }
        if !known.is_empty() {
            kept.insert(uid.to_owned(), known);
        }
    }
}

/// Reads revisions of a plan; those that are gone or damaged are left out.
pub(super) async fn load(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
    names: &[String],
) -> Result<Vec<Arc<Revision>>, ReconcileError> {
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    let reads = names.iter().map(async |name| {
        // A status that somebody wrote by hand must not lead elsewhere.
        if !is_subdomain(name) {
            return Ok::<_, ReconcileError>(None);
        }
        if let Some(kept) = ctx.revisions.get(plan_uid, name) {
            return Ok(Some(Arc::new(kept)));
        }
        let doing = format!("read controllerrevision {namespace}/{name}");
        let read = api
            .get_opt(name)
            .await
            .map_err(ReconcileError::api(doing))?;
        let Some(object) = read else { return Ok(None) };
        match Revision::from_object(&object, plan_uid) {
            Ok(revision) => Ok(Some(Arc::new(revision))),
            // A damaged one is as good as gone, and that is decided upon.
            Err(error @ (RevisionError::Damaged { .. } | RevisionError::Unreadable { .. })) => {
                tracing::error!(%error, "a revision cannot be used");
                Ok(None)
            }
        }
    });
    let mut revisions = Vec::new();
    for read in join_all(reads).await {
        revisions.extend(read?);
    }
    ctx.revisions.keep(plan_uid, &revisions);
    Ok(revisions)
}

/// Whether the stable revision of a plan at rest is gone. It is looked for once in
/// every resync, and on every pass while it is gone; what cannot be found out is no
/// loss.
pub(super) async fn is_gone(ctx: &Context, namespace: &str, plan_uid: &str, name: &str) -> bool {
    let now = Instant::now();
    let due = ctx.revisions.is_due(plan_uid, name, now, ctx.resync);
    if !due || !is_subdomain(name) {
        return false;
    }
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    match api.get_metadata_opt(name).await {
        Ok(Some(_)) => {
            ctx.revisions.saw(plan_uid, name, now);
            false
        }
        Ok(None) => true,
        Err(error) => {
            tracing::debug!(%error, "whether the stable revision is there is not known");
            false
        }
    }
}

/// All revisions of a plan that are whole.
pub(super) async fn find(
    ctx: &Context,
    namespace: &str,
    plan_uid: &str,
) -> Result<Vec<Known>, ReconcileError> {
    let api = Api::<ControllerRevision>::namespaced(ctx.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{PLAN_UID}={plan_uid}"));
    let doing = format!("list controllerrevisions of namespace {namespace}");
    let listed = api
        .list(&params)
        .await
        .map_err(ReconcileError::api(doing))?;
    let whole = listed.items.iter().filter_map(|object| {
        let revision = Revision::from_object(object, plan_uid);
        let revision = revision
            .inspect_err(|error| tracing::error!(%error, "a revision cannot be used"))
            .ok()?;
        Some(Known {
            number: object.revision,
            revision,
        })
    });
    Ok(whole.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn revision(name: &str) -> Arc<Revision> {
        let data = json!({
            "canon": 1, "spec": "s", "components": [{
                "name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
                "partialDigest": "p", "template": {"spec": {"containers": [{"name": "app"}]}},
                "fields": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}},
            }],
        });
        Arc::new(Revision {
            name: name.to_owned(),
            data: serde_json::from_value(data).unwrap(),
        })
    }

    #[test]
    fn what_is_kept_is_what_was_read_and_only_what_is_asked_for() {
        let kept = Revisions::default();
        let (one, two) = (revision("one"), revision("two"));
        kept.keep("u", &[Arc::clone(&one), Arc::clone(&two)]);
        assert_eq!(kept.get("u", "one").as_ref(), Some(one.as_ref()));
        assert_eq!(kept.get("u", "two").as_ref(), Some(two.as_ref()));
        assert_eq!(kept.get("v", "one"), None);
        kept.keep("u", &[two]);
        assert_eq!(kept.get("u", "one"), None);
        assert!(kept.get("u", "two").is_some());
        kept.keep("u", &[]);
        assert!(kept.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_stable_revision_is_looked_for_once_in_a_while() {
        let kept = Revisions::default();
        let start = Instant::now();
        let due = |name: &str, seconds: u64| {
            let every = Duration::from_secs(600);
            kept.is_due("u", name, start + Duration::from_secs(seconds), every)
        };
        assert!(!due("one", 0) && !due("one", 599) && due("one", 600));
        assert!(due("one", 660), "as long as it was not found");
        kept.saw("u", "one", start + Duration::from_secs(660));
        assert!(!due("one", 1259) && due("one", 1260));
        assert!(!due("two", 1260) && due("two", 1860), "it is another");
        kept.forget("u");
        assert!(!due("two", 1860));
    }
}
