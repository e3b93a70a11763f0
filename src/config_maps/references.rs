//! Where a pod template names ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Lists of containers of a pod template. Sidecars are init containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The references to ConfigMaps in a pod template, partial or whole: the place
/// as a JSON pointer, and the name that stands there.
#[must_use]
pub fn references(template: &Value) -> Vec<(String, String)> {
    let mut places = Vec::new();
    for (volume, at) in items(template, "/spec/volumes") {
        places.push(format!("{volume}/configMap/name"));
        for (source, _) in items(at, "/projected/sources") {
            places.push(format!("{volume}{source}/configMap/name"));
        }
    }
    for list in CONTAINERS {
        for (container, at) in items(template, &format!("/spec/{list}")) {
            for (from, _) in items(at, "/envFrom") {
                places.push(format!("{container}{from}/configMapRef/name"));
            }
            for (variable, _) in items(at, "/env") {
                places.push(format!(
                    "{container}{variable}/valueFrom/configMapKeyRef/name"
                ));
            }
        }
    }
    let named = |place: String| {
        let name = template.pointer(&place)?.as_str()?.to_owned();
        Some((place, name))
    };
    places.into_iter().filter_map(named).collect()
}

/// The ConfigMaps that a pod template names.
#[must_use]
pub fn names(template: &Value) -> BTreeSet<String> {
    let named = references(template).into_iter();
    named.map(|(_, name)| name).collect()
}

/// The template with other names in its references; those that `to` does not
/// know stay.
#[must_use]
pub fn rewrite(template: &Value, to: &BTreeMap<String, String>) -> Value {
    let mut rewritten = template.clone();
    for (place, name) in references(template) {
        if let (Some(new), Some(at)) = (to.get(&name), rewritten.pointer_mut(&place)) {
            *at = Value::String(new.clone());
        }
    }
    rewritten
}

/// The items of a list with their JSON pointers.
fn items<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let items = value.pointer(list).and_then(Value::as_array);
    let items = items.map(Vec::as_slice).unwrap_or_default();
    let list = list.to_owned();
    items
        .iter()
        .enumerate()
        .map(move |(index, item)| (format!("{list}/{index}"), item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn everywhere(name: &str) -> Value {
        json!({"metadata": {"labels": {"configMap": name}}, "spec": {
            "containers": [
                {"name": "app", "envFrom": [{"prefix": "A", "configMapRef": {"name": name, "optional": true}}, {"secretRef": {"name": name}}],
                 "env": [{"name": "CONFIG", "value": name}, {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": name, "key": name}}}]},
                {"name": "plain"}],
            "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "envFrom": [{"configMapRef": {"name": name}}]}],
            "volumes": [
                {"name": "v", "configMap": {"name": name, "items": [{"key": name, "path": "p"}]}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": name}}, {"configMap": {"name": name}}]}},
                {"name": "s", "secret": {"secretName": name}}],
        }})
    }

    #[test]
    fn every_kind_of_reference_is_found_and_nothing_else() {
        let found = references(&everywhere("web"));
        let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "/spec/volumes/0/configMap/name",
                "/spec/volumes/1/projected/sources/1/configMap/name",
                "/spec/containers/0/envFrom/0/configMapRef/name",
                "/spec/containers/0/env/1/valueFrom/configMapKeyRef/name",
                "/spec/initContainers/0/envFrom/0/configMapRef/name",
            ]
        );
        assert!(found.iter().all(|(_, name)| name == "web"));
    }

    #[test]
    fn only_references_are_rewritten() {
        let to = BTreeMap::from([("web".to_owned(), "web-1".to_owned())]);
        let rewritten = rewrite(&everywhere("web"), &to);
        assert_eq!(names(&rewritten), BTreeSet::from(["web-1".to_owned()]));
        assert_eq!(rewritten["spec"]["containers"][0]["env"][0]["value"], "web");
        assert_eq!(
            rewritten["spec"]["volumes"][0]["configMap"]["items"][0]["key"],
            "web"
        );
        assert_eq!(rewrite(&everywhere("other"), &to), everywhere("other"));
    }

    #[test]
    fn a_template_of_any_form_names_nothing_by_accident() {
        for odd in [
            json!(null),
            json!({"spec": {"volumes": "none", "containers": [7, {"env": {}}]}}),
            json!({"spec": {"volumes": [{"configMap": {"name": 5}}, {"configMap": {}}]}}),
        ] {
            assert_eq!(references(&odd), []);
            assert_eq!(rewrite(&odd, &BTreeMap::new()), odd);
        }
    }

    proptest! {
        #[test]
        fn what_is_rewritten_can_be_restored(name in "[a-z]{1,5}", other in "[a-z]{6}") {
            let there = BTreeMap::from([(name.clone(), other.clone())]);
            let back = BTreeMap::from([(other, name.clone())]);
            let template = everywhere(&name);
            let rewritten = rewrite(&template, &there);
            prop_assert!(!names(&rewritten).contains(&name));
            prop_assert_eq!(rewrite(&rewritten, &back), template);
        }
    }
}
