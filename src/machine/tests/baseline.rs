//! How a plan finds what it can return to, and its first release.

use super::sim::*;
use crate::api::{Phase, Reason, ReleaseResult};

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
