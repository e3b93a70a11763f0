//! What of a spec is release content, and its digest.
//!
//! Works on the stored form, so that the content of a plan that is not valid
//! has a digest as well. How JSON is digested is decided by
//! [`crate::fields::canon`].

use serde_json::{Value, json};

use crate::{
    api::WorkloadKind,
    fields::canon::{digest_json, sorted_json},
};

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
            (sorted_json(&content), content)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_spec_does_not_change_between_versions() {
        let spec = json!({"components": [
            {"workload": {"name": "web"}},
            {"name": "c", "workload": {"kind": "Deployment", "name": "cart"},
             "template": {"spec": {"containers": [{"name": "app", "image": "cart:1"}]}}},
        ]});
        assert_eq!(
            content_digest(&spec),
            "a968db3e19ce7eff938d98ce1fb70cda3028094caa107ed4a8a53db3b56ceb9a"
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
