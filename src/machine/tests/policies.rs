//! ConfigMaps that a policy, a quota or missing rights keep from being written:
//! that is said in the words of the API server, and holds nothing else.

use serde_json::json;

use super::sim::*;
use crate::api::{ABORT, Cause, ConditionType, Phase, Reason};

const QUOTA: &str = "exceeded quota: configmaps=9";

fn ready(sim: &Sim) -> &str {
    sim.condition(ConditionType::Ready).2
}

/// Two followed components that read a ConfigMap each.
fn pair() -> Sim {
    let mut sim = Sim::new(
        json!({"components": [reading("cart", "prices"), reading("web", "settings")],
               "progressDeadline": "60s"}),
        &[("cart", "cart:1"), ("web", "web:1")],
    );
    sim.checked = true;
    sim.configure("prices", "old");
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim
}

/// The same, with new contents of both that fail, and one that cannot go back.
fn stuck() -> Sim {
    let mut sim = pair();
    sim.deployment("web").broken = true;
    sim.configure("prices", "new");
    sim.configure("settings", "new");
    sim.run_until("both are sent", |sim| {
        let sent = |name: &str| sim.deployments[name].marked();
        sent("cart") && sent("web")
    });
    sim.policies.insert("settings".to_owned(), QUOTA);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.deployment("web").broken = false;
    sim.run(20);
    sim
}

#[test]
fn contents_that_cannot_go_back_are_said_and_hold_only_their_workload() {
    let mut sim = stuck();
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    let failure = sim.status.release.as_ref().unwrap().failure.as_ref();
    assert!(failure.is_some(), "{:#?}", sim.status);
    assert_eq!(sim.config_maps["prices"], "old");
    assert_eq!(sim.config_maps["settings"], "new");
    let target = sim.status.target_revision.clone().unwrap();
    for text in [
        "the contents of configmap settings-",
        " ; meanwhile, all others were sent back; waiting for deployment web to go back",
        "cannot be written to configmap settings: exceeded quota: configmaps=9. Change what refuses it; or end this where it is: kubectl annotate relplan shop -n prod",
        &format!("{ABORT}={target}"),
    ] {
        assert!(ready(&sim).contains(text), "{}", ready(&sim));
    }
    let status = sim.status.clone();
    sim.run(600);
    assert_eq!(
        (&sim.status, sim.told(Reason::ConfigMapRefused)),
        (&status, 1)
    );
    sim.policies.clear();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.config_maps["settings"], "old");
    assert_eq!(sim.status.refused.len(), 1);
}

#[test]
fn a_person_may_end_a_rollback_whose_contents_cannot_be_written() {
    let mut sim = stuck();
    sim.facts.abort.clone_from(&sim.status.target_revision);
    sim.dirty = true;
    sim.run(5);
    assert_eq!(
        (sim.phase(), sim.facts.abort.as_ref()),
        (Phase::Failed, None)
    );
    assert_eq!(sim.config_maps["settings"], "new");
}

#[test]
fn contents_that_cannot_be_written_do_not_hold_a_plan_that_goes_for_ever() {
    let mut sim = stuck();
    sim.delete();
    sim.run(10);
    assert!(!sim.gone, "it is tried for a while");
    sim.run(180);
    assert!(sim.gone, "{:#?}", sim.status);
}

#[test]
fn contents_that_cannot_be_kept_are_not_released_and_are_said_once() {
    let mut sim = Sim::new(
        json!({"components": [configured("cart", "cart:1", "settings")]}),
        &[("cart", "cart:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.events.clear();
    sim.journal.clear();
    sim.policies.insert("settings-*".to_owned(), QUOTA);
    sim.configure("settings", "new");
    sim.want("cart", "cart:2");
    sim.run(10);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    let text = "which has to keep contents of configmap settings, cannot be stored: exceeded quota: configmaps=9. Change what refuses it";
    assert!(ready(&sim).contains(text), "{}", ready(&sim));
    let (status, passes) = (sim.status.clone(), sim.passes);
    sim.run(600);
    assert_eq!((&sim.status, sim.journal.len()), (&status, 0));
    assert_eq!(sim.told(Reason::ConfigMapRefused), 1, "{:#?}", sim.events);
    assert!(sim.passes - passes < 40, "{}", sim.passes - passes);
    sim.policies.clear();
    sim.run_until("the release", |sim| {
        sim.image("cart") == "cart:2" && sim.ready()
    });
    assert_eq!(sim.configuration("cart"), [Some("new")]);
}

#[test]
fn a_first_release_whose_contents_cannot_be_kept_says_so_and_goes_on_later() {
    let mut sim = Sim::new(
        json!({"components": [configured("cart", "cart:2", "settings")]}),
        &[("cart", "cart:1-crash")],
    );
    sim.configure("settings", "first");
    sim.policies.insert("settings-*".to_owned(), QUOTA);
    sim.run(60);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    let status = sim.status.clone();
    sim.run(600);
    assert_eq!(sim.status, status);
    sim.policies.clear();
    sim.run_until("the release", Sim::ready);
    assert_eq!(sim.configuration("cart"), [Some("first")]);
}

/// The content that took the place of another one is not what was released, so
/// all of it goes back.
#[test]
fn contents_that_cannot_be_kept_in_mid_release_lead_back() {
    let mut sim = Sim::new(
        json!({"components": [configured("cart", "cart:1", "settings")]}),
        &[("cart", "cart:1")],
    );
    sim.checked = true;
    sim.configure("settings", "old");
    sim.run(60);
    sim.want("cart", "cart:2-slow");
    sim.run_until("the release", |sim| sim.image("cart") == "cart:2-slow");
    sim.policies.insert("settings-*".to_owned(), QUOTA);
    sim.configure("settings", "new");
    sim.run_until("the way back", |sim| sim.image("cart") == "cart:1");
    sim.run(60);
    assert_eq!(
        (sim.reason(), sim.phase()),
        ("ConfigMapRefused", Phase::Stable)
    );
    sim.policies.clear();
    sim.run_until("the release", |sim| sim.ready());
    assert_eq!(sim.configuration("cart"), [Some("new")]);
}

#[test]
fn a_retry_whose_contents_cannot_be_written_is_refused_in_these_words() {
    let mut sim = stuck();
    sim.policies.clear();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(10);
    sim.policies.insert("settings".to_owned(), QUOTA);
    let refused = &sim.status.refused[0];
    assert_ne!(refused.cause, Cause::Undone);
    sim.facts.retry = Some(refused.revision.clone());
    sim.dirty = true;
    sim.run(20);
    assert_eq!(sim.facts.retry, None);
    let told = sim.events.iter().find(|e| e.reason == Reason::RetryIgnored);
    let told = &told.unwrap().note;
    assert!(told.contains(QUOTA), "{told}");
    assert_eq!(sim.reason(), "RolledBack");
}

#[test]
fn refused_contents_that_come_back_and_cannot_be_replaced_are_said() {
    let mut sim = stuck();
    sim.policies.clear();
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.run(10);
    sim.policies.insert("settings".to_owned(), QUOTA);
    sim.configure("settings", "new");
    sim.run(20);
    assert_eq!((sim.reason(), sim.stalled()), ("ConfigMapRefused", true));
    let status = sim.status.clone();
    sim.run(300);
    assert_eq!(sim.status, status);
    sim.policies.clear();
    sim.run_until("they are back", |sim| sim.config_maps["settings"] == "old");
}
