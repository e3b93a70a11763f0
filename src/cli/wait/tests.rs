use std::str::FromStr as _;

use serde_json::json;

use super::{
    live::{Live, Unlike},
    told::exit,
    verdict::{Outcome, generation, judge, of_deployments},
    waited::passes,
    *,
};
use crate::{
    api::Reason,
    cli::{
        status::verdict::stops_exactly,
        testing::{conditions, noon, rolled_back, with},
    },
};

fn outcome(plan: &StoredPlan, asked: Option<i64>) -> Option<Outcome> {
    judge(plan, asked).outcome
}

#[test]
fn what_is_released_is_told_for_its_own_generation_only() {
    let plan = with(|_| {});
    assert_eq!(generation(&plan), Some(4));
    assert_eq!(outcome(&plan, Some(4)), Some(Outcome::Released));
    assert_eq!(outcome(&plan, None), Some(Outcome::Released));
    // A pipeline that was told 5 and reads a plan that does not know of it yet.
    assert_eq!(outcome(&plan, Some(5)), None);
}

#[test]
fn an_older_result_is_never_told() {
    // The spec was changed, and the operator has not looked yet.
    let edited = with(|plan| {
        plan["metadata"]["generation"] = json!(8);
        plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("5");
    });
    assert_eq!(outcome(&edited, Some(5)), None);
    // It has looked, but the content is not judged yet.
    let looked = with(|plan| {
        plan["metadata"]["generation"] = json!(8);
        plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("5");
        plan["status"]["observedGeneration"] = json!(8);
    });
    assert_eq!(outcome(&looked, Some(5)), None);
    // An older rollback is no news of a retry that was just asked for.
    let ordered = with(|plan| {
        rolled_back(plan);
        plan["metadata"]["annotations"]["belay.dev/retry"] = json!("shop-cccc");
    });
    let state = judge(&ordered, Some(5));
    assert_eq!(state.outcome, None);
    assert!(state.message.contains("belay.dev/retry"), "{state:?}");
    let fresh = with(|plan| plan["status"] = json!(null));
    assert_eq!(outcome(&fresh, Some(4)), None);
}

#[test]
fn what_newer_content_took_the_place_of_is_not_waited_for() {
    let newer = |observed: i64, ready: &str, reason: &str| {
        with(|plan| {
            plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("5");
            plan["metadata"]["generation"] = json!(8);
            plan["status"]["observedReleaseGeneration"] = json!(observed);
            plan["status"]["conditions"] = conditions(ready, reason, "");
        })
    };
    let released = newer(4, "True", "Released");
    assert_eq!(outcome(&released, Some(4)), Some(Outcome::Released));
    for plan in [
        newer(3, "False", "Promoting"),
        newer(4, "False", "Promoting"),
        newer(5, "True", "Released"),
    ] {
        assert_eq!(outcome(&plan, Some(4)), Some(Outcome::Superseded));
    }
    for (reason, before) in [
        ("Paused", Outcome::Held),
        ("TemplateRefused", Outcome::Refused),
    ] {
        // Said of the older content, while nobody has seen the newer one.
        let unseen = newer(4, "False", reason);
        assert_eq!(outcome(&unseen, Some(4)), Some(before));
        let mut seen = unseen;
        seen.status.as_mut().unwrap().observed_generation = Some(8);
        assert_eq!(outcome(&seen, Some(4)), Some(Outcome::Superseded));
    }
}

#[test]
fn a_rollback_names_the_revision_that_was_refused_and_the_one_that_is_back() {
    let state = judge(&with(rolled_back), Some(5));
    assert_eq!(state.outcome, Some(Outcome::RolledBack));
    assert_eq!(state.revision.as_deref(), Some("shop-cccc"));
    assert_eq!(state.stable.as_deref(), Some("shop-bbbb"));
}

/// Of the revisions that are refused, the last one need not be the one.
#[test]
fn the_revision_is_that_of_the_content_that_holds_the_plan() {
    let older = |plan: &mut serde_json::Value| {
        rolled_back(plan);
        let refused = plan["status"]["refused"].as_array_mut().unwrap();
        let mut other = refused[0].clone();
        other["revision"] = json!("shop-dddd");
        refused.push(other);
    };
    let state = judge(&with(older), Some(5));
    assert_eq!(state.revision.as_deref(), Some("shop-cccc"));

    let refused = with(|plan| {
        older(plan);
        plan["status"]["conditions"] = conditions("False", "TemplateRefused", "no such field");
    });
    let state = judge(&refused, Some(5));
    assert_eq!(state.outcome, Some(Outcome::Refused));
    assert_eq!(state.revision, None);

    let newer = with(|plan| {
        older(plan);
        plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("6");
        plan["metadata"]["generation"] = json!(9);
    });
    let state = judge(&newer, Some(4));
    assert_eq!(state.outcome, Some(Outcome::Superseded));
    assert_eq!(state.revision, None);
    assert_eq!(state.stable.as_deref(), Some("shop-bbbb"));
    // What was asked for went back, and then left the plan.
    let state = judge(&newer, Some(5));
    assert_eq!(state.outcome, Some(Outcome::RolledBack));
    assert_eq!(state.revision.as_deref(), Some("shop-cccc"));
}

/// Only a person ends such a state, whatever order waits for its end.
#[test]
fn an_order_that_waits_does_not_hide_what_a_person_has_to_do() {
    let of = |order: &str, reason: Reason, message: &str| {
        let plan = with(|plan| {
            plan["metadata"]["annotations"][order] = json!("shop-aaaa");
            plan["status"]["conditions"] = conditions("False", reason.as_str(), message);
        });
        outcome(&plan, Some(4))
    };
    let told = "x; meanwhile, undo to shop-aaaa, asked for by jane, waits until it is valid";
    let (undo, retry) = ("belay.dev/undo", "belay.dev/retry");
    for (reason, expected) in [
        (Reason::InvalidPlan, Outcome::Refused),
        (Reason::Conflict, Outcome::Held),
        (Reason::RollbackStalled, Outcome::Held),
    ] {
        assert_eq!(of(undo, reason, told), Some(expected), "{reason}");
        let two = "x; meanwhile, undo to shop-z waits; retry of shop-aaaa waits for y";
        assert_eq!(of(retry, reason, two), Some(expected), "{reason}");
        // Not this order, or not seen yet.
        assert_eq!(of(retry, reason, told), None, "{reason}");
        assert_eq!(of("belay.dev/abort", reason, told), None, "{reason}");
        for other in ["x", "x; meanwhile, undo to shop-aaaa1 waits"] {
            assert_eq!(of(undo, reason, other), None, "{reason}: {other}");
        }
    }
    assert_eq!(of(undo, Reason::RolledBack, told), None);
    assert_eq!(of(undo, Reason::Promoting, told), None);
}

#[test]
fn what_holds_older_content_is_not_told_of_a_generation_that_is_to_come() {
    let of = |asked: i64, reason: Reason, paused: bool| {
        let plan = with(|plan| {
            plan["spec"]["paused"] = json!(paused);
            plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!("5");
            plan["status"]["conditions"] = conditions("False", reason.as_str(), "web failed");
        });
        judge(&plan, Some(asked))
    };
    for reason in [Reason::Frozen, Reason::Paused, Reason::InvalidPlan] {
        assert_eq!(of(6, reason, false).outcome, None, "{reason}");
    }
    for reason in [Reason::Paused, Reason::InvalidPlan] {
        assert!(of(5, reason, false).outcome.is_some(), "{reason}");
    }
    // Newer content leaves it by itself, unless the plan is paused.
    assert_eq!(of(5, Reason::Frozen, false).outcome, None);
    let state = of(5, Reason::Frozen, true);
    assert_eq!(state.outcome, Some(Outcome::Held));
    assert_eq!(state.reason, "Paused");
    assert!(!state.message.contains("web failed"), "{state:?}");
}

/// The operator says what a person can do, and nobody but they ends it.
#[test]
fn a_deletion_that_cannot_go_back_ends_the_wait_with_its_reason() {
    let of = |reason: Reason, observed: i64| {
        let plan = with(|plan| {
            plan["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
            plan["metadata"]["generation"] = json!(8);
            let status = &mut plan["status"];
            status["observedGeneration"] = json!(observed);
            status["conditions"] = conditions("False", reason.as_str(), "to let it go: kubectl");
            status["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Restore", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
            });
        });
        judge(&plan, Some(4))
    };
    for reason in [
        Reason::RollbackStalled,
        Reason::Contended,
        Reason::TemplateRefused,
        Reason::RevisionLost,
    ] {
        let state = of(reason, 8);
        assert_eq!(state.outcome, Some(Outcome::Held), "{reason}");
        assert_eq!(state.reason, reason.as_str());
        assert_eq!(state.message, "to let it go: kubectl");
        // What was so before the deletion may be over by it.
        let before = of(reason, 7);
        assert_eq!(before.outcome, None, "{reason}");
        assert_eq!(before.reason, "Deleting");
    }
    for reason in [Reason::RollingBack, Reason::Deleting, Reason::Released] {
        let state = of(reason, 8);
        assert_eq!((state.outcome, state.reason.as_str()), (None, "Deleting"));
    }
}

/// No reason may leave a pipeline hanging that only a person can help, nor end
/// one that goes on by itself.
#[test]
fn every_reason_that_stalls_a_plan_ends_the_wait() {
    let of = |reason: Reason| {
        let plan = with(|plan| {
            plan["status"]["conditions"] = conditions("False", reason.as_str(), "");
        });
        outcome(&plan, Some(4))
    };
    for reason in [Reason::Frozen, Reason::Paused, Reason::Contended] {
        assert_eq!(of(reason), Some(Outcome::Held), "{reason}");
    }
    for reason in [Reason::TemplateRefused, Reason::InvalidPlan] {
        assert_eq!(of(reason), Some(Outcome::Refused), "{reason}");
    }
    for reason in [
        Reason::Promoting,
        Reason::TargetsMissing,
        Reason::ReconcileError,
    ] {
        assert_eq!(of(reason), None, "{reason}");
    }
    // What is told before the content was judged is told all the same.
    let early = with(|plan| {
        plan["status"]["observedReleaseGeneration"] = json!(3);
        plan["status"]["conditions"] = conditions("False", "TemplateRefused", "no such field");
    });
    assert_eq!(outcome(&early, Some(4)), Some(Outcome::Refused));
}

#[test]
fn exit_codes_follow_what_was_waited_for() {
    let code = |outcome, goal| exit(outcome, goal).code();
    assert_eq!(code(None, For::Released), 124);
    assert_eq!(code(Some(Outcome::Released), For::Released), 0);
    assert_eq!(code(Some(Outcome::RolledBack), For::Released), 1);
    assert_eq!(code(Some(Outcome::Undone), For::Released), 1);
    assert_eq!(code(Some(Outcome::Held), For::Released), 3);
    assert_eq!(code(Some(Outcome::RolledBack), For::Rolledback), 0);
    assert_eq!(code(Some(Outcome::Released), For::Rolledback), 1);
    assert_eq!(code(Some(Outcome::Undone), For::Undone), 0);
    assert_eq!(code(Some(Outcome::Held), For::Settled), 0);
    assert_eq!(code(Some(Outcome::Deleted), For::Settled), 1);
}

/// Whoever applied a Deployment is not failed for what another pipeline put into
/// the plan, nor told of a release that was not theirs.
#[test]
fn a_deployment_that_was_released_since_is_done_while_the_plan_stays_refused() {
    let since = |kind: &str, result: &str| {
        with(|plan| {
            rolled_back(plan);
            let records = plan["status"]["history"].as_array_mut().unwrap();
            records.push(json!({
                "number": 3, "kind": kind, "revision": "shop-dddd", "from": "shop-bbbb",
                "startedAt": "2026-03-01T11:55:00Z", "endedAt": "2026-03-01T11:56:00Z",
                "result": result,
            }));
        })
    };
    let told = |plan: &StoredPlan, targets: &[&str]| {
        let targets: Vec<Target> = targets.iter().map(|t| t.parse().unwrap()).collect();
        let live = Live::of(plan, &targets, "s");
        let state = judge(plan, Some(5));
        match live.deployments() {
            Some(templated) => of_deployments(state, plan, templated),
            None => state,
        }
    };
    let outcome = |plan: &StoredPlan, targets: &[&str]| told(plan, targets).outcome.unwrap();
    let guarded = since("Surroundings", "Succeeded");
    let state = told(&guarded, &["deploy/cart"]);
    assert_eq!(state.outcome, Some(Outcome::Released));
    assert_eq!(state.revision.as_deref(), Some("shop-dddd"));
    assert!(
        state
            .message
            .contains("content of the plan stays refused: rolled back: "),
        "{state:?}"
    );
    // The plan itself is another question.
    for targets in [&["shop"][..], &["shop", "deploy/cart"], &["plan/shop"]] {
        assert_eq!(
            outcome(&guarded, targets),
            Outcome::RolledBack,
            "{targets:?}"
        );
    }
    // Content may be the plan's own, but for a Deployment that it only follows.
    let content = since("Content", "Succeeded");
    assert_eq!(outcome(&content, &["deploy/cart"]), Outcome::RolledBack);
    assert_eq!(outcome(&content, &["deploy/web"]), Outcome::Released);
    assert_eq!(
        outcome(&content, &["deploy/web", "deploy/cart"]),
        Outcome::RolledBack
    );
    for plan in [
        since("Surroundings", "RolledBack"),
        since("Undo", "Succeeded"),
        with(rolled_back),
    ] {
        assert_eq!(outcome(&plan, &["deploy/web"]), Outcome::RolledBack);
    }
}

#[test]
fn of_several_plans_the_worst_decides() {
    let all = [Exit::Done, Exit::Timeout, Exit::Person, Exit::Failed];
    for (index, a) in all.into_iter().enumerate() {
        for b in &all[..=index] {
            assert_eq!(worse(a, *b), a);
            assert_eq!(worse(*b, a), a);
        }
    }
}

#[test]
fn timeouts_are_durations_or_a_bare_0() {
    assert_eq!(timeout("0"), Ok(Duration::ZERO));
    assert_eq!(timeout("1m30s"), Ok(Duration::from_secs(90)));
    assert!(timeout("30").is_err());
}

#[test]
fn plans_of_one_name_in_two_namespaces_are_told_apart() {
    let of = |namespace: Option<&str>| Target {
        namespace: namespace.map(str::to_owned),
        ..Target::from_str("shop").unwrap()
    };
    let plan = with(|_| {});
    assert!(is(&of(Some("s")), &plan, "t"));
    assert!(is(&of(None), &plan, "s"));
    assert!(!is(&of(Some("t")), &plan, "s"));
    assert!(!is(&of(None), &plan, "t"));
}

#[test]
fn only_errors_that_may_pass_are_waited_out() {
    let error = |code: u16| {
        let status = kube::core::Status {
            code,
            reason: if code == 403 { "Forbidden" } else { "x" }.into(),
            ..Default::default()
        };
        CliError::api("read", kube::Error::Api(Box::new(status)))
    };
    assert!(passes(&error(503)) && passes(&error(429)));
    assert!(!passes(&error(401)) && !passes(&error(403)));
}

/// What a pipeline is told that waited in vain.
#[test]
fn a_timeout_tells_apart_a_slow_release_and_an_operator_that_is_away() {
    let told = |change: &dyn Fn(&mut serde_json::Value), timeout: u64| {
        let plan = with(change);
        let mut waited = Waited::new(plan, &[], "s", (None, false), None);
        waited.late(
            Duration::from_secs(timeout),
            noon(),
            &Caller::default(),
            (&[], None),
        );
        format!("{}: {}", waited.state.reason, waited.state.message)
    };
    let edited = |time: &'static str| {
        move |plan: &mut serde_json::Value| {
            plan["metadata"]["generation"] = json!(8);
            plan["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
        }
    };
    let away = "is the operator running? belay check -n s";
    assert_eq!(
        told(&edited("2026-03-01T11:59:20Z"), 30),
        format!("Unseen: nobody has looked at this change, made 40s ago: {away}")
    );
    let not_yet = "Unseen: the operator has not looked at it yet";
    assert_eq!(told(&edited("2026-03-01T11:59:58Z"), 0), not_yet);
    // A verdict that is about an older template of a followed Deployment.
    assert_eq!(
        told(&|_| {}, 30),
        format!("Unseen: nobody has looked at this change: {away}")
    );
    assert_eq!(told(&|_| {}, 0), not_yet);
    let slow = |plan: &mut serde_json::Value| {
        plan["status"]["conditions"] = conditions("False", "Promoting", "1 of 2");
    };
    assert_eq!(told(&slow, 30), "Promoting: 1 of 2");

    let ordered = |reason: &'static str, message: &'static str, at: &'static str| {
        move |plan: &mut serde_json::Value| {
            plan["status"]["conditions"] = conditions("False", reason, message);
            let annotations = &mut plan["metadata"]["annotations"];
            annotations["belay.dev/undo"] = json!("shop-a");
            if !at.is_empty() {
                let stamp = json!([{"order": "undo", "revision": "shop-a", "user": "j", "at": at}]);
                annotations["belay.dev/ordered-by"] = json!(stamp.to_string());
            }
        }
    };
    let undo = "belay.dev/undo=shop-a";
    assert_eq!(
        told(&ordered("Promoting", "1 of 2", "2026-03-01T11:59:20Z"), 30),
        format!("Unseen: nobody has carried out {undo}, given 40s ago: {away}")
    );
    assert_eq!(
        told(&ordered("Promoting", "1 of 2", ""), 30),
        format!("Unseen: nobody has carried out {undo}: {away}")
    );
    let open = "belay.dev/undo names shop-a and is not carried out yet";
    let waits = "back; meanwhile, undo to shop-a waits for the end of release 2";
    for (reason, message, at, timeout) in [
        ("Promoting", "1 of 2", "2026-03-01T11:59:58Z", 30),
        ("Promoting", "1 of 2", "", 0),
        // The operator is there, and says so.
        ("RollingBack", waits, "2026-03-01T11:59:20Z", 30),
        ("ReconcileError", "x", "2026-03-01T11:59:20Z", 30),
    ] {
        let told = told(&ordered(reason, message, at), timeout);
        assert_eq!(told, format!("{reason}: {open}"));
    }
}

/// The plan still says what the operator saw last, and goes on saying it.
#[test]
fn a_release_that_nobody_judges_any_more_is_told_from_one_that_takes_long() {
    let told = |since: &str, unseen: &[(&str, Option<&str>)], timeout: u64| {
        let plan = with(|plan| {
            plan["spec"]["bakeTime"] = json!("1m");
            let status = &mut plan["status"];
            status["phase"] = json!("RollingOut");
            status["step"] = json!("Bake 2/2");
            status["conditions"] = conditions("False", "Baking", "bakes");
            status["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Bake", "content": "c",
                "startedAt": "2026-03-01T11:50:00.000000Z", "stageSince": since,
            });
        });
        let mut waited = Waited::new(plan, &[], "s", (None, false), None);
        let unseen: Vec<Unlike> = unseen
            .iter()
            .map(|(name, at)| Unlike {
                what: format!("configmap {name}"),
                at: at.map(|at| at.parse().unwrap()),
            })
            .collect();
        let timeout = Duration::from_secs(timeout);
        waited.late(timeout, noon(), &Caller::default(), (&unseen, None));
        format!("{}: {}", waited.state.reason, waited.state.message)
    };
    let away = "is the operator running? belay check -n s";
    let (long_ago, now) = ("2026-03-01T11:56:00.000000Z", "2026-03-01T11:59:30.000000Z");
    assert_eq!(
        told(long_ago, &[], 0),
        format!("Unseen: nobody has judged this since it was due, 3m ago: {away}")
    );
    assert_eq!(told(now, &[], 30), "Baking: bakes");
    let (fresh, old) = (Some("2026-03-01T11:59:58Z"), Some("2026-03-01T11:59:20Z"));
    assert_eq!(
        told(now, &[("a", fresh), ("b", old)], 0),
        format!("Unseen: nobody has looked at configmap b as it is now, edited 40s ago: {away}")
    );
    assert_eq!(
        told(now, &[("a", None)], 30),
        format!("Unseen: nobody has looked at configmap a as it is now: {away}")
    );
    for (at, timeout) in [(fresh, 30), (None, 5)] {
        assert_eq!(told(now, &[("a", at)], timeout), "Baking: bakes");
    }
}

/// Nothing goes on, and the plan still tells of what was live before.
#[test]
fn a_verdict_on_older_contents_asks_for_the_operator_once_the_edit_is_old() {
    let told = |at: Option<&str>, timeout: u64| {
        let mut waited = Waited::new(with(|_| {}), &[], "s", (None, false), None);
        waited.unlike = vec![Unlike {
            what: "configmap conf".into(),
            at: at.map(|at| at.parse().unwrap()),
        }];
        let timeout = Duration::from_secs(timeout);
        waited.late(timeout, noon(), &Caller::default(), (&[], None));
        format!("{}: {}", waited.state.reason, waited.state.message)
    };
    let away = "is the operator running? belay check -n s";
    for timeout in [0, 1] {
        assert_eq!(
            told(Some("2026-03-01T11:59:46Z"), timeout),
            format!(
                "Unseen: nobody has looked at configmap conf as it is now, edited 14s ago: {away}"
            )
        );
        assert_eq!(
            told(Some("2026-03-01T11:59:55Z"), timeout),
            "Unseen: the operator has not looked at it yet"
        );
        assert_eq!(
            told(None, timeout),
            format!(
                "Unseen: the operator has not looked at it yet: configmap conf was deleted or changed, and when is not known; if this lasts: {away}"
            )
        );
    }
    assert_eq!(
        told(None, 30),
        format!("Unseen: nobody has looked at configmap conf as it is now: {away}")
    );
}

/// There any other template is newer content, so that the stop is never its result.
#[test]
fn a_stop_of_one_followed_deployment_is_told_apart_from_what_is_live() {
    let stopped = |components: serde_json::Value, paused: bool| {
        stops_exactly(&with(|plan| {
            plan["spec"]["components"] = components;
            plan["spec"]["paused"] = json!(paused);
            plan["status"]["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Stopped", "content": "c",
                "startedAt": "2026-03-01T11:50:00.000000Z",
                "stageSince": "2026-03-01T11:50:00.000000Z",
            });
        }))
    };
    let web = json!({"workload": {"kind": "Deployment", "name": "web"}});
    let cart = json!({"workload": {"kind": "Deployment", "name": "cart"}});
    assert!(stopped(json!([web]), false));
    assert!(!stopped(json!([web]), true));
    assert!(!stopped(json!([web, cart]), false));
}
