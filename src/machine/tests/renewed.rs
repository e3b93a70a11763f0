//! Snapshots that somebody deletes: they are made again while their contents are
//! there, and what is lost is said before it is missed.

use serde_json::json;

use super::sim::*;
use crate::api::{ConditionType, Phase, Reason};

fn ready(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

fn at_rest(component: serde_json::Value) -> Sim {
    let mut sim = Sim::new(json!({"components": [component]}), &[("web", "web:1")]);
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.journal.clear();
    sim.events.clear();
    sim
}

fn plans() -> [Sim; 2] {
    [
        at_rest(configured("web", "web:1", "settings")),
        at_rest(reading("web", "settings")),
    ]
}

#[test]
fn a_snapshot_that_is_deleted_at_rest_is_made_again_at_once() {
    for mut sim in plans() {
        let (snapshots, status) = (sim.snapshots.clone(), sim.status.clone());
        assert_eq!(snapshots.len(), 1);
        sim.snapshots.clear();
        sim.dirty = true;
        let writes = sim.writes;
        sim.run(30);
        assert_eq!((&sim.snapshots, &sim.status), (&snapshots, &status));
        assert_eq!(sim.writes - writes, 1, "nothing else is written");
        // So that the contents of then go back with what comes next.
        sim.configure("settings", "bad");
        sim.run_until("the release", |sim| sim.phase() == Phase::RollingOut);
        sim.deployment("web").broken = true;
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.deployment("web").broken = false;
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        assert_eq!(sim.configuration_of_web(), "old");
    }
}

#[test]
fn a_rolled_back_plan_keeps_its_snapshots_too() {
    let mut sim = at_rest(configured("web", "web:1", "settings"));
    sim.want("web", "web:2-crash");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    sim.run(30);
    sim.snapshots.clear();
    sim.dirty = true;
    sim.run(5);
    assert_eq!(sim.snapshots.len(), 1);
    assert_eq!(sim.reason(), "RolledBack");
}

/// What is live is what its stable revision holds, whatever the plan asks for.
#[test]
fn contents_that_are_lost_under_refused_content_are_said_and_made_again() {
    for mut sim in plans() {
        sim.configure("settings", "bad");
        sim.deployment("web").broken = true;
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.deployment("web").broken = false;
        sim.run_until("the end", |sim| sim.reason() == "RolledBack");
        sim.run(10);
        assert_eq!(sim.configuration_of_web(), "old");
        sim.events.clear();
        sim.config_maps.clear();
        sim.snapshots.clear();
        for _ in 0..5 {
            sim.dirty = true;
            sim.run(2);
        }
        assert_eq!(sim.reason(), "RolledBack");
        let text = "; a rollback could not bring all configuration back: configmap settings-";
        assert!(ready(&sim).contains(text), "{}", ready(&sim));
        assert!(ready(&sim).contains("belay.dev/retry="), "{}", ready(&sim));
        assert_eq!(sim.told(Reason::SnapshotLost), 1, "{:#?}", sim.events);
        sim.configure("settings", "old");
        sim.run(60);
        assert_eq!(sim.configuration_of_web(), "old");
        assert!(!ready(&sim).contains(text), "{}", ready(&sim));
        assert!(sim.snapshots.values().any(|text| text == "old"));
    }
}

/// However much is lost, the way out stands whole in the message.
#[test]
fn what_is_lost_does_not_push_the_way_out_off_the_message() {
    let names = ["one", "two", "three", "four", "five"];
    let mut component = configured("web", "web:1", "one");
    component["configMaps"] = json!(names);
    let volumes = names.map(|name| json!({"name": name, "configMap": {"name": name}}));
    component["template"]["spec"]["volumes"] = json!(volumes);
    let mut sim = Sim::new(json!({"components": [component]}), &[("web", "web:1")]);
    for name in names {
        sim.configure(name, "old");
    }
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.want("web", "web:2-crash");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    sim.config_maps.clear();
    sim.snapshots.clear();
    sim.dirty = true;
    sim.run(5);
    let bad = &sim.status.refused[0].revision;
    let way = format!("belay.dev/retry={bad} --overwrite ; configmap ");
    assert!(ready(&sim).contains(&way), "{}", ready(&sim));
    assert_eq!(sim.told(Reason::SnapshotLost), 1);
}

#[test]
fn an_idle_plan_whose_snapshots_are_whole_writes_nothing() {
    for mut sim in plans() {
        let (writes, status) = (sim.writes, sim.status.clone());
        for _ in 0..20 {
            sim.dirty = true;
            sim.run(2);
        }
        assert_eq!((sim.writes, &sim.status), (writes, &status));
    }
}

#[test]
fn contents_that_are_lost_at_rest_are_said_once_and_stay_said() {
    for mut sim in plans() {
        sim.config_maps.clear();
        sim.snapshots.clear();
        for _ in 0..10 {
            sim.dirty = true;
            sim.run(2);
        }
        assert!(sim.ready());
        let text = "; a rollback could not bring all configuration back: configmap settings-";
        assert!(ready(&sim).contains(text), "{}", ready(&sim));
        assert_eq!(sim.told(Reason::SnapshotLost), 1, "{:#?}", sim.events);
        sim.configure("settings", "old");
        sim.run(5);
        assert!(!ready(&sim).contains(text), "{}", ready(&sim));
        assert_eq!(sim.snapshots.len(), 1);
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_or_stored_again_changes_no_verdict_on_a_release() {
    let mut sim = at_rest(configured("web", "web:1", "settings"));
    let status = sim.status.clone();
    sim.blind = true;
    sim.dirty = true;
    sim.run(5);
    assert_eq!((&sim.status, sim.events.len()), (&status, 0));
    sim.blind = false;
    sim.snapshots.clear();
    sim.policies
        .insert("settings-*".to_owned(), "exceeded quota");
    for _ in 0..5 {
        sim.dirty = true;
        sim.run(5);
    }
    assert!(
        sim.ready() && ready(&sim).contains("exceeded quota"),
        "{}",
        ready(&sim)
    );
    assert_eq!(sim.told(Reason::SnapshotLost), 1);
    sim.policies.clear();
    sim.dirty = true;
    sim.run(5);
    assert_eq!(
        (&sim.status.conditions, sim.snapshots.len()),
        (&status.conditions, 1)
    );
}

/// It was deleted while nobody looked, and the ConfigMap was edited.
#[test]
fn a_release_says_at_its_start_which_contents_a_rollback_could_not_bring_back() {
    for mut sim in plans() {
        sim.snapshots.clear();
        sim.configure("settings", "new");
        sim.run_until("the release", |sim| sim.phase() == Phase::RollingOut);
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable && sim.ready());
        assert_eq!(sim.told(Reason::SnapshotLost), 1, "{:#?}", sim.events);
        let told = |reason| sim.events.iter().position(|e| e.reason == reason);
        assert!(told(Reason::SnapshotLost) < told(Reason::ReleaseStarted));
        let stable = sim.status.history.last().unwrap().from.clone().unwrap();
        let note = &sim.events[told(Reason::SnapshotLost).unwrap()].note;
        let text = format!("a rollback to {stable} could not bring all configuration back: ");
        assert!(note.starts_with(&text), "{note}");
    }
}

/// It was deleted while nobody looked, and what comes does not need it, but the
/// way back from that does.
#[test]
fn an_undo_keeps_again_what_its_way_back_needs() {
    let mut sim = at_rest(configured("web", "web:1", "settings"));
    let first = sim.status.stable_revision.clone().unwrap();
    sim.configure("settings", "new");
    sim.run_until("the release", |sim| {
        sim.configuration_of_web() == "new" && sim.ready()
    });
    sim.run(10);
    sim.events.clear();
    sim.snapshots.retain(|_, text| text != "new");
    sim.facts.undo = Some(first);
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.configuration("web") == [Some("old")]);
    assert_eq!(sim.snapshots.len(), 2, "{:?}", sim.snapshots);
    sim.deployment("web").broken = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.config_maps.clear();
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.configuration("web"), [Some("new")]);
    assert_eq!(sim.told(Reason::SnapshotLost), 0, "{:#?}", sim.events);
}
