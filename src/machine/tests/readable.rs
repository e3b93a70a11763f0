//! ConfigMaps that cannot be read for a while: what waits for them, and what
//! people are told.

use serde_json::json;

use super::sim::*;
use crate::{
    api::{ConditionType, Phase, Reason},
    plan::Stamps,
};

/// A plan whose followed component broke with new contents and went back.
fn refused() -> (Sim, String) {
    let mut sim = Sim::new(
        json!({"components": [reading("web", "settings")], "progressDeadline": "60s"}),
        &[("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    sim.deployment("web").broken = true;
    sim.configure("settings", "bad");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    sim.run(10);
    sim.journal.clear();
    let revision = sim.status.refused[0].revision.clone();
    (sim, revision)
}

/// A plan with an earlier revision of other code and contents.
fn released() -> (Sim, String) {
    let mut sim = Sim::new(
        json!({"components": [configured("web", "web:1", "settings")]}),
        &[("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.configure("settings", "new");
    sim.want("web", "web:2");
    sim.run_until("the release", |sim| {
        sim.image("web") == "web:2" && sim.ready()
    });
    sim.run(10);
    sim.journal.clear();
    (sim, first)
}

fn ready(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

fn looks(sim: &mut Sim, times: usize) {
    for _ in 0..times {
        sim.dirty = true;
        sim.run(2);
    }
}

#[test]
fn a_retry_waits_until_its_config_map_can_be_read() {
    let (mut sim, revision) = refused();
    sim.unreadable = true;
    sim.facts.retry = Some(revision.clone());
    looks(&mut sim, 5);
    assert_eq!(sim.told(Reason::RetryIgnored), 0, "{:#?}", sim.events);
    assert_eq!((&sim.facts.retry, sim.journal.len()), (&Some(revision), 0));
    let text = "waits for configmap settings to be readable (configmaps is forbidden)";
    assert!(ready(&sim).contains(text), "{}", ready(&sim));
    assert_eq!(sim.told(Reason::RetryRequested), 1, "{:#?}", sim.events);
    sim.unreadable = false;
    sim.dirty = true;
    sim.run_until("the release", |sim| {
        sim.config_maps["settings"] == "bad" && sim.phase() == Phase::Stable && sim.ready()
    });
    assert_eq!(sim.facts.retry, None);
}

#[test]
fn an_order_that_waited_for_a_read_may_still_be_refused_for_what_was_read() {
    let (mut sim, revision) = refused();
    sim.unreadable = true;
    sim.facts.retry = Some(revision);
    looks(&mut sim, 2);
    sim.snapshots.retain(|_, text| text != "bad");
    sim.unreadable = false;
    looks(&mut sim, 2);
    assert_eq!(
        (sim.told(Reason::RetryIgnored), &sim.facts.retry),
        (1, &None)
    );
    assert_eq!(sim.config_maps["settings"], "old");
}

#[test]
fn an_undo_waits_until_its_snapshots_can_be_read() {
    let (mut sim, first) = released();
    sim.blind = true;
    sim.facts.undo = Some(first.clone());
    looks(&mut sim, 5);
    assert_eq!(sim.told(Reason::UndoIgnored), 0, "{:#?}", sim.events);
    assert_eq!((&sim.facts.undo, sim.journal.len()), (&Some(first), 0));
    assert!(ready(&sim).contains("to be readable"), "{}", ready(&sim));
    assert_eq!(sim.told(Reason::UndoRequested), 1, "{:#?}", sim.events);
    sim.blind = false;
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(sim.configuration("web"), [Some("old")]);
    assert_eq!((sim.image("web"), &sim.facts.undo), ("web:1", &None));
}

#[test]
fn newer_content_is_the_later_wish_than_an_undo_that_waits_for_a_read() {
    let (mut sim, first) = released();
    sim.blind = true;
    let stamp = json!([{
        "order": "undo", "revision": first, "user": "jane", "at": "2027-01-01T00:00:00Z",
        "generation": sim.facts.release_generation,
    }]);
    sim.facts.ordered_by = Stamps::read(Some(&stamp.to_string()));
    sim.facts.undo = Some(first);
    looks(&mut sim, 2);
    assert_eq!(sim.told(Reason::UndoIgnored), 0, "{:#?}", sim.events);
    sim.want("web", "web:3");
    sim.run(3);
    assert_eq!((sim.told(Reason::UndoIgnored), &sim.facts.undo), (1, &None));
    sim.blind = false;
    sim.dirty = true;
    sim.run_until("the release", |sim| {
        sim.image("web") == "web:3" && sim.ready()
    });
}

/// Content that comes after an order that waited through a rest is newer.
#[test]
fn a_followed_workload_that_is_changed_overtakes_a_retry_that_waits_for_a_read() {
    let (mut sim, revision) = refused();
    sim.unreadable = true;
    sim.facts.retry = Some(revision);
    looks(&mut sim, 2);
    sim.deployment("web").set_image("web:2");
    sim.run_until("the release", |sim| sim.phase() == Phase::RollingOut);
    assert_eq!(sim.told(Reason::RetryIgnored), 1, "{:#?}", sim.events);
    sim.run(3);
    assert_eq!(sim.facts.retry, None);
    sim.unreadable = false;
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable && sim.ready());
    sim.run(30);
    assert_eq!(
        (sim.image("web"), sim.config_maps["settings"].as_str()),
        ("web:2", "old")
    );
}

#[test]
fn a_pause_holds_what_an_order_that_waited_for_a_read_starts() {
    let (mut sim, first) = released();
    sim.blind = true;
    sim.facts.undo = Some(first);
    looks(&mut sim, 2);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.blind = false;
    sim.run(20);
    assert_eq!((sim.reason(), sim.journal.len()), ("Paused", 0));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(sim.configuration("web"), [Some("old")]);
}

#[test]
fn what_does_not_exist_and_what_cannot_be_read_are_told_apart() {
    let mut sim = Sim::new(
        json!({"components": [reading("web", "settings"), reading("cart", "settings")]}),
        &[("web", "web:1")],
    );
    sim.configure("settings", "old");
    sim.unreadable = true;
    sim.run(5);
    assert_eq!(
        ready(&sim),
        "waiting for deployment cart to exist and for configmap settings to be readable (configmaps is forbidden). Create what is missing, or correct the name in the plan"
    );
    sim.unreadable = false;
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run(5);
    assert_eq!(
        ready(&sim),
        "waiting for deployment cart, configmap settings to exist. Create what is missing, or correct the name in the plan"
    );
}

/// Contents that cannot be read cannot be kept either: nothing fails for it.
#[test]
fn a_release_waits_for_contents_that_have_to_be_kept() {
    let (mut sim, _) = released();
    sim.snapshots.clear();
    sim.unreadable = true;
    sim.want("web", "web:3");
    sim.run(10);
    assert_eq!((sim.reason(), sim.journal.len()), ("TargetsMissing", 0));
    assert!(!sim.stalled());
    let text = "waiting for configmap settings to be readable (configmaps is forbidden)";
    assert!(ready(&sim).starts_with(text), "{}", ready(&sim));
    sim.unreadable = false;
    sim.dirty = true;
    sim.run_until("the release", |sim| {
        sim.image("web") == "web:3" && sim.ready()
    });
}
