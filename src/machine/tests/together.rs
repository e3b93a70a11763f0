//! Content that was refused together: what failed of it, and what only went back
//! beside that.

use serde_json::json;

use super::{
    commands::retry,
    plans::{component, followed, reading},
    sim::*,
};
use crate::api::{Phase, Reason, ReleaseResult};

const MAP: &str = "settings";

/// `cart` is templated and failed, `web` is followed and reads a ConfigMap whose
/// new contents went back with it.
fn refused_with_contents() -> Sim {
    let components = [component("cart", "cart:1"), reading("web", MAP)];
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.configure(MAP, "blue");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.configure(MAP, "green");
    sim.want("cart", "cart:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    assert_eq!(sim.reason(), "RolledBack");
    assert_eq!(sim.config_maps[MAP], "blue");
    sim
}

/// Two followed workloads, of which `cart` failed.
fn refused_with_a_template() -> Sim {
    let components = [followed("cart"), followed("web")];
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.run(60);
    sim.deployment("web").set_image("web:2");
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    assert_eq!(sim.reason(), "RolledBack");
    sim
}

#[test]
fn contents_that_went_back_beside_what_failed_come_again_with_its_correction() {
    for wait in [0, 1] {
        for map_first in [true, false] {
            let mut sim = refused_with_contents();
            if map_first {
                sim.configure(MAP, "green");
                sim.run(wait);
                sim.want("cart", "cart:3");
            } else {
                sim.want("cart", "cart:3");
                sim.run(wait);
                sim.configure(MAP, "green");
            }
            sim.run_to_the_end();
            sim.run(30);
            assert!(sim.ready(), "{:#?}", sim.status);
            assert_eq!(
                (sim.image("cart"), &*sim.config_maps[MAP]),
                ("cart:3", "green")
            );
            assert_eq!(sim.told(Reason::Reasserted), 0);
            let released = [ReleaseResult::RolledBack, ReleaseResult::Succeeded];
            assert_eq!(sim.results()[sim.results().len() - 2..], released);
        }
    }
}

#[test]
fn contents_that_went_back_beside_what_failed_are_put_back_where_they_come_alone() {
    let mut sim = refused_with_contents();
    sim.configure(MAP, "green");
    sim.run(15);
    assert_eq!(sim.config_maps[MAP], "blue");
    assert_eq!(sim.told(Reason::Reasserted), 1);
    assert_eq!(sim.reason(), "RolledBack");
    let writes = sim.writes;
    sim.run(60);
    assert_eq!(sim.writes, writes, "it is at rest");
}

#[test]
fn stable_content_of_the_plan_is_green_again_whatever_followed_workloads_were_refused() {
    let mut sim = refused_with_contents();
    sim.want("cart", "cart:1");
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
    // Beside the stable content nobody has tried it.
    sim.configure(MAP, "green");
    sim.run_to_the_end();
    assert_eq!(sim.config_maps[MAP], "green");
    assert!(sim.ready(), "{:#?}", sim.status);
}

#[test]
fn a_template_that_went_back_beside_what_failed_comes_again_with_its_correction() {
    let mut sim = refused_with_a_template();
    sim.deployment("web").set_image("web:2");
    sim.deployment("cart").set_image("cart:3");
    sim.run_to_the_end();
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:2"));
    assert_eq!(sim.told(Reason::Reasserted), 0);
}

#[test]
fn what_was_refused_together_is_put_back_where_all_of_it_comes_again() {
    for first in ["web", "cart"] {
        let mut sim = refused_with_a_template();
        let releases = sim.status.history.len();
        let images = [("web", "web:2"), ("cart", "cart:2-unready")];
        let (now, later): (Vec<_>, Vec<_>) = images.iter().partition(|(name, _)| *name == first);
        for (name, image) in now.into_iter().chain(later) {
            sim.deployment(name).set_image(image);
            sim.pass();
        }
        sim.run(30);
        assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
        assert_eq!(sim.status.history.len(), releases);
        assert_eq!(sim.reason(), "RolledBack");
    }
}

/// It went back with what failed, so it comes without it only beside other
/// content of that.
#[test]
fn a_template_that_went_back_beside_what_failed_comes_once_that_has_other_content() {
    let mut sim = refused_with_a_template();
    sim.deployment("web").set_image("web:2");
    sim.run(10);
    assert_eq!(
        (sim.image("web"), sim.told(Reason::Reasserted)),
        ("web:1", 1)
    );
    assert_eq!(sim.reason(), "RolledBack");
    sim.deployment("cart").set_image("cart:3");
    sim.run_to_the_end();
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:2"));
    assert!(sim.ready(), "{:#?}", sim.status);
    // What failed itself does not.
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run(10);
    assert_eq!(sim.image("cart"), "cart:3");
}

/// Other content was released since, whose verdict is none on this.
#[test]
fn refused_content_that_comes_again_after_other_content_is_told_as_refused() {
    let spec = json!({"components": [followed("web")], "progressDeadline": "60s"});
    let mut sim = Sim::settled(spec, &[("web", "web:1")]);
    sim.deployment("web").set_image("web:2-unready");
    sim.run_to_the_end();
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(10);
    assert!(sim.ready());
    let stable = sim.status.stable_revision.clone();
    for _ in 0..2 {
        sim.deployment("web").set_image("web:2-unready");
        sim.run(10);
        assert_eq!((sim.image("web"), sim.reason()), ("web:3", "RolledBack"));
        assert_eq!(sim.status.history.len(), 3, "{:#?}", sim.status.history);
        let changes = &sim.status.history[2].changes;
        assert_eq!(
            changes,
            &["web: containers[app].image: web:3 → web:2-unready"]
        );
    }
    assert_eq!(sim.status.stable_revision, stable);
    sim.deployment("web").set_image("web:4");
    sim.run_to_the_end();
    sim.run(10);
    assert!(sim.ready(), "{:#?}", sim.status);
    assert_eq!(sim.status.history.last().unwrap().number, 4);
}

fn mixed() -> Sim {
    let components = [component("cart", "cart:1"), followed("web")];
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.run(60);
    assert!(sim.ready());
    sim
}

/// Of a followed workload, while something else is released.
#[test]
fn refused_content_that_comes_in_mid_release_of_another_does_not_begin_it_again_and_again() {
    let mut sim = mixed();
    sim.deployment("web").set_image("web:2-unready");
    sim.run_to_the_end();
    sim.run(5);
    sim.want("cart", "cart:3-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    sim.deployment("web").set_image("web:2-unready");
    sim.run(60);
    assert_eq!(
        (sim.image("cart"), sim.image("web")),
        ("cart:3-slow", "web:1")
    );
    assert!(
        sim.told(Reason::Superseded) < 3,
        "{:#?}",
        sim.status.history
    );
}

/// The pods of what failed are made anew from what it went back to.
#[test]
fn a_restart_of_what_failed_is_no_correction_of_it() {
    let mut sim = refused_with_a_template();
    sim.deployment("cart").restart("1");
    sim.run_to_the_end();
    sim.deployment("web").set_image("web:2");
    sim.run(20);
    assert_eq!(sim.image("web"), "web:1");
}

/// It went back beside `cart`, came alone, and is stable when `cart` fails again.
#[test]
fn what_is_stable_by_now_is_not_refused_beside_what_failed_before() {
    let mut sim = refused_with_contents();
    sim.want("cart", "cart:1");
    sim.run(5);
    sim.configure(MAP, "green");
    sim.run_to_the_end();
    sim.want("cart", "cart:2-unready");
    sim.run(90);
    assert_eq!(
        (sim.image("cart"), &*sim.config_maps[MAP]),
        ("cart:1", "green")
    );
    assert_eq!(sim.told(Reason::Reasserted), 0, "{:#?}", sim.events);
    assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
}

/// A sync tool applies it every few minutes, and something else was released.
#[test]
fn refused_content_of_a_mixed_plan_that_keeps_coming_is_recorded_once() {
    let mut sim = mixed();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_to_the_end();
    sim.run(5);
    sim.want("cart", "cart:3");
    sim.run_to_the_end();
    let releases = sim.status.history.len();
    for _ in 0..5 {
        sim.deployment("web").set_image("web:2-unready");
        sim.run(240);
        assert_eq!((sim.image("web"), sim.reason()), ("web:1", "RolledBack"));
    }
    assert_eq!(
        sim.status.history.len(),
        releases + 1,
        "{:#?}",
        sim.status.history
    );
}

/// The template stands in two records.
#[test]
fn a_retry_brings_all_of_it_whatever_else_went_back_with_a_part() {
    let mut sim = refused_with_a_template();
    let first = sim.status.refused.last().unwrap().revision.clone();
    sim.deployment("web").set_image("web:2");
    sim.deployment("cart").set_image("cart:3-unready");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(sim.status.refused.len(), 2);
    retry(&mut sim, &first);
    sim.run(5);
    assert_eq!(
        (sim.image("cart"), sim.image("web")),
        ("cart:2-unready", "web:2")
    );
}

/// Nor is it newer content where a release stopped.
#[test]
fn refused_content_that_comes_where_a_release_is_frozen_lets_nothing_go_on() {
    let mut sim = mixed();
    sim.deployment("web").set_image("web:2-unready");
    sim.run_to_the_end();
    sim.run(5);
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("cart", "cart:3-unready");
    sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    let releases = sim.status.history.len();
    sim.deployment("web").set_image("web:2-unready");
    sim.run(120);
    assert_eq!(sim.phase(), Phase::Frozen, "{:#?}", sim.status);
    assert_eq!(sim.status.history.len(), releases);
}

/// The other way round: what the plan says went back beside a followed workload.
#[test]
fn content_of_the_plan_that_went_back_beside_what_failed_comes_with_its_correction() {
    let mut sim = mixed();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.reason()), ("cart:1", "RolledBack"));
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:2", "web:3"));
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.deployment("web").set_image("web:2-unready");
    sim.run(10);
    assert_eq!((sim.image("web"), sim.reason()), ("web:3", "RolledBack"));
}

/// Nobody knows what was wrong with it but the person who ended it.
#[test]
fn what_was_aborted_together_comes_again_beside_other_content_of_a_part() {
    let mut sim = mixed();
    sim.want("cart", "cart:2-slow");
    sim.deployment("web").set_image("web:2");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-slow");
    sim.facts.abort = sim.status.target_revision.clone();
    sim.dirty = true;
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:1", "web:1"));
    sim.deployment("web").set_image("web:2");
    sim.want("cart", "cart:3");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:2"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

#[test]
fn a_correction_that_goes_away_in_mid_release_is_told_as_the_refusal_that_it_leaves() {
    let spec = json!({"components": [followed("api"), followed("web")], "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("api", "api:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.run(60);
    sim.deployment("api").set_image("api:2");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(5);
    let refused = sim.status.refused.clone();
    sim.deployment("api").set_image("api:2");
    sim.deployment("web").set_image("web:3-slow");
    sim.run_until("the correction", |sim| sim.phase() == Phase::RollingOut);
    sim.run(4);
    sim.deployment("web").set_image("web:1");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(30);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
    let record = sim.status.history.last().unwrap();
    assert_eq!(record.result, ReleaseResult::RolledBack, "{record:#?}");
    assert_eq!(record.revision.as_ref(), Some(&refused[0].revision));
    let (ready, reason, text) = sim.condition(crate::api::ConditionType::Ready);
    assert_eq!((ready, reason), (false, "RolledBack"));
    assert!(text.contains(&refused[0].revision), "{text}");
    assert_eq!(sim.told(Reason::Reverted), 0);
    assert_eq!(sim.status.refused, refused);
}
