//! How GitOps tools read a plan: Argo CD by the script in the documents, Flux by
//! the rules of kstatus. Both are asked about plans as the operator leaves them.

use belay::api::{ConditionType, Phase, Reason, ReleasePlan, ReleasePlanSpec, merge_conditions};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mlua::{Lua, LuaOptions, LuaSerdeExt as _, StdLib, Table};
use serde_json::{Value, json};

use super::{blocks, read, section};

/// What both tools make of a plan.
#[derive(Debug, PartialEq)]
struct Reading {
    argo: String,
    message: String,
    flux: &'static str,
}

fn plan() -> ReleasePlan {
    let spec: ReleasePlanSpec = serde_json::from_value(json!({
        "components": [{"workload": {"kind": "Deployment", "name": "web"}}],
    }))
    .unwrap();
    let mut plan = ReleasePlan::new("shop", spec);
    plan.metadata.generation = Some(4);
    plan
}

/// The condition that holds with a reason. The tests of the state machine hold
/// every decision to this list.
fn says(reason: Reason) -> &'static str {
    let lines = include_str!("../../src/machine/tests/reasons.txt").lines();
    let mut found = lines.filter_map(|line| line.split_once(' '));
    let found = found.find(|(name, _)| *name == reason.as_str());
    found.unwrap().1
}

/// A plan that the operator has looked at in its generation 4.
fn told(phase: Phase, reason: Reason) -> ReleasePlan {
    let mut plan = plan();
    let status = plan.status.get_or_insert_default();
    status.observed_generation = Some(4);
    status.phase = Some(phase);
    let verdict = |type_: ConditionType| (type_, type_.as_str() == says(reason));
    let wanted = [
        verdict(ConditionType::Ready),
        verdict(ConditionType::Reconciling),
        verdict(ConditionType::Stalled),
        (ConditionType::RollingOut, phase == Phase::RollingOut),
        (ConditionType::RollbackInProgress, phase == Phase::Rollback),
        (ConditionType::Stable, phase == Phase::Stable),
    ]
    .map(|(type_, holds)| (type_, holds, reason, "in its words".to_owned()));
    merge_conditions(
        &mut status.conditions,
        &wanted,
        Some(4),
        Timestamp::UNIX_EPOCH,
    );
    plan
}

/// The script for `argocd-cm`, out of the page that shows it.
fn script() -> String {
    const KEY: &str = "resource.customizations.health.belay.dev_ReleasePlan";
    let pages = blocks(&read("docs/gitops.md"), "yaml");
    let mut scripts = pages.iter().filter_map(|page| {
        let page: Value = serde_saphyr::from_str(page).unwrap();
        page["data"][KEY].as_str().map(str::to_owned)
    });
    scripts.next().unwrap()
}

/// Runs it as Argo CD does: Lua 5.1, with the base and table libraries only, the
/// object as the global `obj`, and absent fields as nil.
fn argo(plan: &Value) -> (String, String) {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::PACKAGE, LuaOptions::default()).unwrap();
    let absent = mlua::serde::ser::Options::new()
        .serialize_none_to_null(false)
        .serialize_unit_to_null(false);
    let object = lua.to_value_with(plan, absent).unwrap();
    lua.globals().set("obj", object).unwrap();
    let answer: Table = lua.load(script()).eval().unwrap();
    let health: String = answer.get("status").unwrap();
    let known = ["Healthy", "Progressing", "Degraded", "Suspended"];
    assert!(known.contains(&health.as_str()), "{health}");
    (health, answer.get("message").unwrap())
}

/// The rules of kstatus for kinds that it does not know, in their order, as the
/// README of `sigs.k8s.io/cli-utils/pkg/kstatus` and its `Compute` have them.
fn kstatus(plan: &Value) -> &'static str {
    if !plan["metadata"]["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    let status = &plan["status"];
    let observed = &status["observedGeneration"];
    if !observed.is_null() && *observed != plan["metadata"]["generation"] {
        return "InProgress";
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    for condition in conditions.clone().filter(|c| c["status"] == "True") {
        if condition["type"] == "Reconciling" {
            return "InProgress";
        }
        if condition["type"] == "Stalled" {
            return "Failed";
        }
    }
    let mut conditions = conditions.filter(|c| c["type"] == "Ready");
    match conditions.next() {
        Some(ready) if ready["status"] != "True" => "InProgress",
        Some(_) | None => "Current",
    }
}

fn reading(plan: &ReleasePlan) -> Reading {
    let plan = serde_json::to_value(plan).unwrap();
    let (argo, message) = argo(&plan);
    Reading {
        argo,
        message,
        flux: kstatus(&plan),
    }
}

#[track_caller]
fn assert_read(plan: &ReleasePlan, argo: &str, flux: &str) {
    let read = reading(plan);
    assert_eq!((read.argo.as_str(), read.flux), (argo, flux), "{read:?}");
}

#[test]
fn what_is_released_is_healthy() {
    let plan = told(Phase::Stable, Reason::Released);
    assert_read(&plan, "Healthy", "Current");
    assert_eq!(reading(&plan).message, "Released: in its words");
}

#[test]
fn what_goes_on_by_itself_is_in_progress() {
    for (phase, reason) in [
        (Phase::Pending, Reason::TargetsMissing),
        (Phase::Pending, Reason::BaselineUnavailable),
        (Phase::RollingOut, Reason::Settling),
        (Phase::RollingOut, Reason::Promoting),
        (Phase::RollingOut, Reason::Baking),
        (Phase::Rollback, Reason::RollingBack),
        (Phase::Rollback, Reason::Deleting),
    ] {
        let plan = told(phase, reason);
        assert_read(&plan, "Progressing", "InProgress");
    }
}

#[test]
fn what_failed_is_told_at_once() {
    for (phase, reason) in [
        (Phase::Stable, Reason::RolledBack),
        (Phase::Failed, Reason::ReleaseFailed),
        (Phase::Frozen, Reason::Frozen),
        (Phase::Rollback, Reason::RollbackStalled),
        (Phase::Stable, Reason::TemplateRefused),
        (Phase::Stable, Reason::Contended),
    ] {
        let plan = told(phase, reason);
        assert_read(&plan, "Degraded", "Failed");
        assert_eq!(reading(&plan).message, format!("{reason}: in its words"));
    }
}

#[test]
fn what_a_person_holds_is_suspended() {
    let paused = told(Phase::RollingOut, Reason::Paused);
    assert_read(&paused, "Suspended", "InProgress");
    for reason in [Reason::WorkloadPaused, Reason::Undone] {
        let held = told(Phase::Stable, reason);
        assert_read(&held, "Suspended", "Failed");
    }
}

/// The order of conditions is no part of their meaning.
#[test]
fn conditions_are_read_in_any_order() {
    for reason in [Reason::Released, Reason::RolledBack, Reason::Undone] {
        let mut plan = told(Phase::Stable, reason);
        let forward = reading(&plan);
        plan.status.as_mut().unwrap().conditions.reverse();
        assert_eq!(reading(&plan), forward);
    }
}

/// A result of the content before is none of the content that git has now.
#[test]
fn an_older_result_is_not_taken_for_the_newest() {
    for reason in [Reason::Released, Reason::RolledBack] {
        let mut plan = told(Phase::Stable, reason);
        plan.metadata.generation = Some(5);
        assert_read(&plan, "Progressing", "InProgress");
    }
}

/// Nothing is known of a new plan; the API server fills in what the schema has as
/// the default, so that it does not look finished.
#[test]
fn a_new_plan_is_in_progress_before_the_operator_has_seen_it() {
    let default = super::schema()["status"]["default"].clone();
    let mut plan = plan();
    plan.status = Some(serde_json::from_value(default).unwrap());
    assert_read(&plan, "Progressing", "InProgress");
    assert_eq!(
        reading(&plan).message,
        "the operator has not looked at it yet"
    );
    // The script does not depend on it.
    plan.status = None;
    assert_eq!(reading(&plan).argo, "Progressing");
}

#[test]
fn a_plan_that_is_being_deleted_is_not_healthy() {
    let mut plan = told(Phase::Rollback, Reason::Deleting);
    plan.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_read(&plan, "Progressing", "Terminating");
}

/// The page says what each tool makes of each state.
#[test]
fn the_table_of_readings_is_right() {
    let table = section("## What the tools make of it");
    for (row, phase, reason) in [
        ("released", Phase::Stable, Reason::Released),
        (
            "on its way, or going back",
            Phase::RollingOut,
            Reason::Promoting,
        ),
        ("rolled back", Phase::Stable, Reason::RolledBack),
        ("frozen", Phase::Frozen, Reason::Frozen),
        ("`spec.paused`", Phase::RollingOut, Reason::Paused),
        ("undone by a person", Phase::Stable, Reason::Undone),
    ] {
        let Reading { argo, flux, .. } = reading(&told(phase, reason));
        let cells = format!("| `{argo}` | `{flux}` |");
        let line = table.lines().find(|line| line.contains(row)).unwrap();
        assert!(line.ends_with(&cells), "{line} does not end in {cells}");
    }
}
