//! What people read when something is wrong, and that what it says leads out.

use serde_json::json;

use super::sim::*;
use crate::api::{ConditionType, Phase, Reason};

fn message(sim: &Sim) -> String {
    sim.condition(ConditionType::Ready).2.to_owned()
}

/// Carries out the orders in the last command of a message.
fn paste(sim: &mut Sim) {
    let text = message(sim);
    let (_, command) = text
        .rsplit_once("kubectl annotate relplan shop -n prod ")
        .unwrap();
    let (orders, _) = command.split_once(" --overwrite").unwrap();
    for order in orders.split(' ') {
        let (verb, revision) = order.split_once('=').unwrap();
        let revision = Some(revision.to_owned());
        match verb {
            "belay.dev/abort" => sim.facts.abort = revision,
            "belay.dev/undo" => sim.facts.undo = revision,
            "belay.dev/retry" => sim.facts.retry = revision,
            _ => panic!("{order}"),
        }
    }
    sim.dirty = true;
}

/// A plan with one component and two releases behind it.
fn two_releases() -> Sim {
    let mut spec = templated(&[("cart", "cart:1")]);
    spec["progressDeadline"] = json!("30s");
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    sim.want("cart", "cart:2");
    sim.run_until("the release", |sim| sim.results().len() == 1);
    sim
}

/// The stable revision does not run any more: one command leads past it.
#[test]
fn the_way_out_of_a_rollback_to_a_broken_stable_revision_is_one_command() {
    let mut sim = two_releases();
    sim.deployment("cart").broken = true;
    sim.want("cart", "cart:3-unready");
    sim.run_until("the stall", |sim| sim.reason() == "RollbackStalled");
    assert_eq!(sim.image("cart"), "cart:2");
    paste(&mut sim);
    sim.run_until("the older one", |sim| sim.image("cart") == "cart:1");
    sim.deployment("cart").broken = false;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert!(
        !sim.ready() && message(&sim).contains("is live"),
        "{}",
        message(&sim)
    );
    assert!(sim.facts.abort.is_none() && sim.facts.undo.is_none());
}

#[test]
fn what_a_person_did_is_said_once() {
    let mut sim = two_releases();
    sim.edit(|spec| spec["bakeTime"] = json!("1h"));
    sim.want("cart", "cart:3");
    sim.run_until("the release", |sim| sim.reason() == "Baking");
    sim.facts.abort.clone_from(&sim.status.target_revision);
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    let text = message(&sim);
    assert!(
        text.starts_with("rolled back: the release was aborted as asked. "),
        "{text}"
    );
    sim.want("cart", "cart:4");
    sim.run_until("the release", |sim| sim.reason() == "Baking");
    sim.want("cart", "cart:2");
    sim.run_until("the end", |sim| sim.ready());
    for event in &sim.events {
        assert!(!event.note.contains(event.reason.as_str()), "{event:?}");
        assert!(!event.note.contains("Aborted"), "{event:?}");
    }
    assert!(sim.told(Reason::Reverted) > 0);
}

/// A component may be called otherwise than its workload.
#[test]
fn a_failure_is_told_in_the_same_words_everywhere() {
    let mut spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    spec["components"][1]["name"] = json!("front");
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.edit(|spec| {
        spec["components"][1]["template"]["spec"]["containers"][0]["image"] = json!("web:2-crash");
    });
    sim.run_until("the way back", |sim| sim.phase() == Phase::Rollback);
    let failure = sim.status.release.as_ref().unwrap().failure.clone();
    let told = failure.unwrap().told();
    assert!(
        told.starts_with("ContainerRestarts of component front: deployment web: pod "),
        "{told}"
    );
    assert!(message(&sim).contains(&told), "{}", message(&sim));
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    let status = &sim.status;
    assert!(message(&sim).starts_with(&format!("rolled back: {told}. ")));
    assert_eq!(status.refused[0].told(), told);
    assert_eq!(status.refused[0].component.as_deref(), Some("front"));
    let record = status.history.last().unwrap();
    assert_eq!(record.message.as_deref(), Some(told.as_str()));
    for reason in [Reason::RollbackStarted, Reason::RolledBack] {
        let notes = sim.events.iter().filter(|event| event.reason == reason);
        let decisions = status
            .decisions
            .iter()
            .filter(|entry| entry.reason == reason);
        let texts = notes.map(|event| &event.note);
        let texts: Vec<&String> = texts.chain(decisions.map(|entry| &entry.message)).collect();
        assert!(texts.len() >= 2, "{reason}: {texts:?}");
        assert!(texts.iter().all(|text| text.contains(&told)), "{texts:?}");
    }
}

/// Whatever the API server answers, the way out behind it is not cut off.
#[test]
fn a_long_explanation_does_not_cut_off_the_way_out() {
    let mut sim = two_releases();
    sim.want("cart", "cart:3-pullerror");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    sim.status.refused[0].message = "ü".repeat(2000);
    sim.deployment("cart").version += 1;
    sim.rest();
    let text = message(&sim);
    assert!(
        text.len() <= 1000 && text.ends_with(" --overwrite"),
        "{text}"
    );
    paste(&mut sim);
    sim.run_until("the retry", |sim| sim.image("cart") == "cart:3-pullerror");
}

/// Names may have 253 characters, and a namespace 63.
#[test]
fn long_names_do_not_cut_off_the_ways_out() {
    let (name, place) = ("p".repeat(253), "n".repeat(63));
    let mut sim = Sim::new(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.facts.name.clone_from(&name);
    sim.facts.namespace.clone_from(&place);
    sim.run(60);
    let way = |order: &str, revision: &str| {
        format!(
            "kubectl annotate relplan {name} -n {place} belay.dev/{order}={revision} --overwrite"
        )
    };
    sim.want("cart", "cart:2-unready");
    sim.run_until("the release", |sim| sim.reason() == "Promoting");
    let stable = sim.status.stable_revision.clone().unwrap();
    let target = sim.status.target_revision.clone().unwrap();
    sim.deployment("cart").broken = true;
    sim.facts.abort = Some(target.clone());
    sim.run_until("the way back", |sim| sim.phase() == Phase::Rollback);
    sim.run(10);
    sim.facts.abort = Some(target.clone());
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.reason() == "RollbackAborted");
    let text = message(&sim);
    for command in [way("undo", &stable), way("retry", &target)] {
        assert!(text.contains(&command), "{text}");
    }
    // An event is shorter, and holds one of them whole and none in part.
    let told = |reason| {
        sim.events
            .iter()
            .filter(move |event| event.reason == reason)
    };
    let note = &told(Reason::RollbackAborted).next_back().unwrap().note;
    assert!(note.len() <= 1000, "{note}");
    assert!(note.ends_with(&way("retry", &target)), "{note}");
    assert_eq!(note.matches("kubectl").count(), 1, "{note}");
}

#[test]
fn who_fights_over_which_field_is_named() {
    let mut sim = two_releases();
    for _ in 0..6 {
        sim.deployment("cart").set_image("cart:9");
        sim.run(5);
    }
    assert_eq!(sim.reason(), "Contended");
    let text = message(&sim);
    for part in [
        "field manager kubectl",
        "deployment cart: containers[app].image.",
        "kubectl get deployment cart -n prod -o yaml --show-managed-fields",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn a_pause_says_how_to_end_it() {
    let mut sim = two_releases();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:3");
    sim.rest();
    assert_eq!(sim.reason(), "Paused");
    let command =
        r#"kubectl patch relplan shop -n prod --type merge -p '{"spec":{"paused":false}}'"#;
    assert!(message(&sim).ends_with(command), "{}", message(&sim));
}

/// Where the content is not in the plan, the message does not send people there, nor
/// to a component that did not fail.
#[test]
fn content_is_to_be_changed_where_it_comes_from() {
    let says = |spec: serde_json::Value, fail: fn(&mut Sim)| {
        let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
        fail(&mut sim);
        sim.dirty = true;
        sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
        message(&sim)
    };
    let plan = says(templated(&[("cart", "cart:1")]), |sim| {
        sim.want("cart", "cart:2-crash");
    });
    assert!(
        plan.contains(" Change the content of the plan, or"),
        "{plan}"
    );
    let spec = json!({"components": [followed("cart"), followed("web")]});
    let live = says(spec, |sim| sim.deployment("web").set_image("web:2-crash"));
    assert!(
        live.contains(" Change the content of deployment web, or"),
        "{live}"
    );
}
