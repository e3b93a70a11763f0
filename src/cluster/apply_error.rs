//! What a failed apply of a template means.
//!
//! Three answers are told apart: the content is refused, the object moved under
//! us, or nothing can be concluded. Everything that is not known to be one of
//! the first two is the third: a release is never failed by a guess. Pure; what
//! to do about a failure is the caller's business.

use kube::core::Status;

/// What a failed apply, or its dry run, means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyFailure {
    /// The API server does not accept the content, however often it is sent.
    Refused(
        /// Its own words.
        String,
    ),
    /// The object is not the one the write was decided on: read again.
    Conflict,
    /// Says nothing about the content: try again later.
    Undecided(
        /// What happened instead.
        String,
    ),
}

/// The prefixes of a 500 that speaks of the content: structured merge could not
/// read what was sent.
const CONTENT_FAULTS: [&str; 3] = [
    "failed to create typed patch object",
    "failed to create typed live object",
    "failed to convert new object",
];

/// The API server's message for a JSON patch that cannot be applied to what it
/// holds; the failed `test` itself is not named.
const PATCH_DOES_NOT_FIT: &str = "the server rejected our request due to an error in our request";

/// Judges the error of an apply.
#[must_use]
pub fn classify(error: &kube::Error) -> ApplyFailure {
    match error {
        kube::Error::Api(status) => classify_status(status),
        other => ApplyFailure::Undecided(other.to_string()),
    }
}

/// Judges the status that the API server answered an apply with.
#[must_use]
pub fn classify_status(status: &Status) -> ApplyFailure {
    let message = || status.message.clone();
    match status.code {
        409 => ApplyFailure::Conflict,
        422 if names_uid(status) || status.message.starts_with(PATCH_DOES_NOT_FIT) => {
            ApplyFailure::Conflict
        }
        400 if lacks_dry_run(&status.message) => ApplyFailure::Undecided(message()),
        403 if lacks_rights(&status.message) || is_terminating(status) => {
            ApplyFailure::Undecided(message())
        }
        400 | 403 | 422 => ApplyFailure::Refused(message()),
        500 if blames_content(&status.message) => ApplyFailure::Refused(message()),
        _ => ApplyFailure::Undecided(message()),
    }
}

/// The object was deleted and made anew: its uid is not the one we sent.
fn names_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields = causes.map(|cause| cause.field.as_str()).peekable();
    if fields.peek().is_some() {
        return fields.any(|field| field == "metadata.uid");
    }
    status.message.contains("metadata.uid: Invalid value")
}

/// Some webhook of the cluster cannot be asked without side effects. The
/// content itself was not judged.
fn lacks_dry_run(message: &str) -> bool {
    message.starts_with("admission webhook") && message.ends_with("does not support dry run")
}

/// The authorizer's own refusal, as against one by admission: it names the user
/// and the verb. What the operator may not do says nothing about the content.
pub(crate) fn lacks_rights(message: &str) -> bool {
    message
        .split_once("forbidden: User \"")
        .and_then(|(_, rest)| rest.split_once("\" cannot "))
        .is_some_and(|(user, rest)| !user.contains('"') && rest.contains(" resource \""))
}

fn is_terminating(status: &Status) -> bool {
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating")
}

fn blames_content(message: &str) -> bool {
    let message = message
        .strip_prefix("Internal error occurred: ")
        .unwrap_or(message);
    CONTENT_FAULTS
        .iter()
        .any(|prefix| message.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq)]
    enum Is {
        Refused,
        Conflict,
        Undecided,
    }

    fn judge(code: u16, reason: &str, message: &str, cause: Option<(&str, &str)>) -> Is {
        let mut status =
            json!({"status": "Failure", "code": code, "reason": reason, "message": message});
        if let Some((reason, field)) = cause {
            status["details"] =
                json!({"causes": [{"reason": reason, "field": field, "message": "x"}]});
        }
        let status: Status = serde_json::from_value(status).unwrap();
        match classify_status(&status) {
            ApplyFailure::Refused(said) => {
                assert_eq!(said, message, "a refusal keeps the words of the API server");
                Is::Refused
            }
            ApplyFailure::Conflict => Is::Conflict,
            ApplyFailure::Undecided(_) => Is::Undecided,
        }
    }

    #[test]
    fn each_kind_of_failure_is_told_apart() {
        #[rustfmt::skip]
        let table = [
            // The content.
            (Is::Refused, 400, "BadRequest", "admission webhook \"images.acme.dev\" denied the request: image not signed", None),
            (Is::Refused, 403, "Forbidden", "deployments.apps \"cart\" is forbidden: image policy: not allowed", None),
            (Is::Refused, 403, "Forbidden", "admission webhook \"p.acme.dev\" denied the request: forbidden: User \"ann\" is not on call", None),
            (Is::Refused, 422, "Invalid", "Deployment.apps \"cart\" is invalid: spec.template.spec.containers[0].image: Required value", Some(("FieldValueRequired", "spec.template.spec.containers[0].image"))),
            (Is::Refused, 500, "", "failed to create typed patch object (shop/cart; apps/v1, Kind=Deployment): .spec.template.spec.containers[name=\"app\"].imag: field not declared in schema", None),
            (Is::Refused, 500, "InternalError", "Internal error occurred: failed to create typed patch object: errors", None),
            (Is::Refused, 500, "", "failed to create typed live object: duplicate entries for key", None),
            (Is::Refused, 500, "", "failed to convert new object (shop/cart; apps/v1, Kind=Deployment) to smd typed: quantities must match", None),
            // The object.
            (Is::Conflict, 409, "Conflict", "Operation cannot be fulfilled on deployments.apps \"cart\": the object has been modified", None),
            (Is::Conflict, 409, "Conflict", "Operation cannot be fulfilled on deployments.apps \"cart\": uid mismatch", None),
            (Is::Conflict, 422, "Invalid", "Deployment.apps \"cart\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable", Some(("FieldValueInvalid", "metadata.uid"))),
            (Is::Conflict, 422, "Invalid", "Deployment.apps \"cart\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable", None),
            (Is::Conflict, 422, "Invalid", "the server rejected our request due to an error in our request", None),
            // Neither.
            (Is::Undecided, 403, "Forbidden", "deployments.apps \"cart\" is forbidden: User \"system:serviceaccount:belay-system:belay\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"shop\"", None),
            (Is::Undecided, 403, "Forbidden", "deployments.apps \"cart\" is forbidden: being terminated", Some(("NamespaceTerminating", "metadata.namespace"))),
            (Is::Undecided, 400, "BadRequest", "admission webhook \"old.acme.dev\" does not support dry run", None),
            (Is::Undecided, 500, "InternalError", "Internal error occurred: failed calling webhook \"x.acme.dev\": connection refused", None),
            (Is::Undecided, 500, "", "etcdserver: request timed out", None),
            (Is::Undecided, 500, "InternalError", "audit: failed to create typed patch object", None),
            (Is::Undecided, 401, "Unauthorized", "Unauthorized", None),
            (Is::Undecided, 404, "NotFound", "deployments.apps \"cart\" not found", None),
            (Is::Undecided, 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", None),
            (Is::Undecided, 429, "TooManyRequests", "too many requests", None),
            (Is::Undecided, 503, "ServiceUnavailable", "apiserver not ready", None),
            (Is::Undecided, 504, "Timeout", "request did not complete within the allotted timeout", None),
        ];
        for (expected, code, reason, message, cause) in table {
            assert_eq!(
                judge(code, reason, message, cause),
                expected,
                "{code} {message}"
            );
        }
    }

    #[test]
    fn a_refusal_that_only_quotes_the_uid_field_stays_a_refusal() {
        let message = "Deployment.apps \"cart\" is invalid: spec.template.metadata.annotations: \
                       Invalid value: \"metadata.uid: Invalid value\": too long";
        let cause = Some(("FieldValueInvalid", "spec.template.metadata.annotations"));
        assert_eq!(judge(422, "Invalid", message, cause), Is::Refused);
    }

    #[test]
    fn errors_that_are_no_answer_decide_nothing() {
        let error = kube::Error::LinesCodecMaxLineLengthExceeded;
        assert!(matches!(classify(&error), ApplyFailure::Undecided(_)));
    }
}
