//! Refused content in the middle of something else: releases that are paused,
//! frozen, taken back or overtaken.

use serde_json::{Value, json};

use super::{
    commands::{abort, undo},
    sim::*,
};
use crate::api::{ConditionType, Phase, Reason, ReleaseKind, ReleaseResult};

const MAP: &str = "settings";
const BAD: &str = "web:2-unready";

fn started(components: &[Value], deployments: &[(&str, &str)]) -> Sim {
    let spec = json!({"components": components, "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, deployments);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

/// `cart` is templated, `web` is followed.
fn mixed() -> Sim {
    started(
        &[component("cart", "cart:1"), followed("web")],
        &[("cart", "cart:1"), ("web", "web:1")],
    )
}

fn images(sim: &Sim) -> (&str, &str) {
    (sim.image("cart"), sim.image("web"))
}

/// Refused content of `web`, at rest.
fn refused() -> Sim {
    let mut sim = mixed();
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(sim.reason(), "RolledBack");
    sim
}

#[test]
fn refused_content_is_put_back_in_a_paused_release_as_well() {
    let mut sim = refused();
    sim.want("cart", "cart:3-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(2);
    sim.deployment("web").set_image(BAD);
    sim.run(10);
    assert_eq!(images(&sim), ("cart:3-slow", "web:1"));
    assert_eq!((sim.reason(), sim.told(Reason::Reasserted)), ("Paused", 1));
}

/// Content of the plan that the pause holds was not live and is not judged.
#[test]
fn content_that_waits_in_a_pause_is_not_judged_with_what_others_did() {
    let mut sim = mixed();
    sim.want("cart", "cart:2-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-slow");
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.want("cart", "cart:3");
    sim.run(2);
    let target = sim.status.target_revision.clone().unwrap();
    sim.deployment("web").set_image("web:9");
    sim.run(5);
    abort(&mut sim, &target);
    sim.run_to_the_end();
    let content = sim.parsed().unwrap().content().to_owned();
    let mut refused = sim.status.refused.iter();
    assert!(!refused.any(|r| r.spec.as_ref() == Some(&content)));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_to_the_end();
    assert_eq!(images(&sim), ("cart:3", "web:9"));
}

/// It comes again in a release that is overtaken, and the last one succeeds.
#[test]
fn what_came_again_is_told_by_its_own_name_also_where_the_release_was_overtaken() {
    let mut sim = refused();
    let first = sim.status.refused[0].revision.clone();
    sim.deployment("web").set_image("web:5-unready");
    sim.run_to_the_end();
    sim.run(5);
    sim.edit(|spec| spec["bakeTime"] = json!("30s"));
    sim.want("cart", "cart:3");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3");
    sim.deployment("web").set_image(BAD);
    sim.run(20);
    assert_eq!(images(&sim), ("cart:3", "web:1"));
    sim.want("cart", "cart:4");
    sim.run_until("the end", |sim| sim.status.release.is_none());
    sim.run(5);
    assert_eq!(images(&sim), ("cart:4", "web:1"));
    assert_eq!(sim.reason(), "RolledBack");
    let told = sim.condition(ConditionType::Ready).2;
    let retry = format!("belay.dev/retry={first}");
    assert!(told.contains(&retry), "{told}");
}

/// `web` failed with contents that its correction has as well.
fn pair() -> Sim {
    let mut sim = started(
        &[component("cart", "cart:1"), reading("web", MAP)],
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    sim
}

fn corrected() -> Sim {
    let mut sim = pair();
    sim.edit(|spec| spec["bakeTime"] = json!("60s"));
    sim
}

/// Half of what was refused is what is stable.
#[test]
fn a_release_is_taken_back_by_what_is_stable_whatever_else_was_refused_with_it() {
    let mut sim = corrected();
    sim.configure(MAP, "2");
    sim.deployment("web").set_image("web:3");
    sim.run_until("it bakes", |sim| sim.reason() == "Baking");
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "1"));
    assert_eq!(sim.told(Reason::Contended), 0);
    // And by its contents.
    let mut sim = corrected();
    sim.configure(MAP, "9");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("it is judged", |sim| sim.reason() == "Promoting");
    sim.configure(MAP, "1");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "1"));
}

/// One apply of a correction that comes in two steps in mid-release.
#[test]
fn the_rest_of_an_apply_is_awaited_in_mid_release_too() {
    for wait in [0, 1] {
        let mut sim = started(
            &[
                component("cart", "cart:1"),
                followed("web"),
                followed("api"),
            ],
            &[("cart", "cart:1"), ("web", "web:1"), ("api", "api:1")],
        );
        sim.deployment("web").set_image(BAD);
        sim.deployment("api").set_image("api:2");
        sim.run_to_the_end();
        sim.run(5);
        sim.want("cart", "cart:3-slow");
        sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
        sim.deployment("api").set_image("api:2");
        sim.run(wait);
        sim.deployment("web").set_image("web:3");
        sim.run_until("the end", |sim| sim.status.release.is_none());
        sim.run(5);
        assert_eq!(images(&sim), ("cart:3-slow", "web:3"));
        assert_eq!(sim.image("api"), "api:2");
        assert!(sim.ready(), "{:#?}", sim.status.conditions);
        assert_eq!(sim.told(Reason::Reasserted), 0);
    }
}

/// A sidecar was changed, and the correction came while that was released.
#[test]
fn a_correction_that_takes_the_place_of_a_change_of_surroundings_is_a_release_of_content() {
    let mut sim = mixed();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    let path = ["f:spec", "f:terminationGracePeriodSeconds"];
    sim.edit(|spec| spec["bakeTime"] = json!("30s"));
    sim.deployment("cart").edit(&path, json!(60));
    sim.run_until("it bakes", |sim| sim.reason() == "Baking");
    sim.deployment("web").set_image("web:3");
    sim.run_until("the end", |sim| sim.status.release.is_none());
    sim.run(5);
    assert_eq!(images(&sim), ("cart:2", "web:3"));
    assert!(sim.ready(), "{:#?}", sim.status.conditions);
    let last = sim.status.history.last().unwrap();
    assert_eq!(last.kind, ReleaseKind::Content);
}

/// A half of it is what an earlier revision is.
#[test]
fn an_undo_to_half_of_what_failed_does_not_admit_the_rest() {
    let mut sim = started(&[reading("web", MAP)], &[("web", "web:1")]);
    sim.configure(MAP, "2");
    sim.run_to_the_end();
    let second = sim.status.stable_revision.clone().unwrap();
    sim.configure(MAP, "1");
    sim.run_to_the_end();
    sim.run(5);
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    undo(&mut sim, &second);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "2"));
    sim.deployment("web").set_image(BAD);
    sim.run(10);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "2"));
}

#[test]
fn an_abort_that_is_given_twice_where_a_release_froze_goes_back_once() {
    let mut sim = mixed();
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("cart", "cart:2-unready");
    sim.deployment("web").set_image("web:2");
    sim.run_until("it is frozen", |sim| sim.phase() == Phase::Frozen);
    let target = sim.status.target_revision.clone().unwrap();
    sim.run(30);
    for _ in 0..2 {
        abort(&mut sim, &target);
        sim.run(1);
    }
    sim.run(60);
    assert_eq!(images(&sim), ("cart:1", "web:1"));
    assert_eq!((sim.phase(), sim.reason()), (Phase::Stable, "RolledBack"));
}

/// The person takes it out of the plan as well, and another tool sets the rest.
#[test]
fn what_was_aborted_stays_away_where_the_plan_is_what_is_stable() {
    let mut sim = mixed();
    sim.want("cart", "cart:2-slow");
    sim.deployment("web").set_image("web:2");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-slow");
    let target = sim.status.target_revision.clone().unwrap();
    abort(&mut sim, &target);
    sim.run_to_the_end();
    sim.want("cart", "cart:1");
    sim.run(15);
    sim.deployment("web").set_image("web:2");
    sim.run(10);
    assert_eq!(images(&sim), ("cart:1", "web:1"));
}

/// One ConfigMap, and the second workload comes after the first.
#[test]
fn an_undo_takes_nothing_that_it_did_itself_for_refused_content() {
    let mut web = reading("web", MAP);
    web["after"] = json!(["cart"]);
    let components = [reading("cart", MAP), web];
    let mut sim = started(&components, &[("cart", "cart:0"), ("web", "web:0")]);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.configure(MAP, "2");
    sim.deployment("cart").set_image("cart:1-slow");
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.run(5);
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(images(&sim), ("cart:0", "web:0"));
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Succeeded));
    assert_eq!((sim.reason(), sim.told(Reason::Reasserted)), ("Undone", 0));
}

/// The undo holds until other content was released, whatever fails meanwhile.
#[test]
fn a_release_that_fails_ends_no_undo() {
    let mut sim = started(
        &[component("cart", "cart:1"), followed("web")],
        &[("cart", "cart:1"), ("web", "web:0")],
    );
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.deployment("web").set_image("web:5-unready");
    sim.run_to_the_end();
    sim.run(5);
    sim.deployment("web").set_image("web:4");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(images(&sim), ("cart:1", "web:4"));
}

/// The template comes first, which is new beside what was released since.
#[test]
fn a_refused_pair_that_comes_in_two_steps_after_its_correction_goes_back_whole() {
    for wait in [0, 1, 4] {
        let mut sim = corrected();
        sim.configure(MAP, "3");
        sim.deployment("web").set_image("web:3");
        sim.run_to_the_end();
        sim.run(5);
        assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:3", "3"));
        sim.deployment("web").set_image(BAD);
        sim.run(wait);
        sim.configure(MAP, "2");
        sim.run(200);
        assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:3", "3"));
        assert_eq!((sim.reason(), sim.stalled()), ("RolledBack", true));
    }
}

/// At a pace of their own: it ends all the same.
#[test]
fn who_insists_on_a_refused_pair_is_told_in_the_end() {
    for pause in 1..4 {
        let mut sim = started(
            &[reading("cart", MAP), reading("web", MAP)],
            &[("cart", "cart:1"), ("web", "web:1")],
        );
        sim.configure(MAP, "2");
        sim.deployment("web").set_image(BAD);
        sim.run_to_the_end();
        sim.run(5);
        let releases = sim.status.history.len();
        let mut told = false;
        for _ in 0..30 {
            sim.configure(MAP, "2");
            sim.rest();
            sim.deployment("web").set_image(BAD);
            for _ in 0..pause {
                sim.tick();
                told |= sim.reason() == "Contended";
            }
        }
        assert!(told, "{pause}: {:#?}", sim.status);
        assert_eq!(sim.status.history.len(), releases);
    }
}

/// One of the two is held, and the other was put back just before.
#[test]
fn new_content_after_a_fight_is_told_for_itself() {
    let mut sim = started(
        &[reading("cart", MAP), reading("web", MAP)],
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    for _ in 0..3 {
        sim.deployment("web").set_image(BAD);
        sim.run(6);
    }
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run_until("it is held", |sim| sim.reason() == "Contended");
    assert_eq!(sim.config_maps[MAP], "1", "cart gave them back");
    let releases = sim.status.history.len();
    sim.configure(MAP, "3");
    sim.deployment("web").set_image("web:3");
    sim.run_until("the end", |sim| sim.status.history.len() > releases);
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status.conditions);
}

/// What comes first may be part of a correction, however often it was put back.
#[test]
fn contents_that_come_before_their_correction_are_no_fight() {
    let mut sim = pair();
    for _ in 0..3 {
        sim.deployment("web").set_image(BAD);
        sim.configure(MAP, "2");
        sim.run(5);
        assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:1", "1"));
    }
    sim.configure(MAP, "2");
    sim.pass();
    assert_eq!(sim.reason(), "Settling", "{:#?}", sim.status);
    sim.run(1);
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!((sim.image("web"), &*sim.config_maps[MAP]), ("web:3", "2"));
    assert!(sim.ready() && sim.told(Reason::Contended) == 0);
    // Without one it is one.
    let mut sim = pair();
    for _ in 0..4 {
        sim.configure(MAP, "2");
        sim.run(15);
    }
    assert_eq!(sim.told(Reason::Contended), 1, "{:#?}", sim.events);
}

#[test]
fn what_is_put_back_is_told_by_what_it_was_refused_as() {
    let mut web = reading("web", MAP);
    web["configMaps"] = json!([MAP, "limits"]);
    let spec = json!({"components": [web], "progressDeadline": "60s"});
    let mut sim = Sim::new(spec, &[("web", "web:1")]);
    sim.configure(MAP, "1");
    sim.configure("limits", "1");
    sim.run(60);
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(10);
    let refused = &sim.status.refused[0].revision.clone();
    let told = |sim: &Sim| {
        let mut events = sim.events.iter().rev();
        let told = events.find(|event| event.reason == Reason::Reasserted);
        told.unwrap().note.clone()
    };
    sim.configure(MAP, "2");
    sim.run(15);
    let stable = sim.status.stable_revision.clone().unwrap();
    assert_eq!(
        told(&sim),
        format!(
            "configmap {MAP} was given what was refused as {refused}; the contents of {stable} are written back"
        )
    );
    sim.deployment("web").set_image(BAD);
    sim.run(5);
    assert_eq!(
        told(&sim),
        format!(
            "field manager kubectl gave deployment web (containers[app].image) what was refused as {refused}; what is stable is put back"
        )
    );
    sim.configure(MAP, "2");
    sim.deployment("web").set_image(BAD);
    sim.run(5);
    assert!(told(&sim).ends_with(&format!("what is stable is put back with configmap {MAP}")));
}

/// Both workloads went back beside them once, and neither takes the other along.
#[test]
fn contents_that_are_taken_back_take_back_all_that_read_them() {
    let mut sim = started(
        &[reading("api", MAP), reading("web", MAP)],
        &[("api", "api:1"), ("web", "web:1")],
    );
    let both = |sim: &mut Sim, contents: &str| {
        sim.configure(MAP, contents);
        sim.deployment("api").set_image("api:2");
        sim.deployment("web").set_image("web:2");
    };
    sim.deployment("web").broken = true;
    both(&mut sim, "1");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_to_the_end();
    sim.run(30);
    sim.edit(|spec| spec["bakeTime"] = json!("60s"));
    both(&mut sim, "2");
    sim.run_until("it bakes", |sim| sim.reason() == "Baking");
    sim.configure(MAP, "1");
    sim.run(200);
    assert_eq!((sim.image("api"), sim.image("web")), ("api:1", "web:1"));
    assert_eq!(sim.config_maps[MAP], "1");
}

/// The release fails, or is aborted, while the rest of the apply is awaited.
#[test]
fn refused_contents_that_came_before_a_rollback_go_back_with_it() {
    for aborted in [false, true] {
        let mut sim = pair();
        sim.configure(MAP, "5");
        sim.want("cart", "cart:4-unready");
        sim.run_until("it is sent", |sim| sim.image("cart") == "cart:4-unready");
        sim.run(50);
        sim.configure(MAP, "2");
        sim.run(2);
        if aborted {
            let target = sim.status.target_revision.clone().unwrap();
            abort(&mut sim, &target);
        }
        sim.run(60);
        let config_map = &*sim.config_maps[MAP];
        assert_eq!(
            (sim.image("cart"), config_map),
            ("cart:1", "1"),
            "{aborted}"
        );
        assert_eq!((sim.phase(), sim.reason()), (Phase::Stable, "RolledBack"));
    }
}
