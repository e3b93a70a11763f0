//! What the mutating webhook makes of a plan: defaults for absent values, the
//! finalizer, and the annotations that users cannot set.
//!
//! Pure, and its own output gives nothing more to do. It changes no value that
//! a user set in the spec, and judges none.

use serde_json::{Map, Value, json};

use super::{Plan, digest::content_digest};
use crate::api::{FINALIZER, RELEASE_DIGEST, RELEASE_GENERATION, REQUESTED_BY};

/// Default of `spec.progressDeadline`.
pub(super) const PROGRESS_DEADLINE: &str = "10m";
/// Default of `spec.bakeTime`.
pub(super) const BAKE_TIME: &str = "0s";
/// Default of `spec.failFast.restarts`.
pub(super) const RESTARTS: i32 = 3;
/// Default of `spec.retry.maxRetries`.
pub(super) const MAX_RETRIES: i32 = 8;
/// Default of `spec.revisionHistoryLimit`.
pub(super) const REVISION_HISTORY_LIMIT: i32 = 10;

/// What is to be changed on the object of a request, as a JSON patch; none if
/// nothing is. For the arguments see [`completed`].
#[must_use]
pub fn defaults_patch(
    object: &Value,
    old: Option<&Value>,
    user: &str,
) -> Option<json_patch::Patch> {
    let patch = json_patch::diff(object, &completed(object, old, user));
    (!patch.0.is_empty()).then_some(patch)
}

/// What sets the release generation of a stored object right, as a JSON patch;
/// none if it is. For content that was stored while the webhook was away.
#[must_use]
pub fn generation_patch(object: &Value) -> Option<json_patch::Patch> {
    let json_patch::Patch(mut operations) = defaults_patch(object, Some(object), "")?;
    operations.retain(|operation| {
        let path = operation.path().to_string();
        path == "/metadata/annotations" || path.starts_with("/metadata/annotations/")
    });
    (!operations.is_empty()).then_some(json_patch::Patch(operations))
}

/// The object of a create (`old` is none) or update request with all that
/// belongs to it; `user` is who sent the request.
#[must_use]
pub fn completed(object: &Value, old: Option<&Value>, user: &str) -> Value {
    let mut completed = object.clone();
    let Some(root) = completed.as_object_mut() else {
        return completed;
    };
    let deleting = object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null());
    let unchanged = old.is_some_and(|old| old.get("spec") == object.get("spec"));
    // A spec that stays as it is must not look changed to the rules for
    // changes, so that old plans can be labelled and finished.
    if !deleting
        && !unchanged
        && let Some(spec) = root.get_mut("spec").and_then(Value::as_object_mut)
    {
        default_spec(spec);
    }
    let marks = marks(root.get("spec").unwrap_or(&Value::Null), old, user);
    let metadata = root.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        if !deleting {
            add_finalizer(metadata);
        }
        set_annotations(metadata, marks);
    }
    completed
}

fn default_spec(spec: &mut Map<String, Value>) {
    let components = spec.get_mut("components").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten() {
        let name = component.pointer("/workload/name").cloned();
        if let (Some(fields), Some(name @ Value::String(_))) = (component.as_object_mut(), name) {
            set_absent(fields, "name", name);
        }
    }
    set_absent(spec, "strategy", json!({"rolling": {}}));
    set_absent(spec, "progressDeadline", json!(PROGRESS_DEADLINE));
    set_absent(spec, "bakeTime", json!(BAKE_TIME));
    set_absent(spec, "failFast", json!({}));
    set_absent(spec, "onFailure", json!("Rollback"));
    set_absent(spec, "paused", json!(false));
    set_absent(spec, "deletionPolicy", json!("Rollback"));
    set_absent(spec, "retry", json!({}));
    set_absent(spec, "revisionHistoryLimit", json!(REVISION_HISTORY_LIMIT));
    if let Some(fail_fast) = spec.get_mut("failFast").and_then(Value::as_object_mut) {
        set_absent(fail_fast, "restarts", json!(RESTARTS));
    }
    if let Some(retry) = spec.get_mut("retry").and_then(Value::as_object_mut) {
        set_absent(retry, "maxRetries", json!(MAX_RETRIES));
    }
}

fn set_absent(fields: &mut Map<String, Value>, field: &str, value: Value) {
    if fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), value);
    }
}

fn add_finalizer(metadata: &mut Map<String, Value>) {
    match metadata.get_mut("finalizers") {
        Some(Value::Array(finalizers)) => {
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                finalizers.push(json!(FINALIZER));
            }
        }
        _ => {
            metadata.insert("finalizers".to_owned(), json!([FINALIZER]));
        }
    }
}

/// Values of the annotations that users cannot set; none where there must be no
/// such annotation.
struct Marks {
    generation: Option<String>,
    digest: Option<String>,
    requested_by: Option<String>,
}

fn set_annotations(metadata: &mut Map<String, Value>, marks: Marks) {
    let marks = [
        (RELEASE_GENERATION, marks.generation),
        (RELEASE_DIGEST, marks.digest),
        (REQUESTED_BY, marks.requested_by),
    ];
    let some = marks.iter().any(|(_, value)| value.is_some());
    if !metadata.get("annotations").is_some_and(Value::is_object) {
        if !some {
            return;
        }
        metadata.insert("annotations".to_owned(), json!({}));
    }
    let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for (name, value) in marks {
        match value {
            Some(value) => annotations.insert(name.to_owned(), Value::String(value)),
            None => annotations.remove(name),
        };
    }
}

fn marks(spec: &Value, old: Option<&Value>, user: &str) -> Marks {
    let digest = content_digest(spec);
    let Some(old) = old else {
        return Marks {
            generation: Some("1".to_owned()),
            digest: Some(digest),
            requested_by: Some(user.to_owned()),
        };
    };
    let annotation = |name| {
        let annotations = old.pointer("/metadata/annotations")?;
        annotations.get(name)?.as_str().map(ToOwned::to_owned)
    };
    let old_spec = old.get("spec").unwrap_or(&Value::Null);
    if old_spec == spec && Plan::parse(spec).is_err() {
        // No release comes of it, so there is nothing to number.
        return Marks {
            generation: annotation(RELEASE_GENERATION),
            digest: annotation(RELEASE_DIGEST),
            requested_by: annotation(REQUESTED_BY),
        };
    }
    let old_digest = annotation(RELEASE_DIGEST);
    let generation = next_generation(old, &digest, old_digest.as_deref());
    let requested_by = if content_digest(old_spec) != digest {
        Some(user.to_owned())
    } else if old_digest.is_none_or(|old_digest| old_digest == digest) {
        annotation(REQUESTED_BY)
    } else {
        // The content came while the webhook was away. Who brought it is not
        // known, and it is neither this user nor the one before.
        None
    };
    Marks {
        generation: Some(generation.to_string()),
        digest: Some(digest),
        requested_by,
    }
}

/// The number for content of this digest. Where the stored pair is not whole,
/// because the webhook was away, what the status says was judged stands in for
/// it, so that the number never goes back.
fn next_generation(old: &Value, digest: &str, old_digest: Option<&str>) -> i64 {
    let annotated = old
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(RELEASE_GENERATION)?.as_str())
        .and_then(|number| number.parse::<i64>().ok())
        .filter(|number| *number >= 1);
    let status = |field| old.get("status").and_then(|status| status.get(field));
    let judged = status("observedReleaseGeneration")
        .and_then(Value::as_i64)
        .filter(|number| *number >= 1);
    let judged_digest = status("observedContent").and_then(Value::as_str);
    let same = match (annotated, judged) {
        (Some(_), _) => old_digest == Some(digest),
        (None, Some(_)) => judged_digest == Some(digest),
        (None, None) => return 1,
    };
    let number = annotated.max(judged).unwrap_or(1);
    if same {
        number
    } else {
        number.saturating_add(1)
    }
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;
