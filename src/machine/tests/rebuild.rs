//! A plan that lost its status.

use serde_json::json;

use super::{
    plans::{component, configured},
    sim::*,
};
use crate::{
    api::{Cause, ConditionType, Phase, Reason, ReleaseKind, ReleasePlanStatus, ReleaseResult},
    plan::Stamps,
};

fn pair() -> Sim {
    Sim::settled(
        templated(&[("cart", "cart:1"), ("web", "web:1")]),
        &[("cart", "cart:1"), ("web", "web:1")],
    )
}

fn lose(sim: &mut Sim) {
    sim.status = ReleasePlanStatus::default();
    sim.journal.clear();
    sim.events.clear();
    sim.dirty = true;
}

#[test]
fn what_is_live_and_was_released_is_stable_again() {
    let mut sim = pair();
    sim.want("cart", "cart:2");
    sim.run_until("the release", |sim| {
        sim.image("cart") == "cart:2" && sim.ready()
    });
    let stable = sim.status.stable_revision.clone();
    lose(&mut sim);
    sim.run(10);
    assert_eq!(
        (sim.status.stable_revision.clone(), sim.ready()),
        (stable, true)
    );
    assert_eq!(
        (
            sim.told(Reason::StatusRebuilt),
            sim.told(Reason::BaselineTaken)
        ),
        (1, 0)
    );
    assert_eq!(sim.journal, []);
    sim.want("cart", "cart:3-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(
        (sim.image("cart"), sim.status.history.last().unwrap().number),
        ("cart:2", 2)
    );
}

#[test]
fn content_that_was_rolled_back_is_not_tried_again() {
    let mut sim = pair();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    let refused = sim.status.refused[0].revision.clone();
    lose(&mut sim);
    sim.run(60);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "RolledBack"));
    assert_eq!(
        (
            sim.status.refused[0].revision.clone(),
            sim.status.refused[0].cause
        ),
        (refused, Cause::StatusLost)
    );
    assert_eq!(sim.journal, []);
}

#[test]
fn in_mid_release_a_person_says_what_is_stable() {
    let mut sim = pair();
    let stable = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:2-unready");
    sim.want("web", "web:2");
    sim.run(10);
    assert_eq!(
        (sim.phase(), sim.image("web")),
        (Phase::RollingOut, "web:2")
    );
    lose(&mut sim);
    sim.run(900);
    assert_eq!((sim.reason(), sim.stalled()), ("StatusLost", true));
    assert!(
        sim.condition(crate::api::ConditionType::Ready)
            .2
            .contains(&stable)
    );
    assert_eq!((sim.journal.len(), sim.told(Reason::StatusLost)), (0, 1));
    sim.facts.undo = Some(stable.clone());
    let stamp = json!([{
        "order": "undo", "revision": stable, "user": "jane", "at": "2027-01-01T00:00:00Z",
    }]);
    sim.facts.ordered_by = Stamps::read(Some(&stamp.to_string()));
    sim.dirty = true;
    sim.run_until("the way back", |sim| sim.phase() == Phase::Stable);
    sim.run(60);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(
        (sim.status.stable_revision.clone(), sim.facts.undo.clone()),
        (Some(stable), None)
    );
    assert_eq!((sim.reason(), sim.stalled()), ("Undone", true));
    let last = sim.status.history.last().unwrap();
    assert_eq!(
        (last.kind, last.result, &last.revision, &last.from),
        (
            ReleaseKind::Undo,
            ReleaseResult::Succeeded,
            &sim.status.stable_revision,
            &None
        )
    );
    let told = sim.condition(ConditionType::Ready).2;
    let text = "was asked for by jane. ";
    assert!(told.contains(text), "{told}");
    let text = "was released before, and how that ended was lost";
    assert!(told.contains(text), "{told}");
    assert_eq!(sim.told(Reason::RolledBack), 0, "{:#?}", sim.events);
}

/// The one that was asked for does not become available, and newer content is
/// what a person wants instead.
#[test]
fn what_was_asked_for_when_the_status_was_gone_and_gives_way_is_no_rollback() {
    let mut sim = pair();
    let stable = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    lose(&mut sim);
    sim.run(5);
    sim.deployment("cart").broken = true;
    sim.facts.undo = Some(stable.clone());
    sim.run_until("it stalls", |sim| sim.reason() == "RollbackStalled");
    sim.want("cart", "cart:3");
    sim.run_until("it gives way", |sim| sim.phase() == Phase::RollingOut);
    sim.deployment("cart").broken = false;
    sim.run_until("the release", |sim| {
        sim.ready() && sim.image("cart") == "cart:3"
    });
    let first = &sim.status.history[0];
    assert_eq!(
        (first.kind, first.result, first.revision.clone()),
        (ReleaseKind::Undo, ReleaseResult::Superseded, Some(stable))
    );
}

#[test]
fn a_release_that_gets_available_meanwhile_is_stable() {
    let mut sim = pair();
    sim.want("cart", "cart:2-slow");
    sim.run_until("the write", |sim| sim.image("cart") == "cart:2-slow");
    lose(&mut sim);
    sim.run(5);
    assert_eq!(sim.reason(), "StatusLost");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:2-slow");
}

#[test]
fn a_new_plan_that_crashed_on_its_first_status_is_no_loss() {
    let start = Sim::new(templated(&[("cart", "cart:2")]), &[("cart", "cart:1")]);
    for write in 0..3 {
        let mut sim = start.clone();
        sim.crash_at = Some(write);
        sim.run(60);
        assert_eq!(
            (sim.image("cart"), sim.ready()),
            ("cart:2", true),
            "write {write}"
        );
    }
}

/// It is told from the revisions also where something else had to be told first.
#[test]
fn what_is_in_the_way_when_a_status_is_lost_does_not_make_the_plan_a_new_one() {
    let mut sim = pair();
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    let kept = sim.revisions.len();
    lose(&mut sim);
    sim.incumbents.insert("web".to_owned(), "other".to_owned());
    sim.run(10);
    assert_eq!(sim.reason(), "Conflict");
    sim.incumbents.clear();
    sim.dirty = true;
    sim.run(10);
    assert_eq!((sim.reason(), sim.stalled()), ("StatusLost", true));
    assert_eq!((sim.journal.len(), sim.revisions.len()), (0, kept));
}

/// The first revision is stored and nothing says so yet when the process dies;
/// then a person replaces what was live by what does not run.
#[test]
fn a_new_plan_that_crashed_and_found_other_templates_is_no_loss() {
    let start = Sim::new(templated(&[("cart", "cart:2")]), &[("cart", "cart:1")]);
    for write in 0..3 {
        let mut sim = start.clone();
        sim.crash_at = Some(write);
        for _ in 0..10 {
            if sim.crash_at.is_some() {
                sim.pass();
            }
        }
        assert_eq!((sim.crash_at, sim.image("cart")), (None, "cart:1"));
        sim.deployment("cart").set_image("cart:3-unready");
        sim.run(20);
        assert_ne!(sim.reason(), "StatusLost", "write {write}");
        sim.deployment("cart").set_image("cart:4");
        sim.run(60);
        assert_eq!((sim.image("cart"), sim.ready()), ("cart:2", true));
    }
}

/// A ConfigMap was edited while the release was on its way: what the plan asks
/// for is that release all the same, and no way back.
#[test]
fn the_way_that_is_named_does_not_lead_to_what_was_being_released() {
    let cart = configured("cart", "cart:1", "settings");
    let spec = json!({"components": [cart, component("web", "web:1")], "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready());
    let good = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:2-unready");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-unready");
    sim.configure("settings", "new");
    lose(&mut sim);
    sim.run(5);
    assert_eq!(sim.reason(), "StatusLost");
    let message = sim.condition(ConditionType::Ready).2;
    assert!(message.contains(&format!("such as {good}:")), "{message}");
}

/// The last release went back before the status was lost.
#[test]
fn what_was_tried_last_is_not_said_to_have_succeeded() {
    let mut sim = pair();
    sim.want("cart", "cart:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    let tried = sim.status.history.last().unwrap().clone();
    let stable = sim.status.stable_revision.clone();
    sim.lose_status();
    sim.run(30);
    assert_eq!(sim.status.stable_revision, stable);
    let last = sim.status.history.last().unwrap();
    assert_eq!(
        (last.number, &last.revision, last.result),
        (tried.number, &tried.revision, ReleaseResult::RolledBack)
    );
}
