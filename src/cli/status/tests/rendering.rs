//! How it looks, at the widths that people have.

use expect_test::expect_file;
use serde_json::{Value, json};

use super::super::{
    fixtures::*,
    model::Health,
    render::{Layout, fitted, tree},
    text::Line,
};

fn shown(cluster: &Cluster, width: usize) -> String {
    text(&tree(
        &cluster.status(),
        now(),
        Layout {
            width,
            height: None,
        },
    ))
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.plain() + "\n").collect()
}

#[test]
fn a_release_that_fails_is_shown_with_the_pod_that_crashes() {
    let cluster = promoting();
    expect_file!["../golden/promoting_80.txt"].assert_eq(&shown(&cluster, 80));
    expect_file!["../golden/promoting_200.txt"].assert_eq(&shown(&cluster, 200));
}

#[test]
fn a_rollback_names_its_cause_as_it_was_recorded() {
    let cluster = going_back();
    expect_file!["../golden/rolling_back_80.txt"].assert_eq(&shown(&cluster, 80));
    let cluster = rolled_back();
    expect_file!["../golden/rolled_back_80.txt"].assert_eq(&shown(&cluster, 80));
    let wide = shown(&cluster, 200);
    expect_file!["../golden/rolled_back_200.txt"].assert_eq(&wide);
    assert!(wide.contains(&format!("ContainerRestarts of component web: {CRASH}")));
}

#[test]
fn pods_in_the_same_trouble_are_one_line() {
    let cluster = stalled();
    expect_file!["../golden/stalled_80.txt"].assert_eq(&shown(&cluster, 80));
    expect_file!["../golden/stalled_200.txt"].assert_eq(&shown(&cluster, 200));
}

#[test]
fn of_many_components_those_in_trouble_are_unfolded() {
    let cluster = many(50, 20);
    expect_file!["../golden/many_80.txt"].assert_eq(&shown(&cluster, 80));
    let layout = Layout {
        width: 80,
        height: Some(24),
    };
    let lines = fitted(tree(&cluster.status(), now(), layout), layout);
    expect_file!["../golden/many_screen.txt"].assert_eq(&text(&lines));
}

/// The top holds what matters, so what does not fit is cut below.
#[test]
fn a_screen_is_never_exceeded_and_always_shows_the_top() {
    for cluster in [promoting(), rolled_back(), stalled(), many(50, 20)] {
        let status = cluster.status();
        for (width, height) in [(80, 24), (80, 8), (200, 50), (40, 10), (24, 5), (1, 1)] {
            let layout = Layout {
                width,
                height: Some(height),
            };
            let lines = fitted(tree(&status, now(), layout), layout);
            let rows: usize = lines.iter().map(|line| line.rows(width)).sum();
            assert!(rows <= height, "{width}x{height}: {rows} rows");
            if width >= 24 {
                let top = lines.first().map(Line::plain).unwrap_or_default();
                assert!(top.contains("shop  "), "{width}x{height}: {top}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_where_there_is_no_terminal() {
    let lines = tree(&stalled().status(), now(), Layout::UNBOUNDED);
    let text = text(&lines);
    assert!(
        text.contains("failed to pull and unpack image: not found"),
        "{text}"
    );
    assert!(
        !text.contains('…') || text.contains("older without pods"),
        "{text}"
    );
}

fn with(change: impl FnOnce(&mut Value)) -> super::super::PlanStatus {
    let cluster = rolled_back();
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
    .status()
}

#[test]
fn an_edit_that_nobody_looks_at_is_told_before_an_old_verdict() {
    let edited = with(|plan| {
        plan["metadata"]["generation"] = json!(5);
        plan["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update",
            "apiVersion": "belay.dev/v1alpha1", "time": "2026-03-01T03:00:00Z"}]);
    });
    assert_eq!(edited.verdict.reason, "Edited");
    assert_eq!(edited.verdict.health, Health::Failed);
    assert!(
        edited.verdict.message.contains("RolledBack"),
        "{}",
        edited.verdict.message
    );
    let new = with(|plan| plan["status"] = Value::Null);
    assert_eq!(new.verdict.reason, "New");
    assert_eq!(
        new.verdict.health,
        Health::Failed,
        "the plan is a month old"
    );
    let broken = with(|plan| plan["status"] = json!({"phase": "Tomorrow"}));
    assert_eq!(broken.verdict.reason, "StatusUnreadable");
}

#[test]
fn what_breaks_after_its_release_is_not_called_healthy() {
    let mut cluster = rolled_back();
    let plan = cluster.plan.as_mut().unwrap();
    let status = plan.status.as_mut().unwrap();
    for condition in &mut status.conditions {
        condition.reason = "Released".to_owned();
        let ready = condition.type_ == "Ready";
        condition.status = if ready { "True" } else { "False" }.to_owned();
    }
    assert_eq!(cluster.status().verdict.health, Health::Ok);
    // Beside all the pods that are wanted, one in trouble is only shown.
    let mut cluster = cluster.pods("web", 2, 1, &crashing());
    assert_eq!(cluster.status().verdict.health, Health::Ok);
    let text = shown(&cluster, 80);
    assert!(text.contains("web-2c8c9d7754-"), "{text}");
    let web = cluster.deployments.first_mut().unwrap();
    web.status.available_replicas = 1;
    assert_eq!(cluster.status().verdict.health, Health::Failed);
    let text = shown(&cluster, 80);
    assert!(text.starts_with("✗ shop  Was healthy"), "{text}");
    assert!(text.contains("  Pods    web-2c8c9d7754-"), "{text}");
}

#[test]
fn components_stand_behind_those_that_they_come_after() {
    let status = promoting().status();
    let names: Vec<_> = status
        .components()
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(names, ["db", "cart", "web"]);
}

#[test]
fn programs_are_told_as_much_as_people() {
    let value = serde_json::to_value(promoting().status()).unwrap();
    expect_file!["../golden/promoting.json"]
        .assert_eq(&(serde_json::to_string_pretty(&value).unwrap() + "\n"));
}
