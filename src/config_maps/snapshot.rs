//! Snapshots: contents of a ConfigMap in an immutable copy of its own.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Contents;
use crate::{
    api::{DIGEST, PLAN_NAME, PLAN_UID, SOURCE},
    fields::canon::{SHORT, digest_json, short},
};

/// Longest name of a ConfigMap.
const MAX_NAME: usize = 253;

/// A tracked ConfigMap with the contents that belong to a content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tracked {
    /// Name of the ConfigMap.
    pub name: String,
    /// Digest of its contents.
    pub digest: String,
    /// Name of the snapshot that holds them.
    pub snapshot: String,
}

impl Tracked {
    /// A ConfigMap that a plan tracks, with contents of this digest.
    #[must_use]
    pub fn new(name: &str, digest: &str, plan_uid: &str) -> Self {
        Self {
            name: name.to_owned(),
            digest: digest.to_owned(),
            snapshot: snapshot_name(name, digest, plan_uid),
        }
    }
}

/// What stands under the name of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The snapshot, whole.
    Whole,
    /// Nothing.
    Missing,
    /// A snapshot of the plan whose contents are others, or can be changed.
    Damaged,
    /// An object that is not this plan's.
    Foreign,
    /// It could not be read, for this reason. That says nothing about it.
    Unknown(String),
}

/// Name of the snapshot of a ConfigMap's contents. Two plans never share one:
/// each gives up its own when it goes.
#[must_use]
pub fn snapshot_name(source: &str, digest: &str, plan_uid: &str) -> String {
    let hash = digest_json(&json!({"plan": plan_uid, "name": source, "contents": digest}));
    let hash = short(&hash);
    format!("{}-{hash}", stem(source, hash.len()))
}

/// What the name of a snapshot begins with, before a hash of that length.
fn stem(source: &str, hash: usize) -> &str {
    let end = source.char_indices().nth(MAX_NAME - 1 - hash);
    let stem = end.map_or(source, |(end, _)| &source[..end]);
    stem.trim_end_matches(['-', '.'])
}

/// Whether a name is one that a snapshot of this ConfigMap may have.
#[must_use]
pub fn is_snapshot_of(name: &str, source: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(start, hash)| {
        hash.len() == SHORT
            && hash.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
            && start == stem(source, SHORT)
    })
}

/// The snapshot to store. It belongs to the plan by label only: a workload may
/// be deleted and made again, and foreground deletion of the plan would take it
/// away while a rollback still needs it.
#[must_use]
pub fn snapshot_object(
    tracked: &Tracked,
    contents: Contents,
    plan: &str,
    plan_uid: &str,
) -> ConfigMap {
    let label: String = plan.chars().take(63).collect();
    let label = label.trim_end_matches(['-', '.']).to_owned();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(tracked.snapshot.clone()),
            labels: Some(
                [
                    (PLAN_UID.to_owned(), plan_uid.to_owned()),
                    (PLAN_NAME.to_owned(), label),
                ]
                .into(),
            ),
            annotations: Some(
                [
                    (SOURCE.to_owned(), tracked.name.clone()),
                    (DIGEST.to_owned(), tracked.digest.clone()),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(contents.data).filter(|data| !data.is_empty()),
        binary_data: Some(contents.binary_data).filter(|data| !data.is_empty()),
    }
}

/// What stands under the name of a snapshot of this plan.
#[must_use]
pub fn judge(object: Option<&ConfigMap>, digest: &str, plan_uid: &str) -> Kept {
    let Some(object) = object else {
        return Kept::Missing;
    };
    if object.labels().get(PLAN_UID).map(String::as_str) != Some(plan_uid) {
        return Kept::Foreign;
    }
    let whole = object.immutable == Some(true)
        && object.metadata.deletion_timestamp.is_none()
        && Contents::of(object).digest() == digest;
    if whole { Kept::Whole } else { Kept::Damaged }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            data: [("k".to_owned(), "v".to_owned())].into(),
            ..Contents::default()
        }
    }

    #[test]
    fn a_snapshot_is_an_immutable_copy_that_belongs_to_its_plan() {
        let tracked = Tracked::new("web", &contents().digest(), "uid");
        let object = snapshot_object(&tracked, contents(), "shop", "uid");
        assert_eq!(object.immutable, Some(true));
        assert!(object.metadata.owner_references.is_none());
        assert_eq!(judge(Some(&object), &tracked.digest, "uid"), Kept::Whole);
        assert_eq!(
            judge(Some(&object), &tracked.digest, "other"),
            Kept::Foreign
        );
        assert_eq!(judge(None, &tracked.digest, "uid"), Kept::Missing);
        let mut open = object.clone();
        open.immutable = None;
        assert_eq!(judge(Some(&open), &tracked.digest, "uid"), Kept::Damaged);
        let mut changed = object;
        changed.data = None;
        assert_eq!(judge(Some(&changed), &tracked.digest, "uid"), Kept::Damaged);
    }

    #[test]
    fn names_fit_and_tell_plans_sources_and_contents_apart() {
        let long = snapshot_name(&format!("{}.x", "a".repeat(241)), "d", "uid");
        assert!(long.len() <= 253 && !long.contains(".-"), "{long}");
        assert!(is_snapshot_of(&long, &format!("{}.x", "a".repeat(241))));
        let name = snapshot_name("web", "d", "uid");
        assert!(is_snapshot_of(&name, "web"));
        for other in ["web-1", "web-config-1a2b3c4d5e", "web-1a2b3c4d5g", "web"] {
            assert!(!is_snapshot_of(other, "web"), "{other}");
        }
        for other in [
            snapshot_name("web", "e", "uid"),
            snapshot_name("web", "d", "other"),
            snapshot_name("wep", "d", "uid"),
        ] {
            assert_ne!(name.rsplit_once('-'), other.rsplit_once('-'));
        }
    }
}
