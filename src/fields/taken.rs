//! What an apply would replace as a whole although somebody gave it a value.

use serde_json::Value;

use super::{FieldSet, Path, canon, get, schema};

/// An atomic list or map that gets another owner and another value.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenOver {
    /// Where it stands in the template.
    pub path: Path,
    /// What stands there.
    pub old: Value,
    /// What will stand there.
    pub new: Value,
}

/// The atomic lists and maps among `after` and not `before` that have a value in
/// `live` and another one in `merged`. Scalars are left out: nobody expects
/// them to be merged.
#[must_use]
pub fn taken_over(
    live: &Value,
    merged: &Value,
    before: &FieldSet,
    after: &FieldSet,
) -> Vec<TakenOver> {
    let leaves = after.difference(before).leaves();
    leaves
        .into_iter()
        .filter_map(|path| {
            let (old, new) = (get(live, &path)?, get(merged, &path)?);
            // What is owned of a mergeable one that was applied empty is nothing.
            let atomic = schema::leaf_value(Some(path.last_field()?), new) == *new;
            let taken = atomic && is_filled(old) && !new.is_null() && !canon::equal(old, new);
            let (old, new) = (old.clone(), new.clone());
            taken.then_some(TakenOver { path, old, new })
        })
        .collect()
}

fn is_filled(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::parse(fields).unwrap()
    }

    fn template(args: &Value, selector: &Value, limits: &Value) -> Value {
        json!({"spec": {
            "nodeSelector": selector,
            "containers": [{"name": "app", "image": "cart:1", "args": args,
                            "resources": {"limits": limits}}],
        }})
    }

    fn owned() -> FieldSet {
        set(&json!({"f:spec": {
            "f:nodeSelector": {},
            "f:containers": {r#"k:{"name":"app"}"#: {
                ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                "f:resources": {"f:limits": {}},
            }},
        }}))
    }

    #[test]
    fn atomic_lists_and_maps_with_another_value_are_told() {
        let live = template(
            &json!(["-v"]),
            &json!({"disk": "ssd"}),
            &json!({"cpu": "1"}),
        );
        let merged = template(&json!(["-q"]), &json!({"zone": "a"}), &json!({"cpu": "1"}));
        let taken = taken_over(&live, &merged, &FieldSet::default(), &owned());
        let told: Vec<String> = taken
            .iter()
            .map(|t| format!("{}: {} -> {}", t.path, t.old, t.new))
            .collect();
        assert_eq!(
            told,
            [
                r#"spec.containers[name="app"].args: ["-v"] -> ["-q"]"#,
                r#"spec.nodeSelector: {"disk":"ssd"} -> {"zone":"a"}"#,
            ]
        );
    }

    #[test]
    fn what_is_owned_already_equal_or_was_empty_is_not_told() {
        let live = template(&json!(["-v"]), &json!({}), &json!(null));
        let merged = template(&json!(["-q"]), &json!({"zone": "a"}), &json!(null));
        assert_eq!(taken_over(&live, &merged, &owned(), &owned()), []);
        let same = template(&json!(["-v"]), &json!({"zone": "a"}), &json!(null));
        assert_eq!(taken_over(&live, &same, &FieldSet::default(), &owned()), []);
    }
}
