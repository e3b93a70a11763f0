//! ConfigMaps that are released with the code that reads them.

use serde_json::json;

use super::sim::*;
use crate::{
    api::{Cause, Phase, Reason, ReleasePlanStatus, ReleaseRecord, ReleaseResult},
    config_maps::{Kept, MAX_BYTES},
    machine::Action,
};

fn pair() -> Sim {
    let mut sim = Sim::new(
        json!({"components": [configured("cart", "cart:1", "settings"), configured("web", "web:1", "settings")],
               "progressDeadline": "60s"}),
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.journal.clear();
    sim.events.clear();
    sim
}

fn both(sim: &Sim, text: &str) -> bool {
    ["cart", "web"].map(|name| sim.configuration(name)) == [[Some(text)], [Some(text)]]
}

#[test]
fn one_config_map_of_several_components_is_one_snapshot() {
    let sim = pair();
    assert!(both(&sim, "old"));
    assert_eq!(sim.snapshots.values().collect::<Vec<_>>(), ["old"]);
}

#[test]
fn only_other_contents_are_a_release() {
    let mut sim = pair();
    let releases = sim.status.history.len();
    sim.configure("settings", "old");
    sim.run(30);
    assert_eq!((sim.status.history.len(), sim.journal.len()), (releases, 0));
    sim.configure("settings", "new");
    sim.run_until("the release", |sim| both(sim, "new") && sim.ready());
    let record = sim.status.history.last().unwrap();
    assert_eq!(
        (record.result, sim.image("cart")),
        (ReleaseResult::Succeeded, "cart:1")
    );
    let changes = record.changes.join("\n");
    assert!(
        changes.starts_with("cart: configmap settings: ")
            && changes.contains("\nweb: configmap settings: "),
        "{changes}"
    );
    assert_eq!(record.changes.len(), 2, "{changes}");
}

/// Nobody is named for what the plan does not tell: who edited the ConfigMap, or
/// the Deployment.
#[test]
fn a_release_names_who_edited_the_plan_and_nobody_for_what_others_edited() {
    let mut sim = pair();
    sim.facts.requested_by = Some("ann".to_owned());
    sim.configure("settings", "new");
    sim.run_to_the_end();
    let last = |sim: &Sim| sim.status.history.last().unwrap().requested_by.clone();
    assert_eq!(last(&sim), None);
    sim.want("cart", "cart:2");
    sim.run_to_the_end();
    assert_eq!(last(&sim).as_deref(), Some("ann"));
    sim.deployment("web").restart("now");
    sim.dirty = true;
    sim.run_to_the_end();
    assert_eq!(last(&sim), None);
}

/// The same where it takes the place of what is being released.
#[test]
fn what_supersedes_a_release_is_named_for_what_it_is() {
    let mut sim = pair();
    sim.facts.requested_by = Some("joe".to_owned());
    sim.want("cart", "cart:2-unready");
    sim.run(10);
    sim.configure("settings", "new");
    sim.run(10);
    sim.want("cart", "cart:3");
    sim.run_until("the end", |sim| sim.ready());
    // The first one tracks the ConfigMap.
    let records: Vec<_> = sim.status.history.iter().skip(1).collect();
    let why = |record: &ReleaseRecord| {
        let why = record.message.clone().unwrap_or_default();
        (
            why.split(';').next().unwrap().to_owned(),
            record.requested_by.clone(),
        )
    };
    let joe = Some("joe".to_owned());
    assert_eq!(
        records.into_iter().map(why).collect::<Vec<_>>(),
        [
            (
                "configmap settings has other contents".to_owned(),
                joe.clone()
            ),
            ("the plan has newer content".to_owned(), None),
            (String::new(), joe),
        ]
    );
}

/// Contents that come back are nobody's edit.
#[test]
fn an_edit_of_the_plan_in_the_middle_of_an_undo_is_named_for_what_it_is() {
    let mut sim = pair();
    let first = sim.status.stable_revision.clone();
    sim.configure("settings", "new");
    sim.run_until("the release", |sim| both(sim, "new") && sim.ready());
    sim.run(10);
    sim.deployment("web").broken = true;
    sim.facts.undo = first;
    sim.dirty = true;
    sim.run_until("the undo", |sim| both(sim, "old"));
    sim.facts.requested_by = Some("joe".to_owned());
    sim.want("cart", "cart:3");
    sim.run_until("the end of the undo", |sim| {
        let last = sim.status.history.last().unwrap();
        last.result == ReleaseResult::Superseded
    });
    let why = sim.status.history.last().unwrap().message.clone();
    assert!(why.unwrap().starts_with("the plan has newer content; "));
    let release = sim.status.release.as_ref().unwrap();
    assert_eq!(release.requested_by.as_deref(), Some("joe"));
}

#[test]
fn a_rollback_brings_back_the_old_contents() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.want("web", "web:2-crash");
    sim.run_until("both are sent", |sim| both(sim, "new"));
    sim.config_maps.remove("settings");
    sim.dirty = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Stable);
    assert!(both(&sim, "old"));
    assert_eq!(sim.reason(), "RolledBack");
    assert_eq!(sim.told(Reason::ConfigMapMissing), 1);
    assert!(sim.status.config_maps[0].missing);
}

#[test]
fn refused_contents_are_not_released_again_with_the_code_that_failed() {
    let mut sim = pair();
    sim.configure("settings", "bad");
    sim.deployment("web").broken = true;
    sim.run_until("both are sent", |sim| both(sim, "bad"));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.journal.clear();
    for _ in 0..5 {
        sim.configure("settings", "bad");
        sim.run(20);
    }
    assert_eq!(sim.journal, []);
    assert_eq!((sim.reason(), both(&sim, "old")), ("RolledBack", true));
    sim.configure("settings", "good");
    sim.run_until("the release", |sim| both(sim, "good") && sim.ready());
}

#[test]
fn contents_that_go_back_by_themselves_are_no_release() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.want("web", "web:2-slow");
    sim.run_until("both are sent", |sim| both(sim, "new"));
    sim.configure("settings", "old");
    sim.want("web", "web:1");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable && sim.ready());
    assert!(both(&sim, "old"));
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Reverted));
    assert!(sim.status.refused.is_empty());
}

#[test]
fn edits_in_a_burst_end_in_few_releases_and_the_last_contents() {
    let mut sim = pair();
    for edit in 0..100 {
        sim.configure("settings", &format!("edit {edit}"));
        if edit % 10 == 9 {
            sim.tick();
        } else {
            sim.rest();
        }
    }
    sim.run_until("the last one", |sim| both(sim, "edit 99") && sim.ready());
    assert!(sim.status.history.len() <= 6, "{:#?}", sim.status.history);
}

#[test]
fn a_plan_waits_for_its_config_map_and_goes_on_by_itself() {
    let spec = json!({"components": [configured("cart", "cart:1", "settings")]});
    let mut sim = Sim::new(spec, &[("cart", "cart:1")]);
    sim.checked = true;
    sim.run(30);
    assert_eq!((sim.reason(), sim.stalled()), ("TargetsMissing", false));
    assert!(
        sim.condition(crate::api::ConditionType::Ready)
            .2
            .contains("configmap settings")
    );
    assert_eq!(sim.journal, []);
    sim.configure("settings", "first");
    sim.run_until("the release", Sim::ready);
    assert_eq!(sim.configuration("cart"), [Some("first")]);
}

#[test]
fn in_mid_release_a_new_config_map_that_is_not_there_yet_waits_for_the_end() {
    let mut sim = pair();
    sim.want("web", "web:2-slow");
    sim.run_until("the release", |sim| sim.image("web") == "web:2-slow");
    sim.edit(|spec| spec["components"][0] = configured("cart", "cart:1", "later"));
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(
        (sim.reason(), sim.image("web")),
        ("TargetsMissing", "web:2-slow")
    );
    sim.configure("later", "here");
    sim.run_until("the release", Sim::ready);
    assert_eq!(sim.configuration("cart"), [Some("here")]);
}

#[test]
fn sm_07_a_failed_read_is_not_a_change() {
    let mut sim = pair();
    let before = sim.status.clone();
    sim.unreadable = true;
    for _ in 0..5 {
        sim.dirty = true;
        sim.run(20);
    }
    assert_eq!((sim.status.clone(), sim.journal.len()), (before.clone(), 0));
    sim.unreadable = false;
    sim.dirty = true;
    sim.run(20);
    assert_eq!(sim.status, before);
    sim.config_maps.remove("settings");
    sim.dirty = true;
    sim.run(20);
    assert_eq!((sim.journal.len(), sim.ready()), (0, true));
    assert_eq!(sim.told(Reason::ConfigMapMissing), 1);
    let text = sim.condition(crate::api::ConditionType::Ready).2;
    assert!(text.contains("configmap settings was deleted"), "{text}");
}

#[test]
fn other_code_is_released_with_the_kept_contents_of_a_deleted_config_map() {
    let mut sim = pair();
    sim.config_maps.clear();
    sim.want("web", "web:2");
    sim.run_until("the release", |sim| {
        sim.image("web") == "web:2" && sim.ready()
    });
    assert!(both(&sim, "old"));
}

#[test]
fn contents_that_were_deleted_before_they_were_kept_are_waited_for() {
    let mut sim = pair();
    sim.configure("settings", "fleeting");
    sim.rest();
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run(30);
    assert_eq!((sim.reason(), sim.stalled()), ("TargetsMissing", false));
    assert!(both(&sim, "old"));
    assert_eq!(sim.journal, []);
    sim.configure("settings", "again");
    sim.run_until("the release", |sim| both(sim, "again") && sim.ready());
}

#[test]
fn a_config_map_that_is_too_large_is_refused_with_its_size() {
    let mut sim = pair();
    sim.configure("settings", &"x".repeat(MAX_BYTES + 1));
    sim.run(30);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    assert!(
        sim.condition(crate::api::ConditionType::Ready)
            .2
            .contains("921601 bytes")
    );
    assert!(both(&sim, "old"));
    sim.configure("settings", "small");
    sim.run_until("the release", |sim| both(sim, "small") && sim.ready());
}

/// The snapshot of the stable revision is gone when it is needed.
fn lost() -> Sim {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.want("web", "web:2-unready");
    sim.run_until("both are sent", |sim| both(sim, "new"));
    sim.snapshots.retain(|_, text| text == "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim
}

#[test]
fn a_rollback_without_its_snapshot_says_so_and_goes_on_with_the_contents() {
    let mut sim = lost();
    sim.run(5);
    assert_eq!((sim.reason(), sim.stalled()), ("SnapshotLost", true));
    assert!(both(&sim, "new"), "no template names what is not there");
    sim.configure("settings", "old");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert!(both(&sim, "old"));
}

#[test]
fn what_is_being_released_goes_back_if_its_snapshot_is_lost() {
    let mut sim = pair();
    sim.edit(|spec| spec["components"][1]["after"] = json!(["cart"]));
    sim.configure("settings", "new");
    sim.want("cart", "cart:2-slow");
    sim.run_until("the first is sent", |sim| {
        sim.image("cart") == "cart:2-slow"
    });
    sim.snapshots.retain(|_, text| text == "old");
    sim.config_maps.clear();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert!(both(&sim, "old"));
    assert_eq!(sim.status.refused[0].cause, Cause::SnapshotLost);
}

#[test]
fn an_undo_brings_back_the_contents_of_then() {
    let mut sim = pair();
    let first = sim.status.stable_revision.clone().unwrap();
    for text in ["second", "third"] {
        sim.configure("settings", text);
        sim.run_until("the release", |sim| both(sim, text) && sim.ready());
    }
    sim.facts.undo = Some(first);
    sim.dirty = true;
    sim.run_until("the undo", |sim| sim.reason() == "Undone");
    assert!(both(&sim, "old"));
    sim.run(30);
    assert!(both(&sim, "old"), "the contents of the plan are held");
    sim.configure("settings", "fourth");
    sim.run_until("the release", |sim| both(sim, "fourth") && sim.ready());
}

#[test]
fn a_retry_releases_refused_contents_again() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.deployment("web").broken = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.facts.retry = Some(sim.status.refused[0].revision.clone());
    sim.dirty = true;
    sim.run_until("the release", |sim| both(sim, "new") && sim.ready());
}

#[test]
fn snapshots_stay_as_long_as_something_names_them() {
    let mut sim = pair();
    sim.edit(|spec| spec["revisionHistoryLimit"] = json!(2));
    for edit in 0..8 {
        let text = format!("edit {edit}");
        sim.configure("settings", &text);
        sim.run_until("the release", |sim| both(sim, &text) && sim.ready());
    }
    let kept: Vec<&String> = sim.snapshots.values().collect();
    assert!(kept.len() <= 4, "{kept:?}");
    assert!(kept.contains(&&"edit 7".to_owned()) && kept.contains(&&"edit 6".to_owned()));
    sim.delete();
    sim.run(10);
    assert!(
        sim.gone && both(&sim, "edit 7"),
        "what is in use outlives the plan"
    );
}

#[test]
fn a_status_that_is_lost_is_rebuilt_with_the_contents() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.run_until("the release", |sim| both(sim, "new") && sim.ready());
    sim.status = ReleasePlanStatus::default();
    sim.journal.clear();
    sim.dirty = true;
    sim.run(10);
    assert_eq!((sim.ready(), sim.journal.len()), (true, 0));
    sim.configure("settings", "bad");
    sim.want("web", "web:2-crash");
    sim.run_until("the rollback", |sim| sim.reason() == "RolledBack");
    assert!(both(&sim, "new"));
}

#[test]
fn deletion_in_mid_release_brings_back_the_old_contents() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.want("web", "web:2-unready");
    sim.run_until("both are sent", |sim| both(sim, "new"));
    sim.delete();
    sim.run(60);
    assert!(sim.gone && both(&sim, "old"));
}

#[test]
fn a_config_map_that_leaves_the_plan_leaves_the_template_too() {
    let mut sim = pair();
    sim.edit(|spec| {
        for component in spec["components"].as_array_mut().unwrap() {
            component.as_object_mut().unwrap().remove("configMaps");
        }
    });
    sim.run_until("the release", |sim| {
        sim.ready() && sim.deployments["web"].named() == ["settings".to_owned()].into()
    });
    assert!(sim.status.config_maps.is_empty());
    let changes = sim.status.history.last().unwrap().changes.join("; ");
    let left = "cart: configmap settings: not tracked any more";
    assert!(changes.contains(left), "{changes}");
}

/// A snapshot that cannot be read is not lost: nothing fails, nothing is
/// written, and the same pass goes on once it can be read.
#[test]
fn a_snapshot_that_cannot_be_read_holds_a_release_and_does_not_fail_it() {
    let mut sim = pair();
    sim.configure("settings", "new");
    let promotes = |sim: &Sim| {
        let world = sim.observe();
        let actions = sim.decide(&world).actions;
        actions.iter().any(|a| matches!(a, Action::Apply { .. }))
    };
    for _ in 0..60 {
        if promotes(&sim) {
            break;
        }
        sim.elapse();
        sim.pass();
    }
    assert!(promotes(&sim), "{:#?}", sim.status);
    let mut world = sim.observe();
    for kept in world.snapshots.values_mut() {
        *kept = Kept::Unknown(DENIED.to_owned());
    }
    let decision = sim.decide(&world);
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.phase, Some(Phase::RollingOut));
    let release = decision.status.release.as_ref().unwrap();
    assert!(release.failure.is_none(), "{:?}", release.failure);
    let ready = decision
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == "Ready");
    let ready = ready.unwrap();
    assert_eq!(ready.reason, "TargetsMissing");
    let mut conditions = decision.status.conditions.iter();
    let stalled = conditions.any(|c| c.type_ == "Stalled" && c.status == "True");
    assert!(!stalled, "nobody has to do anything");
    let text =
        "to be readable (configmaps is forbidden), which keeps contents of configmap settings";
    assert!(ready.message.contains(text), "{ready:?}");
}

/// A plan whose ConfigMap was never read is not told that it does not exist.
#[test]
fn a_config_map_that_was_never_read_is_waited_for() {
    let mut sim = Sim::new(
        json!({"components": [configured("cart", "cart:1", "settings")]}),
        &[("cart", "cart:1")],
    );
    sim.configure("settings", "old");
    sim.unreadable = true;
    sim.run(30);
    assert_eq!(sim.reason(), "TargetsMissing");
    let ready = sim.status.conditions.iter().find(|c| c.type_ == "Ready");
    let message = &ready.unwrap().message;
    assert_eq!(
        message,
        "waiting for configmap settings to be readable (configmaps is forbidden). It is read again by itself"
    );
    assert_eq!(sim.journal, []);
    sim.unreadable = false;
    sim.dirty = true;
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
}
