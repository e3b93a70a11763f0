//! The end of a plan, and plans that are not valid.

use serde_json::json;

use super::{plans::reading, sim::*};
use crate::api::{ConditionType, DeletionPolicy, Phase, Reason, ReleaseResult, Stage};

fn one() -> Sim {
    Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")])
}

fn invalid(sim: &mut Sim) {
    sim.edit(|spec| spec["progressDeadline"] = json!("nonsense"));
}

fn nothing_is_left(sim: &Sim) {
    assert!(sim.gone, "{:#?}", sim.status);
    assert_eq!(sim.revisions.len(), 0);
    assert!(sim.deployments.values().all(|d| !d.marked()));
}

#[test]
fn a_plan_at_rest_is_gone_at_once_and_leaves_no_mark() {
    let mut sim = one();
    assert!(sim.deployments["cart"].marked());
    sim.delete();
    sim.rest();
    nothing_is_left(&sim);
    assert_eq!((sim.image("cart"), sim.writes_on("cart")), ("cart:1", 0));
}

#[test]
fn a_plan_that_never_got_started_is_gone_at_once() {
    let mut sim = Sim::new(templated(&[("cart", "cart:1")]), &[]);
    sim.run(3);
    assert_eq!(sim.reason(), "TargetsMissing");
    sim.delete();
    sim.rest();
    nothing_is_left(&sim);
}

/// DF-06: at whichever second of a release the plan is deleted.
#[test]
fn df_06_a_plan_deleted_in_mid_release_goes_when_the_stable_templates_are_available_again() {
    for moment in 0..25 {
        let mut sim = one();
        sim.edit(|spec| spec["bakeTime"] = json!("10s"));
        sim.want("cart", "cart:2-slow");
        sim.run(moment);
        let released = sim.results().contains(&ReleaseResult::Succeeded);
        sim.delete();
        sim.run_until("the end", |sim| sim.gone);
        nothing_is_left(&sim);
        let image = if released { "cart:2-slow" } else { "cart:1" };
        assert_eq!(sim.image("cart"), image, "deleted after {moment} s");
        assert!(sim.deployments["cart"].complete());
    }
}

#[test]
fn df_06_a_crash_in_the_middle_of_deletion_leads_to_the_same_end() {
    let run = |crash_at| {
        let mut sim = one();
        let start = sim.writes;
        sim.crash_at = crash_at;
        sim.want("cart", "cart:2-unready");
        sim.run(6);
        sim.delete();
        sim.run(40);
        (start, sim)
    };
    let (start, plain) = run(None);
    for write in start..plain.writes {
        let (_, sim) = run(Some(write));
        nothing_is_left(&sim);
        assert_eq!(sim.image("cart"), "cart:1", "crash before write {write}");
    }
}

#[test]
fn the_status_says_what_a_deletion_waits_for() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.deployment("cart").broken = true;
    sim.delete();
    sim.run(6);
    let (_, reason, message) = sim.condition(ConditionType::Reconciling);
    assert_eq!(reason, "Deleting");
    assert!(message.contains("deployment cart"), "{message}");
    sim.run(700);
    let (_, reason, message) = sim.condition(ConditionType::Stalled);
    assert_eq!(reason, "RollbackStalled");
    assert!(
        message.contains(r#"{"deletionPolicy":"Keep"}"#),
        "{message}"
    );
    sim.edit(|spec| spec["deletionPolicy"] = json!("Keep"));
    sim.rest();
    nothing_is_left(&sim);
}

#[test]
fn keep_leaves_what_is_live() {
    let mut sim = one();
    sim.edit(|spec| spec["deletionPolicy"] = json!("Keep"));
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    assert_eq!(sim.facts.deletion_policy, DeletionPolicy::Keep);
    sim.delete();
    sim.rest();
    nothing_is_left(&sim);
    assert_eq!(sim.image("cart"), "cart:2-unready");
}

#[test]
fn a_plan_deleted_during_a_rollback_waits_for_its_end() {
    let mut sim = one();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.delete();
    sim.rest();
    assert!(!sim.gone);
    sim.run_until("the end", |sim| sim.gone);
    nothing_is_left(&sim);
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn a_terminating_namespace_holds_nothing_and_nothing_is_written() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.journal.clear();
    sim.facts.namespace_terminating = true;
    sim.delete();
    sim.rest();
    assert!(sim.gone);
    assert_eq!(sim.journal, []);
}

#[test]
fn workloads_that_are_gone_do_not_hold_a_deleted_plan() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.deployments.clear();
    sim.delete();
    sim.rest();
    assert!(sim.gone);
}

#[test]
fn a_plan_that_is_not_valid_gets_a_condition_and_no_write() {
    let mut sim = one();
    sim.want("cart", "cart:2");
    invalid(&mut sim);
    sim.run(30);
    let (stalled, reason, message) = sim.condition(ConditionType::Stalled);
    assert!(stalled && reason == "InvalidPlan", "{reason}");
    assert!(message.contains("spec.progressDeadline"), "{message}");
    assert_eq!(sim.journal, []);
    assert_eq!(sim.told(Reason::InvalidPlan), 1);
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:2");
}

#[test]
fn what_this_version_cannot_do_is_said_and_not_ignored() {
    let mut sim = one();
    sim.edit(|spec| spec["components"][0]["traffic"] = json!({"service": "cart"}));
    sim.want("cart", "cart:2");
    sim.run(30);
    assert_eq!((sim.reason(), sim.stalled()), ("NotAvailableYet", true));
    assert_eq!(sim.journal, []);
}

#[test]
fn a_plan_made_invalid_during_a_rollback_finishes_it() {
    let mut sim = one();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    invalid(&mut sim);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.ready()), ("cart:1", false));
    sim.run(5);
    assert_eq!(sim.reason(), "InvalidPlan");
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.run(5);
    assert_eq!(sim.reason(), "RolledBack");
}

#[test]
fn a_plan_made_invalid_in_mid_release_is_still_judged() {
    let mut sim = one();
    sim.want("cart", "cart:2-slow");
    sim.run_until("the write", |sim| sim.writes_on("cart") > 0);
    invalid(&mut sim);
    sim.run(30);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::RollingOut, "InvalidPlan")
    );
    sim.deployment("cart").set_image("cart:2-slow-crash");
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.run(2);
    let mut sim = one();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the write", |sim| sim.writes_on("cart") > 0);
    invalid(&mut sim);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn an_invalid_successor_of_a_superseded_release_leads_back() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.want("cart", "cart:3");
    sim.rest();
    assert_eq!(sim.status.release.as_ref().unwrap().stage, Stage::Settle);
    invalid(&mut sim);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.results().last(), Some(&ReleaseResult::RolledBack));
}

#[test]
fn a_superseding_template_that_is_refused_leads_back() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.want("cart", "cart:3-refused");
    sim.run_until("the end", |sim| {
        sim.phase() == Phase::Stable && sim.image("cart") == "cart:1"
    });
    sim.run(5);
    assert_eq!((sim.reason(), sim.stalled()), ("TemplateRefused", true));
}

#[test]
fn an_invalid_plan_can_be_deleted_in_mid_release() {
    let mut sim = one();
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    invalid(&mut sim);
    sim.delete();
    sim.run_until("the end", |sim| sim.gone);
    nothing_is_left(&sim);
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn a_finalizer_that_was_taken_off_comes_back_before_anything_is_touched() {
    let mut sim = Sim::new(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.facts.finalizer = false;
    sim.run(5);
    assert!(sim.facts.finalizer && sim.ready());
}

/// Somebody's edit does not hold a plan that is to go, and is told.
#[test]
fn a_config_map_that_does_not_go_back_with_a_plan_that_goes_is_told() {
    let mut sim = Sim::settled(
        json!({"components": [reading("web", "settings")]}),
        &[("web", "web:1")],
    );
    sim.configure("settings", "old");
    sim.run(30);
    sim.configure("settings", "new");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("the release", |sim| {
        sim.phase() == Phase::RollingOut && sim.status.target_revision.is_some()
    });
    sim.run(3);
    sim.configure("settings", "edited by hand");
    sim.delete();
    sim.run(60);
    assert!(sim.gone);
    assert_eq!(
        (sim.image("web"), &*sim.config_maps["settings"]),
        ("web:1", "edited by hand")
    );
    let told = sim.events.iter().find(|e| e.reason == Reason::RolledBack);
    let told = &told.unwrap().note;
    let text = "but for configmap settings, which was edited since and stays as it is";
    assert!(told.contains(text), "{told}");
}
