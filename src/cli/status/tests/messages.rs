//! What of the operator's words stands on top, and what a person can paste.

use serde_json::{Value, json};

use super::super::{
    fixtures::*,
    render::{Layout, tree},
};

/// A cluster with another plan.
fn with(cluster: Cluster, change: impl FnOnce(&mut Value)) -> Cluster {
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
}

/// The same with another reason and message.
fn saying(cluster: Cluster, reason: &str, message: &str) -> Cluster {
    with(cluster, |plan| {
        for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
        }
    })
}

fn shown(cluster: &Cluster, width: usize) -> String {
    let layout = Layout {
        width,
        height: None,
    };
    let lines = tree(&cluster.status(), now(), layout);
    lines.iter().map(|line| line.plain() + "\n").collect()
}

#[test]
fn a_rollback_says_what_it_waits_for_and_what_orders_wait_for() {
    let text = shown(&going_back(), 200);
    assert!(
        text.contains("  Now     waiting for deployment cart to go back\n"),
        "{text}"
    );
    let order = "undo to shop-0123456789, asked for by jane, waits for the end of release 3";
    let message = format!(
        "going back to {STABLE} ({CRASH}); waiting for deployment cart to go back; meanwhile, {order}"
    );
    let text = shown(&saying(going_back(), "RollingBack", &message), 300);
    let words = format!("  Now     waiting for deployment cart to go back; meanwhile, {order}\n");
    assert!(text.contains(&words), "{text}");
    for reason in ["RollbackStarted", "Reverted", "Frozen", "RollbackAborted"] {
        let message = format!("{CRASH}; all components go back; meanwhile, {order}");
        let text = shown(&saying(going_back(), reason, &message), 200);
        assert!(text.contains(&format!("  Now     {order}\n")), "{text}");
        let text = shown(&saying(going_back(), reason, CRASH), 200);
        assert!(!text.contains("  Now "), "{text}");
    }
}
