//! A structural schema against a value, as the API server judges it.
//!
//! Covers what structural schemas may say and no more: `$ref` and the like are
//! not among it. The rules in CEL are judged elsewhere.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value};

use crate::plan::{Violation, ViolationKind};

/// What does not fit the schema.
#[derive(Debug, Default)]
pub(super) struct Misfits {
    /// Values that are not as the schema wants them.
    pub(super) wrong: Vec<Violation>,
    /// Fields that the schema does not know, which the API server refuses before
    /// it looks at anything else.
    pub(super) unknown: Vec<Violation>,
}

/// The value as it reaches the rules: nulls that say nothing are left out, and
/// absent fields have their defaults.
pub(super) fn completed(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut completed = Map::new();
            for (name, value) in fields {
                match below(schema, name) {
                    Some(_) if value.is_null() => {}
                    Some(inner) => {
                        completed.insert(name.clone(), self::completed(inner, value));
                    }
                    None => {
                        completed.insert(name.clone(), value.clone());
                    }
                }
            }
            for (name, inner) in properties(schema) {
                if let (false, Some(default)) = (completed.contains_key(name), inner.get("default"))
                {
                    completed.insert(name.clone(), self::completed(inner, default));
                }
            }
            Value::Object(completed)
        }
        Value::Array(elements) => match schema.get("items") {
            Some(inner) => elements
                .iter()
                .map(|element| self::completed(inner, element))
                .collect(),
            None => value.clone(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Judges the value at `path`.
pub(super) fn judge(path: &str, schema: &Value, value: &Value, misfits: &mut Misfits) {
    let mut wrong = |kind, message: String| {
        misfits.wrong.push(Violation {
            path: path.to_owned(),
            kind,
            message,
        });
    };
    if let Some(wanted) = type_misfit(schema, value) {
        wrong(ViolationKind::Invalid, format!("must be {wanted}"));
        return;
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let text = format!("{value}: supported values: {}", allowed.join(", "));
        wrong(ViolationKind::NotSupported, text);
    }
    for message in bounds(schema, value) {
        wrong(ViolationKind::Invalid, message);
    }
    match value {
        Value::Object(fields) => judge_fields(path, schema, fields, misfits),
        Value::Array(elements) => judge_elements(path, schema, elements, misfits),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn judge_fields(path: &str, schema: &Value, fields: &Map<String, Value>, misfits: &mut Misfits) {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            misfits.wrong.push(Violation {
                path: join(path, name),
                kind: ViolationKind::Required,
                message: "must be set".to_owned(),
            });
        }
    }
    let is_map = schema.get("additionalProperties").is_some();
    for (name, value) in fields {
        let inner = below(schema, name);
        let path = if is_map {
            format!("{path}[{name}]")
        } else {
            join(path, name)
        };
        match inner {
            Some(inner) => judge(&path, inner, value, misfits),
            None if is_open(schema) => {}
            None => misfits.unknown.push(Violation {
                path,
                kind: ViolationKind::Forbidden,
                message: unknown(schema, name),
            }),
        }
    }
}

fn judge_elements(path: &str, schema: &Value, elements: &[Value], misfits: &mut Misfits) {
    if let Some(inner) = schema.get("items") {
        for (index, element) in elements.iter().enumerate() {
            judge(&format!("{path}[{index}]"), inner, element, misfits);
        }
    }
    if schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set") {
        let mut seen = BTreeSet::new();
        for (index, element) in elements.iter().enumerate() {
            if !seen.insert(element.to_string()) {
                misfits.wrong.push(Violation {
                    path: format!("{path}[{index}]"),
                    kind: ViolationKind::Duplicate,
                    message: format!("{element} stands in this list already"),
                });
            }
        }
    }
}

/// The name of the type that should have stood there, if another stands there.
fn type_misfit(schema: &Value, value: &Value) -> Option<&'static str> {
    if flag(schema, "x-kubernetes-int-or-string") {
        let fits = value.is_string() || is_integer(value);
        return (!fits).then_some("a whole number or a string");
    }
    if value.is_null() && flag(schema, "nullable") {
        return None;
    }
    let (fits, name) = match schema.get("type").and_then(Value::as_str)? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (is_integer(value), "a whole number"),
        "number" => (value.is_number(), "a number"),
        _ => return None,
    };
    (!fits).then_some(name)
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

/// What is too long, too large, too many or of another form.
fn bounds(schema: &Value, value: &Value) -> Vec<String> {
    let number = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let count = |keyword: &str| {
        let bound = number(keyword).filter(|bound| *bound >= 0.0)?;
        // Bounds are small whole numbers.
        format!("{bound:.0}").parse::<usize>().ok()
    };
    let mut found = Vec::new();
    let mut sized = |length: usize, least: &str, most: &str, of: &str| {
        if let Some(least) = count(least).filter(|least| length < *least) {
            found.push(format!("must have at least {least} {of}, has {length}"));
        }
        if let Some(most) = count(most).filter(|most| length > *most) {
            found.push(format!("must have at most {most} {of}, has {length}"));
        }
    };
    match value {
        Value::String(text) => {
            sized(text.chars().count(), "minLength", "maxLength", "characters");
            let pattern = schema.get("pattern").and_then(Value::as_str);
            if let Some(pattern) = pattern.filter(|pattern| !matches(pattern, text)) {
                found.push(format!("must match {pattern}"));
            }
        }
        Value::Array(elements) => sized(elements.len(), "minItems", "maxItems", "elements"),
        Value::Object(fields) => sized(fields.len(), "minProperties", "maxProperties", "entries"),
        Value::Number(value) => {
            let value = value.as_f64().unwrap_or_default();
            if let Some(least) = number("minimum").filter(|least| value < *least) {
                found.push(format!("must be at least {least}, is {value}"));
            }
            if let Some(most) = number("maximum").filter(|most| value > *most) {
                found.push(format!("must be at most {most}, is {value}"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    found
}

/// A pattern that this program cannot read refuses nothing: the API server
/// would not have taken the schema.
fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).map_or(true, |regex| regex.is_match(text))
}

fn unknown(schema: &Value, name: &str) -> String {
    const LIKE: usize = 2;
    let close = properties(schema)
        .map(|(known, _)| {
            (
                strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase()),
                known,
            )
        })
        .filter(|(distance, known)| *distance <= LIKE && *distance < known.len())
        .min();
    match close {
        Some((_, known)) => format!("there is no such field; is {known} meant?"),
        None => {
            let known: Vec<&str> = properties(schema).map(|(name, _)| name.as_str()).collect();
            match known.as_slice() {
                [] => "there is no such field".to_owned(),
                known => format!("there is no such field (there are: {})", known.join(", ")),
            }
        }
    }
}

/// The schema of a field.
fn below<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let property = schema.get("properties").and_then(|all| all.get(name));
    property.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|inner| inner.is_object())
    })
}

/// Whether fields that are not named are let through.
fn is_open(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-preserve-unknown-fields")
        || flag(schema, "additionalProperties")
        || flag(schema, "x-kubernetes-embedded-resource")
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten()
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn misfits(schema: &Value, value: &Value) -> (Vec<String>, Vec<String>) {
        let mut misfits = Misfits::default();
        judge("spec", schema, value, &mut misfits);
        let text = |list: &[Violation]| list.iter().map(ToString::to_string).collect();
        (text(&misfits.wrong), text(&misfits.unknown))
    }

    #[test]
    fn every_keyword_of_a_structural_schema_is_judged() {
        for (schema, good, bad, message) in [
            (
                json!({"type": "object"}),
                json!({}),
                json!([]),
                "must be an object",
            ),
            (
                json!({"type": "array"}),
                json!([]),
                json!({}),
                "must be a list",
            ),
            (
                json!({"type": "string"}),
                json!("a"),
                json!(5),
                "must be a string",
            ),
            (
                json!({"type": "boolean"}),
                json!(true),
                json!("yes"),
                "must be true or false",
            ),
            (
                json!({"type": "integer"}),
                json!(5),
                json!(5.5),
                "must be a whole number",
            ),
            (
                json!({"type": "string", "nullable": true}),
                json!(null),
                json!(1),
                "must be a string",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%$"}),
                json!(5),
                json!("5"),
                "must match ^[0-9]+%$",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!("5"),
                json!(true),
                "must be a whole number or a string",
            ),
            (
                json!({"minimum": 1.0}),
                json!(1),
                json!(0),
                "must be at least 1, is 0",
            ),
            (
                json!({"maximum": 9.0}),
                json!(9),
                json!(10),
                "must be at most 9, is 10",
            ),
            (
                json!({"minLength": 1}),
                json!("a"),
                json!(""),
                "must have at least 1 characters, has 0",
            ),
            (
                json!({"maxLength": 1}),
                json!("ä"),
                json!("ab"),
                "must have at most 1 characters, has 2",
            ),
            (
                json!({"minItems": 1}),
                json!([1]),
                json!([]),
                "must have at least 1 elements, has 0",
            ),
            (
                json!({"maxItems": 1}),
                json!([1]),
                json!([1, 1]),
                "must have at most 1 elements, has 2",
            ),
            (
                json!({"maxProperties": 1, "additionalProperties": true}),
                json!({"a": 1}),
                json!({"a": 1, "b": 1}),
                "must have at most 1 entries, has 2",
            ),
        ] {
            assert_eq!(misfits(&schema, &good), (vec![], vec![]), "{schema}");
            let expected = format!("spec: Invalid value: {message}");
            assert_eq!(misfits(&schema, &bad), (vec![expected], vec![]), "{schema}");
        }
        let (wrong, _) = misfits(&json!({"enum": ["a", "b"]}), &json!("c"));
        assert_eq!(
            wrong,
            [r#"spec: Unsupported value: "c": supported values: "a", "b""#]
        );
        let set = json!({"x-kubernetes-list-type": "set", "items": {"type": "string"}});
        let (wrong, _) = misfits(&set, &json!(["a", "b", "a"]));
        assert_eq!(
            wrong,
            [r#"spec[2]: Duplicate value: "a" stands in this list already"#]
        );
    }

    #[test]
    fn a_field_that_is_not_known_is_told_with_the_one_that_may_be_meant() {
        let schema = json!({"properties": {
            "bakeTime": {"type": "string"},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "labels": {"additionalProperties": {"type": "string"}}
        }, "required": ["open"]});
        let value = json!({"baketime": "5s", "colour": 1, "labels": {"a/b": 5}});
        let (wrong, unknown) = misfits(&schema, &value);
        assert_eq!(
            wrong,
            [
                "spec.open: Required value: must be set",
                "spec.labels[a/b]: Invalid value: must be a string"
            ]
        );
        assert_eq!(
            unknown,
            [
                "spec.baketime: Forbidden: there is no such field; is bakeTime meant?",
                "spec.colour: Forbidden: there is no such field (there are: bakeTime, labels, open)",
            ]
        );
        assert_eq!(
            misfits(&schema, &json!({"open": {"any": [1]}})),
            (vec![], vec![])
        );
    }

    #[test]
    fn nulls_are_absent_and_absent_fields_have_their_defaults() {
        let schema = json!({"properties": {
            "limits": {"default": {}, "properties": {"restarts": {"default": 3}}},
            "name": {"type": "string"},
            "labels": {"additionalProperties": {"type": "string"}},
            "open": {"x-kubernetes-preserve-unknown-fields": true}
        }});
        let value =
            json!({"limits": null, "name": null, "labels": {"a": null}, "open": {"b": null}});
        assert_eq!(
            completed(&schema, &value),
            json!({"limits": {"restarts": 3}, "labels": {}, "open": {"b": null}})
        );
    }
}
