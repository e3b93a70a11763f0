//! Field sets: the `fieldsV1` trees of `metadata.managedFields`.
//!
//! A set decides which paths belong to it and nothing else; it knows neither
//! values nor schema. Set operations work on members, as the API server's do:
//! a parent is not a member because its children are.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{FieldsError, Path, PathElement, kind};

/// A set of paths of one object.
///
/// The object itself can be a member too; it is so after [`FieldSet::descend`]
/// to a field that is owned as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    member: bool,
    /// No child is empty: each is a member or has one below it.
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// The set without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a `fieldsV1` tree.
    ///
    /// # Errors
    /// [`FieldsError`] if a node is not an object or an element is malformed.
    pub fn parse(fields_v1: &Value) -> Result<Self, FieldsError> {
        let mut set = Self::parse_node(fields_v1, &mut Path::root())?;
        // `{}` is a member everywhere but at the root, where it is the empty set.
        set.member = fields_v1.get(".").is_some();
        Ok(set)
    }

    fn parse_node(node: &Value, at: &mut Path) -> Result<Self, FieldsError> {
        let Value::Object(entries) = node else {
            return Err(FieldsError::NotAnObject {
                at: at.clone(),
                found: kind(node),
            });
        };
        let mut set = Self {
            member: entries.is_empty(),
            children: BTreeMap::new(),
        };
        for (name, child) in entries {
            if name == "." {
                set.member = true;
                continue;
            }
            let element = PathElement::parse(name)?;
            at.push(element.clone());
            let child = Self::parse_node(child, at)?;
            at.pop();
            // Two spellings of one key are one element.
            set.children.entry(element).or_default().absorb(child);
        }
        Ok(set)
    }

    /// The canonical `fieldsV1` tree.
    pub fn to_value(&self) -> Value {
        let mut entries = Map::new();
        if self.member {
            entries.insert(".".into(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let node = if child.children.is_empty() {
                Value::Object(Map::new())
            } else {
                child.to_value()
            };
            entries.insert(element.to_wire(), node);
        }
        Value::Object(entries)
    }

    /// Whether the set has no members.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds one path.
    pub fn insert(&mut self, path: &Path) {
        let mut set = self;
        for element in path.elements() {
            set = set.children.entry(element.clone()).or_default();
        }
        set.member = true;
    }

    /// Whether `path` itself is a member; a member's children are not.
    pub fn contains(&self, path: &Path) -> bool {
        let mut set = self;
        for element in path.elements() {
            match set.children.get(element) {
                Some(child) => set = child,
                None => return false,
            }
        }
        set.member
    }

    /// The members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.absorb(other.clone());
        all
    }

    fn absorb(&mut self, other: Self) {
        self.member |= other.member;
        for (element, child) in other.children {
            self.children.entry(element).or_default().absorb(child);
        }
    }

    /// The members of this set that are not members of `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, &|a, b| a && !b)
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|a, b| a && b)
    }

    fn combine(&self, other: &Self, keep: &dyn Fn(bool, bool) -> bool) -> Self {
        let none = Self::new();
        Self {
            member: keep(self.member, other.member),
            children: self
                .children
                .iter()
                .map(|(element, child)| {
                    let theirs = other.children.get(element).unwrap_or(&none);
                    (element.clone(), child.combine(theirs, keep))
                })
                .filter(|(_, child)| !child.is_empty())
                .collect(),
        }
    }

    /// Whether every member is one of `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        (!self.member || other.member)
            && self.children.iter().all(|(element, child)| {
                other
                    .children
                    .get(element)
                    .is_some_and(|theirs| child.is_subset(theirs))
            })
    }

    /// The sub-tree below the given field names, its paths relative to them.
    #[must_use]
    pub fn descend<S: AsRef<str>>(&self, names: &[S]) -> Self {
        let mut set = self;
        for name in names {
            match set.children.get(&PathElement::field(name.as_ref())) {
                Some(child) => set = child,
                None => return Self::new(),
            }
        }
        set.clone()
    }

    /// The inverse of [`FieldSet::descend`]: this set below the given field names.
    #[must_use]
    pub fn nest<S: AsRef<str>>(self, names: &[S]) -> Self {
        if self.is_empty() {
            return self;
        }
        names.iter().rev().fold(self, |below, name| Self {
            member: false,
            children: BTreeMap::from([(PathElement::field(name.as_ref()), below)]),
        })
    }

    /// All members, parents before their children.
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Path::root(), &mut out, &|set| set.member);
        out
    }

    /// The members without members below them: the fields whose values are owned.
    pub fn leaves(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Path::root(), &mut out, &|set| {
            set.member && set.children.is_empty()
        });
        out
    }

    fn collect(&self, at: &mut Path, out: &mut Vec<Path>, wanted: &dyn Fn(&Self) -> bool) {
        if wanted(self) {
            out.push(at.clone());
        }
        for (element, child) in &self.children {
            at.push(element.clone());
            child.collect(at, out, wanted);
            at.pop();
        }
    }

    /// Whether applying these fields leaves the order of all lists alone: a
    /// server-side apply that names several items of a list puts them side by
    /// side.
    pub fn leaves_order(&self) -> bool {
        let items = self
            .children
            .keys()
            .filter(|element| !matches!(element, PathElement::Field(_)));
        items.count() <= 1 && self.children.values().all(Self::leaves_order)
    }

    pub(super) fn is_member(&self) -> bool {
        self.member
    }

    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    pub(super) fn child(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element)
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (&PathElement, &Self)> {
        self.children.iter()
    }
}

impl FromIterator<Path> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Path>>(paths: I) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path);
        }
        set
    }
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a server-side apply of an image, a port and a volume comes to own.
    fn applied() -> Value {
        json!({"f:spec": {"f:template": {"f:spec": {
            "f:containers": {"k:{\"name\":\"app\"}": {
                ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }},
            "f:volumes": {"k:{\"name\":\"config\"}": {".": {}, "f:name": {}, "f:configMap": {"f:name": {}}}},
        }}}})
    }

    fn shown(set: &FieldSet) -> Vec<String> {
        set.paths().iter().map(Path::to_string).collect()
    }

    #[test]
    fn a_server_side_apply_set_round_trips() {
        let set = FieldSet::parse(&applied()).unwrap();
        assert_eq!(set.to_value(), applied());
        let stored = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<FieldSet>(&stored).unwrap(), set);
    }

    #[test]
    fn members_are_listed_with_readable_paths() {
        let set = FieldSet::parse(&applied())
            .unwrap()
            .descend(&["spec", "template"]);
        assert_eq!(
            shown(&set),
            [
                r#"spec.containers[name="app"]"#,
                r#"spec.containers[name="app"].args"#,
                r#"spec.containers[name="app"].image"#,
                r#"spec.containers[name="app"].name"#,
                r#"spec.containers[name="app"].ports[containerPort=80,protocol="TCP"]"#,
                r#"spec.containers[name="app"].ports[containerPort=80,protocol="TCP"].containerPort"#,
                r#"spec.volumes[name="config"]"#,
                r#"spec.volumes[name="config"].configMap.name"#,
                r#"spec.volumes[name="config"].name"#,
            ]
        );
        let leaves: Vec<_> = set.leaves().iter().map(Path::to_string).collect();
        assert!(!leaves.contains(&r#"spec.volumes[name="config"]"#.to_owned()));
        assert_eq!(leaves.len(), 6);
    }

    #[test]
    fn an_update_set_with_dots_and_set_items_round_trips() {
        let update = json!({"f:metadata": {
            "f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}},
            "f:finalizers": {".": {}, "v:\"example.com/hold\"": {}},
            "f:ownerReferences": {"k:{\"uid\":\"1\"}": {}},
        }});
        let set = FieldSet::parse(&update).unwrap();
        assert_eq!(set.to_value(), update);
        assert!(set.contains(&Path::fields(["metadata", "annotations"])));
        assert!(!set.contains(&Path::fields(["metadata"])));
    }

    #[test]
    fn a_lone_dot_is_a_leaf_and_an_empty_root_is_the_empty_set() {
        let dot = FieldSet::parse(&json!({"f:a": {".": {}}})).unwrap();
        assert_eq!(dot.to_value(), json!({"f:a": {}}));
        assert!(FieldSet::parse(&json!({})).unwrap().is_empty());
        let whole = dot.descend(&["a"]);
        assert_eq!(whole.to_value(), json!({".": {}}));
        assert_eq!(FieldSet::parse(&whole.to_value()).unwrap(), whole);
        assert_eq!(whole.nest(&["a"]), dot);
    }

    #[test]
    fn malformed_trees_say_where() {
        let error = FieldSet::parse(&json!({"f:spec": {"f:replicas": 3}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fieldsV1 at spec.replicas: expected an object, found a number"
        );
        assert!(FieldSet::parse(&json!([])).is_err());
        assert!(FieldSet::parse(&json!(null)).is_err());
        assert!(FieldSet::parse(&json!({"spec": {}})).is_err());
    }

    #[test]
    fn difference_takes_members_not_sub_trees() {
        let both =
            FieldSet::parse(&json!({"f:labels": {".": {}, "f:app": {}, "f:tier": {}}})).unwrap();
        let parent = FieldSet::parse(&json!({"f:labels": {}})).unwrap();
        assert_eq!(
            shown(&both.difference(&parent)),
            ["labels.app", "labels.tier"]
        );
        let app = FieldSet::parse(&json!({"f:labels": {"f:app": {}}})).unwrap();
        assert_eq!(shown(&both.difference(&app)), ["labels", "labels.tier"]);
        assert!(both.difference(&both).is_empty());
    }
}
