//! What was live before a plan tracked a ConfigMap, which it names itself.

use serde_json::{Value, json};

use super::{commands::undo, plans::component, sim::*};
use crate::{
    api::{Cause, ConditionType, Phase, RefusedContent, ReleaseResult},
    config_maps::MAX_BYTES,
    plan::undoable,
};

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
        let sim = taken_back(wait);
        assert_eq!(sim.configuration("web"), [Some("new")]);
    }
}

fn untrack(sim: &mut Sim, web: &str) {
    sim.edit(|spec| {
        *spec = tracking("cart:1", web);
        for component in spec["components"].as_array_mut().unwrap() {
            component.as_object_mut().unwrap().remove("configMaps");
        }
    });
}

fn taken_back(wait: Phase) -> Sim {
    let mut sim = untracked();
    let before = sim.parsed().unwrap();
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "new");
    sim.run(3);
    sim.run_until("the phase", |sim| sim.phase() == wait);
    untrack(&mut sim, "web:1");
    assert_eq!(sim.parsed().unwrap().content(), before.content());
    sim.run_until("the end", Sim::ready);
    assert_eq!(template(&mut sim, "web")["spec"]["volumes"], volumes());
    sim
}

/// What was kept of it in between is of no use to anybody.
#[test]
fn what_is_not_tracked_any_more_comes_back_by_its_name() {
    for wait in [Phase::RollingOut, Phase::Rollback, Phase::Stable] {
        let mut sim = taken_back(wait);
        sim.configure(VOLUME, "of today");
        untrack(&mut sim, "web:3-unready");
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        assert_eq!(sim.image("web"), "web:1");
        for name in ["cart", "web"] {
            assert_eq!(template(&mut sim, name)["spec"]["volumes"], volumes());
        }
        untrack(&mut sim, "web:1");
        sim.run_until("what was stable all the time", Sim::ready);
        // And it is kept anew where the plan tracks it again.
        track(&mut sim);
        sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
        sim.configure(VOLUME, "newest");
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        assert_eq!(sim.configuration("web"), [Some("of today")]);
    }
}

#[test]
fn an_undo_to_what_is_live_by_its_name_says_so() {
    let mut sim = taken_back(Phase::RollingOut);
    let releases = sim.status.history.len();
    for name in sim.revisions.keys().cloned().collect::<Vec<_>>() {
        if undoable(&sim.status).contains(&name.as_str()) {
            undo(&mut sim, &name);
            sim.run(60);
        }
    }
    assert_eq!(
        sim.status.history.len(),
        releases,
        "{:#?}",
        sim.status.history
    );
    assert!(sim.ready());
}

/// With a pod away, as on a node that is drained.
#[test]
fn contents_are_kept_of_what_runs_without_all_of_its_pods() {
    let mut sim = untracked();
    sim.deployment("web").flap();
    sim.dirty = true;
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
}

/// Tracked with an edit that takes the place of a release.
#[test]
fn contents_are_kept_as_they_were_before_an_edit_that_begins_to_track_them() {
    let mut sim = untracked();
    sim.edit(|spec| {
        let mut cart = tracking("cart:2", "web:1");
        *spec = cart.take();
        spec["components"][1]
            .as_object_mut()
            .unwrap()
            .remove("configMaps");
    });
    sim.run_until("one is sent", |sim| sim.image("cart") == "cart:2");
    sim.configure(VOLUME, "new");
    sim.run(2);
    track(&mut sim);
    sim.run_until("the other is sent", |sim| {
        sim.image("web") == "web:2-unready"
    });
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.configuration("cart"), [Some("old")]);
}

/// The stable revision gets another name while an undo is on its way.
#[test]
fn an_undo_that_comes_with_the_tracking_and_fails_holds_nothing() {
    let mut sim = untracked();
    untrack(&mut sim, "web:1.1");
    sim.run_to_the_end();
    let first = sim.status.history[0].from.clone().unwrap();
    sim.deployment("web").broken = true;
    sim.facts.undo = Some(first);
    sim.edit(|spec| *spec = tracking("cart:1", "web:1.1"));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.deployment("web").repair();
    sim.run_until("the end", |sim| sim.status.release.is_none());
    sim.run_until("what the plan says", Sim::ready);
    let held = |r: &&RefusedContent| r.cause == Cause::Undone;
    assert_eq!(sim.status.refused.iter().find(held), None);
    assert_eq!(sim.image("web"), "web:1.1");
}

/// A plan that does not say any more what the workload runs leaves the name of a
/// snapshot in its template.
#[test]
fn a_template_that_is_the_users_again_keeps_the_snapshot_that_it_names() {
    let mut sim = started(tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    sim.edit(|spec| {
        for component in spec["components"].as_array_mut().unwrap() {
            component.as_object_mut().unwrap().remove("template");
        }
    });
    sim.run(30);
    assert!(sim.ready(), "{:#?}", sim.status);
    let with_snapshot = sim.status.stable_revision.clone().unwrap();
    let named = sim.deployments["web"].named();
    sim.edit(|spec| spec["revisionHistoryLimit"] = json!(3));
    sim.deployment("web").mount(VOLUME);
    sim.dirty = true;
    sim.run_to_the_end();
    for at in ["1", "2"] {
        sim.deployment("web").restart(at);
        sim.dirty = true;
        sim.run_to_the_end();
    }
    assert!(sim.revisions.contains_key(&with_snapshot));
    let kept = |name: &String| sim.snapshots.contains_key(name);
    assert!(named.iter().all(kept), "{named:?}");
    undo(&mut sim, &with_snapshot);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert_eq!(sim.deployments["web"].named(), named);
}

#[test]
fn a_deleted_config_map_is_said_to_be_missed_where_the_name_is_live() {
    let mut sim = started(tracking("cart:2", "web:2-unready"));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run(5);
    let told = sim.condition(ConditionType::Ready).2;
    let lack = "no new pod of deployment cart and deployment web can start until it exists";
    assert!(told.contains(lack), "{told}");
}

/// Releases that began before the plan tracked the ConfigMap began with what is
/// kept of it.
#[test]
fn where_releases_began_is_known_by_the_name_with_the_contents() {
    let mut sim = untracked();
    untrack(&mut sim, "web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.edit(|spec| *spec = tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    let known = undoable(&sim.status).into_iter();
    let known: Vec<String> = known.map(str::to_owned).collect();
    assert_eq!(known.len(), 2, "{known:?}");
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    undo(&mut sim, &known[0]);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    are_back(&mut sim);
}

/// Others of the plan rest on older contents, since the newer ones are refused.
#[test]
fn a_component_that_joins_keeps_the_contents_that_it_ran_with() {
    let mut spec = tracking("cart:1", "web:1");
    spec["components"].as_array_mut().unwrap().pop();
    let mut sim = started(spec.clone());
    sim.run_to_the_end();
    sim.deployment("cart").broken = true;
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = false;
    sim.deployment("cart").repair();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    track(&mut sim);
    sim.run_until("both are sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(VOLUME, "newer");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(
        (sim.configuration("cart"), sim.configuration("web")),
        (vec![Some("old")], vec![Some("new")])
    );
}

/// What the plan asks for was refused before, so what comes back is what was
/// live before the plan.
#[test]
fn a_plan_that_goes_back_to_refused_content_brings_the_contents_back() {
    let mut sim = failing();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.edit(|spec| *spec = tracking("cart:3", "web:3-slow"));
    sim.run_until("both are sent", |sim| sim.image("web") == "web:3-slow");
    sim.config_maps.clear();
    sim.edit(|spec| *spec = tracking("cart:2", "web:2-unready"));
    are_back(&mut sim);
}

#[test]
fn contents_that_are_too_large_to_be_kept_are_not_those_of_before() {
    let mut sim = failing();
    sim.configure(VOLUME, &"x".repeat(MAX_BYTES + 1));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    are_back(&mut sim);
}

/// Nobody looks at a ConfigMap that the plan does not track.
#[test]
fn a_lost_snapshot_of_what_is_not_tracked_any_more_is_told_as_that() {
    let mut sim = started(tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    sim.snapshots.clear();
    untrack(&mut sim, "web:3-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run(5);
    assert_eq!((sim.reason(), sim.stalled()), ("SnapshotLost", true));
    let told = sim.condition(ConditionType::Ready).2;
    let text = "and the plan does not track settings any more, so that nothing can be made again";
    assert!(told.contains(text), "{told}");
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

/// Nobody runs its pods at present, and still they ran with these contents.
#[test]
fn contents_are_kept_of_what_is_scaled_to_nothing() {
    let mut sim = untracked();
    for name in ["cart", "web"] {
        sim.deployment(name).replicas = 0;
    }
    sim.run(5);
    sim.edit(|spec| *spec = tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    let first = sim.status.history.last().unwrap().from.clone().unwrap();
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    are_back(&mut sim);
}

/// The plan tracks the ConfigMap all the time: it is its contents that change.
#[test]
fn an_undo_to_what_was_live_before_is_recorded_as_a_change_of_contents() {
    let mut sim = started(tracking("cart:2", "web:2"));
    sim.run_to_the_end();
    let first = sim.status.history[0].from.clone().unwrap();
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    let changes = sim.status.history.last().unwrap().changes.join("\n");
    assert!(!changes.contains("not tracked"), "{changes}");
    assert!(changes.contains("cart: configmap settings: "), "{changes}");
}
