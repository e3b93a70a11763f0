//! What is told while the operator does not come.

use serde_json::{Value, json};

use crate::api::ORDERED_BY;

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
        "due was: all goes back if web makes no progress; before that it was Promoting: 2 of 3",
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

/// Content stands still for a second before it is prepared.
#[test]
fn content_that_nobody_prepares_tells_that_the_operator_is_away() {
    let settles = |since: &str, message: &str, release: bool, change: &dyn Fn(&mut Value)| {
        with(promoting(), |plan| {
            plan["status"]["conditions"] = conditions("Settling", "Reconciling", since, message);
            plan["status"]["release"] = match release {
                true => super::super::fixtures::release("Settle", since, Value::Null),
                false => Value::Null,
            };
            change(plan);
        })
    };
    let (late, soon) = ("2026-03-01T03:03:55.000000Z", "2026-03-01T03:03:58.000000Z");
    let text = "new content was seen and is prepared for release";
    for release in [true, false] {
        let cluster = settles(late, text, release, &|_| {});
        assert!(is_overdue(&cluster));
        let verdict = cluster.status().verdict;
        assert_eq!(
            verdict.message,
            format!(
                "due was: the release begins within seconds; what was refused before is put back instead; before that it was Settling: {text}"
            )
        );
        assert!(!is_overdue(&settles(soon, text, release, &|_| {})));
    }
    let wrote = |plan: &mut Value| {
        plan["metadata"]["managedFields"] = json!([{"manager": "belay", "operation": "Update",
            "subresource": "status", "time": "2026-03-01T03:04:00Z"}]);
    };
    assert!(!is_overdue(&settles(late, text, false, &wrote)));
    let asks = "waiting for the API server to say what the new content becomes: timeout";
    assert!(!is_overdue(&settles(late, asks, true, &|_| {})));
}

/// An order that was given at a time, on a plan with this status.
fn ordered(
    order: &str,
    revision: &str,
    at: Option<&str>,
    change: impl FnOnce(&mut Value),
) -> Cluster {
    with(promoting(), |plan| {
        plan["metadata"]["annotations"] = json!({format!("belay.dev/{order}"): revision});
        if let Some(at) = at {
            let stamp = json!([{"order": order, "revision": revision, "user": "jane", "at": at}]);
            plan["metadata"]["annotations"][ORDERED_BY] = json!(stamp.to_string());
        }
        change(plan);
    })
}

/// An annotation does not raise the generation.
#[test]
fn an_order_that_nobody_carries_out_tells_that_the_operator_is_away() {
    let old = ordered("abort", TARGET, Some("2026-03-01T03:03:32Z"), |_| {});
    let verdict = old.status().verdict;
    assert_eq!(
        (verdict.health, verdict.reason.as_str()),
        (Health::Failed, "Ordered")
    );
    assert_eq!(
        verdict.title,
        format!("Nobody has carried out the abort of {TARGET}: is the operator running?")
    );
    assert_eq!(
        verdict.ways[0].command.as_deref(),
        Some("belay check -n web")
    );
    assert!(
        verdict
            .message
            .starts_with("asked for by jane; before that it was Promoting: "),
        "{verdict:?}"
    );
    assert!(!verdict.next.contains("failFast"), "{verdict:?}");
    let fresh = ordered("undo", STABLE, Some("2026-03-01T03:04:07Z"), |_| {});
    let verdict = fresh.status().verdict;
    assert_eq!((verdict.health, verdict.ways.len()), (Health::Working, 0));
    assert_eq!(
        verdict.title,
        format!("The undo to {STABLE} is not carried out yet")
    );
    // Where no webhook saw it.
    let edited = |at: &'static str| {
        move |plan: &mut Value| {
            plan["metadata"]["managedFields"] =
                json!([{"manager": "kubectl", "operation": "Update", "time": at}]);
        }
    };
    let health = |cluster: Cluster| cluster.status().verdict.health;
    let old = ordered("retry", TARGET, None, edited("2026-03-01T03:03:32Z"));
    assert_eq!(health(old), Health::Failed);
    let fresh = ordered("retry", TARGET, None, edited("2026-03-01T03:04:07Z"));
    assert_eq!(health(fresh), Health::Working);
}

#[test]
fn an_order_that_was_seen_is_not_told_as_one_that_was_not() {
    let at = Some("2026-03-01T03:03:32Z");
    let reason = |cluster: Cluster| cluster.status().verdict.reason;
    let handled = ordered("abort", TARGET, at, |plan| {
        plan["status"]["handled"] = json!({"annotation": "belay.dev/abort", "value": TARGET});
    });
    assert_eq!(reason(handled), "Promoting");
    let says = |text: &'static str| {
        move |plan: &mut Value| {
            let message = format!("waiting for deployment web; meanwhile, {text}");
            plan["status"]["conditions"][0]["message"] = json!(message);
        }
    };
    let waits = "all others were sent back; meanwhile, undo to shop-1, asked for by jane, waits for the end of release 3";
    assert_eq!(
        reason(ordered("undo", "shop-1", at, says(waits))),
        "Promoting"
    );
    let other = "undo to shop-11 waits for the end of release 3";
    assert_eq!(
        reason(ordered("undo", "shop-1", at, says(other))),
        "Ordered"
    );
    let fails = ordered("abort", TARGET, at, |plan| {
        plan["status"]["conditions"][0]["reason"] = json!("ReconcileError");
    });
    assert_eq!(reason(fails), "ReconcileError");
}

/// A release that failed or stopped is left for another template.
#[test]
fn a_template_that_nobody_looked_at_is_told_where_a_release_failed_or_stopped() {
    let spec = |more: Value| {
        let mut component = json!({"workload": {"kind": "Deployment", "name": "web"}});
        component
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"components": [component]})
    };
    let told = |reason: &str, spec: &Value, stops: bool, digest: &str| {
        let mut web = component("web", "Updating", None);
        web["liveDigest"] = json!("judged");
        let mut status = json!({
            "observedGeneration": 4, "phase": "Failed", "stableRevision": STABLE,
            "conditions": conditions(reason, "Stalled", "2026-03-01T00:58:00Z", "failed"),
            "components": [web],
        });
        if stops {
            status["release"] = release("Stopped", "2026-03-01T00:58:00.000000Z", failure());
        }
        let mut cluster = Cluster::new(spec, &status).deployment("web", 2, &[("web:1", 2, 2)]);
        let live = &mut cluster.deployments[0];
        live.spec.template.digest = digest.to_owned();
        let edits = live.metadata.managed_fields.as_mut().unwrap();
        edits[0].time = Some(serde_json::from_value(json!("2026-03-01T03:03:32Z")).unwrap());
        let verdict = cluster.status().verdict;
        assert_eq!(verdict.health, Health::Failed);
        verdict.reason
    };
    let followed = spec(json!({}));
    for (reason, stops) in [
        ("ReleaseFailed", false),
        ("Frozen", true),
        ("RollbackAborted", true),
    ] {
        assert_eq!(told(reason, &followed, stops, "other"), "Edited");
        assert_eq!(told(reason, &followed, stops, "judged"), reason);
    }
    // There the operator may stay with what it judged.
    let tracks = spec(json!({"configMaps": ["web-config"]}));
    let template = json!({"template": {"spec": {"containers": [{"name": "app", "image": "x"}]}}});
    let mut two = followed.clone();
    let other = json!({"workload": {"kind": "Deployment", "name": "cart"}});
    two["components"].as_array_mut().unwrap().push(other);
    let mut paused = followed.clone();
    paused["paused"] = json!(true);
    for spec in [&tracks, &spec(template), &two, &paused] {
        assert_eq!(told("Frozen", spec, true, "other"), "Frozen");
    }
    for reason in ["TemplateRefused", "Contended"] {
        assert_eq!(told(reason, &followed, false, "other"), reason);
    }
}

/// A pod of `web` that was made and restarted at these times in the minute of now or the
/// one before, in a release that began at 03:03:22.
fn looping(reason: &str, created: &str, restarts: i32, restarted: &str) -> Cluster {
    let at = |text: &str| json!(format!("2026-03-01T03:{text}Z"));
    let mut pods = crashing();
    let container = &mut pods["containerStatuses"][0];
    container["restartCount"] = json!(restarts);
    let ended = &mut container["lastState"]["terminated"];
    (ended["startedAt"], ended["finishedAt"]) = (at(restarted), at("04:11"));
    let mut cluster = with(promoting(), |plan| {
        plan["status"]["release"]["startedAt"] = at("03:22.000000");
        for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
            condition["reason"] = json!(reason);
        }
    });
    let is_old = |name: &str| !name.starts_with("web-2");
    cluster
        .pods
        .retain(|pod| is_old(pod.metadata.name.as_deref().unwrap_or_default()));
    let mut cluster = cluster.pods("web", 2, 1, &pods);
    let pod = cluster.pods.last_mut().unwrap();
    pod.metadata.creation_timestamp = serde_json::from_value(at(created)).unwrap();
    cluster
}

/// Pods that end a release by failFast, and nobody has ended it.
#[test]
fn a_crash_loop_that_nobody_judged_asks_for_the_operator() {
    // It says itself that it does not get on.
    let fails = looping("ReconcileError", "03:20", 5, "04:00");
    let fails = fails.status().verdict;
    assert_eq!(fails.reason, "ReconcileError");
    assert!(!fails.next.contains("failFast"), "{fails:?}");
    let with = |created: &str, restarts, restarted: &str| {
        let cluster = looping("Promoting", created, restarts, restarted);
        cluster.status().verdict
    };
    let overdue = with("03:20", 3, "04:01");
    assert_eq!(
        (overdue.health, overdue.reason.as_str()),
        (Health::Failed, "Overdue")
    );
    assert_eq!(
        overdue.since.as_ref().unwrap().0.to_string(),
        "2026-03-01T03:04:01Z"
    );
    assert!(
        overdue.title.contains("is the operator running?"),
        "{overdue:?}"
    );
    assert!(
        overdue
            .message
            .contains("as soon as a container has restarted 3 times"),
        "{overdue:?}"
    );
    // Each further restart does not begin its time anew.
    for restarts in [4, 5, 8] {
        let again = with("03:20", restarts, "04:11");
        assert_eq!(again.reason, "Overdue", "{again:?}");
    }
    // Nor does it tell of more than the time that there was.
    for working in [
        with("03:20", 3, "04:03"),
        with("03:57", 4, "04:11"),
        with("03:20", 2, "03:40"),
    ] {
        assert_eq!(working.health, Health::Working, "{working:?}");
        assert!(working.next.contains("failFast"), "{working:?}");
    }
}

/// For a second or two after each restart it does not wait.
#[test]
fn a_crash_loop_that_nobody_judged_is_not_judged_by_a_further_restart() {
    let at = |text: &str| json!(format!("2026-03-01T03:{text}Z"));
    let run = |begun: &str| json!({"exitCode": 1, "reason": "Error", "startedAt": at(begun), "finishedAt": at("04:10")});
    let states = [
        json!({"running": {"startedAt": at("04:11")}}),
        json!({"terminated": run("04:11")}),
    ];
    // The kubelet waited for long, so that the last restart alone tells of less.
    for (state, restarts, before) in [
        (&states[0], 4, "03:57"),
        (&states[1], 4, "03:57"),
        (&states[0], 6, "04:05"),
    ] {
        let mut cluster = looping("Promoting", "03:50", restarts, before);
        let pod = cluster.pods.last_mut().unwrap();
        let container = &mut pod.status.container_statuses[0];
        container.state = serde_json::from_value(state.clone()).unwrap();
        let verdict = cluster.status().verdict;
        assert_eq!(verdict.reason, "Overdue", "{restarts} {state} {verdict:?}");
        assert!(verdict.since.unwrap().0.to_string().as_str() <= "2026-03-01T03:04:00Z");
    }
}

/// The operator judges none of it: it is not the release that broke it.
#[test]
fn a_crash_loop_from_before_a_release_asks_for_nobody() {
    let old = looping("Promoting", "03:16", 90, "04:00");
    let verdict = old.status().verdict;
    assert_eq!(verdict.reason, "Promoting", "{verdict:?}");
    assert!(!verdict.next.contains("failFast"), "{verdict:?}");
    // What another one took the place of was judged, and still is.
    let superseding = with(old, |plan| {
        plan["status"]["history"] = json!([{"number": 2, "kind": "Content", "revision": "r",
            "from": STABLE, "result": "Superseded", "startedAt": "2026-03-01T03:03:10Z",
            "endedAt": "2026-03-01T03:03:22Z"}]);
    });
    assert_eq!(superseding.status().verdict.reason, "Overdue");
}
