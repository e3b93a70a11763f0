//! Reads which fields a field manager owns from `metadata.managedFields`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};

use super::{FieldSet, FieldsError};

/// The fields that `manager` owns by server-side apply of the main resource.
///
/// The union over API versions; entries of a subresource are not counted.
///
/// # Errors
/// [`FieldsError::Entry`] if an entry of this manager cannot be read.
pub fn owned_by(entries: &[ManagedFieldsEntry], manager: &str) -> Result<FieldSet, FieldsError> {
    union(entries, manager, |entry| {
        entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    })
}

/// All fields that `manager` owns, by whatever operation and subresource.
///
/// # Errors
/// [`FieldsError::Entry`] if an entry of this manager cannot be read.
pub fn managed_by(entries: &[ManagedFieldsEntry], manager: &str) -> Result<FieldSet, FieldsError> {
    union(entries, manager, |_| true)
}

/// `managedFields` in which `manager` owns exactly `fields`, by apply; none if
/// that is so already. Patched into an object they change no value.
///
/// # Errors
/// [`FieldsError::Entry`] if an entry of this manager cannot be read.
pub fn owning_exactly(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    api_version: &str,
    fields: &FieldSet,
) -> Result<Option<Vec<ManagedFieldsEntry>>, FieldsError> {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let known: Vec<_> = entries.iter().filter(ours).collect();
    let applied = |entry: &&ManagedFieldsEntry| entry.operation.as_deref() == Some("Apply");
    if known.iter().all(applied) && known.len() <= 1 && owned_by(entries, manager)? == *fields {
        return Ok(None);
    }
    let mut wanted: Vec<_> = entries
        .iter()
        .filter(|entry| !ours(entry))
        .cloned()
        .collect();
    if !fields.is_empty() {
        wanted.push(ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some("Apply".to_owned()),
            api_version: Some(api_version.to_owned()),
            time: known.iter().filter_map(|entry| entry.time.clone()).max(),
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(fields.to_value())),
            subresource: None,
        });
    }
    Ok(Some(wanted))
}

fn union(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    wanted: impl Fn(&ManagedFieldsEntry) -> bool,
) -> Result<FieldSet, FieldsError> {
    let mut all = FieldSet::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.manager.as_deref() != Some(manager) || !wanted(entry) {
            continue;
        }
        if let Some(fields) = &entry.fields_v1 {
            let set = FieldSet::parse(&fields.0).map_err(|source| FieldsError::Entry {
                index,
                manager: manager.to_owned(),
                operation: entry.operation.clone().unwrap_or_default(),
                source: Box::new(source),
            })?;
            all = all.union(&set);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entries() -> Vec<ManagedFieldsEntry> {
        serde_json::from_value(json!([
            {"manager": "belay", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}}},
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "belay", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:tier": {}}}}},
            {"manager": "belay", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:paused": {}}}},
            {"manager": "belay", "operation": "Apply", "subresource": "scale", "apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "belay", "operation": "Apply", "apiVersion": "apps/v1"},
        ]))
        .unwrap()
    }

    #[test]
    fn only_apply_entries_of_the_main_resource_count_as_applied() {
        assert_eq!(
            owned_by(&entries(), "belay").unwrap().to_value(),
            json!({
                "f:metadata": {"f:labels": {"f:tier": {}}},
                "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:image": {}, "f:name": {}}}}}},
            })
        );
        assert!(owned_by(&entries(), "somebody").unwrap().is_empty());
    }

    #[test]
    fn everything_managed_includes_updates_and_subresources() {
        let all = managed_by(&entries(), "belay").unwrap();
        assert_eq!(
            all.descend(&["spec"]).nest(&["spec"]).to_value()["f:spec"]["f:paused"],
            json!({})
        );
        assert_eq!(all.to_value()["f:spec"]["f:replicas"], json!({}));
    }

    #[test]
    fn an_unreadable_entry_is_named_and_those_of_others_do_not_matter() {
        let mut entries = entries();
        entries[1].fields_v1.as_mut().unwrap().0 = json!({"nonsense": {}});
        assert!(owned_by(&entries, "belay").is_ok());
        entries[2].fields_v1.as_mut().unwrap().0 = json!({"nonsense": {}});
        let error = owned_by(&entries, "belay").unwrap_err().to_string();
        assert!(
            error.starts_with("managedFields entry 2 (manager \"belay\", Apply)"),
            "{error}"
        );
    }

    #[test]
    fn ownership_is_set_to_exactly_the_fields_and_others_are_left_alone() {
        let set = |value| FieldSet::parse(&value).unwrap();
        let fields = set(json!({"f:spec": {"f:template": {"f:spec": {"f:hostname": {}}}}}));
        let wanted = owning_exactly(&entries(), "belay", "apps/v1", &fields)
            .unwrap()
            .unwrap();
        assert_eq!(owned_by(&wanted, "belay").unwrap(), fields);
        let of = |entries: &[ManagedFieldsEntry], subresource: bool| {
            entries
                .iter()
                .filter(|e| {
                    e.manager.as_deref() != Some("belay") || e.subresource.is_some() == subresource
                })
                .filter(|e| e.manager.as_deref() != Some("belay") || subresource)
                .count()
        };
        assert_eq!(
            of(&wanted, true),
            of(&entries(), true),
            "kubectl's and the scale entry stay"
        );
        assert_eq!(wanted.len(), 3);
        assert_eq!(
            owning_exactly(&wanted[1..], "other", "apps/v1", &FieldSet::new()),
            Ok(None)
        );
        let scaled_only = owning_exactly(&wanted, "belay", "apps/v1", &FieldSet::new())
            .unwrap()
            .unwrap();
        assert_eq!(scaled_only.len(), 2);
        assert_eq!(
            owning_exactly(&wanted, "belay", "apps/v1", &fields),
            Ok(None),
            "once is enough"
        );
    }
}
