//! Asks the API server what a partial template would make of a workload.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Context, ReconcileError, observe::workloads};
use crate::{
    api::FIELD_MANAGER,
    cluster::{ApplyFailure, classify},
    fields::{FieldSet, Found, carry, get, graft, owned_by},
    machine::{DryRun, Workload},
    plan::{Target, missing_containers},
};

/// Field manager under which a template is tried whose fields became fewer:
/// under the real one the fields that left would be taken out with it.
const PROBE: &str = "belay-probe";

/// Server-side apply of a pod template, bound to the object it was decided on.
pub(super) fn apply_body(
    namespace: &str,
    target: &Target,
    uid: &str,
    resource_version: &str,
    template: &Value,
) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": target.name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": resource_version,
        },
        "spec": {"template": template},
    })
}

enum Answer {
    Merged { template: Value, owned: FieldSet },
    Refused(String),
}

/// Tries a partial template on a workload without writing anything.
pub(super) async fn dry_run(
    ctx: &Context,
    namespace: &str,
    target: &Target,
    workload: &Workload,
    partial: &Value,
    found: &Found,
) -> Result<DryRun, ReconcileError> {
    if let Some(missing) = missing_containers(partial, &workload.template)
        .into_iter()
        .next()
    {
        return Ok(DryRun::Mismatch(format!("{target} has {missing}")));
    }
    let first = ask(ctx, namespace, target, workload, partial, FIELD_MANAGER).await?;
    let shrinks = match &first {
        Answer::Merged { owned, .. } => !workload.owned.is_subset(owned),
        Answer::Refused(_) => !workload.owned.is_empty(),
    };
    let none = FieldSet::default();
    if !shrinks {
        return Ok(outcome(first, none, partial.clone()));
    }
    // Fields that left the template go back to what was found there, in the
    // same apply. Which ones left is only known from an apply that keeps them.
    let probe = match ask(ctx, namespace, target, workload, partial, PROBE).await? {
        Answer::Merged { owned, .. } => owned,
        Answer::Refused(text) => return Ok(DryRun::Refused(text)),
    };
    let dropped = workload.owned.difference(&probe);
    let impossible = |error| {
        DryRun::NotAvailable(format!(
            "fields that left the template cannot be given back: {error}"
        ))
    };
    let carried = match carry(partial, &dropped, found) {
        Ok(carried) => carried,
        Err(error) => return Ok(impossible(error)),
    };
    // What nobody recorded is given back as it is.
    let mut body = carried.body;
    for path in &carried.unknown {
        let Some(value) = get(&workload.template, path) else {
            continue;
        };
        if let Err(error) = graft(&mut body, path, value.clone()) {
            return Ok(impossible(error));
        }
    }
    let second = ask(ctx, namespace, target, workload, &body, FIELD_MANAGER).await?;
    Ok(match second {
        Answer::Merged { template, owned } => {
            let carried = owned.difference(&probe);
            DryRun::Merged {
                template,
                owned: owned.intersection(&probe),
                carried,
                body,
            }
        }
        Answer::Refused(text) => DryRun::Refused(text),
    })
}

fn outcome(answer: Answer, carried: FieldSet, body: Value) -> DryRun {
    match answer {
        Answer::Merged { template, owned } => DryRun::Merged {
            template,
            owned,
            carried,
            body,
        },
        Answer::Refused(text) => DryRun::Refused(text),
    }
}

async fn ask(
    ctx: &Context,
    namespace: &str,
    target: &Target,
    workload: &Workload,
    template: &Value,
    manager: &str,
) -> Result<Answer, ReconcileError> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::apply(manager).force()
    };
    let body = apply_body(
        namespace,
        target,
        &workload.uid,
        &workload.resource_version,
        template,
    );
    let answer = workloads(ctx, namespace)
        .patch(&target.name, &params, &Patch::Apply(&body))
        .await;
    match answer {
        Ok(object) => merged(target, &object, manager),
        Err(error) => match classify(&error) {
            ApplyFailure::Refused(text) => Ok(Answer::Refused(text)),
            ApplyFailure::Conflict => Err(ReconcileError::Conflict {
                what: target.to_string(),
            }),
            ApplyFailure::Undecided(message) => Err(ReconcileError::Undecided {
                target: target.clone(),
                message,
            }),
        },
    }
}

fn merged(
    target: &Target,
    object: &DynamicObject,
    manager: &str,
) -> Result<Answer, ReconcileError> {
    let entries = object
        .metadata
        .managed_fields
        .as_deref()
        .unwrap_or_default();
    let owned = owned_by(entries, manager).map_err(|source| ReconcileError::Ownership {
        target: target.clone(),
        source,
    })?;
    let template = object
        .data
        .pointer("/spec/template")
        .cloned()
        .unwrap_or_default();
    Ok(Answer::Merged {
        template,
        owned: owned.descend(&["spec", "template"]),
    })
}
