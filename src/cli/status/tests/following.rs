//! What `--watch` appends, and the list of plans.

use expect_test::expect_file;

use super::super::{
    changes::changes, fixtures::*, list, model::PlanStatus, render::Layout, text::Line,
};

fn named(cluster: &Cluster, name: &str) -> PlanStatus {
    PlanStatus {
        name: name.to_owned(),
        ..cluster.status()
    }
}

#[test]
fn only_what_changed_is_appended() {
    let before = promoting().status();
    let first = changes(None, &before, now());
    assert_eq!(changes(Some(&before), &before, now()), [""; 0]);
    let back = changes(Some(&before), &going_back().status(), now());
    let after = changes(Some(&going_back().status()), &rolled_back().status(), now());
    let text = [first, back, after].concat().join("\n") + "\n";
    expect_file!["../golden/appended.txt"].assert_eq(&text);
}

/// In a list, and where nothing is redrawn.
#[test]
fn that_nobody_comes_is_told_before_what_was_so_before() {
    let mut cluster = promoting();
    let plan = cluster.plan.as_mut().unwrap();
    plan.metadata.generation = Some(5);
    plan.metadata.creation_timestamp = None;
    let status = cluster.status();
    assert!(status.verdict.message.contains("before that it was"));
    let title = status.verdict.title.clone();
    assert_eq!(list::why(&status), title);
    let lines = changes(None, &status, now());
    assert!(
        lines[0].ends_with(&format!(" Edited: {title}")),
        "{lines:?}"
    );
}

#[test]
fn what_waits_for_the_end_of_a_rollback_is_appended_once() {
    let quiet = configuration("Restore", 'c');
    let mut edited = configuration("Restore", 'c');
    let status = edited.plan.as_mut().unwrap().status.as_mut().unwrap();
    status.config_maps = serde_json::from_value(seen('e', 'd', false)).unwrap();
    let told = "then newer content is looked at: configmap/cart-config";
    let lines = changes(Some(&quiet.status()), &edited.status(), now());
    assert!(lines.iter().any(|line| line.ends_with(told)), "{lines:?}");
    let lines = changes(Some(&edited.status()), &edited.status(), now());
    assert_eq!(lines, [""; 0]);
}

#[test]
fn plans_that_somebody_has_to_look_at_come_first() {
    let mut healthy = named(&rolled_back(), "api");
    healthy.verdict.health = super::super::model::Health::Ok;
    healthy.verdict.reason = "Released".to_owned();
    healthy.verdict.message = "shop-99134e0901 is released and healthy".to_owned();
    healthy.verdict.cause = None;
    let mut plans = vec![
        healthy,
        named(&promoting(), "front"),
        named(&rolled_back(), "shop"),
        named(&stalled(), "pay"),
    ];
    list::sort(&mut plans);
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!(names, ["pay", "shop", "front", "api"]);
    let shown = |width, namespaces| {
        let layout = Layout {
            width,
            height: None,
        };
        let lines: Vec<Line> = list::table(&plans, namespaces, now(), layout);
        assert!(lines.iter().all(|line| line.width() <= width));
        lines
            .iter()
            .map(|line| line.plain() + "\n")
            .collect::<String>()
    };
    expect_file!["../golden/list_80.txt"].assert_eq(&shown(80, false));
    expect_file!["../golden/list_200.txt"].assert_eq(&shown(200, true));
}
