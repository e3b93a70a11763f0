//! What one component, one pass or one record must not do to another.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use super::sim::*;
use crate::{
    api::{Phase, ReleaseResult},
    machine::Action,
};

/// The very first content of a plan fails over workloads that were healthy: it
/// is refused like any other and not tried for ever.
#[test]
fn the_first_content_of_a_plan_is_refused_once_it_failed() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:2-crash")]),
        &[("cart", "cart:1")],
    );
    sim.run(300);
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!((sim.ready(), sim.reason()), (false, "RolledBack"));
    sim.want("cart", "cart:3");
    sim.run(60);
    assert!(sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

/// Pods of a component that the release does not change have restarted in the
/// past; that is no verdict on the release.
#[test]
fn old_restarts_of_a_component_without_a_change_fail_nothing() {
    let images = [("cart", "cart:1"), ("db", "db:1")];
    let mut sim = Sim::settled(templated(&images), &images);
    sim.deployment("db").restarted(7);
    sim.want("cart", "cart:2");
    sim.run(60);
    assert_eq!(sim.results(), [ReleaseResult::Succeeded]);
    assert!(sim.ready());
}

/// The API server refuses the old template of one component: the others go back
/// all the same, and the status says what holds.
#[test]
fn a_component_whose_restore_is_refused_does_not_hold_the_others() {
    let images = [("cart", "cart:1"), ("web", "web:1"), ("pay", "pay:1")];
    let mut sim = Sim::settled(templated(&images), &images);
    sim.want("cart", "cart:2");
    sim.want("web", "web:2");
    sim.want("pay", "pay:2-crash");
    for _ in 0..200 {
        if sim.phase() == Phase::Rollback {
            break;
        }
        if !sim.pass() {
            sim.elapse();
        }
    }
    let mut world = sim.observe();
    let refused = sim
        .scope()
        .iter()
        .position(|scope| scope.name == "web")
        .unwrap();
    world.components[refused].workload.as_mut().unwrap().refusal = Some("no old images".to_owned());
    let decision = sim.decide(&world);
    let mut written: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Apply { write } | Action::Replace { write } => Some(write.target.name.as_str()),
            _ => None,
        })
        .collect();
    written.sort_unstable();
    assert_eq!(written, ["cart", "pay"]);
    let stalled = decision
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == "Stalled")
        .unwrap();
    assert_eq!(
        (stalled.status.as_str(), stalled.reason.as_str()),
        ("True", "TemplateRefused")
    );
    assert!(
        stalled.message.contains("no old images"),
        "{}",
        stalled.message
    );
    // No watch tells that the refusal is gone, so it has to be tried: soon, and
    // ever more slowly the longer it stands.
    assert_eq!(decision.wake, Some(Duration::from_secs(1)));
    sim.status = decision.status;
    for (passed, pace) in [(10, 10), (40, 50), (3000, 60)] {
        sim.now += SignedDuration::from_secs(passed);
        assert_eq!(sim.decide(&world).wake, Some(Duration::from_secs(pace)));
    }
}

/// Revisions that the stored status still needs are not deleted before the
/// status that needs them no more is stored.
#[test]
fn what_a_rollback_may_still_need_is_never_deleted() {
    let mut spec = templated(&[("cart", "cart:1")]);
    spec["revisionHistoryLimit"] = serde_json::json!(1);
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    let mut pruned = 0;
    for round in 2..6 {
        // One that never gets ready, and one that takes its place.
        sim.want("cart", &format!("cart:{round}-unready"));
        for second in 0..200 {
            if second == 20 {
                sim.want("cart", &format!("cart:{round}"));
            }
            let decision = sim.decide(&sim.observe());
            for action in &decision.actions {
                if let Action::PruneRevisions { keep } = action {
                    pruned += 1;
                    let status = &sim.status;
                    let applied = status.release.iter().flat_map(|release| &release.applied);
                    for name in status.stable_revision.iter().chain(applied) {
                        assert!(
                            keep.contains(name),
                            "{name} is deleted while the status names it"
                        );
                    }
                }
            }
            if !sim.pass() {
                sim.elapse();
            }
        }
        assert!(sim.ready() && sim.image("cart") == format!("cart:{round}"));
    }
    assert!(pruned >= 4, "it pruned {pruned} times");
    assert!(sim.revisions.len() <= 4, "{:?}", sim.revisions.keys());
}

/// A pass that turns around writes nothing forward.
#[test]
fn the_pass_that_finds_a_failure_writes_no_template() {
    let images = [("cart", "cart:1"), ("pay", "pay:1")];
    let mut sim = Sim::settled(templated(&images), &images);
    sim.want("pay", "pay:2-crash");
    sim.want("cart", "cart:2");
    for _ in 0..200 {
        let written = sim.image("cart") == "cart:2" && sim.image("pay") == "pay:2-crash";
        if written && sim.phase() == Phase::RollingOut {
            break;
        }
        if !sim.pass() {
            sim.elapse();
        }
    }
    // Somebody takes the template of one back in the moment the other fails.
    let mut world = sim.observe();
    for (scope, component) in sim.scope().iter().zip(&mut world.components) {
        let workload = component.workload.as_mut().unwrap();
        if scope.name == "cart" {
            workload.template["spec"]["containers"][0]["image"] = serde_json::json!("cart:1");
        } else {
            workload.new_pods = Some(crate::machine::NewPods {
                faults: vec![crate::machine::PodFault {
                    pod: "pay-1".to_owned(),
                    container: "app".to_owned(),
                    restarts: 9,
                    cause: None,
                    message: "CrashLoopBackOff".to_owned(),
                }],
                ..Default::default()
            });
        }
    }
    let decision = sim.decide(&world);
    assert_eq!(decision.status.phase, Some(Phase::Rollback));
    let writes = |action: &Action| matches!(action, Action::Apply { .. } | Action::Replace { .. });
    assert!(
        !decision.actions.iter().any(writes),
        "{:?}",
        decision.actions
    );
}
