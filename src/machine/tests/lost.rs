//! The record of the stable revision is taken away while nothing is released.

use serde_json::json;

use super::{plans::reading, sim::*};
use crate::api::{ConditionType, Reason};

fn take(sim: &mut Sim) -> crate::revision::Revision {
    let stable = sim.status.stable_revision.clone().unwrap();
    sim.dirty = true;
    sim.revisions.remove(&stable).unwrap()
}

fn told(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

#[test]
fn what_is_live_says_all_of_the_record_of_followed_workloads() {
    let spec = json!({"components": [followed("cart"), reading("web", "settings")]});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.configure("settings", "old");
    sim.run(60);
    sim.deployment("web").set_image("web:2");
    sim.configure("settings", "new");
    sim.run_to_the_end();
    sim.run(5);
    sim.journal.clear();
    let taken = take(&mut sim);
    sim.run(2);
    assert_eq!(sim.revisions.get(&taken.name), Some(&taken));
    let number = sim.status.history.last().unwrap().number;
    assert_eq!(sim.numbers[&taken.name], number);
    assert!(sim.ready() && sim.journal.is_empty());
    assert_eq!(sim.told(Reason::RevisionLost), 0);
    sim.deployment("web").set_image("web:3-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.image("web"), "web:2");
}

/// What stood in the fields before the plan took them is in the record alone.
#[test]
fn a_record_that_cannot_be_made_again_is_told_before_it_is_needed() {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:0")]);
    let taken = take(&mut sim);
    sim.run(300);
    let text = format!("controllerrevision {} is gone, so nothing", taken.name);
    assert!(sim.ready() && told(&sim).contains(&text), "{}", told(&sim));
    assert_eq!(
        (sim.told(Reason::RevisionLost), sim.revisions.len()),
        (1, 1)
    );
    sim.revisions.insert(taken.name.clone(), taken);
    sim.run(120);
    assert!(sim.ready() && !told(&sim).contains(&text), "{}", told(&sim));
    sim.want("cart", "cart:2");
    sim.run_until("the release", |sim| {
        sim.ready() && sim.image("cart") == "cart:2"
    });
}

/// It is not made of what came in its place.
#[test]
fn a_record_is_not_made_of_what_somebody_changed_since() {
    let spec = json!({"components": [followed("cart")]});
    let mut sim = Sim::settled(spec, &[("cart", "cart:1")]);
    let taken = take(&mut sim);
    sim.deployment("cart").set_image("cart:2");
    sim.run(60);
    assert_eq!((sim.reason(), sim.stalled()), ("RevisionLost", true));
    assert!(!sim.revisions.contains_key(&taken.name));
    sim.deployment("cart").set_image("cart:1");
    sim.run(120);
    assert!(sim.ready(), "{}", told(&sim));
    assert_eq!(sim.revisions.get(&taken.name), Some(&taken));
}
