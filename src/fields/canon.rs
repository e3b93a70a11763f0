//! The canonical form of a pod template, for comparison and digests.
//!
//! Two templates are the same if they mean the same to the API server: maps
//! have no order, lists have one, except `spec.volumes`; null is unset; resource
//! quantities are equal by value, at the places where they stand. An empty list
//! or map is *not* unset, and unknown fields count like any other.
//!
//! Digests are stored; a change of the form is a new [`CANON_VERSION`]. The text
//! that is digested is written here, so that it cannot change with a library.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{quantity, schema};

/// The version of the canonical form; to be stored beside digests.
pub const CANON_VERSION: u32 = 1;

/// Characters of a short digest.
pub const SHORT: usize = 10;

/// The canonical form of a pod template (`metadata` and `spec` at its root).
pub fn canonical(template: &Value) -> Value {
    canonical_at(template, &mut Vec::new())
}

/// The canonical form of a value that stands at `names` in a pod template.
pub(super) fn canonical_at<'a>(value: &'a Value, names: &mut Vec<&'a str>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                names.push(name);
                out.insert(name.clone(), canonical_at(value, names));
                names.pop();
            }
            Value::Object(out)
        }
        Value::Array(items) => {
            let mut out: Vec<_> = items.iter().map(|item| canonical_at(item, names)).collect();
            if schema::is_unordered(names) {
                // Names are unique on a real server; the whole item settles the rest.
                out.sort_by_cached_key(|item| {
                    let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
                    (name.to_owned(), sorted_json(item))
                });
            }
            Value::Array(out)
        }
        Value::String(text) if schema::is_quantity(names) => {
            quantity::canonical(text).map_or_else(|| value.clone(), Value::String)
        }
        Value::Number(number) if schema::is_quantity(names) => {
            quantity::canonical(&number.to_string()).map_or_else(|| value.clone(), Value::String)
        }
        _ => value.clone(),
    }
}

/// Whether two pod templates mean the same.
pub fn equal(a: &Value, b: &Value) -> bool {
    canonical(a) == canonical(b)
}

/// The digest of a pod template's canonical form: SHA-256, 64 hex digits.
pub fn digest(template: &Value) -> String {
    digest_json(&canonical(template))
}

/// The digest of any JSON as it is, but for the order of maps: SHA-256, 64 hex digits.
pub fn digest_json(value: &Value) -> String {
    let hash = Sha256::digest(sorted_json(value));
    hash.iter()
        .fold(String::with_capacity(64), |mut out, byte| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// The first 10 characters of a digest, for names of objects.
pub fn short(digest: &str) -> &str {
    digest.get(..SHORT).unwrap_or(digest)
}

/// JSON without spaces and with sorted keys, whatever map type serde_json uses.
pub fn sorted_json(value: &Value) -> String {
    let mut out = String::new();
    write_sorted(value, &mut out);
    out
}

fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort();
            out.push('{');
            for (position, name) in names.into_iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_sorted(&Value::String(name.clone()), out);
                out.push(':');
                write_sorted(&fields[name], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_sorted(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(container: Value) -> Value {
        json!({"metadata": {"labels": {"app": "cart"}}, "spec": {"containers": [container]}})
    }

    #[test]
    fn quantities_are_equal_by_value_where_they_stand() {
        let a = with(
            json!({"name": "app", "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "0.1"}}}),
        );
        let b = with(
            json!({"name": "app", "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": "100m"}}}),
        );
        assert!(equal(&a, &b));
        assert_eq!(digest(&a), digest(&b));
        let c = with(
            json!({"name": "app", "resources": {"limits": {"cpu": "1001m", "memory": "1Gi"}, "requests": {"cpu": "0.1"}}}),
        );
        assert!(!equal(&a, &c));
        assert_ne!(digest(&a), digest(&c));
    }

    #[test]
    fn what_only_looks_like_a_quantity_is_text() {
        let env =
            |value: &str| with(json!({"name": "app", "env": [{"name": "CPU", "value": value}]}));
        assert!(!equal(&env("1000m"), &env("1")));
        let label = |value: &str| json!({"metadata": {"labels": {"cpu": value}}});
        assert!(!equal(&label("1000m"), &label("1")));
        let surge = |port: Value| {
            with(json!({"name": "app", "livenessProbe": {"httpGet": {"port": port}}}))
        };
        assert!(!equal(&surge(json!("80")), &surge(json!(80))));
    }

    #[test]
    fn volumes_and_pod_level_quantities_count_too() {
        let a = json!({"spec": {"overhead": {"cpu": "0.5"}, "resources": {"limits": {"cpu": "2"}}, "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "info", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}]}}]}});
        let b = json!({"spec": {"overhead": {"cpu": "500m"}, "resources": {"limits": {"cpu": "2000m"}}, "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "1024Mi"}},
            {"name": "info", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "0.001"}}]}}]}});
        assert!(equal(&a, &b));
    }

    #[test]
    fn a_bad_quantity_is_compared_literally() {
        let limit =
            |text: &str| with(json!({"name": "app", "resources": {"limits": {"cpu": text}}}));
        assert!(equal(&limit("lots"), &limit("lots")));
        assert!(!equal(&limit("lots"), &limit("plenty")));
    }

    #[test]
    fn volumes_have_no_order_and_other_lists_have_one() {
        let volumes = |names: [&str; 2]| json!({"spec": {"volumes": names.map(|name| json!({"name": name, "emptyDir": {}}))}});
        assert!(equal(&volumes(["a", "b"]), &volumes(["b", "a"])));
        let env = |names: [&str; 2]| {
            with(json!({"name": "app", "env": names.map(|name| json!({"name": name}))}))
        };
        assert!(!equal(&env(["a", "b"]), &env(["b", "a"])));
        let mounts = |names: [&str; 2]| {
            with(
                json!({"name": "app", "volumeMounts": names.map(|name| json!({"mountPath": name}))}),
            )
        };
        assert!(!equal(&mounts(["a", "b"]), &mounts(["b", "a"])));
    }

    #[test]
    fn null_is_unset_and_empty_is_not() {
        assert!(equal(
            &json!({"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}}),
            &json!({"metadata": {"labels": {"a": "b"}}})
        ));
        assert!(!equal(
            &with(json!({"name": "app", "args": []})),
            &with(json!({"name": "app"}))
        ));
        assert!(!equal(
            &with(json!({"name": "app", "securityContext": {}})),
            &with(json!({"name": "app"}))
        ));
    }

    #[test]
    fn unknown_fields_count() {
        assert!(!equal(
            &json!({"spec": {"fromTheFuture": {"a": 1}}}),
            &json!({"spec": {}})
        ));
        assert_eq!(
            canonical(&json!({"spec": {"fromTheFuture": {"a": [1, null]}}})),
            json!({"spec": {"fromTheFuture": {"a": [1, null]}}})
        );
    }

    #[test]
    fn the_stored_digest_does_not_drift() {
        // A stored digest must be met by later builds: if this fails, the form
        // has changed and CANON_VERSION has to rise with it.
        assert_eq!(CANON_VERSION, 1);
        let template = with(
            json!({"name": "app", "image": "cart:1", "resources": {"limits": {"cpu": "500m"}}}),
        );
        assert_eq!(
            sorted_json(&canonical(&template)),
            r#"{"metadata":{"labels":{"app":"cart"}},"spec":{"containers":[{"image":"cart:1","name":"app","resources":{"limits":{"cpu":"0.5"}}}]}}"#
        );
        assert_eq!(
            digest(&template),
            "260ae6689fc315f8a8c4bc70c3f679c2a4555671e25a8a27e32f62bc8081322d"
        );
        assert_eq!(short(&digest(&template)).len(), 10);
        let odd = json!({"b": [1, {"d": null, "c": "\"x\""}], "a": true});
        assert_eq!(
            sorted_json(&odd),
            r#"{"a":true,"b":[1,{"c":"\"x\"","d":null}]}"#
        );
        assert_eq!(
            digest_json(&json!({})),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }
}
