//! Which orders are admitted, and what is said of the others.

use serde_json::{Value, json};

use super::super::{Plan, check_change};
use crate::api::StoredPlan;

fn spec(image: &str) -> Value {
    json!({"components": [{
        "name": "cart",
        "workload": {"kind": "Deployment", "name": "cart"},
        "template": {"spec": {"containers": [{"name": "app", "image": image}]}},
    }]})
}

fn plan(status: Value) -> Value {
    json!({
        "metadata": {"name": "shop", "finalizers": ["belay.dev/rollback"]},
        "spec": spec("cart:2"),
        "status": status,
    })
}

fn record(number: i64, from: &str, revision: &str, result: &str) -> Value {
    json!({
        "number": number, "kind": "Content", "revision": revision, "from": from, "result": result,
        "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:00Z",
    })
}

fn release(stage: &str) -> Value {
    json!({
        "number": 4, "kind": "Content", "stage": stage, "content": "c",
        "startedAt": "2026-01-01T00:00:00.000000Z",
        "stageSince": "2026-01-01T00:00:00.000000Z",
    })
}

/// Content of an image that was refused.
fn refused(revision: &str, image: &str, live: &[&str]) -> Value {
    let content = Plan::parse(&spec(image)).unwrap().content().to_owned();
    let live: Vec<Value> = live
        .iter()
        .map(|name| json!({"workload": {"kind": "Deployment", "name": name}, "digest": "d"}))
        .collect();
    json!({
        "revision": revision, "spec": content, "live": live, "cause": "ImagePullBackOff",
        "message": "m", "at": "2026-01-01T00:00:00Z",
    })
}

fn released() -> Value {
    json!({
        "phase": "Stable", "stableRevision": "shop-2",
        "history": [record(1, "shop-0", "shop-1", "Succeeded"),
                    record(2, "shop-1", "shop-2", "Succeeded"),
                    record(3, "shop-2", "shop-3", "RolledBack")],
    })
}

/// What is said of orders that are given in one write.
fn said(old: &Value, orders: &[(&str, &str)]) -> Vec<String> {
    let mut new = old.clone();
    for (order, value) in orders {
        new["metadata"]["annotations"][format!("belay.dev/{order}")] = json!(value);
    }
    judged(old, &new)
}

fn judged(old: &Value, new: &Value) -> Vec<String> {
    let read = |plan: &Value| -> StoredPlan {
        let read: StoredPlan = serde_json::from_value(plan.clone()).unwrap();
        assert_eq!(read.status_fault, None);
        read
    };
    match check_change(&read(old), &read(new), false) {
        Ok(()) => Vec::new(),
        Err(faults) => faults.as_slice().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn an_abort_that_comes_too_late_says_how_it_ended_and_what_to_do() {
    let plan = plan(released());
    for (revision, rest) in [
        (
            "shop-2",
            ", release 2 of it has ended (Succeeded); to go back set belay.dev/undo to shop-1",
        ),
        ("shop-1", ", release 1 of it has ended (Succeeded)"),
        ("shop-3", ", release 3 of it has ended (RolledBack)"),
        ("shop-9", ""),
    ] {
        assert_eq!(
            said(&plan, &[("abort", revision)]),
            [format!(
                r#"metadata.annotations[belay.dev/abort]: Invalid value: "{revision}" cannot be aborted: no release is in progress{rest}"#
            )]
        );
    }
}

#[test]
fn a_rollback_that_was_aborted_is_not_aborted_again() {
    let mut status = released();
    status["phase"] = json!("Failed");
    status["targetRevision"] = json!("shop-4");
    status["release"] = release("Stopped");
    assert_eq!(
        said(&plan(status), &[("abort", "shop-4")]),
        [
            r#"metadata.annotations[belay.dev/abort]: Invalid value: "shop-4" cannot be aborted: release 4 is stopped (stage Stopped) and was aborted already; to go back set belay.dev/undo to shop-2"#
        ]
    );
}

#[test]
fn a_retry_of_content_that_has_left_the_plan_is_refused() {
    let mut status = released();
    status["refused"] = json!([
        refused("shop-3", "cart:3", &[]),
        refused("shop-4", "cart:2", &[]),
        refused("shop-5", "cart:3", &["web"]),
    ]);
    let old = plan(status);
    let gone = [
        r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-3" cannot be tried again: its content is no longer what the plan asks for; put it back into the spec first"#,
    ];
    assert_eq!(said(&old, &[("retry", "shop-3")]), gone);
    assert_eq!(said(&old, &[("retry", "shop-4")]), [""; 0]);
    // Half of what was refused is nothing that anybody asked for.
    assert_eq!(said(&old, &[("retry", "shop-5")]).len(), 1);
    // Of followed workloads alone nothing stands in the plan.
    let mut followed = old.clone();
    followed["status"]["refused"][2]["spec"] = json!(null);
    assert_eq!(said(&followed, &[("retry", "shop-5")]), [""; 0]);
    // What counts is the content that comes with the order.
    let mut both = old.clone();
    both["spec"] = spec("cart:3");
    both["metadata"]["annotations"]["belay.dev/retry"] = json!("shop-3");
    assert_eq!(judged(&old, &both), [""; 0]);
    both["metadata"]["annotations"]["belay.dev/retry"] = json!("shop-4");
    assert_eq!(judged(&old, &both).len(), 1);
}

#[test]
fn a_retry_says_what_stands_before_it() {
    let mut status = released();
    status["targetRevision"] = json!("shop-4");
    status["release"] = release("Restore");
    status["refused"] = json!([refused("shop-3", "cart:2", &[])]);
    assert_eq!(
        said(&plan(status.clone()), &[("retry", "shop-4")]),
        [
            r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-4" cannot be tried again yet: release 4 is going back (stage Restore); wait until it has ended"#
        ]
    );
    status["release"] = release("Stopped");
    status["phase"] = json!("Frozen");
    let frozen = plan(status);
    assert_eq!(said(&frozen, &[("retry", "shop-4")]), [""; 0]);
    assert_eq!(
        said(&frozen, &[("retry", "shop-3")]),
        [
            r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-3" cannot be tried again: release 4 is stopped (stage Stopped) on shop-4, which has to be aborted, undone or tried again first"#
        ]
    );
}

#[test]
fn an_undo_to_what_is_being_released_is_refused() {
    let mut status = released();
    status["targetRevision"] = json!("shop-1");
    for stage in ["Promote", "Bake"] {
        status["release"] = release(stage);
        assert_eq!(
            said(&plan(status.clone()), &[("undo", "shop-1")]),
            [format!(
                r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-1" is being released already: release 4 is in progress (stage {stage})"#
            )]
        );
    }
    status["release"]["stage"] = json!("Restore");
    assert_eq!(said(&plan(status.clone()), &[("undo", "shop-1")]), [""; 0]);
    status["targetRevision"] = Value::Null;
    status["release"] = release("Settle");
    assert_eq!(said(&plan(status.clone()), &[("undo", "shop-1")]), [""; 0]);
    status["release"]["undo"] = json!("shop-1");
    assert_eq!(said(&plan(status), &[("undo", "shop-1")]).len(), 1);
}

#[test]
fn orders_that_contradict_each_other_are_refused_in_one_write() {
    let mut status = released();
    status["targetRevision"] = json!("shop-4");
    status["release"] = release("Promote");
    status["refused"] = json!([refused("shop-3", "cart:2", &[])]);
    let old = plan(status);
    let (abort, undo, retry) = (("abort", "shop-4"), ("undo", "shop-1"), ("retry", "shop-3"));
    let against = |other: &str| {
        format!(
            "metadata.annotations[belay.dev/retry]: Forbidden: contradicts belay.dev/{other}, which was given with it; give one of the two"
        )
    };
    assert_eq!(said(&old, &[undo, retry]), [against("undo")]);
    assert_eq!(said(&old, &[abort, retry]), [against("abort")]);
    assert_eq!(
        said(&old, &[abort, undo, retry]),
        [against("abort"), against("undo")]
    );
    // What ends and where to go then.
    assert_eq!(said(&old, &[abort, undo]), [""; 0]);
    // One that stood there before was not given with it.
    let mut before = old.clone();
    before["metadata"]["annotations"]["belay.dev/undo"] = json!("shop-1");
    assert_eq!(said(&before, &[retry]), [""; 0]);
}

#[test]
fn a_plan_that_is_being_deleted_takes_no_orders() {
    let mut old = plan(released());
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        said(&old, &[("undo", "shop-1")]),
        [
            "metadata.annotations[belay.dev/undo]: Forbidden: the plan is being deleted and takes no orders; what becomes of its release is for spec.deletionPolicy to say"
        ]
    );
    // One that stood there does not hold it.
    let mut standing = old.clone();
    standing["metadata"]["annotations"] = json!({"belay.dev/undo": "shop-1"});
    let mut finished = standing.clone();
    finished["metadata"]["finalizers"] = json!([]);
    assert_eq!(judged(&standing, &finished), [""; 0]);
}
