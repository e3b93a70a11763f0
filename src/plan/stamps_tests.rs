//! Stamps on orders.

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ORDERS, Stamps, stamp_orders};
use crate::api::ORDERED_BY;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn plan(annotations: &Value) -> Value {
    json!({"metadata": {"name": "shop", "annotations": annotations}, "spec": {}})
}

fn stamped(object: &Value, old: &Value, user: &str, second: i64) -> Value {
    let mut object = object.clone();
    stamp_orders(&mut object, Some(old), user, at(second));
    object
}

fn given(old: &Value, orders: &[(&str, &str)]) -> Value {
    let mut object = old.clone();
    for (order, value) in orders {
        object["metadata"]["annotations"][format!("belay.dev/{order}")] = json!(value);
    }
    object
}

fn who(object: &Value, order: &str, value: &str) -> Option<(String, i64)> {
    let text = object["metadata"]["annotations"][ORDERED_BY].as_str();
    let stamps = Stamps::read(text);
    let stamp = stamps.of(&format!("belay.dev/{order}"), value)?;
    Some((stamp.user.clone(), stamp.at.as_second()))
}

fn orders(object: &Value) -> Vec<&str> {
    let annotations = object["metadata"]["annotations"].as_object().unwrap();
    let given = ORDERS.iter().filter(|o| annotations.contains_key(**o));
    given.map(|o| o.rsplit('/').next().unwrap()).collect()
}

#[test]
fn an_order_is_stamped_with_who_gave_it_and_when() {
    let old = plan(&json!({"belay.dev/release-generation": "4"}));
    let new = stamped(&given(&old, &[("undo", "shop-1")]), &old, "jane", 60);
    assert_eq!(
        new["metadata"]["annotations"][ORDERED_BY],
        r#"[{"at":"1970-01-01T00:01:00Z","generation":4,"order":"undo","revision":"shop-1","user":"jane"}]"#
    );
    // Other writes of other people, at other times, do not change it.
    let mut later = new.clone();
    later["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(stamped(&later, &new, "joe", 90), later);
}

#[test]
fn a_stamp_cannot_be_set_altered_or_taken_off() {
    let forged =
        r#"[{"order":"undo","revision":"shop-1","user":"root","at":"1970-01-01T00:00:01Z"}]"#;
    let old = plan(&json!({"note": "x"}));
    let bare = plan(&json!({"note": "x", ORDERED_BY: forged}));
    assert_eq!(stamped(&bare, &old, "mallory", 60), old);
    let new = given(&bare, &[("undo", "shop-1")]);
    let new = stamped(&new, &old, "mallory", 60);
    assert_eq!(
        who(&new, "undo", "shop-1"),
        Some(("mallory".to_owned(), 60))
    );
    for value in [json!(forged), json!("[]"), json!("nonsense"), Value::Null] {
        let mut altered = new.clone();
        altered["metadata"]["annotations"][ORDERED_BY] = value;
        assert_eq!(stamped(&altered, &new, "joe", 90), new);
    }
    let mut without = new.clone();
    let annotations = without["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove(ORDERED_BY);
    assert_eq!(stamped(&without, &new, "joe", 90), new);
}

#[test]
fn a_stamp_goes_with_its_order_and_changes_with_its_value() {
    let old = plan(&json!({}));
    let both = given(&old, &[("abort", "shop-2"), ("undo", "shop-1")]);
    let both = stamped(&both, &old, "jane", 60);
    let next = stamped(&given(&both, &[("undo", "shop-0")]), &both, "joe", 90);
    assert_eq!(who(&next, "undo", "shop-1"), None);
    assert_eq!(who(&next, "undo", "shop-0"), Some(("joe".to_owned(), 90)));
    assert_eq!(who(&next, "abort", "shop-2"), Some(("jane".to_owned(), 60)));
    let mut done = next.clone();
    let annotations = done["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove("belay.dev/abort");
    annotations.remove("belay.dev/undo");
    assert_eq!(stamped(&done, &next, "operator", 99), old);
}

#[test]
fn an_order_that_no_webhook_saw_is_nobodys() {
    let old = plan(&json!({"belay.dev/abort": "shop-2"}));
    let new = stamped(&given(&old, &[("undo", "shop-1")]), &old, "jane", 60);
    assert_eq!(orders(&new), ["abort", "undo"]);
    assert_eq!(who(&new, "abort", "shop-2"), None);
    assert_eq!(who(&new, "undo", "shop-1"), Some(("jane".to_owned(), 60)));
}

#[test]
fn the_later_of_two_orders_that_contradict_each_other_stays() {
    for (first, second, stay) in [
        ("undo", "retry", vec!["retry"]),
        ("retry", "undo", vec!["undo"]),
        ("abort", "retry", vec!["retry"]),
        ("retry", "abort", vec!["abort"]),
        ("undo", "abort", vec!["abort", "undo"]),
    ] {
        let old = plan(&json!({}));
        let one = stamped(&given(&old, &[(first, "shop-1")]), &old, "jane", 60);
        let two = stamped(&given(&one, &[(second, "shop-2")]), &one, "joe", 90);
        assert_eq!(orders(&two), stay, "{first} {second}");
        assert_eq!(who(&two, second, "shop-2"), Some(("joe".to_owned(), 90)));
        assert_eq!(who(&two, first, "shop-1").is_some(), stay.contains(&first));
    }
    // Neither is the later one: that is for the rules to refuse.
    let old = plan(&json!({}));
    let both = given(&old, &[("undo", "shop-1"), ("retry", "shop-2")]);
    assert_eq!(orders(&stamped(&both, &old, "jane", 60)), ["undo", "retry"]);
}

#[test]
fn a_stamp_that_the_controller_takes_off_leaves_the_others() {
    let old = plan(&json!({}));
    let both = given(&old, &[("abort", "shop-2"), ("undo", "shop-1")]);
    let both = stamped(&both, &old, "jane", 60);
    let text = both["metadata"]["annotations"][ORDERED_BY].as_str();
    let left = Stamps::read(text).without("belay.dev/abort");
    assert!(left.of("belay.dev/undo", "shop-1").is_some());
    assert_eq!(left.without("belay.dev/undo").write(), None);
}

#[test]
fn damaged_objects_are_no_reason_to_fail() {
    for object in [
        json!(null),
        json!({"metadata": 5}),
        json!({"metadata": {"annotations": 5}}),
        json!({"metadata": {"annotations": {"belay.dev/undo": 5}}}),
    ] {
        assert_eq!(stamped(&object, &object, "jane", 60), object);
    }
}

fn annotation() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(None),
        (0..3_u8).prop_map(|n| Some(format!("shop-{n}")))
    ];
    let stamp = prop_oneof![Just(None), "\\PC{0,40}".prop_map(Some)];
    let orders = prop::array::uniform3(value);
    (orders, stamp).prop_map(|(values, stamp)| {
        let mut annotations = json!({});
        for (order, value) in ORDERS.iter().zip(values) {
            if let Some(value) = value {
                annotations[order] = json!(value);
            }
        }
        if let Some(stamp) = stamp {
            annotations[ORDERED_BY] = json!(stamp);
        }
        plan(&annotations)
    })
}

proptest! {
    #[test]
    fn its_own_output_gives_nothing_more_to_do(
        old in annotation(), object in annotation(), user in "\\PC{0,20}"
    ) {
        let old = stamped(&old, &plan(&json!({})), "first", 10);
        let once = stamped(&object, &old, &user, 60);
        prop_assert_eq!(&stamped(&once, &old, &user, 60), &once);
        // Once stored it stays, whoever writes.
        prop_assert_eq!(&stamped(&once, &once, "other", 90), &once);
        let text = once["metadata"]["annotations"][ORDERED_BY].as_str();
        prop_assert!(text.is_none_or(str::is_ascii));
    }
}
