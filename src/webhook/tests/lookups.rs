//! What `/validate` finds out from the cluster.

use super::*;
use crate::fields::FieldSet;

fn cluster() -> Cluster {
    Cluster::with(&[("cart", &["app", "proxy"]), ("db", &["db"])])
}

async fn validate(cluster: &Arc<Cluster>, review: &Value) -> Answer {
    ask(&webhooks(cluster.clone()), VALIDATE, review).await
}

#[tokio::test]
async fn a_plan_that_fits_the_cluster_is_admitted_without_a_word() {
    let cluster = Arc::new(cluster());
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    assert_eq!(answer.warnings(), [""; 0]);
    assert_eq!(cluster.asked(), (2, 1), "only the templated one is dry-run");
}

#[tokio::test]
async fn mutate_asks_the_cluster_nothing() {
    let cluster = Arc::new(cluster());
    ask(&webhooks(cluster.clone()), MUTATE, &create(&plan()))
        .await
        .accepted();
    assert_eq!(cluster.asked(), (0, 0));
}

/// WV-06: plans may be applied before their workloads.
#[tokio::test]
async fn wv_06_a_workload_that_does_not_exist_yet_is_a_warning() {
    let cluster = Arc::new(Cluster::default());
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    assert_eq!(
        answer.warnings(),
        [
            "deployment cart does not exist yet: the plan waits for it",
            "deployment db does not exist yet: the plan waits for it"
        ]
    );
}

/// WV-06: nor does admission need rights on them.
#[tokio::test]
async fn wv_06_workloads_that_cannot_be_read_are_warnings() {
    let cluster = Arc::new(Cluster {
        broken: true,
        ..cluster()
    });
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    let warnings = answer.warnings();
    assert_eq!(
        warnings[0],
        "deployment cart was not checked: deployments.apps is forbidden"
    );
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_costs_two_seconds_and_a_warning() {
    let cluster = Arc::new(Cluster {
        hangs: true,
        ..cluster()
    });
    let start = Instant::now();
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    assert_eq!(start.elapsed().as_secs(), 2);
    assert!(
        answer.warnings()[0].contains("did not answer in time"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_misspelt_container_is_a_denial_that_names_the_right_ones() {
    let cluster = Arc::new(cluster());
    let mut plan = plan();
    plan["spec"]["components"][0]["template"]["spec"]["containers"][0]["name"] = json!("ap");
    let answer = validate(&cluster, &create(&plan)).await;
    let message = answer.denied(422);
    assert!(
        message.contains("deployment cart has no container ap (it has: app, proxy)"),
        "{message}"
    );
    let cause = &answer.response()["status"]["details"]["causes"][0];
    assert_eq!(
        cause["field"],
        "spec.components[0].template.spec.containers[0].name"
    );
    assert_eq!(cluster.asked().1, 0, "there is no point in a dry run");
}

#[tokio::test]
async fn a_template_that_the_api_server_refuses_is_a_denial_in_its_words() {
    let cluster = Arc::new(cluster());
    let words = "failed to create typed patch object: .spec.imag: field not declared in schema";
    *cluster.dry_run.lock().unwrap() = vec![ApplyFailure::Refused(words.into())];
    let answer = validate(&cluster, &create(&plan())).await;
    let message = answer.denied(422);
    assert!(message.contains(words), "{message}");
    assert!(
        message.contains("spec.components[0].template: Invalid value"),
        "{message}"
    );
}

#[tokio::test]
async fn a_dry_run_that_decides_nothing_is_a_warning() {
    let cluster = Arc::new(cluster());
    *cluster.dry_run.lock().unwrap() = vec![ApplyFailure::Undecided("etcd is away".into())];
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    assert_eq!(
        answer.warnings(),
        ["the template of deployment cart was not checked: etcd is away"]
    );
}

#[tokio::test]
async fn a_workload_that_changes_meanwhile_is_read_again() {
    let cluster = Arc::new(cluster());
    *cluster.dry_run.lock().unwrap() = vec![ApplyFailure::Conflict];
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    assert_eq!(answer.warnings(), [""; 0]);
    assert_eq!(cluster.asked(), (3, 2));
}

#[tokio::test]
async fn what_was_admitted_before_is_not_looked_up_again() {
    let cluster = Arc::new(cluster());
    let old = stored(&plan()).await;
    let mut new = old.clone();
    new["spec"]["bakeTime"] = json!("1m");
    validate(&cluster, &update(&old, &new)).await.accepted();
    assert_eq!(cluster.asked(), (0, 0));
    new["spec"]["components"][0]["template"]["spec"]["containers"][0]["image"] = json!("cart:3");
    validate(&cluster, &update(&old, &new)).await.accepted();
    assert_eq!(cluster.asked(), (1, 1));
}

#[tokio::test]
async fn a_plan_that_is_being_deleted_is_not_looked_up() {
    let cluster = Arc::new(cluster());
    let mut old = stored(&plan()).await;
    old["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    validate(&cluster, &update(&old, &new)).await.accepted();
    assert_eq!(cluster.asked(), (0, 0));
}

/// A plan whose templated component tracks `settings`, and whose followed one
/// tracks `site`.
fn tracking() -> Value {
    let mut plan = plan();
    let components = &mut plan["spec"]["components"];
    components[0]["configMaps"] = json!(["settings"]);
    components[0]["template"]["spec"]["volumes"] =
        json!([{"name": "settings", "configMap": {"name": "settings"}}]);
    components[1]["configMaps"] = json!(["site"]);
    plan
}

/// WV-06: so may they be applied before their ConfigMaps.
#[tokio::test]
async fn wv_06_a_config_map_that_does_not_exist_yet_is_a_warning_with_its_place() {
    let answer = validate(&Arc::new(cluster()), &create(&tracking())).await;
    answer.accepted();
    assert_eq!(
        answer.warnings(),
        [
            "configmap settings does not exist yet: the plan waits for it (spec.components[0].configMaps[0])",
            "configmap site does not exist yet: the plan waits for it (spec.components[1].configMaps[0])",
        ]
    );
    let cluster = Arc::new(Cluster {
        config_maps: vec!["settings", "site"],
        ..cluster()
    });
    let answer = validate(&cluster, &create(&tracking())).await;
    assert_eq!(answer.warnings(), [""; 0]);
}

#[tokio::test]
async fn one_config_map_of_several_components_is_told_at_every_place() {
    let mut plan = tracking();
    plan["spec"]["components"][1]["configMaps"] = json!(["site", "other"]);
    let third = json!({"workload": {"kind": "Deployment", "name": "web"}, "configMaps": ["site"]});
    plan["spec"]["components"]
        .as_array_mut()
        .unwrap()
        .push(third);
    let cluster = Arc::new(Cluster {
        config_maps: vec!["settings", "other"],
        ..cluster()
    });
    let answer = validate(&cluster, &create(&plan)).await;
    let mut told = answer.warnings();
    told.retain(|warning| warning.contains("configmap"));
    assert_eq!(
        told,
        [
            "configmap site does not exist yet: the plan waits for it (spec.components[1].configMaps[0])",
            "configmap site does not exist yet: the plan waits for it (spec.components[2].configMaps[0])",
        ]
    );
}

/// What was told when it was asked for is not told at every label.
#[tokio::test]
async fn a_config_map_that_is_missing_is_told_when_something_new_is_asked_for() {
    let cluster = Arc::new(cluster());
    let old = stored(&tracking()).await;
    let mut new = old.clone();
    new["spec"]["bakeTime"] = json!("1m");
    let answer = validate(&cluster, &update(&old, &new)).await;
    assert_eq!(answer.warnings(), [""; 0]);
    // Of the workload of a followed component nothing new is asked then.
    new["spec"]["components"][1]["configMaps"] = json!(["sites"]);
    let answer = validate(&cluster, &update(&old, &new)).await;
    let told = answer.warnings().join("\n");
    assert!(
        told.contains("configmap sites does not exist yet"),
        "{told}"
    );
    assert_eq!(cluster.asked(), (0, 0));
}

/// Not only of the component that asks for something new: what is released then
/// needs the others, too.
#[tokio::test]
async fn each_config_map_that_was_deleted_is_told_in_a_line_with_its_own_effect() {
    let mut old = stored(&tracking()).await;
    let seen = |name| json!({"name": name, "digest": "d", "missing": true});
    old["status"] = json!({"configMaps": [seen("settings"), seen("site")]});
    let mut new = old.clone();
    new["spec"]["components"][0]["template"]["spec"]["containers"][0]["image"] = json!("cart:3");
    let answer = validate(&Arc::new(cluster()), &update(&old, &new)).await;
    answer.accepted();
    assert_eq!(
        answer.warnings(),
        [
            "configmap settings is gone: the template keeps its last contents (spec.components[0].configMaps[0])",
            "configmap site is gone: no new pod that needs it can start (spec.components[1].configMaps[0])",
        ]
    );
}

#[tokio::test]
async fn the_warning_of_a_config_map_with_a_long_name_is_one_line() {
    let mut plan = tracking();
    let long = format!("site-{}", "x".repeat(200));
    plan["spec"]["components"][1]["configMaps"] = json!([long]);
    let cluster = Arc::new(Cluster {
        config_maps: vec!["settings"],
        ..cluster()
    });
    let answer = validate(&cluster, &create(&plan)).await;
    let warnings = answer.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("configmap site-xxx"),
        "{warnings:?}"
    );
    assert!(
        warnings[0].ends_with(
            "x… does not exist yet: the plan waits for it (spec.components[1].configMaps[0])"
        ),
        "{warnings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn config_maps_that_cannot_be_looked_up_are_warnings() {
    let broken = Arc::new(Cluster {
        broken: true,
        ..cluster()
    });
    let answer = validate(&broken, &create(&tracking())).await;
    answer.accepted();
    assert!(
        answer
            .warnings()
            .iter()
            .any(|w| w.starts_with("configmap site was not checked: ")),
        "{answer:?}"
    );
    let hanging = Arc::new(Cluster {
        hangs: true,
        ..cluster()
    });
    let old = stored(&tracking()).await;
    let mut new = old.clone();
    new["spec"]["components"][1]["configMaps"] = json!(["sites"]);
    for review in [create(&tracking()), update(&old, &new)] {
        let start = Instant::now();
        let answer = validate(&hanging, &review).await;
        answer.accepted();
        assert_eq!(start.elapsed().as_secs(), 2);
        let text = "tracked configmaps were not checked: the cluster did not answer in time";
        assert!(answer.warnings().contains(&text), "{answer:?}");
    }
}

/// WV-07: the visible case is told at once; who keeps the workload is decided
/// by the controller.
#[tokio::test]
async fn wv_07_a_workload_that_another_plan_holds_is_a_warning_with_its_name() {
    let mut rival = stored(&plan()).await;
    rival["metadata"]["name"] = json!("market");
    let cluster = Arc::new(Cluster {
        plans: vec![serde_json::from_value(rival).unwrap()],
        ..cluster()
    });
    let answer = validate(&cluster, &create(&plan())).await;
    answer.accepted();
    let warning =
        "deployment cart belongs to ReleasePlan market: this plan does nothing until it lets go";
    assert_eq!(answer.warnings()[0], warning);
}

/// Another plan that tracks `settings`, with a template or without.
async fn market(templated: bool) -> StoredPlan {
    let mut market = stored(&tracking()).await;
    market["metadata"]["name"] = json!("market");
    let components = market["spec"]["components"].as_array_mut().unwrap();
    components.truncate(1);
    components[0]["workload"]["name"] = json!("stall");
    if !templated {
        components[0].as_object_mut().unwrap().remove("template");
    }
    serde_json::from_value(market).unwrap()
}

async fn shared(plans: Vec<StoredPlan>, review: &Value) -> String {
    let cluster = Arc::new(Cluster {
        plans,
        config_maps: vec!["settings", "site"],
        ..cluster()
    });
    let answer = validate(&cluster, review).await;
    answer.accepted();
    answer.warnings().join(" ")
}

/// A rollback without a template writes into the ConfigMap itself.
#[tokio::test]
async fn a_config_map_that_goes_back_for_one_plan_and_is_new_for_another_is_a_warning() {
    let (followed, templated) = (market(false).await, market(true).await);
    let told = shared(vec![followed.clone()], &create(&tracking())).await;
    assert_eq!(
        told,
        "configmap settings (spec.components[0].configMaps[0]) is tracked by ReleasePlan market too: a rollback of market writes its old contents back, which is new content for shop"
    );
    let mut here = tracking();
    let component = here["spec"]["components"][0].as_object_mut().unwrap();
    component.remove("template");
    let told = shared(vec![templated.clone()], &create(&here)).await;
    assert_eq!(
        told,
        "configmap settings (spec.components[0].configMaps[0]) is tracked by ReleasePlan market too: a rollback of shop writes its old contents back, which is new content for market"
    );
    // Each has a snapshot of its own.
    let told = shared(vec![templated], &create(&tracking())).await;
    assert_eq!(told, "");
    // The plan is no other than itself, and what was told once is told.
    let mut own = followed.clone();
    own.metadata.name = Some("shop".to_owned());
    let told = shared(vec![own], &create(&tracking())).await;
    assert_eq!(told, "");
    let old = stored(&tracking()).await;
    let mut new = old.clone();
    new["spec"]["components"][1]["workload"]["name"] = json!("cache");
    let told = shared(vec![followed.clone()], &update(&old, &new)).await;
    assert!(!told.contains("market"), "{told}");
    // Only the ConfigMap is new.
    let mut before = old.clone();
    before["spec"]["components"][0]
        .as_object_mut()
        .unwrap()
        .remove("configMaps");
    let told = shared(vec![followed], &update(&before, &old)).await;
    assert!(told.contains("is tracked by ReleasePlan market"), "{told}");
}

/// A plan that gives arguments of its own, on a workload that has others.
fn arguments() -> (Cluster, Value) {
    let mut cluster = cluster();
    let container = |args: Value| json!({"spec": {"containers": [{"name": "app", "args": args}]}});
    cluster.workloads[0].1.template = container(json!(["-v", "--port=80"]));
    cluster.merged = Merged {
        template: container(json!(["-q"])),
        owned: FieldSet::parse(&json!({"f:spec": {"f:containers": {
            r#"k:{"name":"app"}"#: {".": {}, "f:name": {}, "f:args": {}},
        }}}))
        .unwrap(),
    };
    let mut plan = plan();
    plan["spec"]["components"][0]["template"] = container(json!(["-q"]));
    (cluster, plan)
}

#[tokio::test]
async fn a_list_that_is_replaced_whole_is_a_warning_with_both_values() {
    let (cluster, plan) = arguments();
    let cluster = Arc::new(cluster);
    let answer = validate(&cluster, &create(&plan)).await;
    answer.accepted();
    assert_eq!(
        answer.warnings().join(" "),
        r#"spec.containers[name="app"].args of deployment cart is replaced whole, not merged: ["-v","--port=80"] becomes ["-q"]"#
    );
}

#[tokio::test]
async fn a_list_that_the_plan_has_taken_over_is_not_warned_of_again() {
    let (mut cluster, plan) = arguments();
    let old = stored(&plan).await;
    let mut new = old.clone();
    new["spec"]["components"][0]["template"]["spec"]["containers"][0]["image"] = json!("cart:3");
    // Not owned yet, but told when it was admitted.
    let answer = validate(&Arc::new(cluster), &update(&old, &new)).await;
    answer.accepted();
    assert_eq!(answer.warnings(), [""; 0]);
    (cluster, _) = arguments();
    cluster.workloads[0].1.owned = cluster.merged.owned.clone();
    let cluster = Arc::new(cluster);
    let answer = validate(&cluster, &create(&plan)).await;
    answer.accepted();
    assert_eq!(answer.warnings(), [""; 0]);
    assert_eq!(cluster.asked(), (2, 1));
}
