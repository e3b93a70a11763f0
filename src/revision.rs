//! Content frozen: what a rollback returns to.
//!
//! A revision holds the full pod template of every component, the fields that
//! the plan owned under it and what stood there before. It is kept as an
//! `apps/v1` ControllerRevision; this module decides its name and digest and
//! knows nothing of the API server.

use k8s_openapi::{
    api::apps::v1::ControllerRevision,
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use kube::core::Resource as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    api::{DIGEST, PLAN_NAME, PLAN_UID, WorkloadRef},
    config_maps::{Tracked, names},
    fields::{FieldSet, Found, canon, complete, project},
    plan::Target,
};

/// Total size of the templates of one revision, in bytes of JSON. The API
/// server refuses objects of more than 1.5 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// A frozen content with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Name of the ControllerRevision.
    pub name: String,
    /// What is frozen.
    pub data: RevisionData,
}

/// What a revision freezes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionData {
    /// Version of the canonical form that the digests were made with.
    pub canon: u32,
    /// Digest of the spec's release content that is part of it.
    pub spec: String,
    /// The components.
    pub components: Vec<Frozen>,
}

/// One component, frozen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frozen {
    /// Name of the component.
    pub name: String,
    /// Its workload.
    pub workload: WorkloadRef,
    /// Digest of the partial template; none for a followed component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_digest: Option<String>,
    /// The full pod template.
    pub template: Value,
    /// Fields of the template that the plan owned.
    #[serde(default)]
    pub fields: FieldSet,
    /// Fields that left the partial template and go back to what was found in
    /// them; written once and then given up.
    #[serde(default)]
    pub carried: FieldSet,
    /// What stood in these fields when they were first taken.
    #[serde(default)]
    pub found: Found,
    /// The part of the partial template that the full one cannot say: fields
    /// that are to be empty. Absent also in revisions of older versions, whose
    /// restores leave such a field as it is or take it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied: Option<Value>,
    /// The tracked ConfigMaps with the contents that belong to the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<Tracked>,
    /// What ConfigMaps held that the template names, or named, without the plan
    /// having put them there: the contents of what was live before a plan
    /// tracked them. They come back by their snapshots, and nobody writes them
    /// into the ConfigMaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<Tracked>,
}

/// Why a stored revision cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// It is not in the form that Belay writes.
    #[error("controllerrevision {name} cannot be read: {source}")]
    Unreadable {
        /// Its name.
        name: String,
        /// What the decoder says.
        source: serde_json::Error,
    },
    /// Somebody changed it.
    #[error(
        "controllerrevision {name} is damaged: its contents do not have the digest in its annotation {DIGEST}"
    )]
    Damaged {
        /// Its name.
        name: String,
    },
}

impl RevisionData {
    /// Digest over the plan's uid and everything that is frozen.
    #[must_use]
    pub fn digest(&self, plan_uid: &str) -> String {
        let components: Vec<Value> = self
            .components
            .iter()
            .map(|c| {
                let mut frozen = json!({
                    "name": c.name,
                    "workload": c.workload,
                    "partial": c.partial_digest,
                    "template": canon::digest(&c.template),
                    "fields": c.fields,
                    "carried": c.carried,
                    "found": c.found,
                });
                // Only where there are any: names of revisions must not change.
                if let Some(emptied) = &c.emptied {
                    frozen["emptied"] = emptied.clone();
                }
                if !c.config_maps.is_empty() {
                    frozen["configMaps"] = json!(c.config_maps);
                }
                if !c.named.is_empty() {
                    frozen["named"] = json!(c.named);
                }
                frozen
            })
            .collect();
        canon::digest_json(&json!({"plan": plan_uid, "spec": self.spec, "components": components}))
    }

    /// The revision that this data makes for a plan.
    #[must_use]
    pub fn named(self, plan: &str, plan_uid: &str) -> Revision {
        let digest = self.digest(plan_uid);
        let stem: String = plan.chars().take(45).collect();
        let stem = stem.trim_end_matches(['-', '.']);
        Revision {
            name: format!("{stem}-{}", canon::short(&digest)),
            data: self,
        }
    }

    /// What is frozen of a workload.
    #[must_use]
    pub fn of(&self, target: &Target) -> Option<&Frozen> {
        self.components
            .iter()
            .find(|c| Target::from_ref(&c.workload).as_ref() == Some(target))
    }

    /// Bytes of JSON that the templates take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.components
            .iter()
            .map(|c| c.template.to_string().len())
            .sum()
    }
}

/// Digest of a revision as it is stored, bound to its plan. It does not depend
/// on the canonical form, which a later version may refine.
fn seal(data: &Value, plan_uid: &str) -> String {
    canon::digest_json(&json!({"plan": plan_uid, "data": data}))
}

impl Frozen {
    /// All fields that the plan writes when this is released. A followed
    /// template is written as a whole, whatever is owned of it.
    #[must_use]
    pub fn touched(&self) -> FieldSet {
        if self.partial_digest.is_none() {
            return FieldSet::default();
        }
        self.fields.union(&self.carried)
    }

    /// All contents that are kept for this.
    pub fn keeps(&self) -> impl Iterator<Item = &Tracked> {
        self.config_maps.iter().chain(&self.named)
    }

    /// The contents without which its pods cannot start, or must not: those that
    /// belong to it, and those whose snapshots the template names.
    #[must_use]
    pub fn reads(&self) -> Vec<Tracked> {
        let names = names(&self.template);
        let named = self.named.iter().filter(|t| names.contains(&t.snapshot));
        self.config_maps.iter().chain(named).cloned().collect()
    }

    /// The body of an apply that makes these fields what they are here, those
    /// that are to be empty included.
    #[must_use]
    pub fn body(&self, fields: &FieldSet) -> Value {
        let mut body = project(&self.template, fields);
        if let Some(emptied) = &self.emptied {
            let own = self.fields.intersection(fields);
            // What cannot be put into the body was not merged with it either.
            let _ = complete(&mut body, emptied, &own);
        }
        body
    }
}

impl Revision {
    /// The object to store. It carries the plan's uid as a label and no owner
    /// reference: foreground deletion of the plan would collect it while a
    /// rollback still needs it.
    #[must_use]
    pub fn to_object(&self, plan: &str, plan_uid: &str, number: i64) -> ControllerRevision {
        let label: String = plan.chars().take(63).collect();
        let label = label.trim_end_matches(['-', '.']).to_owned();
        let data = serde_json::to_value(&self.data).unwrap_or_default();
        ControllerRevision {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(
                    [
                        (PLAN_UID.to_owned(), plan_uid.to_owned()),
                        (PLAN_NAME.to_owned(), label),
                    ]
                    .into(),
                ),
                annotations: Some([(DIGEST.to_owned(), seal(&data, plan_uid))].into()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data)),
            revision: number,
        }
    }

    /// Reads a stored revision and holds it against its digest.
    ///
    /// # Errors
    /// If it cannot be read, belongs to another plan, or was changed.
    pub fn from_object(object: &ControllerRevision, plan_uid: &str) -> Result<Self, RevisionError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let raw = object.data.as_ref().map_or(&Value::Null, |raw| &raw.0);
        let data: RevisionData =
            serde_json::from_value(raw.clone()).map_err(|source| RevisionError::Unreadable {
                name: name.clone(),
                source,
            })?;
        let stored = object
            .meta()
            .annotations
            .as_ref()
            .and_then(|a| a.get(DIGEST));
        if stored != Some(&seal(raw, plan_uid)) {
            return Err(RevisionError::Damaged { name });
        }
        Ok(Self { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::WorkloadKind;

    fn revision() -> Revision {
        let data = RevisionData {
            canon: canon::CANON_VERSION,
            spec: "s".to_owned(),
            components: vec![Frozen {
                name: "cart".to_owned(),
                workload: WorkloadRef {
                    kind: Some(WorkloadKind::Deployment),
                    name: Some("cart".to_owned()),
                },
                partial_digest: Some("p".to_owned()),
                template: json!({"spec": {"containers": [{"name": "app", "fieldOfTheFuture": 1}]}}),
                fields: FieldSet::default(),
                carried: FieldSet::default(),
                found: Found::default(),
                emptied: None,
                config_maps: Vec::new(),
                named: Vec::new(),
            }],
        };
        data.named("shop", "uid")
    }

    #[test]
    fn what_is_stored_is_read_back_with_fields_that_nobody_here_knows() {
        let object = revision().to_object("shop", "uid", 3);
        assert!(object.metadata.owner_references.is_none());
        assert_eq!(Revision::from_object(&object, "uid").unwrap(), revision());
    }

    #[test]
    fn a_revision_that_was_changed_or_is_another_plans_is_not_used() {
        let object = revision().to_object("shop", "uid", 3);
        assert!(Revision::from_object(&object, "other").is_err());
        let mut changed = object.clone();
        changed.data.as_mut().unwrap().0["components"][0]["template"]["spec"] = json!({});
        assert!(matches!(
            Revision::from_object(&changed, "uid"),
            Err(RevisionError::Damaged { name }) if name == revision().name
        ));
    }

    #[test]
    fn one_made_with_another_canonical_form_is_still_whole() {
        let mut old = revision();
        old.data.canon = 0;
        let object = old.to_object("shop", "uid", 3);
        assert_eq!(Revision::from_object(&object, "uid").unwrap().data.canon, 0);
    }

    #[test]
    fn what_is_to_be_empty_is_kept_and_its_absence_tolerated() {
        let mut data = revision().data;
        let named = |data: &RevisionData| data.clone().named("shop", "uid").name;
        let before = named(&data);
        let empty = json!({"spec": {"containers": [{"name": "app", "args": []}]}});
        data.components[0].fields = FieldSet::parse(&json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"app\"}": {".": {}, "f:name": {}, "f:args": {}}}}}))
        .unwrap();
        let without = named(&data);
        data.components[0].emptied = Some(empty.clone());
        assert!(named(&data) != without && without != before);
        let object = data
            .clone()
            .named("shop", "uid")
            .to_object("shop", "uid", 1);
        let read = Revision::from_object(&object, "uid").unwrap().data;
        assert_eq!(read, data);
        let frozen = &read.components[0];
        assert_eq!(frozen.body(&frozen.fields), empty);
        assert_eq!(frozen.body(&FieldSet::default()), json!({}));
        // What an older version stored says nothing of it.
        let old = revision().to_object("shop", "uid", 1);
        assert!(!old.data.as_ref().unwrap().0.to_string().contains("emptied"));
        let read = Revision::from_object(&old, "uid").unwrap().data;
        assert_eq!(read.components[0].emptied, None);
        assert_eq!(
            read.digest("uid"),
            "109a6c712ee4cf0438b94bbcadbf9029da5f6f94e7e6036c831d6687e3bdd87b"
        );
    }

    #[test]
    fn names_fit_also_for_the_longest_plan() {
        let name = revision().data.named(&"p.".repeat(126), "uid").name;
        assert!(name.len() <= 63 && !name.contains(".-"), "{name}");
    }
}
