//! ConfigMaps of followed workloads, whose contents go back themselves.

use serde_json::{Value, json};

use super::{cluster::fields_of, sim::*};
use crate::{
    api::{ABORT, CONFIG_DIGEST, Phase, ReleaseResult},
    machine::Action,
};

fn pair() -> Sim {
    let mut sim = Sim::new(
        json!({"components": [reading("cart", "settings"), reading("web", "settings")],
               "progressDeadline": "60s"}),
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    assert_eq!(sim.journal, [], "nothing restarts for a plan that begins");
    sim.events.clear();
    sim
}

fn stamp(sim: &Sim, name: &str) -> Option<String> {
    let template = &sim.deployments[name].template;
    let stamp = template["metadata"]["annotations"].get(CONFIG_DIGEST)?;
    stamp.as_str().map(str::to_owned)
}

fn text(sim: &Sim) -> &str {
    &sim.config_maps["settings"]
}

/// The writes in order, ownership left out.
fn written(sim: &Sim) -> Vec<String> {
    let writes = sim.journal.iter().filter(|(what, _)| *what != "own");
    writes.map(|(what, on)| format!("{what} {on}")).collect()
}

/// A pair whose second component breaks with new contents, on its way back.
fn failing() -> Sim {
    let mut sim = pair();
    sim.configure("settings", "bad");
    sim.run_until("both are sent", |sim| {
        stamp(sim, "cart").is_some() && stamp(sim, "web").is_some()
    });
    sim.deployment("web").broken = true;
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.journal.clear();
    sim
}

fn broken() -> Sim {
    let mut sim = pair();
    sim.deployment("web").broken = true;
    sim.configure("settings", "bad");
    let back = |sim: &Sim| {
        sim.status
            .release
            .as_ref()
            .is_some_and(|r| r.failure.is_some())
    };
    for _ in 0..300 {
        if back(&sim) {
            break;
        }
        sim.elapse();
        if sim.dirty || sim.wake_at.is_some_and(|at| at <= sim.now) {
            while !back(&sim) && sim.pass() {}
        }
    }
    assert!(back(&sim), "{:#?}", sim.status);
    sim.deployment("web").broken = false;
    sim.journal.clear();
    sim
}

#[test]
fn other_contents_roll_the_pods_by_one_annotation_that_is_belays() {
    let mut sim = pair();
    sim.configure("settings", "new");
    sim.run_until("the release", |sim| {
        stamp(sim, "web").is_some() && sim.ready()
    });
    assert_eq!(written(&sim), ["replace cart", "replace web"]);
    assert_eq!(sim.status.history.len(), 1);
    let owned = fields_of(&json!({"metadata": {"annotations": {CONFIG_DIGEST: ""}}}));
    assert_eq!(sim.deployments["web"].ours, owned);
    let first = stamp(&sim, "web");
    sim.configure("settings", "newer");
    sim.run_until("the release", |sim| {
        stamp(sim, "web") != first && sim.ready()
    });
    sim.delete();
    sim.run(5);
    assert!(sim.gone && !sim.deployments["web"].marked());
    assert!(
        stamp(&sim, "web").is_some(),
        "no pod restarts because a plan goes"
    );
}

/// Where contents cannot be written, the templates that go with them wait.
#[test]
fn writes_of_templates_name_the_contents_that_belong_to_them() {
    let sim = broken();
    let world = sim.observe();
    let decision = sim.decide(&world);
    let named: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Replace { write } => Some(Vec::from_iter(write.config_maps.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(named, [["settings"], ["settings"]], "{decision:#?}");
}

#[test]
fn contents_go_back_before_the_templates() {
    let mut sim = broken();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(written(&sim)[0], "write settings");
    assert_eq!(written(&sim).len(), 3, "{:?}", sim.journal);
    assert_eq!((text(&sim), sim.reason()), ("old", "RolledBack"));
    assert_eq!((stamp(&sim, "cart"), stamp(&sim, "web")), (None, None));
    sim.run(60);
    assert_eq!(sim.reason(), "RolledBack", "it stays said");
    sim.configure("settings", "good");
    sim.run_until("the release", |sim| {
        stamp(sim, "web").is_some() && sim.ready()
    });
}

#[test]
fn code_and_contents_go_back_together() {
    let mut sim = pair();
    sim.configure("settings", "bad");
    sim.deployment("web").set_image("web:2-crash");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((text(&sim), sim.image("web")), ("old", "web:1"));
}

#[test]
fn go_01_refused_contents_that_come_back_are_sent_back_a_few_times() {
    let mut sim = broken();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.journal.clear();
    let releases = sim.status.history.len();
    for _ in 0..20 {
        sim.configure("settings", "bad");
        sim.run(5);
    }
    assert_eq!(sim.status.history.len(), releases);
    assert_eq!(written(&sim), ["write settings"; 3]);
    assert_eq!((sim.reason(), sim.stalled()), ("Contended", true));
    assert_eq!((stamp(&sim, "cart"), stamp(&sim, "web")), (None, None));
    sim.configure("settings", "good");
    sim.run_until("the release", |sim| {
        stamp(sim, "web").is_some() && sim.ready()
    });
}

#[test]
fn rb_06_an_edit_since_the_release_is_not_written_over() {
    let mut sim = broken();
    sim.configure("settings", "edited by hand");
    sim.run(10);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapEdited", true));
    assert_eq!((text(&sim), sim.journal.len()), ("edited by hand", 0));
    sim.configure("settings", "bad");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((text(&sim), sim.reason()), ("old", "RolledBack"));
}

#[test]
fn a_person_may_end_a_rollback_that_an_edit_holds() {
    let mut sim = broken();
    sim.configure("settings", "edited by hand");
    sim.run(10);
    sim.facts.abort.clone_from(&sim.status.target_revision);
    assert!(
        sim.condition(crate::api::ConditionType::Ready)
            .2
            .contains(&format!("{ABORT}={}", sim.facts.abort.as_deref().unwrap()))
    );
    sim.dirty = true;
    sim.run(5);
    assert_eq!((sim.phase(), text(&sim)), (Phase::Failed, "edited by hand"));
    sim.configure("settings", "another edit");
    sim.run_until("the release", |sim| {
        sim.phase() == Phase::Stable && sim.ready()
    });
}

#[test]
fn rb_06_contents_of_an_immutable_config_map_go_back_once_it_is_deleted() {
    let mut sim = broken();
    sim.immutable = true;
    sim.run(10);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((text(&sim), sim.reason()), ("old", "RolledBack"));
}

#[test]
fn a_config_map_that_was_deleted_in_mid_release_is_made_again() {
    let mut sim = broken();
    sim.config_maps.clear();
    sim.dirty = true;
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!((text(&sim), sim.reason()), ("old", "RolledBack"));
}

#[test]
fn contents_that_go_back_by_themselves_are_a_revert() {
    let mut sim = pair();
    sim.deployment("web").broken = true;
    sim.configure("settings", "new");
    sim.run_until("both are sent", |sim| stamp(sim, "web").is_some());
    sim.deployment("web").broken = false;
    sim.configure("settings", "old");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable && sim.ready());
    assert_eq!(stamp(&sim, "web"), None);
    assert!(sim.status.refused.is_empty());
}

#[test]
fn contents_edited_in_mid_release_take_its_place() {
    let mut sim = pair();
    sim.deployment("web").broken = true;
    sim.configure("settings", "new");
    sim.run_until("both are sent", |sim| stamp(sim, "web").is_some());
    sim.deployment("web").broken = false;
    sim.configure("settings", "newer");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable && sim.ready());
    assert_eq!(
        sim.results(),
        [ReleaseResult::Superseded, ReleaseResult::Succeeded]
    );
    let why = sim.status.history[0].message.as_deref().unwrap();
    assert!(
        why.starts_with("configmap settings has other contents; "),
        "{why}"
    );
}

#[test]
fn an_undo_brings_contents_back_and_holds_them() {
    let mut sim = pair();
    let first = sim.status.stable_revision.clone().unwrap();
    for text in ["second", "third"] {
        sim.configure("settings", text);
        sim.run_until("the release", |sim| {
            sim.phase() == Phase::Stable
                && sim.ready()
                && sim.status.history.len() == if text == "second" { 1 } else { 2 }
        });
    }
    let second = sim.status.history[0].revision.clone().unwrap();
    for (to, wanted) in [(second, "second"), (first, "old")] {
        sim.facts.undo = Some(to);
        sim.dirty = true;
        sim.run_until("the undo", |sim| {
            text(sim) == wanted && sim.reason() == "Undone" && sim.facts.undo.is_none()
        });
        sim.run(30);
        assert_eq!((text(&sim), sim.reason()), (wanted, "Undone"));
    }
    assert_eq!(sim.results(), [ReleaseResult::Succeeded; 4]);
}

#[test]
fn a_retry_writes_refused_contents_again() {
    let mut sim = broken();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.facts.retry = Some(sim.status.refused[0].revision.clone());
    sim.dirty = true;
    sim.run_until("the release", |sim| {
        text(sim) == "bad" && sim.phase() == Phase::Stable && sim.ready()
    });
    assert!(stamp(&sim, "web").is_some());
}

#[test]
fn edited_contents_wait_while_the_plan_is_paused() {
    let mut sim = pair();
    sim.edit(|spec| spec["paused"] = json!(true));
    sim.configure("settings", "new");
    sim.run(30);
    assert_eq!((sim.reason(), sim.journal.len()), ("Paused", 0));
    sim.edit(|spec| spec["paused"] = json!(false));
    sim.run_until("the release", |sim| {
        stamp(sim, "web").is_some() && sim.ready()
    });
}

#[test]
fn frozen_contents_stay_until_newer_ones_come() {
    let mut sim = pair();
    sim.edit(|spec| spec["onFailure"] = json!("Freeze"));
    sim.deployment("web").broken = true;
    sim.configure("settings", "bad");
    sim.run_until("the end", |sim| sim.phase() == Phase::Frozen);
    sim.deployment("web").broken = false;
    sim.run(10);
    assert_eq!((sim.phase(), text(&sim)), (Phase::Frozen, "bad"));
    sim.configure("settings", "good");
    sim.run_until("the release", |sim| {
        sim.phase() == Phase::Stable && sim.ready()
    });
}

#[test]
fn deletion_in_mid_release_brings_contents_back() {
    let mut sim = failing();
    sim.delete();
    sim.run(120);
    assert!(sim.gone);
    assert_eq!((text(&sim), stamp(&sim, "web")), ("old", None));
    assert!(sim.snapshots.is_empty(), "nothing names them");
}

#[test]
fn a_config_map_that_is_tracked_later_restarts_nothing() {
    let mut sim = Sim::settled(
        json!({"components": [followed("web")]}),
        &[("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("settings", "first");
    sim.edit(|spec| spec["components"][0] = reading("web", "settings"));
    sim.run_until("the record", |sim| sim.ready() && sim.snapshots.len() == 1);
    assert_eq!((sim.journal.clone(), sim.status.history.len()), (vec![], 0));
    sim.configure("settings", "second");
    sim.run_until("the release", |sim| {
        stamp(sim, "web").is_some() && sim.ready()
    });
    sim.edit(|spec| {
        drop(
            spec["components"][0]
                .as_object_mut()
                .unwrap()
                .remove("configMaps"),
        )
    });
    let template: Value = sim.deployments["web"].template.clone();
    sim.run(30);
    assert_eq!(
        (sim.ready(), &sim.deployments["web"].template),
        (true, &template)
    );
    assert!(!sim.deployments["web"].marked());
}

/// An edit of one ConfigMap keeps neither the plan nor the other one.
#[test]
fn a_plan_that_goes_brings_back_what_nobody_edited() {
    let mut web = reading("web", "settings");
    web["configMaps"] = json!(["edited", "settings"]);
    let mut sim = Sim::new(
        json!({"components": [web], "progressDeadline": "60s"}),
        &[("web", "web:1")],
    );
    sim.configure("edited", "old");
    sim.configure("settings", "old");
    sim.run(60);
    sim.deployment("web").broken = true;
    sim.configure("edited", "bad");
    sim.configure("settings", "bad");
    sim.run_until("the release", |sim| stamp(sim, "web").is_some());
    sim.configure("edited", "by hand");
    sim.deployment("web").broken = false;
    sim.delete();
    sim.run(120);
    assert!(sim.gone);
    assert_eq!(
        (text(&sim), sim.config_maps["edited"].as_str()),
        ("old", "by hand")
    );
}
