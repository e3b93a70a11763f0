//! Orders, and who gave them.

use super::*;

/// A plan with an earlier revision to go back to.
async fn released() -> Value {
    let mut old = stored(&plan()).await;
    old["status"] = json!({
        "phase": "Stable", "stableRevision": "shop-2",
        "history": [{
            "number": 1, "kind": "Content", "revision": "shop-2", "from": "shop-1",
            "result": "Succeeded",
            "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:00Z",
        }],
    });
    old
}

fn undo(old: &Value, revision: &str) -> Value {
    let mut new = old.clone();
    new["metadata"]["annotations"]["belay.dev/undo"] = json!(revision);
    new
}

fn stamp(object: &Value) -> Vec<Value> {
    let text = object["metadata"]["annotations"]["belay.dev/ordered-by"].as_str();
    text.map_or_else(Vec::new, |text| serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn an_order_is_stamped_by_mutate_and_admitted_by_validate() {
    let router = webhooks(Arc::default());
    let old = released().await;
    let new = undo(&old, "shop-1");
    let stamped = ask(&router, MUTATE, &update(&old, &new))
        .await
        .patched(&new);
    assert_eq!(
        stamp(&stamped),
        [json!({
            "order": "undo", "revision": "shop-1", "user": "ann", "at": "1970-01-01T00:01:00Z",
            "generation": 1,
        })]
    );
    let review = update(&old, &stamped);
    ask(&router, VALIDATE, &review).await.accepted();
    // Its own output gives no patch, to the same request or to the next one.
    for review in [review, update(&stamped, &stamped)] {
        let answer = ask(&router, MUTATE, &review).await;
        assert!(answer.accepted().get("patch").is_none(), "{answer:?}");
    }
}

#[tokio::test]
async fn a_forged_stamp_is_replaced() {
    let router = webhooks(Arc::default());
    let old = released().await;
    let forged =
        r#"[{"order":"undo","revision":"shop-1","user":"root","at":"1970-01-01T00:00:01Z"}]"#;
    let mut new = undo(&old, "shop-1");
    new["metadata"]["annotations"]["belay.dev/ordered-by"] = json!(forged);
    let stamped = ask(&router, MUTATE, &update(&old, &new))
        .await
        .patched(&new);
    assert_eq!(stamp(&stamped)[0]["user"], "ann");
    let mut bare = old.clone();
    bare["metadata"]["annotations"]["belay.dev/ordered-by"] = json!(forged);
    let clean = ask(&router, MUTATE, &update(&old, &bare))
        .await
        .patched(&bare);
    assert_eq!(clean, old);
}

#[tokio::test]
async fn an_order_that_means_nothing_is_denied_on_both_ways_with_its_field() {
    let router = webhooks(Arc::default());
    let old = released().await;
    let review = update(&old, &undo(&old, "shop-9"));
    for path in BOTH {
        let answer = ask(&router, path, &review).await;
        let text = r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-9" is not a revision that this plan keeps (kept: shop-1, shop-2)"#;
        assert!(answer.denied(422).contains(text), "{answer:?}");
        let cause = &answer.response()["status"]["details"]["causes"][0];
        assert_eq!(cause["field"], "metadata.annotations[belay.dev/undo]");
    }
}

#[tokio::test]
async fn the_later_of_two_orders_takes_the_place_of_the_first() {
    let router = webhooks(Arc::default());
    let mut old = released().await;
    old["status"]["refused"] = json!([{
        "revision": "shop-3", "cause": "ImagePullBackOff", "message": "m",
        "at": "2026-01-01T00:00:00Z",
    }]);
    let first = undo(&old, "shop-1");
    let first = ask(&router, MUTATE, &update(&old, &first))
        .await
        .patched(&first);
    let mut second = first.clone();
    second["metadata"]["annotations"]["belay.dev/retry"] = json!("shop-3");
    let answer = ask(&router, MUTATE, &update(&first, &second)).await;
    let second = answer.patched(&second);
    assert_eq!(
        second["metadata"]["annotations"].get("belay.dev/undo"),
        None
    );
    let orders: Vec<_> = stamp(&second).iter().map(|s| s["order"].clone()).collect();
    assert_eq!(orders, ["retry"]);
    ask(&router, VALIDATE, &update(&first, &second))
        .await
        .accepted();
}

/// WR-01: a dry run is answered like the real request.
#[tokio::test]
async fn wr_01_an_order_in_a_dry_run_leaves_no_trace() {
    let cluster = Arc::new(Cluster::default());
    let router = webhooks(cluster.clone());
    let old = released().await;
    let real = update(&old, &undo(&old, "shop-1"));
    let mut dry = real.clone();
    dry["request"]["dryRun"] = json!(true);
    for path in BOTH {
        let rehearsed = ask(&router, path, &dry).await;
        assert_eq!(rehearsed.body, ask(&router, path, &real).await.body);
    }
    assert_eq!(cluster.asked(), (0, 0));
}
