//! What differs, and how it is written.

use expect_test::expect;
use serde_json::{Value, json};

use super::server::{claimed, notes};
use super::{
    model::{ComponentDiff, PlanDiff},
    part, render,
};
use crate::{api::StoredPlan, cli::Streams, plan::Plan};

fn template(image: &str, token: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [{
                "name": "app", "image": image,
                "env": [{"name": "TOKEN", "value": token}, {"name": "MODE", "value": "a"}],
                "resources": {"limits": {"cpu": "1000m"}},
            }],
            "terminationGracePeriodSeconds": 30,
        },
    })
}

fn written(diff: &PlanDiff, paths: bool) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        out: &mut anstream::StripStream::new(&mut out),
        err: &mut anstream::StripStream::new(&mut err),
        width: None,
        height: None,
    };
    render::write(diff, paths, &mut streams).unwrap();
    (
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

fn shop(parts: Vec<super::model::Part>) -> PlanDiff {
    let component = ComponentDiff {
        name: "web".to_owned(),
        workload: "deployment/web".to_owned(),
        parts,
    };
    PlanDiff {
        namespace: "shop".to_owned(),
        name: "shop".to_owned(),
        notes: vec!["the plan is paused".to_owned()],
        faults: Vec::new(),
        components: vec![component],
    }
}

#[test]
fn a_plan_writes_nothing_while_another_one_holds_a_workload_of_it() {
    let plan = |name: &str, claimed: Option<&str>| -> StoredPlan {
        let component = |name| json!({"workload": {"kind": "Deployment", "name": name}});
        let status = claimed.map(|at| {
            json!({"components": [{"name": "web", "claimedAt": at,
                "workload": {"kind": "Deployment", "name": "web"}}]})
        });
        let plan = json!({
            "metadata": {"name": name, "namespace": "s", "uid": name},
            "spec": {"components": [component("cart"), component("web")]},
            "status": status,
        });
        serde_json::from_value(plan).unwrap()
    };
    let me = plan("shop", None);
    let wanted = Plan::parse(&me.spec).unwrap();
    let holder = plan("a-holder", Some("2026-01-01T00:00:00.000000Z"));
    // `cart` is held by the elder of two that have not claimed it.
    let told = claimed(&me, &wanted, &[me.clone(), holder.clone()]);
    let web = "web: deployment web is held by releaseplan a-holder, and this plan writes nothing \
               until one of the two leaves it out";
    assert!(told.contains(&web.to_owned()), "{told:?}");
    assert!(claimed(&me, &wanted, std::slice::from_ref(&me)).is_empty());
    assert!(
        !claimed(&holder, &wanted, &[me])
            .iter()
            .any(|text| text.starts_with("web"))
    );
}

/// As the operator has it: what was begun is ended.
#[test]
fn a_release_that_wrote_something_waits_for_no_other_plan() {
    use super::server::waits_for_others;
    use crate::cli::status::fixtures;
    let at = |applied: &[&str]| {
        let mut plan = fixtures::promoting().plan.unwrap();
        let release = plan.status.as_mut().unwrap().release.as_mut().unwrap();
        release.applied = applied.iter().map(|name| (*name).to_owned()).collect();
        plan
    };
    let mut rival = at(&[]);
    rival.status = None;
    rival.metadata.name = Some("a-rival".to_owned());
    rival.metadata.uid = Some("r".to_owned());
    rival.metadata.creation_timestamp = None;
    for (me, waits, words) in [
        (at(&[]), true, "writes nothing until"),
        (at(&["shop-1"]), false, "begins nothing more than"),
    ] {
        assert_eq!(waits_for_others(me.status.as_ref().unwrap()), waits);
        let mut holder = rival.clone();
        holder.status = Some(
            serde_json::from_value(json!({"components": [{"name": "web",
                "claimedAt": "2026-01-01T00:00:00.000000Z",
                "workload": {"kind": "Deployment", "name": "web"}}]}))
            .unwrap(),
        );
        let plan = Plan::parse(&me.spec).unwrap();
        let told = claimed(&me, &plan, &[me.clone(), holder]);
        assert!(told.iter().any(|text| text.contains(words)), "{told:?}");
    }
}

/// By the operator's own rule, which `status` and `explain` go by as well.
#[test]
fn what_was_done_to_followed_workloads_is_held_as_content_is() {
    let stored = crate::cli::status::fixtures::followed();
    let plan = Plan::parse(&stored.spec).unwrap();
    let status = stored.status.clone().unwrap();
    let told = notes(&plan, Some(&stored), &status, false);
    assert!(
        told[0].starts_with("what was done to the workloads is held and not released by itself:"),
        "{told:?}"
    );
    let mut moves = status;
    moves.release = crate::cli::status::fixtures::promoting()
        .plan
        .and_then(|plan| plan.status?.release);
    let told = notes(&plan, Some(&stored), &moves, false);
    assert!(!told[0].contains("held"), "{told:?}");
}

#[test]
fn what_the_api_server_means_the_same_by_is_no_difference() {
    let mut wanted = template("shop/web:2", "x");
    wanted["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("1");
    let part = part::template("deployment/web", &template("shop/web:2", "x"), &wanted).unwrap();
    assert_eq!(part, None);
}

#[test]
fn differences_are_a_unified_diff_of_the_template() {
    let (from, to) = (template("shop/web:2", "x"), template("shop/web:3", "x"));
    let part = part::template("deployment/web", &from, &to)
        .unwrap()
        .unwrap();
    let (out, err) = written(&shop(vec![part]), false);
    assert_eq!(err, "note: the plan is paused\n");
    expect![[r#"
        component web: pod template of deployment/web
        --- deployment/web now
        +++ deployment/web after the next release
        @@ -8,7 +8,7 @@
               value: x
             - name: MODE
               value: a
        -    image: shop/web:2
        +    image: shop/web:3
             name: app
             resources:
               limits:
    "#]]
    .assert_eq(&out);
}

#[test]
fn as_paths_no_value_of_the_environment_is_shown() {
    let (from, to) = (template("shop/web:2", "old"), template("shop/web:3", "new"));
    let part = part::template("deployment/web", &from, &to)
        .unwrap()
        .unwrap();
    let (out, _) = written(&shop(vec![part]), true);
    expect![[r#"
        web: containers[app].env[TOKEN].value: changed
        web: containers[app].image: shop/web:2 → shop/web:3
    "#]]
    .assert_eq(&out);
}

#[test]
fn nothing_to_change_is_said_beside_the_answer() {
    let diff = PlanDiff {
        components: Vec::new(),
        notes: Vec::new(),
        ..shop(Vec::new())
    };
    let (out, err) = written(&diff, false);
    assert_eq!(out, "");
    assert_eq!(err, "a release of shop would change nothing\n");
    assert!(!diff.is_change());
}
