//! How a plan finds what it can return to, and its first release.

use super::{cluster::Deployment, sim::*};
use crate::api::{ConditionType, Phase, Reason, ReleaseKind, ReleaseResult};

#[test]
fn what_is_live_and_healthy_becomes_the_first_stable_revision() {
    let spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.run(10);
    assert_eq!(sim.phase(), Phase::Stable);
    assert!(sim.ready(), "{:#?}", sim.status);
    assert_eq!(sim.told(Reason::BaselineTaken), 1);
    assert_eq!(
        sim.results(),
        [],
        "taking ownership of equal values is no release"
    );
    assert!(!sim.deployments["cart"].ours.is_empty());
}

#[test]
fn two_templated_components_are_released_together() {
    let spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    let mut sim = Sim::settled(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.want("cart", "cart:2");
    sim.want("web", "web:2");
    sim.rest();
    assert!(
        !sim.ready(),
        "Ready must go False in the first status write"
    );
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:2"));
    assert_eq!(sim.results(), [ReleaseResult::Succeeded]);
    assert_eq!((sim.writes_on("cart"), sim.writes_on("web")), (1, 1));
}

#[test]
fn a_plan_waits_for_its_targets_and_goes_on_by_itself() {
    let spec = templated(&[("cart", "cart:1"), ("web", "web:1")]);
    let mut sim = Sim::new(spec, &[("web", "web:1")]);
    sim.run(20);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Pending, "TargetsMissing")
    );
    assert!(
        sim.condition(ConditionType::Ready)
            .2
            .contains("deployment cart")
    );
    let cart = Deployment::new("uid-cart", "cart:1");
    sim.deployments.insert("cart".to_owned(), cart);
    sim.dirty = true;
    sim.run(10);
    assert!(sim.ready());
}

#[test]
fn what_is_live_but_not_available_yet_is_no_baseline() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:1-unready")]),
        &[("cart", "cart:1-unready")],
    );
    sim.run(20);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Pending, "BaselineUnavailable")
    );
    assert_eq!(sim.journal, []);
}

#[test]
fn with_nothing_available_the_first_release_starts_at_once() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:2")]),
        &[("cart", "cart:1-crash")],
    );
    sim.rest();
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:2");
    assert_eq!(sim.status.history[0].kind, ReleaseKind::First);
    sim.want("cart", "cart:3-crash");
    sim.rest();
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("cart"), "cart:2");
}

#[test]
fn a_first_release_that_fails_ends_in_place_and_newer_content_is_tried() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:2-crash")]),
        &[("cart", "cart:1-crash")],
    );
    sim.run_until("the failure", |sim| sim.phase() == Phase::Failed);
    assert_eq!(
        (sim.reason(), sim.stalled(), sim.ready()),
        ("ReleaseFailed", true, false)
    );
    assert_eq!(
        (sim.image("cart"), sim.told(Reason::ReleaseFailed)),
        ("cart:2-crash", 1)
    );
    assert_eq!(sim.results(), [ReleaseResult::Failed]);
    let written = sim.journal.len();
    sim.run(1000);
    assert_eq!((sim.journal.len(), sim.phase()), (written, Phase::Failed));
    assert_eq!(sim.told(Reason::ReleaseFailed), 1);
    sim.want("cart", "cart:3");
    sim.run_until("the end", |sim| sim.ready());
    assert_eq!(sim.image("cart"), "cart:3");
}

#[test]
fn a_first_release_superseded_by_what_was_live_does_not_fail() {
    let mut sim = Sim::new(
        templated(&[("cart", "cart:2-unready")]),
        &[("cart", "cart:1-unready")],
    );
    sim.run(6);
    assert_eq!(sim.phase(), Phase::RollingOut);
    sim.want("cart", "cart:1-unready");
    sim.run(20);
    assert_ne!(sim.phase(), Phase::Failed);
    assert_eq!(sim.image("cart"), "cart:1-unready");
}

#[test]
fn a_lost_stable_revision_is_said_and_nothing_is_written() {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.revisions.clear();
    sim.want("cart", "cart:2");
    sim.run(20);
    assert_eq!((sim.reason(), sim.stalled()), ("RevisionLost", true));
    assert_eq!(sim.journal, []);
}

#[test]
fn a_decision_on_what_was_just_decided_is_the_same_and_does_nothing() {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    for seconds in 0..600 {
        let (passes, writes) = (sim.passes, sim.writes);
        sim.run(1);
        assert_eq!(
            (sim.passes, sim.writes),
            (passes, writes),
            "an idle plan, second {seconds}"
        );
    }
    let world = sim.observe();
    let decision = sim.decide(&world);
    assert_eq!(
        (decision.status, decision.actions),
        (sim.status.clone(), vec![])
    );
    let needs = crate::machine::needs(
        &sim.scope(),
        &[world.components[0].workload.clone()],
        &sim.status,
        &sim.facts,
    );
    assert_eq!(
        (needs.dry_run, needs.pods, needs.revisions),
        (vec![false], false, vec![])
    );
}
