//! Fields that a plan applies empty: the stored template cannot say them.

use serde_json::{Value, json};

use super::sim::*;
use crate::api::{Cause, Phase, Reason, ReleaseResult};

/// A plan that takes the arguments away which its workload has.
fn without_args(image: &str) -> Value {
    let mut cart = component("cart", image);
    cart["template"]["spec"]["containers"][0]["args"] = json!([]);
    json!({"components": [cart]})
}

fn settled() -> Sim {
    let mut sim = Sim::new(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.deployment("cart").set_args(&["-v"]);
    sim.run(60);
    assert!(sim.ready());
    sim.journal.clear();
    sim
}

/// The same, with the arguments taken away by a release.
fn emptied() -> Sim {
    let mut sim = settled();
    sim.edit(|spec| *spec = without_args("cart:1"));
    sim.run_until("the release", |sim| sim.results().len() == 1);
    assert!(sim.ready());
    sim.journal.clear();
    sim
}

#[test]
fn a_list_that_is_to_be_empty_is_emptied_by_the_release_in_one_write() {
    let mut sim = settled();
    sim.edit(|spec| *spec = without_args("cart:2"));
    sim.run_until("the end", |sim| sim.results().len() == 1);
    assert_eq!(sim.results(), [ReleaseResult::Succeeded]);
    assert_eq!(sim.deployments["cart"].args(), None);
    assert_eq!(sim.writes_on("cart"), 1);
    sim.run(60);
    assert!(sim.ready());
    assert_eq!(sim.writes_on("cart"), 1);
}

#[test]
fn a_failed_release_that_emptied_a_list_brings_its_entries_back() {
    let mut sim = settled();
    sim.edit(|spec| *spec = without_args("cart:2-crash"));
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.deployments["cart"].args(), Some(&json!(["-v"])));
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn a_restore_empties_a_list_that_another_writer_filled_in_mid_release() {
    let mut sim = emptied();
    sim.edit(|spec| *spec = without_args("cart:2-crash"));
    sim.run_until("the way forward", |sim| sim.image("cart") == "cart:2-crash");
    sim.deployment("cart").set_args(&["-x"]);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    // While it goes back as well.
    sim.deployment("cart").set_args(&["-y"]);
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.deployments["cart"].args(), None);
    assert_eq!(sim.image("cart"), "cart:1");
    let owned = sim.deployments["cart"].ours.to_value().to_string();
    assert!(owned.contains("f:args"), "{owned}");
}

/// One write does it, ownership included, as for every other field.
#[test]
fn a_restore_says_by_apply_that_a_list_is_to_be_empty() {
    let mut sim = emptied();
    let mut filled = without_args("cart:2-crash");
    filled["components"][0]["template"]["spec"]["containers"][0]["args"] = json!(["-x"]);
    sim.edit(|spec| *spec = filled);
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.deployments["cart"].args(), None);
    let applies = sim.journal.iter().filter(|(what, _)| *what == "apply");
    assert_eq!((applies.count(), sim.writes_on("cart")), (2, 2));
}

/// A revision of a version that did not keep what is to be empty.
#[test]
fn a_revision_without_the_record_of_it_is_restored_by_replacing() {
    let mut sim = emptied();
    for revision in sim.revisions.values_mut() {
        for frozen in &mut revision.data.components {
            frozen.emptied = None;
        }
    }
    sim.want("cart", "cart:2-crash");
    sim.run_until("the way forward", |sim| sim.image("cart") == "cart:2-crash");
    sim.deployment("cart").set_args(&["-x"]);
    sim.run_until("the end", |sim| sim.reason() == "RolledBack");
    assert_eq!(sim.deployments["cart"].args(), None);
    assert_eq!(sim.image("cart"), "cart:1");
}

#[test]
fn an_undo_empties_what_its_revision_had_empty_whoever_filled_it() {
    let mut sim = emptied();
    let wanted = sim.status.stable_revision.clone();
    let filled = |image: &str| {
        let mut plan = without_args(image);
        plan["components"][0]["template"]["spec"]["containers"][0]["args"] = json!(["-x"]);
        plan
    };
    sim.edit(|spec| *spec = filled("cart:2"));
    sim.run_until("the release", |sim| sim.results().len() == 2);
    assert_eq!(sim.deployments["cart"].args(), Some(&json!(["-x"])));
    sim.edit(|spec| spec["bakeTime"] = json!("20s"));
    sim.facts.undo = wanted;
    sim.dirty = true;
    sim.run_until("the way back", |sim| sim.image("cart") == "cart:1");
    sim.deployment("cart").set_args(&["-y"]);
    sim.run_until("the end", |sim| sim.reason() == "Undone");
    assert_eq!(sim.status.refused[0].cause, Cause::Undone);
    assert_eq!(sim.deployments["cart"].args(), None);
    let owned = sim.deployments["cart"].ours.to_value().to_string();
    assert!(owned.contains("f:args"), "{owned}");
}

#[test]
fn a_list_that_is_filled_at_rest_is_emptied_again_and_told() {
    let mut sim = emptied();
    sim.deployment("cart").set_args(&["-x"]);
    sim.run(30);
    assert_eq!(sim.deployments["cart"].args(), None);
    assert!(sim.ready());
    assert_eq!(sim.told(Reason::Reasserted), 1);
    assert_eq!(sim.results().len(), 1);
}
