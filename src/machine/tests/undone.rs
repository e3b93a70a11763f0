//! Undos that meet something else on their way: other orders of writes, stopped
//! releases, edits that wait, limits, a status that is lost.

use serde_json::{Value, json};

use super::{
    commands::{retry, undo},
    sim::*,
};
use crate::api::{Cause, ConditionType, Phase, Reason};

/// Two followed workloads that read one ConfigMap, the second after the first,
/// on their second images and contents; with the revision of the first ones.
fn readers() -> (Sim, String) {
    let mut web = reading("web", "settings");
    web["after"] = json!(["cart"]);
    let spec = json!({"components": [reading("cart", "settings"), web]});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("cart").set_image("cart:2");
    sim.deployment("web").set_image("web:2");
    sim.configure("settings", "new");
    sim.run_to_the_end();
    sim.run(30);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.journal.clear();
    (sim, first)
}

fn state(sim: &Sim) -> (&str, &str, &str) {
    let contents = sim.config_maps["settings"].as_str();
    (sim.image("cart"), sim.image("web"), contents)
}

/// Contents go back with the first workload; what the others still run is no
/// edit.
#[test]
fn an_undo_of_code_and_contents_goes_through_in_order() {
    let (mut sim, first) = readers();
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(30);
    assert_eq!(state(&sim), ("cart:1", "web:1", "old"));
    assert_eq!(sim.told(Reason::Superseded), 0, "{:#?}", sim.events);
}

/// The same where the operator ends between any two writes.
#[test]
fn an_undo_of_code_and_contents_survives_a_crash_between_any_two_writes() {
    let (start, first) = readers();
    for crash in 1.. {
        let mut sim = start.clone();
        sim.crash_at = Some(sim.writes + crash);
        undo(&mut sim, &first);
        sim.run(120);
        assert_eq!(state(&sim), ("cart:1", "web:1", "old"), "after {crash}");
        assert_eq!(sim.told(Reason::Superseded), 0, "after {crash}");
        if sim.crash_at.is_some() {
            return;
        }
    }
}

/// A templated and a followed workload; `edit` changes the spec.
fn mixed(edit: impl FnOnce(&mut Value)) -> (Sim, String, String) {
    let mut spec = json!({"components": [component("api", "api:1"), followed("web")]});
    edit(&mut spec);
    let mut sim = Sim::settled(spec, &[("api", "api:1"), ("web", "web:1")]);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.want("api", "api:2");
    sim.run_to_the_end();
    sim.run(10);
    let second = sim.status.stable_revision.clone().unwrap();
    (sim, first, second)
}

/// What failed was nothing of the plan, and still the content of the plan is what
/// the undo takes away.
#[test]
fn an_undo_of_a_frozen_release_of_a_followed_workload_is_carried_out() {
    let (mut sim, first, _) = mixed(|spec| spec["onFailure"] = json!("Freeze"));
    sim.deployment("web").set_image("web:2-crash");
    sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(30);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
    assert_eq!(sim.reason(), "Undone");
}

#[test]
fn a_frozen_undo_can_be_tried_again() {
    for follows in [false, true] {
        let (mut sim, first, _) = mixed(|spec| spec["onFailure"] = json!("Freeze"));
        let broken = if follows { "web" } else { "api" };
        if follows {
            sim.deployment("web").set_image("web:2");
            sim.run_to_the_end();
            sim.run(10);
        }
        sim.deployment(broken).broken = true;
        undo(&mut sim, &first);
        sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
        sim.deployment(broken).broken = false;
        let target = sim.status.target_revision.clone().unwrap();
        retry(&mut sim, &target);
        sim.run_to_the_end();
        sim.run(10);
        assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
        assert_eq!(sim.phase(), Phase::Stable);
    }
}

/// An edit that was never released is nowhere else: it is not written over.
#[test]
fn an_undo_over_contents_that_nobody_keeps_is_dropped_and_says_why() {
    let (mut sim, first) = readers();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(10);
    sim.configure("settings", "mine");
    sim.run(10);
    undo(&mut sim, &first);
    sim.run(10);
    assert_eq!(sim.told(Reason::UndoIgnored), 1, "{:#?}", sim.events);
    let note = &sim.events.last().unwrap().note;
    assert!(note.contains("configmap settings was edited"), "{note}");
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run(60);
    assert_eq!(state(&sim), ("cart:2", "web:2", "mine"));
}

/// So is one that the plan does not track any more: the way out that is named
/// comes before the undo.
#[test]
fn an_undo_to_contents_that_the_plan_does_not_track_is_dropped_and_says_why() {
    let (mut sim, first) = readers();
    sim.edit(|spec| {
        for component in spec["components"].as_array_mut().unwrap() {
            component["configMaps"] = json!([]);
        }
    });
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.journal.clear();
    undo(&mut sim, &first);
    sim.run(10);
    assert_eq!(sim.told(Reason::UndoIgnored), 1, "{:#?}", sim.events);
    let note = &sim.events.last().unwrap().note;
    assert!(note.contains("spec.components[].configMaps"), "{note}");
    assert_eq!(sim.journal, []);
    assert_eq!(sim.image("cart"), "cart:2");
}

/// A refusal of what the plan asks for stands for as long as it does, however
/// many come after it.
#[test]
fn refused_content_is_held_for_as_long_as_the_plan_asks_for_it() {
    let (mut sim, ..) = mixed(|spec| spec["revisionHistoryLimit"] = json!(1));
    sim.want("api", "api:3-crash");
    sim.run_to_the_end();
    sim.run(10);
    for image in ["web:2-crash", "web:3-crash"] {
        sim.deployment("web").set_image(image);
        sim.run_to_the_end();
        sim.run(60);
        assert_eq!((sim.image("api"), sim.image("web")), ("api:2", "web:1"));
    }
    let numbers = sim.status.history.iter().map(|record| record.number);
    assert_eq!(numbers.max(), Some(4), "nothing was tried again");
    assert_eq!(sim.reason(), "RolledBack");
    assert!(sim.status.refused.len() <= 2, "{:#?}", sim.status.refused);
}

/// What an order waits to go to is not pruned while it waits.
#[test]
fn an_undo_that_waits_keeps_its_revision() {
    let (mut sim, first, _) = mixed(|spec| spec["revisionHistoryLimit"] = json!(1));
    sim.want("api", "api:3-slow");
    sim.run_until("it is under way", |sim| {
        sim.status.target_revision.is_some()
    });
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(sim.image("api"), "api:1");
}

/// Which content was refused cannot be told while the contents are not known.
#[test]
fn a_status_is_not_rebuilt_while_contents_cannot_be_read() {
    let spec = json!({"components": [configured("web", "web:1", "settings")]});
    let mut sim = Sim::new(spec, &[("web", "web:1")]);
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    sim.configure("settings", "bad");
    sim.deployment("web").broken = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    sim.run(10);
    sim.unreadable = true;
    sim.lose_status();
    sim.run(30);
    sim.unreadable = false;
    sim.dirty = true;
    sim.run(90);
    assert_eq!(sim.configuration("web"), [Some("old")]);
    assert_eq!(sim.status.refused[0].cause, Cause::StatusLost);
}

/// What an undo takes away is the stable revision and what waited to be released:
/// each by its own name.
#[test]
fn content_that_an_undo_took_away_unreleased_has_a_name_of_its_own() {
    let (mut sim, first, second) = mixed(|_| {});
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("api", "api:3");
    sim.run(10);
    undo(&mut sim, &first);
    sim.run(10);
    let held = |sim: &Sim| -> Vec<String> {
        let refused = sim.status.refused.iter();
        refused.map(|r| r.revision.clone()).collect()
    };
    assert_eq!(held(&sim).len(), 2);
    let mut back = sim.clone();
    back.facts.abort = Some(first.clone());
    back.dirty = true;
    back.run(10);
    assert_eq!(held(&back), [""; 0], "taken back, it holds nothing");
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(sim.image("api"), "api:1");
    retry(&mut sim, &second);
    sim.run(10);
    assert_eq!(
        (sim.image("api"), sim.told(Reason::RetryIgnored)),
        ("api:1", 1)
    );
    let waiting = held(&sim).pop().unwrap();
    retry(&mut sim, &waiting);
    sim.run_until("the retry", |sim| {
        sim.image("api") == "api:3" && sim.ready()
    });
    assert_eq!(sim.status.stable_revision, Some(waiting));
}

/// Half of what is named is nothing that anybody asked for.
#[test]
fn a_retry_of_which_the_plan_asks_for_half_is_refused() {
    let (mut sim, first, _) = mixed(|_| {});
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    sim.run(10);
    let third = sim.status.stable_revision.clone().unwrap();
    sim.want("api", "api:3");
    sim.deployment("web").set_image("web:3-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    sim.run(10);
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    sim.journal.clear();
    retry(&mut sim, &third);
    sim.run(30);
    assert_eq!(sim.told(Reason::RetryIgnored), 1);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
}

/// What is held of followed workloads is said, too.
#[test]
fn an_undo_of_followed_workloads_says_so_until_something_else_comes() {
    let (mut sim, first) = readers();
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!(sim.reason(), "Undone");
    sim.deployment("cart").set_image("cart:3");
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(10);
    assert!(sim.ready(), "{:#?}", sim.status.refused);
}

/// Also where it is the other component that something else is released of: what
/// was undone stays away, and the release is not told as a failure.
#[test]
fn a_release_after_an_undo_is_told_as_what_it_is() {
    let (mut sim, first, _) = mixed(|_| {});
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!((sim.reason(), sim.image("web")), ("Undone", "web:1"));
    sim.want("api", "api:3");
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:3", "web:1"));
    assert!(sim.ready(), "{:#?}", sim.status.conditions);
    sim.deployment("web").set_image("web:2");
    sim.dirty = true;
    sim.run(10);
    assert_eq!(sim.image("web"), "web:1", "it stays away");
    // And nobody takes that for its release.
    assert_eq!(sim.reason(), "Undone", "{:#?}", sim.status.conditions);
    let told = sim.condition(ConditionType::Ready).2;
    assert!(told.contains("belay.dev/retry="), "{told}");
}

/// Each goes further back, and the first of them is still held.
#[test]
fn the_last_of_several_undos_is_the_one_that_is_told() {
    let (mut sim, first, _) = mixed(|_| {});
    sim.want("api", "api:4");
    sim.run_to_the_end();
    let second = sim.status.stable_revision.clone().unwrap();
    sim.want("api", "api:5");
    sim.run_to_the_end();
    for to in [second, first] {
        undo(&mut sim, &to);
        sim.run_to_the_end();
        sim.run(10);
        let live = sim.status.stable_revision.clone().unwrap();
        let (_, reason, told) = sim.condition(ConditionType::Ready);
        assert_eq!(reason, "Undone");
        let asked = format!("undone: {live} was asked for");
        assert!(told.starts_with(&asked), "{told}");
    }
}

/// A restart is what the person wanted away, and nothing else.
#[test]
fn an_undo_of_a_restart_is_told_as_one() {
    let (mut sim, ..) = mixed(|_| {});
    sim.deployment("web").restart("first");
    sim.run_to_the_end();
    sim.run(10);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("web").restart("second");
    sim.run_to_the_end();
    sim.run(10);
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!(sim.reason(), "Undone");
}

/// Newer content of the plan that came in a rollback is not judged with it.
#[test]
fn content_that_came_in_a_rollback_of_followed_workloads_is_not_judged_with_it() {
    let (mut sim, ..) = mixed(|_| {});
    sim.deployment("web").set_image("web:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.want("api", "api:3");
    let asked = sim.facts.release_generation;
    for _ in 0..300 {
        sim.tick();
        let judged = sim.status.observed_release_generation == asked;
        assert!(!judged || sim.image("api") == "api:3", "{:#?}", sim.status);
    }
    assert!(sim.ready() && sim.image("api") == "api:3");
}

/// A retry brings back what an aborted rollback had sent back.
#[test]
fn a_retry_after_an_aborted_rollback_puts_followed_templates_back() {
    let spec = json!({"components": [followed("a"), followed("b")], "progressDeadline": "60s"});
    let mut sim = Sim::settled(spec, &[("a", "a:1"), ("b", "b:1")]);
    sim.deployment("a").set_image("a:2-crash");
    sim.deployment("b").set_image("b:2");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("a").broken = true;
    sim.run_until("it is stuck", |sim| sim.reason() == "RollbackStalled");
    assert_eq!((sim.image("a"), sim.image("b")), ("a:1", "b:1"));
    let bad = sim.status.target_revision.clone();
    let bad = bad.or(sim.status.release.as_ref().unwrap().applied.last().cloned());
    sim.facts.abort = bad.clone();
    sim.dirty = true;
    sim.run(60);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Failed, "RollbackAborted")
    );
    sim.deployment("a").broken = false;
    sim.deployment("a").repair();
    retry(&mut sim, &bad.unwrap());
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!((sim.image("a"), sim.image("b")), ("a:2-crash", "b:2"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// Whatever an undo waits for, it is not dropped in silence.
#[test]
fn an_undo_that_ends_before_it_began_says_so() {
    let mut sim = Sim::new(
        json!({"components": [configured("web", "web:1", "settings")]}),
        &[("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.configure("settings", "new");
    sim.run_to_the_end();
    sim.run(10);
    sim.edit(|spec| spec["paused"] = json!(true));
    undo(&mut sim, &first);
    sim.run(10);
    sim.snapshots.retain(|_, text| text != "old");
    sim.dirty = true;
    sim.run(10);
    assert_eq!(sim.told(Reason::UndoIgnored), 1, "{:#?}", sim.events);
    assert_eq!(sim.configuration("web"), [Some("new")]);
}

/// Pods that were made with other contents than their stamp says are made anew.
#[test]
fn a_stamp_that_somebody_else_set_is_set_right() {
    let (mut sim, _) = readers();
    let stamped = sim.deployments["cart"].template.clone();
    sim.configure("settings", "newer");
    sim.run_to_the_end();
    sim.run(10);
    let right = sim.deployments["cart"].template.clone();
    assert_ne!(stamped, right);
    sim.deployment("cart").replace(&stamped);
    sim.dirty = true;
    sim.run(30);
    assert_eq!(sim.deployments["cart"].template, right);
    assert_eq!(sim.told(Reason::Reasserted), 1);
}

/// Nothing is held of a workload that left the plan.
#[test]
fn what_was_undone_of_a_workload_that_leaves_the_plan_is_held_no_more() {
    let spec = json!({"components": [followed("a"), followed("b")]});
    let mut sim = Sim::settled(spec, &[("a", "a:1"), ("b", "b:1")]);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("b").set_image("b:2");
    sim.run_to_the_end();
    sim.run(10);
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    sim.run(10);
    sim.edit(|spec| spec["components"] = json!([followed("a")]));
    sim.run(30);
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// Of a component whose content is held the plan may own nothing by now: what
/// surrounds it is no news in a release of another one.
#[test]
fn what_surrounds_undone_content_does_not_begin_a_release_again_and_again() {
    let (mut sim, first, _) = mixed(|_| {});
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    sim.run(10);
    sim.deployment("web").set_image("web:2");
    sim.deployment("api").set_args(&["-x"]);
    sim.run(120);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:2"));
    assert_eq!(sim.told(Reason::Superseded), 0, "{:#?}", sim.events);
    let writes = sim.writes;
    sim.run(60);
    assert_eq!(sim.writes, writes, "it is at rest");
}

/// A retry that an undo overtakes before anything was tried is no better word on
/// what failed.
#[test]
fn what_failed_is_said_of_content_that_was_to_be_tried_again() {
    let (mut sim, first, _) = mixed(|_| {});
    sim.want("api", "api:3-crash");
    sim.run_to_the_end();
    sim.run(10);
    let bad = sim.status.history.last().unwrap().revision.clone().unwrap();
    retry(&mut sim, &bad);
    sim.pass();
    assert_eq!(sim.told(Reason::RetryRequested), 1, "{:#?}", sim.status);
    // The later order takes the earlier one off the plan.
    sim.facts.retry = None;
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!((sim.image("api"), sim.reason()), ("api:1", "Undone"));
    let told = sim.condition(ConditionType::Ready).2;
    let why = format!("undone: {first} was asked for. {bad} failed before: ContainerRestarts");
    assert!(told.starts_with(&why), "{told} {:#?}", sim.status.decisions);
}
