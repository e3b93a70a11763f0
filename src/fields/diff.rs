//! How two pod templates differ: what a revision changed against another, for
//! people.
//!
//! Finds no difference exactly where [`canon::equal`] finds none. Lists whose
//! items have keys are aligned by them; other lists are compared whole. What is
//! shown is cut short, and never the values of environment variables and probe
//! headers, which may be secrets: messages reach people who cannot read the
//! workload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::path::brief_key;
use super::{Literal, Path, PathElement, canon, schema};

/// Characters of one value in a message.
const SHOWN: usize = 80;
/// Fields whose value is not shown where it stands below one of these lists.
const HIDDEN: &[(&str, &str)] = &[("env", "value")];
/// Fields whose content is never shown.
const HIDDEN_WHOLE: &[&str] = &["httpHeaders"];

/// One difference between two pod templates.
///
/// Where only the order of a keyed list differs, `path` is the list and both
/// sides are its key values in order. Shown as
/// `containers[app].image: shop/cart:1 → shop/cart:2`, with long values cut and
/// values that may be secrets left out. `from` and `to` are neither cut nor
/// checked for secrets: what people are to see is made by `to_string`, and the
/// place alone by [`Path::brief`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where, from the template's root.
    pub path: Path,
    /// The value in the first template, if any.
    pub from: Option<Value>,
    /// The value in the second template, if any.
    pub to: Option<Value>,
}

/// The differences from `a` to `b`, both pod templates: maps by name, keyed lists in
/// the order of `a`, then what is new in `b`. None exactly where
/// [`canon::equal`] holds. A map or an item of a list that only one of them has
/// is one change, not one for each field in it.
pub fn diff(a: &Value, b: &Value) -> Vec<Change> {
    let mut walk = Walk::default();
    walk.compare(Some(a), Some(b));
    walk.changes
}

/// At most `most` changes in one line, separated by `; `, and how many there are
/// besides. Empty for no changes.
pub fn summary(changes: &[Change], most: usize) -> String {
    let mut parts: Vec<_> = changes.iter().take(most).map(Change::to_string).collect();
    let rest = changes.len().saturating_sub(most);
    if rest > 0 {
        parts.push(format!("{rest} more"));
    }
    parts.join("; ")
}

#[derive(Default)]
struct Walk {
    at: Path,
    changes: Vec<Change>,
}

impl Walk {
    fn compare(&mut self, a: Option<&Value>, b: Option<&Value>) {
        let a = a.filter(|value| !value.is_null());
        let b = b.filter(|value| !value.is_null());
        match (a, b) {
            (Some(Value::Object(from)), Some(Value::Object(to))) => {
                let names: BTreeSet<_> = from.keys().chain(to.keys()).collect();
                for name in names {
                    self.at.push(PathElement::field(name.as_str()));
                    self.compare(from.get(name), to.get(name));
                    self.at.pop();
                }
            }
            (Some(Value::Array(from)), Some(Value::Array(to))) => {
                match (self.keyed(from), self.keyed(to)) {
                    (Some(from), Some(to)) => self.compare_keyed(&from, &to),
                    _ => self.compare_whole(a, b),
                }
            }
            _ => self.compare_whole(a, b),
        }
    }

    fn compare_whole(&mut self, a: Option<&Value>, b: Option<&Value>) {
        let names = self.at.names();
        let canonical = |value| canon::canonical_at(value, &mut names.clone());
        if a.map(canonical) != b.map(canonical) {
            self.change(a.cloned(), b.cloned());
        }
    }

    fn compare_keyed(&mut self, from: &[Keyed<'_>], to: &[Keyed<'_>]) {
        let find = |items: &[Keyed<'_>]| -> BTreeMap<_, _> {
            items
                .iter()
                .map(|item| (item.key.clone(), item.value.clone()))
                .collect()
        };
        let (old, new) = (find(from), find(to));
        for item in from
            .iter()
            .chain(to.iter().filter(|item| !old.contains_key(&item.key)))
        {
            self.at.push(PathElement::Key(item.key.clone()));
            self.compare(old.get(&item.key), new.get(&item.key));
            self.at.pop();
        }
        if schema::is_unordered(&self.at.names()) {
            return;
        }
        let order = |items: &[Keyed<'_>], others: &BTreeMap<_, _>| -> Vec<Value> {
            items
                .iter()
                .filter(|item| others.contains_key(&item.key))
                .map(|item| Value::String(brief_key(&item.key)))
                .collect()
        };
        let (before, after) = (order(from, &new), order(to, &old));
        if before != after {
            self.change(Some(Value::Array(before)), Some(Value::Array(after)));
        }
    }

    /// The items with their keys, or `None` if the list cannot be aligned.
    fn keyed<'a>(&self, items: &'a [Value]) -> Option<Vec<Keyed<'a>>> {
        let names = schema::list_keys(self.at.last_field()?)?;
        let mut seen = BTreeSet::new();
        items
            .iter()
            .map(|value| {
                let key: BTreeMap<String, Literal> = names
                    .iter()
                    .map(|name| Some(((*name).to_owned(), schema::key_value(value, name)?.into())))
                    .collect::<Option<_>>()?;
                seen.insert(key.clone()).then_some(Keyed { key, value })
            })
            .collect()
    }

    fn change(&mut self, from: Option<Value>, to: Option<Value>) {
        self.changes.push(Change {
            path: self.at.clone(),
            from,
            to,
        });
    }
}

struct Keyed<'a> {
    key: BTreeMap<String, Literal>,
    value: &'a Value,
}

impl Change {
    fn is_hidden(&self) -> bool {
        let names = self.path.names();
        names.iter().any(|name| HIDDEN_WHOLE.contains(name))
            || names
                .windows(2)
                .any(|pair| HIDDEN.contains(&(pair[0], pair[1])))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.brief();
        let shown = |value: &Value| match value {
            // May hold what is hidden below, and says little when cut.
            Value::Object(_) => None,
            Value::Array(items) if items.iter().any(Value::is_object) => None,
            _ if self.is_hidden() => None,
            _ => Some(render(value)),
        };
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => match (shown(from), shown(to)) {
                (Some(from), Some(to)) => write!(f, "{path}: {from} → {to}"),
                _ => write!(f, "{path}: changed"),
            },
            (Some(from), None) => match shown(from) {
                Some(from) => write!(f, "{path}: removed (was {from})"),
                None => write!(f, "{path}: removed"),
            },
            (None, Some(to)) => match shown(to) {
                Some(to) => write!(f, "{path}: added ({to})"),
                None => write!(f, "{path}: added"),
            },
            (None, None) => write!(f, "{path}: unchanged"),
        }
    }
}

/// A value on one line, strings without quotes where that is unambiguous.
fn render(value: &Value) -> String {
    let text = match value {
        Value::String(text) if is_plain(text) => text.clone(),
        _ => canon::sorted_json(value),
    };
    if text.chars().count() <= SHOWN {
        return text;
    }
    let cut: String = text.chars().take(SHOWN - 1).collect();
    format!("{cut}…")
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(container: Value) -> Value {
        json!({"spec": {"containers": [container, {"name": "proxy", "image": "envoy:1"}]}})
    }

    fn shown(a: &Value, b: &Value) -> Vec<String> {
        diff(a, b).iter().map(Change::to_string).collect()
    }

    #[test]
    fn a_changed_image_reads_like_a_sentence() {
        assert_eq!(
            shown(
                &with(json!({"name": "app", "image": "shop/cart:1"})),
                &with(json!({"name": "app", "image": "shop/cart:2"}))
            ),
            ["containers[app].image: shop/cart:1 → shop/cart:2"]
        );
    }

    #[test]
    fn items_are_aligned_by_key_and_additions_named() {
        let a = with(
            json!({"name": "app", "ports": [{"containerPort": 80, "protocol": "TCP"}], "volumeMounts": [{"mountPath": "/a", "name": "a"}]}),
        );
        let mut b = with(
            json!({"name": "app", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 80, "protocol": "UDP"}],
            "volumeMounts": [{"mountPath": "/a", "name": "b", "readOnly": true}]}),
        );
        b["spec"]["volumes"] = json!([{"name": "b", "emptyDir": {}}]);
        b["metadata"] = json!({"annotations": {"a/b": "c"}});
        assert_eq!(
            shown(&a, &b),
            [
                "metadata: added",
                "containers[app].ports[80/TCP].name: added (http)",
                "containers[app].ports[80/UDP]: added",
                "containers[app].volumeMounts[/a].name: a → b",
                "containers[app].volumeMounts[/a].readOnly: added (true)",
                "volumes: added",
            ]
        );
    }

    #[test]
    fn equal_quantities_and_volume_order_are_no_change() {
        let a = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1000m"}}}],
            "volumes": [{"name": "a"}, {"name": "b", "emptyDir": {"sizeLimit": "1Gi"}}]}});
        let b = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": 1}}}],
            "volumes": [{"name": "b", "emptyDir": {"sizeLimit": "1024Mi"}}, {"name": "a"}]}});
        assert_eq!(diff(&a, &b), []);
    }

    #[test]
    fn changed_quantities_are_shown_as_written() {
        let limit = |cpu: &str| with(json!({"name": "app", "resources": {"limits": {"cpu": cpu}}}));
        assert_eq!(
            shown(&limit("500m"), &limit("1")),
            ["containers[app].resources.limits.cpu: 500m → 1"]
        );
    }

    #[test]
    fn a_changed_order_is_a_change_of_the_list() {
        let env = |names: [&str; 2]| {
            with(json!({"name": "app", "env": names.map(|name| json!({"name": name}))}))
        };
        assert_eq!(
            shown(&env(["A", "B"]), &env(["B", "A"])),
            [r#"containers[app].env: ["A","B"] → ["B","A"]"#]
        );
    }

    #[test]
    fn lists_without_keys_are_compared_whole() {
        let args = |args: Value| with(json!({"name": "app", "args": args}));
        assert_eq!(
            shown(&args(json!(["-v"])), &args(json!(["-v", "2"]))),
            [r#"containers[app].args: ["-v"] → ["-v","2"]"#]
        );
        let twice =
            |name: &str| with(json!({"name": "app", "env": [{"name": "A"}, {"name": name}]}));
        assert_eq!(
            shown(&twice("A"), &twice("B")),
            ["containers[app].env: changed"]
        );
    }

    #[test]
    fn values_that_may_be_secret_are_not_shown() {
        let env = |value: &str| {
            with(json!({"name": "app",
            "env": [{"name": "TOKEN", "value": value}],
            "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": value}]}}}))
        };
        let text = shown(&env("hunter2"), &env("hunter3")).join("\n");
        assert_eq!(
            text,
            "containers[app].env[TOKEN].value: changed\ncontainers[app].livenessProbe.httpGet.httpHeaders: changed"
        );
        let added = shown(&with(json!({"name": "app"})), &env("hunter2")).join("\n");
        assert!(
            added.contains("containers[app].env: added") && !added.contains("hunter2"),
            "{added}"
        );
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let labels = |n: usize, value: &str| {
            let labels: serde_json::Map<_, _> =
                (0..n).map(|i| (format!("l{i}"), json!(value))).collect();
            json!({"metadata": {"labels": labels}})
        };
        let changes = diff(&labels(9, "a"), &labels(9, &"ü".repeat(500)));
        assert!(
            changes
                .iter()
                .all(|change| change.to_string().chars().count() < 120)
        );
        let text = summary(&changes, 2);
        assert!(
            text.starts_with("metadata.labels.l0: a → üü") && text.ends_with("; 7 more"),
            "{text}"
        );
        assert_eq!(summary(&changes[..1], 2).matches(';').count(), 0);
        assert_eq!(summary(&[], 2), "");
    }
}
