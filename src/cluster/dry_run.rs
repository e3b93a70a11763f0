//! Asks the API server what a partial template would make of a workload.

use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use super::{
    ApplyFailure, Snapshot, apply_body, classify, deployments, replace_template,
    snapshot::template_owned_by,
};
use crate::{
    api::FIELD_MANAGER,
    fields::{FieldSet, FieldsError, Found, carry, get, graft},
    machine::DryRun,
    plan::{Target, missing_containers},
};

/// Field manager under which a template is tried whose fields became fewer:
/// under the real one the fields that left would be taken out with it.
const PROBE: &str = "belay-probe";

enum Answer {
    Merged { template: Value, owned: FieldSet },
    Refused(String),
}

/// Tries a partial template on a workload without writing anything. `found` is
/// what stood in Belay's fields when they were taken; without it, what leaves
/// the template is given back as it is.
///
/// # Errors
/// A conflict if the workload changed since it was read, or that nothing could
/// be concluded. A refusal is an answer.
pub async fn dry_run(
    client: &Client,
    namespace: &str,
    target: &Target,
    workload: &Snapshot,
    partial: &Value,
    found: &Found,
) -> Result<DryRun, ApplyFailure> {
    if let Some(missing) = missing_containers(partial, &workload.template)
        .into_iter()
        .next()
    {
        return Ok(DryRun::Mismatch(format!("{target} has {missing}")));
    }
    let first = ask(client, namespace, target, workload, partial, FIELD_MANAGER).await?;
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
    let probe = match ask(client, namespace, target, workload, partial, PROBE).await? {
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
    let second = ask(client, namespace, target, workload, &body, FIELD_MANAGER).await?;
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
    client: &Client,
    namespace: &str,
    target: &Target,
    workload: &Snapshot,
    template: &Value,
    manager: &str,
) -> Result<Answer, ApplyFailure> {
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
    let answer = deployments(client, namespace)
        .patch(&target.name, &params, &Patch::Apply(&body))
        .await;
    match answer {
        Ok(object) => merged(&object, manager).map_err(|error| {
            ApplyFailure::Undecided(format!("managedFields cannot be read: {error}"))
        }),
        Err(error) => match classify(&error) {
            ApplyFailure::Refused(text) => Ok(Answer::Refused(text)),
            other => Err(other),
        },
    }
}

fn merged(object: &DynamicObject, manager: &str) -> Result<Answer, FieldsError> {
    let template = object
        .data
        .pointer("/spec/template")
        .cloned()
        .unwrap_or_default();
    Ok(Answer::Merged {
        template,
        owned: template_owned_by(object, manager)?,
    })
}

/// What the API server would make of a whole template today: it fills in the
/// defaults that it knows. None if it does not accept the template any more.
///
/// # Errors
/// A conflict if the workload changed since it was read, or that nothing could
/// be concluded.
pub async fn as_stored(
    client: &Client,
    namespace: &str,
    target: &Target,
    workload: &Snapshot,
    template: &Value,
) -> Result<Option<Value>, ApplyFailure> {
    let patch = replace_template(&workload.uid, &workload.resource_version, template)
        .map_err(|error| ApplyFailure::Undecided(error.to_string()))?;
    let params = PatchParams {
        dry_run: true,
        field_manager: Some(PROBE.to_owned()),
        ..PatchParams::default()
    };
    match deployments(client, namespace)
        .patch(&target.name, &params, &patch)
        .await
    {
        Ok(object) => Ok(object.data.pointer("/spec/template").cloned()),
        Err(error) => match classify(&error) {
            ApplyFailure::Refused(_) => Ok(None),
            other => Err(other),
        },
    }
}
