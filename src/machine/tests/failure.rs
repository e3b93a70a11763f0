//! Releases that fail, and the way back.

use std::time::Duration;

use serde_json::json;

use super::{plans::component, sim::*};
use crate::api::{Cause, ConditionType, Phase, Reason, ReleasePlanStatus, ReleaseResult};

fn three() -> Sim {
    let spec = templated(&[("cart", "cart:1"), ("web", "web:1"), ("pay", "pay:1")]);
    Sim::settled(
        spec,
        &[("cart", "cart:1"), ("web", "web:1"), ("pay", "pay:1")],
    )
}

fn release_three(sim: &mut Sim) {
    sim.want("cart", "cart:2");
    sim.want("web", "web:2");
    sim.want("pay", "pay:2-crash");
}

fn all_are_back(sim: &Sim) {
    for name in ["cart", "web", "pay"] {
        assert_eq!(sim.image(name), format!("{name}:1"));
        assert!(sim.deployments[name].complete(), "{name}");
    }
    assert_eq!(sim.phase(), Phase::Stable);
    assert_eq!((sim.ready(), sim.reason()), (false, "RolledBack"));
    assert!(sim.stalled());
    assert!(sim.condition(ConditionType::Stable).0);
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
}

/// SM-09: the third of three crash loops.
#[test]
fn sm_09_all_components_go_back_when_the_third_crash_loops() {
    let mut sim = three();
    release_three(&mut sim);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    let failure = sim
        .status
        .release
        .as_ref()
        .unwrap()
        .failure
        .clone()
        .unwrap();
    assert_eq!(failure.cause, Cause::ContainerRestarts);
    assert!(
        failure.message.contains("restarted 3 times"),
        "{}",
        failure.message
    );
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    all_are_back(&sim);
    for name in ["cart", "web", "pay"] {
        assert_eq!(sim.writes_on(name), 2, "{name}: once there and once back");
    }
    assert_eq!(sim.told(Reason::RollbackStarted), 1);
    assert_eq!(sim.told(Reason::RolledBack), 1);
    let written = sim.journal.len();
    sim.run(1200);
    assert_eq!(
        sim.journal.len(),
        written,
        "nothing is written once it is over"
    );
    all_are_back(&sim);
}

/// SM-09: the same, with the process killed before any one of its writes.
#[test]
fn sm_09_a_crash_between_any_two_writes_leads_to_the_same_end() {
    let (start, end) = {
        let mut sim = three();
        let start = sim.writes;
        release_three(&mut sim);
        sim.run(60);
        (start, sim.writes)
    };
    assert!(end > start + 10);
    for write in start..end {
        let mut sim = three();
        sim.crash_at = Some(write);
        release_three(&mut sim);
        sim.run(60);
        assert_eq!(sim.crash_at, None, "the crash happened");
        all_are_back(&sim);
        for name in ["cart", "web", "pay"] {
            assert_eq!(sim.writes_on(name), 2, "{name}, crash before write {write}");
        }
    }
}

#[test]
fn a_component_without_a_change_is_not_written_and_goes_nowhere() {
    let mut sim = three();
    sim.want("pay", "pay:2-crash");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!((sim.writes_on("cart"), sim.writes_on("pay")), (0, 2));
}

#[test]
fn an_image_that_cannot_be_pulled_ends_the_release_at_once() {
    let mut sim = three();
    sim.want("pay", "pay:2-pullerror");
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let failure = sim
        .status
        .release
        .as_ref()
        .unwrap()
        .failure
        .clone()
        .unwrap();
    assert_eq!(failure.cause, Cause::ImagePullBackOff);
}

#[test]
fn a_first_failed_pull_waits_for_the_deadline() {
    let mut sim = three();
    sim.edit(|spec| spec["progressDeadline"] = json!("2m"));
    sim.want("pay", "pay:2-pulling");
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!(
        took >= Duration::from_secs(120) && took < Duration::from_secs(130),
        "{took:?}"
    );
    let failure = sim
        .status
        .release
        .as_ref()
        .unwrap()
        .failure
        .clone()
        .unwrap();
    assert_eq!(failure.cause, Cause::ProgressDeadlineExceeded);
    assert!(
        failure.message.contains("no progress for 2m"),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("ErrImagePull"),
        "{}",
        failure.message
    );
}

#[test]
fn pods_that_are_refused_end_the_release_at_once() {
    let mut sim = three();
    sim.want("pay", "pay:2-quota");
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let failure = sim
        .status
        .release
        .as_ref()
        .unwrap()
        .failure
        .clone()
        .unwrap();
    assert_eq!(failure.cause, Cause::ReplicaFailure);
}

#[test]
fn a_template_that_the_api_server_refuses_in_mid_release_goes_back() {
    let mut sim = three();
    sim.edit(|spec| spec["components"][2]["after"] = json!(["cart"]));
    sim.want("cart", "cart:2");
    sim.want("pay", "pay:2-rejected");
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!((sim.image("cart"), sim.image("pay")), ("cart:1", "pay:1"));
    assert_eq!(sim.status.refused[0].cause, Cause::TemplateRefused);
    assert!(sim.status.refused[0].message.contains("denied by policy"));
}

#[test]
fn a_template_that_the_dry_run_refuses_touches_nothing() {
    let mut sim = three();
    sim.want("cart", "cart:2");
    sim.want("pay", "pay:2-refused");
    sim.run(20);
    assert_eq!((sim.reason(), sim.stalled()), ("TemplateRefused", true));
    assert_eq!(sim.journal, []);
    assert_eq!(sim.told(Reason::TemplateRefused), 1);
    sim.want("pay", "pay:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("pay")), ("cart:2", "pay:3"));
}

#[test]
fn a_misspelt_container_touches_nothing() {
    let mut sim = three();
    sim.edit(|spec| {
        spec["components"][0]["template"]["spec"]["containers"][0]["name"] = json!("ap");
    });
    sim.run(20);
    let (_, reason, message) = sim.condition(ConditionType::Stalled);
    assert_eq!(reason, "TemplateMismatch");
    assert!(
        message.contains("no container ap (it has: app, proxy)"),
        "{message}"
    );
    assert_eq!(sim.journal, []);
}

/// RB-01: what dies within the bake time goes back, with no old ReplicaSet left.
#[test]
fn rb_01_pods_that_die_within_the_bake_time_go_back() {
    let mut sim = three();
    sim.edit(|spec| spec["bakeTime"] = json!("1m"));
    sim.want("cart", "cart:2-dies");
    sim.run_until("baking", |sim| sim.reason() == "Baking");
    assert!(!sim.ready());
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
}

#[test]
fn a_loss_while_baking_that_does_not_heal_goes_back_after_the_deadline() {
    let mut sim = three();
    sim.edit(|spec| {
        spec["bakeTime"] = json!("1m");
        spec["progressDeadline"] = json!("30s");
    });
    sim.want("cart", "cart:2");
    sim.run_until("baking", |sim| sim.reason() == "Baking");
    sim.run(20);
    let stuck = sim.deployment("cart");
    stuck.broken = true;
    let took = sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    assert!(
        took >= Duration::from_secs(30) && took < Duration::from_secs(35),
        "{took:?}"
    );
}

#[test]
fn baking_ends_only_with_all_components_available() {
    let mut sim = three();
    sim.edit(|spec| spec["bakeTime"] = json!("20s"));
    sim.want("cart", "cart:2");
    sim.run_until("baking", |sim| sim.reason() == "Baking");
    sim.run(15);
    sim.deployment("web").broken = true;
    sim.run(60);
    assert_eq!((sim.phase(), sim.reason()), (Phase::RollingOut, "Baking"));
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.ready());
}

#[test]
fn flapping_pods_are_no_progress() {
    let mut sim = three();
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    for _ in 0..40 {
        sim.deployment("cart").flap();
        sim.run(2);
    }
    assert_ne!(sim.phase(), Phase::RollingOut, "{:#?}", sim.status);
}

/// RB-04: the stable revision itself does not get ready any more.
#[test]
fn rb_04_a_rollback_that_does_not_get_ready_is_loud_and_heals_by_itself() {
    let mut sim = three();
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = true;
    sim.run(75);
    assert_eq!(sim.phase(), Phase::Rollback);
    assert_eq!((sim.reason(), sim.stalled()), ("RollbackStalled", true));
    assert_eq!(sim.image("cart"), "cart:1");
    sim.run(600);
    assert_eq!(sim.told(Reason::RollbackStalled), 1);
    sim.deployment("cart").broken = false;
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
}

/// RB-04: new content gets a stalled rollback out.
#[test]
fn rb_04_new_content_takes_the_place_of_a_stalled_rollback() {
    let mut sim = three();
    sim.edit(|spec| spec["progressDeadline"] = json!("1m"));
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = true;
    sim.run(75);
    sim.want("cart", "cart:3");
    sim.deployment("cart").broken = false;
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

#[test]
fn content_that_comes_during_a_rollback_waits_for_its_end() {
    let mut sim = three();
    sim.want("cart", "cart:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.want("cart", "cart:3");
    sim.rest();
    assert_eq!(sim.phase(), Phase::Rollback);
    sim.run_until("the end", |sim| {
        assert!(!sim.ready() || sim.image("cart") == "cart:3");
        sim.ready()
    });
    assert_eq!(
        sim.results(),
        [ReleaseResult::RolledBack, ReleaseResult::Succeeded]
    );
}

/// RB-03: A, B, back to A, B again.
#[test]
fn rb_03_revisions_are_told_apart_by_content_and_not_by_number() {
    let mut sim = three();
    for image in ["cart:2", "cart:1", "cart:2", "cart:1"] {
        sim.want("cart", image);
        sim.rest();
        sim.run_until("the end", |sim| sim.ready());
        assert_eq!(sim.image("cart"), image);
    }
    assert_eq!(sim.results().len(), 4);
    let names: Vec<_> = sim
        .status
        .history
        .iter()
        .map(|r| r.revision.clone())
        .collect();
    assert_eq!((&names[0], &names[1]), (&names[2], &names[3]));
    let stable = sim.status.stable_revision.clone();
    sim.want("cart", "cart:3-crash");
    sim.rest();
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.status.stable_revision, stable);
}

#[test]
fn a_lost_target_revision_goes_back_to_the_stable_one() {
    let mut sim = three();
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    let target = sim.status.target_revision.clone().unwrap();
    sim.revisions.remove(&target);
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
    assert!(sim.results().contains(&ReleaseResult::RolledBack));
}

#[test]
fn surroundings_that_keep_the_stable_values_from_getting_ready_are_restored_too() {
    let mut sim = three();
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    let path = ["f:spec", "f:containers", r#"k:{"name":"proxy"}"#, "f:image"];
    sim.deployment("cart").edit(&path, json!("envoy:2-unready"));
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(
        sim.deployments["cart"].template["spec"]["containers"][1]["image"],
        "envoy:1"
    );
}

fn asleep(image: &str) -> Sim {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.deployment("cart").replicas = 0;
    sim.run(5);
    sim.want("cart", image);
    sim.rest();
    sim.run_until("the release", |sim| sim.ready());
    let before = sim.status.history[0].from.clone();
    assert_eq!(sim.status.proven_revision, before);
    assert!(sim.status.history[0].unproven && sim.status.components[0].unproven);
    sim.deployment("cart").replicas = 2;
    sim
}

#[test]
fn a_failure_leads_past_a_revision_that_never_ran() {
    let mut sim = asleep("cart:2-unready");
    sim.run(20);
    assert_eq!(sim.results().len(), 1, "nothing is judged at rest");
    sim.want("cart", "cart:3-crash");
    sim.run_until("the end", |sim| sim.results().len() == 2);
    assert_eq!((sim.image("cart"), sim.phase()), ("cart:1", Phase::Stable));
    assert_eq!(sim.status.proven_revision, None);
    sim.want("cart", "cart:1");
    sim.run_until("the stable content", |sim| sim.ready());
}

#[test]
fn a_revision_that_runs_later_is_proven_then() {
    let mut sim = asleep("cart:2");
    sim.run(20);
    assert_eq!(sim.status.proven_revision, None);
    assert!(!sim.status.history[0].unproven && !sim.status.components[0].unproven);
    sim.want("cart", "cart:3-crash");
    sim.run_until("the end", |sim| sim.results().len() == 2);
    assert_eq!(sim.image("cart"), "cart:2");
}

/// An operator that starts again has not seen the pods yet, and the old ones
/// among the available ones are no progress.
#[test]
fn a_restart_of_the_operator_does_not_begin_the_deadline_anew() {
    let spec = json!({"components": [component("cart", "cart:1")], "progressDeadline": "60s"});
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    sim.want("cart", "cart:2-unready");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-unready");
    sim.run(20);
    let since = |status: &ReleasePlanStatus| {
        let cart = &status.components[0];
        (cart.progress_at.clone(), cart.best_ready)
    };
    let known = since(&sim.status);
    assert_eq!(known.1, Some(0));
    let mut world = sim.observe();
    let workload = world.components[0].workload.as_mut().unwrap();
    assert!(workload.available > 0 && workload.updated > 0);
    assert!(workload.new_pods.take().is_some());
    assert_eq!(since(&sim.decide(&world).status), known);
}
