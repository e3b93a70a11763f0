//! What may become of a stored plan.
//!
//! [`Plan::parse`] judges a plan by itself; here it is judged against the one
//! before, and against the release that is in progress. Who asks is for the
//! caller to find out.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Plan, Target, Violations, check_components::effective_name, check_orders::check_orders,
    check_strategy::strategy_kinds, decode::decode, faults::Faults,
};
use crate::api::{
    ABORT, DeletionPolicy, FINALIZER, RETRY, ReleasePlanSpec, ReleasePlanStatus, ReleaseProgress,
    Stage, StoredPlan, UNDO,
};

/// Judges a plan that is to be created.
///
/// # Errors
/// All faults, in the order of the fields.
pub fn check_create(new: &StoredPlan) -> Result<(), Violations> {
    let mut faults = Faults::default();
    for (name, what) in [
        (ABORT, "has no release to abort"),
        (RETRY, "has no refused content to try again"),
        (UNDO, "has no earlier revision to go to"),
    ] {
        if new.annotation(name).is_some() {
            let text = format!("a new plan {what}; leave the annotation out");
            faults.forbidden(annotation(name), text);
        }
    }
    check_spec(&new.spec, &mut faults);
    faults.finish()
}

/// Judges an update. `old` carries the status, which the update does not
/// change. `privileged` says that the finalizer may go at any time, since the
/// operator itself asks.
///
/// A spec that stays as it is passes, valid or not, so that every stored plan
/// can be labelled, finished and deleted; one that changes must be valid.
///
/// # Errors
/// All faults, in the order of the fields.
pub fn check_change(
    old: &StoredPlan,
    new: &StoredPlan,
    privileged: bool,
) -> Result<(), Violations> {
    let mut faults = Faults::default();
    let in_flight = old
        .status
        .as_ref()
        .and_then(|status| Some((status, status.release.as_ref()?)));
    check_orders(old, new, &mut faults);
    if let Some((_, release)) = in_flight.filter(|_| !privileged) {
        check_finalizer(old, new, release, &mut faults);
    }
    if old.spec != new.spec {
        if new.is_deleting() && same_but_deletion_policy(&old.spec, &new.spec) {
            check_deletion_policy(&new.spec, &mut faults);
        } else {
            check_spec(&new.spec, &mut faults);
            if let Some((status, release)) = in_flight {
                check_fixed(old, new, status, release, &mut faults);
            }
        }
    }
    faults.finish()
}

fn check_spec(spec: &Value, faults: &mut Faults) {
    if let Err(violations) = Plan::parse(spec) {
        faults.extend(violations.as_slice().iter().cloned());
    }
}

pub(super) fn annotation(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

fn check_finalizer(
    old: &StoredPlan,
    new: &StoredPlan,
    release: &ReleaseProgress,
    faults: &mut Faults,
) {
    let holds = |plan: &StoredPlan| {
        let mut finalizers = plan.metadata.finalizers.iter().flatten();
        finalizers.any(|finalizer| finalizer == FINALIZER)
    };
    if !holds(old) || holds(new) {
        return;
    }
    let wire = decode(&old.spec, &mut Faults::default());
    let advice = if wire.deletion_policy == Some(DeletionPolicy::Keep) {
        "the operator removes it by itself, as spec.deletionPolicy is Keep"
    } else {
        "wait until everything is back, or set spec.deletionPolicy to Keep to leave what is live"
    };
    faults.forbidden(
        "metadata.finalizers",
        format!(
            "{FINALIZER} cannot be removed while {}; {advice}",
            in_progress(release)
        ),
    );
}

/// "release 4 is in progress (stage Promote)".
pub(super) fn in_progress(release: &ReleaseProgress) -> String {
    let number = release.number;
    match release.stage {
        Stage::Restore => format!("release {number} is going back (stage Restore)"),
        Stage::Stopped => format!("release {number} is stopped (stage Stopped)"),
        stage @ (Stage::Settle | Stage::Promote | Stage::Bake) => {
            format!("release {number} is in progress (stage {stage:?})")
        }
    }
}

fn same_but_deletion_policy(old: &Value, new: &Value) -> bool {
    let without = |spec: &Value| {
        let mut fields = spec.as_object().cloned()?;
        fields.remove("deletionPolicy");
        Some(fields)
    };
    let old = without(old);
    old.is_some() && old == without(new)
}

/// Other faults of the spec are as they were.
fn check_deletion_policy(spec: &Value, faults: &mut Faults) {
    let policy = spec.get("deletionPolicy").cloned();
    decode(&json!({"deletionPolicy": policy}), faults);
}

/// What a release in progress rests on: its components and the kind of its
/// strategy.
fn check_fixed(
    old: &StoredPlan,
    new: &StoredPlan,
    status: &ReleasePlanStatus,
    release: &ReleaseProgress,
    faults: &mut Faults,
) {
    let old_wire = decode(&old.spec, &mut Faults::default());
    // Faults of the new spec have been told; here it is only compared.
    let new_wire = decode(&new.spec, &mut Faults::default());
    let why = format!("while {}", in_progress(release));
    let wanted = members(&new_wire);
    // The way back from an edit that no webhook saw.
    let running: Members = status
        .components
        .iter()
        .filter_map(|c| Some((c.name.as_str(), Target::from_ref(&c.workload)?)))
        .collect();
    let fixed = members(&old_wire);
    if wanted != running {
        for (index, component) in new_wire.components.iter().flatten().enumerate() {
            let path = format!("spec.components[{index}]");
            let Some((name, target)) = member(component) else {
                continue;
            };
            match fixed.get(name) {
                None => faults.forbidden(
                    path,
                    format!("component {name} cannot be added {why}; wait until it has ended"),
                ),
                Some(before) if *before != target => faults.forbidden(
                    format!("{path}.workload"),
                    format!("cannot be changed from {before} {why}; wait until it has ended"),
                ),
                Some(_) => {}
            }
        }
        for name in fixed.keys().filter(|name| !wanted.contains_key(*name)) {
            faults.forbidden(
                "spec.components",
                format!("component {name} cannot be removed {why}; wait until it has ended"),
            );
        }
    }
    let kinds = |wire: &ReleasePlanSpec| {
        let kinds = wire.strategy.as_ref().map(strategy_kinds);
        kinds.unwrap_or_else(|| vec!["rolling"])
    };
    if kinds(&old_wire) != kinds(&new_wire) {
        faults.forbidden(
            "spec.strategy",
            format!(
                "cannot be changed from {} {why}; wait until it has ended",
                kinds(&old_wire).join(" and ")
            ),
        );
    }
}

type Members<'a> = BTreeMap<&'a str, Target>;

fn member(component: &crate::api::Component) -> Option<(&str, Target)> {
    let target = Target::from_ref(component.workload.as_ref()?)?;
    Some((effective_name(component)?, target))
}

fn members(wire: &ReleasePlanSpec) -> Members<'_> {
    wire.components
        .iter()
        .flatten()
        .filter_map(member)
        .collect()
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
