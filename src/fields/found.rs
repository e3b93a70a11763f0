//! What stood in a field when it was first taken, and how it is given back.
//!
//! Taking a field with force overwrites a value that its owner may still want.
//! [`Found`] keeps those values; [`carry`] makes the body of the apply that
//! gives them back when fields are dropped. A field that had no value is left
//! out of the body: the API server removes what its last owner stops applying.
//! Nothing here decides when a field is dropped.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::graft::follow;
use super::{FieldSet, FieldsError, Path, PathElement, get, graft, schema};

/// One taken field and the value it had before; `None` if it had none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundValue {
    /// The field.
    pub path: Path,
    /// Its value when it was first taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// The values found in fields when they were first taken, one for each path.
///
/// They stand in the order in which list items stood in the live object: an
/// apply orders the items it names, so giving back has to keep to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Found(Vec<FoundValue>);

/// What is known of a field from before it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before<'a> {
    /// It had this value.
    Value(&'a Value),
    /// It was not there.
    Absent,
    /// It was never recorded.
    Unknown,
}

impl Found {
    /// Records what `live` holds in the fields of `newly_owned`.
    ///
    /// Only fields whose values are owned count, not parents that are members.
    pub fn record(live: &Value, newly_owned: &FieldSet) -> Self {
        let mut values: Vec<_> = newly_owned
            .leaves()
            .into_iter()
            .map(|path| {
                let value = get(live, &path)
                    .filter(|value| !value.is_null())
                    .map(|value| schema::leaf_value(path.last_field(), value));
                FoundValue { path, value }
            })
            .collect();
        values.sort_by_cached_key(|found| positions(live, &found.path));
        Self(values)
    }

    /// Adds a later record; where both know a field, the earlier value stands.
    pub fn merge(&mut self, later: Self) {
        for found in later.0 {
            if self.recorded(&found.path).is_none() {
                self.0.push(found);
            }
        }
    }

    /// Forgets the fields of `given_back`, so that a later taking records them anew.
    pub fn forget(&mut self, given_back: &FieldSet) {
        self.0.retain(|found| !given_back.contains(&found.path));
    }

    fn recorded(&self, path: &Path) -> Option<&FoundValue> {
        self.0.iter().find(|found| found.path == *path)
    }

    /// What stood at `path`: as recorded, or as part of a recorded ancestor.
    pub fn before(&self, path: &Path) -> Before<'_> {
        let elements = path.elements();
        for depth in (0..=elements.len()).rev() {
            let ancestor: Path = elements[..depth].iter().cloned().collect();
            if let Some(found) = self.recorded(&ancestor) {
                return found
                    .value
                    .as_ref()
                    .and_then(|value| follow(value, &elements[depth..]))
                    .map_or(Before::Absent, Before::Value);
            }
        }
        Before::Unknown
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The recorded fields.
    pub fn iter(&self) -> impl Iterator<Item = &FoundValue> {
        self.0.iter()
    }
}

/// Sorts paths as `live` has them: list items by position, absent ones last.
fn positions(live: &Value, path: &Path) -> Vec<(usize, PathElement)> {
    let mut place = Some(live);
    path.elements()
        .iter()
        .map(|element| {
            let items = place.and_then(Value::as_array);
            let position = items.and_then(|items| {
                let mut items = items.iter().enumerate();
                items.position(|(index, item)| element.selects(index, item))
            });
            place = place.and_then(|value| follow(value, std::slice::from_ref(element)));
            let position = match element {
                PathElement::Field(_) => 0,
                _ => position.unwrap_or(usize::MAX),
            };
            (position, element.clone())
        })
        .collect()
}

/// The body that gives dropped fields back, and what happens to each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The partial template with the found values of dropped fields in place.
    pub body: Value,
    /// Dropped fields that get their found value.
    pub restored: Vec<Path>,
    /// Dropped fields that had no value and are left out.
    pub removed: Vec<Path>,
    /// Dropped fields nobody recorded; left out, so their values may be lost.
    pub unknown: Vec<Path>,
}

/// Makes the apply body that drops fields without losing what was found in them.
///
/// `partial` and the paths of `dropped` and `found` start at the same object.
/// A dropped field that `partial` still sets, as part of something else, is
/// left as `partial` has it. List items are given back in the order they were
/// found in; where items of others stand between them is up to the API server,
/// which orders what an apply names. After the apply the ownership of the restored
/// fields is still to be given up.
///
/// # Errors
/// [`FieldsError::Obstructed`] if `partial` now has something of another kind
/// above a found value.
pub fn carry(partial: &Value, dropped: &FieldSet, found: &Found) -> Result<Carried, FieldsError> {
    let mut carried = Carried {
        body: partial.clone(),
        restored: Vec::new(),
        removed: Vec::new(),
        unknown: Vec::new(),
    };
    let mut paths = dropped.leaves();
    paths.sort_by_cached_key(|path| found.0.iter().position(|known| known.path == *path));
    for path in paths {
        if get(partial, &path).is_some_and(|value| !value.is_null()) {
            continue;
        }
        match found.before(&path) {
            Before::Value(value) => {
                // An earlier field may have brought an item's keys along.
                graft(&mut carried.body, &path, value.clone())?;
                carried.restored.push(path);
            }
            Before::Absent => carried.removed.push(path),
            Before::Unknown => carried.unknown.push(path),
        }
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn live() -> Value {
        json!({
            "metadata": {"labels": {"app": "cart"}},
            "spec": {
                "containers": [{"name": "app", "image": "cart:1", "args": ["-v"],
                    "env": [{"name": "LOG", "value": "info"}], "securityContext": {"runAsUser": 5}}],
            },
        })
    }

    fn owned() -> FieldSet {
        FieldSet::parse(&json!({
            "f:metadata": {"f:labels": {"f:tier": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"app\"}": {
                    ".": {}, "f:name": {}, "f:image": {}, "f:args": {}, "f:securityContext": {},
                    "f:env": {
                        "k:{\"name\":\"LOG\"}": {".": {}, "f:name": {}, "f:value": {}},
                        "k:{\"name\":\"NEW\"}": {".": {}, "f:name": {}, "f:value": {}},
                    },
                }},
                "f:volumes": {"k:{\"name\":\"config\"}": {".": {}, "f:name": {}, "f:configMap": {"f:name": {}}}},
            },
        }))
        .unwrap()
    }

    fn shown(paths: &[Path]) -> Vec<String> {
        paths.iter().map(Path::brief).collect()
    }

    #[test]
    fn dropping_everything_gives_back_what_was_found_and_removes_the_rest() {
        let found = Found::record(&live(), &owned());
        let carried = carry(&json!({}), &owned(), &found).unwrap();
        assert_eq!(
            carried.body,
            json!({"spec": {"containers": [{"name": "app", "image": "cart:1", "args": ["-v"], "securityContext": {},
                "env": [{"name": "LOG", "value": "info"}]}]}})
        );
        assert_eq!(
            shown(&carried.removed),
            [
                "metadata.labels.tier",
                "containers[app].env[NEW].name",
                "containers[app].env[NEW].value",
                "volumes[config].configMap.name",
                "volumes[config].name"
            ]
        );
        assert!(carried.unknown.is_empty());
    }

    #[test]
    fn dropping_one_field_leaves_the_partial_template_as_it_is_otherwise() {
        let found = Found::record(&live(), &owned());
        let image = FieldSet::parse(
            &json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}}),
        )
        .unwrap();
        let partial = json!({"spec": {"containers": [{"name": "app", "args": ["-q"]}]}});
        let carried = carry(&partial, &image, &found).unwrap();
        assert_eq!(
            carried.body,
            json!({"spec": {"containers": [{"name": "app", "args": ["-q"], "image": "cart:1"}]}})
        );
        assert_eq!(shown(&carried.restored), ["containers[app].image"]);
    }

    #[test]
    fn a_dropped_field_that_is_still_set_is_not_overwritten() {
        let found = Found::record(&live(), &owned());
        let dropped = FieldSet::parse(&json!({"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:securityContext": {}}}}})).unwrap();
        let partial =
            json!({"spec": {"containers": [{"name": "app", "securityContext": {"runAsUser": 7}}]}});
        let carried = carry(&partial, &dropped, &found).unwrap();
        assert_eq!(carried.body, partial);
        assert!(
            carried.restored.is_empty() && carried.removed.is_empty() && carried.unknown.is_empty()
        );
    }

    #[test]
    fn list_items_are_given_back_in_the_order_they_were_found_in() {
        let live = json!({"env": [{"name": "B", "value": "$(A)"}, {"name": "C"}, {"name": "A", "value": "1"}]});
        let owned = FieldSet::parse(&json!({"f:env": {
            "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}},
            "k:{\"name\":\"B\"}": {".": {}, "f:name": {}, "f:value": {}},
        }}))
        .unwrap();
        let found = Found::record(&live, &owned);
        let stored = serde_json::to_string(&found).unwrap();
        let found: Found = serde_json::from_str(&stored).unwrap();
        let carried = carry(&json!({}), &owned, &found).unwrap();
        assert_eq!(
            carried.body,
            json!({"env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}]})
        );
    }

    #[test]
    fn an_unrecorded_field_is_reported_as_such() {
        let carried = carry(&json!({}), &owned(), &Found::default()).unwrap();
        assert_eq!(carried.body, json!({}));
        assert_eq!(carried.unknown, owned().leaves());
    }

    #[test]
    fn something_of_another_kind_in_the_way_is_an_error() {
        let found = Found::record(&live(), &owned());
        assert!(carry(&json!({"spec": {"containers": {}}}), &owned(), &found).is_err());
    }

    #[test]
    fn the_first_value_found_stands() {
        let set =
            FieldSet::parse(&json!({"f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}}}))
                .unwrap();
        let mut found = Found::record(&live(), &set);
        found.merge(Found::record(
            &json!({"metadata": {"labels": {"app": "ours", "tier": "ours"}}}),
            &set,
        ));
        let label = |name| Path::fields(["metadata", "labels", name]);
        assert_eq!(found.before(&label("app")), Before::Value(&json!("cart")));
        assert_eq!(found.before(&label("tier")), Before::Absent);
        assert_eq!(found.before(&label("zone")), Before::Unknown);

        found.forget(&set);
        assert!(found.is_empty());
    }

    #[test]
    fn a_part_of_a_recorded_value_is_known() {
        let set = FieldSet::parse(&json!({"f:nodeSelector": {}})).unwrap();
        let found = Found::record(&json!({"nodeSelector": {"disk": "ssd"}}), &set);
        let below = |name| Path::fields(["nodeSelector"]).join(PathElement::field(name));
        assert_eq!(found.before(&below("disk")), Before::Value(&json!("ssd")));
        assert_eq!(found.before(&below("zone")), Before::Absent);
    }

    #[test]
    fn records_are_stored_as_a_list_of_paths_and_values() {
        let set =
            FieldSet::parse(&json!({"f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}}}))
                .unwrap();
        let found = Found::record(&live(), &set);
        let stored = serde_json::to_value(&found).unwrap();
        assert_eq!(
            stored,
            json!([
                {"path": ["f:metadata", "f:labels", "f:app"], "value": "cart"},
                {"path": ["f:metadata", "f:labels", "f:tier"]},
            ])
        );
        assert_eq!(serde_json::from_value::<Found>(stored).unwrap(), found);
    }
}
