//! What the mutating webhook makes of plans.

use serde_json::{Value, json};

use super::{super::content_digest, completed, defaults_patch};

fn spec(image: &str) -> Value {
    json!({"components": [{
        "workload": {"kind": "Deployment", "name": "cart"},
        "template": {"spec": {"containers": [{"name": "app", "image": image}]}},
    }]})
}

fn created(image: &str) -> Value {
    completed(
        &json!({"metadata": {"name": "shop"}, "spec": spec(image)}),
        None,
        "jane",
    )
}

fn set(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
    object
}

fn with_image(object: &Value, image: &str) -> Value {
    set(
        object.clone(),
        "/spec/components/0/template/spec/containers/0/image",
        json!(image),
    )
}

fn annotations(object: &Value) -> &Value {
    &object["metadata"]["annotations"]
}

fn generation(object: &Value) -> &str {
    annotations(object)["belay.dev/release-generation"]
        .as_str()
        .unwrap()
}

#[test]
fn a_new_plan_gets_defaults_finalizer_and_marks() {
    let plan = created("cart:1");
    assert_eq!(plan["spec"]["components"][0]["name"], "cart");
    assert_eq!(plan["spec"]["strategy"], json!({"rolling": {}}));
    assert_eq!(
        plan["metadata"]["finalizers"],
        json!(["belay.dev/rollback"])
    );
    assert_eq!(
        *annotations(&plan),
        json!({
            "belay.dev/release-generation": "1",
            "belay.dev/release-digest": content_digest(&spec("cart:1")),
            "belay.dev/requested-by": "jane",
        })
    );
}

#[test]
fn what_is_set_stays() {
    let object = json!({
        "metadata": {"finalizers": ["a.b/c"], "annotations": {"note": "x", "belay.dev/retry": "r1"}},
        "spec": {
            "components": [{"name": "shop-cart", "workload": {"kind": "Deployment", "name": "cart"}}, 5],
            "strategy": {}, "progressDeadline": "1m", "failFast": {"restarts": 7}, "retry": {},
            "paused": null, "future": true,
        },
    });
    let plan = completed(&object, None, "jane");
    let spec = &plan["spec"];
    assert_eq!(spec["components"], object["spec"]["components"]);
    assert_eq!(spec["strategy"], json!({}));
    assert_eq!(spec["progressDeadline"], "1m");
    assert_eq!(spec["failFast"], json!({"restarts": 7}));
    assert_eq!(spec["retry"], json!({"maxRetries": 8}));
    assert_eq!(spec["paused"], false);
    assert_eq!(spec["future"], true);
    assert_eq!(
        plan["metadata"]["finalizers"],
        json!(["a.b/c", "belay.dev/rollback"])
    );
    assert_eq!(annotations(&plan)["note"], "x");
    assert_eq!(annotations(&plan)["belay.dev/retry"], "r1");
}

#[test]
fn the_finalizer_is_added_once_and_only_while_the_plan_is_to_stay() {
    for (finalizers, expected) in [
        (json!(null), json!(["belay.dev/rollback"])),
        (json!([]), json!(["belay.dev/rollback"])),
        (
            json!(["belay.dev/rollback", "x/y"]),
            json!(["belay.dev/rollback", "x/y"]),
        ),
    ] {
        let object = set(created("cart:1"), "/metadata/finalizers", finalizers);
        assert_eq!(
            completed(&object, None, "jane")["metadata"]["finalizers"],
            expected
        );
    }
    let old = set(
        created("cart:1"),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    let released = set(old.clone(), "/metadata/finalizers", json!([]));
    assert_eq!(defaults_patch(&released, Some(&old), "operator"), None);
}

#[test]
fn an_update_without_a_change_gives_no_patch() {
    let old = created("cart:1");
    assert_eq!(defaults_patch(&old, None, "jane"), None);
    assert_eq!(defaults_patch(&old, Some(&old), "joe"), None);
    let labelled = set(old.clone(), "/metadata/labels", json!({"a": "b"}));
    assert_eq!(defaults_patch(&labelled, Some(&old), "joe"), None);
}

#[test]
fn a_spec_that_stays_is_not_filled_in() {
    let old = json!({"metadata": {"finalizers": ["belay.dev/rollback"]}, "spec": {"strategy": {}}});
    let labelled = set(old.clone(), "/metadata/labels", json!({"a": "b"}));
    assert_eq!(defaults_patch(&labelled, Some(&old), "joe"), None);
}

#[test]
fn the_number_rises_with_content_only() {
    let first = created("cart:1");
    let paused = completed(
        &set(first.clone(), "/spec/paused", json!(true)),
        Some(&first),
        "joe",
    );
    assert_eq!(annotations(&paused), annotations(&first));
    let second = completed(&with_image(&first, "cart:2"), Some(&first), "joe");
    assert_eq!(generation(&second), "2");
    assert_eq!(annotations(&second)["belay.dev/requested-by"], "joe");
    let back = completed(&with_image(&second, "cart:1"), Some(&second), "ann");
    assert_eq!(generation(&back), "3");
    assert_eq!(annotations(&back)["belay.dev/requested-by"], "ann");
}

#[test]
fn users_cannot_set_the_marks() {
    let forged = json!({
        "belay.dev/release-generation": "70",
        "belay.dev/release-digest": "0",
        "belay.dev/requested-by": "root",
    });
    let object = json!({"metadata": {"annotations": forged}, "spec": spec("cart:1")});
    assert_eq!(
        annotations(&completed(&object, None, "jane")),
        annotations(&created("cart:1"))
    );
    let old = created("cart:1");
    for value in [forged, json!({}), json!(null)] {
        let object = set(old.clone(), "/metadata/annotations", value);
        assert_eq!(
            annotations(&completed(&object, Some(&old), "mallory")),
            annotations(&old)
        );
    }
}

#[test]
fn content_from_an_outage_is_numbered_and_nobody_is_blamed() {
    let old = with_image(&created("cart:1"), "cart:2");
    let labelled = set(old.clone(), "/metadata/labels", json!({"a": "b"}));
    let healed = completed(&labelled, Some(&old), "operator");
    assert_eq!(generation(&healed), "2");
    assert_eq!(
        annotations(&healed)["belay.dev/release-digest"],
        content_digest(&spec("cart:2"))
    );
    assert_eq!(annotations(&healed).get("belay.dev/requested-by"), None);
    assert_eq!(defaults_patch(&healed, Some(&old), "operator"), None);
}

#[test]
fn the_number_never_goes_back() {
    let digest = content_digest(&spec("cart:1"));
    let same = json!({"observedReleaseGeneration": 6, "observedContent": digest});
    let other = json!({"observedReleaseGeneration": 6, "observedContent": "0"});
    let pair = |number: &str, digest: &str| json!({"belay.dev/release-generation": number, "belay.dev/release-digest": digest});
    for (pair, status, expected) in [
        (json!({}), json!({}), "1"),
        (json!({}), same.clone(), "6"),
        (json!({}), other.clone(), "7"),
        (pair("x", &digest), same.clone(), "6"),
        (pair("-4", &digest), json!({}), "1"),
        (pair("2", &digest), same.clone(), "6"),
        (pair("9", &digest), other, "9"),
        (pair("9", "0"), same, "10"),
        (json!({"belay.dev/release-generation": "4"}), json!({}), "5"),
        (
            pair("9223372036854775807", "0"),
            json!({}),
            "9223372036854775807",
        ),
    ] {
        let mut old = created("cart:1");
        old["metadata"]["annotations"] = pair.clone();
        old["status"] = status.clone();
        let healed = completed(&old, Some(&old), "operator");
        assert_eq!(generation(&healed), expected, "{pair} {status}");
    }
}

#[test]
fn an_invalid_plan_that_stays_keeps_its_marks() {
    let mut old = created("cart:1");
    old["spec"]["strategy"] = json!({});
    old["spec"]["components"][0]["name"] = json!("Cart");
    let object = set(old.clone(), "/metadata/annotations", json!({"note": "x"}));
    let kept = completed(&object, Some(&old), "joe");
    assert_eq!(annotations(&kept)["note"], "x");
    assert_eq!(generation(&kept), "1");
    assert_eq!(
        annotations(&kept)["belay.dev/release-digest"],
        annotations(&old)["belay.dev/release-digest"]
    );
    let mut bare = old.clone();
    bare["metadata"]["annotations"] = json!(null);
    assert_eq!(defaults_patch(&bare, Some(&bare), "joe"), None);
}

#[test]
fn the_patch_makes_the_completed_object() {
    let object = json!({"metadata": {"name": "shop"}, "spec": spec("cart:1")});
    let patch = defaults_patch(&object, None, "jane").unwrap();
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    assert_eq!(patched, completed(&object, None, "jane"));
}

#[test]
fn damaged_objects_are_no_reason_to_fail() {
    for object in [
        json!(null),
        json!([]),
        json!({}),
        json!({"metadata": 5, "spec": []}),
        json!({"metadata": {"annotations": 5, "finalizers": 5}, "spec": {"components": {}}}),
    ] {
        let once = completed(&object, Some(&object), "jane");
        assert_eq!(defaults_patch(&once, Some(&object), "jane"), None);
    }
}
