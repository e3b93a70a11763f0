//! The metadata of a plan, as the API server judges that of any object.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex::Regex;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::{
    names::{LABEL as MAX_LABEL, SUBDOMAIN as MAX_NAME, is_label, is_subdomain},
    plan::{Violation, ViolationKind},
};

/// Room for all annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The schema of `metadata`.
pub(super) fn schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let schema = settings
        .into_generator()
        .into_root_schema_for::<ObjectMeta>();
    let mut schema = schema.to_value();
    tidy(&mut schema);
    schema
}

/// Leaves what structural schemas have: one type, and no required fields, since
/// those of its parts are checked where they are used.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get("type") {
                let first = types.iter().find(|name| *name != "null").cloned();
                fields.insert("type".to_owned(), first.unwrap_or_default());
            }
            fields.retain(|name, _| name != "required" && name != "format" && name != "default");
            fields.values_mut().for_each(tidy);
        }
        Value::Array(elements) => elements.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Judges metadata that fits its schema.
pub(super) fn judge(metadata: &Value) -> Vec<Violation> {
    let mut faults = Vec::new();
    let mut fault = |path: String, kind, message: String| {
        faults.push(Violation {
            path,
            kind,
            message,
        });
    };
    let text = |name: &str| {
        let text = metadata.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    match text("name") {
        None => fault(
            "metadata.name".to_owned(),
            ViolationKind::Required,
            match text("generateName") {
                Some(_) => "kubectl apply takes no generateName; give the plan a name",
                None => "a plan needs a name",
            }
            .to_owned(),
        ),
        Some(name) => {
            if !is_subdomain(name) {
                fault(
                    "metadata.name".to_owned(),
                    ViolationKind::Invalid,
                    format!(
                        "{name:?} must consist of lower case letters, digits, '-' and '.', begin and end with a letter or digit, and have at most {MAX_NAME} characters"
                    ),
                );
            }
        }
    }
    if let Some(namespace) = text("namespace")
        && !is_label(namespace)
    {
        fault(
            "metadata.namespace".to_owned(),
            ViolationKind::Invalid,
            format!(
                "{namespace:?} must consist of lower case letters, digits and '-', begin and end with a letter or digit, and have at most {MAX_LABEL} characters"
            ),
        );
    }
    for (key, value) in entries(metadata, "labels") {
        let path = format!("metadata.labels[{key}]");
        if !is_qualified(key) {
            fault(
                path,
                ViolationKind::Invalid,
                format!("{key:?} is no name of a label: {QUALIFIED}"),
            );
            continue;
        }
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty() && (value.len() > MAX_LABEL || !NAME.is_match(value)) {
            fault(
                path,
                ViolationKind::Invalid,
                format!(
                    "{value:?} must consist of letters, digits, '-', '_' and '.', begin and end with a letter or digit, and have at most {MAX_LABEL} characters"
                ),
            );
        }
    }
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        size += key.len() + value.as_str().unwrap_or_default().len();
        if !is_qualified(&key.to_lowercase()) {
            fault(
                format!("metadata.annotations[{key}]"),
                ViolationKind::Invalid,
                format!("{key:?} is no name of an annotation: {QUALIFIED}"),
            );
        }
    }
    if size > MAX_ANNOTATIONS {
        fault(
            "metadata.annotations".to_owned(),
            ViolationKind::Invalid,
            format!("must have at most {MAX_ANNOTATIONS} bytes in all, has {size}"),
        );
    }
    faults
}

const QUALIFIED: &str =
    "letters, digits, '-', '_' and '.', up to 63 characters, after a domain and '/' if any";

/// The API server's own rule. It is constant, so one that did not compile would
/// fail every test.
static NAME: LazyLock<Pattern> =
    LazyLock::new(|| Pattern::new(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"));

struct Pattern(Option<Regex>);

impl Pattern {
    fn new(pattern: &str) -> Self {
        Self(Regex::new(pattern).ok())
    }

    fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn is_qualified(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    name.len() <= MAX_LABEL && NAME.is_match(name) && prefix.is_none_or(is_subdomain)
}

fn entries<'a>(metadata: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let entries: Option<&Map<String, Value>> = metadata.get(name).and_then(Value::as_object);
    entries.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lint::schema::{Misfits, judge as fit};
    use serde_json::json;

    #[test]
    fn the_schema_knows_the_fields_and_their_types() {
        let mut misfits = Misfits::default();
        let value = json!({
            "name": "shop", "labels": {"a": 5}, "annotations": [], "finalizers": ["x/y"],
            "ownerReferences": [{"kind": "A", "uid": 7}], "lables": {}
        });
        fit("metadata", &schema(), &value, &mut misfits);
        let wrong: Vec<_> = misfits.wrong.iter().map(|fault| &fault.path).collect();
        assert_eq!(
            wrong,
            [
                "metadata.annotations",
                "metadata.labels[a]",
                "metadata.ownerReferences[0].uid"
            ]
        );
        let unknown: Vec<_> = misfits.unknown.iter().map(|fault| &fault.path).collect();
        assert_eq!(unknown, ["metadata.lables"]);
    }

    #[test]
    fn names_and_keys_are_judged_as_those_of_any_object() {
        let paths = |metadata: Value| -> Vec<String> {
            judge(&metadata).into_iter().map(|f| f.path).collect()
        };
        let good = json!({
            "name": "shop.eu-1", "namespace": "shop",
            "labels": {"app.kubernetes.io/name": "Shop_1", "a": ""},
            "annotations": {"Belay.dev/Abort": "any text"}
        });
        assert_eq!(paths(good), [""; 0]);
        assert_eq!(paths(json!({"generateName": "shop-"})), ["metadata.name"]);
        let bad = json!({
            "name": "Shop", "namespace": "a.b",
            "labels": {"-a": "b", "b": "-b", "a/b/c": "d"},
            "annotations": {"a b": "c"}
        });
        assert_eq!(
            paths(bad),
            [
                "metadata.name",
                "metadata.namespace",
                "metadata.labels[-a]",
                "metadata.labels[a/b/c]",
                "metadata.labels[b]",
                "metadata.annotations[a b]"
            ]
        );
        assert_eq!(paths(json!({})), ["metadata.name"]);
        let large = json!({"name": "a", "annotations": {"a": "x".repeat(MAX_ANNOTATIONS)}});
        assert_eq!(paths(large), ["metadata.annotations"]);
    }
}
