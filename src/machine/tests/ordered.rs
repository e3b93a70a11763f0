//! Orders beside refused content that comes again: they are carried out, and told
//! for themselves.

use serde_json::json;

use super::{
    coming::{MAP, bad, refuse, started, state},
    commands::{retry, undo},
    plans::reading,
    sim::Sim,
};
use crate::api::{Phase, Reason, ReleaseResult};

const BAD: &str = "web:2-unready";

/// The first template of `cart` gets ready slowly.
#[test]
fn refused_content_that_comes_in_an_undo_of_others_does_not_hold_it() {
    for contents in [true, false] {
        let mut sim = started("cart:1-slow");
        refuse(&mut sim);
        let first = sim.status.stable_revision.clone().unwrap();
        for image in ["cart:2", "cart:3"] {
            sim.want("cart", image);
            sim.run_to_the_end();
            sim.run(5);
        }
        undo(&mut sim, &first);
        sim.run_until("it is sent", |sim| sim.image("cart") == "cart:1-slow");
        if contents {
            sim.configure(MAP, "2");
        }
        sim.deployment("web").set_image(BAD);
        sim.run_to_the_end();
        sim.run(5);
        assert_eq!(state(&sim), ("cart:1-slow", "web:1", "1"));
        assert_eq!(sim.told(Reason::Reasserted), 1, "{:#?}", sim.events);
        assert!(sim.results().contains(&ReleaseResult::Succeeded));
    }
}

/// Nobody looks at the plan between the two.
#[test]
fn what_was_told_is_told_by_no_undo_and_no_correction_of_a_frozen_release() {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.want("cart", "cart:2");
    sim.run_to_the_end();
    sim.run(5);
    let mut frozen = sim.clone();
    for wait in [3600, 3] {
        let mut sim = sim.clone();
        bad(&mut sim);
        sim.run(wait);
        assert_eq!(sim.reason(), "RolledBack");
        undo(&mut sim, &first);
        sim.run_to_the_end();
        sim.run(5);
        assert_eq!(
            (state(&sim).0, sim.reason()),
            ("cart:1", "Undone"),
            "{wait}"
        );
    }

    frozen.edit(|spec| spec["onFailure"] = json!("Freeze"));
    frozen.want("cart", "cart:3-unready");
    frozen.run_until("it is sent", |sim| sim.image("cart") == "cart:3-unready");
    bad(&mut frozen);
    frozen.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    frozen.run(3600);
    frozen.want("cart", "cart:4");
    frozen.run_until("the end", |sim| sim.phase() == Phase::Stable);
    frozen.run(5);
    assert_eq!(state(&frozen), ("cart:4", "web:1", "1"));
    assert!(frozen.ready(), "{:#?}", frozen.status);
}

/// A part of it had gone back beside what failed before.
#[test]
fn a_retry_of_what_froze_takes_nothing_of_it_for_refused_content() {
    let mut sim = started("cart:1");
    sim.want("cart", "cart:2-crash");
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:1", "1"));
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("cart", "cart:3-unready");
    sim.deployment("web").set_image("web:2");
    sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    let target = sim.status.target_revision.clone().unwrap();
    sim.deployment("cart").repair();
    retry(&mut sim, &target);
    sim.run(60);
    assert_eq!(state(&sim), ("cart:3-unready", "web:2", "1"));
    assert!(sim.ready(), "{:#?}", sim.status);
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Succeeded));
}

/// They are contents of a ConfigMap that the undo brings back as well.
#[test]
fn refused_contents_that_come_in_an_undo_of_contents_do_not_hold_it() {
    for after in 1..5 {
        let mut sim = started("cart:1");
        let first = sim.status.stable_revision.clone().unwrap();
        sim.configure(MAP, "2");
        sim.run_to_the_end();
        sim.run(5);
        sim.deployment("web").broken = true;
        sim.configure(MAP, "3");
        sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
        sim.deployment("web").broken = false;
        sim.run_to_the_end();
        sim.run(5);
        assert_eq!(state(&sim), ("cart:1", "web:1", "2"));
        undo(&mut sim, &first);
        sim.run(after);
        sim.configure(MAP, "3");
        sim.run(120);
        let events = &sim.events;
        assert_eq!(
            state(&sim),
            ("cart:1", "web:1", "1"),
            "after {after}: {events:#?}"
        );
        assert_eq!(sim.phase(), Phase::Stable, "after {after}");
        assert!(
            sim.stalled() && sim.reason() != "ConfigMapEdited",
            "after {after}"
        );
    }
}

#[test]
fn what_was_told_is_told_by_no_retry_of_what_froze() {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    sim.want("cart", "cart:2");
    sim.run_to_the_end();
    sim.run(5);
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("cart", "cart:3-unready");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-unready");
    bad(&mut sim);
    sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    sim.run(3600);
    sim.deployment("cart").repair();
    let target = sim.status.target_revision.clone().unwrap();
    retry(&mut sim, &target);
    sim.run(60);
    assert_eq!(state(&sim), ("cart:3-unready", "web:1", "1"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// A tool that heals itself sets the contents of before while the pods are made.
#[test]
fn contents_that_are_set_again_in_an_undo_are_put_back_in_it() {
    let mut sim = started("cart:1");
    let first = sim.status.stable_revision.clone().unwrap();
    sim.configure(MAP, "2");
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    sim.run(5);
    sim.edit(|spec| spec["bakeTime"] = json!("60s"));
    undo(&mut sim, &first);
    sim.run_until("the template is back", |sim| sim.image("web") == "web:1");
    sim.configure(MAP, "2");
    let records = sim.status.history.len();
    sim.run(30);
    assert_eq!(state(&sim), ("cart:1", "web:1", "1"));
    assert_eq!(sim.status.history.len(), records, "the undo is under way");
    assert_eq!(sim.told(Reason::Reasserted), 1);
}

/// It is new beside the correction, and nobody's to write over.
#[test]
fn what_waits_for_the_end_of_a_rollback_beside_a_correction_is_released_then() {
    let mut sim = started("cart:1");
    sim.configure(MAP, "2");
    sim.want("cart", "cart:2-crash");
    sim.run_to_the_end();
    sim.run(30);
    sim.want("cart", "cart:3");
    sim.run_to_the_end();
    sim.run(30);
    sim.deployment("web").set_image("web:2");
    sim.want("cart", "cart:4-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.configure(MAP, "2");
    sim.run(120);
    assert_eq!(state(&sim), ("cart:3", "web:1", "2"));
}

/// Two workloads read the ConfigMap, and the release is about the other one.
#[test]
fn a_rollback_writes_contents_back_that_were_refused_of_another_workload() {
    let components = [reading("api", MAP), reading("web", MAP)];
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("api", "api:1"), ("web", "web:1")]);
    sim.configure(MAP, "1");
    sim.run(60);
    bad(&mut sim);
    sim.run_to_the_end();
    sim.run(30);
    sim.deployment("api").set_image("api:6-unready");
    sim.run_until("it is sent", |sim| sim.reason() == "Promoting");
    sim.run(58);
    bad(&mut sim);
    sim.run(200);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
    assert_eq!((&*sim.config_maps[MAP], sim.phase()), ("1", Phase::Stable));
}

/// The undo is asked for while the rest of an apply is awaited.
#[test]
fn an_undo_is_not_lost_where_refused_contents_came_again() {
    for both in [false, true] {
        let mut sim = started("cart:1");
        let first = sim.status.stable_revision.clone().unwrap();
        sim.deployment("web").set_image("web:3");
        sim.run_to_the_end();
        bad(&mut sim);
        sim.run_to_the_end();
        sim.run(30);
        assert_eq!(state(&sim), ("cart:1", "web:3", "1"));
        if both {
            bad(&mut sim);
        } else {
            sim.configure(MAP, "2");
        }
        sim.run(1);
        undo(&mut sim, &first);
        sim.run(60);
        assert_eq!(state(&sim), ("cart:1", "web:1", "1"));
        assert_eq!(sim.reason(), "Undone", "{:#?}", sim.events);
    }
}

/// Contents that are new beside the correction are somebody's edit, here as elsewhere.
#[test]
fn a_rollback_writes_over_no_contents_that_are_new_beside_a_correction() {
    let mut sim = started("cart:1");
    sim.configure(MAP, "2");
    sim.want("cart", "cart:2-crash");
    sim.run_to_the_end();
    sim.run(30);
    sim.want("cart", "cart:3");
    sim.run_to_the_end();
    sim.run(30);
    sim.configure(MAP, "5");
    sim.want("cart", "cart:4-crash");
    while sim.phase() != Phase::Rollback {
        if !sim.pass() {
            sim.elapse();
        }
    }
    sim.configure(MAP, "2");
    sim.run(60);
    assert_eq!(state(&sim).2, "2");
    assert_eq!(sim.reason(), "ConfigMapEdited");
}
