//! Releases and rollbacks that something holds: what it must not hold besides,
//! and who is told what leads out.

use serde_json::json;

use super::sim::*;
use crate::{
    api::{Cause, ConditionType, Phase, Reason, ReleaseResult, Stage},
    machine::stalled_since,
};

const KEEP: &str = r#"{"deletionPolicy":"Keep"}"#;

fn ready(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

fn plan(components: &[serde_json::Value], deployments: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::new(
        json!({"components": components, "progressDeadline": "60s"}),
        deployments,
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.journal.clear();
    sim.events.clear();
    sim
}

fn one(component: serde_json::Value) -> Sim {
    plan(&[component], &[("web", "web:1")])
}

fn stage(sim: &Sim) -> Option<Stage> {
    Some(sim.status.release.as_ref()?.stage)
}

fn cause(sim: &Sim) -> Option<Cause> {
    let failure = sim.status.release.as_ref()?.failure.as_ref()?;
    Some(failure.cause)
}

/// What the pods of the stable revision read is itself at fault.
#[test]
fn contents_that_mend_a_stalled_rollback_take_its_place() {
    let mut sim = one(reading("web", "settings"));
    sim.deployment("web").broken = true;
    sim.configure("settings", "bad");
    sim.run_until("the stall", |sim| sim.reason() == "RollbackStalled");
    assert_eq!(sim.config_maps["settings"], "old");
    sim.configure("settings", "mended");
    sim.run_until("the end", |sim| !sim.results().is_empty());
    assert_eq!(sim.results(), [ReleaseResult::RolledBack]);
    let told = &sim.status.decisions.iter().rev();
    let told = told.clone().find(|told| told.reason == Reason::RolledBack);
    let text = " but for deployment web, whose configmap was edited";
    assert!(told.unwrap().message.contains(text), "{:#?}", sim.status);
    sim.deployment("web").broken = false;
    sim.run_until("the release", |sim| sim.ready());
    assert_eq!(sim.config_maps["settings"], "mended");
    let results = [ReleaseResult::RolledBack, ReleaseResult::Succeeded];
    assert_eq!(sim.results(), results);
}

/// A rollback that still has time is not cut short by an edit.
#[test]
fn contents_edited_in_a_rollback_wait_while_it_has_time() {
    let mut sim = one(reading("web", "settings"));
    sim.deployment("web").broken = true;
    sim.configure("settings", "bad");
    sim.run_until("they are back", |sim| {
        sim.phase() == Phase::Rollback && sim.config_maps["settings"] == "old"
    });
    sim.configure("settings", "mended");
    sim.run(20);
    assert_eq!(
        (sim.phase(), sim.reason()),
        (Phase::Rollback, "RollingBack")
    );
    sim.deployment("web").broken = false;
    sim.run_until("the release", |sim| sim.ready());
    assert_eq!(sim.config_maps["settings"], "mended");
}

/// In the middle of a release that is deleted with snapshots that cannot be
/// read, or are lost.
fn deleted(component: serde_json::Value, lose: impl FnOnce(&mut Sim)) -> Sim {
    let mut sim = one(component);
    sim.configure("settings", "new");
    if sim.spec["components"][0].get("template").is_some() {
        sim.want("web", "web:2-unready");
    } else {
        sim.deployment("web").set_image("web:2-unready");
    }
    sim.run_until("the release", |sim| {
        sim.image("web") == "web:2-unready" && sim.deployments["web"].marked()
    });
    sim.run(3);
    assert_eq!(sim.phase(), Phase::RollingOut);
    lose(&mut sim);
    sim.delete();
    sim.run(10);
    assert!(!sim.gone, "it is tried for a while");
    assert!(ready(&sim).contains(KEEP), "{}", ready(&sim));
    sim.run(300);
    sim
}

#[test]
fn snapshots_that_cannot_be_read_do_not_hold_a_plan_that_goes_for_ever() {
    for component in [
        configured("web", "web:1", "settings"),
        reading("web", "settings"),
    ] {
        let sim = deleted(component, |sim| sim.blind = true);
        assert!(sim.gone, "{:#?}", sim.status);
        assert_eq!(sim.image("web"), "web:1");
    }
}

#[test]
fn snapshots_that_are_lost_do_not_hold_a_plan_that_goes_for_ever() {
    let lose = |sim: &mut Sim| sim.snapshots.retain(|_, text| text != "old");
    let sim = deleted(configured("web", "web:1", "settings"), lose);
    assert!(sim.gone, "{:#?}", sim.status);
    // Its stable template names what is not there: no pod of it would start.
    assert_eq!(sim.configuration("web"), [Some("new")]);
    let sim = deleted(reading("web", "settings"), lose);
    assert!(sim.gone, "{:#?}", sim.status);
    assert_eq!(sim.image("web"), "web:1");
    assert_eq!(sim.config_maps["settings"], "new");
}

#[test]
fn whoever_undoes_the_way_back_of_a_plan_that_goes_is_named_with_the_way_out() {
    let mut sim = Sim::settled(templated(&[("cart", "cart:1")]), &[("cart", "cart:1")]);
    sim.want("cart", "cart:2-unready");
    sim.run(6);
    sim.deployment("cart").broken = true;
    sim.delete();
    for image in ["a", "b", "c", "d", "e", "f"] {
        sim.deployment("cart").set_image(image);
        sim.run(5);
    }
    assert_eq!((sim.reason(), sim.stalled()), ("Contended", true));
    assert!(ready(&sim).contains(KEEP), "{}", ready(&sim));
}

#[test]
fn what_refuses_the_stable_template_of_a_plan_that_goes_is_told_with_the_way_out() {
    let mut sim = Sim::settled(
        templated(&[("cart", "cart:1-rejected")]),
        &[("cart", "cart:1")],
    );
    // Nothing is live that the plan asks for, so what was live is stable.
    sim.edit(|spec| spec["components"][0] = component("cart", "cart:2-unready"));
    sim.run(6);
    sim.delete();
    let containers =
        json!([{"name": "other", "image": "other:1"}, {"name": "proxy", "image": "envoy:1"}]);
    sim.deployment("cart")
        .edit(&["f:spec", "f:containers"], containers);
    sim.run(5);
    assert_eq!((sim.reason(), sim.stalled()), ("TemplateRefused", true));
    assert!(ready(&sim).contains(KEEP), "{}", ready(&sim));
    assert!(
        !ready(&sim).contains("content of the plan"),
        "{}",
        ready(&sim)
    );
}

/// Nobody may be able to bring these contents back.
#[test]
fn a_lost_snapshot_holds_neither_components_that_join_nor_those_that_leave() {
    let mut sim = plan(
        &[configured("web", "web:1", "settings")],
        &[("web", "web:1"), ("cart", "cart:1")],
    );
    sim.snapshots.clear();
    sim.configure("settings", "new");
    sim.configure("prices", "first");
    sim.edit(|spec| {
        let components = spec["components"].as_array_mut().unwrap();
        components.push(reading("cart", "prices"));
    });
    sim.run_until("the release", |sim| {
        sim.configuration("web") == [Some("new")] && sim.ready()
    });
    assert!(sim.snapshots.values().any(|text| text == "first"));
    assert!(sim.told(Reason::SnapshotLost) > 0, "{:#?}", sim.events);
    sim.run(10);
    sim.snapshots.retain(|_, text| text != "new");
    sim.configure("settings", "newer");
    sim.edit(|spec| {
        spec["components"].as_array_mut().unwrap().pop();
    });
    sim.run_until("the release", |sim| {
        sim.configuration("web") == [Some("newer")] && sim.ready()
    });
}

/// The image of a followed workload is out before anybody is asked.
#[test]
fn a_followed_rollout_is_judged_while_it_waits_for_its_stamp() {
    type Hold = fn(&mut Sim);
    let holds: [Hold; 2] = [
        |sim| sim.edit(|spec| spec["paused"] = json!(true)),
        |sim| {
            sim.edit(|spec| spec["components"][1]["after"] = json!(["cart"]));
            sim.want("cart", "cart:2-slow");
        },
    ];
    for hold in holds {
        let mut sim = plan(
            &[component("cart", "cart:1"), reading("web", "settings")],
            &[("cart", "cart:1"), ("web", "web:1")],
        );
        hold(&mut sim);
        sim.configure("settings", "new");
        sim.deployment("web").set_image("web:2-crash");
        sim.run_until("the failure", |sim| cause(sim).is_some());
        let failure = sim.status.release.as_ref().unwrap().failure.as_ref();
        let failure = failure.unwrap();
        assert_eq!(failure.component.as_deref(), Some("web"), "{failure:?}");
        assert_eq!(failure.cause, Cause::ContainerRestarts);
        sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
        assert_eq!(sim.image("web"), "web:1");
        assert_eq!(sim.config_maps["settings"], "old");
    }
}

#[test]
fn a_followed_rollout_that_waits_for_its_stamp_has_the_deadline() {
    let mut sim = one(reading("web", "settings"));
    sim.configure("settings", "new");
    sim.deployment("web").set_image("web:2-unready");
    while stage(&sim) != Some(Stage::Promote) {
        sim.elapse();
        sim.pass();
    }
    assert_eq!(sim.journal, []);
    sim.blind = true;
    sim.dirty = true;
    let passed = sim.run_until("the failure", |sim| cause(sim).is_some());
    assert_eq!(cause(&sim), Some(Cause::ProgressDeadlineExceeded));
    assert!(passed.as_secs() < 70, "{passed:?}");
}

/// What waits for its stamp has old pods, whose restarts are nobody's fault.
#[test]
fn pods_that_ran_before_new_contents_came_are_not_judged_while_these_wait() {
    let mut sim = one(reading("web", "settings"));
    sim.deployment("web").restarted(9);
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.configure("settings", "new");
    sim.run(100);
    assert_eq!((sim.reason(), sim.results()), ("Paused", vec![]));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the release", |sim| sim.ready());
    assert_eq!(sim.results(), [ReleaseResult::Succeeded]);
}

/// A stalled rollback of two, each for a reason of its own.
#[test]
fn all_that_a_rollback_waits_for_is_told() {
    let mut sim = plan(
        &[
            configured("web", "web:1", "settings"),
            component("cart", "cart:1"),
        ],
        &[("web", "web:1"), ("cart", "cart:1")],
    );
    sim.configure("settings", "new");
    sim.want("web", "web:2-crash");
    sim.want("cart", "cart:2");
    while stage(&sim) != Some(Stage::Restore) {
        sim.elapse();
        sim.pass();
    }
    sim.snapshots.retain(|_, text| text != "old");
    sim.deployment("cart").broken = true;
    // Nothing of it was awaited yet.
    sim.pass();
    assert!(!ready(&sim).contains("went back"), "{}", ready(&sim));
    sim.run(200);
    assert_eq!((sim.reason(), sim.stalled()), ("SnapshotLost", true));
    for text in [
        "which kept contents of configmap settings, was deleted",
        "; meanwhile, all others were sent back; waiting for ",
        "deployment web to go back",
        "waiting for deployment cart: 2 of 2 pods have the template",
    ] {
        let told: String = ready(&sim).to_owned();
        assert!(told.contains(text), "{text} is missing: {told}");
    }
}

#[test]
fn who_edited_the_plan_last_did_not_ask_for_what_ends_a_stop_by_another_hand() {
    let mut sim = one(reading("web", "settings"));
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.facts.requested_by = Some("jane".to_owned());
    sim.deployment("web").set_image("web:2-crash");
    sim.run_until("the stop", |sim| sim.phase() == Phase::Frozen);
    sim.deployment("web").set_image("web:3");
    sim.run_until("the release", |sim| sim.ready());
    let last = sim.status.history.last().unwrap();
    assert_eq!(
        (last.result, &last.requested_by),
        (ReleaseResult::Succeeded, &None)
    );
}

#[test]
fn who_edited_the_plan_asked_for_what_ends_a_stop_by_that_edit() {
    let mut sim = one(configured("web", "web:1", "settings"));
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.want("web", "web:2-crash");
    sim.run_until("the stop", |sim| sim.phase() == Phase::Frozen);
    sim.facts.requested_by = Some("jane".to_owned());
    sim.want("web", "web:3-crash");
    sim.run_until("the next stop", |sim| {
        sim.phase() == Phase::Frozen && sim.image("web") == "web:3-crash"
    });
    let by = |sim: &Sim| sim.status.release.as_ref().unwrap().requested_by.clone();
    assert_eq!(by(&sim).as_deref(), Some("jane"));
    // The contents are somebody else's.
    sim.configure("settings", "new");
    sim.run_until("the third stop", |sim| {
        sim.phase() == Phase::Frozen && sim.configuration("web") == [Some("new")]
    });
    assert_eq!(by(&sim), None);
}

#[test]
fn contents_that_cannot_be_read_for_too_long_are_not_taken_for_a_workload_that_is_gone() {
    let mut sim = one(configured("web", "web:1", "settings"));
    sim.want("web", "web:2-slow");
    sim.run_until("the release", |sim| sim.image("web") == "web:2-slow");
    sim.blind = true;
    sim.configure("settings", "new");
    sim.run_until("the failure", |sim| cause(sim).is_some());
    assert_eq!(cause(&sim), Some(Cause::ConfigMapUnavailable));
    let releases = sim.status.history.len();
    sim.run(600);
    assert_eq!(
        (sim.status.history.len(), sim.phase()),
        (releases, Phase::Rollback)
    );
    sim.blind = false;
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
}

/// What is not stuck would get the stable template only to get another one a
/// second later.
#[test]
fn nothing_goes_back_any_more_once_newer_content_takes_the_place_of_a_rollback() {
    let mut sim = Sim::settled(
        templated(&[("cart", "cart:1"), ("web", "web:1")]),
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.want("cart", "cart:2-crash");
    sim.want("web", "web:2");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("cart").broken = true;
    for image in ["a", "b", "c", "d", "e", "f"] {
        sim.deployment("cart").set_image(image);
        sim.run(5);
    }
    assert_eq!((sim.reason(), sim.phase()), ("Contended", Phase::Rollback));
    sim.journal.clear();
    sim.deployment("cart").broken = false;
    sim.deployment("web").set_image("web:0");
    sim.want("cart", "cart:3");
    sim.pass();
    assert_eq!((stage(&sim), sim.journal.len()), (Some(Stage::Settle), 0));
    sim.run_until("the release", |sim| sim.ready());
    assert_eq!((sim.image("cart"), sim.image("web")), ("cart:3", "web:2"));
}

/// Pods of a followed workload read the ConfigMap itself.
#[test]
fn what_a_deleted_config_map_means_is_said_of_each_kind_of_component() {
    let stay = "the contents that it had stay in use";
    let lack = "no new pod of deployment cart can start until it exists";
    let web = configured("web", "web:1", "settings");
    let cart = reading("cart", "settings");
    for (component, says) in [(web, stay), (cart, lack)] {
        let mut sim = plan(&[component], &[("web", "web:1"), ("cart", "cart:1")]);
        sim.config_maps.clear();
        sim.dirty = true;
        sim.run(5);
        let told = sim
            .events
            .iter()
            .find(|e| e.reason == Reason::ConfigMapMissing);
        let told = &told.unwrap().note;
        assert_eq!(told, &format!("configmap settings was deleted; {says}"));
        let text = format!("; configmap settings was deleted, and {says}");
        assert!(ready(&sim).ends_with(&text), "{}", ready(&sim));
    }
}

/// A stall that becomes another one is new, however old the first one is.
#[test]
fn what_is_stalled_anew_is_looked_at_soon_and_told_with_its_own_time() {
    let mut sim = one(component("web", "web:1"));
    sim.want("web", "web:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = true;
    sim.run_until("the stall", |sim| sim.reason() == "RollbackStalled");
    sim.run(3000);
    let before = stalled_since(&sim.status).unwrap().clone();
    let stable = sim.status.stable_revision.clone().unwrap();
    let record = sim.revisions.remove(&stable).unwrap();
    sim.dirty = true;
    sim.pass();
    assert_eq!((sim.reason(), sim.stalled()), ("RevisionLost", true));
    let since = stalled_since(&sim.status).unwrap();
    assert!(since.0 > before.0 && since.0 <= sim.now, "{since:?}");
    sim.revisions.insert(stable, record);
    sim.run(2);
    assert_eq!(sim.reason(), "RollbackStalled");
}

/// It is no obstacle, and whoever looks at the release has to know.
#[test]
fn a_release_whose_way_back_is_lost_says_so_as_long_as_it_runs() {
    let mut sim = one(configured("web", "web:1", "settings"));
    sim.configure("settings", "new");
    sim.want("web", "web:2-slow");
    sim.run_until("it is sent", |sim| sim.image("web") == "web:2-slow");
    sim.snapshots.retain(|_, text| text != "old");
    let lost = "could not bring all configuration back: configmap settings-";
    let releases = |sim: &Sim| sim.status.release.is_some();
    let mut told = 0;
    while releases(&sim) {
        sim.dirty = true;
        sim.elapse();
        sim.pass();
        if releases(&sim) {
            assert!(ready(&sim).contains(lost), "{}", ready(&sim));
            told += 1;
        }
    }
    assert!(told > 2 && sim.told(Reason::SnapshotLost) == 1);
    assert!(
        sim.ready() && !ready(&sim).contains(lost),
        "{}",
        ready(&sim)
    );
}

/// What is stable was released before, and something else in between: that is the
/// older one by now.
#[test]
fn the_older_revision_that_is_named_is_the_one_that_was_stable_before() {
    let mut sim = Sim::settled(templated(&[("web", "web:1")]), &[("web", "web:1")]);
    sim.edit(|spec| spec["progressDeadline"] = json!("30s"));
    let mut names = Vec::new();
    for image in ["web:2", "web:1"] {
        sim.want("web", image);
        sim.run_to_the_end();
        sim.run(5);
        names.push(sim.status.stable_revision.clone().unwrap());
    }
    sim.want("web", "web:3-unready");
    sim.run_until("it is sent", |sim| sim.image("web") == "web:3-unready");
    sim.deployment("web").broken = true;
    sim.run_until("it stalls", |sim| sim.reason() == "RollbackStalled");
    let told = sim.condition(ConditionType::Ready).2;
    let older = format!(
        "go to an older one: kubectl annotate relplan shop -n prod belay.dev/undo={}",
        names[0]
    );
    assert!(told.contains(&older), "{told}");
}
