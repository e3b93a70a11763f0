//! Whatever happens in whatever order: every decision keeps the invariants, and
//! when it stops happening the plan comes to an end.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::{
    cluster::{Deployment, fields_of},
    sim::*,
};
use crate::{
    api::{CONFIG_DIGEST, ConditionType, Phase},
    plan::{abortable, retryable, undoable},
};

const IMAGES: [&str; 9] = [
    "1",
    "2",
    "3",
    "2-crash",
    "3-unready",
    "2-pullerror",
    "2-slow",
    "3-dies",
    "2-refused",
];
const MAPS: [&str; 2] = ["settings", "site"];
const NAMES: [&str; 3] = ["db", "cart", "web"];

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    /// The plan wants an image of a templated component.
    Want(usize, usize),
    /// The plan wants a variable of a component, or none.
    Variable(usize, Option<bool>),
    /// The plan takes the arguments of a component away, or says nothing of them.
    Empty(usize, bool),
    /// Somebody sets arguments on a Deployment.
    Fill(usize),
    /// Somebody sets an image on a Deployment.
    SetImage(usize, usize),
    /// Somebody edits the ConfigMap, or deletes it.
    Configure(usize, Option<u8>),
    Unreadable(bool),
    Restart(usize, u8),
    Scale(usize, i32),
    Pause(bool),
    Valid(bool),
    Retry,
    /// Somebody wants what is being released, or rolled back, ended.
    Abort,
    /// Somebody wants one of the kept revisions back.
    Undo(prop::sample::Index),
    Freeze(bool),
    /// The process dies before one of its next writes.
    Crash(usize),
    /// The next pass reads the Deployments of this moment, whenever it comes.
    Stale,
    Break(usize, bool),
    Vanish(usize),
    Incumbent(bool),
    Leave(bool),
    /// The plan tracks the ConfigMap of a templated component, or does not.
    Track(bool),
    /// The plan has a template for a component, or follows it.
    Template(bool),
    /// Somebody applies a manifest of their own, which names the ConfigMap.
    Mount,
    Jump(u16),
    Run(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let name = 0..NAMES.len();
    prop_oneof![
        4 => (0..2_usize, 0..IMAGES.len()).prop_map(|(n, i)| Event::Want(n, i)),
        2 => (0..2_usize, any::<Option<bool>>()).prop_map(|(n, v)| Event::Variable(n, v)),
        1 => (0..2_usize, any::<bool>()).prop_map(|(n, e)| Event::Empty(n, e)),
        1 => name.clone().prop_map(Event::Fill),
        3 => (name.clone(), 0..IMAGES.len() - 1).prop_map(|(n, i)| Event::SetImage(n, i)),
        4 => (0..2_usize, prop::option::weighted(0.8, 0..4_u8)).prop_map(|(n, t)| Event::Configure(n, t)),
        1 => any::<bool>().prop_map(Event::Unreadable),
        1 => (name.clone(), 0..3_u8).prop_map(|(n, at)| Event::Restart(n, at)),
        1 => (name.clone(), 0..4).prop_map(|(n, to)| Event::Scale(n, to)),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<bool>().prop_map(Event::Valid),
        1 => Just(Event::Retry),
        2 => Just(Event::Abort),
        1 => any::<prop::sample::Index>().prop_map(Event::Undo),
        1 => any::<bool>().prop_map(Event::Freeze),
        3 => (0..6_usize).prop_map(Event::Crash),
        1 => Just(Event::Stale),
        1 => (name.clone(), any::<bool>()).prop_map(|(n, b)| Event::Break(n, b)),
        1 => name.prop_map(Event::Vanish),
        1 => any::<bool>().prop_map(Event::Incumbent),
        1 => any::<bool>().prop_map(Event::Leave),
        1 => any::<bool>().prop_map(Event::Track),
        2 => any::<bool>().prop_map(Event::Template),
        1 => Just(Event::Mount),
        1 => (0..900_u16).prop_map(Event::Jump),
        6 => (0..25_u8).prop_map(Event::Run),
    ]
}

fn start() -> Sim {
    let mut cart = configured("cart", "cart:1", "settings");
    cart["after"] = json!(["db"]);
    let spec = json!({
        "components": [component("db", "db:1"), cart, reading("web", "site")],
        "progressDeadline": "30s",
        "bakeTime": "5s",
    });
    let mut sim = Sim::new(
        spec,
        &[("db", "db:1"), ("cart", "cart:1"), ("web", "web:1")],
    );
    for name in MAPS {
        sim.configure(name, "text 0");
    }
    // What is live before the plan names it, too.
    let cart = sim.deployment("cart");
    cart.mount("settings");
    for _ in 0..8 {
        cart.tick();
    }
    sim.run(60);
    assert!(sim.ready());
    sim.checked = true;
    sim
}

fn happen(sim: &mut Sim, event: &Event) {
    match event {
        Event::Want(n, _) | Event::Variable(n, _) | Event::Empty(n, _)
            if !has_template(sim, *n) => {}
        Event::Want(n, i) => sim.want(NAMES[*n], &format!("{}:{}", NAMES[*n], IMAGES[*i])),
        Event::Template(given) => sim.edit(|spec| {
            let cart = spec["components"][1].as_object_mut().unwrap();
            if !given {
                cart.remove("template");
            } else if !cart.contains_key("template") {
                let mut whole = configured("cart", "cart:1", "settings");
                cart.insert("template".to_owned(), whole["template"].take());
            }
        }),
        Event::Mount => on(sim, 1, |cart| cart.mount("settings")),
        Event::Variable(n, value) => sim.edit(|spec| {
            let container = &mut spec["components"][*n]["template"]["spec"]["containers"][0];
            match value {
                Some(true) => container["env"] = json!([{"name": "LOG", "value": "debug"}]),
                Some(false) => container["env"] = json!([{"name": "NEW", "value": "1"}]),
                None => drop(container.as_object_mut().unwrap().remove("env")),
            }
        }),
        Event::Track(tracked) => sim.edit(|spec| {
            let cart = spec["components"][1].as_object_mut().unwrap();
            if *tracked {
                cart.insert("configMaps".to_owned(), json!(["settings"]));
            } else {
                cart.remove("configMaps");
            }
        }),
        Event::Empty(n, empty) => sim.edit(|spec| {
            let container = &mut spec["components"][*n]["template"]["spec"]["containers"][0];
            let container = container.as_object_mut().unwrap();
            if *empty {
                container.insert("args".to_owned(), json!([]));
            } else {
                container.remove("args");
            }
        }),
        Event::Fill(n) => on(sim, *n, |deployment| deployment.set_args(&["-x"])),
        Event::SetImage(n, i) => {
            let image = format!("{}:{}", NAMES[*n], IMAGES[*i]);
            on(sim, *n, |deployment| deployment.set_image(&image));
        }
        Event::Configure(n, Some(text)) => sim.configure(MAPS[*n], &format!("text {text}")),
        Event::Configure(n, None) => {
            sim.config_maps.remove(MAPS[*n]);
            sim.dirty = true;
        }
        Event::Unreadable(unreadable) => {
            sim.unreadable = *unreadable;
            sim.dirty = true;
        }
        Event::Restart(n, at) => on(sim, *n, |d| d.restart(&at.to_string())),
        Event::Scale(n, to) => on(sim, *n, |d| d.replicas = *to),
        Event::Pause(paused) => sim.edit(|spec| spec["paused"] = json!(paused)),
        Event::Valid(valid) => sim.edit(|spec| {
            spec["progressDeadline"] = json!(if *valid { "30s" } else { "nonsense" });
        }),
        Event::Retry => {
            sim.facts.retry = retryable(&sim.status).last().map(|r| (*r).to_owned());
            sim.dirty = true;
        }
        Event::Abort => {
            sim.facts.abort = abortable(&sim.status).map(str::to_owned);
            sim.dirty = true;
        }
        Event::Undo(index) => {
            let kept = undoable(&sim.status);
            let wanted = (!kept.is_empty()).then(|| (*index.get(&kept)).to_owned());
            sim.facts.undo = wanted;
            sim.dirty = true;
        }
        Event::Freeze(freeze) => sim.edit(|spec| {
            spec["onFailure"] = json!(if *freeze { "Freeze" } else { "Rollback" });
        }),
        Event::Crash(after) => sim.crash_at = Some(sim.writes + after),
        Event::Stale => sim.stale = Some(sim.deployments.clone()),
        Event::Break(n, broken) => on(sim, *n, |d| d.broken = *broken),
        Event::Vanish(n) => {
            sim.deployments.remove(NAMES[*n]);
            sim.dirty = true;
        }
        Event::Incumbent(there) => {
            sim.incumbents.clear();
            if *there {
                sim.incumbents.insert("db".to_owned(), "other".to_owned());
            }
            sim.dirty = true;
        }
        Event::Leave(left) => sim.edit(|spec| {
            let components = spec["components"].as_array_mut().unwrap();
            components.retain(|c| c["name"] != "web");
            if !left {
                components.push(reading("web", "site"));
            }
        }),
        Event::Jump(seconds) => {
            sim.now += k8s_openapi::jiff::SignedDuration::from_secs(i64::from(*seconds));
        }
        Event::Run(seconds) => sim.run(usize::from(*seconds)),
    }
}

fn has_template(sim: &Sim, n: usize) -> bool {
    sim.spec["components"][n].get("template").is_some()
}

fn on(sim: &mut Sim, n: usize, change: impl FnOnce(&mut Deployment)) {
    if let Some(deployment) = sim.deployments.get_mut(NAMES[n]) {
        change(deployment);
        deployment.version += 1;
        sim.dirty = true;
    }
}

/// The faults stop; what people want stays.
fn heal(sim: &mut Sim) {
    sim.crash_at = None;
    sim.stale = None;
    sim.incumbents.clear();
    sim.unreadable = false;
    for name in MAPS {
        let text = sim.config_maps.get(name).cloned();
        sim.configure(name, &text.unwrap_or_else(|| "text 0".to_owned()));
    }
    for name in NAMES {
        let image = format!("{name}:1");
        let uid = format!("uid-{name}-{}", sim.writes);
        let deployment = sim.deployments.entry(name.to_owned());
        deployment
            .or_insert_with(|| Deployment::new(&uid, &image))
            .broken = false;
    }
    happen(sim, &Event::Pause(false));
    happen(sim, &Event::Valid(true));
    happen(sim, &Event::Leave(false));
    happen(sim, &Event::Template(true));
}

proptest! {
    // A history is long: a tenth of the usual number, which PROPTEST_CASES
    // still scales.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 10, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_invariants_and_comes_to_an_end(events in prop::collection::vec(event(), 1..16)) {
        let mut sim = start();
        for event in &events {
            happen(&mut sim, event);
        }
        heal(&mut sim);
        sim.run(1000);
        // Where the stable templates themselves no longer work, a rollback ends
        // stalled, and waits for new content. So it does where somebody edited a
        // ConfigMap that has to go back.
        let waits = ["RollbackStalled", "ConfigMapEdited"].contains(&sim.reason());
        prop_assert!(
            matches!(sim.phase(), Phase::Stable | Phase::Failed | Phase::Frozen) || waits,
            "no end: {:#?}", sim.status
        );
        // A component that joined while it was broken is waited for.
        let waits = sim.reason() == "BaselineUnavailable";
        prop_assert!(waits || !sim.condition(ConditionType::Reconciling).0, "{:#?}", sim.status);
        // The set of components changes only once a stopped release has ended.
        if sim.status.release.is_some() && sim.status.components.len() != NAMES.len() {
            sim.facts.undo.clone_from(&sim.status.stable_revision);
            sim.dirty = true;
            sim.run(100);
        }
        let refused: Vec<_> = sim.status.refused.iter().map(|r| r.revision.clone()).collect();

        sim.want("db", "db:9");
        sim.want("cart", "cart:9");
        on(&mut sim, 2, |web| web.set_image("web:9"));
        sim.run(200);
        prop_assert!(sim.ready(), "good content is released in the end ({refused:?}): {:#?}", sim.status);
        for name in NAMES {
            prop_assert_eq!(sim.image(name), format!("{name}:9"));
        }
        let owned = fields_of(&json!({"metadata": {"annotations": {CONFIG_DIGEST: ""}}}));
        prop_assert!(sim.deployments["web"].ours.is_subset(&owned));
        prop_assert!(!sim.deployments["web"].updated_by_us);
        let text = sim.config_maps["settings"].clone();
        prop_assert_eq!(sim.configuration("cart"), [Some(text.as_str())]);

        sim.delete();
        sim.run(5);
        prop_assert!(sim.gone);
        prop_assert!(sim.deployments.values().all(|d| !d.marked()));
    }

    /// Restored from a backup, or wiped by somebody: what was stable is told
    /// from the revisions or by a person, and good content is released again.
    #[test]
    fn a_status_that_is_lost_at_any_moment_is_made_again(
        before in prop::collection::vec(event(), 1..8),
        after in prop::collection::vec(event(), 0..5),
        choice in any::<prop::sample::Index>(),
    ) {
        let mut sim = start();
        for event in &before {
            happen(&mut sim, event);
        }
        sim.lose_status();
        for event in &after {
            happen(&mut sim, event);
        }
        heal(&mut sim);
        sim.run(1000);
        if sim.reason() == "StatusLost" {
            prop_assert!(sim.stalled());
            let kept: Vec<_> = sim.revisions.keys().cloned().collect();
            sim.facts.undo = Some(choice.get(&kept).clone());
            sim.dirty = true;
            sim.run(1000);
        }
        if sim.status.release.is_some() && sim.status.components.len() != NAMES.len() {
            sim.facts.undo.clone_from(&sim.status.stable_revision);
            sim.dirty = true;
            sim.run(100);
        }
        sim.want("db", "db:9");
        sim.want("cart", "cart:9");
        on(&mut sim, 2, |web| web.set_image("web:9"));
        sim.run(300);
        prop_assert!(sim.ready(), "good content is released in the end: {:#?}", sim.status);
        sim.delete();
        sim.run(5);
        prop_assert!(sim.gone);
        prop_assert!(sim.deployments.values().all(|d| !d.marked()));
        prop_assert!(sim.revisions.is_empty());
    }

    #[test]
    fn a_plan_can_be_deleted_at_any_moment(events in prop::collection::vec(event(), 1..12)) {
        let mut sim = start();
        for event in &events {
            happen(&mut sim, event);
        }
        sim.crash_at = None;
        sim.incumbents.clear();
        let stable = sim.status.release.as_ref().map(|_| sim.status.stable_revision.clone());
        sim.delete();
        for name in NAMES {
            on(&mut sim, NAMES.iter().position(|n| *n == name).unwrap(), |d| d.broken = false);
        }
        for _ in 0..700 {
            if !sim.gone {
                sim.run(1);
            }
        }
        prop_assert!(sim.gone, "from {stable:?}: {:#?}", sim.status);
        prop_assert!(sim.deployments.values().all(|d| !d.marked()));
        prop_assert!(sim.revisions.is_empty());
        // What was in use when the plan went belongs to the workloads.
        let named: BTreeSet<String> = sim.deployments.values().flat_map(Deployment::named).collect();
        prop_assert!(sim.snapshots.keys().all(|name| named.contains(name)));
    }
}
