//! Admission reviews on the wire: what is understood, and how answers look.
//!
//! A review is read twice: loosely for what an answer must echo, then strictly.
//! So a fault further in never costs the uid, without which the API server
//! shows its users an internal error instead of the reason. Nothing in here
//! knows what a plan is; whether it is accepted is decided in
//! [`super::handlers`].

use std::fmt;

use axum::http::StatusCode;
use k8s_openapi::{ByteString, api::authentication::v1::UserInfo};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::warning;
use crate::plan::{Violation, ViolationKind, Violations};

/// The one version of reviews that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of a review.
pub const KIND: &str = "AdmissionReview";

/// What came instead of a review that can be judged.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// There is nobody to answer: no review, or one without a uid.
    Http(StatusCode, String),
    /// There is a uid, so the answer is a review.
    Answered(Box<Review>),
}

/// What an answer repeats from the review it answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Echo {
    api_version: String,
    kind: String,
    uid: String,
}

/// What the API server asks about.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) kind: GroupVersionKind,
    #[serde(default)]
    pub(crate) sub_resource: Option<String>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) user_info: UserInfo,
    #[serde(default)]
    pub(crate) object: Option<Value>,
    #[serde(default)]
    pub(crate) old_object: Option<Value>,
    #[serde(default)]
    pub(crate) dry_run: Option<bool>,
}

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The object in question, as messages name it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    kind: GroupVersionKind,
    name: String,
}

/// A review with its answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    api_version: String,
    kind: String,
    response: Response,
}

/// The answer to a review.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// What a handler decided.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The request may pass, changed by the patch where it is not empty.
    Allowed {
        patch: json_patch::Patch,
        warnings: Vec<String>,
    },
    /// The request may not pass.
    Denied {
        status: Box<Status>,
        warnings: Vec<String>,
    },
}

/// Reads the body of a request.
///
/// # Errors
/// What to answer instead, where it is no v1 review that can be judged.
pub(crate) fn read(body: &[u8]) -> Result<(Echo, Request), Unusable> {
    let refuse = |message: String| Unusable::Http(StatusCode::BAD_REQUEST, message);
    if body.is_empty() {
        return Err(refuse("the body is empty: send an AdmissionReview".into()));
    }
    let mut review: Value = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return Err(unreadable(body, &error)),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (Some(api_version), Some(kind)) = (text(&review["apiVersion"]), text(&review["kind"]))
    else {
        return Err(refuse(
            "the body is no AdmissionReview: apiVersion and kind must be strings".into(),
        ));
    };
    let uid = match review.pointer("/request/uid") {
        Some(Value::String(uid)) if !uid.is_empty() => uid.clone(),
        _ => {
            return Err(refuse(format!(
                "{kind} of {api_version} has no request.uid: there is nothing to answer"
            )));
        }
    };
    let echo = Echo {
        api_version,
        kind,
        uid,
    };
    if let Some(message) = echo.not_spoken() {
        return Err(echo.fault(&message));
    }
    let request = review
        .get_mut("request")
        .map(Value::take)
        .unwrap_or_default();
    match serde_path_to_error::deserialize::<_, Request>(request) {
        Ok(request) => Ok((echo, request)),
        Err(error) => Err(echo.fault(&format!(
            "the review cannot be read at request.{}: {}",
            error.path(),
            error.inner()
        ))),
    }
}

/// A body that is no JSON, or JSON nested deeper than is read. The second kind
/// can come from a user's object, so its uid is dug out for a proper answer.
fn unreadable(body: &[u8], error: &serde_json::Error) -> Unusable {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outline {
        api_version: String,
        kind: String,
        request: Uid,
    }
    #[derive(Deserialize)]
    struct Uid {
        uid: String,
    }
    match serde_json::from_slice::<Outline>(body) {
        Ok(outline) => Echo {
            api_version: outline.api_version,
            kind: outline.kind,
            uid: outline.request.uid,
        }
        .fault(&format!("the object cannot be read: {error}")),
        Err(_) => Unusable::Http(
            StatusCode::BAD_REQUEST,
            format!("the body is not valid JSON: {error}"),
        ),
    }
}

impl Echo {
    fn not_spoken(&self) -> Option<String> {
        (self.api_version != API_VERSION || self.kind != KIND).then(|| {
            format!(
                "{} of {} is not supported: send an {KIND} of {API_VERSION} \
                 (admissionReviewVersions: [v1] in the webhook configuration)",
                self.kind, self.api_version
            )
        })
    }

    fn fault(self, message: &str) -> Unusable {
        let verdict = Verdict::malformed(message);
        Unusable::Answered(Box::new(self.answer(verdict)))
    }

    /// The review that carries a verdict back.
    pub(crate) fn answer(self, verdict: Verdict) -> Review {
        let (allowed, status, patch, warnings) = match verdict {
            Verdict::Allowed { patch, warnings } => (true, None, patch, warnings),
            Verdict::Denied { status, warnings } => {
                (false, Some(*status), json_patch::Patch::default(), warnings)
            }
        };
        // An empty patch would be valid, but makes the API server decode the
        // object once more for nothing.
        let patch = (!patch.0.is_empty())
            .then(|| serde_json::to_vec(&patch).ok())
            .flatten()
            .map(ByteString);
        Review {
            api_version: self.api_version,
            kind: self.kind,
            response: Response {
                uid: self.uid,
                allowed,
                status,
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                warnings: warning::fit(&warnings),
            },
        }
    }
}

impl Request {
    /// The object as messages name it. A name may not be there yet: then it is
    /// the prefix of the one that will be generated.
    pub(crate) fn subject(&self) -> Subject {
        let from = |object: &Option<Value>, field: &str| {
            let name = object.as_ref()?.get("metadata")?.get(field)?.as_str()?;
            (!name.is_empty()).then(|| name.to_owned())
        };
        let name = from(&self.object, "name")
            .or_else(|| self.name.clone().filter(|name| !name.is_empty()))
            .or_else(|| from(&self.old_object, "name"))
            .or_else(|| from(&self.object, "generateName"))
            .unwrap_or_default();
        Subject {
            kind: self.kind.clone(),
            name,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.kind)?;
        if !self.kind.group.is_empty() {
            write!(f, ".{}", self.kind.group)?;
        }
        write!(f, " {:?}", self.name)
    }
}

impl Verdict {
    /// Nothing to say against it.
    pub(crate) fn allowed() -> Self {
        Self::Allowed {
            patch: json_patch::Patch::default(),
            warnings: Vec::new(),
        }
    }

    /// The object has faults. The message names all of them, as the API server
    /// itself does; the causes let kubectl show them one on a line.
    pub(crate) fn invalid(subject: &Subject, faults: &Violations, warnings: Vec<String>) -> Self {
        let mut list: Vec<String> = faults.as_slice().iter().map(ToString::to_string).collect();
        let list = match list.len() {
            1 => list.remove(0),
            _ => format!("[{}]", list.join(", ")),
        };
        let causes = faults.as_slice().iter().map(|fault| StatusCause {
            reason: cause(fault.kind).to_owned(),
            message: without_path(fault),
            field: fault.path.clone(),
        });
        let details = StatusDetails {
            name: subject.name.clone(),
            group: subject.kind.group.clone(),
            kind: subject.kind.kind.clone(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        };
        let status = Status::failure(&format!("{subject} is invalid: {list}"), "Invalid")
            .with_code(422)
            .with_details(details);
        Self::Denied {
            status: Box::new(status),
            warnings,
        }
    }

    /// The review itself has a fault.
    pub(crate) fn malformed(message: &str) -> Self {
        Self::Denied {
            status: Box::new(Status::failure(message, "BadRequest").with_code(400)),
            warnings: Vec::new(),
        }
    }

    /// Whether the request may pass.
    pub(crate) const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

/// The machine-readable form of a kind of fault, as the API server spells it.
const fn cause(kind: ViolationKind) -> &'static str {
    match kind {
        ViolationKind::Required => "FieldValueRequired",
        ViolationKind::Invalid => "FieldValueInvalid",
        ViolationKind::Duplicate => "FieldValueDuplicate",
        ViolationKind::NotSupported => "FieldValueNotSupported",
        ViolationKind::Forbidden | ViolationKind::NotAvailable => "FieldValueForbidden",
        ViolationKind::NotFound => "FieldValueNotFound",
    }
}

/// A cause has its field beside the message, and clients put them together.
fn without_path(fault: &Violation) -> String {
    let text = fault.to_string();
    match text.strip_prefix(&format!("{}: ", fault.path)) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}
