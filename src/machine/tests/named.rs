//! What was live before a plan tracked a ConfigMap, which it names itself.

use serde_json::{Value, json};

use super::{plans::component, sim::*};
use crate::api::{Phase, ReleaseResult};

const VOLUME: &str = "settings";

fn volumes() -> Value {
    json!([{"name": "config", "configMap": {"name": VOLUME}}])
}

/// Two workloads that name a ConfigMap, and a plan that has not looked at them.
fn started(spec: Value) -> Sim {
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    for name in ["cart", "web"] {
        let deployment = sim.deployment(name);
        deployment.mount(VOLUME);
        for _ in 0..8 {
            deployment.tick();
        }
    }
    sim.configure(VOLUME, "old");
    sim
}

fn tracking(cart: &str, web: &str) -> Value {
    json!({"components": [configured("cart", cart, VOLUME), configured("web", web, VOLUME)],
           "progressDeadline": "60s"})
}

/// A first release that is on its way and fails.
fn failing() -> Sim {
    let mut sim = started(tracking("cart:2", "web:2-unready"));
    sim.run_until("both are sent", |sim| {
        sim.image("cart") == "cart:2" && sim.image("web") == "web:2-unready"
    });
    sim
}

fn template(sim: &mut Sim, name: &str) -> Value {
    sim.deployment(name).template.clone()
}

/// Both are what they were, code and configuration, and stay so.
fn are_back(sim: &mut Sim) {
    let maps = sim.config_maps.clone();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    for name in ["cart", "web"] {
        assert_eq!(sim.configuration(name), [Some("old")], "{name}");
    }
    let writes = sim.journal.len();
    sim.run(120);
    assert_eq!(sim.journal.len(), writes, "{:#?}", sim.journal);
    assert_eq!(sim.config_maps, maps, "the ConfigMap is the user's");
}

#[test]
fn names_come_back_as_they_were_where_they_stand_for_the_same() {
    let mut sim = started(tracking("cart:2", "web:2-unready"));
    let before = ["cart", "web"].map(|name| template(&mut sim, name));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
    assert_eq!(["cart", "web"].map(|name| template(&mut sim, name)), before);
}

#[test]
fn contents_edited_in_the_first_release_do_not_come_with_the_old_code() {
    let mut sim = failing();
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
    assert_eq!(sim.config_maps[VOLUME], "new");
    let changes = sim.status.history.last().unwrap().changes.join("\n");
    assert!(changes.contains("cart: configmap settings: "), "{changes}");
}

#[test]
fn contents_edited_on_the_way_back_do_not_come_with_the_old_code() {
    let mut sim = failing();
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.configure(VOLUME, "new");
    are_back(&mut sim);
}

#[test]
fn old_code_reads_the_contents_of_a_config_map_that_was_deleted() {
    let mut sim = failing();
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
}

#[test]
fn an_undo_to_what_was_live_before_the_plan_brings_its_contents_back() {
    let mut sim = started(tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    let first = sim.status.history[0].from.clone();
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    assert_eq!(sim.configuration("web"), [Some("new")]);
    sim.facts.undo = first;
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    are_back(&mut sim);
    sim.configure(VOLUME, "newer");
    sim.run_to_the_end();
    assert_eq!(sim.configuration("web"), [Some("newer")]);
}

#[test]
fn a_failure_after_such_an_undo_returns_to_the_contents_of_then() {
    let mut sim = started(tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    sim.facts.undo = sim.status.history[0].from.clone();
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    // Nothing was edited since, so the name came back.
    assert_eq!(template(&mut sim, "web")["spec"]["volumes"], volumes());
    sim.configure(VOLUME, "new");
    sim.want("web", "web:3-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
}

/// A plan that names a ConfigMap in its templates, and tracks none.
fn untracked() -> Sim {
    let mut spec = tracking("cart:1", "web:1");
    for component in spec["components"].as_array_mut().unwrap() {
        component.as_object_mut().unwrap().remove("configMaps");
    }
    let mut sim = started(spec);
    sim.run(10);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

fn track(sim: &mut Sim) {
    sim.edit(|spec| *spec = tracking("cart:2", "web:2-unready"));
}

#[test]
fn what_was_stable_before_a_config_map_was_tracked_keeps_its_contents() {
    let mut sim = untracked();
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
}

#[test]
fn the_release_before_a_config_map_was_tracked_can_be_undone_to_with_its_contents() {
    let mut sim = untracked();
    sim.want("cart", "cart:1.1");
    sim.want("web", "web:1.1");
    sim.run_to_the_end();
    sim.edit(|spec| *spec = tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    assert_eq!(sim.results(), [ReleaseResult::Succeeded; 3]);
    let before = sim.status.history[1].from.clone();
    assert_eq!(before, sim.status.history[0].revision);
    sim.facts.undo = before;
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(
        (sim.image("web"), sim.configuration("web")),
        ("web:1.1", vec![Some("old")])
    );
}

/// The plan says by the name again what it said before, in the middle of the
/// release, of the way back, and after it.
#[test]
fn an_edit_that_takes_the_tracking_back_brings_the_name_back() {
    for wait in [Phase::RollingOut, Phase::Rollback, Phase::Stable] {
        taken_back(wait);
    }
}

fn taken_back(wait: Phase) {
    let mut sim = untracked();
    let before = sim.parsed().unwrap();
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "new");
    sim.run(3);
    sim.run_until("the phase", |sim| sim.phase() == wait);
    sim.edit(|spec| {
        *spec = tracking("cart:1", "web:1");
        for component in spec["components"].as_array_mut().unwrap() {
            component.as_object_mut().unwrap().remove("configMaps");
        }
    });
    assert_eq!(sim.parsed().unwrap().content(), before.content());
    sim.run_until("the end", Sim::ready);
    assert_eq!(template(&mut sim, "web")["spec"]["volumes"], volumes());
    assert_eq!(sim.configuration("web"), [Some("new")]);
}

#[test]
fn a_component_that_joins_with_a_config_map_keeps_its_contents() {
    let mut spec = tracking("cart:1", "web:1");
    spec["components"].as_array_mut().unwrap().pop();
    spec["components"][0] = component("cart", "cart:1");
    let mut sim = started(spec);
    sim.run(10);
    assert!(sim.ready(), "{:#?}", sim.status);
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(
        (sim.image("web"), sim.configuration("web")),
        ("web:1", vec![Some("old")])
    );
}

#[test]
fn a_way_back_whose_contents_are_lost_says_so_and_ends_once_they_are_there() {
    let mut sim = failing();
    sim.configure(VOLUME, "new");
    sim.run_until("the new contents are kept", |sim| sim.snapshots.len() == 2);
    sim.snapshots.retain(|_, text| text == "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run(5);
    assert_eq!((sim.reason(), sim.stalled()), ("SnapshotLost", true));
    sim.configure(VOLUME, "old");
    are_back(&mut sim);
}
