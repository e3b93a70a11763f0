//! What is done to plans, and what may be.

use super::*;

/// WV-01: a DELETE carries no object. It is none of our business, which does
/// not make it forbidden.
#[tokio::test]
async fn wv_01_a_delete_is_allowed_without_a_patch() {
    let router = webhooks(Arc::default());
    for old in [stored(&plan()).await, invalid()] {
        for path in BOTH {
            let review = review("DELETE", Value::Null, old.clone());
            let answer = ask(&router, path, &review).await;
            assert!(answer.accepted().get("patch").is_none());
        }
    }
}

#[tokio::test]
async fn wv_01_a_label_edit_is_allowed() {
    let router = webhooks(Arc::default());
    let old = stored(&plan()).await;
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"team": "shop"});
    for path in BOTH {
        let answer = ask(&router, path, &update(&old, &new)).await;
        assert_eq!(answer.patched(&new), new);
    }
}

#[tokio::test]
async fn wv_01_null_objects_in_every_combination_get_an_answer_with_the_uid() {
    let router = webhooks(Arc::default());
    let some = stored(&plan()).await;
    let values = [
        None,
        Some(Value::Null),
        Some(some),
        Some(json!("text")),
        Some(json!([])),
    ];
    for operation in ["CREATE", "UPDATE", "DELETE", "CONNECT"] {
        for object in &values {
            for old in &values {
                for path in BOTH {
                    let mut review = review(operation, Value::Null, Value::Null);
                    for (field, value) in [("object", object), ("oldObject", old)] {
                        let request = review["request"].as_object_mut().unwrap();
                        match value {
                            Some(value) => request.insert(field.into(), value.clone()),
                            None => request.remove(field),
                        };
                    }
                    let answer = ask(&router, path, &review).await;
                    let is_plan =
                        |value: &Option<Value>| value.as_ref().is_some_and(Value::is_object);
                    let usable = match operation {
                        "CREATE" => is_plan(object),
                        "UPDATE" => is_plan(object) && is_plan(old),
                        _ => true,
                    };
                    if usable {
                        answer.accepted();
                    } else {
                        assert!(answer.denied(400).contains("request."), "{answer:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn wv_01_an_unknown_operation_is_answered_and_not_guessed_at() {
    let router = webhooks(Arc::default());
    for operation in [json!("PATCH"), json!(""), json!(7), Value::Null] {
        let mut review = create(&plan());
        review["request"]["operation"] = operation;
        for path in BOTH {
            let answer = ask(&router, path, &review).await;
            assert!(
                answer.denied(400).contains("request.operation"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn wv_01_other_kinds_and_subresources_are_left_alone() {
    let router = webhooks(Arc::default());
    let mut other = create(&invalid());
    other["request"]["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let mut status = update(&invalid(), &invalid());
    status["request"]["subResource"] = json!("status");
    for review in [other, status] {
        for path in BOTH {
            assert!(
                ask(&router, path, &review)
                    .await
                    .accepted()
                    .get("patch")
                    .is_none()
            );
        }
    }
    let mut newer = create(&plan());
    newer["request"]["kind"]["version"] = json!("v2");
    let answer = ask(&router, MUTATE, &newer).await;
    assert!(answer.denied(400).contains("belay.dev/v1alpha1"));
}

/// WV-02: with generateName there is no name yet, anywhere.
#[tokio::test]
async fn wv_02_a_plan_without_a_name_is_admitted_and_named_by_its_prefix() {
    let router = webhooks(Arc::default());
    let nameless = |mut plan: Value| {
        plan["metadata"] = json!({"generateName": "shop-", "namespace": "shop"});
        plan
    };
    for path in BOTH {
        for name in [json!(""), Value::Null] {
            let mut review = create(&nameless(plan()));
            review["request"]["name"] = name.clone();
            ask(&router, path, &review).await.accepted();
            let mut review = create(&nameless(invalid()));
            review["request"]["name"] = name;
            let answer = ask(&router, path, &review).await;
            assert!(
                answer
                    .denied(422)
                    .starts_with("ReleasePlan.belay.dev \"shop-\" is invalid")
            );
        }
        let mut bare = create(&nameless(invalid()));
        bare["request"].as_object_mut().unwrap().remove("name");
        bare["request"]["object"]
            .as_object_mut()
            .unwrap()
            .remove("metadata");
        let answer = ask(&router, path, &bare).await;
        assert!(
            answer
                .denied(422)
                .starts_with("ReleasePlan.belay.dev \"\" is invalid")
        );
    }
}

/// WV-08: the webhook may be older than the CRD, so fields it does not know are
/// no fault. A typo that leaves a one-of empty is.
#[tokio::test]
async fn wv_08_unknown_fields_are_read_past_and_kept() {
    let router = webhooks(Arc::default());
    let mut newer = plan();
    newer["spec"]["fromTheFuture"] = json!({"a": [1]});
    newer["spec"]["components"][0]["alsoNew"] = json!(true);
    newer["fromTheFuture"] = json!(1);
    let mutated = ask(&router, MUTATE, &create(&newer)).await.patched(&newer);
    assert_eq!(mutated["spec"]["fromTheFuture"], json!({"a": [1]}));
    assert_eq!(mutated["spec"]["components"][0]["alsoNew"], true);
    ask(&router, VALIDATE, &create(&mutated)).await.accepted();
}

#[tokio::test]
async fn wv_08_a_misspelt_strategy_is_an_empty_one_and_refused() {
    let router = webhooks(Arc::default());
    for strategy in [json!({"canry": {"steps": []}}), json!({})] {
        let mut plan = plan();
        plan["spec"]["strategy"] = strategy;
        for path in BOTH {
            let answer = ask(&router, path, &create(&plan)).await;
            assert!(answer.denied(422).contains("spec.strategy"), "{answer:?}");
        }
    }
}

/// WV-03: a plan that is stored and not valid can be labelled, but not changed
/// into another invalid one.
#[tokio::test]
async fn wv_03_an_invalid_plan_that_is_stored_can_be_labelled_but_not_made_worse() {
    let router = webhooks(Arc::default());
    let old = invalid();
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let mut worse = old.clone();
    worse["spec"]["bakeTime"] = json!("later");
    for path in BOTH {
        ask(&router, path, &update(&old, &labelled))
            .await
            .accepted();
        ask(&router, path, &update(&old, &worse)).await.denied(422);
        ask(&router, path, &update(&old, &plan())).await.accepted();
    }
}

/// The finalizer of a plan with work to do goes only by the operator's hand.
#[tokio::test]
async fn wv_03_only_the_operator_takes_the_finalizer_off_unfinished_work() {
    let router = webhooks(Arc::default());
    let mut old = stored(&plan()).await;
    old["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    old["status"] = json!({"phase": "Rollback", "release": {
        "number": 1, "kind": "Content", "stage": "Restore", "content": "x",
        "startedAt": "2026-01-02T00:00:00.000000Z",
        "stageSince": "2026-01-02T00:00:00.000000Z",
        "applied": ["shop-1"]
    }});
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    for path in BOTH {
        let mut review = update(&old, &new);
        let answer = ask(&router, path, &review).await;
        assert!(answer.denied(422).contains("finalizers"), "{answer:?}");
        review["request"]["userInfo"]["username"] = json!(OPERATOR);
        ask(&router, path, &review).await.accepted();
    }
}
