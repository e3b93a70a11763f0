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

/// A cluster that keeps revisions, the stable one among them, each with the
/// contents of two ConfigMaps.
fn keeping(names: &[&str], held: [Held; 2]) -> Arc<Cluster> {
    let tracked = |name: &str| Tracked::new(name, &format!("digest-of-{name}"), "uid");
    let revision = |name: &&str| {
        let data = json!({
            "canon": 1, "spec": "s", "components": [{
                "name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
                "partialDigest": "p",
                "template": {"spec": {"containers": [{"name": "app"}]}}, "fields": {},
                "configMaps": [tracked("one"), tracked("two")],
            }],
        });
        Revision {
            name: (*name).to_owned(),
            data: serde_json::from_value(data).unwrap(),
        }
    };
    Arc::new(Cluster {
        revisions: names.iter().chain([&"shop-2"]).map(revision).collect(),
        held: vec![("one", held[0]), ("two", held[1])],
        ..Cluster::default()
    })
}

fn whole() -> Arc<Cluster> {
    keeping(&["shop-1", "shop-3"], [Held::Whole; 2])
}

/// A plan of which content with a live template was refused.
async fn refused() -> Value {
    let mut old = released().await;
    old["status"]["refused"] = json!([{
        "revision": "shop-3", "cause": "ImagePullBackOff", "message": "m",
        "live": [{"workload": {"kind": "Deployment", "name": "db"}, "digest": "d"}],
        "at": "2026-01-01T00:00:00Z",
    }]);
    old
}

fn stamp(object: &Value) -> Vec<Value> {
    let text = object["metadata"]["annotations"]["belay.dev/ordered-by"].as_str();
    text.map_or_else(Vec::new, |text| serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn an_order_is_stamped_by_mutate_and_admitted_by_validate() {
    let router = webhooks(whole());
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
    let router = webhooks(whole());
    let old = refused().await;
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
    let cluster = whole();
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

fn retry(old: &Value, revision: &str) -> Value {
    let mut new = old.clone();
    new["metadata"]["annotations"]["belay.dev/retry"] = json!(revision);
    new
}

#[tokio::test]
async fn an_order_for_a_revision_that_is_gone_is_denied() {
    let router = webhooks(Arc::default());
    let old = refused().await;
    let answer = ask(&router, VALIDATE, &update(&old, &undo(&old, "shop-1"))).await;
    let text = r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-1" cannot be brought back: its ControllerRevision was deleted or changed"#;
    assert!(answer.denied(422).contains(text), "{answer:?}");
    let answer = ask(&router, VALIDATE, &update(&old, &retry(&old, "shop-3"))).await;
    let text = r#"metadata.annotations[belay.dev/retry]: Invalid value: "shop-3" cannot be tried again: its ControllerRevision was deleted or changed"#;
    assert!(answer.denied(422).contains(text), "{answer:?}");
}

#[tokio::test]
async fn content_that_the_spec_holds_whole_can_be_tried_again_without_its_revision() {
    let router = webhooks(Arc::default());
    let mut old = refused().await;
    old["status"]["refused"][0]["live"] = json!([]);
    let answer = ask(&router, VALIDATE, &update(&old, &retry(&old, "shop-3"))).await;
    answer.accepted();
    assert_eq!(answer.warnings(), [""; 0]);
}

#[tokio::test]
async fn an_order_for_contents_that_are_lost_is_denied_with_all_that_is_missing() {
    let old = released().await;
    let review = update(&old, &undo(&old, "shop-1"));
    let router = webhooks(keeping(&["shop-1"], [Held::Lost, Held::Blocked]));
    let answer = ask(&router, VALIDATE, &review).await;
    let text = answer.denied(422);
    for words in [
        "which kept contents of configmap one, was deleted",
        "give one the contents with the digest digest-of-one back",
        "does not hold the contents of configmap two",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

/// Contents of a followed workload can only be written where they are tracked.
#[tokio::test]
async fn an_undo_to_contents_that_the_plan_does_not_track_is_denied() {
    let mut kept = Arc::into_inner(whole()).unwrap();
    for revision in &mut kept.revisions {
        revision.data.components[0].partial_digest = None;
    }
    let old = released().await;
    let review = update(&old, &undo(&old, "shop-1"));
    let answer = ask(&webhooks(Arc::new(kept)), VALIDATE, &review).await;
    let text = "it holds contents of configmap one and two, which the plan does not track any more; add it to spec.components[].configMaps first";
    assert!(answer.denied(422).contains(text), "{answer:?}");
}

/// An undo that fails has to have something to go back to.
#[tokio::test]
async fn an_undo_without_the_stable_revision_is_denied_and_names_that_one() {
    let mut kept = Arc::into_inner(whole()).unwrap();
    kept.revisions.retain(|revision| revision.name != "shop-2");
    let old = released().await;
    let review = update(&old, &undo(&old, "shop-1"));
    let answer = ask(&webhooks(Arc::new(kept)), VALIDATE, &review).await;
    let text = "ControllerRevision shop-2, which is stable, was deleted or changed";
    assert!(answer.denied(422).contains(text), "{answer:?}");
}

/// Two revisions may differ in nothing that would be written: before a plan tracked a
/// ConfigMap, or owned a field, its workload ran the same.
#[tokio::test]
async fn an_undo_to_what_is_live_already_is_denied() {
    let answer = async |change: fn(&mut Value, &mut Value)| {
        let tracked = Tracked::new("one", "d", "uid");
        let template = |image: &str| {
            json!({"spec": {"containers": [{"name": "app", "image": image,
                "envFrom": [{"configMapRef": {"name": "one"}}]}]}})
        };
        let cart = json!({"name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
                          "template": template("cart:1")});
        let db = json!({"name": "db", "workload": {"kind": "Deployment", "name": "db"},
                        "template": template("db:1")});
        let mut then = json!({"canon": 1, "spec": "then", "components": [cart, db]});
        then["components"][0]["named"] = json!([tracked]);
        let mut live = then.clone();
        live["components"][0]["partialDigest"] = json!("p");
        live["components"][0]["fields"] = json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"app\"}": {"f:image": {}}}}});
        // What surrounds the fields of the plan stays as it is.
        live["components"][0]["template"]["spec"]["priority"] = json!(7);
        let mut old = released().await;
        old["status"]["conditions"] = json!([{"type": "Stable", "status": "True",
            "reason": "Released", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        old["status"]["configMaps"] = json!([{"name": "one", "digest": "d"}]);
        change(&mut old, &mut then);
        let revision = |name: &str, data: &Value| Revision {
            name: name.to_owned(),
            data: serde_json::from_value(data.clone()).unwrap(),
        };
        let router = webhooks(Arc::new(Cluster {
            revisions: vec![revision("shop-1", &then), revision("shop-2", &live)],
            held: vec![("one", Held::Whole)],
            ..Cluster::default()
        }));
        ask(&router, VALIDATE, &update(&old, &undo(&old, "shop-1"))).await
    };
    let text = r#"metadata.annotations[belay.dev/undo]: Invalid value: "shop-1" is what is live already, by the name shop-2: nothing would change"#;
    let denied = answer(|_, _| {}).await;
    assert!(denied.denied(422).contains(text), "{denied:?}");
    let changes: [fn(&mut Value, &mut Value); 4] = [
        |_, then| {
            let image = "/components/0/template/spec/containers/0/image";
            *then.pointer_mut(image).unwrap() = json!("cart:0");
        },
        // Of what is followed all comes back.
        |_, then| then["components"][1]["template"]["spec"]["priority"] = json!(1),
        // The name stands for other contents by now.
        |old, _| old["status"]["configMaps"][0]["digest"] = json!("other"),
        |old, _| old["status"]["conditions"] = json!([]),
    ];
    for change in changes {
        answer(change).await.accepted();
    }
}

/// What has left the plan is not brought back, so it may be lost.
#[tokio::test]
async fn contents_that_an_order_does_not_bring_back_are_not_looked_for() {
    let kept = keeping(&["shop-1", "shop-3"], [Held::Lost; 2]);
    let mut old = released().await;
    old["spec"]["components"] = json!([{"workload": {"kind": "Deployment", "name": "db"}}]);
    let review = update(&old, &undo(&old, "shop-1"));
    ask(&webhooks(kept.clone()), VALIDATE, &review)
        .await
        .accepted();
    let old = refused().await;
    let review = update(&old, &retry(&old, "shop-3"));
    ask(&webhooks(kept), VALIDATE, &review).await.accepted();
}

/// What cannot be found out holds nobody up: the controller asks again.
#[tokio::test]
async fn an_order_that_cannot_be_checked_is_admitted_with_a_warning() {
    let old = released().await;
    let review = update(&old, &undo(&old, "shop-1"));
    let router = webhooks(Arc::new(Cluster {
        broken: true,
        ..Cluster::default()
    }));
    let answer = ask(&router, VALIDATE, &review).await;
    answer.accepted();
    let warnings = answer.warnings();
    assert_eq!(
        *warnings.last().unwrap(),
        "belay.dev/undo: it was not checked whether shop-1 is whole: deployments.apps is forbidden"
    );
}

/// An order that stands there is being dealt with: what is lost meanwhile must
/// not keep the plan from being labelled.
#[tokio::test]
async fn an_order_that_stood_there_is_not_judged_again() {
    let router = webhooks(Arc::default());
    let old = undo(&released().await, "shop-1");
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"team": "checkout"});
    ask(&router, VALIDATE, &update(&old, &new)).await.accepted();
}
