//! Paths into a Kubernetes object, as `fieldsV1` writes them.
//!
//! A path is a sequence of field names, list-map keys, set values and indices.
//! It has two textual forms: the wire form of each element (`f:image`,
//! `k:{"name":"app"}`), which is stored, and a human form, which is shown.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{FieldsError, canon, schema};

/// A JSON value inside a path element, ordered by its canonical text.
#[derive(Debug, Clone)]
pub struct Literal {
    text: String,
    value: Value,
}

impl Literal {
    /// The JSON value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value's JSON with sorted keys and without spaces.
    pub fn as_json(&self) -> &str {
        &self.text
    }
}

impl From<Value> for Literal {
    fn from(value: Value) -> Self {
        Self {
            text: canon::sorted_json(&value),
            value,
        }
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// `f:`: a field of a struct or an entry of a map.
    Field(String),
    /// `k:`: an item of a list map, by all of its key fields.
    Key(BTreeMap<String, Literal>),
    /// `v:`: an item of a set, by its value.
    Value(Literal),
    /// `i:`: an item of a list, by its position from 0.
    Index(usize),
}

impl PathElement {
    /// A field name.
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// A list item by its key fields.
    pub fn key<K: Into<String>>(keys: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Key(
            keys.into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// Reads the wire form of one element, `f:image` or `k:{"name":"app"}`.
    ///
    /// # Errors
    /// [`FieldsError::BadElement`] for an unknown prefix or malformed content.
    pub fn parse(text: &str) -> Result<Self, FieldsError> {
        let bad = |reason| FieldsError::BadElement {
            element: text.to_owned(),
            reason,
        };
        let (prefix, rest) = text
            .split_once(':')
            .ok_or_else(|| bad("expected one of f:, k:, v:, i:"))?;
        match prefix {
            "f" => Ok(Self::field(rest)),
            "k" => match serde_json::from_str(rest) {
                Ok(Value::Object(keys)) if !keys.is_empty() => Ok(Self::key(keys)),
                _ => Err(bad("k: needs a JSON object with at least one field")),
            },
            "v" => serde_json::from_str::<Value>(rest)
                .map(|value| Self::Value(value.into()))
                .map_err(|_| bad("v: needs a JSON value")),
            "i" => rest
                .parse()
                .map(Self::Index)
                .map_err(|_| bad("i: needs a position")),
            _ => Err(bad("expected one of f:, k:, v:, i:")),
        }
    }

    /// The wire form, as it stands in `fieldsV1`.
    pub fn to_wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let object: serde_json::Map<_, _> = keys
                    .iter()
                    .map(|(name, literal)| (name.clone(), literal.value.clone()))
                    .collect();
                format!("k:{}", canon::sorted_json(&Value::Object(object)))
            }
            Self::Value(literal) => format!("v:{}", literal.text),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Whether this element names `item`, standing at `index` of a list.
    pub(super) fn selects(&self, index: usize, item: &Value) -> bool {
        match self {
            Self::Field(_) => false,
            Self::Key(keys) => keys.iter().all(|(name, literal)| {
                schema::key_value(item, name).is_some_and(|value| value == literal.value)
            }),
            Self::Value(literal) => *item == literal.value,
            Self::Index(wanted) => *wanted == index,
        }
    }
}

/// Where a field stands in an object.
///
/// Shown as `spec.containers[name="app"].image`; stored as the list of its
/// elements' wire forms.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<PathElement>);

impl Path {
    /// The path of the object itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path through field names only.
    pub fn fields<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        names
            .into_iter()
            .map(|name| PathElement::field(name.as_ref()))
            .collect()
    }

    /// The elements from the root on.
    pub fn elements(&self) -> &[PathElement] {
        &self.0
    }

    /// Whether this is the path of the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// This path with one more element.
    #[must_use]
    pub fn join(&self, element: PathElement) -> Self {
        let mut elements = self.0.clone();
        elements.push(element);
        Self(elements)
    }

    /// The last element if it is a field name.
    pub fn last_field(&self) -> Option<&str> {
        match self.0.last() {
            Some(PathElement::Field(name)) => Some(name),
            _ => None,
        }
    }

    /// The field names alone, list items left out.
    pub(super) fn names(&self) -> Vec<&str> {
        self.0
            .iter()
            .filter_map(|element| match element {
                PathElement::Field(name) => Some(name.as_str()),
                PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => None,
            })
            .collect()
    }

    pub(super) fn push(&mut self, element: PathElement) {
        self.0.push(element);
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    /// The short human form inside a pod template: `containers[app].image`.
    ///
    /// Leaves out the leading `spec` and the names of list keys.
    pub fn brief(&self) -> String {
        let elements = match self.0.split_first() {
            Some((PathElement::Field(spec), rest)) if spec == "spec" && !rest.is_empty() => rest,
            _ => &self.0,
        };
        show(elements, true)
    }
}

impl FromIterator<PathElement> for Path {
    fn from_iter<I: IntoIterator<Item = PathElement>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.0, false))
    }
}

fn show(elements: &[PathElement], brief: bool) -> String {
    if elements.is_empty() {
        return ".".into();
    }
    let mut out = String::new();
    for element in elements {
        // Writing to a String cannot fail.
        let _ = match element {
            PathElement::Field(name) if is_plain(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                write!(out, "{name}")
            }
            PathElement::Field(name) if brief => write!(out, "[{name}]"),
            PathElement::Field(name) => write!(out, "[{name:?}]"),
            PathElement::Key(keys) if brief => write!(out, "[{}]", brief_key(keys)),
            PathElement::Key(keys) => {
                let keys: Vec<_> = keys
                    .iter()
                    .map(|(name, literal)| format!("{name}={}", literal.text))
                    .collect();
                write!(out, "[{}]", keys.join(","))
            }
            PathElement::Value(literal) => write!(out, "[={}]", literal.text),
            PathElement::Index(index) => write!(out, "[{index}]"),
        };
    }
    out
}

/// The key values alone: `app`, `80/TCP`.
pub(super) fn brief_key(keys: &BTreeMap<String, Literal>) -> String {
    let values: Vec<_> = keys
        .values()
        .map(|literal| match &literal.value {
            Value::String(text) => text.clone(),
            _ => literal.text.clone(),
        })
        .collect();
    values.join("/")
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(PathElement::to_wire))
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer)?
            .iter()
            .map(|element| PathElement::parse(element).map_err(serde::de::Error::custom))
            .collect::<Result<_, _>>()
            .map(Self)
    }
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
    fn paths_read_like_field_paths() {
        let image = path(&["f:spec", "f:containers", r#"k:{"name":"app"}"#, "f:image"]);
        assert_eq!(image.to_string(), r#"spec.containers[name="app"].image"#);
        assert_eq!(image.brief(), "containers[app].image");

        let port = path(&["f:ports", r#"k:{"protocol":"TCP","containerPort":80}"#]);
        assert_eq!(
            port.to_string(),
            r#"ports[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(port.brief(), "ports[80/TCP]");

        let label = path(&["f:metadata", "f:labels", "f:app.kubernetes.io/name"]);
        assert_eq!(
            label.to_string(),
            r#"metadata.labels["app.kubernetes.io/name"]"#
        );
        assert_eq!(label.brief(), "metadata.labels[app.kubernetes.io/name]");

        assert_eq!(
            path(&["f:finalizers", r#"v:"x""#, "i:3"]).to_string(),
            r#"finalizers[="x"][3]"#
        );
        assert_eq!(Path::root().to_string(), ".");
    }

    #[test]
    fn elements_round_trip_and_keys_are_ordered() {
        for wire in [
            "f:image",
            "f:",
            "f:example.com/a:b",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"foregroundDeletion""#,
            "v:3",
            r#"v:{"a":1}"#,
            "i:0",
        ] {
            assert_eq!(PathElement::parse(wire).unwrap().to_wire(), wire);
        }
        assert_eq!(
            PathElement::parse(r#"k:{ "protocol": "TCP", "containerPort": 80 }"#).unwrap(),
            PathElement::key([("containerPort", json!(80)), ("protocol", json!("TCP"))])
        );
    }

    #[test]
    fn malformed_elements_are_named_in_the_error() {
        for wire in [
            "image", "x:image", "k:{}", "k:[1]", "k:{", "v:{", "i:-1", "i:x", "",
        ] {
            let error = PathElement::parse(wire).unwrap_err();
            assert!(error.to_string().contains(&format!("{wire:?}")), "{error}");
        }
    }

    #[test]
    fn a_path_is_stored_as_its_elements() {
        let path = path(&["f:spec", "f:containers", r#"k:{"name":"app"}"#]);
        let stored = serde_json::to_value(&path).unwrap();
        assert_eq!(
            stored,
            json!(["f:spec", "f:containers", r#"k:{"name":"app"}"#])
        );
        assert_eq!(serde_json::from_value::<Path>(stored).unwrap(), path);
        assert!(serde_json::from_value::<Path>(json!(["spec"])).is_err());
    }
}
