//! Content that was rolled back, and what brings it back or does not.

use serde_json::json;

use super::sim::*;
use crate::{
    api::{ConditionType, Phase, Reason, ReleaseResult},
    machine::Observed,
};

fn rolled_back() -> Sim {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.want("cart", "cart:2-crash");
    sim.rest();
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    sim.journal.clear();
    sim
}

fn follow() -> Sim {
    let spec = json!({"components": [followed("cart"), followed("web")]});
    Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")])
}

#[test]
fn refused_content_is_not_tried_again() {
    let mut sim = rolled_back();
    for _ in 0..5 {
        sim.edit(|spec| spec["bakeTime"] = json!("1s"));
        sim.edit(|spec| spec["bakeTime"] = json!("2s"));
        sim.run(30);
    }
    assert_eq!(sim.journal, []);
    assert_eq!(sim.reason(), "RolledBack");
}

/// With the end all is said: no pass has to look at refused content once more.
#[test]
fn the_end_of_a_way_back_is_its_last_write() {
    let quiet = |mut sim: Sim, ends: &str| {
        sim.run_to_the_end();
        assert_eq!(sim.reason(), ends);
        let tried = |o: &Observed| o.workload.as_ref().unwrap().dry_run.is_some();
        assert!(!sim.observe().components.iter().any(tried), "{ends}");
        assert!(!sim.pass(), "{ends}");
    };
    let mut failing = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    failing.want("cart", "cart:2-crash");
    quiet(failing.clone(), "RolledBack");
    failing.run_to_the_end();
    failing.want("cart", "cart:3");
    failing.run_to_the_end();
    let back = failing.status.history.last().unwrap().from.clone();
    failing.facts.undo = back;
    quiet(failing, "Undone");
}

/// The last word is the person's, also where the content of the plan was refused
/// before.
#[test]
fn an_undo_after_a_rollback_says_that_it_was_undone() {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.want("cart", "cart:2");
    sim.run_to_the_end();
    let first = sim.status.history[0].from.clone();
    sim.want("cart", "cart:3-crash");
    sim.run_to_the_end();
    assert_eq!(sim.reason(), "RolledBack");
    sim.facts.undo = first;
    sim.dirty = true;
    sim.run_to_the_end();
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "Undone"));
    let (_, _, message) = sim.condition(ConditionType::Ready);
    assert!(
        message.contains("was rolled back before: ContainerRestarts"),
        "{message}"
    );
    assert!(message.contains("belay.dev/retry="), "{message}");
    sim.want("cart", "cart:4-crash");
    sim.run_to_the_end();
    assert_eq!(sim.reason(), "RolledBack");
}

/// A refusal of what the plan asks for now does not fall out of a list of one, so
/// that content is neither tried again nor taken for what is released.
#[test]
fn content_that_comes_back_in_a_rollback_stays_refused_with_a_list_of_one() {
    let mut spec = templated(&[("cart", "cart:1")]);
    spec["revisionHistoryLimit"] = json!(1);
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    sim.want("cart", "cart:2-crash");
    sim.run_to_the_end();
    sim.want("cart", "cart:3-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.want("cart", "cart:2-crash");
    sim.run_to_the_end();
    sim.run(60);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "RolledBack"));
    assert_eq!(sim.status.history.last().unwrap().number, 2);
    // Once the plan asks for something else, it may.
    sim.want("cart", "cart:4-crash");
    sim.run_to_the_end();
    sim.want("cart", "cart:5-crash");
    sim.run_to_the_end();
    let refused = sim.status.refused.iter();
    assert_eq!(refused.filter(|r| r.spec.is_some()).count(), 1);
}

#[test]
fn newer_content_is_tried() {
    let mut sim = rolled_back();
    sim.want("cart", "cart:3");
    sim.rest();
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        sim.results(),
        [ReleaseResult::RolledBack, ReleaseResult::Succeeded]
    );
}

#[test]
fn going_back_to_the_stable_content_makes_it_ready_again() {
    let mut sim = rolled_back();
    sim.want("cart", "cart:1");
    sim.run(5);
    assert!(sim.ready());
    assert_eq!(sim.journal, []);
    sim.want("cart", "cart:2-crash");
    sim.run(20);
    assert_eq!((sim.reason(), sim.journal.len()), ("RolledBack", 0));
}

#[test]
fn a_restart_after_a_rollback_does_not_revive_refused_content() {
    let mut sim = rolled_back();
    sim.deployment("cart").restart("now");
    sim.run(60);
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.reason(), "RolledBack");
    let annotations = &sim.deployments["cart"].template["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/restartedAt"], "now");
    assert_eq!(
        sim.results(),
        [ReleaseResult::RolledBack, ReleaseResult::Succeeded]
    );
}

/// GO-01 for a template of the plan: somebody keeps applying the bad manifest.
#[test]
fn go_01_refused_content_that_is_applied_again_and_again_is_fought_a_few_times() {
    let mut sim = rolled_back();
    for round in 0..60 {
        sim.deployment("cart").set_image("cart:2-crash");
        sim.run(5);
        assert_eq!(sim.results().len(), 1, "no release in round {round}");
    }
    assert!(sim.journal.len() <= 3, "{:?}", sim.journal);
    assert_eq!((sim.reason(), sim.stalled()), ("Contended", true));
    assert_eq!(sim.told(Reason::Contended), 1);
    sim.want("cart", "cart:3");
    sim.rest();
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

/// GO-01 for a followed workload.
#[test]
fn go_01_a_followed_template_that_comes_back_is_sent_back_a_few_times() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!((sim.image("cart"), sim.writes_on("cart")), ("cart:1", 1));
    for _ in 0..60 {
        sim.deployment("cart").set_image("cart:2-pullerror");
        sim.run(5);
    }
    assert_eq!(sim.writes_on("cart"), 4);
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert_eq!((sim.reason(), sim.ready()), ("Contended", false));
    sim.deployment("cart").set_image("cart:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

#[test]
fn a_retry_tries_refused_content_again() {
    let mut sim = rolled_back();
    let refused = sim.status.refused[0].revision.clone();
    sim.facts.retry = Some(refused.clone());
    sim.dirty = true;
    sim.run_until("the second rollback", |sim| sim.results().len() == 2);
    assert_eq!(sim.facts.retry, None, "the annotation is taken off");
    assert_eq!(
        sim.results(),
        [ReleaseResult::RolledBack, ReleaseResult::RolledBack]
    );
    assert_eq!(sim.reason(), "RolledBack");
    assert_eq!(sim.status.refused.len(), 1);
    assert_eq!(sim.told(Reason::RetryIgnored), 0);
}

#[test]
fn a_retry_of_a_followed_template_puts_it_back_and_guards_it() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-slow");
    sim.edit(|spec| spec["progressDeadline"] = json!("5s"));
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    sim.edit(|spec| spec["progressDeadline"] = json!("5m"));
    sim.facts.retry = Some(sim.status.refused[0].revision.clone());
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:2-slow");
    assert_eq!(
        sim.results(),
        [ReleaseResult::RolledBack, ReleaseResult::Succeeded]
    );
    assert_eq!(sim.status.refused, []);
    assert!(
        !sim.deployments["cart"].marked(),
        "no mark stays on a followed workload"
    );
}

#[test]
fn a_retry_survives_a_crash_between_any_two_writes() {
    let start = rolled_back();
    let run = |crash_at| {
        let mut sim = start.clone();
        sim.facts.retry = Some(sim.status.refused[0].revision.clone());
        sim.dirty = true;
        sim.crash_at = crash_at;
        sim.run(90);
        sim
    };
    let plain = run(None);
    for write in start.writes..plain.writes {
        let sim = run(Some(write));
        assert_eq!(
            (sim.results().len(), sim.reason()),
            (2, "RolledBack"),
            "write {write}"
        );
        assert_eq!(sim.facts.retry, None);
    }
}

#[test]
fn a_retry_of_something_else_is_said_once_and_taken_off() {
    let mut sim = rolled_back();
    sim.facts.retry = Some("shop-nonsense".to_owned());
    sim.dirty = true;
    sim.run(10);
    assert_eq!(
        (sim.told(Reason::RetryIgnored), sim.facts.retry.clone()),
        (1, None)
    );
    assert_eq!(sim.reason(), "RolledBack");
}

#[test]
fn a_followed_component_with_a_bad_image_goes_back() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.rest();
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.journal.first(), Some(&("replace", "cart".to_owned())));
    assert!(
        !sim.deployments["cart"].marked(),
        "no mark stays on a followed workload"
    );
    assert_eq!(sim.writes_on("web"), 0);
}

#[test]
fn a_followed_component_that_changes_again_in_mid_release_is_judged_anew() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run(5);
    sim.deployment("cart").set_image("cart:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        sim.results(),
        [ReleaseResult::Superseded, ReleaseResult::Succeeded]
    );
    let why = sim.status.history[0].message.as_deref().unwrap();
    assert!(why.starts_with("somebody changed cart; "), "{why}");
    assert_eq!(
        sim.journal,
        [],
        "a followed workload that is fine is never written"
    );
}

#[test]
fn a_followed_component_put_back_by_hand_is_a_revert() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run(5);
    sim.deployment("cart").set_image("cart:1");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.status.refused.len(), sim.phase()), (0, Phase::Stable));
    assert_eq!(sim.journal, []);
}

#[test]
fn a_followed_change_during_a_rollback_is_kept_and_judged_after_it() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").set_image("web:2");
    sim.run_until("the end", |sim| {
        sim.phase() == Phase::Stable && sim.image("web") == "web:2" && sim.results().len() == 2
    });
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:2"));
}

#[test]
fn a_broken_followed_change_during_a_rollback_does_not_wedge() {
    let mut sim = follow();
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").set_image("cart:3-unready");
    sim.run_until("the end", |sim| {
        sim.phase() == Phase::Stable && sim.image("cart") == "cart:1"
    });
    sim.run(60);
    assert_eq!(sim.phase(), Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
}

/// A retry that could put nothing back is said to mean nothing, and refused
/// content stays refused.
#[test]
fn a_retry_of_followed_content_whose_revision_is_lost_changes_nothing() {
    let mut sim = follow();
    sim.deployment("cart").set_image("cart:2-crash");
    sim.run_to_the_end();
    assert_eq!(sim.reason(), "RolledBack");
    let bad = sim.status.refused[0].revision.clone();
    sim.revisions.retain(|name, _| *name != bad);
    sim.journal.clear();
    sim.facts.retry = Some(bad.clone());
    sim.dirty = true;
    sim.run(5);
    assert_eq!(sim.facts.retry, None);
    assert_eq!(sim.told(Reason::RetryIgnored), 1);
    assert_eq!(sim.status.refused[0].revision, bad);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "RolledBack"));
}

/// Attempts that fail and restarts leave the way to the revision before open,
/// however few records are kept.
#[test]
fn failed_attempts_and_restarts_do_not_push_out_where_an_undo_goes_to() {
    let mut spec = templated(&[("cart", "cart:1")]);
    spec["revisionHistoryLimit"] = json!(1);
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    let first = sim.status.stable_revision.clone();
    sim.want("cart", "cart:2");
    sim.run_to_the_end();
    for image in ["cart:3-crash", "cart:4-crash", "cart:5-crash"] {
        sim.want("cart", image);
        sim.run_to_the_end();
        sim.rest();
    }
    for restart in ["a", "b"] {
        sim.deployment("cart").restart(restart);
        sim.dirty = true;
        sim.run_to_the_end();
        sim.rest();
    }
    let numbers = sim.status.history.iter().map(|record| record.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 6]);
    sim.facts.undo = first;
    sim.dirty = true;
    sim.run_to_the_end();
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "Undone"));
}
