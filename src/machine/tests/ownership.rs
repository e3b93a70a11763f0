//! Who else writes, who holds what, and what is no news.

use serde_json::json;

use super::sim::*;
use crate::api::{ConditionType, Phase, Reason, ReleaseKind, ReleaseResult};

fn one() -> Sim {
    Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")])
}

/// SM-05: what is not content starts nothing.
#[test]
fn sm_05_replicas_thresholds_and_limits_start_nothing() {
    let mut sim = one();
    let before = sim.writes;
    sim.deployment("cart").replicas = 4;
    sim.run(20);
    sim.deployment("cart").version += 7;
    sim.run(20);
    for edit in [
        json!({"bakeTime": "7s"}),
        json!({"progressDeadline": "7m"}),
        json!({"failFast": {"restarts": 9}}),
        json!({"revisionHistoryLimit": 3}),
        json!({"deletionPolicy": "Keep"}),
        json!({"paused": true}),
        json!({"paused": false}),
    ] {
        sim.edit(|spec| {
            let fields = spec.as_object_mut().unwrap();
            fields.extend(edit.as_object().unwrap().clone());
        });
        sim.run(20);
        assert!(sim.ready(), "{edit}");
    }
    assert_eq!((sim.journal.len(), sim.results().len()), (0, 0));
    assert!(
        sim.writes - before <= 8,
        "one status write for each generation"
    );
    assert_eq!(sim.status.observed_generation, Some(sim.facts.generation));
}

/// SM-05: a restart does change the template; for a followed component it is a
/// release like any other.
#[test]
fn sm_05_a_restart_of_a_followed_workload_is_a_release() {
    let spec = json!({"components": [followed("cart")]});
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    sim.deployment("cart").restart("now");
    sim.rest();
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.results(), [ReleaseResult::Succeeded]);
    assert_eq!(sim.journal, []);
}

#[test]
fn a_change_around_the_plans_fields_is_guarded_and_goes_back_if_it_breaks() {
    let mut sim = one();
    let path = ["f:spec", "f:containers", r#"k:{"name":"proxy"}"#, "f:image"];
    sim.deployment("cart").edit(&path, json!("envoy:2-crash"));
    sim.run_until("the end", |sim| sim.results().len() == 1);
    assert_eq!(sim.status.history[0].kind, ReleaseKind::Surroundings);
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert_eq!(
        sim.deployments["cart"].template["spec"]["containers"][1]["image"],
        "envoy:1"
    );
    let release_generation = sim.facts.release_generation;
    assert_eq!(sim.status.observed_release_generation, release_generation);
    sim.run(60);
    assert_eq!(sim.results().len(), 1);
    assert!(
        sim.deployments["cart"]
            .ours
            .to_value()
            .to_string()
            .contains("image")
    );
}

#[test]
fn a_change_around_the_plans_fields_that_is_fine_becomes_stable() {
    let mut sim = one();
    let path = ["f:spec", "f:containers", r#"k:{"name":"proxy"}"#, "f:image"];
    sim.deployment("cart").edit(&path, json!("envoy:2"));
    sim.rest();
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.journal, []);
    sim.want("cart", "cart:2-crash");
    sim.rest();
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(
        sim.deployments["cart"].template["spec"]["containers"][1]["image"],
        "envoy:2"
    );
}

#[test]
fn what_changes_around_the_plans_fields_in_mid_release_is_judged_after_it() {
    let mut sim = one();
    sim.edit(|spec| spec["bakeTime"] = json!("10s"));
    sim.facts.requested_by = Some("jane".to_owned());
    sim.want("cart", "cart:2");
    sim.run_until("baking", |sim| sim.reason() == "Baking");
    let path = ["f:spec", "f:containers", r#"k:{"name":"proxy"}"#, "f:image"];
    sim.deployment("cart").edit(&path, json!("envoy:2"));
    sim.run_until("both", |sim| sim.results().len() == 2);
    assert_eq!(sim.status.history[1].kind, ReleaseKind::Surroundings);
    let by = |record: usize| sim.status.history[record].requested_by.as_deref();
    assert_eq!((by(0), by(1)), (Some("jane"), None));
    assert!(sim.ready());
    let stable = &sim.revisions[sim.status.stable_revision.as_ref().unwrap()];
    let frozen = &stable.data.components[0].template;
    assert_eq!(frozen["spec"]["containers"][1]["image"], "envoy:2");
}

#[test]
fn somebody_who_takes_a_field_gets_it_taken_back_three_times() {
    let mut sim = one();
    for round in 1..=6 {
        sim.deployment("cart").set_image("cart:9");
        sim.run(10);
        let expected = if round <= 3 { "cart:1" } else { "cart:9" };
        assert_eq!(sim.image("cart"), expected, "round {round}");
    }
    assert_eq!(sim.writes_on("cart"), 3);
    assert_eq!(sim.told(Reason::Reasserted), 3);
    let told = |e: &&crate::machine::EventNote| e.reason == Reason::Reasserted;
    let note = &sim.events.iter().find(told).unwrap().note;
    assert!(note.contains("field manager kubectl"), "{note}");
    let (stalled, reason, message) = sim.condition(ConditionType::Stalled);
    assert!(
        stalled && reason == "Contended" && message.contains("kubectl"),
        "{message}"
    );
    assert!(
        !sim.condition(ConditionType::Stable).0,
        "the stable revision is not live"
    );
    sim.run(600);
    assert_eq!(
        sim.image("cart"),
        "cart:1",
        "tried again when the window is over"
    );
    sim.run(30);
    assert!(sim.ready());
}

#[test]
fn somebody_who_takes_a_field_in_mid_release_is_a_hold_in_the_end() {
    let mut sim = one();
    sim.edit(|spec| spec["bakeTime"] = json!("5m"));
    sim.want("cart", "cart:2");
    sim.run_until("baking", |sim| sim.reason() == "Baking");
    for _ in 0..8 {
        sim.deployment("cart").set_image("cart:9");
        sim.run(10);
    }
    assert_eq!((sim.reason(), sim.stalled()), ("Contended", true));
    assert_eq!(sim.writes_on("cart"), 4);
}

/// WV-07: the plan that came later writes nothing until the other is gone.
#[test]
fn wv_07_a_plan_whose_workload_is_held_writes_nothing_and_takes_over_later() {
    let spec = templated(&[("cart", "cart:2"), ("web", "web:2")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.incumbents.insert("cart".to_owned(), "other".to_owned());
    sim.run(30);
    assert_eq!((sim.reason(), sim.stalled()), ("Conflict", true));
    assert!(
        sim.condition(ConditionType::Ready)
            .2
            .contains("releaseplan other")
    );
    assert_eq!((sim.journal.len(), sim.revisions.len()), (0, 0));
    assert_eq!(sim.status.components, [], "a plan that lost claims nothing");
    sim.incumbents.clear();
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:2"));
}

#[test]
fn a_plan_whose_workload_is_held_can_be_deleted() {
    let mut sim = Sim::new(templated(&[("cart", "cart:2")]), &[("cart", "cart:1")]);
    sim.incumbents.insert("cart".to_owned(), "other".to_owned());
    sim.run(3);
    sim.delete();
    sim.run(3);
    assert!(sim.gone);
    assert_eq!(sim.journal, []);
}

#[test]
fn a_new_component_is_adopted_before_it_is_released() {
    let mut sim = one();
    sim.deployments.insert(
        "web".to_owned(),
        super::cluster::Deployment::new("uid-web", "web:1"),
    );
    sim.edit(|spec| {
        spec["components"]
            .as_array_mut()
            .unwrap()
            .push(component("web", "web:2-crash"));
    });
    sim.rest();
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert!(
        sim.status
            .components
            .iter()
            .any(|c| c.name == "web" && c.claimed_at.is_some())
    );
}

#[test]
fn a_component_that_left_is_let_go_with_its_values() {
    let spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.want("web", "web:2");
    sim.rest();
    sim.run_until("the release", |sim| sim.ready());
    assert!(sim.deployments["web"].marked());
    sim.edit(|spec| {
        spec["components"].as_array_mut().unwrap().pop();
    });
    sim.run_until("the end", |sim| {
        sim.ready() && !sim.deployments["web"].marked()
    });
    assert_eq!(sim.image("web"), "web:2");
    assert!(sim.status.components.iter().all(|c| c.name != "web"));
    let results = sim.results().len();
    sim.deployment("web").set_image("web:3");
    sim.run(20);
    assert_eq!(sim.results().len(), results);
}

#[test]
fn another_set_of_components_waits_for_the_end_of_a_release() {
    let mut sim = one();
    sim.deployments.insert(
        "web".to_owned(),
        super::cluster::Deployment::new("uid-web", "web:1"),
    );
    sim.want("cart", "cart:2-slow");
    sim.run(3);
    sim.edit(|spec| {
        spec["components"]
            .as_array_mut()
            .unwrap()
            .push(component("web", "web:2"));
    });
    sim.rest();
    assert_eq!(sim.phase(), Phase::RollingOut);
    sim.run_until("the first", |sim| sim.results().len() == 1);
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(
        (sim.image("cart"), sim.image("web")),
        ("cart:2-slow", "web:2")
    );
    assert_eq!(
        sim.results(),
        [ReleaseResult::Succeeded, ReleaseResult::Succeeded]
    );
}

#[test]
fn another_set_of_components_while_content_settles_starts_over() {
    let mut sim = one();
    sim.deployments.insert(
        "web".to_owned(),
        super::cluster::Deployment::new("uid-web", "web:1"),
    );
    sim.want("cart", "cart:2");
    sim.rest();
    sim.edit(|spec| {
        spec["components"]
            .as_array_mut()
            .unwrap()
            .push(component("web", "web:2"));
    });
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:2"));
}

#[test]
fn a_component_whose_template_left_is_followed_from_then_on() {
    let mut sim = one();
    sim.edit(|spec| {
        spec["components"][0]
            .as_object_mut()
            .unwrap()
            .remove("template");
    });
    sim.run_until("the end", |sim| {
        sim.ready() && !sim.deployments["cart"].marked()
    });
    assert_eq!((sim.image("cart"), sim.results().len()), ("cart:1", 0));
    sim.deployment("cart").set_image("cart:2-pullerror");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn a_workload_that_is_made_again_gets_the_stable_values_again() {
    let mut sim = one();
    sim.want("cart", "cart:2");
    sim.rest();
    sim.run_until("the release", |sim| sim.ready());
    sim.deployments.remove("cart");
    sim.dirty = true;
    sim.run(10);
    assert_eq!((sim.reason(), sim.ready()), ("TargetsMissing", false));
    sim.deployments.insert(
        "cart".to_owned(),
        super::cluster::Deployment::new("uid-new", "cart:1"),
    );
    sim.dirty = true;
    sim.run_until("the end", |sim| {
        sim.ready() && sim.image("cart") == "cart:2"
    });
    assert_eq!(sim.told(Reason::RollbackStarted), 0);
}

/// From the release on in which its template leaves the plan, what somebody sets is
/// new content.
#[test]
fn new_content_of_a_workload_whose_template_left_the_plan_is_not_written_over() {
    for fails in [false, true] {
        let mut sim = Sim::settled(
            templated(&[("cart", "cart:1"), ("web", "web:1")]),
            &[("cart", "cart:1"), ("web", "web:1")],
        );
        let image = if fails {
            "cart:2-unready"
        } else {
            "cart:2-slow"
        };
        sim.edit(|spec| {
            spec["components"] = json!([component("cart", image), followed("web")]);
            spec["progressDeadline"] = json!("60s");
        });
        sim.run_until("it is sent", |sim| sim.image("cart") == image);
        sim.run(2);
        sim.deployment("web").set_image("web:9");
        sim.run_to_the_end();
        sim.run(200);
        assert_eq!(sim.phase(), Phase::Stable);
        let web = if fails { "web:1" } else { "web:9" };
        assert_eq!(sim.image("web"), web, "{:#?}", sim.status.history);
        assert_eq!(sim.told(Reason::Superseded), 1);
    }
}
