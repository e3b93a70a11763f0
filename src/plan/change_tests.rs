//! What may become of stored plans.

use serde_json::{Value, json};

use super::{check_change, check_create};
use crate::api::StoredPlan;

fn component(name: &str, workload: &str) -> Value {
    json!({"name": name, "workload": {"kind": "Deployment", "name": workload}})
}

fn stored(spec: &Value) -> Value {
    json!({
        "metadata": {"name": "shop", "finalizers": ["belay.dev/rollback"]},
        "spec": spec,
    })
}

fn valid() -> Value {
    stored(&json!({"components": [component("cart", "cart"), component("db", "db")]}))
}

fn invalid() -> Value {
    stored(&json!({"components": [component("Cart", "cart")], "paused": false}))
}

fn in_flight(stage: &str) -> Value {
    let mut plan = valid();
    plan["status"] = json!({
        "components": [component("cart", "cart"), component("db", "db")],
        "release": {
            "number": 4, "kind": "Content", "stage": stage, "content": "c",
            "startedAt": "2026-01-01T00:00:00.000000Z",
            "stageSince": "2026-01-01T00:00:00.000000Z",
        },
    });
    plan
}

fn edited(old: &Value, edit: impl FnOnce(&mut Value)) -> Value {
    let mut new = old.clone();
    edit(&mut new);
    new
}

fn deleting(plan: &mut Value) {
    plan["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
}

fn read(plan: &Value) -> StoredPlan {
    let read: StoredPlan = serde_json::from_value(plan.clone()).unwrap();
    assert_eq!(read.status.is_some(), plan.get("status").is_some());
    read
}

fn faults(result: Result<(), super::Violations>) -> Vec<String> {
    match result {
        Ok(()) => Vec::new(),
        Err(violations) => violations
            .as_slice()
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

#[track_caller]
fn accepts(old: &Value, edit: impl FnOnce(&mut Value)) {
    rejects(old, edit, &[]);
}

#[track_caller]
fn rejects(old: &Value, edit: impl FnOnce(&mut Value), expected: &[&str]) {
    let new = edited(old, edit);
    assert_eq!(
        faults(check_change(&read(old), &read(&new), false)),
        expected
    );
}

const BAD_NAME: &str = "spec.components[0].name: Invalid value: \"Cart\" must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit";

#[test]
fn a_new_plan_is_judged_in_full() {
    assert_eq!(faults(check_create(&read(&valid()))), [""; 0]);
    let plan = edited(&invalid(), |plan| {
        plan["metadata"]["annotations"] = json!({"belay.dev/retry": "shop-1"});
    });
    assert_eq!(
        faults(check_create(&read(&plan))),
        [
            "metadata.annotations[belay.dev/retry]: Forbidden: a new plan has no refused content to try again; leave the annotation out",
            BAD_NAME,
        ]
    );
}

#[test]
fn an_invalid_plan_can_be_labelled_and_finished() {
    accepts(&invalid(), |plan| {
        plan["metadata"]["labels"] = json!({"a": "b"});
    });
    let old = edited(&invalid(), deleting);
    accepts(&old, |plan| plan["metadata"]["finalizers"] = json!([]));
}

#[test]
fn the_way_out_for_finalizers_does_not_let_the_spec_slip_through() {
    for old in [invalid(), edited(&invalid(), deleting)] {
        rejects(
            &old,
            |plan| {
                plan["metadata"]["finalizers"] = json!([]);
                plan["spec"]["paused"] = json!(true);
            },
            &[BAD_NAME],
        );
    }
}

#[test]
fn an_invalid_plan_can_be_repaired_and_not_be_made_worse() {
    accepts(&invalid(), |plan| {
        plan["spec"]["components"][0]["name"] = json!("cart");
    });
    rejects(
        &invalid(),
        |plan| plan["spec"]["strategy"] = json!({}),
        &[
            BAD_NAME,
            "spec.strategy: Required value: exactly one of rolling, canary and blueGreen must be set",
        ],
    );
}

#[test]
fn a_plan_that_is_being_deleted_can_change_its_deletion_policy() {
    let old = edited(&invalid(), deleting);
    accepts(&old, |plan| plan["spec"]["deletionPolicy"] = json!("Keep"));
    rejects(
        &old,
        |plan| plan["spec"]["deletionPolicy"] = json!("Orphan"),
        &[
            r#"spec.deletionPolicy: Unsupported value: "Orphan": supported values: "Rollback", "Keep""#,
        ],
    );
    rejects(
        &invalid(),
        |plan| plan["spec"]["deletionPolicy"] = json!("Keep"),
        &[BAD_NAME],
    );
}

#[test]
fn between_releases_components_come_and_go() {
    accepts(&valid(), |plan| {
        plan["spec"]["components"] = json!([component("web", "web")]);
    });
}

#[test]
fn in_mid_release_the_components_are_fixed() {
    let old = in_flight("Promote");
    rejects(
        &old,
        |plan| {
            plan["spec"]["components"] =
                json!([component("cart", "basket"), component("web", "web")]);
        },
        &[
            "spec.components: Forbidden: component db cannot be removed while release 4 is in progress (stage Promote); wait until it has ended",
            "spec.components[0].workload: Forbidden: cannot be changed from deployment cart while release 4 is in progress (stage Promote); wait until it has ended",
            "spec.components[1]: Forbidden: component web cannot be added while release 4 is in progress (stage Promote); wait until it has ended",
        ],
    );
    accepts(&old, |plan| {
        plan["spec"]["components"] = json!([component("db", "db"), component("cart", "cart")]);
        plan["spec"]["components"][1]["template"] =
            json!({"spec": {"containers": [{"name": "app", "image": "cart:3"}]}});
        plan["spec"]["paused"] = json!(true);
    });
    // A name that follows from the workload is the same name.
    accepts(&old, |plan| {
        let component = plan["spec"]["components"][0].as_object_mut().unwrap();
        component.remove("name");
    });
}

#[test]
fn an_edit_that_no_webhook_saw_can_be_taken_back_in_mid_release() {
    let old = edited(&in_flight("Bake"), |plan| {
        plan["spec"]["components"] = json!([component("cart", "cart")]);
    });
    accepts(&old, |plan| {
        plan["spec"]["components"] = json!([component("cart", "cart"), component("db", "db")]);
    });
}

#[test]
fn in_mid_release_the_strategy_is_fixed() {
    rejects(
        &in_flight("Restore"),
        |plan| plan["spec"]["strategy"] = json!({"blueGreen": {}}),
        &[
            "spec.components[0].template: Required value: the strategy blueGreen needs a template in every component",
            "spec.components[1].template: Required value: the strategy blueGreen needs a template in every component",
            "spec.strategy: Forbidden: cannot be changed from rolling while release 4 is going back (stage Restore); wait until it has ended",
            "spec.strategy.blueGreen: Not available yet: this version releases by rolling only",
        ],
    );
    accepts(&in_flight("Promote"), |plan| {
        plan["spec"]["strategy"] = json!({"rolling": {}});
    });
}

#[test]
fn the_finalizer_stays_until_everything_is_back() {
    let strip = |plan: &mut Value| plan["metadata"]["finalizers"] = json!(["a.b/c"]);
    let old = edited(&in_flight("Restore"), deleting);
    rejects(
        &old,
        strip,
        &[
            "metadata.finalizers: Forbidden: belay.dev/rollback cannot be removed while release 4 is going back (stage Restore); wait until everything is back, or set spec.deletionPolicy to Keep to leave what is live",
        ],
    );
    let keep = edited(&old, |plan| plan["spec"]["deletionPolicy"] = json!("Keep"));
    rejects(
        &keep,
        strip,
        &[
            "metadata.finalizers: Forbidden: belay.dev/rollback cannot be removed while release 4 is going back (stage Restore); the operator removes it by itself, as spec.deletionPolicy is Keep",
        ],
    );
    let new = edited(&old, strip);
    assert_eq!(
        faults(check_change(&read(&old), &read(&new), true)),
        [""; 0]
    );
    accepts(&edited(&valid(), deleting), strip);
}

#[test]
fn a_retry_names_a_refused_revision() {
    let retry = |revision: &'static str| {
        move |plan: &mut Value| {
            plan["metadata"]["annotations"] = json!({"belay.dev/retry": revision});
        }
    };
    let mut old = valid();
    rejects(
        &old,
        retry("shop-1"),
        &[
            r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-1" cannot be tried again: this plan has no refused revision"#,
        ],
    );
    let refused = |revision: &str| {
        json!({
            "revision": revision, "cause": "ImagePullBackOff", "message": "m",
            "at": "2026-01-01T00:00:00Z",
        })
    };
    old["status"] = json!({"refused": [refused("shop-2"), refused("shop-3")]});
    accepts(&old, retry("shop-3"));
    rejects(
        &old,
        retry("shop-1"),
        &[
            r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-1" is not a refused revision of this plan (refused: shop-2, shop-3)"#,
        ],
    );
    // One that was carried out, and its removal.
    let done = edited(&old, retry("shop-1"));
    accepts(&done, |plan| {
        plan["metadata"]["labels"] = json!({"a": "b"});
    });
    accepts(&done, |plan| plan["metadata"]["annotations"] = json!({}));
}

#[test]
fn an_abort_names_what_is_being_released() {
    let abort = |plan: &mut Value| {
        plan["metadata"]["annotations"] = json!({"belay.dev/abort": "shop-2"});
    };
    rejects(
        &valid(),
        abort,
        &[
            r#"metadata.annotations[belay.dev/abort]: Invalid value: "shop-2" cannot be aborted: no release is in progress"#,
        ],
    );
    for stage in ["Promote", "Bake", "Restore", "Stopped"] {
        let mut old = in_flight(stage);
        old["status"]["targetRevision"] = json!("shop-2");
        accepts(&old, abort);
        old["status"]["targetRevision"] = json!("shop-3");
        rejects(
            &old,
            abort,
            &[
                r#"metadata.annotations[belay.dev/abort]: Invalid value: "shop-2" is not the revision that is being released, which is shop-3"#,
            ],
        );
    }
    rejects(
        &in_flight("Settle"),
        abort,
        &[
            r#"metadata.annotations[belay.dev/abort]: Invalid value: "shop-2" cannot be aborted: release 4 is in progress (stage Settle), and nothing of it is live or has a name that could be aborted; spec.paused keeps it from going on"#,
        ],
    );
}

#[test]
fn an_undo_names_a_revision_that_is_kept() {
    let undo = |revision: &'static str| {
        move |plan: &mut Value| {
            plan["metadata"]["annotations"] = json!({"belay.dev/undo": revision});
        }
    };
    rejects(
        &valid(),
        undo("shop-1"),
        &[
            r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-1" cannot be brought back: this plan keeps no earlier revision"#,
        ],
    );
    let record = |from: &str, revision: &str, result: &str| {
        json!({
            "number": 1, "kind": "Content", "revision": revision, "from": from, "result": result,
            "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:00Z",
        })
    };
    let mut old = valid();
    old["status"] = json!({
        "stableRevision": "shop-1",
        "history": [
            record("shop-0", "shop-1", "Succeeded"),
            record("shop-1", "shop-2", "RolledBack"),
        ],
    });
    accepts(&old, undo("shop-0"));
    rejects(
        &old,
        undo("shop-1"),
        &[
            r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-1" is the stable revision already"#,
        ],
    );
    rejects(
        &old,
        undo("shop-2"),
        &[
            r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-2" is not a revision that this plan keeps (kept: shop-0, shop-1)"#,
        ],
    );
    // In mid-release that is an abort.
    old["status"]["release"] = in_flight("Promote")["status"]["release"].clone();
    accepts(&old, undo("shop-1"));
}
