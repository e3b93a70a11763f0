//! What is told while the operator does not come.

use serde_json::{Value, json};

use super::super::{fixtures::*, model::Health, render::Layout, verdict::overdue};

/// A cluster with another plan.
fn with(cluster: Cluster, change: impl FnOnce(&mut Value)) -> Cluster {
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
}

fn is_overdue(cluster: &Cluster) -> bool {
    let due = overdue(cluster.plan.as_ref().unwrap(), now());
    let verdict = cluster.status().verdict;
    assert_eq!(due.is_some(), verdict.reason == "Overdue", "{verdict:?}");
    if due.is_some() {
        assert_eq!(verdict.health, Health::Failed);
        assert!(
            verdict.title.contains("is the operator running?"),
            "{verdict:?}"
        );
        let command = verdict.ways[0].command.as_deref();
        assert_eq!(command, Some("belay check -n web"));
        assert_eq!(verdict.since, due);
        assert!(!verdict.next.contains("failFast"), "{verdict:?}");
    }
    due.is_some()
}

/// The operator wakes when a deadline ends.
#[test]
fn a_deadline_that_nobody_judged_tells_that_the_operator_is_away() {
    // Of ten minutes.
    let late = |at: &str| {
        with(promoting(), |plan| {
            plan["status"]["components"][0]["progressAt"] = json!(at);
        })
    };
    assert!(!is_overdue(&late("2026-03-01T02:54:10.000000Z")));
    assert!(is_overdue(&late("2026-03-01T02:54:01.000000Z")));
    let text: String = super::super::render::tree(
        &late("2026-03-01T02:50:12.000000Z").status(),
        now(),
        Layout::UNBOUNDED,
    )
    .iter()
    .map(|line| line.plain() + "\n")
    .collect();
    for words in [
        "✗ shop  Nobody has judged this since it was due",
        "due was: all goes back if web makes no progress; before that: 2 of 3",
        "03:00:12Z, 4m ago",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

/// Nobody waits for a deadline that does not run, or that ends nothing.
#[test]
fn what_does_not_end_by_a_deadline_is_not_overdue() {
    let late = |change: &dyn Fn(&mut Value)| {
        with(promoting(), |plan| {
            plan["status"]["components"][0]["progressAt"] = json!("2026-03-01T02:50:00.000000Z");
            change(plan);
        })
    };
    assert!(is_overdue(&late(&|_| {})));
    let reason = |reason: &'static str| {
        move |plan: &mut Value| {
            for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
                condition["reason"] = json!(reason);
            }
        }
    };
    for other in ["ReconcileError", "TargetsMissing", "Contended"] {
        assert!(!is_overdue(&late(&reason(other))), "{other}");
    }
    assert!(!is_overdue(&late(&|plan| {
        plan["spec"]["paused"] = json!(true);
    })));
    assert!(!is_overdue(&late(&|plan| {
        plan["status"]["release"]["heldSince"] = json!("2026-03-01T02:50:00.000000Z");
    })));
    assert!(!is_overdue(&stalled()));
}

#[test]
fn the_way_back_has_a_deadline_too_but_not_for_what_cannot_go_back() {
    let back = |state: &str| {
        with(going_back(), |plan| {
            plan["status"]["components"][1]["state"] = json!(state);
            plan["status"]["components"][1]["progressAt"] = json!("2026-03-01T02:50:00.000000Z");
        })
    };
    assert!(is_overdue(&back("Restoring")));
    assert!(!is_overdue(&back("Missing")));
    let edited = with(back("Restoring"), |plan| {
        plan["spec"]["components"][1]["template"] = Value::Null;
        plan["spec"]["components"][1]["configMaps"] = json!(["cart-config"]);
    });
    assert!(!is_overdue(&edited));
}

#[test]
fn a_bake_ends_by_the_clock_once_all_of_it_is_there() {
    let bakes = |since: &str, step: &str| {
        with(promoting(), |plan| {
            plan["spec"]["bakeTime"] = json!("60s");
            plan["status"]["step"] = json!(step);
            plan["status"]["components"][0] = component("web", "Updated", None);
            plan["status"]["release"] = release("Bake", since, Value::Null);
            for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
                condition["reason"] = json!("Baking");
            }
        })
    };
    assert!(!is_overdue(&bakes(
        "2026-03-01T03:03:05.000000Z",
        "Bake 3/3"
    )));
    assert!(is_overdue(&bakes(
        "2026-03-01T03:03:01.000000Z",
        "Bake 3/3"
    )));
    assert!(!is_overdue(&bakes(
        "2026-03-01T03:03:01.000000Z",
        "Bake 2/3"
    )));
}
