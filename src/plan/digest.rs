//! Digests of JSON, and what of a spec is release content.
//!
//! Works on the stored form, so that the content of a plan that is not valid
//! has a digest as well. A digest must never change with the version of a
//! library: the canonical form is written here.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::WorkloadKind;

/// SHA-256 in hex over the canonical form: keys sorted, no white space. The
/// order of keys does not matter, that of list elements does.
#[must_use]
pub fn digest_json(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Digest of a spec's release content: the name, workload, partial template and
/// tracked ConfigMaps of each component. The order of the components does not matter, and a
/// component without a name is the same as one that has the name of its
/// workload.
#[must_use]
pub fn content_digest(spec: &Value) -> String {
    let components = spec.get("components").and_then(Value::as_array);
    let mut content: Vec<(String, Value)> = components
        .into_iter()
        .flatten()
        .map(|component| {
            let content = component_content(component);
            let mut key = String::new();
            canonical(&content, &mut key);
            (key, content)
        })
        .collect();
    content.sort_by(|a, b| a.0.cmp(&b.0));
    digest_json(&content.into_iter().map(|(_, content)| content).collect())
}

fn component_content(component: &Value) -> Value {
    let part = |value: &Value, key| value.get(key).filter(|v| !v.is_null()).cloned();
    let Some(workload) = part(component, "workload") else {
        return component.clone();
    };
    let kind = part(&workload, "kind").unwrap_or_else(|| json!(WorkloadKind::default()));
    let target = part(&workload, "name");
    let name = part(component, "name").or_else(|| target.clone());
    let mut content = json!({
        "name": name,
        "workload": {"kind": kind, "name": target},
        "template": part(component, "template"),
    });
    // The digest of a plan that tracks none is what it always was.
    if let Some(tracked) = part(component, "configMaps").filter(|list| *list != json!([])) {
        let mut tracked = tracked;
        if let Some(names) = tracked.as_array_mut() {
            names.sort_by_cached_key(ToString::to_string);
        }
        content["configMaps"] = tracked;
    }
    content
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            // Sorted here and not by the map, whose order depends on a feature
            // that any dependency can turn on.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                canonical(&Value::String(key.clone()), out);
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_do_not_change_between_versions() {
        let value = json!({"b": [1, {"d": null, "c": "\"x\""}], "a": true});
        let mut text = String::new();
        canonical(&value, &mut text);
        assert_eq!(text, r#"{"a":true,"b":[1,{"c":"\"x\"","d":null}]}"#);
        assert_eq!(
            digest_json(&json!({})),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn a_spec_that_is_not_valid_has_a_content_digest() {
        let digests: std::collections::BTreeSet<_> = [
            json!(null),
            json!({"components": [{}]}),
            json!({"components": [{"name": "a"}]}),
            json!({"components": [{"workload": {"name": "a"}}, 5]}),
        ]
        .iter()
        .map(content_digest)
        .collect();
        assert_eq!(digests.len(), 4);
        assert_eq!(
            content_digest(&json!({"components": "none"})),
            content_digest(&json!({}))
        );
    }
}
