//! What must be known about the shape of a pod template, and no more.
//!
//! `managedFields` says which fields are owned but not of which kind they are.
//! Three questions need the schema: is an owned field without children an
//! atomic value or an *empty* map or list of a mergeable kind; by which keys do
//! lists align; where do resource quantities stand. The tables follow the
//! structured merge schema of Kubernetes 1.37. A name missing here is treated
//! as atomic, which at worst owns more of a value, never loses any.

use serde_json::Value;

/// Maps and structs of a pod template whose entries are owned one by one.
const GRANULAR_MAPS: &[&str] = &[
    "affinity",
    "annotations",
    "appArmorProfile",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "capabilities",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "dataSourceRef",
    "dnsConfig",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "exec",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "grpc",
    "hostPath",
    "httpGet",
    "image",
    "iscsi",
    "labels",
    "lifecycle",
    "limits",
    "livenessProbe",
    "metadata",
    "nfs",
    "nodeAffinity",
    "options",
    "os",
    "overhead",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "podAffinity",
    "podAntiAffinity",
    "portworxVolume",
    "postStart",
    "preStop",
    "projected",
    "quobyte",
    "rbd",
    "readinessProbe",
    "requests",
    "resources",
    "scaleIO",
    "schedulingGroup",
    "seLinuxOptions",
    "seccompProfile",
    "secret",
    "securityContext",
    "sleep",
    "spec",
    "startupProbe",
    "storageos",
    "tcpSocket",
    "template",
    "valueFrom",
    "volumeAttributes",
    "volumeClaimTemplate",
    "vsphereVolume",
    "windowsOptions",
];

/// Those of [`GRANULAR_MAPS`] with free keys. The API server does not store them
/// while they are empty, whereas it does so with an empty struct.
const MAPS: &[&str] = &[
    "annotations",
    "labels",
    "limits",
    "overhead",
    "requests",
    "volumeAttributes",
];

/// Lists of a pod template whose items are owned one by one, and their keys.
const LIST_MAPS: &[(&str, &[&str])] = &[
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("evictionResponders", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("ports", &["containerPort", "protocol"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Lists of a pod template that are sets: each item is owned by its value.
const SETS: &[&str] = &["bindMountOptions", "finalizers"];

/// The keys by which the list field `name` aligns, or `None` for an atomic list.
pub(super) fn list_keys(name: &str) -> Option<&'static [&'static str]> {
    LIST_MAPS
        .iter()
        .find(|(list, _)| *list == name)
        .map(|(_, keys)| *keys)
}

/// What an owner of `value` owns if its set has the field `name` without children.
///
/// The whole value if the field is a scalar or atomic. A mergeable map or list
/// without owned children was applied *empty*: what others put into it is theirs.
pub(super) fn leaf_value(name: Option<&str>, value: &Value) -> Value {
    match (name, value) {
        (Some(name), Value::Object(_)) if GRANULAR_MAPS.contains(&name) => {
            Value::Object(serde_json::Map::new())
        }
        (Some(name), Value::Array(_)) if list_keys(name).is_some() || SETS.contains(&name) => {
            Value::Array(Vec::new())
        }
        _ => value.clone(),
    }
}

/// Whether the field `name` is a map with free keys that are owned one by one.
pub(super) fn is_map(name: Option<&str>) -> bool {
    name.is_some_and(|name| MAPS.contains(&name))
}

/// The value of the key field `key` in a list item, with the schema's default.
///
/// A port without `protocol` is keyed as TCP by the API server.
pub(super) fn key_value(item: &Value, key: &str) -> Option<Value> {
    match item.get(key) {
        Some(value) if !value.is_null() => Some(value.clone()),
        _ if key == "protocol" && item.is_object() => Some(Value::String("TCP".into())),
        _ => None,
    }
}

/// Whether a resource quantity stands at this place of a pod template.
///
/// `names` are the field names from the template's root, list items left out.
pub(super) fn is_quantity(names: &[&str]) -> bool {
    let ["spec", rest @ ..] = names else {
        return false;
    };
    matches!(
        rest,
        [
            "containers" | "initContainers" | "ephemeralContainers",
            "resources",
            "limits" | "requests",
            _,
        ] | ["resources", "limits" | "requests", _]
            | ["overhead", _]
            | ["volumes", "emptyDir", "sizeLimit"]
            | [
                "volumes",
                "ephemeral",
                "volumeClaimTemplate",
                "spec",
                "resources",
                "limits" | "requests",
                _,
            ]
            | [.., "resourceFieldRef", "divisor"]
    )
}

/// Whether the order of the list at this place of a pod template means nothing.
pub(super) fn is_unordered(names: &[&str]) -> bool {
    names == ["spec", "volumes"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_sorted_and_disjoint() {
        assert!(GRANULAR_MAPS.is_sorted());
        assert!(LIST_MAPS.is_sorted());
        assert!(MAPS.iter().all(|map| GRANULAR_MAPS.contains(map)));
        for (list, keys) in LIST_MAPS {
            assert!(!GRANULAR_MAPS.contains(list), "{list}");
            assert!(!SETS.contains(list), "{list}");
            assert!(!keys.is_empty(), "{list}");
        }
    }

    #[test]
    fn quantities_stand_in_resources_and_volumes_only() {
        for yes in [
            vec!["spec", "containers", "resources", "limits", "cpu"],
            vec!["spec", "initContainers", "resources", "requests", "memory"],
            vec!["spec", "overhead", "cpu"],
            vec!["spec", "volumes", "emptyDir", "sizeLimit"],
            vec![
                "spec",
                "containers",
                "env",
                "valueFrom",
                "resourceFieldRef",
                "divisor",
            ],
            vec![
                "spec",
                "volumes",
                "projected",
                "sources",
                "downwardAPI",
                "items",
                "resourceFieldRef",
                "divisor",
            ],
        ] {
            assert!(is_quantity(&yes), "{yes:?}");
        }
        for no in [
            vec!["spec", "containers", "env", "value"],
            vec!["spec", "containers", "resources", "claims", "name"],
            vec!["metadata", "labels", "cpu"],
            vec!["spec", "containers", "ports", "containerPort"],
        ] {
            assert!(!is_quantity(&no), "{no:?}");
        }
    }

    #[test]
    fn a_port_without_protocol_is_keyed_as_tcp() {
        let port = json!({"containerPort": 80});
        assert_eq!(key_value(&port, "protocol"), Some(json!("TCP")));
        assert_eq!(key_value(&port, "containerPort"), Some(json!(80)));
        assert_eq!(key_value(&port, "name"), None);
    }
}
