//! Releases that stop where they fail.

use serde_json::json;

use super::{orders::order, sim::*};
use crate::api::{Cause, Phase, ReleaseResult};

/// Frozen on its third component, with the name of its target.
fn frozen() -> (Sim, String) {
    let mut spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    spec["onFailure"] = json!("Freeze");
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.want("cart", "cart:2-crash");
    sim.want("web", "web:2");
    sim.run_until("the failure", |sim| sim.phase() == Phase::Frozen);
    let target = sim.status.target_revision.clone().unwrap();
    sim.journal.clear();
    (sim, target)
}

#[test]
fn a_failure_stops_the_release_and_names_the_ways_out() {
    let (mut sim, target) = frozen();
    sim.run(900);
    assert_eq!(sim.journal, []);
    assert_eq!(
        (sim.image("cart"), sim.image("web")),
        ("cart:2-crash", "web:2")
    );
    assert_eq!(
        (sim.reason(), sim.ready(), sim.stalled()),
        ("Frozen", false, true)
    );
    let text = sim.condition(crate::api::ConditionType::Ready).2;
    for part in [
        "ContainerRestarts",
        &format!("belay.dev/abort={target}"),
        &format!("belay.dev/retry={target}"),
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!((sim.wake_at, sim.results()), (None, Vec::new()));
    assert_eq!(sim.told(crate::api::Reason::Frozen), 1);
}

#[test]
fn a_frozen_release_goes_back_when_aborted() {
    let (mut sim, target) = frozen();
    order(&mut sim, "abort", &target, "jane");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    // Why it failed stays first, and who sent it back is said.
    for text in [
        sim.status.history[0].message.clone().unwrap(),
        sim.condition(crate::api::ConditionType::Ready).2.to_owned(),
    ] {
        assert!(text.contains("restarted"), "{text}");
        assert!(text.contains("was sent back as asked by jane"), "{text}");
    }
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert_eq!(sim.status.refused[0].cause, Cause::ContainerRestarts);
}

#[test]
fn a_frozen_release_goes_back_with_its_content_also_while_paused() {
    let (mut sim, _) = frozen();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:1");
    sim.want("web", "web:1");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(sim.status.refused, []);
}

#[test]
fn a_frozen_release_is_tried_again_with_fresh_clocks() {
    let (mut sim, target) = frozen();
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    let again = |sim: &mut Sim| {
        sim.facts.retry = Some(target.clone());
        sim.dirty = true;
        sim.run(2);
        assert_eq!(
            (sim.phase(), sim.facts.retry.clone()),
            (Phase::RollingOut, None)
        );
    };
    again(&mut sim);
    let took = sim.run_until("the deadline", |sim| sim.phase() == Phase::Frozen);
    assert!(took.as_secs() >= 26, "{took:?}");
    assert_eq!(
        sim.status
            .release
            .as_ref()
            .unwrap()
            .failure
            .as_ref()
            .unwrap()
            .cause,
        Cause::ProgressDeadlineExceeded
    );
    // Whatever kept it from running was repaired.
    again(&mut sim);
    sim.deployment("cart").repair();
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.results()),
        ("cart:2-crash", vec![ReleaseResult::Succeeded])
    );
}

#[test]
fn newer_content_takes_the_place_of_a_frozen_release() {
    let (mut sim, _) = frozen();
    let mut bad = sim.clone();
    sim.want("cart", "cart:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        sim.results(),
        [ReleaseResult::Failed, ReleaseResult::Succeeded]
    );
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:2"));
    bad.want("cart", "cart:4-pullerror");
    bad.run_until("the second failure", |sim| {
        sim.phase() == Phase::Frozen && sim.image("cart") == "cart:4-pullerror"
    });
    bad.want("cart", "cart:1");
    bad.want("web", "web:1");
    bad.run_until("the revert", |sim| sim.ready());
    assert_eq!((bad.image("cart"), bad.image("web")), ("cart:1", "web:1"));
}

#[test]
fn a_followed_workload_that_is_put_back_by_hand_ends_the_freeze() {
    let mut spec = json!({"components": [followed("cart"), followed("web")]});
    spec["onFailure"] = json!("Freeze");
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.run_until("the failure", |sim| sim.phase() == Phase::Frozen);
    let mut other = sim.clone();
    sim.deployment("cart").set_image("cart:1");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.results(), [ReleaseResult::Reverted]);
    other.deployment("cart").set_image("cart:3");
    other.run_until("newer content", |sim| sim.ready());
    assert_eq!(other.image("cart"), "cart:3");
}

#[test]
fn a_frozen_plan_that_is_deleted_goes_back_or_keeps() {
    let (mut sim, _) = frozen();
    let mut kept = sim.clone();
    sim.delete();
    sim.run(60);
    assert!(sim.gone);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    kept.edit(|spec| spec["deletionPolicy"] = json!("Keep"));
    kept.delete();
    kept.run(5);
    assert!(kept.gone);
    assert_eq!(
        (kept.image("cart"), kept.image("web")),
        ("cart:2-crash", "web:2")
    );
}

#[test]
fn an_undo_leaves_a_frozen_release_for_an_earlier_revision() {
    let (mut sim, target) = frozen();
    sim.facts.abort = Some(target);
    sim.dirty = true;
    sim.run_until("the way back", |sim| sim.phase() == Phase::Stable);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:3");
    sim.run_until("a release", |sim| sim.ready());
    sim.want("cart", "cart:4-crash");
    sim.run_until("the failure", |sim| sim.phase() == Phase::Frozen);
    sim.facts.undo = Some(first);
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    sim.run(60);
    assert_eq!(sim.image("cart"), "cart:1");
    let numbers: Vec<i64> = sim.status.history.iter().map(|r| r.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn a_first_release_that_fails_cannot_freeze() {
    let mut spec = templated(&[("cart", "cart:2-crash")]);
    spec["onFailure"] = json!("Freeze");
    let mut sim = Sim::new(spec, &[("cart", "cart:1-unready")]);
    sim.run(60);
    assert_eq!(sim.phase(), Phase::Failed);
}
