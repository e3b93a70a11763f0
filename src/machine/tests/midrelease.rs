//! What happens to a release on its way: order, newer content, pauses.

use std::time::Duration;

use serde_json::json;

use super::sim::*;
use crate::{
    api::{ConditionType, Phase, Reason, ReleaseResult, Stage},
    fields::{PathElement, get},
};

fn two() -> Sim {
    let spec = templated(&[("db", "db:1"), ("cart", "cart:1")]);
    Sim::settled(spec, &[("db", "db:1"), ("cart", "cart:1")])
}

#[test]
fn a_component_is_written_when_what_it_comes_after_is_available() {
    let mut sim = two();
    sim.edit(|spec| spec["components"][1]["after"] = json!(["db"]));
    sim.want("db", "db:2-slow");
    sim.want("cart", "cart:2");
    sim.run_until("the first write", |sim| sim.writes_on("cart") > 0);
    assert_eq!(sim.journal[0].1, "db");
    assert!(sim.deployments["db"].complete());
    sim.run_until("the end", |sim| sim.ready());
}

#[test]
fn a_component_whose_predecessor_fails_is_never_written() {
    let mut sim = two();
    sim.edit(|spec| spec["components"][1]["after"] = json!(["db"]));
    sim.want("db", "db:2-crash");
    sim.want("cart", "cart:2");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!((sim.writes_on("db"), sim.writes_on("cart")), (2, 0));
}

#[test]
fn the_way_back_is_in_reverse_order_and_does_not_wait() {
    let mut sim = two();
    sim.edit(|spec| spec["components"][1]["after"] = json!(["db"]));
    sim.want("db", "db:2");
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    let order: Vec<_> = sim.journal.iter().map(|(_, on)| on.as_str()).collect();
    assert_eq!(
        order,
        ["db", "cart", "cart", "db"],
        "both in the pass after"
    );
}

#[test]
fn a_burst_of_edits_is_one_release() {
    let mut sim = two();
    for image in ["cart:2", "cart:3", "cart:4"] {
        sim.want("cart", image);
        sim.rest();
        assert_eq!(sim.journal, []);
    }
    let took = sim.run_until("the write", |sim| !sim.journal.is_empty());
    assert_eq!(took, Duration::from_secs(1));
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.results().len()), ("cart:4", 1));
}

#[test]
fn content_that_never_stands_still_is_released_after_five_seconds() {
    let mut sim = two();
    let mut count = 0;
    while sim.journal.is_empty() {
        count += 1;
        sim.want("cart", &format!("cart:{count}x"));
        sim.rest();
        // Half a second: shorter than what counts as standing still.
        sim.now += k8s_openapi::jiff::SignedDuration::from_millis(500);
        assert!(count < 15, "the release never starts");
    }
    assert!((10..13).contains(&count), "{count}");
}

#[test]
fn content_that_goes_back_at_once_leaves_no_trace() {
    let mut sim = two();
    sim.want("cart", "cart:2");
    sim.rest();
    sim.want("cart", "cart:1");
    sim.run(5);
    assert!(sim.ready());
    assert_eq!((sim.journal.len(), sim.results().len()), (0, 0));
}

/// SM-03: v3 comes while v2 is half way, and breaks.
#[test]
fn sm_03_newer_content_supersedes_and_stable_stays_the_last_proven_one() {
    for moment in 0..12 {
        let mut sim = two();
        let stable = sim.status.stable_revision.clone();
        sim.want("db", "db:2-slow");
        sim.want("cart", "cart:2");
        sim.run(moment);
        sim.want("cart", "cart:3-crash");
        sim.rest();
        assert_eq!(sim.status.stable_revision, stable);
        sim.run_until("the end", |sim| sim.reason() == "RolledBack");
        assert_eq!((sim.image("db"), sim.image("cart")), ("db:1", "cart:1"));
        assert_eq!(sim.status.stable_revision, stable);
        assert!(!sim.results().contains(&ReleaseResult::Succeeded));
        assert_eq!(sim.results().last(), Some(&ReleaseResult::RolledBack));
    }
}

/// While the API server says nothing of newer content, what was moved for the
/// content before it does not stay for ever.
#[test]
fn newer_content_that_nobody_can_judge_holds_no_broken_release() {
    let mut sim = two();
    sim.edit(|spec| spec["progressDeadline"] = json!("60s"));
    sim.want("cart", "cart:2-unready");
    sim.run_until("cart gets 2", |sim| sim.image("cart") == "cart:2-unready");
    let mut decided = sim.clone();
    for sim in [&mut sim, &mut decided] {
        sim.want("cart", "cart:3");
        sim.undecided = true;
        sim.run(10);
        assert_eq!((sim.phase(), sim.reason()), (Phase::RollingOut, "Settling"));
        let (_, _, message) = sim.condition(ConditionType::Ready);
        assert!(message.contains("overloaded"), "{message}");
    }
    decided.undecided = false;
    decided.run_until("the release of 3", |sim| sim.ready());
    assert_eq!(decided.image("cart"), "cart:3");
    let took = sim.run_until("the way back", |sim| sim.image("cart") == "cart:1");
    assert!(took <= Duration::from_secs(60), "{took:?}");
    // What was not judged is not refused.
    sim.run_until("the release of 3", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
    let results = [ReleaseResult::RolledBack, ReleaseResult::Succeeded];
    assert!(sim.results().ends_with(&results), "{:?}", sim.results());
    let mut told = sim.events.iter().map(|event| event.note.as_str());
    let why = "ProgressDeadlineExceeded: no progress for 1m: the API server does not say";
    assert!(told.any(|note| note.starts_with(why)));
}

#[test]
fn the_way_back_after_a_superseded_release_brings_every_field_back() {
    for bake in ["0s", "20s"] {
        for moment in [0, 1, 2, 4, 8, 14] {
            let mut sim = two();
            let before = sim.deployments["cart"].template.clone();
            sim.edit(|spec| {
                spec["bakeTime"] = json!(bake);
                let component = &mut spec["components"][1]["template"]["spec"];
                component["containers"][0]["image"] = json!("cart:2-slow");
                component["containers"][0]["env"] =
                    json!([{"name": "LOG", "value": "debug"}, {"name": "NEW", "value": "1"}]);
            });
            sim.run(moment);
            let live = &sim.deployments["cart"].template;
            let applied = moment > 1;
            assert_eq!(
                live["spec"]["containers"][0]["env"]
                    .as_array()
                    .unwrap()
                    .len()
                    == 2,
                applied
            );
            sim.edit(|spec| {
                let component = &mut spec["components"][1]["template"]["spec"];
                component["containers"][0]["image"] = json!("cart:3-crash");
                component["containers"][0]["env"] = json!([{"name": "OTHER", "value": "1"}]);
            });
            sim.run_until("the end", |sim| sim.reason() == "RolledBack");
            assert_eq!(sim.deployments["cart"].template, before, "after {moment} s");
        }
    }
}

#[test]
fn fields_that_leave_the_plan_go_back_to_what_was_found_also_across_a_supersede() {
    let mut sim = two();
    let log = |sim: &Sim| {
        let path = [
            "f:spec",
            "f:containers",
            r#"k:{"name":"app"}"#,
            "f:env",
            r#"k:{"name":"LOG"}"#,
            "f:value",
        ]
        .iter()
        .map(|e| PathElement::parse(e).unwrap())
        .collect();
        get(&sim.deployments["cart"].template, &path).cloned()
    };
    let set = |sim: &mut Sim, image: &str, env: serde_json::Value| {
        sim.edit(|spec| {
            let container = &mut spec["components"][1]["template"]["spec"]["containers"][0];
            container["image"] = json!(image);
            container.as_object_mut().unwrap().remove("env");
            if !env.is_null() {
                container["env"] = env;
            }
        });
        sim.rest();
    };
    let debug = json!([{"name": "LOG", "value": "debug"}]);
    set(&mut sim, "cart:2-unready", debug.clone());
    sim.run(5);
    assert_eq!(log(&sim), Some(json!("debug")));
    // Superseded by one that keeps the field: what was found first still counts.
    set(&mut sim, "cart:3", debug);
    sim.run_until("v3", |sim| sim.ready());
    set(&mut sim, "cart:4", json!(null));
    sim.run_until("v4", |sim| sim.ready());
    assert_eq!(
        (log(&sim), sim.image("cart")),
        (Some(json!("info")), "cart:4")
    );
    let owned = sim.deployments["cart"].ours.to_value().to_string();
    assert!(!owned.contains("LOG"), "the field was given up: {owned}");
}

#[test]
fn content_that_goes_back_in_mid_release_is_a_revert() {
    let mut sim = two();
    sim.want("db", "db:2");
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.want("db", "db:1");
    sim.want("cart", "cart:1");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert!(sim.ready(), "{:#?}", sim.status.conditions);
    assert_eq!((sim.image("db"), sim.image("cart")), ("db:1", "cart:1"));
    assert_eq!(sim.status.refused, []);
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Reverted));
    assert_eq!(sim.told(Reason::RolledBack), 0);
}

#[test]
fn a_paused_plan_starts_nothing() {
    let mut sim = two();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:2");
    sim.run(30);
    assert_eq!(
        (sim.journal.len(), sim.reason(), sim.ready()),
        (0, "Paused", false)
    );
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the end", |sim| sim.ready());
}

#[test]
fn a_pause_while_content_settles_holds_it_there() {
    let mut sim = two();
    sim.want("cart", "cart:2");
    sim.rest();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(30);
    assert_eq!((sim.journal.len(), sim.reason()), (0, "Paused"));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the end", |sim| sim.ready());
}

/// SM-01: a pause longer than the deadline.
#[test]
fn sm_01_the_clock_stands_still_while_the_plan_is_paused() {
    let mut sim = two();
    sim.edit(|spec| spec["progressDeadline"] = json!("20s"));
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(90);
    assert_eq!((sim.phase(), sim.reason()), (Phase::RollingOut, "Paused"));
    sim.edit(|spec| spec["paused"] = json!(false));
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!((20..=22).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn a_pause_holds_the_components_that_are_not_written_yet() {
    let mut sim = two();
    sim.edit(|spec| spec["components"][1]["after"] = json!(["db"]));
    sim.want("db", "db:2-slow");
    sim.want("cart", "cart:2");
    sim.run_until("the first write", |sim| sim.writes_on("db") > 0);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(60);
    assert_eq!((sim.writes_on("cart"), sim.reason()), (0, "Paused"));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the end", |sim| sim.ready());
}

#[test]
fn a_release_that_breaks_while_paused_goes_back() {
    let mut sim = two();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the write", |sim| sim.writes_on("cart") > 0);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:1");
}

/// Going back is not forward motion: a pause does not hold it.
#[test]
fn stable_content_that_comes_back_while_paused_is_reverted() {
    let mut sim = two();
    sim.want("cart", "cart:2-unready");
    sim.run_until("the write", |sim| sim.writes_on("cart") > 0);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(5);
    sim.want("cart", "cart:1");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Reverted));
    assert_eq!(sim.status.refused, []);
}

#[test]
fn a_workload_paused_by_its_user_is_a_hold() {
    let mut sim = two();
    sim.edit(|spec| spec["progressDeadline"] = json!("20s"));
    sim.deployment("cart").paused = true;
    sim.want("cart", "cart:2");
    sim.run(90);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::RollingOut, "WorkloadPaused")
    );
    assert!(
        sim.condition(ConditionType::Ready)
            .2
            .contains("deployment cart")
    );
    sim.deployment("cart").paused = false;
    sim.run_until("the end", |sim| sim.ready());
}

#[test]
fn scaling_in_mid_release_restarts_the_clock() {
    let mut sim = two();
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    sim.want("cart", "cart:2-unready");
    sim.run(25);
    sim.deployment("cart").replicas = 3;
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!((28..=32).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn a_workload_deleted_in_mid_release_and_not_brought_back_ends_it() {
    let mut sim = two();
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    sim.want("db", "db:2");
    sim.want("cart", "cart:2-unready");
    sim.run(5);
    sim.deployments.remove("cart");
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("db"), "db:1");
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert!(!sim.ready());
}

#[test]
fn the_revision_is_recorded_before_anything_is_touched() {
    let mut sim = two();
    sim.want("cart", "cart:2");
    sim.rest();
    let mut guard = 0;
    while sim.journal.is_empty() {
        let status = sim.status.clone();
        let revisions = sim.revisions.clone();
        sim.tick();
        if !sim.journal.is_empty() && status.target_revision.is_none() {
            // Both in the passes of one tick: then by the order of the writes.
            let release = sim.status.release.as_ref().unwrap();
            assert_eq!(release.stage, Stage::Promote);
            assert_eq!(sim.revisions.len(), revisions.len() + 1);
        }
        guard += 1;
        assert!(guard < 10);
    }
    let target = sim.status.target_revision.clone().unwrap();
    assert!(sim.revisions.contains_key(&target));
}

#[test]
fn a_stale_read_ends_in_a_conflict_and_not_in_a_write() {
    let mut sim = two();
    sim.want("cart", "cart:2");
    sim.run_until("prepared", |sim| {
        sim.status.target_revision.is_some() || !sim.journal.is_empty()
    });
    let mut sim = two();
    sim.want("cart", "cart:2");
    sim.rest();
    sim.now += k8s_openapi::jiff::SignedDuration::from_secs(2);
    assert!(sim.pass(), "prepares");
    assert_eq!(sim.journal, []);
    let stale = sim.deployments.clone();
    sim.deployment("cart").replicas = 5;
    sim.deployment("cart").version += 1;
    sim.stale = Some(stale);
    sim.pass();
    assert_eq!(sim.journal, [], "the write named what was read");
    sim.pass();
    assert_eq!(sim.journal.len(), 1);
}
