//! First releases that failed, with nothing to go back to: what failed is not
//! released again by itself, and a repair is what is returned to from then on.

use serde_json::json;

use super::{
    commands::{abort, retry},
    plans::{component, followed},
    sim::*,
};
use crate::api::{ConditionType, Phase, RETRY, Reason, ReleaseKind, ReleaseResult};

/// A first release of `cart:2-crash` over `cart:1-crash`, which failed.
fn failed() -> Sim {
    let spec = templated(&[("cart", "cart:2-crash")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1-crash")]);
    sim.checked = true;
    is_failed(&mut sim);
    sim
}

fn is_failed(sim: &mut Sim) {
    sim.run_until("the failure", |sim| sim.phase() == Phase::Failed);
    sim.run(5);
    assert_eq!(sim.reason(), "ReleaseFailed");
    sim.journal.clear();
}

fn says(sim: &Sim) -> String {
    sim.condition(ConditionType::Ready).2.to_owned()
}

/// The verdict stands, nothing is written, and the way to try `revision` again is
/// said.
fn holds(sim: &mut Sim, phase: Phase, reason: &str, revision: &str) {
    let (written, releases) = (sim.writes_on("cart"), sim.status.history.len());
    sim.run(1000);
    assert_eq!(
        (sim.phase(), sim.reason(), sim.ready(), sim.stalled()),
        (phase, reason, false, true)
    );
    assert_eq!(
        (sim.writes_on("cart"), sim.status.history.len()),
        (written, releases)
    );
    let order = format!("{RETRY}={revision}");
    assert!(says(sim).contains(&order), "{}", says(sim));
    assert_eq!(
        sim.status.observed_release_generation, sim.facts.release_generation,
        "whoever waits is told"
    );
}

fn revision(sim: &Sim) -> String {
    sim.status.history.last().unwrap().revision.clone().unwrap()
}

#[test]
fn a_repair_becomes_the_baseline_and_what_failed_stays_away() {
    let mut sim = failed();
    let name = revision(&sim);
    sim.deployment("cart").set_image("cart:9");
    sim.run_until("the baseline", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.told(Reason::BaselineTaken), 1);
    sim.run(5);
    holds(&mut sim, Phase::Stable, "RolledBack", &name);
    assert!(says(&sim).contains("the first release failed"));
    assert_eq!((sim.image("cart"), sim.writes_on("cart")), ("cart:9", 0));
    assert_eq!(sim.results(), [ReleaseResult::Failed]);
    let mut other = sim.clone();
    other.want("cart", "cart:3");
    other.run_until("the end", |sim| sim.ready());
    assert_eq!(other.image("cart"), "cart:3");
    assert_eq!(other.status.history[1].kind, ReleaseKind::Content);
    retry(&mut sim, &name);
    sim.run_until("the retry", |sim| sim.image("cart") == "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.results().len() == 2);
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:9", "RolledBack"));
}

#[test]
fn a_touch_that_is_not_healthy_leaves_the_verdict() {
    for restart in [true, false] {
        let mut sim = failed();
        let name = revision(&sim);
        if restart {
            sim.deployment("cart").restart("now");
        } else {
            sim.deployment("cart").set_image("cart:8-crash");
        }
        sim.run(2);
        assert!(looked_at(&sim, "cart"), "{:#?}", sim.status);
        assert_eq!(
            (sim.phase(), sim.reason(), sim.stalled()),
            (Phase::Failed, "BaselineUnavailable", false),
            "it may still get available"
        );
        sim.run(600);
        holds(&mut sim, Phase::Failed, "ReleaseFailed", &name);
        assert!(says(&sim).contains("not available"), "{}", says(&sim));
        sim.want("cart", "cart:3");
        sim.run_until("the end", |sim| sim.ready());
        assert_eq!(sim.image("cart"), "cart:3");
        assert!(looked_at(&sim, "cart"), "{:#?}", sim.status);
    }
}

/// Whether the live template of a workload is the one that the status says was seen.
fn looked_at(sim: &Sim, name: &str) -> bool {
    let mut components = sim.status.components.iter();
    let component = components.find(|component| component.name == name).unwrap();
    let live = crate::fields::canon::digest(&sim.deployments[name].template);
    component.looked_at() == Some(&live)
}

/// One of them runs again and the other does not.
#[test]
fn every_repair_is_noted_as_looked_at() {
    let spec = templated(&[("cart", "cart:2-unready"), ("web", "web:2-unready")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1-crash"), ("web", "web:1-crash")]);
    is_failed(&mut sim);
    sim.deployment("web").set_image("web:9");
    sim.run(30);
    assert!(looked_at(&sim, "web") && looked_at(&sim, "cart"));
    assert_eq!(sim.reason(), "ReleaseFailed");
}

#[test]
fn what_failed_and_runs_in_the_end_is_released() {
    let mut sim = failed();
    sim.deployment("cart").repair();
    sim.deployment("cart").restart("now");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.writes_on("cart")),
        ("cart:2-crash", 0)
    );
    assert_eq!(sim.status.refused, []);
}

#[test]
fn what_failed_is_not_released_again_beside_a_later_failure_but_when_asked() {
    let mut sim = failed();
    let name = revision(&sim);
    sim.want("cart", "cart:3-crash");
    sim.run_until("the next failure", |sim| sim.results().len() == 2);
    sim.want("cart", "cart:2-crash");
    sim.run(2);
    assert_eq!(sim.image("cart"), "cart:3-crash");
    holds(&mut sim, Phase::Failed, "ReleaseFailed", &name);
    retry(&mut sim, &name);
    sim.run_until("the retry", |sim| sim.image("cart") == "cart:2-crash");
    sim.deployment("cart").repair();
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.status.refused.len(), 1, "{:#?}", sim.status.refused);
}

#[test]
fn what_failed_comes_in_no_mid_release_either() {
    let mut sim = failed();
    let name = revision(&sim);
    sim.want("cart", "cart:3-unready");
    sim.run_until("the release", |sim| sim.image("cart") == "cart:3-unready");
    sim.want("cart", "cart:2-crash");
    sim.run(20);
    assert_eq!(sim.image("cart"), "cart:3-unready");
    holds(&mut sim, Phase::Failed, "ReleaseFailed", &name);
}

#[test]
fn content_that_waited_for_a_pause_is_tried_after_the_failure() {
    let spec = templated(&[("cart", "cart:2-crash")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1-crash")]);
    sim.checked = true;
    sim.run_until("the release", |sim| sim.image("cart") == "cart:2-crash");
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:3");
    sim.run_until("the failure", |sim| sim.phase() != Phase::RollingOut);
    sim.run(5);
    assert_ne!(
        sim.status.observed_release_generation,
        sim.facts.release_generation
    );
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

/// `web` is followed and fails, so that `cart`, which comes after it, never went.
fn failed_by_a_followed() -> Sim {
    let mut cart = component("cart", "cart:2");
    cart["after"] = json!(["web"]);
    let spec = json!({"components": [followed("web"), cart], "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1-crash")]);
    sim.checked = true;
    is_failed(&mut sim);
    assert_eq!(sim.image("cart"), "cart:1");
    sim
}

#[test]
fn a_correction_of_the_followed_workload_that_failed_lets_the_rest_come() {
    let mut sim = failed_by_a_followed();
    let name = revision(&sim);
    sim.deployment("web").set_image("web:2-crash");
    sim.run(2);
    holds(&mut sim, Phase::Failed, "ReleaseFailed", &name);
    sim.deployment("web").set_image("web:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:3"));
    assert_eq!(sim.status.history[1].kind, ReleaseKind::Content);
}

/// The other workload had failed as well, and was repaired by hand.
#[test]
fn a_repair_is_not_written_over_beside_a_correction_of_another_workload() {
    for cart_first in [true, false] {
        let spec = json!({"components": [followed("web"), component("cart", "cart:2-unready")],
                          "progressDeadline": "60s"});
        let live = [("cart", "cart:1"), ("web", "web:1-unready")];
        let mut sim = Sim::new(spec, &live);
        sim.checked = true;
        is_failed(&mut sim);
        assert_eq!(sim.status.refused[0].component.as_deref(), Some("web"));
        let repairs = [("cart", "cart:9"), ("web", "web:9")];
        for repair in [!cart_first, cart_first] {
            let (name, image) = repairs[usize::from(repair)];
            sim.deployment(name).set_image(image);
            sim.run(20);
        }
        sim.run_until("the baseline", |sim| sim.phase() == Phase::Stable);
        sim.run(60);
        assert_eq!((sim.image("cart"), sim.image("web")), ("cart:9", "web:9"));
        assert_eq!((sim.reason(), sim.results().len()), ("RolledBack", 1));
        sim.want("cart", "cart:3");
        sim.run_until("the correction", |sim| sim.ready());
        assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:9"));
    }
}

/// Each says what it changed against the one before it.
#[test]
fn the_first_releases_after_one_that_failed_say_what_they_changed() {
    let mut sim = failed();
    let name = revision(&sim);
    retry(&mut sim, &name);
    sim.run_until("the retry", |sim| sim.results().len() == 2);
    sim.want("cart", "cart:3-crash");
    sim.run_until("the third", |sim| sim.results().len() == 3);
    sim.want("cart", "cart:4");
    sim.run_until("the end", |sim| sim.ready());
    let changes = |number: usize| sim.status.history[number].changes.join(", ");
    assert_eq!(
        [0, 1, 2, 3].map(changes),
        [
            "cart: containers[app].image: cart:1-crash → cart:2-crash",
            "cart: the same again",
            "cart: containers[app].image: cart:2-crash → cart:3-crash",
            "cart: containers[app].image: cart:3-crash → cart:4",
        ]
    );
}

#[test]
fn without_a_correction_the_rest_stays_away() {
    for restart in [true, false] {
        let mut sim = failed_by_a_followed();
        let name = revision(&sim);
        sim.deployment("web").repair();
        if restart {
            sim.deployment("web").restart("now");
        }
        sim.run_until("the baseline", |sim| sim.phase() == Phase::Stable);
        sim.run(5);
        holds(&mut sim, Phase::Stable, "RolledBack", &name);
        assert_eq!(sim.image("cart"), "cart:1");
    }
}

#[test]
fn an_aborted_one_and_its_repair_are_held_too_and_deletion_waits_for_nothing() {
    let spec = templated(&[("cart", "cart:2-unready"), ("web", "web:1")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1-crash"), ("web", "web:1")]);
    sim.checked = true;
    sim.run_until("the release", |sim| sim.image("cart") == "cart:2-unready");
    let name = sim.status.target_revision.clone().unwrap();
    abort(&mut sim, &name);
    is_failed(&mut sim);
    let mut lost = sim.clone();
    sim.deployment("cart").set_image("cart:9");
    sim.run(3);
    sim.run_until("the baseline", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    holds(&mut sim, Phase::Stable, "RolledBack", &name);
    sim.delete();
    sim.run(3);
    assert!(sim.gone);
    assert!(!sim.deployments["cart"].marked());
    // Nothing is released either where only the revisions tell of it.
    lost.lose_status();
    lost.deployment("cart").set_image("cart:9-unready");
    lost.run(60);
    assert_eq!(
        (lost.reason(), lost.image("cart")),
        ("StatusLost", "cart:9-unready")
    );
    assert_eq!(lost.journal, []);
}

#[test]
fn a_first_release_is_recorded_with_what_it_changes() {
    let sim = failed();
    assert_eq!(
        sim.status.history[0].changes,
        ["cart: containers[app].image: cart:1-crash → cart:2-crash"]
    );
    let mut cart = component("cart", "cart:2");
    cart["template"]["spec"]["containers"][0]["args"] = json!(["-v"]);
    cart["template"]["spec"]["priorityClassName"] = json!("high");
    let mut sim = Sim::new(json!({"components": [cart]}), &[("cart", "cart:1-crash")]);
    sim.rest();
    sim.run_until("the end", |sim| sim.ready());
    let changes = sim.status.history[0].changes.join("\n");
    for change in ["image: cart:1-crash → cart:2", "args", "priorityClassName"] {
        assert!(changes.contains(change), "{changes}");
    }
}

/// What only marks a template makes no other content of it, here as elsewhere.
#[test]
fn a_label_and_a_restart_are_no_repair() {
    let mut web = followed("web");
    web["after"] = json!([]);
    let mut cart = component("cart", "cart:2");
    cart["after"] = json!(["web"]);
    let spec = json!({"components": [web, cart], "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1-unready")]);
    sim.checked = true;
    sim.deployment("web").restart("before");
    is_failed(&mut sim);
    let name = revision(&sim);
    let path = ["f:metadata", "f:labels", "f:team"];
    sim.deployment("web").edit(&path, json!("blue"));
    sim.deployment("web").restart("again");
    sim.deployment("web").repair();
    sim.run_until("the baseline", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    holds(&mut sim, Phase::Stable, "RolledBack", &name);
    assert_eq!(sim.image("cart"), "cart:1");
}

/// Only who changed a workload made something of it.
#[test]
fn a_plan_that_goes_back_to_what_failed_before_touched_nothing() {
    let mut sim = failed();
    sim.want("cart", "cart:3-crash");
    sim.run_until("the next failure", |sim| sim.results().len() == 2);
    sim.want("cart", "cart:2-crash");
    sim.run(20);
    assert_eq!(sim.reason(), "ReleaseFailed");
    assert!(says(&sim).contains("stay as they are"), "{}", says(&sim));
}
