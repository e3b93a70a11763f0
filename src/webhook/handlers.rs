//! What the webhooks answer to a review that could be read.
//!
//! `/mutate` is a pure function of the review and the time. `/validate` repeats its checks,
//! because another webhook may have changed the object in between, and adds
//! what only the cluster can tell. An operation that there is nothing to say
//! about is allowed: only a fault is a reason to deny.

use serde_json::Value;

use super::{
    Webhook, checks, orders,
    review::{Operation, Request, Verdict},
};
use crate::{
    api::{GROUP, ReleasePlan, StoredPlan, VERSION},
    plan::{self, Plan, Violations},
};

/// What is to be judged.
enum Case<'a> {
    /// Nothing: not a plan, or not an operation that changes one.
    Pass,
    /// A plan is written: what is stored now, if anything, and what will be.
    Write(Option<&'a Value>, &'a Value),
}

/// Answers `/mutate`.
pub(super) fn mutate(webhook: &Webhook, request: &Request) -> Verdict {
    let (old, object) = match case(request) {
        Err(message) => return Verdict::malformed(&message),
        Ok(Case::Pass) => return Verdict::allowed(),
        Ok(Case::Write(old, object)) => (old, object),
    };
    let user = request.user_info.username.as_deref().unwrap_or_default();
    // The object is judged as it will be stored, so that nothing is refused
    // that the patch puts right.
    let mut completed = plan::completed(object, old, user);
    plan::stamp_orders(&mut completed, old, user, webhook.clock.now());
    match accept(webhook, request, old, &completed) {
        Ok(_) => Verdict::Allowed {
            patch: json_patch::diff(object, &completed),
            warnings: Vec::new(),
        },
        Err(verdict) => verdict,
    }
}

/// Answers `/validate`.
pub(super) async fn validate(webhook: &Webhook, request: &Request) -> Verdict {
    let (old, object) = match case(request) {
        Err(message) => return Verdict::malformed(&message),
        Ok(Case::Pass) => return Verdict::allowed(),
        Ok(Case::Write(old, object)) => (old, object),
    };
    match accept(webhook, request, old, object) {
        Ok((old, new)) => look_up(webhook, request, old.as_ref(), &new).await,
        Err(verdict) => verdict,
    }
}

/// Judges the object by itself and against the one it replaces.
///
/// # Errors
/// The denial.
fn accept(
    webhook: &Webhook,
    request: &Request,
    old: Option<&Value>,
    object: &Value,
) -> Result<(Option<StoredPlan>, StoredPlan), Verdict> {
    let read = |value, place| decode(value, place).map_err(|e| Verdict::malformed(&e));
    let new = read(object, "request.object")?;
    let old = old.map(|old| read(old, "request.oldObject")).transpose()?;
    let judged = match &old {
        None => plan::check_create(&new),
        Some(old) => plan::check_change(old, &new, is_operator(webhook, request)),
    };
    match judged {
        Ok(()) => Ok((old, new)),
        Err(faults) => Err(Verdict::invalid(&request.subject(), &faults, Vec::new())),
    }
}

/// Whether the operator itself asks.
fn is_operator(webhook: &Webhook, request: &Request) -> bool {
    let user = request.user_info.username.as_deref();
    user.is_some_and(|user| !user.is_empty() && webhook.operator.as_deref() == Some(user))
}

async fn look_up(
    webhook: &Webhook,
    request: &Request,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
) -> Verdict {
    // A plan on its way out asks for nothing, and an invalid one that was
    // stored before cannot be looked up.
    let plan = match Plan::parse(&new.spec) {
        Ok(plan) if !new.is_deleting() => plan,
        Ok(_) | Err(_) => return Verdict::allowed(),
    };
    let namespace = request
        .namespace
        .as_deref()
        .or(new.metadata.namespace.as_deref())
        .unwrap_or_default();
    let lookup = webhook.lookup.as_ref();
    let found = checks::check(lookup, namespace, old, new, &plan);
    let (mut found, ordered) =
        futures::future::join(found, orders::check(lookup, namespace, old, new, &plan)).await;
    found.add(ordered);
    match Violations::check(found.faults) {
        Ok(()) => Verdict::Allowed {
            patch: json_patch::Patch::default(),
            warnings: found.warnings,
        },
        Err(faults) => Verdict::invalid(&request.subject(), &faults, found.warnings),
    }
}

/// Sorts a request.
///
/// # Errors
/// What is missing or unreadable in it.
fn case(request: &Request) -> Result<Case<'_>, String> {
    let kind = &request.kind;
    let is_plan = kind.group == GROUP && kind.kind == <ReleasePlan as kube::Resource>::kind(&());
    let is_whole = request.sub_resource.as_deref().is_none_or(str::is_empty);
    if !is_plan || !is_whole {
        return Ok(Case::Pass);
    }
    let needs_old = match request.operation {
        Operation::Delete | Operation::Connect => return Ok(Case::Pass),
        Operation::Create => false,
        Operation::Update => true,
    };
    if kind.version != VERSION {
        return Err(format!(
            "{} of {GROUP}/{} is not known to this version of Belay: send {GROUP}/{VERSION}",
            kind.kind, kind.version
        ));
    }
    let new = object(request.object.as_ref(), "request.object")?;
    let old = if needs_old {
        Some(object(request.old_object.as_ref(), "request.oldObject")?)
    } else {
        None
    };
    Ok(Case::Write(old, new))
}

fn object<'a>(value: Option<&'a Value>, place: &str) -> Result<&'a Value, String> {
    match value {
        Some(value) if value.is_object() => Ok(value),
        Some(_) => Err(format!("{place} is not an object")),
        None => Err(format!("the review has no object: {place} is null")),
    }
}

fn decode(value: &Value, place: &str) -> Result<StoredPlan, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        format!(
            "{place} cannot be read at {}: {}",
            error.path(),
            error.inner()
        )
    })
}
