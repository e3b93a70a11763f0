//! What a release began from, where a stable revision comes back with snapshots
//! in the place of names: only what the release changed goes back and is refused.

use serde_json::{Value, json};

use super::{
    commands::retry,
    plans::{configured, followed, reading},
    sim::*,
};
use crate::api::{ConditionType, Phase, ReleaseResult};

const VOLUME: &str = "settings";

/// `cart` reads a ConfigMap by its name, `web` reads nothing.
fn started(spec: Value) -> Sim {
    let mut sim = Sim::new(spec, &[("cart", "cart:1"), ("web", "web:1")]);
    sim.checked = true;
    let cart = sim.deployment("cart");
    cart.mount(VOLUME);
    for _ in 0..8 {
        cart.tick();
    }
    sim.configure(VOLUME, "old");
    sim
}

fn volumes(sim: &Sim) -> &Value {
    &sim.deployments["cart"].template["spec"]["volumes"]
}

fn by_name() -> Value {
    json!([{"name": "config", "configMap": {"name": VOLUME}}])
}

/// A template of `web`, which is followed, that does not run: it goes back, and
/// in the meantime the ConfigMap gets other contents.
fn web_fails_while_contents_move(sim: &mut Sim) -> String {
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.configure(VOLUME, "new");
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("web"), "web:1");
    assert_eq!(sim.configuration("cart"), [Some("old")]);
    let mut refused = sim.status.refused.iter();
    let web = refused.find(|r| r.component.as_deref() == Some("web"));
    web.unwrap().revision.clone()
}

/// Until the status says that a release goes back, and nothing went back yet.
fn before_the_first_write_of_the_rollback(sim: &mut Sim) {
    for _ in 0..2000 {
        sim.elapse();
        while sim.pass() {
            if sim.phase() == Phase::Rollback {
                return;
            }
        }
    }
    panic!("no rollback: {:#?}", sim.status);
}

#[test]
fn a_refused_template_of_one_workload_is_none_of_another_whose_contents_moved() {
    let cart = configured("cart", "cart:2-unready", VOLUME);
    let spec = json!({"components": [cart, followed("web")], "progressDeadline": "60s"});
    let mut sim = started(spec);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(*volumes(&sim), by_name());
    let refused = web_fails_while_contents_move(&mut sim);
    let mut refused_contents = sim.status.refused.iter();
    let last = refused_contents.find(|r| r.revision == refused).unwrap();
    let live: Vec<&str> = last
        .live
        .iter()
        .map(|l| l.workload.name.as_deref().unwrap())
        .collect();
    assert_eq!((live, &last.spec), (vec!["web"], &None));
    let writes = sim.writes_on("cart");
    retry(&mut sim, &refused);
    sim.deployment("web").broken = false;
    sim.run_until("it is tried again", |sim| {
        sim.image("web") == "web:2-unready"
    });
    assert_eq!(sim.writes_on("cart"), writes, "{:#?}", sim.journal);
}

/// A sidecar that is none of the plan's business reads the same ConfigMap, and
/// is what fails: then the whole template goes back.
#[test]
fn stable_content_is_not_refused_where_its_surroundings_came_back_with_snapshots() {
    let mut sim = with_sidecar("cart:1");
    sim.run(30);
    assert!(sim.ready(), "{:#?}", sim.status);
    let stable = sim.parsed().unwrap().content().to_owned();
    let cart = sim.deployment("cart");
    cart.edit(&[PROXY[0], PROXY[1], PROXY[2], "f:image"], json!("envoy:2"));
    cart.broken = true;
    before_the_first_write_of_the_rollback(&mut sim);
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["image"], "envoy:2", "{proxy:#}");
    sim.configure(VOLUME, "new");
    let cart = sim.deployment("cart");
    cart.broken = false;
    cart.repair();
    sim.run_until("the end", |sim| sim.status.release.is_none());
    let refused = &sim.status.refused;
    let is_refused = refused.iter().any(|r| r.spec.as_deref() == Some(&stable));
    assert!(!is_refused, "{refused:#?}");
    // All of the template came back, not what the plan says of it alone.
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["image"], "envoy:1", "{proxy:#}");
    sim.configure(VOLUME, "old");
    sim.run_until("what was stable", |sim| {
        sim.ready() && sim.parsed().unwrap().content() == stable
    });
}

const PROXY: [&str; 4] = [
    "f:spec",
    "f:containers",
    r#"k:{"name":"proxy"}"#,
    "f:envFrom",
];

fn with_sidecar(image: &str) -> Sim {
    let cart = configured("cart", image, VOLUME);
    let spec = json!({"components": [cart, followed("web")], "progressDeadline": "60s"});
    let mut sim = started(spec);
    let cart = sim.deployment("cart");
    cart.edit(&PROXY, sidecar());
    for _ in 0..8 {
        cart.tick();
    }
    sim
}

fn sidecar() -> Value {
    json!([{"configMapRef": {"name": VOLUME}}])
}

/// The plan's content was refused, and then a sidecar was changed that reads the
/// ConfigMap by its name: the stable revision keeps the contents for that.
fn with_a_sidecar_beside_refused_content() -> Sim {
    let mut sim = with_sidecar("cart:1");
    sim.run(30);
    sim.want("cart", "cart:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.status.release.is_none());
    envoy(&mut sim, "envoy:2");
    sim.run_to_the_end();
    sim.run(5);
    assert_eq!(sim.results().last(), Some(&ReleaseResult::Succeeded));
    sim
}

fn envoy(sim: &mut Sim, image: &str) {
    let path = [PROXY[0], PROXY[1], PROXY[2], "f:image"];
    sim.deployment("cart").edit(&path, json!(image));
}

#[test]
fn all_of_a_template_goes_back_of_which_the_surroundings_failed_also_with_snapshots() {
    let mut sim = with_a_sidecar_beside_refused_content();
    sim.deployment("cart").broken = true;
    envoy(&mut sim, "envoy:3");
    before_the_first_write_of_the_rollback(&mut sim);
    sim.configure(VOLUME, "new");
    let cart = sim.deployment("cart");
    cart.broken = false;
    cart.repair();
    sim.run_to_the_end();
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["image"], "envoy:2", "{proxy:#}");
}

#[test]
fn what_surrounds_the_fields_of_a_plan_does_not_come_back_by_snapshot_with_them() {
    let mut sim = with_a_sidecar_beside_refused_content();
    let stable = sim.status.stable_revision.clone();
    sim.want("cart", "cart:3-unready");
    before_the_first_write_of_the_rollback(&mut sim);
    sim.configure(VOLUME, "new");
    sim.run_to_the_end();
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["envFrom"], sidecar());
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.status.stable_revision, stable);
}

/// Nothing of it was written by the plan, and nothing of it comes back.
#[test]
fn names_that_the_plan_does_not_own_stay_where_the_contents_moved() {
    let mut sim = with_sidecar("cart:2-unready");
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:2-unready");
    sim.configure(VOLUME, "new");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["envFrom"], sidecar());
    let read = sim.configuration("cart");
    assert!(read.contains(&Some("old")), "{read:?}");
    let (releases, writes) = (sim.status.history.len(), sim.journal.len());
    sim.run(120);
    assert_eq!(sim.status.history.len(), releases);
    assert_eq!(sim.journal.len(), writes, "{:#?}", sim.journal);
    let writes = sim.writes_on("cart");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    let proxy = &sim.deployments["cart"].template["spec"]["containers"][1];
    assert_eq!(proxy["envFrom"], sidecar());
    assert_eq!(sim.writes_on("cart"), writes, "{:#?}", sim.journal);
}

/// A stable revision keeps what `cart` read before the plan. `web` joins with
/// what the ConfigMap holds by now, which is what its pods run with.
#[test]
fn what_one_template_only_named_is_not_written_back_for_another() {
    let cart = configured("cart", "cart:2-unready", VOLUME);
    let spec = json!({"components": [cart], "progressDeadline": "60s"});
    let mut sim = started(spec);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.configure(VOLUME, "new");
    sim.run(5);
    sim.edit(|spec| spec["components"] = json!([followed("cart"), reading("web", VOLUME)]));
    sim.run_until("both are known", |sim| {
        sim.ready() && sim.status.release.is_none()
    });
    let touched: Vec<_> = sim.status.history.iter().skip(2).collect();
    assert!(touched.is_empty(), "{touched:#?}");
    sim.configure(VOLUME, "newer");
    sim.deployment("web").set_image("web:2-unready");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("web"), "web:1");
    assert_eq!(sim.config_maps[VOLUME], "new");
}

/// The plan tracked the ConfigMap once, and begins to do so again with an edit
/// that takes the place of a release.
#[test]
fn contents_of_an_earlier_tracking_are_not_those_of_before_this_one() {
    let untracked = |image: &str| {
        let mut cart = configured("cart", image, VOLUME);
        cart.as_object_mut().unwrap().remove("configMaps");
        json!({"components": [cart, followed("web")], "progressDeadline": "60s"})
    };
    let tracked = |image: &str| {
        let cart = configured("cart", image, VOLUME);
        json!({"components": [cart, followed("web")], "progressDeadline": "60s"})
    };
    let mut sim = started(untracked("cart:1"));
    sim.run(10);
    assert!(sim.ready(), "{:#?}", sim.status);
    sim.edit(|spec| *spec = tracked("cart:2-unready"));
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    sim.edit(|spec| *spec = untracked("cart:1"));
    sim.run_until("the end", Sim::ready);
    sim.configure(VOLUME, "of today");
    sim.edit(|spec| *spec = untracked("cart:3-slow"));
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:3-slow");
    sim.edit(|spec| *spec = tracked("cart:4-unready"));
    sim.run_until("it is sent", |sim| sim.image("cart") == "cart:4-unready");
    sim.configure(VOLUME, "newest");
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    assert_eq!(sim.image("cart"), "cart:1");
    assert_eq!(sim.configuration("cart"), [Some("of today")]);
}

/// The plan owns nothing of what was live before it, and what it wants is
/// refused: all that people do to the workload itself is judged all the same.
#[test]
fn what_people_do_to_a_workload_that_went_back_to_before_the_plan_is_judged() {
    let cart = configured("cart", "cart:2-unready", VOLUME);
    let spec = json!({"components": [cart], "progressDeadline": "60s"});
    let mut sim = started(spec);
    sim.run_until("the rollback", |sim| sim.phase() == Phase::Rollback);
    sim.run_until("the end", |sim| sim.phase() == Phase::Stable);
    let before = sim.status.history.len();
    sim.deployment("cart").set_image("cart:5");
    sim.run(30);
    assert_eq!(sim.image("cart"), "cart:5");
    let stable = sim.status.stable_revision.clone();
    assert_eq!(sim.status.history.len(), before + 1, "{:#?}", sim.status);
    for _ in 0..2 {
        sim.deployment("cart").set_image("cart:6-unready");
        sim.run_until("it is gone", |sim| sim.image("cart") == "cart:5");
        sim.run_until("the end", |sim| sim.status.release.is_none());
        assert_eq!(sim.status.history.len(), before + 2);
    }
    assert_eq!(sim.status.stable_revision, stable);
    // And why it went back is told, not why the content of the plan did before.
    let last = sim.status.history.last().unwrap();
    let (told, revision) = (
        sim.condition(ConditionType::Ready).2,
        last.revision.as_ref(),
    );
    assert!(
        told.contains(&format!("belay.dev/retry={}", revision.unwrap())),
        "{told}"
    );
}

#[test]
fn a_name_beside_the_snapshot_is_told_where_all_is_well() {
    let mut sim = with_sidecar("cart:2");
    sim.run_to_the_end();
    sim.run(5);
    assert!(sim.ready());
    let told = sim.condition(ConditionType::Ready).2;
    let text =
        "deployment cart names configmap settings also where the template of the plan does not";
    assert!(told.contains(text), "{told}");
}
