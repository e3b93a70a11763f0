//! Tracked ConfigMaps below their components.

use expect_test::{expect, expect_file};
use serde_json::json;

use super::super::{
    changes::changes,
    fixtures::*,
    objects::DeploymentView,
    render::{Layout, tree},
};

fn shown(cluster: &Cluster, width: usize) -> String {
    let layout = Layout {
        width,
        height: None,
    };
    let lines = tree(&cluster.status(), now(), layout);
    assert!(lines.iter().all(|line| line.width() <= width));
    lines.iter().map(|line| line.plain() + "\n").collect()
}

/// The lines about ConfigMaps.
fn maps(cluster: &Cluster) -> String {
    let text = shown(cluster, 200);
    let lines = text.lines().filter(|line| line.contains(" config "));
    lines
        .map(|line| line.trim_start().to_owned() + "\n")
        .collect()
}

#[test]
fn a_release_shows_from_which_contents_to_which() {
    let cluster = configuration("Promote", 'a');
    expect_file!["../golden/configuration_80.txt"].assert_eq(&shown(&cluster, 80));
    expect_file!["../golden/configuration_200.txt"].assert_eq(&shown(&cluster, 200));
    expect![[r#"
        ├ config cart-config: cart-config-bfd6ef2148 (live) → back to cart-config-a9fe79a470
        ├ config web-config: contents 3fa5834dc9 → back to contents c100f95c19
    "#]]
    .assert_eq(&maps(&configuration("Restore", 'c')));
}

/// Whoever edits it while all goes back sees why nothing comes of it yet.
#[test]
fn an_edit_that_waits_for_the_end_of_a_rollback_is_told() {
    let edited = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut cluster = configuration("Restore", 'c');
        let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
        change(&mut plan);
        cluster.plan = Some(serde_json::from_value(plan).unwrap());
        cluster
    };
    let quiet = edited(&|_| {});
    assert!(quiet.status().waiting.is_empty());
    assert!(!shown(&quiet, 200).contains("  Then "));
    let cluster = edited(&|plan| plan["status"]["configMaps"] = seen('e', 'b', false));
    let text = shown(&cluster, 200);
    assert!(
        text.contains("  Then    newer content is looked at: configmap/cart-config\n"),
        "{text}"
    );
    expect![[r#"
        ├ config cart-config: cart-config-bfd6ef2148 (live) → back to cart-config-a9fe79a470; the ConfigMap holds other contents by now
        ├ config web-config: contents 3fa5834dc9 → back to contents c100f95c19
    "#]]
    .assert_eq(&maps(&cluster));
    let newer = |plan: &mut serde_json::Value| {
        plan["metadata"]["annotations"] = json!({"belay.dev/release-generation": "5"});
        plan["status"]["release"]["generation"] = json!(4);
    };
    assert_eq!(edited(&newer).status().waiting, ["releaseplan/shop"]);
    // A plan that goes takes nothing newer.
    let deleted = edited(&|plan| {
        newer(plan);
        plan["metadata"]["deletionTimestamp"] = json!("2026-03-01T03:03:58Z");
        plan["status"]["configMaps"] = seen('e', 'b', false);
    });
    assert!(deleted.status().waiting.is_empty());
    // Nothing is written over an edit of one that goes back in place.
    let in_place = |reason: &'static str| {
        edited(&move |plan| {
            plan["status"]["configMaps"] = seen('c', 'e', false);
            plan["status"]["conditions"][0]["reason"] = json!(reason);
        })
    };
    let waits = in_place("RollingBack").status().waiting;
    assert_eq!(waits, ["configmap/web-config"]);
    assert!(in_place("ConfigMapEdited").status().waiting.is_empty());
}

#[test]
fn at_rest_each_shows_what_is_stable_and_where_that_is_not_what_is_there() {
    expect![[r#"
        ├ config cart-config → cart-config-a9fe79a470
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&configured('a', 'b', &snapshot('a'), false)));
    // Contents that were refused stay in the ConfigMap of a templated component.
    expect![[r#"
        ├ config cart-config → cart-config-a9fe79a470; the ConfigMap holds other contents by now
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&configured('c', 'b', &snapshot('a'), false)));
    // Somebody applied a manifest.
    expect![[r#"
        ├ config cart-config → cart-config-a9fe79a470; the live template names cart-config
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&configured('a', 'b', "cart-config", false)));
    expect![[r#"
        ├ config cart-config → cart-config-a9fe79a470; missing, its last contents stay in use
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&configured('a', 'b', &snapshot('a'), true)));
}

#[test]
fn without_the_revisions_what_is_live_is_told() {
    let mut cluster = configured('a', 'b', &snapshot('a'), false);
    cluster.revisions.clear();
    expect![[r#"
        ├ config cart-config → cart-config-a9fe79a470
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&cluster));
    cluster.deployments.clear();
    cluster.sets.clear();
    expect![[r#"
        └ config cart-config → contents ac8d8342bb
        └ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&cluster));
}

#[test]
fn of_a_plan_that_is_not_valid_the_revisions_tell() {
    let mut cluster = configured('a', 'b', &snapshot('a'), false);
    let valid = maps(&cluster);
    cluster.plan.as_mut().unwrap().spec["progressDeadline"] = json!("soon");
    assert_eq!(maps(&cluster), valid);
}

#[test]
fn one_that_never_was_there_is_waited_for() {
    let mut cluster = configured('a', 'b', "cart-config", true);
    cluster.revisions.clear();
    let status = cluster.plan.as_mut().unwrap().status.as_mut().unwrap();
    status.config_maps[0].digest = None;
    expect![[r#"
        ├ config cart-config; missing, it is waited for
        ├ config web-config → contents c100f95c19
    "#]]
    .assert_eq(&maps(&cluster));
}

#[test]
fn a_component_that_lost_its_config_map_is_not_folded() {
    let there = configured('a', 'b', &snapshot('a'), false).status();
    let gone = configured('a', 'b', &snapshot('a'), true).status();
    let screen = Layout {
        width: 80,
        height: Some(10),
    };
    let holds = |plan| {
        let lines = tree(plan, now(), screen);
        lines.iter().any(|line| line.plain().contains("; missing,"))
    };
    assert!(!holds(&there));
    assert!(holds(&gone));
}

#[test]
fn a_change_of_contents_is_appended() {
    let before = configured('a', 'b', &snapshot('a'), false).status();
    let after = configuration("Promote", 'a').status();
    let lines = changes(Some(&before), &after, now());
    let maps: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("config"))
        .collect();
    assert_eq!(maps.len(), 2, "{lines:?}");
    assert_eq!(changes(Some(&after), &after, now()), [""; 0]);
}

#[test]
fn programs_are_told_the_same() {
    let value = serde_json::to_value(configuration("Promote", 'a').status()).unwrap();
    let maps = &value["components"][0]["configMaps"];
    let told = serde_json::to_string_pretty(maps).unwrap();
    expect![[r#"
        [
          {
            "digest": "879923da020d1533f4d8e921ea7bac61e8ba41d3c89d17a4d14e3a89c6780d5d",
            "live": "cart-config-a9fe79a470",
            "mode": "Snapshot",
            "name": "cart-config",
            "stable": {
              "digest": "ac8d8342bbb2362d13f0a559a3621bb407011368895164b628a54f7fc33fc43c",
              "snapshot": "cart-config-a9fe79a470"
            },
            "target": {
              "digest": "879923da020d1533f4d8e921ea7bac61e8ba41d3c89d17a4d14e3a89c6780d5d",
              "snapshot": "cart-config-bfd6ef2148"
            }
          }
        ]"#]]
    .assert_eq(&told);
    let rest = serde_json::to_value(promoting().status()).unwrap();
    assert!(rest["components"][0].get("configMaps").is_none());
}

#[test]
fn of_a_live_template_only_the_names_are_kept() {
    let read = json!({"spec": {"template": {"spec": {
        "containers": [{"name": "app", "envFrom": [{"configMapRef": {"name": "one"}}]}],
        "volumes": [{"name": "v", "configMap": {"name": "two"}}]}}}});
    let view: DeploymentView = serde_json::from_value(read).unwrap();
    let names: Vec<&str> = view
        .spec
        .template
        .config_maps
        .iter()
        .map(String::as_str)
        .collect();
    assert_eq!(names, ["one", "two"]);
}
