//! Reads and puts single values by path.

use serde_json::{Map, Value};

use super::{FieldsError, Path, PathElement, kind, schema};

/// The value at `path`, if there is one.
///
/// A list item is found by its keys, with the defaults the API server gives
/// key fields; a set item by its value.
pub fn get<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    follow(value, path.elements())
}

pub(super) fn follow<'a>(value: &'a Value, elements: &[PathElement]) -> Option<&'a Value> {
    elements
        .iter()
        .try_fold(value, |value, element| match element {
            PathElement::Field(name) => value.get(name),
            _ => value
                .as_array()?
                .iter()
                .enumerate()
                .find(|(index, item)| element.selects(*index, item))
                .map(|(_, item)| item),
        })
}

/// Puts `new` at `path` in `value`, creating parents, and list items with their keys.
///
/// What stands at `path` is replaced; a list item put as an object keeps its
/// key fields. A null parent counts as absent; new items go to the end. A
/// position beyond the end of a list appends.
///
/// # Errors
/// [`FieldsError::Obstructed`] if an ancestor is of another kind than the path
/// needs; `value` may then have got some of the parents.
pub fn graft(value: &mut Value, path: &Path, new: Value) -> Result<(), FieldsError> {
    let mut place = value;
    for (depth, element) in path.elements().iter().enumerate() {
        let parent_kind = kind(place);
        let obstructed = |wanted| FieldsError::Obstructed {
            path: path.clone(),
            at: path.elements()[..depth].iter().cloned().collect(),
            found: parent_kind,
            wanted,
        };
        place = match element {
            PathElement::Field(name) => {
                if place.is_null() {
                    *place = Value::Object(Map::new());
                }
                match place {
                    Value::Object(fields) => fields.entry(name.as_str()).or_insert(Value::Null),
                    _ => return Err(obstructed("an object")),
                }
            }
            _ => {
                if place.is_null() {
                    *place = Value::Array(Vec::new());
                }
                match place {
                    Value::Array(items) => item_for(items, element),
                    _ => return Err(obstructed("a list")),
                }
            }
        };
    }
    *place = match path.elements().last() {
        Some(element) => keyed(new, element),
        None => new,
    };
    Ok(())
}

/// The item that `element` names, made if there is none.
fn item_for<'a>(items: &'a mut Vec<Value>, element: &PathElement) -> &'a mut Value {
    let found = items
        .iter()
        .enumerate()
        .position(|(index, item)| element.selects(index, item));
    let index = found.unwrap_or_else(|| {
        items.push(match element {
            PathElement::Value(literal) => literal.value().clone(),
            _ => keyed(Value::Null, element),
        });
        items.len() - 1
    });
    &mut items[index]
}

/// `item` with the key fields of `element`, if it is or can be an object.
///
/// A key that the API server fills in is not written, lest it become owned.
fn keyed(mut item: Value, element: &PathElement) -> Value {
    if let PathElement::Key(keys) = element {
        if item.is_null() {
            item = Value::Object(Map::new());
        }
        for (name, literal) in keys {
            if schema::key_value(&item, name).as_ref() != Some(literal.value())
                && let Value::Object(fields) = &mut item
            {
                fields.insert(name.clone(), literal.value().clone());
            }
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(elements: &[&str]) -> Path {
        elements
            .iter()
            .map(|element| PathElement::parse(element).unwrap())
            .collect()
    }

    #[test]
    fn values_are_found_through_keys_sets_and_positions() {
        let value = json!({
            "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "name": "tcp"}],
            "finalizers": ["a", "b"],
        });
        let tcp = path(&[
            "f:ports",
            r#"k:{"containerPort":53,"protocol":"TCP"}"#,
            "f:name",
        ]);
        assert_eq!(get(&value, &tcp), Some(&json!("tcp")));
        assert_eq!(
            get(&value, &path(&["f:finalizers", r#"v:"b""#])),
            Some(&json!("b"))
        );
        assert_eq!(
            get(&value, &path(&["f:finalizers", "i:0"])),
            Some(&json!("a"))
        );
        assert_eq!(get(&value, &path(&["f:finalizers", r#"v:"c""#])), None);
        assert_eq!(get(&value, &path(&["f:ports", "f:name"])), None);
        assert_eq!(
            get(
                &value,
                &path(&["f:ports", r#"k:{"name":"tcp"}"#, "f:containerPort"])
            ),
            Some(&json!(53))
        );
        assert_eq!(get(&value, &Path::root()), Some(&value));
    }

    #[test]
    fn parents_and_keyed_items_are_made() {
        let mut value = json!({});
        graft(
            &mut value,
            &path(&["f:spec", "f:containers", r#"k:{"name":"app"}"#, "f:image"]),
            json!("cart:1"),
        )
        .unwrap();
        graft(
            &mut value,
            &path(&[
                "f:spec",
                "f:containers",
                r#"k:{"name":"app"}"#,
                "f:ports",
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                "f:name",
            ]),
            json!("http"),
        )
        .unwrap();
        graft(
            &mut value,
            &path(&["f:metadata", "f:finalizers", r#"v:"x""#]),
            json!("x"),
        )
        .unwrap();
        assert_eq!(
            value,
            json!({
                "metadata": {"finalizers": ["x"]},
                "spec": {"containers": [{"name": "app", "image": "cart:1", "ports": [{"containerPort": 80, "name": "http"}]}]},
            })
        );
    }

    #[test]
    fn what_is_there_is_replaced_and_neighbours_stay() {
        let mut value = json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]});
        graft(
            &mut value,
            &path(&["f:env", r#"k:{"name":"B"}"#, "f:value"]),
            json!("3"),
        )
        .unwrap();
        graft(
            &mut value,
            &path(&["f:env", r#"k:{"name":"A"}"#]),
            json!({"valueFrom": {}}),
        )
        .unwrap();
        assert_eq!(
            value,
            json!({"env": [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "3"}]})
        );
    }

    #[test]
    fn an_obstacle_is_an_error_that_names_it() {
        let mut value = json!({"spec": {"containers": "none"}});
        let error = graft(
            &mut value,
            &path(&["f:spec", "f:containers", r#"k:{"name":"app"}"#, "f:image"]),
            json!("x"),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"cannot set spec.containers[name="app"].image: spec.containers is a string, not a list"#
        );
        let error = graft(
            &mut json!({"spec": []}),
            &path(&["f:spec", "f:a"]),
            json!(1),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot set spec.a: spec is a list, not an object"
        );
    }
}
