//! Puts owned fields of an object back to what they were, and leaves the rest.
//!
//! A server-side apply does the same to values, but it may move list items that
//! others own between ours. A pod template with its environment in another
//! order is another template: all pods would be replaced, although the old
//! ones, which a rollback wants, still run.

use serde_json::{Map, Value};

use super::{FieldSet, PathElement, schema};

/// `live` with the fields in `set` as they are in `frozen`: changed back, taken
/// out if `frozen` has none, and list items in the order of `frozen`. What is
/// not in the set stays as it is in `live`; items that only `live` has come
/// last.
#[must_use]
pub fn put_back(live: &Value, frozen: &Value, set: &FieldSet) -> Value {
    if set.is_empty() {
        // A set without members is otherwise one of the root as a whole.
        return live.clone();
    }
    merge(None, Some(live), Some(frozen), Some(set)).unwrap_or_else(|| live.clone())
}

fn merge(
    name: Option<&str>,
    live: Option<&Value>,
    frozen: Option<&Value>,
    set: Option<&FieldSet>,
) -> Option<Value> {
    let Some(set) = set else { return live.cloned() };
    if !set.has_children() {
        // Owned as a whole, unless it is a container of which only the
        // existence is owned.
        let held = |value: &Value| schema::leaf_value(name, value) != *value;
        return match (live, frozen) {
            (Some(live), frozen) if held(live) || frozen.is_some_and(held) => Some(live.clone()),
            (None, Some(_)) if schema::is_map(name) => None,
            (None, Some(frozen)) => Some(schema::leaf_value(name, frozen)),
            (_, frozen) => frozen.cloned(),
        };
    }
    let merged = match (live, frozen) {
        (Some(Value::Array(live)), Some(Value::Array(frozen))) => {
            Value::Array(items(name, live, frozen, set))
        }
        (Some(Value::Array(live)), None) => Value::Array(items(name, live, &[], set)),
        (None, Some(Value::Array(frozen))) => Value::Array(items(name, &[], frozen, set)),
        (Some(Value::Object(live)), Some(Value::Object(frozen))) => {
            Value::Object(fields(live, frozen, set))
        }
        (Some(Value::Object(live)), None) => Value::Object(fields(live, &Map::new(), set)),
        (None, Some(Value::Object(frozen))) => Value::Object(fields(&Map::new(), frozen, set)),
        (_, frozen) => return frozen.cloned(),
    };
    // A parent that was only there for what is taken out goes with it.
    let is_empty = match &merged {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    (!is_empty || frozen.is_some()).then_some(merged)
}

fn fields(
    live: &Map<String, Value>,
    frozen: &Map<String, Value>,
    set: &FieldSet,
) -> Map<String, Value> {
    let child = |name: &str| set.child(&PathElement::field(name));
    let owned = frozen
        .keys()
        .filter(|name| !live.contains_key(*name) && child(name).is_some());
    live.keys()
        .chain(owned)
        .filter_map(|name| {
            let value = merge(Some(name), live.get(name), frozen.get(name), child(name))?;
            Some((name.clone(), value))
        })
        .collect()
}

fn items(name: Option<&str>, live: &[Value], frozen: &[Value], set: &FieldSet) -> Vec<Value> {
    let owner = |index: usize, item: &Value| {
        set.children()
            .find(|(element, _)| element.selects(index, item))
            .map(|(_, child)| child)
    };
    let keys = name.and_then(schema::list_keys);
    let same = |a: &Value, b: &Value| match keys {
        Some(keys) => keys
            .iter()
            .all(|key| schema::key_value(a, key) == schema::key_value(b, key)),
        None => a == b,
    };
    let mut merged = Vec::new();
    for (index, item) in frozen.iter().enumerate() {
        let there = live.iter().find(|other| same(item, other));
        merged.extend(merge(None, there, Some(item), owner(index, item)));
    }
    for (index, item) in live.iter().enumerate() {
        if frozen.iter().any(|other| same(item, other)) {
            continue;
        }
        let Some(rest) = merge(None, Some(item), None, owner(index, item)) else {
            continue;
        };
        if owner(index, item).is_none() {
            merged.push(rest);
        } else if !only_keys(&rest, keys) {
            // What others own of it is still an item, and has its name.
            merged.push(with_keys(rest, item, keys));
        }
    }
    merged
}

/// Whether nothing of an item is left but what it is called.
fn only_keys(item: &Value, keys: Option<&[&str]>) -> bool {
    let keys = keys.unwrap_or_default();
    item.as_object()
        .is_some_and(|fields| fields.keys().all(|name| keys.contains(&name.as_str())))
}

fn with_keys(mut item: Value, original: &Value, keys: Option<&[&str]>) -> Value {
    if let Some(fields) = item.as_object_mut() {
        for key in keys.unwrap_or_default() {
            if let Some(value) = original.get(*key) {
                fields.entry(*key).or_insert_with(|| value.clone());
            }
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::parse(&fields).unwrap()
    }

    fn with_env(env: Value) -> Value {
        json!({"spec": {"containers": [{"name": "app", "image": "cart:1", "env": env}]}})
    }

    fn of_app(fields: Value) -> FieldSet {
        set(json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": fields}}}))
    }

    #[test]
    fn changed_values_go_back_and_others_stay() {
        let frozen = json!({"spec": {"containers": [
            {"name": "app", "image": "cart:1"}, {"name": "proxy", "image": "envoy:1"}]}});
        let live = json!({"spec": {"containers": [
            {"name": "app", "image": "cart:2"}, {"name": "proxy", "image": "envoy:2"}]}});
        let back = put_back(
            &live,
            &frozen,
            &of_app(json!({".": {}, "f:name": {}, "f:image": {}})),
        );
        assert_eq!(
            back,
            json!({"spec": {"containers": [
            {"name": "app", "image": "cart:1"}, {"name": "proxy", "image": "envoy:2"}]}})
        );
    }

    #[test]
    fn what_was_added_is_taken_out_with_its_parents() {
        let frozen = json!({"spec": {"containers": [{"name": "app", "image": "cart:1"}]}});
        let live = json!({
            "metadata": {"annotations": {"team": "shop"}},
            "spec": {"containers": [{"name": "app", "image": "cart:1",
                "resources": {"limits": {"memory": "1Gi"}},
                "env": [{"name": "NEW", "value": "1"}]}]}});
        let owned = set(json!({
            "f:metadata": {"f:annotations": {"f:team": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {
                ".": {}, "f:name": {},
                "f:resources": {"f:limits": {"f:memory": {}}},
                "f:env": {"k:{\"name\":\"NEW\"}": {".": {}, "f:name": {}, "f:value": {}}}}}}}));
        assert_eq!(put_back(&live, &frozen, &owned), frozen);
    }

    #[test]
    fn items_stand_in_their_old_order_and_new_ones_of_others_last() {
        let frozen = with_env(json!([
            {"name": "MODE", "value": "a"}, {"name": "ADDR", "value": "x"}, {"name": "LOG", "value": "info"}]));
        let live = with_env(json!([
            {"name": "LATER", "value": "l"}, {"name": "ADDR", "value": "x"},
            {"name": "MODE", "value": "b"}, {"name": "NEW", "value": "n"}, {"name": "LOG", "value": "debug"}]));
        let item = json!({".": {}, "f:name": {}, "f:value": {}});
        let owned = of_app(json!({"f:env": {
            "k:{\"name\":\"MODE\"}": item, "k:{\"name\":\"NEW\"}": item, "k:{\"name\":\"LOG\"}": item}}));
        assert_eq!(
            put_back(&live, &frozen, &owned),
            with_env(json!([
                {"name": "MODE", "value": "a"}, {"name": "ADDR", "value": "x"},
                {"name": "LOG", "value": "info"}, {"name": "LATER", "value": "l"}]))
        );
    }

    #[test]
    fn a_container_of_which_only_the_existence_is_owned_keeps_what_others_put_into_it() {
        let owned = of_app(json!({".": {}, "f:name": {}, "f:securityContext": {}}));
        let app = |security: Value| json!({"spec": {"containers": [{"name": "app", "securityContext": security}]}});
        let (empty, filled, other) = (
            app(json!({})),
            app(json!({"runAsUser": 5})),
            app(json!({"runAsUser": 6})),
        );
        assert_eq!(put_back(&empty, &filled, &owned), empty);
        assert_eq!(put_back(&filled, &empty, &owned), filled);
        assert_eq!(put_back(&other, &filled, &owned), other);
        let bare = json!({"spec": {"containers": [{"name": "app"}]}});
        assert_eq!(put_back(&bare, &filled, &owned), empty);
        // A map is not stored while it is empty.
        let owned = set(json!({"f:metadata": {"f:annotations": {}}}));
        let bare = json!({"metadata": {"labels": {"app": "cart"}}});
        let mut noted = bare.clone();
        noted["metadata"]["annotations"] = json!({"team": "shop"});
        assert_eq!(put_back(&bare, &noted, &owned), bare);
        assert_eq!(put_back(&noted, &bare, &owned), noted);
    }

    #[test]
    fn what_was_applied_empty_is_emptied_again() {
        let owned = of_app(json!({".": {}, "f:name": {}, "f:args": {}}));
        let frozen = json!({"spec": {"containers": [{"name": "app", "image": "cart:1"}]}});
        let live =
            json!({"spec": {"containers": [{"name": "app", "image": "cart:1", "args": ["-x"]}]}});
        assert_eq!(put_back(&live, &frozen, &owned), frozen);
    }

    #[test]
    fn an_item_that_others_own_in_part_keeps_their_part() {
        let frozen = json!({"spec": {"containers": [{"name": "app"}]}});
        let live = json!({"spec": {"containers": [
            {"name": "app"}, {"name": "extra", "image": "x:1", "command": ["run"]}]}});
        let owned = set(json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"extra\"}": {".": {}, "f:name": {}, "f:image": {}}}}}));
        let back = put_back(&live, &frozen, &owned);
        assert_eq!(
            back["spec"]["containers"][1],
            json!({"name": "extra", "command": ["run"]})
        );
    }

    fn env() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::btree_map("[A-F]", "[a-c]", 0..6)
            .prop_map(|map| map.into_iter().collect())
            .prop_shuffle()
    }

    fn listed(env: &[(String, String)]) -> Value {
        with_env(
            env.iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect(),
        )
    }

    proptest! {
        /// Whatever a plan did to the items it owns, and in whatever order the
        /// server left them, all of it is undone.
        #[test]
        fn everything_owned_is_undone(frozen in env(), target in env(), order in any::<proptest::sample::Index>()) {
            // Without an item of its own the plan has no say in the order.
            prop_assume!(!target.is_empty());
            let mut live: Vec<_> = frozen.iter().filter(|(name, _)| !target.iter().any(|(t, _)| t == name)).cloned().collect();
            live.extend(target.iter().cloned());
            if !live.is_empty() {
                let turn = order.index(live.len());
                live.rotate_left(turn);
            }
            let mut items = Map::new();
            for (name, _) in &target {
                items.insert(format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}}));
            }
            let owned = of_app(json!({".": {}, "f:name": {}, "f:env": items}));
            prop_assert_eq!(put_back(&listed(&live), &listed(&frozen), &owned), listed(&frozen));
        }

        /// Owning nothing changes nothing.
        #[test]
        fn what_is_not_owned_stays(frozen in env(), live in env()) {
            let (live, frozen) = (listed(&live), listed(&frozen));
            prop_assert_eq!(put_back(&live, &frozen, &of_app(json!({"f:image": {}}))), live);
        }
    }
}
