//! The strategy: exactly one, and in itself sound. Only `rolling` is carried
//! out; the others are judged in full all the same, so that a plan for them is
//! told all of its faults.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    ViolationKind,
    check_values::{check_duration, check_length, check_list, check_range},
    decode::{not, quoted},
    faults::Faults,
};
use crate::api::{CanaryStep, ReleasePlanSpec, Strategy};

const MAX_ITEMS: usize = 32;
const MAX_NAME: usize = 63;

/// The names of the strategies that are set.
pub(super) fn strategy_kinds(strategy: &Strategy) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    if strategy.rolling.is_some() {
        kinds.push("rolling");
    }
    if strategy.canary.is_some() {
        kinds.push("canary");
    }
    if strategy.blue_green.is_some() {
        kinds.push("blueGreen");
    }
    kinds
}

/// Judges the strategy; an absent one is `rolling`.
pub(super) fn check_strategy(spec: &ReleasePlanSpec, faults: &mut Faults) {
    let Some(strategy) = &spec.strategy else {
        return;
    };
    match strategy_kinds(strategy).as_slice() {
        [_] => {}
        [] => faults.required(
            "spec.strategy",
            "exactly one of rolling, canary and blueGreen must be set",
        ),
        several => {
            // A default stays beside what a manifest adds, since an apply only
            // takes out what it put there.
            let other = several.iter().find(|kind| **kind != "rolling");
            let switch = other.filter(|_| strategy.rolling.is_some()).map(|other| {
                format!("; to change from the default to {other}, set rolling: null beside it")
            });
            faults.invalid(
                "spec.strategy",
                format!(
                    "exactly one of rolling, canary and blueGreen must be set, found {}{}",
                    several.join(" and "),
                    switch.unwrap_or_default()
                ),
            );
        }
    }
    if let Some(canary) = &strategy.canary {
        let path = "spec.strategy.canary";
        faults.not_available(path, "this version releases by rolling only");
        check_templates("canary", spec, faults);
        match canary.steps.as_deref() {
            None | Some([]) => {
                faults.required(format!("{path}.steps"), "must have at least one step");
            }
            Some(steps) => check_steps(&format!("{path}.steps"), steps, spec, faults),
        }
    }
    if let Some(blue_green) = &strategy.blue_green {
        let path = "spec.strategy.blueGreen";
        faults.not_available(path, "this version releases by rolling only");
        check_templates("blueGreen", spec, faults);
        if let Some(service) = &blue_green.preview_service {
            check_length(&format!("{path}.previewService"), service, MAX_NAME, faults);
        }
    }
}

/// A second set of pods can be made from a template in the plan only.
fn check_templates(strategy: &str, spec: &ReleasePlanSpec, faults: &mut Faults) {
    let components = spec.components.iter().flatten();
    for (index, component) in components.enumerate().take(MAX_ITEMS) {
        if component.template.is_none() {
            faults.required(
                format!("spec.components[{index}].template"),
                format!("the strategy {strategy} needs a template in every component"),
            );
        }
    }
}

fn check_steps(path: &str, steps: &[CanaryStep], spec: &ReleasePlanSpec, faults: &mut Faults) {
    if steps.len() > MAX_ITEMS {
        faults.invalid(path, format!("must have at most {MAX_ITEMS} elements"));
    }
    let known: BTreeSet<&str> = spec
        .checks
        .iter()
        .flatten()
        .filter_map(|check| check.name.as_deref())
        .collect();
    for (index, step) in steps.iter().enumerate().take(MAX_ITEMS) {
        let path = format!("{path}[{index}]");
        if *step == CanaryStep::default() {
            faults.invalid(&path, "must set replicas, weight, pause or checks");
        }
        if let Some(replicas) = &step.replicas {
            check_replicas(&format!("{path}.replicas"), replicas, faults);
        }
        if let Some(weight) = step.weight {
            check_range(&format!("{path}.weight"), weight, &(0..=100), faults);
        }
        if let Some(pause) = &step.pause {
            let path = format!("{path}.pause");
            match &pause.duration {
                Some(duration) => {
                    check_duration(&format!("{path}.duration"), duration, false, faults);
                }
                None if pause.approval == Some(true) => {}
                None => faults.invalid(path, "must have a duration, or approval: true"),
            }
        }
        if let Some(checks) = &step.checks {
            let path = format!("{path}.checks");
            check_list(&path, checks, MAX_ITEMS, MAX_NAME, faults);
            for (index, name) in checks.iter().enumerate().take(MAX_ITEMS) {
                if !name.is_empty() && !known.contains(name.as_str()) {
                    faults.add(
                        ViolationKind::NotFound,
                        format!("{path}[{index}]"),
                        format!("no check of this plan is named {}", quoted(name)),
                    );
                }
            }
        }
    }
}

fn check_replicas(path: &str, replicas: &Value, faults: &mut Faults) {
    let valid = match replicas {
        Value::Number(number) => number
            .as_i64()
            .is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)),
        Value::String(text) => text.strip_suffix('%').is_some_and(|share| {
            let plain = share == "0" || !share.starts_with('0');
            plain
                && share.bytes().all(|b| b.is_ascii_digit())
                && share.parse::<u8>().is_ok_and(|share| share <= 100)
        }),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    if !valid {
        faults.invalid(
            path,
            not(r#"a number of pods or a share such as "10%""#, replicas),
        );
    }
}
