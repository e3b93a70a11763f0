//! Cuts from a value the part that a field set owns.
//!
//! The result is a body for server-side apply that comes to own what of the set
//! exists in the value. It may own more in two cases: an owned list item
//! carries its key fields, which an apply then owns too; and a field without
//! owned children is taken whole, unless it is known to be mergeable.

use serde_json::{Map, Value};

use super::{FieldSet, FieldsError, PathElement, get, graft, schema};

/// What of `value` belongs to `set`; fields that are absent or null are left out.
///
/// List items keep the order they have in `value` and their key fields. Nothing
/// owned gives an empty object.
pub fn project(value: &Value, set: &FieldSet) -> Value {
    if set.is_empty() {
        return Value::Object(Map::new());
    }
    keep(value, set, None).unwrap_or_else(|| Value::Object(Map::new()))
}

/// Adds to a projection the owned fields that only `partial` has.
///
/// The API server stores nothing for a field applied as an empty list, an empty
/// map or null, so a projection of the stored template cannot say that the field
/// is to be empty; the partial template it was merged from can, and so can what
/// [`emptied`] kept of that. All three start at the same object.
///
/// # Errors
/// [`FieldsError::Obstructed`] if `body` and `partial` differ in kind above such a field.
pub fn complete(body: &mut Value, partial: &Value, set: &FieldSet) -> Result<(), FieldsError> {
    for path in set.leaves() {
        if get(body, &path).is_some() {
            continue;
        }
        if let Some(value) = get(partial, &path) {
            graft(body, &path, value.clone())?;
        }
    }
    Ok(())
}

/// What of `partial` a projection of the template merged from it cannot say:
/// the owned fields that were applied empty. None if there are none.
///
/// All three start at the same object.
///
/// # Errors
/// Never for a `partial` that the API server merged: [`FieldsError::Obstructed`]
/// needs one field to be of two kinds.
pub fn emptied(
    partial: &Value,
    merged: &Value,
    set: &FieldSet,
) -> Result<Option<Value>, FieldsError> {
    let said = project(merged, set);
    let mut rest = Value::Object(Map::new());
    for path in set.leaves() {
        if get(&said, &path).is_some() {
            continue;
        }
        if let Some(value) = get(partial, &path) {
            graft(&mut rest, &path, value.clone())?;
        }
    }
    Ok((rest != Value::Object(Map::new())).then_some(rest))
}

fn keep(value: &Value, set: &FieldSet, name: Option<&str>) -> Option<Value> {
    if value.is_null() {
        return None;
    }
    if !set.has_children() {
        // Of a map whose entries all belong to others nothing is owned that is
        // stored: it goes with the last of them.
        return (!schema::is_map(name)).then(|| schema::leaf_value(name, value));
    }
    let (kept, is_empty) = match value {
        Value::Object(fields) => {
            let kept = keep_fields(fields, set);
            let is_empty = kept.is_empty();
            (Value::Object(kept), is_empty)
        }
        Value::Array(items) => {
            let kept = keep_items(items, set, name);
            let is_empty = kept.is_empty();
            (Value::Array(kept), is_empty)
        }
        // The set expects structure where there is a scalar: only the field
        // itself can be owned.
        _ => (value.clone(), true),
    };
    (!is_empty || set.is_member()).then_some(kept)
}

fn keep_fields(fields: &Map<String, Value>, set: &FieldSet) -> Map<String, Value> {
    fields
        .iter()
        .filter_map(|(name, value)| {
            let child = set.child(&PathElement::field(name.as_str()))?;
            Some((name.clone(), keep(value, child, Some(name))?))
        })
        .collect()
}

fn keep_items(items: &[Value], set: &FieldSet, name: Option<&str>) -> Vec<Value> {
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| {
            let (element, child) = set
                .children()
                .find(|(element, _)| element.selects(index, item))?;
            let kept = keep(item, child, None)?;
            Some(with_keys(kept, item, element, name))
        })
        .collect()
}

/// An item with the key fields it has in `original`, without which it is no item.
fn with_keys(
    mut kept: Value,
    original: &Value,
    element: &PathElement,
    name: Option<&str>,
) -> Value {
    let (Value::Object(fields), PathElement::Key(keys)) = (&mut kept, element) else {
        return kept;
    };
    let schema_keys = name.and_then(schema::list_keys).unwrap_or_default();
    for key in keys
        .keys()
        .map(String::as_str)
        .chain(schema_keys.iter().copied())
    {
        // A key that the API server fills in is not applied, lest it become owned.
        let default = schema::key_value(&Value::Object(Map::new()), key);
        let value = original
            .get(key)
            .filter(|value| !value.is_null() && Some(*value) != default.as_ref());
        if let Some(value) = value {
            fields.entry(key).or_insert_with(|| value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "cart", "tier": "web"}, "annotations": {"a/b": "c"}},
            "spec": {
                "containers": [
                    {"name": "proxy", "image": "envoy:1"},
                    {"name": "app", "image": "cart:2", "args": ["-v", "2"],
                     "env": [{"name": "B", "value": "b"}, {"name": "A", "value": "a"}],
                     "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}, {"containerPort": 80, "name": "dns", "protocol": "UDP"}],
                     "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                     "securityContext": {"runAsUser": 5}},
                ],
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "nodeSelector": {"disk": "ssd", "zone": "a"},
                "imagePullSecrets": [{"name": "pull"}],
                "restartPolicy": "Always",
            },
        })
    }

    fn projected(set: Value) -> Value {
        project(&template(), &FieldSet::parse(&set).unwrap())
    }

    fn app(set: Value) -> Value {
        projected(json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": set}}}))["spec"]["containers"].take()
    }

    #[test]
    fn only_owned_fields_of_owned_items_remain() {
        assert_eq!(
            projected(json!({
                "f:metadata": {"f:labels": {"f:tier": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:name": {}, "f:image": {}}}},
            })),
            json!({
                "metadata": {"labels": {"tier": "web"}},
                "spec": {"containers": [{"name": "app", "image": "cart:2"}]},
            })
        );
    }

    #[test]
    fn items_keep_their_keys_even_if_only_membership_is_owned() {
        assert_eq!(app(json!({})), json!([template()["spec"]["containers"][1]]));
        assert_eq!(
            app(json!({".": {}, "f:name": {}})),
            json!([{"name": "app"}])
        );
        assert_eq!(
            app(json!({".": {}, "f:workingDir": {}})),
            json!([{"name": "app"}])
        );
        assert_eq!(
            app(json!({"f:image": {}})),
            json!([{"name": "app", "image": "cart:2"}])
        );
    }

    #[test]
    fn an_unowned_item_without_owned_fields_present_is_left_out() {
        assert_eq!(app(json!({"f:workingDir": {}})), json!(null));
        assert_eq!(
            projected(json!({"f:spec": {"f:containers": {"k:{\"name\":\"gone\"}": {".": {}}}}})),
            json!({})
        );
    }

    #[test]
    fn several_field_keys_pick_one_item() {
        assert_eq!(
            app(
                json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:name": {}}}})
            ),
            json!([{"name": "app", "ports": [{"containerPort": 80, "protocol": "UDP", "name": "dns"}]}])
        );
    }

    #[test]
    fn a_port_without_protocol_is_found_by_the_default_key() {
        let set = FieldSet::parse(&json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}})).unwrap();
        let value = json!({"ports": [{"containerPort": 80, "name": "http"}]});
        assert_eq!(
            project(&value, &set),
            json!({"ports": [{"containerPort": 80}]})
        );
    }

    #[test]
    fn atomic_lists_and_maps_are_taken_whole() {
        assert_eq!(
            projected(
                json!({"f:spec": {"f:tolerations": {}, "f:nodeSelector": {}, "f:imagePullSecrets": {"k:{\"name\":\"pull\"}": {}}}})
            ),
            json!({"spec": {
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "nodeSelector": {"disk": "ssd", "zone": "a"},
                "imagePullSecrets": [{"name": "pull"}],
            }})
        );
        assert_eq!(
            app(json!({"f:args": {}})),
            json!([{"name": "app", "args": ["-v", "2"]}])
        );
    }

    #[test]
    fn a_mergeable_field_applied_empty_takes_nothing_of_others() {
        assert_eq!(
            app(
                json!({".": {}, "f:securityContext": {}, "f:env": {}, "f:resources": {"f:limits": {}}})
            ),
            json!([{"name": "app", "securityContext": {}, "env": []}])
        );
    }

    #[test]
    fn order_follows_the_value_not_the_set() {
        let env = app(
            json!({"f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:value": {}}, "k:{\"name\":\"B\"}": {".": {}, "f:value": {}}}}),
        );
        assert_eq!(
            env[0]["env"],
            json!([{"name": "B", "value": "b"}, {"name": "A", "value": "a"}])
        );
    }

    #[test]
    fn set_items_are_kept_by_value() {
        let set = FieldSet::parse(
            &json!({"f:metadata": {"f:finalizers": {"v:\"b\"": {}, "v:\"gone\"": {}}}}),
        )
        .unwrap();
        let value = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
        assert_eq!(
            project(&value, &set),
            json!({"metadata": {"finalizers": ["b"]}})
        );
    }

    #[test]
    fn positions_are_kept_by_index() {
        let set = FieldSet::parse(&json!({"f:list": {"i:1": {}}})).unwrap();
        assert_eq!(
            project(&json!({"list": ["a", "b"]}), &set),
            json!({"list": ["b"]})
        );
    }

    #[test]
    fn absent_parents_and_nulls_leave_nothing_behind() {
        assert_eq!(
            projected(
                json!({"f:spec": {"f:affinity": {"f:nodeAffinity": {"f:x": {}}}, "f:overhead": {"f:cpu": {}}}})
            ),
            json!({})
        );
        let set = FieldSet::parse(&json!({"f:a": {}, "f:b": {"f:c": {}}})).unwrap();
        assert_eq!(project(&json!({"a": null, "b": null}), &set), json!({}));
    }

    #[test]
    fn a_field_applied_empty_is_completed_from_the_partial_template() {
        let set = FieldSet::parse(
            &json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {
            ".": {}, "f:name": {}, "f:image": {}, "f:command": {}, "f:workingDir": {}}}}}),
        )
        .unwrap();
        let partial = json!({"spec": {"containers": [{"name": "app", "image": "cart:old", "command": [], "stdin": true}]}});
        let mut body = project(&template(), &set);
        complete(&mut body, &partial, &set).unwrap();
        assert_eq!(
            body,
            json!({"spec": {"containers": [{"name": "app", "image": "cart:2", "command": []}]}})
        );
    }

    #[test]
    fn the_empty_set_takes_nothing_and_the_whole_set_everything() {
        assert_eq!(projected(json!({})), json!({}));
        assert_eq!(projected(json!({".": {}})), template());
    }
}
