//! Refused content that comes again after other content was released: it is on
//! record before it is put back, and nothing ends well beside it in silence.

use serde_json::json;

use super::sim::*;
use crate::api::{Phase, Reason, ReleaseResult};

pub(super) const MAP: &str = "settings";
const BAD: &str = "web:2-unready";

/// `cart` is templated, `web` is followed and reads a ConfigMap.
pub(super) fn started(cart: &str) -> Sim {
    let spec = json!({
        "components": [component("cart", cart), reading("web", MAP)],
        "progressDeadline": "60s",
    });
    let mut sim = Sim::new(spec, &[("cart", cart), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

pub(super) fn refuse(sim: &mut Sim) {
    bad(sim);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "1"));
}

pub(super) fn bad(sim: &mut Sim) {
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
}

/// A template and contents of `web` were refused, and others of both released since.
fn corrected() -> Sim {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    sim.configure(MAP, "3");
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

fn sent(sim: &mut Sim) {
    sim.want("cart", "cart:2-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-slow");
}

pub(super) fn state(sim: &Sim) -> (&str, &str, &str) {
    (sim.image("cart"), sim.image("web"), &sim.config_maps[MAP])
}

/// Neither is it released by half, nor does it read as released.
#[test]
fn a_crash_after_any_write_hides_no_refused_content_that_came_again() {
    for in_release in [false, true] {
        let mut start = corrected();
        if in_release {
            sent(&mut start);
        }
        let releases = start.status.history.len();
        for crash in 1.. {
            let mut sim = start.clone();
            sim.crash_at = Some(sim.writes + crash);
            bad(&mut sim);
            sim.run(120);
            let cart = if in_release { "cart:2-slow" } else { "cart:1" };
            assert_eq!(state(&sim), (cart, "web:3", "3"), "after {crash}");
            assert_eq!(
                sim.reason(),
                "RolledBack",
                "after {crash}: {:#?}",
                sim.status
            );
            let made = 1 + usize::from(in_release);
            assert_eq!(sim.status.history.len(), releases + made, "after {crash}");
            if sim.crash_at.is_some() {
                break;
            }
        }
    }
}

#[test]
fn a_release_that_is_taken_back_tells_what_came_beside_it() {
    let mut sim = corrected();
    sent(&mut sim);
    bad(&mut sim);
    sim.run(5);
    assert_eq!(sim.told(Reason::Reasserted), 1);
    sim.want("cart", "cart:1");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:3", "3"));
    assert_eq!(sim.reason(), "RolledBack");
}

#[test]
fn no_release_ends_well_while_refused_contents_are_there() {
    let mut start = started("cart:1");
    refuse(&mut start);
    start.want("cart", "cart:1-other");
    start.run_to_the_end();
    start.run(5);
    assert!(start.ready(), "{:#?}", start.status);
    sent(&mut start);
    for after in 0..20 {
        let mut sim = start.clone();
        sim.run(after);
        sim.configure(MAP, "2");
        for _ in 0..60 {
            sim.elapse();
            while sim.pass() {
                let put_back = sim.config_maps[MAP] == "1";
                assert!(!sim.ready() || put_back, "after {after}: {:#?}", sim.status);
            }
        }
        assert_eq!(state(&sim), ("cart:2-slow", "web:1", "1"), "after {after}");
        assert_eq!(sim.reason(), "RolledBack", "after {after}");
    }
}

/// Each coming is awaited, in a release as at rest.
#[test]
fn a_correction_in_one_apply_is_released_whole_also_after_a_put_back() {
    for in_release in [false, true] {
        let mut sim = started("cart:1");
        refuse(&mut sim);
        if in_release {
            sent(&mut sim);
        }
        bad(&mut sim);
        sim.run(6);
        assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "1"));
        sim.configure(MAP, "2");
        sim.pass();
        sim.run(1);
        sim.deployment("web").set_image("web:4");
        sim.run(120);
        assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:4", "2"));
        assert!(sim.ready(), "{:#?}", sim.status);
    }
}

/// The other half of it was taken away.
#[test]
fn half_of_an_apply_whose_other_half_was_put_back_is_no_success() {
    let mut sim = corrected();
    sim.want("cart", "cart:1");
    sent(&mut sim);
    bad(&mut sim);
    sim.run(6);
    sim.deployment("web").set_image("web:5");
    sim.run(120);
    assert_eq!(state(&sim), ("cart:2-slow", "web:5", "3"));
    assert_eq!(sim.reason(), "RolledBack", "contents of then are not live");
}

/// `web` is taken back in the release of its correction, whose contents are those
/// that were refused with what failed.
#[test]
fn a_template_that_is_taken_back_is_no_refused_content() {
    for beside in [true, false] {
        let mut sim = started("cart:1");
        refuse(&mut sim);
        sim.edit(|spec| spec["bakeTime"] = json!("60s"));
        if beside {
            sim.want("cart", "cart:2");
        }
        sim.configure(MAP, "2");
        sim.deployment("web").set_image("web:3");
        sim.run_until("it bakes", |sim| sim.reason() == "Baking");
        sim.deployment("web").set_image("web:1");
        sim.run_to_the_end();
        sim.run(100);
        let cart = if beside { "cart:2" } else { "cart:1" };
        assert_eq!(state(&sim), (cart, "web:1", "1"));
        assert_eq!(sim.told(Reason::Reasserted), 0, "{:#?}", sim.events);
        let last = if beside {
            ReleaseResult::Succeeded
        } else {
            ReleaseResult::Reverted
        };
        assert_eq!(sim.results().last(), Some(&last));
    }
}

#[test]
fn what_was_told_long_ago_is_told_by_no_later_release() {
    let mut sim = corrected();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:2");
    sim.run(5);
    bad(&mut sim);
    sim.run(3600);
    assert_eq!(state(&sim), ("cart:1", "web:3", "3"));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// What is applied after contents of it is awaited for longer.
#[test]
fn a_template_that_is_applied_seconds_after_its_contents_is_released_with_them() {
    for wait in [0, 3, 6, 9, 15] {
        let mut sim = started("cart:1");
        refuse(&mut sim);
        sim.configure(MAP, "2");
        sim.run(wait);
        sim.deployment("web").set_image("web:3");
        sim.run(100);
        let contents = if wait < 10 { "2" } else { "1" };
        assert_eq!(state(&sim), ("cart:1", "web:3", contents), "after {wait}");
        assert_eq!(sim.ready(), wait < 10, "after {wait}: {:#?}", sim.status);
    }
}

/// The Deployments of one apply come apart, each after what went back of it.
#[test]
fn every_release_of_an_apply_that_came_late_is_no_success() {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    sim.configure(MAP, "2");
    sim.run(12);
    assert_eq!(sim.config_maps[MAP], "1");
    for (name, image) in [("cart", "cart:11"), ("web", "web:3")] {
        if name == "cart" {
            sim.want(name, image);
        } else {
            sim.deployment(name).set_image(image);
        }
        sim.run_to_the_end();
        sim.run(1);
        assert_eq!(sim.reason(), "RolledBack", "{name}: {:#?}", sim.status);
    }
    sim.run(60);
    assert_eq!(state(&sim), ("cart:11", "web:3", "1"));
    // The template that failed with them is corrected.
    let told = sim.condition(crate::api::ConditionType::Ready).2;
    assert!(told.contains("apply what went back once more"), "{told}");
    sim.configure(MAP, "2");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// The same apply once more has brought it.
#[test]
fn what_was_released_after_all_is_told_by_no_later_release() {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    sim.configure(MAP, "2");
    sim.run(12);
    assert_eq!((&*sim.config_maps[MAP], sim.reason()), ("1", "RolledBack"));
    sim.configure(MAP, "2");
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.want("cart", "cart:9");
    sim.run_to_the_end();
    sim.run(3);
    assert_eq!(state(&sim), ("cart:9", "web:3", "2"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// It is no correction of itself.
#[test]
fn what_failed_and_comes_again_is_to_be_tried_or_changed() {
    let mut sim = corrected();
    bad(&mut sim);
    sim.run(20);
    let told = sim.condition(crate::api::ConditionType::Ready).2;
    assert!(told.contains(" was put back. It failed before: "), "{told}");
    assert!(told.contains("belay.dev/retry="), "{told}");
    // Nor is what the plan says once more.
    let mut sim = started("cart:1");
    for image in ["cart:2-crash", "cart:3", "cart:2-crash"] {
        sim.want("cart", image);
        sim.run(100);
    }
    let told = sim.condition(crate::api::ConditionType::Ready).2;
    assert!(told.contains("belay.dev/retry="), "{told}");
}

/// An apply that takes longer than the rest of it is awaited is told, and what went
/// back with it is new beside the correction.
#[test]
fn a_correction_that_comes_long_after_the_rest_is_told_and_can_be_had_by_the_same_apply() {
    for wait in 0..9 {
        let mut sim = started("cart:1");
        let all = |sim: &mut Sim, cart: &str, wait: usize| {
            sim.configure(MAP, "2");
            sim.run(wait.min(1));
            sim.deployment("web").set_image("web:2");
            sim.run(wait);
            sim.want("cart", cart);
        };
        all(&mut sim, "cart:2-crash", 0);
        sim.run_to_the_end();
        sim.run(30);
        assert_eq!(
            (state(&sim), sim.reason()),
            (("cart:1", "web:1", "1"), "RolledBack")
        );
        all(&mut sim, "cart:3", wait);
        sim.run(100);
        if wait > 2 {
            assert_eq!(state(&sim), ("cart:3", "web:1", "1"), "after {wait}");
            assert_eq!(
                sim.reason(),
                "RolledBack",
                "after {wait}: {:#?}",
                sim.status
            );
            all(&mut sim, "cart:3", wait);
            sim.run(100);
        }
        assert_eq!(state(&sim), ("cart:3", "web:2", "2"), "after {wait}");
        assert!(sim.ready(), "after {wait}: {:#?}", sim.status);
    }
}

/// The contents were refused of `cart`, and `web` reads them beside other content.
#[test]
fn contents_that_go_back_with_another_workload_begin_no_release_again() {
    let components = [
        component("api", "api:1"),
        reading("cart", MAP),
        reading("web", MAP),
    ];
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let live = [("api", "api:1"), ("cart", "cart:1"), ("web", "web:1")];
    let mut sim = Sim::new(spec, &live);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    sim.configure(MAP, "2");
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run_to_the_end();
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.edit(|spec| spec["bakeTime"] = json!("60s"));
    sim.want("api", "api:2");
    sim.run_until("it bakes", |sim| sim.reason() == "Baking");
    let releases = sim.status.history.len();
    for _ in 0..2 {
        sim.configure(MAP, "2");
        sim.run(15);
        assert_eq!(sim.config_maps[MAP], "1");
    }
    sim.run(120);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:2", "web:3"));
    assert_eq!(sim.told(Reason::Superseded), 0, "{:#?}", sim.events);
    // The release, and what came again beside it.
    assert_eq!(sim.status.history.len(), releases + 2);
    assert_eq!(sim.reason(), "RolledBack");
}

/// Contents that were good and stable once are no part of what failed beside them.
#[test]
fn what_was_stable_before_is_not_refused_with_a_template_that_came_beside_it() {
    let mut sim = started("cart:1");
    sim.configure(MAP, "2");
    sim.run_to_the_end();
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    sim.configure(MAP, "3");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
    // A tool applies all of its old manifests.
    bad(&mut sim);
    sim.run(20);
    assert_eq!(state(&sim), ("cart:1", "web:1", "3"));
    sim.configure(MAP, "2");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:1", "2"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// The baseline has no annotation for its contents.
#[test]
fn refused_content_is_known_again_where_contents_were_released_since() {
    let mut sim = started("cart:1");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.configure(MAP, "3");
    sim.run_to_the_end();
    sim.run(20);
    assert!(sim.ready(), "{:#?}", sim.status);
    let releases = sim.status.history.len();
    sim.configure(MAP, "1");
    sim.deployment("web").set_image(BAD);
    sim.run(30);
    assert_eq!(state(&sim), ("cart:1", "web:1", "3"));
    assert_eq!(sim.status.history.len(), releases + 1);
    assert_eq!(sim.told(Reason::Reasserted), 1, "{:#?}", sim.events);
}

/// Who corrects one half and takes the other back has corrected all of it.
#[test]
fn half_of_a_correction_long_after_a_put_back_is_told_for_itself() {
    let mut sim = started("cart:1");
    refuse(&mut sim);
    sim.edit(|spec| spec["bakeTime"] = json!("120s"));
    sent(&mut sim);
    bad(&mut sim);
    sim.run(60);
    sim.deployment("web").set_image("web:3");
    sim.run(300);
    assert_eq!(state(&sim), ("cart:2-slow", "web:3", "1"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// What a put-back leaves between two writes may have been good before.
#[test]
fn code_that_was_stable_beside_other_contents_can_be_had_again_after_a_stale_sync() {
    let mut sim = started("cart:1");
    let set = |sim: &mut Sim, image: &str, contents: &str| {
        sim.configure(MAP, contents);
        sim.deployment("web").set_image(image);
    };
    sim.deployment("web").broken = true;
    set(&mut sim, "web:2", "2");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_to_the_end();
    for (image, contents) in [("web:2", "3"), ("web:3", "3")] {
        set(&mut sim, image, contents);
        sim.run_to_the_end();
        sim.run(20);
        assert!(sim.ready(), "{:#?}", sim.status);
    }
    set(&mut sim, "web:2", "2");
    sim.run(30);
    assert_eq!(state(&sim), ("cart:1", "web:3", "3"));
    sim.deployment("web").set_image("web:2");
    sim.run(60);
    assert_eq!(state(&sim), ("cart:1", "web:2", "3"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// The baseline has no annotation for its contents.
#[test]
fn a_restart_that_failed_refuses_nothing_that_was_stable() {
    let mut sim = started("cart:1");
    sim.deployment("web").broken = true;
    sim.deployment("web").restart("now");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_to_the_end();
    for contents in ["3", "1"] {
        sim.configure(MAP, contents);
        sim.run(60);
        assert_eq!(state(&sim), ("cart:1", "web:1", contents));
        assert!(sim.ready(), "{:#?}", sim.status);
    }
}
