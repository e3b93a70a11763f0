//! The form of a partial pod template, as far as it can be judged without the
//! workload. What the fields below mean, the API server says in a dry run.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    decode::{not, quoted},
    faults::Faults,
};
use crate::api::GROUP;

const MAX_CONTAINERS: usize = 64;
const MAX_CONTAINER_NAME: usize = 63;
const MAX_LABELS: usize = 256;

/// Judges the template at `path`.
pub(super) fn check_template(path: &str, template: &Value, faults: &mut Faults) {
    let before = faults.len();
    let mut changes = false;
    let Some(fields) = object(path, template, faults) else {
        return;
    };
    if let Some(metadata) = set(fields, "metadata") {
        changes |= check_metadata(&format!("{path}.metadata"), metadata, faults);
    }
    if let Some(spec) = set(fields, "spec") {
        changes |= check_spec(&format!("{path}.spec"), spec, faults);
    }
    if !changes && faults.len() == before {
        faults.invalid(
            path,
            "changes nothing; set a field, such as spec.containers[].image, or leave the template out to follow the workload",
        );
    }
}

fn check_metadata(path: &str, metadata: &Value, faults: &mut Faults) -> bool {
    let Some(fields) = object(path, metadata, faults) else {
        return false;
    };
    let mut changes = false;
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("{path}.{field}");
        if !matches!(field.as_str(), "labels" | "annotations") {
            faults.forbidden(path, "only labels and annotations can be set on the pods");
            continue;
        }
        let Some(entries) = object(&path, value, faults) else {
            continue;
        };
        if entries.len() > MAX_LABELS {
            faults.invalid(&path, format!("must have at most {MAX_LABELS} entries"));
        }
        for (key, value) in entries.iter().take(MAX_LABELS) {
            changes |= !value.is_null();
            let path = format!("{path}[{key}]");
            if key
                .strip_prefix(GROUP)
                .is_some_and(|rest| rest.starts_with('/'))
            {
                faults.forbidden(path, format!("{GROUP}/ is kept for Belay itself"));
            } else if !value.is_string() && !value.is_null() {
                faults.invalid(path, not("a string", value));
            }
        }
    }
    changes
}

fn check_spec(path: &str, spec: &Value, faults: &mut Faults) -> bool {
    let Some(fields) = object(path, spec, faults) else {
        return false;
    };
    let mut changes = false;
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        if matches!(field.as_str(), "containers" | "initContainers") {
            changes |= check_containers(&format!("{path}.{field}"), value, faults);
        } else {
            changes = true;
        }
    }
    changes
}

fn check_containers(path: &str, containers: &Value, faults: &mut Faults) -> bool {
    let Value::Array(containers) = containers else {
        faults.invalid(path, not("a list", containers));
        return false;
    };
    if containers.len() > MAX_CONTAINERS {
        faults.invalid(path, format!("must have at most {MAX_CONTAINERS} elements"));
    }
    let mut changes = false;
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate().take(MAX_CONTAINERS) {
        let path = format!("{path}[{index}]");
        let Some(fields) = object(&path, container, faults) else {
            continue;
        };
        changes |= fields
            .iter()
            .any(|(field, value)| field != "name" && !value.is_null());
        let path = format!("{path}.name");
        match set(fields, "name") {
            None => faults.required(path, "names the container of the workload to change"),
            Some(Value::String(name)) if name.is_empty() => {
                faults.invalid(path, "must not be empty");
            }
            Some(Value::String(name)) if name.chars().count() > MAX_CONTAINER_NAME => {
                faults.invalid(
                    path,
                    format!("must have at most {MAX_CONTAINER_NAME} characters"),
                );
            }
            Some(Value::String(name)) => {
                if !names.insert(name) {
                    faults.duplicate(
                        path,
                        format!("{} stands in this list already", quoted(name)),
                    );
                }
            }
            Some(other) => faults.invalid(path, not("a string", other)),
        }
    }
    changes
}

/// Null is the same as absent, as for the API server.
fn set<'a>(fields: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    fields.get(field).filter(|value| !value.is_null())
}

fn object<'a>(path: &str, value: &'a Value, faults: &mut Faults) -> Option<&'a Map<String, Value>> {
    let fields = value.as_object();
    if fields.is_none() {
        faults.invalid(path, not("an object", value));
    }
    fields
}
