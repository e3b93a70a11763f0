//! Workloads that were followed and get a template of the plan, or the other way
//! round: whose the ConfigMap is that they read, and what comes back.

use serde_json::{Value, json};

use super::{
    commands::undo,
    plans::{configured, followed, reading},
    sim::*,
};
use crate::api::{Cause, ConditionType, Phase, Reason, ReleaseResult};

const MAP: &str = "settings";

fn by_name() -> Value {
    json!([{"name": "config", "configMap": {"name": MAP}}])
}

fn volumes(sim: &Sim) -> &Value {
    &sim.deployments["web"].template["spec"]["volumes"]
}

fn plan(web: Value) -> Value {
    json!({"components": [followed("cart"), web], "progressDeadline": "60s"})
}

/// `web` reads a ConfigMap by its name.
fn started(web: Value) -> Sim {
    let mut sim = Sim::new(plan(web), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    let web = sim.deployment("web");
    web.mount(MAP);
    for _ in 0..8 {
        web.tick();
    }
    sim.configure(MAP, "old");
    sim
}

fn ready(web: Value) -> Sim {
    let mut sim = started(web);
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

/// Code and contents are those of the start, and the ConfigMap is its user's.
fn is_back_beside(sim: &mut Sim, map: &str) {
    assert_eq!(
        (sim.image("web"), sim.configuration("web")),
        ("web:1", vec![Some("old")])
    );
    let (writes, releases) = (sim.journal.len(), sim.status.history.len());
    sim.run(120);
    assert_eq!(sim.journal.len(), writes, "{:#?}", sim.journal);
    assert_eq!(sim.status.history.len(), releases);
    assert_eq!(sim.config_maps[MAP], map);
}

#[test]
fn an_undo_to_before_the_template_writes_nothing_into_the_config_map() {
    let mut sim = ready(reading("web", MAP));
    sim.edit(|spec| *spec = plan(configured("web", "web:2", MAP)));
    sim.run_to_the_end();
    let first = sim.status.history[0].from.clone().unwrap();
    sim.configure(MAP, "new");
    sim.run_to_the_end();
    assert_eq!(sim.configuration("web"), [Some("new")]);
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    is_back_beside(&mut sim, "new");
}

#[test]
fn a_failure_of_the_first_template_brings_the_contents_of_then_back_by_snapshot() {
    let mut sim = ready(reading("web", MAP));
    sim.configure(MAP, "new");
    sim.edit(|spec| *spec = plan(configured("web", "web:2-unready", MAP)));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    is_back_beside(&mut sim, "new");
    assert_eq!(sim.reason(), "RolledBack");
}

fn untracked(image: &str) -> Value {
    let mut web = configured("web", image, MAP);
    web.as_object_mut().unwrap().remove("configMaps");
    web
}

/// The tracking began and ended within one release, and begins again much later.
#[test]
fn contents_of_a_tracking_that_was_taken_back_are_forgotten() {
    for ends in ["taken back", "untracked"] {
        let mut sim = ready(untracked("web:1"));
        sim.edit(|spec| *spec = plan(configured("web", "web:2-slow", MAP)));
        sim.run_until("it is sent", |sim| sim.image("web") == "web:2-slow");
        if ends == "taken back" {
            sim.edit(|spec| *spec = plan(untracked("web:1")));
            sim.run_until("what it was", Sim::ready);
        } else {
            sim.edit(|spec| *spec = plan(untracked("web:3-unready")));
            sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
            sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        }
        sim.run(5);
        sim.configure(MAP, "of today");
        sim.edit(|spec| *spec = plan(configured("web", "web:4-unready", MAP)));
        sim.run_until("it is sent", |sim| sim.image("web") == "web:4-unready");
        sim.configure(MAP, "newest");
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        assert_eq!(sim.image("web"), "web:1");
        assert_eq!(sim.configuration("web"), [Some("of today")], "{ends}");
    }
}

/// What was live before the plan is there with a snapshot in the place of the
/// name when the plan takes the field, and gives it back.
#[test]
fn a_field_that_the_plan_gives_back_gets_the_name_that_its_user_had_there() {
    let mut sim = started(configured("web", "web:2-unready", MAP));
    sim.run_until("it is sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(MAP, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_ne!(*volumes(&sim), by_name());
    sim.edit(|spec| *spec = plan(configured("web", "web:3", MAP)));
    sim.run_until("the release", Sim::ready);
    sim.edit(|spec| {
        let mut web = configured("web", "web:4", MAP);
        web.as_object_mut().unwrap().remove("configMaps");
        web["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("volumes");
        *spec = plan(web);
    });
    sim.run_until("the release", |sim| {
        sim.ready() && sim.image("web") == "web:4"
    });
    assert_eq!(*volumes(&sim), by_name());
}

/// A rollback that brings a snapshot stalls, and what was stable before is asked
/// for by its name again, and fails as well.
#[test]
fn what_was_stable_by_its_name_is_refused_where_it_fails_itself() {
    let mut sim = ready(untracked("web:1"));
    sim.edit(|spec| *spec = plan(configured("web", "web:2-unready", MAP)));
    sim.run_until("it is sent", |sim| sim.image("web") == "web:2-unready");
    sim.configure(MAP, "new");
    sim.deployment("web").broken = true;
    sim.run_until("it stalls", |sim| sim.reason() == "RollbackStalled");
    sim.edit(|spec| *spec = plan(untracked("web:1")));
    sim.run_until("it is tried", |sim| sim.phase() == Phase::RollingOut);
    sim.run_until("it failed", |sim| sim.phase() == Phase::Rollback);
    let web = sim.deployment("web");
    web.broken = false;
    web.repair();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    let content = sim.parsed().unwrap().content().to_owned();
    let mut refused = sim.status.refused.iter();
    assert!(
        refused.any(|r| r.spec.as_deref() == Some(&content)),
        "{:#?}",
        sim.status.refused
    );
    let releases = sim.status.history.len();
    sim.run(300);
    assert!(
        sim.status.history.len() <= releases + 1,
        "{:#?}",
        sim.status.history
    );
}

/// The plan takes its template away while the release of it is on its way, so
/// that a snapshot stays in what is the user's again.
#[test]
fn a_snapshot_that_a_release_left_in_a_template_is_kept_with_it() {
    let mut sim = ready(configured("web", "web:2", MAP));
    sim.edit(|spec| spec["revisionHistoryLimit"] = json!(2));
    sim.configure(MAP, "new");
    sim.edit(|spec| *spec = plan(configured("web", "web:3-slow", MAP)));
    sim.run_until("it is sent", |sim| sim.image("web") == "web:3-slow");
    sim.edit(|spec| {
        *spec = plan(followed("web"));
        spec["revisionHistoryLimit"] = json!(2);
    });
    sim.run_until("the end", Sim::ready);
    let named = sim.deployments["web"].named();
    assert_eq!(sim.configuration("web"), [Some("new")]);
    for at in ["1", "2", "3"] {
        sim.deployment("cart").restart(at);
        sim.run_to_the_end();
    }
    let kept = |name: &String| sim.snapshots.contains_key(name);
    assert!(
        named.iter().all(kept),
        "{named:?} of {:?}",
        sim.snapshots.keys()
    );
}

#[test]
fn an_undo_that_waits_and_is_overtaken_by_contents_says_so_and_names_nobody() {
    let mut sim = ready(configured("web", "web:1", MAP));
    sim.edit(|spec| *spec = plan(configured("web", "web:2", MAP)));
    sim.run_to_the_end();
    sim.run(5);
    let first = sim.status.history[0].from.clone().unwrap();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.facts.requested_by = Some("jane".to_owned());
    undo(&mut sim, &first);
    sim.run(5);
    assert_eq!(sim.reason(), "Paused");
    sim.configure(MAP, "new");
    sim.run(5);
    assert_eq!(sim.told(Reason::UndoIgnored), 1, "{:#?}", sim.events);
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_to_the_end();
    let last = sim.status.history.last().unwrap();
    assert_eq!(
        (last.result, &last.requested_by),
        (ReleaseResult::Succeeded, &None)
    );
    let held = sim.status.refused.iter().any(|r| r.cause == Cause::Undone);
    assert!(!held);
    assert_eq!(sim.configuration("web"), [Some("new")]);
}

/// Of all of it the plan owns nothing: what it wants is refused.
#[test]
fn an_undo_between_revisions_of_before_the_template_is_carried_out() {
    let mut sim = ready(reading("web", MAP));
    sim.deployment("web").set_image("web:1.1");
    sim.run_to_the_end();
    sim.edit(|spec| *spec = plan(configured("web", "web:2-unready", MAP)));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("web"), "web:1.1");
    let first = sim.status.history[0].from.clone().unwrap();
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    sim.run(60);
    assert_eq!((sim.image("web"), sim.reason()), ("web:1", "Undone"));
    assert_eq!(sim.configuration("web"), [Some("old")]);
}

/// The plan gives up its template, and the workload keeps the snapshot in it.
#[test]
fn a_followed_workload_that_reads_a_snapshot_still_is_told() {
    let mut sim = ready(configured("web", "web:2", MAP));
    sim.edit(|spec| *spec = plan(reading("web", MAP)));
    sim.run(30);
    assert!(sim.ready(), "{:#?}", sim.status);
    let told = |sim: &Sim| sim.condition(ConditionType::Ready).2.to_owned();
    let text = "in the place of settings, as the plan had put it there";
    assert!(told(&sim).contains(text), "{}", told(&sim));
    sim.deployment("web").mount(MAP);
    sim.run_to_the_end();
    let changes = sim.status.history.last().unwrap().changes.clone();
    let [change] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    let snapshot = sim.snapshots.keys().next().unwrap();
    let end = format!("{snapshot} → {MAP}");
    assert!(
        change.starts_with("web: ") && change.ends_with(&end),
        "{change}"
    );
    sim.run(5);
    assert!(sim.ready() && !told(&sim).contains(text), "{}", told(&sim));
}
