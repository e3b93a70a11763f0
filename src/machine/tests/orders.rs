//! Orders with the stamp of who gave them: what waits, and what came too late.

use serde_json::json;

use super::sim::*;
use crate::{
    api::{Cause, Phase, Reason, ReleaseKind, ReleaseResult},
    plan::Stamps,
};

fn pair() -> Sim {
    Sim::settled(
        templated(&[("cart", "cart:1"), ("web", "web:1")]),
        &[("cart", "cart:1"), ("web", "web:1")],
    )
}

fn released(sim: &mut Sim, image: &str) -> String {
    sim.want("cart", image);
    sim.rest();
    sim.run_until("the release", |sim| sim.ready());
    sim.status.stable_revision.clone().unwrap()
}

/// Gives an order as the webhook stores it.
pub(super) fn order(sim: &mut Sim, order: &str, revision: &str, user: &str) {
    let wanted = Some(revision.to_owned());
    match order {
        "abort" => sim.facts.abort = wanted,
        "undo" => sim.facts.undo = wanted,
        _ => sim.facts.retry = wanted,
    }
    let stamp = json!([{
        "order": order, "revision": revision, "user": user, "at": "2027-01-01T00:00:00Z",
        "generation": sim.facts.release_generation,
    }]);
    sim.facts.ordered_by = Stamps::read(Some(&stamp.to_string()));
    sim.dirty = true;
}

fn ready_message(sim: &Sim) -> &str {
    let mut conditions = sim.status.conditions.iter();
    &conditions.find(|c| c.type_ == "Ready").unwrap().message
}

fn decided(sim: &Sim, text: &str) -> usize {
    let decisions = sim.status.decisions.iter();
    decisions.filter(|d| d.message.contains(text)).count()
}

#[test]
fn who_aborted_is_in_the_record_the_refusal_and_the_event() {
    let mut sim = pair();
    sim.facts.requested_by = Some("joe".to_owned());
    sim.want("cart", "cart:2-unready");
    sim.run(5);
    let target = sim.status.target_revision.clone().unwrap();
    order(&mut sim, "abort", &target, "jane");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    let record = sim.status.history.last().unwrap();
    assert_eq!(
        record.requested_by.as_deref(),
        Some("joe"),
        "of the release"
    );
    let text = "the release was aborted as asked by jane";
    assert!(
        record.message.as_ref().unwrap().contains(text),
        "{record:?}"
    );
    assert_eq!(sim.status.refused[0].message, text);
    assert!(sim.events.iter().any(|event| event.note.contains(text)));
}

#[test]
fn who_asked_for_an_undo_is_who_its_release_is_by() {
    let mut sim = pair();
    sim.facts.requested_by = Some("joe".to_owned());
    let first = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    order(&mut sim, "undo", &first, "jane");
    sim.run_until("the undo", |sim| sim.results().len() == 3);
    let record = sim.status.history.last().unwrap();
    assert_eq!(record.kind, ReleaseKind::Undo);
    assert_eq!(record.requested_by.as_deref(), Some("jane"));
    assert_eq!(
        decided(&sim, &format!("{first} was asked for by jane; it")),
        1
    );
    sim.run(3);
    assert!(
        ready_message(&sim).contains("by jane"),
        "{}",
        ready_message(&sim)
    );
}

#[test]
fn who_asked_for_a_retry_is_who_its_release_is_by_through_any_crash() {
    let mut start = pair();
    start.facts.requested_by = Some("joe".to_owned());
    start.want("cart", "cart:2-crash");
    start.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    let refused = start.status.refused[0].revision.clone();
    let run = |crash_at| {
        let mut sim = start.clone();
        order(&mut sim, "retry", &refused, "jane");
        sim.crash_at = crash_at;
        sim.run_until("the second rollback", |sim| sim.results().len() == 2);
        sim
    };
    let plain = run(None);
    for write in start.writes..plain.writes {
        let sim = run(Some(write));
        let by: Vec<_> = sim
            .status
            .history
            .iter()
            .map(|r| r.requested_by.as_deref())
            .collect();
        assert_eq!(by, [Some("joe"), Some("jane")], "write {write}");
    }
    assert_eq!(decided(&plain, "tried again as asked by jane"), 1);
}

#[test]
fn who_has_a_frozen_release_tried_again_is_who_it_is_by() {
    let mut sim = pair();
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("cart", "cart:2-crash");
    sim.run_until("the failure", |sim| sim.phase() == Phase::Frozen);
    let target = sim.status.target_revision.clone().unwrap();
    order(&mut sim, "retry", &target, "jane");
    sim.run_until("another try", |sim| sim.phase() == Phase::RollingOut);
    let release = sim.status.release.as_ref().unwrap();
    assert_eq!(release.requested_by.as_deref(), Some("jane"));
}

#[test]
fn an_undo_that_waits_is_told_once_and_stands_in_the_conditions() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    sim.want("cart", "cart:4-slow");
    sim.run(4);
    order(&mut sim, "undo", &first, "jane");
    let text = format!("undo to {first}, asked for by jane, waits for the end of release 3");
    sim.run_until("it is told", |sim| decided(sim, &text) == 1);
    assert!(ready_message(&sim).ends_with(&format!("; meanwhile, {text}")));
    sim.run(3);
    assert_eq!(sim.phase(), Phase::RollingOut);
    assert!(
        ready_message(&sim).contains(&text),
        "{}",
        ready_message(&sim)
    );
    let told = |sim: &Sim| sim.events.iter().filter(|e| e.note == text).count();
    assert_eq!((decided(&sim, &text), told(&sim)), (1, 1));
    sim.run_until("the undo", |sim| sim.results().len() == 4);
    sim.run(3);
    assert_eq!((sim.image("cart"), decided(&sim, &text)), ("cart:2", 1));
    assert!(!ready_message(&sim).contains("waits for"));
}

#[test]
fn an_order_that_waits_does_not_tell_a_stall_again_and_again() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    sim.edit(|spec| spec["components"][0]["name"] = json!("Not Valid"));
    sim.run(3);
    assert_eq!(sim.reason(), "InvalidPlan");
    order(&mut sim, "undo", &first, "jane");
    sim.run(3);
    let told = sim.told(Reason::InvalidPlan);
    assert!(ready_message(&sim).ends_with("waits until the plan is valid"));
    for _ in 0..3 {
        sim.dirty = true;
        sim.run(1);
    }
    assert_eq!((sim.told(Reason::InvalidPlan), told), (1, 1));
    assert_eq!(sim.told(Reason::UndoRequested), 1);
}

#[test]
fn an_undo_is_not_carried_out_on_content_that_came_after_it() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    sim.want("cart", "cart:4-slow");
    sim.run(4);
    order(&mut sim, "undo", &first, "jane");
    sim.run(2);
    assert!(sim.facts.undo.is_some());
    sim.want("cart", "cart:5");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.facts.undo.clone()),
        ("cart:5", None)
    );
    assert_eq!(sim.told(Reason::UndoIgnored), 1);
    assert_eq!(
        decided(&sim, "asked for by jane: newer content came after it"),
        1
    );
}

#[test]
fn a_retry_of_content_that_has_left_the_plan_does_nothing_and_says_so() {
    let mut sim = pair();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    let refused = sim.status.refused[0].clone();
    released(&mut sim, "cart:3");
    sim.status.refused = vec![refused.clone()];
    order(&mut sim, "retry", &refused.revision, "jane");
    sim.run(3);
    assert_eq!(
        sim.status.refused,
        std::slice::from_ref(&refused),
        "it stays refused"
    );
    assert_eq!(
        (sim.told(Reason::RetryIgnored), sim.facts.retry.clone()),
        (1, None)
    );
    // Back in the plan it is held, and can be tried again.
    sim.want("cart", "cart:2-crash");
    sim.run(5);
    assert_eq!((sim.reason(), sim.results().len()), ("RolledBack", 2));
    order(&mut sim, "retry", &refused.revision, "jane");
    sim.run_until("another try", |sim| sim.results().len() == 3);
    assert_eq!(sim.results().last(), Some(&ReleaseResult::RolledBack));
    assert_eq!(sim.status.refused[0].cause, Cause::ContainerRestarts);
}

#[test]
fn an_order_that_waited_does_not_hit_a_newer_template_of_a_followed_workload() {
    let spec = json!({"components": [followed("cart"), followed("web")]});
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("cart").set_image("cart:2");
    sim.run_until("the release", |sim| sim.results().len() == 1 && sim.ready());
    sim.deployment("cart").set_image("cart:3-unready");
    sim.run(4);
    let mut later = sim.clone();
    order(&mut sim, "undo", &first, "jane");
    sim.run(2);
    sim.deployment("cart").set_image("cart:4");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.facts.undo.clone()),
        ("cart:4", None)
    );
    assert_eq!(sim.told(Reason::UndoIgnored), 1);
    // One that came after it has its turn.
    later.deployment("cart").set_image("cart:4");
    order(&mut later, "undo", &first, "jane");
    later.run_until("the undo", |sim| {
        let last = sim.status.history.last();
        last.is_some_and(|record| record.kind == ReleaseKind::Undo)
    });
    assert_eq!(
        (later.image("cart"), later.told(Reason::UndoIgnored)),
        ("cart:1", 0)
    );
}

/// A plan on `cart:3` in a pause, with an undo to `cart:2` that waits for its end;
/// with the revisions of the first two.
fn undo_in_a_pause() -> (Sim, String, String) {
    let mut sim = pair();
    let second = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    let first = sim.status.history[0].from.clone().unwrap();
    sim.edit(|spec| spec["paused"] = json!(true));
    order(&mut sim, "undo", &second, "jane");
    sim.run(10);
    let message = ready_message(&sim);
    assert!(
        message.starts_with(&format!("the undo to {second} waits")),
        "{message}"
    );
    assert!(
        message.contains(&format!("belay.dev/abort={second}")),
        "{message}"
    );
    assert_eq!(sim.image("cart"), "cart:3");
    (sim, first, second)
}

fn resume(sim: &mut Sim) {
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run(30);
}

#[test]
fn an_undo_that_a_pause_holds_can_be_taken_back() {
    let (mut sim, _, second) = undo_in_a_pause();
    let stable = sim.status.stable_revision.clone().unwrap();
    for back in [("abort", second.clone()), ("undo", stable)] {
        let mut sim = sim.clone();
        order(&mut sim, back.0, &back.1, "joe");
        sim.run(5);
        assert_eq!((sim.phase(), sim.reason()), (Phase::Stable, "Released"));
        assert!(sim.status.refused.is_empty(), "nothing is held for it");
        assert_eq!(decided(&sim, "was taken back as asked by joe"), 1);
        resume(&mut sim);
        assert_eq!((sim.image("cart"), sim.ready()), ("cart:3", true));
        assert_eq!(sim.results().len(), 2, "nothing was released");
    }
    resume(&mut sim);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:2", "Undone"));
}

/// It has changed nothing, so what was held before is held still.
#[test]
fn an_undo_that_is_taken_back_lifts_no_hold() {
    let mut sim = pair();
    let first = sim.status.stable_revision.clone().unwrap();
    let second = released(&mut sim, "cart:2");
    order(&mut sim, "undo", &first, "jane");
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    sim.run(10);
    sim.edit(|spec| spec["paused"] = json!(true));
    order(&mut sim, "undo", &second, "jane");
    sim.run(10);
    assert!(ready_message(&sim).starts_with("the undo to"));
    order(&mut sim, "abort", &second, "jane");
    sim.run(10);
    resume(&mut sim);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "Undone"));
}

/// Trying what is live again is to take back what was to take its place.
#[test]
fn a_retry_of_what_is_live_takes_an_undo_back_that_a_pause_holds() {
    let (mut sim, ..) = undo_in_a_pause();
    let stable = sim.status.stable_revision.clone().unwrap();
    sim.journal.clear();
    order(&mut sim, "retry", &stable, "joe");
    sim.run(5);
    assert_eq!(
        (sim.reason(), decided(&sim, "is tried again")),
        ("Released", 0)
    );
    resume(&mut sim);
    assert_eq!((sim.image("cart"), sim.ready()), ("cart:3", true));
    assert_eq!(sim.journal, []);
}

#[test]
fn an_undo_that_a_pause_holds_gives_way_to_a_later_one() {
    let (mut sim, first, _) = undo_in_a_pause();
    order(&mut sim, "undo", &first, "joe");
    sim.run(5);
    let message = ready_message(&sim);
    assert!(
        message.starts_with(&format!("the undo to {first} waits")),
        "{message}"
    );
    resume(&mut sim);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "Undone"));
    let last = sim.status.history.last().unwrap();
    assert_eq!(last.requested_by.as_deref(), Some("joe"));
}

#[test]
fn an_undo_that_a_pause_holds_gives_way_to_a_later_retry() {
    let mut sim = pair();
    let second = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    sim.want("cart", "cart:4-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    let bad = sim.status.refused[0].revision.clone();
    sim.edit(|spec| spec["paused"] = json!(true));
    order(&mut sim, "undo", &second, "jane");
    sim.run(10);
    assert!(ready_message(&sim).starts_with("the undo to"));
    sim.deployment("cart").broken = false;
    order(&mut sim, "retry", &bad, "joe");
    sim.run(5);
    assert_eq!(decided(&sim, "was taken back as asked by joe"), 1);
    assert_eq!(sim.image("cart"), "cart:3");
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the other try", |sim| {
        let last = sim.status.history.last().unwrap();
        last.revision.as_ref() == Some(&bad) && last.number == 4
    });
}

/// Whoever sees an order gone finds the decision that dropped it.
#[test]
fn that_an_order_is_dropped_is_recorded_before_it_goes() {
    let mut sim = pair();
    order(&mut sim, "undo", "shop-0000000000", "jane");
    assert!(sim.pass());
    assert_eq!(decided(&sim, "belay.dev/undo names shop-0000000000"), 1);
    assert!(sim.facts.undo.is_some());
    sim.run(2);
    assert_eq!(sim.facts.undo, None);
    assert_eq!(sim.told(Reason::UndoIgnored), 1);
}
