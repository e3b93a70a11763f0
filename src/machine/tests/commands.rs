//! What people ask for by annotations: abort, undo, retry.

use serde_json::json;

use super::sim::*;
use crate::api::{Cause, Phase, Reason, ReleaseKind, ReleaseResult};

fn pair() -> Sim {
    Sim::settled(
        templated(&[("cart", "cart:1"), ("web", "web:1")]),
        &[("cart", "cart:1"), ("web", "web:1")],
    )
}

/// In the middle of a release that goes nowhere, with the name of its target.
fn in_mid_release() -> (Sim, String) {
    let mut sim = pair();
    sim.want("cart", "cart:2-unready");
    sim.want("web", "web:2");
    sim.run(5);
    assert_eq!(sim.phase(), Phase::RollingOut);
    let target = sim.status.target_revision.clone().unwrap();
    (sim, target)
}

fn released(sim: &mut Sim, image: &str) -> String {
    sim.want("cart", image);
    sim.rest();
    sim.run_until("the release", |sim| sim.ready());
    sim.status.stable_revision.clone().unwrap()
}

pub(super) fn abort(sim: &mut Sim, revision: &str) {
    sim.facts.abort = Some(revision.to_owned());
    sim.dirty = true;
}

pub(super) fn undo(sim: &mut Sim, revision: &str) {
    sim.facts.undo = Some(revision.to_owned());
    sim.dirty = true;
}

pub(super) fn retry(sim: &mut Sim, revision: &str) {
    sim.facts.retry = Some(revision.to_owned());
    sim.dirty = true;
}

#[test]
fn an_aborted_release_goes_back_and_its_content_is_held() {
    let (mut sim, target) = in_mid_release();
    abort(&mut sim, &target);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert_eq!(sim.status.refused[0].cause, Cause::Aborted);
    assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
    assert_eq!(
        (sim.facts.abort.clone(), sim.told(Reason::AbortIgnored)),
        (None, 0)
    );
    sim.run(60);
    assert_eq!(sim.results().len(), 1);
    sim.deployment("cart").broken = false;
    sim.edit(|spec| spec["progressDeadline"] = json!("5s"));
    retry(&mut sim, &target);
    sim.run_until("another try", |sim| sim.results().len() == 2);
}

#[test]
fn an_abort_of_something_else_says_what_is_current_and_is_taken_off() {
    let (mut sim, target) = in_mid_release();
    abort(&mut sim, "shop-0000000000");
    sim.run(3);
    assert_eq!(
        (sim.phase(), sim.facts.abort.clone()),
        (Phase::RollingOut, None)
    );
    assert_eq!(sim.told(Reason::AbortIgnored), 1);
    assert!(sim.events.last().unwrap().note.contains(&target));
    let mut idle = pair();
    abort(&mut idle, "shop-0000000000");
    idle.run(3);
    assert_eq!((idle.told(Reason::AbortIgnored), idle.ready()), (1, true));
}

#[test]
fn an_abort_of_a_rollback_keeps_what_is_live_and_fails() {
    let (mut sim, target) = in_mid_release();
    abort(&mut sim, &target);
    sim.deployment("web").broken = true;
    sim.run_until("the rollback", |sim| {
        sim.phase() == Phase::Rollback && sim.facts.abort.is_none()
    });
    sim.run(10);
    let images = (sim.image("cart").to_owned(), sim.image("web").to_owned());
    sim.journal.clear();
    abort(&mut sim, &target);
    sim.run(120);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Failed, "RollbackAborted")
    );
    assert!(sim.stalled() && !sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.image("web")),
        (&*images.0, &*images.1)
    );
    assert_eq!(sim.journal, []);
    assert_eq!(sim.results(), [ReleaseResult::Failed]);
    // Newer content is released from there, with the same way back.
    sim.deployment("web").broken = false;
    let mut other = sim.clone();
    released(&mut sim, "cart:3");
    assert_eq!(sim.image("cart"), "cart:3");
    other.want("cart", "cart:4-crash");
    other.run_until("the way back", |sim| sim.phase() == Phase::Stable);
    assert_eq!(
        (other.image("cart"), other.image("web")),
        ("cart:1", "web:1")
    );
}

/// Two people, or one who pressed twice: the second one is carried out after the
/// first, and must not mean its contrary.
#[test]
fn an_abort_that_is_given_twice_goes_back_once() {
    let (mut sim, target) = in_mid_release();
    for _ in 0..3 {
        abort(&mut sim, &target);
        sim.run(1);
    }
    sim.run(60);
    assert_eq!((sim.phase(), sim.reason()), (Phase::Stable, "RolledBack"));
    let images = (sim.image("cart"), sim.image("web"));
    assert_eq!(images, ("cart:1", "web:1"));
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
}

#[test]
fn a_plan_left_in_the_middle_of_a_rollback_can_go_back_after_all_or_go() {
    let (mut sim, target) = in_mid_release();
    sim.deployment("web").broken = true;
    abort(&mut sim, &target);
    sim.run(11);
    abort(&mut sim, &target);
    sim.run(3);
    assert_eq!(sim.reason(), "RollbackAborted");
    let mut gone = sim.clone();
    gone.journal.clear();
    gone.delete();
    gone.run(3);
    assert!(gone.gone && gone.writes_on("cart") == 0);
    sim.deployment("web").broken = false;
    let stable = sim.status.stable_revision.clone().unwrap();
    undo(&mut sim, &stable);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(
        sim.results(),
        [ReleaseResult::Failed, ReleaseResult::RolledBack]
    );
    assert_ne!(sim.status.history[0].number, sim.status.history[1].number);
}

#[test]
fn an_abort_works_while_the_stored_plan_is_not_valid() {
    let (mut sim, target) = in_mid_release();
    sim.edit(|spec| spec["progressDeadline"] = json!("nonsense"));
    abort(&mut sim, &target);
    sim.run(60);
    assert_eq!((sim.image("cart"), sim.phase()), ("cart:1", Phase::Stable));
}

#[test]
fn an_aborted_first_release_fails_in_place() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:2-unready")]),
        &[("cart", "cart:1-unready")],
    );
    sim.run(5);
    let target = sim.status.target_revision.clone().unwrap();
    abort(&mut sim, &target);
    sim.run(10);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Failed, "ReleaseFailed")
    );
    assert_eq!(sim.facts.abort, None);
    // It is tried again as asked, and ends well once its pods do.
    retry(&mut sim, &target);
    sim.run(3);
    assert_eq!(
        (sim.phase(), sim.facts.retry.clone()),
        (Phase::RollingOut, None)
    );
    sim.want("cart", "cart:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

#[test]
fn an_undo_brings_an_earlier_revision_back_and_holds_the_content() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    let second = released(&mut sim, "cart:3");
    sim.journal.clear();
    undo(&mut sim, &first);
    sim.run_until("the end", |sim| sim.results().len() == 3);
    sim.run(30);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:1"));
    assert_eq!((sim.writes_on("cart"), sim.writes_on("web")), (1, 0));
    let record = sim.status.history.last().unwrap();
    assert_eq!(
        (record.kind, record.result),
        (ReleaseKind::Undo, ReleaseResult::Succeeded)
    );
    assert_eq!(record.from.as_ref(), Some(&second));
    assert_eq!(
        (sim.reason(), sim.ready(), sim.stalled()),
        ("Undone", false, true)
    );
    assert_eq!(sim.facts.undo, None);
    // The same content again changes nothing; a retry, or newer content, does.
    sim.edit(|spec| spec["bakeTime"] = json!("1s"));
    sim.run(30);
    assert_eq!(sim.results().len(), 3);
    let mut other = sim.clone();
    retry(&mut sim, &second);
    sim.run_until("the retry", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
    released(&mut other, "cart:4");
    assert_eq!(other.image("cart"), "cart:4");
}

/// What an undo took away stays away until something else was released: from
/// then on whoever applies it means it.
#[test]
fn what_an_undo_took_away_can_come_after_other_content() {
    let followed = json!({"components": [followed("cart")]});
    let followed = Sim::settled(followed, &[("cart", "cart:1")]);
    let templated = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    for (mut sim, follows) in [(templated, false), (followed, true)] {
        let set = |sim: &mut Sim, image: &str| {
            if follows {
                sim.deployment("cart").set_image(image);
                sim.dirty = true;
            } else {
                sim.want("cart", image);
            }
        };
        let first = sim.status.stable_revision.clone().unwrap();
        set(&mut sim, "cart:2");
        sim.run_to_the_end();
        undo(&mut sim, &first);
        sim.run_to_the_end();
        assert_eq!(sim.image("cart"), "cart:1");
        for image in ["cart:3", "cart:2"] {
            set(&mut sim, image);
            sim.run(60);
            assert_eq!((sim.image("cart"), sim.ready()), (image, true));
        }
    }
}

/// What somebody changes elsewhere is no word on what was undone.
#[test]
fn what_an_undo_took_away_stays_away_while_something_else_is_released() {
    let spec =
        json!({"components": [component("cart", "cart:1"), followed("db"), followed("web")]});
    let start = [("cart", "cart:1"), ("db", "db:1"), ("web", "web:1")];
    let mut sim = Sim::settled(spec, &start);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:2");
    sim.deployment("db").set_image("db:2");
    sim.run_until("both are released", |sim| {
        sim.ready() && (sim.image("cart"), sim.image("db")) == ("cart:2", "db:2")
    });
    sim.run(10);
    undo(&mut sim, &first);
    sim.run_to_the_end();
    assert_eq!((sim.image("cart"), sim.image("db")), ("cart:1", "db:1"));
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    sim.run(30);
    assert_eq!((sim.image("web"), sim.image("cart")), ("web:2", "cart:1"));
    assert_eq!(sim.reason(), "Undone");
    // A sync of what was undone is sent back.
    sim.deployment("db").set_image("db:2");
    sim.run(30);
    assert_eq!(sim.image("db"), "db:1");
}

#[test]
fn an_undo_reaches_what_was_live_before_the_plan() {
    let mut sim = pair();
    let before = sim.status.stable_revision.clone().unwrap();
    sim.edit(|spec| {
        let container = &mut spec["components"][0]["template"]["spec"]["containers"][0];
        container["env"] =
            json!([{"name": "NEW", "value": "1"}, {"name": "LOG", "value": "debug"}]);
    });
    released(&mut sim, "cart:2");
    let proxy = json!("envoy:2");
    sim.deployment("cart").edit(
        &["f:spec", "f:containers", r#"k:{"name":"proxy"}"#, "f:image"],
        proxy.clone(),
    );
    sim.run_until("the guarded release", |sim| sim.results().len() == 2);
    undo(&mut sim, &before);
    sim.run_until("the end", |sim| sim.results().len() == 3);
    let containers = &sim.deployments["cart"].template["spec"]["containers"];
    assert_eq!(containers[0]["image"], "cart:1");
    assert_eq!(
        containers[0]["env"],
        json!([{"name": "LOG", "value": "info"}])
    );
    assert_eq!(
        containers[1]["image"], proxy,
        "what surrounds the plan's fields stays"
    );
}

#[test]
fn an_undo_gives_followed_workloads_their_earlier_templates() {
    let spec = json!({"components": [followed("cart"), followed("web")]});
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    let before = sim.status.stable_revision.clone().unwrap();
    sim.deployment("cart").set_image("cart:2");
    sim.run_until("the release", |sim| sim.results().len() == 1 && sim.ready());
    undo(&mut sim, &before);
    sim.run_until("the undo", |sim| sim.results().len() == 2);
    sim.run(10);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(sim.reason(), "Undone");
    assert!(!sim.deployments["cart"].marked());
    // What was undone is sent back when it comes back.
    sim.deployment("cart").set_image("cart:2");
    sim.run(10);
    assert_eq!((sim.image("cart"), sim.results().len()), ("cart:1", 2));
    sim.deployment("cart").set_image("cart:3");
    sim.run_until("newer content", |sim| {
        sim.results().len() == 3 && sim.ready()
    });
}

#[test]
fn an_undo_that_fails_goes_back_to_what_was_stable() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    let second = released(&mut sim, "cart:3");
    sim.edit(|spec| spec["progressDeadline"] = json!("20s"));
    sim.deployment("web").broken = false;
    // The old image no longer runs.
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.image("cart") == "cart:2");
    sim.deployment("cart").broken = true;
    sim.run_until("the failure", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = false;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(10);
    assert_eq!((sim.image("cart"), sim.ready()), ("cart:3", true));
    assert_eq!(sim.status.stable_revision, Some(second));
}

#[test]
fn an_undo_waits_for_the_end_of_a_release_and_to_the_stable_one_is_an_abort() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    let second = released(&mut sim, "cart:3");
    sim.want("cart", "cart:4-slow");
    sim.run(4);
    let mut other = sim.clone();
    undo(&mut sim, &first);
    sim.run(3);
    assert_eq!(
        (sim.phase(), sim.facts.undo.is_some()),
        (Phase::RollingOut, true)
    );
    sim.run_until("the undo", |sim| sim.results().len() == 4);
    assert_eq!(sim.image("cart"), "cart:2");
    undo(&mut other, &second);
    other.run_until("the abort", |sim| sim.phase() == Phase::Stable);
    assert_eq!(
        (other.image("cart"), other.status.refused[0].cause),
        ("cart:3", Cause::Aborted)
    );
}

#[test]
fn newer_content_takes_the_place_of_an_undo() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2-slow");
    released(&mut sim, "cart:3");
    undo(&mut sim, &first);
    sim.run_until("the undo", |sim| sim.image("cart") == "cart:2-slow");
    sim.want("cart", "cart:4");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.status.refused.len()), ("cart:4", 0));
}

#[test]
fn an_undo_of_something_that_is_not_kept_names_what_is() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    undo(&mut sim, "shop-0000000000");
    sim.run(5);
    assert_eq!(
        (sim.told(Reason::UndoIgnored), sim.facts.undo.clone()),
        (1, None)
    );
    assert!(sim.events.last().unwrap().note.contains(&first));
    undo(&mut sim, &first);
    sim.run(5);
    assert_eq!((sim.told(Reason::UndoIgnored), sim.ready()), (2, true));
}

#[test]
fn orders_survive_a_crash_between_any_two_writes() {
    let mut start = pair();
    let first = released(&mut start, "cart:2");
    released(&mut start, "cart:3");
    let run = |crash_at| {
        let mut sim = start.clone();
        undo(&mut sim, &first);
        sim.crash_at = crash_at;
        sim.run(90);
        sim
    };
    let plain = run(None);
    for write in start.writes..plain.writes {
        let sim = run(Some(write));
        assert_eq!(
            (sim.results(), sim.reason()),
            (plain.results(), "Undone"),
            "write {write}"
        );
        assert_eq!(
            (sim.image("cart"), sim.facts.undo.clone()),
            ("cart:2", None)
        );
    }
    let (start, target) = in_mid_release();
    let run = |crash_at| {
        let mut sim = start.clone();
        abort(&mut sim, &target);
        sim.crash_at = crash_at;
        sim.run(90);
        sim
    };
    let plain = run(None);
    for write in start.writes..plain.writes {
        let sim = run(Some(write));
        assert_eq!(
            (sim.results(), sim.reason()),
            (plain.results(), "RolledBack"),
            "write {write}"
        );
    }
}

#[test]
fn of_several_orders_each_has_its_turn() {
    let mut sim = pair();
    let first = released(&mut sim, "cart:2");
    released(&mut sim, "cart:3");
    sim.want("cart", "cart:4-unready");
    sim.run(4);
    let target = sim.status.target_revision.clone().unwrap();
    undo(&mut sim, &first);
    abort(&mut sim, &target);
    sim.run_until("the undo", |sim| sim.results().len() == 4);
    let ends = [ReleaseResult::RolledBack, ReleaseResult::Succeeded];
    assert_eq!(sim.results()[2..], ends);
    assert_eq!(sim.image("cart"), "cart:2");
}
