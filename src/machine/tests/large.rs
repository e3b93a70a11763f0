//! A tracked ConfigMap that grows too large to be kept.

use super::{
    commands::{retry, undo},
    plans::configured,
    sim::*,
};
use crate::{
    api::{ConditionType, Phase, Reason},
    config_maps::MAX_BYTES,
};
use serde_json::json;

const HOLDS: &str = "configmap settings holds 921601 bytes";

fn grow(sim: &mut Sim) {
    sim.configure("settings", &"x".repeat(MAX_BYTES + 1));
}

fn told(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

fn started(web: &str) -> Sim {
    let spec = json!({
        "components": [configured("web", "web:1", "settings")],
        "progressDeadline": "60s",
    });
    let mut sim = Sim::new(spec, &[("web", "web:1")]);
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.events.clear();
    sim.want("web", web);
    sim.run_until("it is sent", |sim| sim.image("web") == web);
    sim
}

/// A release that failed while the ConfigMap grew.
fn rolled_back() -> Sim {
    let mut sim = started("web:2-unready");
    grow(&mut sim);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(120);
    sim
}

#[test]
fn a_release_tells_of_newer_contents_that_are_refused() {
    let mut sim = started("web:2-slow");
    grow(&mut sim);
    sim.run(3);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::RollingOut, "Promoting")
    );
    assert!(told(&sim).contains(HOLDS), "{}", told(&sim));
    assert_eq!(sim.told(Reason::ConfigMapRefused), 1, "{:#?}", sim.events);
    sim.run_to_the_end();
    sim.run(60);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    assert_eq!(sim.configuration("web"), [Some("old")]);
    sim.configure("settings", "new");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready() && !told(&sim).contains(HOLDS));
    assert_eq!(sim.configuration("web"), [Some("new")]);
}

#[test]
fn what_went_back_stays_the_reason_beside_contents_that_are_refused() {
    let sim = rolled_back();
    let refused = &sim.status.refused[0].revision;
    assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
    assert!(told(&sim).contains(HOLDS), "{}", told(&sim));
    assert!(told(&sim).contains(refused), "{}", told(&sim));
    assert_eq!(sim.told(Reason::ConfigMapRefused), 1, "{:#?}", sim.events);
    assert_eq!(
        (sim.image("web"), sim.configuration("web")),
        ("web:1", vec![Some("old")])
    );
}

#[test]
fn contents_that_grew_after_the_rollback_hide_it_no_more_than_those_before() {
    let mut sim = started("web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    grow(&mut sim);
    sim.run(60);
    assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
    assert!(told(&sim).contains(HOLDS), "{}", told(&sim));
}

/// What would be tried is not what the ConfigMap holds.
#[test]
fn a_retry_waits_for_contents_that_can_be_kept() {
    let mut sim = rolled_back();
    let refused = sim.status.refused[0].revision.clone();
    retry(&mut sim, &refused);
    sim.run(60);
    assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
    let text = format!("retry of {refused} waits ");
    assert!(told(&sim).contains(&text), "{}", told(&sim));
    assert_eq!(sim.facts.retry.as_ref(), Some(&refused));
    let (events, releases) = (sim.events.len(), sim.status.history.len());
    sim.run(60);
    assert_eq!(
        (sim.events.len(), sim.status.history.len()),
        (events, releases)
    );
    sim.configure("settings", "old");
    sim.run_until("it is tried", |sim| sim.image("web") == "web:2-unready");
    assert_eq!(sim.facts.retry, None);
}

#[test]
fn an_undone_plan_says_so_beside_contents_that_are_refused() {
    let mut sim = started("web:2");
    sim.run_to_the_end();
    sim.run(5);
    let first = sim.status.history[0].from.clone().unwrap();
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    grow(&mut sim);
    sim.run(60);
    assert_eq!(sim.reason(), "Undone");
    assert!(told(&sim).contains(HOLDS), "{}", told(&sim));
    sim.want("web", "web:3");
    sim.run(30);
    assert_eq!(
        (sim.image("web"), sim.reason()),
        ("web:1", "ConfigMapRefused")
    );
}
