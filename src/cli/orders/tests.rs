use expect_test::expect;
use serde_json::json;

use super::{
    super::testing::{rolled_back, with},
    *,
};

fn sent(verb: Verb, plan: &StoredPlan, named: Option<&str>) -> String {
    match verb.order(plan, named, &Caller::default()) {
        Ok(order) => match order.kubectl("shop", &[]) {
            Some(command) => command,
            None => format!("{order:?}"),
        },
        Err(refusal) => format!("{} | {}", refusal.message, refusal.hint),
    }
}

fn rolling_out() -> StoredPlan {
    with(|plan| {
        plan["status"]["phase"] = json!("RollingOut");
        plan["status"]["targetRevision"] = json!("shop-cccc");
        plan["status"]["release"] = json!({
            "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
        });
    })
}

#[test]
fn an_abort_names_what_is_released_and_nothing_else() {
    let plan = rolling_out();
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/abort=shop-cccc"]
        .assert_eq(&sent(Verb::Abort, &plan, None));
    assert_eq!(
        sent(Verb::Abort, &plan, Some("shop-cccc")),
        sent(Verb::Abort, &plan, None)
    );
    expect![
        "shop does not release shop-dddd but shop-cccc | belay abort shop --revision shop-cccc -n s"
    ]
    .assert_eq(&sent(Verb::Abort, &plan, Some("shop-dddd")));
    expect!["shop has no release to abort: it is Stable on shop-bbbb | belay history shop -n s"]
        .assert_eq(&sent(Verb::Abort, &with(|_| {}), None));
}

#[test]
fn an_abort_that_goes_back_to_nothing_says_so() {
    let note = |plan: &StoredPlan| match Verb::Abort.order(plan, None, &Caller::default()) {
        Ok(Order::Annotation { note, .. }) => note,
        other => panic!("{other:?}"),
    };
    let mut plan = rolling_out();
    assert_eq!(note(&plan), None);
    plan.status.as_mut().unwrap().stable_revision = None;
    let said = note(&plan);
    assert_eq!(
        said.as_deref(),
        Some("nothing was stable before, so what is live stays as it is")
    );
}

/// Two people, or one who pressed twice.
#[test]
fn an_abort_given_twice_ends_no_rollback_and_one_of_a_rollback_says_that_it_does() {
    let back = |cause: &str, since: &str| {
        let mut plan = serde_json::to_value(rolling_out()).unwrap();
        plan["status"]["phase"] = json!("Rollback");
        plan["status"]["release"]["stage"] = json!("Restore");
        plan["status"]["release"]["stageSince"] = json!(since);
        plan["status"]["release"]["failure"] = json!({"cause": cause, "message": "m", "at": since});
        serde_json::from_value::<StoredPlan>(plan).unwrap()
    };
    let (new, old) = ("2026-03-01T11:59:51.000000Z", "2026-03-01T11:59:50.000000Z");
    let noon = super::super::testing::noon();
    let again = |cause, since| {
        let plan = back(cause, since);
        order::again(Verb::Abort, &plan, None, &Caller::default(), noon)
    };
    expect![[r#"Some(Nothing("was aborted a moment ago and goes back to shop-bbbb already; to end that where it is, give the order again in 10 s"))"#]]
        .assert_eq(&format!("{:?}", again("Aborted", new)));
    assert_eq!(again("Aborted", old), None);
    assert_eq!(again("ContainerRestarts", new), None);
    let order = Verb::Abort.order(&back("Aborted", old), None, &Caller::default());
    expect![[r#"Ok(Annotation { name: "belay.dev/abort", revision: "shop-cccc", note: Some("this ends the rollback to shop-bbbb where it is: what is live stays") })"#]]
        .assert_eq(&format!("{order:?}"));
}

#[test]
fn a_retry_names_what_failed_last() {
    let plan = with(rolled_back);
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &plan, None));
    expect!["shop has not refused shop-aaaa; refused or failed are: shop-cccc | belay retry shop --revision shop-cccc -n s"]
        .assert_eq(&sent(Verb::Retry, &plan, Some("shop-aaaa")));
    expect!["shop has nothing to try again: it is Stable on shop-bbbb | belay history shop -n s"]
        .assert_eq(&sent(Verb::Retry, &with(|_| {}), None));
}

#[test]
fn a_retry_is_about_content_that_the_plan_still_asks_for() {
    let asks = crate::plan::Plan::parse(&with(|_| {}).spec).unwrap();
    let plan = with(|plan| {
        rolled_back(plan);
        plan["status"]["refused"][0]["spec"] = json!(asks.content());
        let mut gone = plan["status"]["refused"][0].clone();
        gone["revision"] = json!("shop-gone");
        gone["spec"] = json!("of another time");
        plan["status"]["refused"].as_array_mut().unwrap().push(gone);
    });
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &plan, None));
}

#[test]
fn what_has_left_the_plan_is_not_tried_again_by_itself() {
    let gone = with(|plan| {
        rolled_back(plan);
        plan["status"]["refused"][0]["spec"] = json!("of another time");
    });
    expect!["what was refused of shop is no longer what it asks for (shop-cccc): it is Stable on shop-bbbb | with its content in the plan again, name it with --revision: belay history shop -n s"]
        .assert_eq(&sent(Verb::Retry, &gone, None));
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &gone, Some("shop-cccc")));
}

/// The last record tells of what came again of workloads alone: the rest of it is no
/// longer in the plan, and is what the operator would not try either.
#[test]
fn a_retry_is_never_of_what_holds_the_plan_but_has_left_it() {
    let gone = with(|plan| {
        rolled_back(plan);
        let mut older = plan["status"]["refused"][0].clone();
        older["revision"] = json!("shop-older");
        let mut gone = plan["status"]["refused"][0].clone();
        gone["spec"] = json!("of another time");
        plan["status"]["refused"] = json!([older, gone]);
        plan["status"]["history"][1]["message"] = json!("it came again and was put back: x");
    });
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-older"]
        .assert_eq(&sent(Verb::Retry, &gone, None));
}

/// What was refused of a workload that the plan follows, and corrected since, would
/// put content live again that is known to be bad.
#[test]
fn a_retry_without_a_name_is_only_of_what_the_plan_stands_on() {
    let corrected = |plan: &mut serde_json::Value| {
        rolled_back(plan);
        let status = &mut plan["status"];
        status["stableRevision"] = json!("shop-dddd");
        status["conditions"] =
            super::super::testing::conditions("True", "Released", "shop-dddd is released");
        status["refused"][0]["live"] =
            json!([{"workload": {"kind": "Deployment", "name": "web"}, "digest": "d"}]);
        let mut record = status["history"][0].clone();
        (record["revision"], record["number"]) = (json!("shop-dddd"), json!(3));
        status["history"].as_array_mut().unwrap().push(record);
    };
    let healthy = with(corrected);
    expect!["nothing that was refused of shop is what it stands on now: it is Stable on shop-dddd; shop-cccc was refused at 2026-03-01 11:50:00Z, ContainerRestarts of component web | to release that nevertheless: belay retry shop --revision shop-cccc -n s"]
        .assert_eq(&sent(Verb::Retry, &healthy, None));
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &healthy, Some("shop-cccc")));
    assert_eq!(order::retry_of(&healthy), None);
    // The correction is on its way: the bad content would come once it has ended.
    let moving = with(|plan| {
        corrected(plan);
        plan["status"]["phase"] = json!("RollingOut");
        plan["status"]["release"] =
            serde_json::to_value(rolling_out().status.unwrap().release.unwrap()).unwrap();
        plan["status"]["conditions"] =
            super::super::testing::conditions("False", "Promoting", "waiting");
    });
    let told = sent(Verb::Retry, &moving, None);
    assert!(told.starts_with("nothing that was refused"), "{told}");
    // Another writer sets it again.
    let contended = with(|plan| {
        corrected(plan);
        plan["status"]["conditions"] = super::super::testing::conditions("False", "Contended", "");
    });
    assert_eq!(order::retry_of(&contended).as_deref(), Some("shop-cccc"));
}

/// The webhook takes no other one, and `Ready` names it.
#[test]
fn of_several_first_releases_that_failed_a_retry_is_of_what_the_plan_says() {
    let asks = crate::plan::Plan::parse(&with(|_| {}).spec).unwrap();
    let failed = |specs: [&str; 2]| {
        with(|plan| {
            let status = &mut plan["status"];
            status["phase"] = json!("Failed");
            status["stableRevision"] = json!(null);
            status["conditions"] =
                super::super::testing::conditions("False", "ReleaseFailed", "failed");
            let mut record = status["history"][0].clone();
            record["kind"] = json!("First");
            record["result"] = json!("Failed");
            record["from"] = json!(null);
            let mut later = record.clone();
            (record["revision"], later["revision"]) = (json!("shop-two"), json!("shop-three"));
            status["history"] = json!([record, later]);
            let refused = |revision: &str, spec: &str| {
                json!({"revision": revision, "spec": spec, "cause": "ProgressDeadlineExceeded",
                       "component": "cart", "message": "m", "at": "2026-03-01T11:50:00Z"})
            };
            status["refused"] = json!([
                refused("shop-two", specs[0]),
                refused("shop-three", specs[1])
            ]);
        })
    };
    let back = failed([asks.content(), "other"]);
    assert_eq!(order::retry_of(&back).as_deref(), Some("shop-two"));
    let later = failed(["other", asks.content()]);
    assert_eq!(order::retry_of(&later).as_deref(), Some("shop-three"));
    assert_eq!(order::retry_of(&failed(["a", "b"])), None);
}

#[test]
fn a_retry_is_not_of_what_is_being_released_already() {
    let asks = crate::plan::Plan::parse(&with(|_| {}).spec).unwrap();
    let comes = with(|plan| {
        rolled_back(plan);
        plan["status"]["refused"][0]["spec"] = json!(asks.content());
        plan["status"]["phase"] = json!("RollingOut");
        plan["status"]["targetRevision"] = json!("shop-dddd");
        plan["status"]["release"] =
            serde_json::to_value(rolling_out().status.unwrap().release.unwrap()).unwrap();
    });
    expect!["what was refused of shop (shop-cccc) comes again by itself, beside other content of what failed: it is RollingOut, and shop-bbbb is stable | belay status shop -n s"]
        .assert_eq(&sent(Verb::Retry, &comes, None));
    // Whoever names it has it waiting for the end.
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &comes, Some("shop-cccc")));
}

/// What is stable is live: its release is nothing to try again.
#[test]
fn a_retry_beside_an_undo_is_of_what_the_plan_asks_for_and_not_of_what_is_live() {
    let asks = crate::plan::Plan::parse(&with(|_| {}).spec).unwrap();
    let undone = |revision: &str, spec: Option<&str>| {
        json!({
            "revision": revision, "cause": "Undone", "at": "2026-03-01T11:50:00Z",
            "message": "x was asked for in its place", "spec": spec,
            "live": [{"workload": {"kind": "Deployment", "name": "web"}, "digest": revision}],
        })
    };
    let unbegun = |refused: serde_json::Value| {
        with(|plan| {
            plan["status"]["refused"] = refused;
            plan["status"]["release"] = json!({
                "number": 3, "kind": "Undo", "stage": "Settle", "content": "c",
                "undo": "shop-aaaa", "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z",
            });
        })
    };
    let asked = undone("shop-cccc", Some(asks.content()));
    let live = undone("shop-bbbb", Some("of another time"));
    let both = unbegun(json!([asked, live]));
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-cccc"]
        .assert_eq(&sent(Verb::Retry, &both, None));
    let one = unbegun(json!([live]));
    expect!["shop-bbbb is stable, and nothing else was refused of shop: it is Stable on shop-bbbb | to take the undo back: belay abort shop --revision shop-aaaa -n s"]
        .assert_eq(&sent(Verb::Retry, &one, None));
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/retry=shop-bbbb"]
        .assert_eq(&sent(Verb::Retry, &one, Some("shop-bbbb")));
}

/// It has a name within seconds, which is worth to wait for.
#[test]
fn an_abort_of_what_has_no_name_yet_says_what_is_live() {
    let settles = |applied: &[&str]| {
        with(|plan| {
            plan["status"]["phase"] = json!("RollingOut");
            plan["status"]["release"] = json!({
                "number": 3, "kind": "Content", "stage": "Settle", "content": "d",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z", "applied": applied,
            });
        })
    };
    let plan = settles(&["shop-cccc"]);
    expect!["shop is preparing a release that has no name yet, so that nothing can end it; shop-cccc, of which it takes the place, is live in part or whole: shop-bbbb is released and healthy | once it has a name: belay abort shop -n s"]
        .assert_eq(&sent(Verb::Abort, &plan, None));
    let soon = |plan: &StoredPlan| Verb::Abort.order(plan, None, &Caller::default());
    assert!(soon(&plan).unwrap_err().soon);
    let new = settles(&[]);
    assert!(!soon(&new).unwrap_err().soon);
    let unseen = with(|plan| plan["metadata"]["generation"] = json!(99));
    assert!(soon(&unseen).unwrap_err().soon);
    assert!(!soon(&with(|_| {})).unwrap_err().soon);
    expect!["shop is preparing a release that has no name yet; nothing of it is live | to keep it from going on: belay pause shop -n s"]
        .assert_eq(&sent(Verb::Abort, &new, None));
}

/// The second one would go to the stable revision, and nothing would be undone.
#[test]
fn an_undo_given_twice_does_not_take_itself_back() {
    let goes = |stage: &str, begun: &str| {
        with(|plan| {
            plan["status"]["release"] = json!({
                "number": 3, "kind": "Undo", "stage": stage, "content": "c",
                "undo": "shop-aaaa", "startedAt": begun, "stageSince": begun,
            });
        })
    };
    let noon = super::super::testing::noon();
    let again =
        |plan: &StoredPlan, named| order::again(Verb::Undo, plan, named, &Caller::default(), noon);
    let (new, old) = ("2026-03-01T11:59:51.000000Z", "2026-03-01T11:59:50.000000Z");
    // A retry of what froze goes to its revision in the same way, and is not meant.
    let mut retried = serde_json::to_value(goes("Promote", new)).unwrap();
    retried["status"]["release"]["retried"] = json!(true);
    let retried: StoredPlan = serde_json::from_value(retried).unwrap();
    assert!(again(&retried, None).is_none());
    for stage in ["Settle", "Promote"] {
        let plan = goes(stage, new);
        expect![[r#"Some(Nothing("goes to shop-aaaa already, as was asked a moment ago; to take that back: belay abort shop -n s"))"#]]
            .assert_eq(&format!("{:?}", again(&plan, None)));
        assert_eq!(again(&plan, Some("shop-bbbb")), None);
        assert_eq!(again(&goes(stage, old), None), None);
    }
    assert_eq!(again(&goes("Restore", new), None), None);
    assert_eq!(again(&rolling_out(), None), None);
}

#[test]
fn an_undo_says_what_it_passes_over() {
    let plan = with(|plan| {
        let records = plan["status"]["history"].as_array_mut().unwrap();
        let mut next = records[0].clone();
        (next["from"], next["revision"]) = (json!("shop-bbbb"), json!("shop-cccc"));
        records.push(next.clone());
        next["kind"] = json!("Undo");
        (next["from"], next["revision"]) = (json!("shop-cccc"), json!("shop-bbbb"));
        records.push(next);
    });
    let order = Verb::Undo.order(&plan, None, &Caller::default()).unwrap();
    expect![[r#"Annotation { name: "belay.dev/undo", revision: "shop-aaaa", note: Some("shop-cccc is passed over: shop-bbbb was asked for by jane in the place of shop-cccc") }"#]]
        .assert_eq(&format!("{order:?}"));
    let mut oldest = plan;
    oldest.status.as_mut().unwrap().history.remove(0);
    expect!["shop has no earlier revision to go to: it is Stable on shop-bbbb; shop-cccc is passed over: shop-bbbb was asked for by jane in the place of shop-cccc | to go there nevertheless: belay undo shop --to shop-cccc -n s"]
        .assert_eq(&sent(Verb::Undo, &oldest, None));
}

#[test]
fn an_undo_goes_to_the_revision_before_or_to_a_kept_one() {
    let plan = with(rolled_back);
    let back = "kubectl annotate --overwrite releaseplan/shop belay.dev/undo=shop-aaaa";
    assert_eq!(sent(Verb::Undo, &plan, None), back);
    assert_eq!(sent(Verb::Undo, &plan, Some("shop-aaaa")), back);
    expect![
        "shop does not keep shop-cccc; kept are: shop-aaaa, shop-bbbb | belay history shop -n s"
    ]
    .assert_eq(&sent(Verb::Undo, &plan, Some("shop-cccc")));
    expect!["shop-bbbb is the stable revision of shop already | to see the others: belay history shop -n s"]
    .assert_eq(&sent(Verb::Undo, &plan, Some("shop-bbbb")));
    // During a release, back means to what is stable.
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/undo=shop-bbbb"]
        .assert_eq(&sent(Verb::Undo, &rolling_out(), None));
    // A rollback goes there already.
    let going_back = with(|plan| {
        rolled_back(plan);
        plan["status"]["phase"] = json!("Rollback");
        plan["status"]["release"] = json!({
            "number": 3, "kind": "Content", "stage": "Restore", "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
        });
    });
    expect!["shop is going back to shop-bbbb already | to go to an older one instead: kubectl annotate releaseplan shop --overwrite belay.dev/undo=shop-aaaa belay.dev/abort=shop-cccc -n s"].assert_eq(&sent(Verb::Undo, &going_back, None));
    // Restarts in a long row, of which the records in between are gone.
    let restarted = with(|plan| {
        let record = |number: u32, kind: &str, from: &str, to: &str| {
            json!({
                "number": number, "kind": kind, "from": from, "revision": to,
                "result": "Succeeded",
                "startedAt": "2026-03-01T11:00:00Z", "endedAt": "2026-03-01T11:00:00Z",
            })
        };
        plan["status"]["stableRevision"] = json!("shop-ffff");
        plan["status"]["history"] = json!([
            record(1, "Content", "shop-aaaa", "shop-bbbb"),
            record(9, "Surroundings", "shop-dddd", "shop-eeee"),
            record(10, "Surroundings", "shop-eeee", "shop-ffff"),
        ]);
    });
    assert_eq!(sent(Verb::Undo, &restarted, None), back);
    let first = with(|plan| plan["status"]["history"] = json!([]));
    expect![
        "shop has no earlier revision to go to: it is Stable on shop-bbbb | belay history shop -n s"
    ]
    .assert_eq(&sent(Verb::Undo, &first, None));
}

/// Only the operator's message knows what is kept then.
#[test]
fn where_the_status_is_lost_an_undo_has_to_name_a_revision_and_is_told_which() {
    let lost = |message: &str| {
        with(|plan| {
            plan["status"] = json!({"phase": "Pending", "conditions":
                super::super::testing::conditions("False", "StatusLost", message)});
        })
    };
    let told = lost(
        "the status of this plan is gone. Or name the one to go back to, such as shop-aaaa: kubectl annotate relplan shop -n s belay.dev/undo=shop-aaaa --overwrite ; kept: shop-aaaa (release 1), shop-bbbb (release 2); meanwhile, x",
    );
    expect!["the status of shop is gone, and with it what was live before; kept are: shop-aaaa (release 1), shop-bbbb (release 2) | to go back to one: belay undo shop --to shop-aaaa -n s"]
        .assert_eq(&sent(Verb::Undo, &told, None));
    expect!["kubectl annotate --overwrite releaseplan/shop belay.dev/undo=shop-bbbb"]
        .assert_eq(&sent(Verb::Undo, &told, Some("shop-bbbb")));
    let unread = lost("the status is gone, and is told once the contents are known");
    expect!["the status of shop is gone, and with it what was live before | name one with --to, once belay status shop -n s lists them"]
        .assert_eq(&sent(Verb::Undo, &unread, None));
}

/// Whoever was told the old name may still have it.
#[test]
fn an_undo_to_a_name_that_a_revision_had_once_is_told_the_present_one() {
    let renamed = |messages: &[&str]| {
        with(|plan| {
            let entry = |message: &&str| json!({"at": "2026-03-01T11:30:00Z", "reason": "BaselineTaken", "message": message});
            plan["status"]["decisions"] = messages.iter().map(entry).collect();
        })
    };
    let tracked = "the stable revision shop-old names configmap a, which the plan tracks now; it is shop-mid from here on, with the contents of today";
    let back = "shop-mid names configmap a, which does not have the contents of then any more; it comes back as shop-aaaa, with their snapshot";
    let plan = renamed(&[tracked, back]);
    expect!["shop does not keep shop-old by that name: it is shop-aaaa by now | belay undo shop --to shop-aaaa -n s"]
        .assert_eq(&sent(Verb::Undo, &plan, Some("shop-old")));
    let plan = renamed(&[&tracked.replace("shop-mid", "shop-bbbb")]);
    expect![
        "shop does not keep shop-old by that name: it is shop-bbbb by now | belay history shop -n s"
    ]
    .assert_eq(&sent(Verb::Undo, &plan, Some("shop-old")));
    // What it was called then is not kept either.
    let plan = renamed(&[tracked]);
    expect![
        "shop does not keep shop-old; kept are: shop-aaaa, shop-bbbb | belay history shop -n s"
    ]
    .assert_eq(&sent(Verb::Undo, &plan, Some("shop-old")));
}

#[test]
fn a_pause_is_the_one_field_and_is_not_sent_twice() {
    let plan = with(|_| {});
    expect![[r#"kubectl patch releaseplan/shop --type=merge -p '{"spec":{"paused":true}}'"#]]
        .assert_eq(&sent(Verb::Pause, &plan, None));
    expect![[r#"Nothing("is not paused")"#]].assert_eq(&sent(Verb::Resume, &plan, None));
    let paused = with(|plan| plan["spec"]["paused"] = json!(true));
    expect![[r#"kubectl patch releaseplan/shop --type=merge -p '{"spec":{"paused":false}}'"#]]
        .assert_eq(&sent(Verb::Resume, &paused, None));
    expect![[r#"Nothing("is paused already")"#]].assert_eq(&sent(Verb::Pause, &paused, None));
}

/// The webhook takes none, and would say so in words about annotations.
#[test]
fn a_plan_that_is_deleted_takes_no_order_and_an_abort_is_told_what_does_the_same() {
    let mut plan = with(|plan| {
        plan["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
    });
    let told = |verb, plan: &StoredPlan| deleting(verb, plan, &Caller::default());
    let (message, hint) = told(Verb::Abort, &plan);
    assert_eq!(message, "shop is being deleted");
    expect![[
        r#"to let it go with what is live: kubectl patch releaseplan shop --type=merge -p '{"spec":{"deletionPolicy":"Keep"}}' -n s"#
    ]]
    .assert_eq(&hint);
    assert_eq!(told(Verb::Undo, &plan).1, "belay wait shop -n s");
    plan.spec["deletionPolicy"] = json!("Keep");
    assert_eq!(told(Verb::Abort, &plan).1, "belay wait shop -n s");
}
