//! Explanations, from objects as the API server returns them.

use expect_test::{expect, expect_file};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{deployment, model::Explanation, plan, render};
use crate::{
    api::StoredPlan,
    cli::{
        status::{fixtures, render::Layout},
        testing::{conditions, rolled_back, with},
    },
    plan::{Plan, as_seen},
};

fn shown(explanation: &Explanation, width: usize) -> String {
    let layout = Layout {
        width,
        height: None,
    };
    let lines = render::lines(explanation, fixtures::now(), layout);
    lines.iter().map(|line| line.plain() + "\n").collect()
}

fn explained(cluster: &fixtures::Cluster, change: impl FnOnce(&mut StoredPlan)) -> Explanation {
    let mut stored = cluster.plan.clone().unwrap();
    let status = stored.status.as_mut().unwrap();
    status.decisions = serde_json::from_value(json!([
        {"at": "2026-03-01T00:57:49Z", "reason": "ReleaseStarted", "message":
            "release 3 of shop-b59eb8dcf7 takes the place of shop-99134e0901"},
        {"at": "2026-03-01T00:57:55Z", "reason": "RollbackStarted", "message": format!(
            "ContainerRestarts of component web: {}; all components go back", fixtures::CRASH)},
    ]))
    .unwrap();
    change(&mut stored);
    Explanation {
        deployment: None,
        plan: Some(plan::explain(&stored, cluster.status())),
    }
}

#[test]
fn a_rollback_is_explained_with_its_decisions_and_ways_out() {
    let explanation = explained(&fixtures::rolled_back(), |_| {});
    expect_file!["golden/rolled_back_80.txt"].assert_eq(&shown(&explanation, 80));
}

#[test]
fn pods_in_the_same_trouble_are_explained_once() {
    let text = shown(&explained(&fixtures::stalled(), |_| {}), 200);
    for words in [
        "✗ cart-2c8c9d7754-cd54b and 19 more container app: ImagePullBackOff",
        "✗ cart-2c8c9d7754-cd5d7 and 4 more: Unschedulable",
        "✗ cart-1c8c9d7754-cd5fa and 4 more container app: CrashLoopBackOff",
    ] {
        assert_eq!(text.matches(words).count(), 1, "{text}");
    }
    assert!(!text.contains("more pods in trouble"), "{text}");
}

/// Wherever the line would end.
#[test]
fn a_command_that_is_explained_stays_in_one_piece() {
    let look = "kubectl get deployment web -n web -o yaml --show-managed-fields";
    let message = format!(
        "field manager helm keeps changing what the plan holds in deployment web: x. Belay holds now. Who owns what: {look} ; meanwhile, waiting for deployment web"
    );
    let mut cluster = fixtures::going_back();
    let status = cluster.plan.as_mut().unwrap().status.as_mut().unwrap();
    for condition in &mut status.conditions {
        condition.reason = "Contended".to_owned();
        condition.message.clone_from(&message);
    }
    for width in [50, 80, 200] {
        let text = shown(&explained(&cluster, |_| {}), width);
        let mut lines = text.lines().map(str::trim);
        assert!(lines.any(|line| line == look), "{text}");
        assert!(lines.next().unwrap().starts_with("meanwhile, "), "{text}");
    }
}

#[test]
fn a_plan_that_is_not_valid_is_explained_in_a_sentence() {
    let mut cluster = fixtures::rolled_back();
    cluster.plan.as_mut().unwrap().spec["progressDeadline"] = json!("soon");
    let text = shown(&explained(&cluster, |_| {}), 200);
    assert!(
        text.contains("  The content of the plan is not valid, so nothing of it is released.\n"),
        "{text}"
    );
}

/// What is prepared is not judged by a deadline.
#[test]
fn no_clock_runs_while_content_is_prepared() {
    let runs = |stage: &str| {
        let mut cluster = fixtures::promoting();
        let status = cluster.plan.as_mut().unwrap().status.as_mut().unwrap();
        status.release.as_mut().unwrap().stage = serde_json::from_value(json!(stage)).unwrap();
        let explanation = explained(&cluster, |_| {});
        explanation.plan.unwrap().measures[0].stuck_at.is_some()
    };
    assert!(runs("Promote"));
    assert!(!runs("Settle"));
}

#[test]
fn a_cause_is_told_once_beside_the_decisions_on_it() {
    let mut explanation = explained(&fixtures::rolled_back(), |stored| {
        stored.status.as_mut().unwrap().decisions.clear();
    });
    let count = |explanation: &Explanation| {
        let text = shown(explanation, 10_000);
        text.matches(fixtures::CRASH).count()
    };
    assert_eq!(count(&explanation), 1);
    // What is refused for another cause is told in full.
    let plan = explanation.plan.as_mut().unwrap();
    let mut older = plan.refused[0].clone();
    older.component = Some("cart".to_owned());
    plan.refused.push(older);
    assert_eq!(count(&explanation), 2);
}

/// What an undo took away may be known to be bad.
#[test]
fn refused_content_that_had_failed_before_it_was_undone_says_so() {
    let explanation = explained(&fixtures::rolled_back(), |stored| {
        let refused = &mut stored.status.as_mut().unwrap().refused[0];
        refused.cause = crate::api::Cause::Undone;
        refused.message = "shop-0 was asked for by jane in its place".to_owned();
    });
    let text = shown(&explanation, 10_000);
    let told = format!(
        "  {0}  shop-0 was asked for by jane in the place of {0} (126m ago). This is what the plan asks for now. It failed before: ContainerRestarts of component web.\n",
        fixtures::TARGET
    );
    assert!(text.contains(&told), "{text}");
}

#[test]
fn a_release_is_explained_with_the_numbers_it_is_judged_by() {
    let explanation = explained(&fixtures::promoting(), |stored| {
        stored.metadata.annotations =
            Some([("belay.dev/undo".to_owned(), fixtures::STABLE.to_owned())].into());
    });
    expect_file!["golden/promoting_80.txt"].assert_eq(&shown(&explanation, 80));
}

/// By the operator's own rule, which `status` and `diff` go by as well.
#[test]
fn what_was_done_to_followed_workloads_is_held_as_content_is() {
    let followed = fixtures::followed();
    let told = |change: fn(&mut StoredPlan)| {
        let explanation = explained(&fixtures::rolled_back(), |stored| {
            *stored = followed.clone();
            change(stored);
        });
        let plan = explanation.plan.unwrap();
        (plan.content.text, plan.refused[0].current)
    };
    let (text, current) = told(|_| {});
    assert!(text.starts_with("held since"), "{text}");
    assert!(current);
    // What succeeded since is the last word.
    let (text, current) = told(|stored| {
        let history = &mut stored.status.as_mut().unwrap().history;
        history[0].result = crate::api::ReleaseResult::Succeeded;
    });
    assert!(!text.starts_with("held"), "{text}");
    assert!(!current);
}

/// What an undo took away is not what the plan asks for.
#[test]
fn of_refused_content_one_is_what_the_plan_asks_for() {
    let explanation = explained(&fixtures::rolled_back(), |stored| {
        let refused = &mut stored.status.as_mut().unwrap().refused;
        let mut undone = refused[0].clone();
        undone.revision = fixtures::STABLE.to_owned();
        undone.cause = crate::api::Cause::Undone;
        refused.push(undone);
    });
    let marked: Vec<bool> = explanation
        .plan
        .unwrap()
        .refused
        .iter()
        .map(|refused| refused.current)
        .collect();
    assert_eq!(marked.iter().filter(|current| **current).count(), 1);
}

/// Beside other content of what failed the rest of it is new.
#[test]
fn of_refused_content_it_is_told_what_came_of_it() {
    let told = |change: &dyn Fn(&mut StoredPlan)| {
        let explanation = explained(&fixtures::rolled_back(), |stored| change(stored));
        shown(&explanation, 400)
    };
    assert!(told(&|_| {}).contains("This is what the plan asks for now."));
    let corrected = told(&|stored| {
        let status = stored.status.as_mut().unwrap();
        status.refused[0].corrected = true;
        status.refused[0].spec = None;
        status.history.clear();
    });
    assert!(
        corrected.contains("ago). Other content of web was released since: what went back beside web is refused only together with what web had then."),
        "{corrected}"
    );
    let comes = |paused: bool| {
        told(&|stored| {
            let before = stored.status.clone().unwrap();
            *stored = fixtures::followed();
            let content = as_seen(stored).unwrap().content().to_owned();
            let status = stored.status.get_or_insert_default();
            status.refused = before.refused;
            status.refused[0].spec = Some(content);
            let going = fixtures::promoting().plan.unwrap().status.unwrap();
            (status.release, status.conditions) = (going.release, going.conditions);
            if paused {
                status.release = None;
                status.refused[0].corrected = true;
            }
        })
    };
    let waits = comes(true);
    assert!(
        waits.contains("The content of the plan is about to be released again: other content of what failed in shop-b59eb8dcf7 was released since."),
        "{waits}"
    );
    let comes = comes(false);
    assert!(
        comes.contains("It comes again now, beside other content of web."),
        "{comes}"
    );
    assert!(
        !comes.contains("The content of the plan is held"),
        "{comes}"
    );
}

#[test]
fn a_long_name_does_not_run_into_what_is_said_of_it() {
    for length in [27, 40] {
        let name = "x".repeat(length);
        let mut explanation = explained(&fixtures::promoting(), |_| {});
        explanation.plan.as_mut().unwrap().measures[0].component = name.clone();
        let text = shown(&explanation, 80);
        let said = |between: &str| text.contains(&format!("  {name}{between}"));
        assert!(said("  0 of 2 pods were") || said("\n"), "{text}");
    }
}

/// The operator notes the digest of the spec, whatever its ConfigMaps hold.
#[test]
fn released_content_with_configuration_is_judged() {
    let text = |digest: fn(&Plan) -> String| {
        let explanation = explained(&fixtures::rolled_back(), |stored| {
            *stored = with(|plan| {
                let cart = &mut plan["spec"]["components"][0];
                cart["configMaps"] = json!(["cart-config"]);
                cart["template"]["spec"]["volumes"] =
                    json!([{"name": "c", "configMap": {"name": "cart-config"}}]);
                plan["status"]["configMaps"] = json!([{"name": "cart-config", "digest": "d"}]);
            });
            let plan = as_seen(stored).unwrap();
            let status = stored.status.as_mut().unwrap();
            status.observed_content = Some(digest(&plan));
        });
        explanation.plan.unwrap().content.text
    };
    let judged = text(|plan| plan.spec_digest().to_owned());
    assert_eq!(judged, "judged; the stable revision is shop-bbbb");
    assert_eq!(text(|_| "older".to_owned()), "not judged yet");
}

/// What goes on is about the content before.
#[test]
fn newer_content_is_not_told_to_be_under_way() {
    let text = |stage: &str, asked: &str, observed: i64| {
        let explanation = explained(&fixtures::rolled_back(), |stored| {
            *stored = with(|plan| {
                plan["metadata"]["annotations"]["belay.dev/release-generation"] = json!(asked);
                plan["status"]["observedGeneration"] = json!(observed);
                plan["status"]["targetRevision"] = json!("shop-cccc");
                plan["status"]["release"] = json!({
                    "number": 2, "kind": "Content", "stage": stage, "content": "c",
                    "startedAt": "2026-03-01T11:59:00.000000Z", "generation": 4,
                    "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
                });
            });
        });
        explanation.plan.unwrap().content.text
    };
    assert_eq!(text("Restore", "4", 7), "on its way back from shop-cccc");
    assert_eq!(
        text("Restore", "5", 7),
        "newer than what is under way, and waits for its end"
    );
    for stage in ["Promote", "Restore", "Stopped"] {
        assert_eq!(text(stage, "5", 6), "not looked at yet", "{stage}");
    }
    assert_eq!(text("Promote", "4", 6), "being released as shop-cccc");
}

#[test]
fn a_deadline_that_has_passed_is_no_time_to_come() {
    let mut explanation = explained(&fixtures::promoting(), |_| {});
    let measure = &mut explanation.plan.as_mut().unwrap().measures[0];
    let at: k8s_openapi::jiff::Timestamp = "2026-03-01T02:04:12Z".parse().unwrap();
    measure.stuck_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
    let text = shown(&explanation, 200);
    assert!(text.contains("stuck since 02:04:12Z, 60m ago"), "{text}");
    assert!(!text.contains(", in 0s"), "{text}");
}

#[test]
fn an_order_says_what_it_waits_for() {
    let order = |annotation: &str, revision: &str| {
        let explanation = explained(&fixtures::promoting(), |stored| {
            let order = (annotation.to_owned(), revision.to_owned());
            stored.metadata.annotations = Some([order].into());
            let status = stored.status.as_mut().unwrap();
            status.history = fixtures::stalled().plan.unwrap().status.unwrap().history;
        });
        explanation.plan.unwrap().orders.remove(0).text
    };
    assert!(order("belay.dev/undo", "shop-0123456789").starts_with("waits until"));
    assert!(order("belay.dev/abort", fixtures::TARGET).contains("next look"));
    assert!(order("belay.dev/undo", fixtures::STABLE).contains("next look"));
    assert!(order("belay.dev/retry", "other").starts_with("waits until"));
    assert!(order("belay.dev/abort", "other").contains("dropped"));
}

/// It knows what it waits for; only what it says nothing of is guessed.
#[test]
fn an_order_waits_for_what_the_operator_says() {
    let order = |order: &str, revision: &str, change: &dyn Fn(&mut Value)| {
        let explanation = explained(&fixtures::rolled_back(), |stored| {
            *stored = with(|plan| {
                plan["metadata"]["annotations"][order] = json!(revision);
                change(plan);
            });
        });
        explanation.plan.unwrap().orders.remove(0).text
    };
    let (undo, retry) = ("belay.dev/undo", "belay.dev/retry");
    let invalid = |plan: &mut Value| plan["spec"] = json!({});
    let told = |plan: &mut Value| {
        let message = "no components; meanwhile, undo to shop-aaaa, asked for by jane, waits \
                       until the plan is valid";
        plan["spec"] = json!({});
        plan["status"]["conditions"] = conditions("False", "InvalidPlan", message);
    };
    let valid = "waits until the plan is valid";
    assert_eq!(order(undo, "shop-aaaa", &told), valid);
    // Not looked at yet.
    assert_eq!(order(undo, "shop-aaaa", &invalid), valid);
    assert!(order(undo, "shop-aaaa", &|_| {}).contains("next look"));

    let refused = |spec: Option<&'static str>| {
        move |plan: &mut Value| {
            rolled_back(plan);
            plan["status"]["refused"][0]["spec"] = json!(spec);
        }
    };
    assert!(order(retry, "shop-cccc", &refused(None)).contains("next look"));
    let gone = order(retry, "shop-cccc", &refused(Some("older")));
    assert!(gone.contains("no longer what the plan asks for"), "{gone}");

    let unbegun = |plan: &mut Value| {
        rolled_back(plan);
        plan["status"]["release"] = json!({
            "number": 3, "kind": "Undo", "stage": "Settle", "content": "c", "undo": "shop-aaaa",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z",
        });
    };
    for (name, revision, next) in [
        (undo, "shop-bbbb", true),
        (retry, "shop-cccc", true),
        (undo, "shop-aaaa", false),
    ] {
        let text = order(name, revision, &unbegun);
        assert_eq!(
            text.contains("next look"),
            next,
            "{name} {revision}: {text}"
        );
    }
}

fn deployment(managers: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "managedFields": managers},
        "spec": {"template": {"spec": {"containers": [
            {"name": "app", "image": "shop/web:2", "env": [{"name": "TOKEN", "value": "secret"}]}]}}}
    }))
    .unwrap()
}

fn fields(template: &Value) -> Value {
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": template}}}}})
}

#[test]
fn a_deployment_is_told_its_plan_and_the_fields_that_are_the_plans() {
    let managers = json!([
        {"manager": "belay", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
         "fieldsV1": fields(&json!({".": {}, "f:name": {}, "f:image": {},
            "f:env": {"k:{\"name\":\"TOKEN\"}": {".": {}, "f:name": {}, "f:value": {}}}}))},
        {"manager": "helm", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
         "fieldsV1": fields(&json!({"f:resources": {}}))},
    ]);
    let plans = [fixtures::promoting().plan.unwrap()];
    let live = deployment(&managers);
    let about = deployment::explain("web", "web", Some(&live), &plans).unwrap();
    let explanation = Explanation {
        deployment: Some(about),
        plan: None,
    };
    expect![[r"
        deployment/web is component web of releaseplan/shop.
          These fields of its pod template are the plan's:
            containers[app].env[TOKEN].value
            containers[app].image: shop/web:2
          Other fields were written by helm.
    "]]
    .assert_eq(&shown(&explanation, 80));
}

#[test]
fn a_deployment_without_a_plan_is_told_so() {
    let live = deployment(&json!([]));
    let about = deployment::explain("web", "web", Some(&live), &[]).unwrap();
    let explanation = Explanation {
        deployment: Some(about),
        plan: None,
    };
    assert_eq!(
        shown(&explanation, 80),
        "deployment/web is held by no plan.\n"
    );
}
