//! Revisions that running releases need, read once.
//!
//! They never change, so what was read and found whole is kept for as long as a
//! release asks for it. An idle plan keeps none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::join_all;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;

use super::{Context, ReconcileError};
use crate::revision::{Revision, RevisionError};

/// Revisions by the uid of their plan and their name.
#[derive(Default)]
pub(super) struct Revisions(Mutex<HashMap<String, HashMap<String, Arc<Revision>>>>);

impl Revisions {
    /// Drops what is kept of a plan.
    pub(super) fn forget(&self, uid: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }

    fn get(&self, uid: &str, name: &str) -> Option<Arc<Revision>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(uid)?.get(name).cloned()
    }

    /// Keeps exactly these of a plan.
    fn keep(&self, uid: &str, revisions: &[Arc<Revision>]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if revisions.is_empty() {
            kept.remove(uid);
            return;
        }
        let named = revisions.iter().map(|r| (r.name.clone(), Arc::clone(r)));
        kept.insert(uid.to_owned(), named.collect());
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
        if !is_name(name) {
            return Ok::<_, ReconcileError>(None);
        }
        if let Some(kept) = ctx.revisions.get(plan_uid, name) {
            return Ok(Some(kept));
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

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=253).contains(&name.len())
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || c == '-' || c == '.')
        && !name.contains("..")
}
