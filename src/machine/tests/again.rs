//! Refused content that comes again by half, in mid-release, marked, or beside
//! content that is refused itself.

use serde_json::{Value, json};

use super::{
    commands::{abort, retry, undo},
    sim::*,
};
use crate::api::{Phase, Reason, ReleaseResult};

const MAP: &str = "settings";
const BAD: &str = "web:2-unready";

fn plan(components: &[Value]) -> Value {
    json!({"components": components, "progressDeadline": "60s"})
}

/// `cart` is templated, `web` is followed and reads a ConfigMap; a template and
/// contents of it were refused.
fn pair() -> Sim {
    let components = [component("cart", "cart:1"), reading("web", MAP)];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "blue");
    sim.run(60);
    sim.configure(MAP, "green");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:1", "blue"));
    assert_eq!(sim.reason(), "RolledBack");
    sim
}

fn state(sim: &Sim) -> (&str, &str, &str) {
    let contents = sim.config_maps.get(MAP).map_or("", String::as_str);
    (sim.image("cart"), sim.image("web"), contents)
}

/// The plan says `cart:2`, which went back beside a template of `web` that failed.
fn beside() -> Sim {
    let components = [component("cart", "cart:1"), followed("web")];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.run(60);
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:1", ""));
    sim
}

fn put_back(sim: &Sim, releases: usize) {
    assert_eq!(state(sim), ("cart:1", "web:1", "blue"));
    assert_eq!(sim.reason(), "RolledBack");
    assert_eq!(sim.status.history.len(), releases, "{:#?}", sim.status);
}

#[test]
fn half_of_what_was_refused_of_a_workload_is_refused_beside_what_is_stable_of_it() {
    let mut sim = pair();
    let releases = sim.status.history.len();
    sim.deployment("web").set_image(BAD);
    sim.run(10);
    put_back(&sim, releases);
    sim.configure(MAP, "green");
    sim.run(15);
    put_back(&sim, releases);
    // Beside other content each is new.
    sim.configure(MAP, "red");
    sim.deployment("web").set_image("web:3");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:3", "red"));
    sim.configure(MAP, "green");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:3", "green"));
}

#[test]
fn a_refused_pair_that_comes_one_after_the_other_is_put_back_whole() {
    for wait in [0, 1, 2, 3, 5] {
        for map_first in [true, false] {
            let mut sim = pair();
            let releases = sim.status.history.len();
            for map in [map_first, !map_first] {
                if map {
                    sim.configure(MAP, "green");
                } else {
                    sim.deployment("web").set_image(BAD);
                }
                sim.run(wait);
            }
            sim.run(30);
            put_back(&sim, releases);
        }
    }
}

/// Two ConfigMaps, each of which may come alone.
#[test]
fn a_part_of_the_contents_that_were_refused_is_refused_as_well() {
    let mut web = reading("web", MAP);
    web["configMaps"] = json!([MAP, "limits"]);
    let components = [component("cart", "cart:1"), web];
    let mut start = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    start.checked = true;
    start.configure(MAP, "blue");
    start.configure("limits", "low");
    start.run(60);
    let parts: [fn(&mut Sim); 3] = [
        |sim| sim.configure(MAP, "green"),
        |sim| sim.configure("limits", "high"),
        |sim| sim.deployment("web").set_image(BAD),
    ];
    for part in parts {
        part(&mut start);
    }
    start.run_to_the_end();
    start.run(5);
    for some in 1..8 {
        let mut sim = start.clone();
        let releases = sim.status.history.len();
        for (bit, part) in parts.iter().enumerate() {
            if some & (1 << bit) != 0 {
                part(&mut sim);
                sim.run(1);
            }
        }
        sim.run(20);
        put_back(&sim, releases);
        assert_eq!(sim.config_maps["limits"], "low", "{some}");
    }
}

/// The operator ends between the two writes that put it back.
#[test]
fn a_refused_pair_is_put_back_whole_whenever_the_operator_ends() {
    for crash in 0..8 {
        let mut sim = pair();
        let releases = sim.status.history.len();
        sim.crash_at = Some(sim.writes + crash);
        sim.configure(MAP, "green");
        sim.deployment("web").set_image(BAD);
        sim.run(30);
        put_back(&sim, releases);
    }
}

#[test]
fn a_refused_pair_that_comes_in_mid_release_is_put_back_whole_and_told() {
    for wait in [0, 1, 3] {
        for map_first in [true, false] {
            let mut sim = pair();
            sim.want("cart", "cart:3-slow");
            sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
            for map in [map_first, !map_first] {
                if map {
                    sim.configure(MAP, "green");
                } else {
                    sim.deployment("web").set_image(BAD);
                }
                sim.run(wait);
            }
            sim.run_to_the_end();
            sim.run(30);
            assert_eq!(state(&sim), ("cart:3-slow", "web:1", "blue"));
            assert_eq!(sim.told(Reason::Superseded), 0, "{:#?}", sim.events);
            assert_eq!(sim.reason(), "RolledBack", "{:#?}", sim.status);
            let results = sim.results();
            let ends = [ReleaseResult::Succeeded, ReleaseResult::RolledBack];
            assert_eq!(results[results.len() - 2..], ends);
        }
    }
}

/// Pods that are made later must not read them.
#[test]
fn refused_contents_that_come_in_mid_release_are_put_back_in_it() {
    let mut sim = pair();
    sim.edit(|spec| spec["bakeTime"] = json!("60s"));
    sim.want("cart", "cart:3-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    for _ in 0..2 {
        sim.configure(MAP, "green");
        sim.run(14);
        assert_eq!(state(&sim), ("cart:3-slow", "web:1", "blue"));
    }
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:3-slow", "web:1", "blue"));
    assert_eq!(sim.reason(), "RolledBack");
    assert_eq!(sim.told(Reason::Reasserted), 2);
}

/// A tool takes the annotation away of what came with a correction.
#[test]
fn what_is_stable_beside_a_correction_never_comes_again() {
    let components = [followed("cart"), reading("web", MAP)];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    sim.configure(MAP, "2");
    sim.deployment("cart").set_image("cart:2-unready");
    sim.run_to_the_end();
    sim.configure(MAP, "2");
    sim.deployment("cart").set_image("cart:3");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:3", "web:1", "2"));
    let releases = sim.status.history.len();
    let mut template = sim.deployments["web"].template.clone();
    template["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    sim.deployment("web").replace(&template);
    sim.dirty = true;
    sim.run(10);
    assert_eq!(
        sim.status.history.len(),
        releases,
        "{:#?}",
        sim.status.history
    );
    assert!(sim.ready(), "{:#?}", sim.status.conditions);
}

#[test]
fn a_refused_template_that_comes_in_mid_release_is_told_and_no_success() {
    let mut sim = beside();
    sim.want("cart", "cart:3-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:3-slow", "web:1", ""));
    assert_eq!(sim.told(Reason::Reasserted), 1, "{:#?}", sim.events);
    assert_eq!(sim.reason(), "RolledBack");
}

/// One apply, of which a part is new and another was refused.
#[test]
fn a_refused_pair_beside_new_content_of_another_is_put_back_whole_and_told() {
    for wait in [0, 1, 3, 15] {
        for new_first in [true, false] {
            let mut sim = pair();
            for new in [new_first, !new_first] {
                if new {
                    sim.want("cart", "cart:9");
                } else {
                    sim.deployment("web").set_image(BAD);
                    sim.configure(MAP, "green");
                }
                sim.run(wait);
            }
            sim.run(60);
            assert_eq!(state(&sim), ("cart:9", "web:1", "blue"));
            assert!(sim.told(Reason::Reasserted) > 0);
            // What was told long before the rest came is not told again for that.
            let apart = wait == 15 && !new_first;
            let ends = if apart { "Released" } else { "RolledBack" };
            assert_eq!(sim.reason(), ends, "{:#?}", sim.status);
            // What comes after it is told for itself.
            sim.want("cart", "cart:10");
            sim.run_to_the_end();
            sim.run(5);
            assert!(sim.ready(), "{:#?}", sim.status);
        }
    }
}

/// What kubectl sets for it stays in the template.
#[test]
fn a_restart_makes_nothing_new_of_refused_content() {
    let mut sim = pair();
    sim.deployment("web").restart("1");
    sim.run_to_the_end();
    let releases = sim.status.history.len();
    for at in ["1", "2"] {
        sim.deployment("web").restart(at);
        sim.run(20);
        sim.configure(MAP, "green");
        sim.deployment("web").set_image(BAD);
        sim.run(20);
        assert_eq!(state(&sim), ("cart:1", "web:1", "blue"));
        assert_eq!(sim.reason(), "RolledBack");
    }
    let tried = sim.status.history.iter().skip(releases);
    let tried = tried.filter(|r| r.changes.iter().any(|c| c.contains(BAD)));
    let came = |r: &&crate::api::ReleaseRecord| {
        let message = r.message.as_deref().unwrap_or_default();
        !message.starts_with("it came again")
    };
    assert_eq!(tried.filter(came).count(), 0, "{:#?}", sim.status.history);
}

/// All of it came again, what failed included.
#[test]
fn content_that_failed_together_is_refused_together_after_its_correction() {
    let components = [followed("cart"), reading("web", MAP)];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    let apply = |sim: &mut Sim, cart: &str, web: &str, map: &str| {
        sim.configure(MAP, map);
        sim.deployment("web").set_image(web);
        sim.deployment("cart").set_image(cart);
    };
    apply(&mut sim, "cart:2-unready", "web:2", "2");
    sim.run_to_the_end();
    apply(&mut sim, "cart:3", "web:3", "3");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready());
    apply(&mut sim, "cart:2-unready", "web:2", "2");
    sim.run(30);
    assert_eq!(state(&sim), ("cart:3", "web:3", "3"));
    assert_eq!(sim.reason(), "RolledBack");
    // Without it, the rest is new.
    sim.configure(MAP, "2");
    sim.deployment("web").set_image("web:2");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:3", "web:2", "2"));
    assert!(sim.ready(), "{:#?}", sim.status);
}

/// Nobody can tell what of it was wrong.
#[test]
fn what_was_aborted_together_is_refused_together_whatever_was_released_since() {
    let components = [component("cart", "cart:1"), reading("web", MAP)];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "1");
    sim.run(60);
    let apply = |sim: &mut Sim, cart: &str, web: &str, map: &str| {
        sim.configure(MAP, map);
        sim.deployment("web").set_image(web);
        sim.want("cart", cart);
    };
    apply(&mut sim, "cart:3-slow", "web:3", "3");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    let target = sim.status.target_revision.clone().unwrap();
    abort(&mut sim, &target);
    sim.run_to_the_end();
    // No other workload brings it back.
    sim.deployment("web").set_image("web:4");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:4", "1"));
    apply(&mut sim, "cart:2", "web:2", "2");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready(), "{:#?}", sim.status);
    apply(&mut sim, "cart:3-slow", "web:3", "3");
    sim.run(60);
    assert_eq!(state(&sim), ("cart:2", "web:2", "2"));
    assert_eq!(sim.reason(), "RolledBack");
}

/// None of it was done by who could correct it.
#[test]
fn what_only_marks_a_workload_or_is_refused_itself_corrects_nothing() {
    let marked = |sim: &mut Sim| {
        let path = ["f:metadata", "f:labels", "f:istio.io/rev"];
        sim.deployment("web").edit(&path, json!("1-20"));
    };
    let mut sim = beside();
    marked(&mut sim);
    sim.run(60);
    assert_eq!(state(&sim), ("cart:1", "web:1", ""));
    // Another template that is refused, in a release of a third workload.
    let mut sim = beside();
    sim.deployment("web").set_image("web:3-unready");
    sim.run_to_the_end();
    sim.run(5);
    let refused = sim.status.refused.len();
    for image in [BAD, "web:3-unready"] {
        sim.deployment("web").set_image(image);
        sim.run(20);
        assert_eq!(state(&sim), ("cart:1", "web:1", ""));
    }
    assert_eq!(sim.status.refused.len(), refused);
}

#[test]
fn contents_of_a_configmap_alone_are_no_correction_of_a_template() {
    let components = [component("cart", "cart:1"), reading("web", MAP)];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    sim.configure(MAP, "blue");
    sim.run(60);
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    sim.configure(MAP, "green");
    sim.run_to_the_end();
    sim.run(30);
    assert_eq!(state(&sim), ("cart:1", "web:1", "green"));
    assert_eq!(sim.reason(), "RolledBack", "{:#?}", sim.status);
}

/// The undo is the last word, also on what had been rolled back before it.
#[test]
fn a_correction_after_an_undo_brings_nothing_over_the_undo() {
    let components = [component("cart", "cart:1"), followed("web")];
    let mut sim = Sim::new(plan(&components), &[("cart", "cart:1"), ("web", "web:0")]);
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:1", "web:0", ""));
    for image in ["web:4", "web:5"] {
        sim.deployment("web").set_image(image);
        sim.run_to_the_end();
        sim.run(5);
        assert_eq!(state(&sim), ("cart:1", image, ""));
    }
}

/// Nor does what failed itself come beside what another workload has.
#[test]
fn an_undo_lets_nothing_come_that_failed_and_ends_without_a_trace_where_it_is_taken_back() {
    let components = [
        component("cart", "cart:1"),
        followed("web"),
        followed("api"),
    ];
    let deployments = [("cart", "cart:1"), ("web", "web:0"), ("api", "api:1")];
    let mut sim = Sim::new(plan(&components), &deployments);
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.want("cart", "cart:2");
    sim.deployment("web").set_image(BAD);
    sim.deployment("api").set_image("api:2");
    sim.run_to_the_end();
    sim.run(5);
    let refused = sim.status.refused.clone();
    let mut paused = sim.clone();
    paused.edit(|spec| spec["paused"] = json!(true));
    undo(&mut paused, &first);
    paused.run(5);
    abort(&mut paused, &first);
    paused.run(5);
    assert_eq!(paused.status.refused, refused);
    undo(&mut sim, &first);
    sim.run_to_the_end();
    sim.run(5);
    sim.deployment("api").set_image("api:3");
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(10);
    assert_eq!(state(&sim), ("cart:1", "web:0", ""));
    assert_eq!(sim.image("api"), "api:3");
}

#[test]
fn a_refused_template_stays_so_whatever_its_component_is_called() {
    let components = [followed("web"), followed("api")];
    let mut sim = Sim::new(plan(&components), &[("web", "web:1"), ("api", "api:1")]);
    sim.run(60);
    sim.deployment("web").set_image(BAD);
    sim.deployment("api").set_image("api:2");
    sim.run_to_the_end();
    sim.run(5);
    sim.edit(|spec| spec["components"][0]["name"] = json!("frontend"));
    sim.run(5);
    sim.deployment("api").set_image("api:3");
    sim.run_to_the_end();
    sim.deployment("web").set_image(BAD);
    sim.run(10);
    assert_eq!((sim.image("web"), sim.image("api")), ("web:1", "api:3"));
}

/// Two records have the same content of the plan; one of them is tried again.
#[test]
fn a_retry_admits_nothing_of_other_content_that_failed() {
    let mut sim = beside();
    sim.deployment("cart").broken = true;
    sim.deployment("web").set_image("web:3");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = false;
    sim.run_to_the_end();
    sim.run(5);
    let refused = &sim.status.refused;
    assert!(refused.len() == 2 && refused[0].spec == refused[1].spec);
    let last = refused[1].revision.clone();
    retry(&mut sim, &last);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(state(&sim), ("cart:2", "web:3", ""));
    sim.deployment("web").set_image(BAD);
    sim.run(20);
    assert_eq!(sim.image("web"), "web:3");
}

/// The plan says the same all the time, and each of them fails.
#[test]
fn what_is_refused_beside_the_same_content_of_the_plan_is_bounded() {
    let mut sim = beside();
    sim.edit(|spec| spec["revisionHistoryLimit"] = json!(3));
    for number in 3..12 {
        let image = format!("web:{number}-unready");
        sim.deployment("web").set_image(&image);
        sim.run_to_the_end();
        sim.run(5);
    }
    assert!(sim.status.refused.len() <= 4, "{:#?}", sim.status.refused);
    assert!(sim.revisions.len() < 12, "{}", sim.revisions.len());
    assert_eq!(state(&sim), ("cart:1", "web:1", ""));
}

/// A sync tool sets what failed while a person goes further back.
#[test]
fn refused_content_takes_the_place_of_no_undo() {
    let mut sim = Sim::new(plan(&[followed("web")]), &[("web", "web:0")]);
    sim.checked = true;
    sim.edit(|spec| spec["bakeTime"] = json!("30s"));
    sim.run(60);
    let first = sim.status.stable_revision.clone().unwrap();
    sim.deployment("web").set_image("web:1");
    sim.run_to_the_end();
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    undo(&mut sim, &first);
    sim.run_until("it is sent", |sim| sim.image("web") == "web:0");
    sim.run(5);
    sim.deployment("web").set_image(BAD);
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(sim.image("web"), "web:0");
    assert_eq!(sim.told(Reason::UndoIgnored), 0);
    let last = sim.status.history.last().unwrap();
    assert_eq!(last.kind, crate::api::ReleaseKind::Undo);
}

/// A pause holds what the plan would do, and nothing that is live already.
#[test]
fn what_is_done_to_a_workload_in_a_paused_release_is_judged() {
    let components = [component("cart", "cart:1"), followed("web")];
    let mut sim = Sim::settled(plan(&components), &[("cart", "cart:1"), ("web", "web:1")]);
    sim.want("cart", "cart:2-slow");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-slow");
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.run(2);
    sim.deployment("web").set_image("web:9-crash");
    sim.run_until("it goes back", |sim| sim.phase() == Phase::Rollback);
    sim.run_to_the_end();
    assert_eq!(sim.image("web"), "web:1");
}

/// The release of it would never be what the plan asks for.
#[test]
fn a_retry_is_offered_only_where_it_can_be_had() {
    let mut sim = beside();
    sim.want("cart", "cart:3");
    sim.run_to_the_end();
    sim.deployment("web").set_image(BAD);
    sim.run(10);
    assert_eq!(state(&sim), ("cart:3", "web:1", ""));
    let told = sim.condition(crate::api::ConditionType::Ready).2;
    assert!(!told.contains("belay.dev/retry="), "{told}");
}
