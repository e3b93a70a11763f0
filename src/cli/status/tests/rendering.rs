//! How it looks, at the widths that people have.

use expect_test::expect_file;
use serde_json::{Value, json};

use super::super::{
    fixtures::*,
    model::{Health, Way},
    render::{Layout, fitted, tree},
    text::Line,
    words::waits_for_person,
};
use crate::{api::Reason, fields::canon};

fn shown(cluster: &Cluster, width: usize) -> String {
    text(&tree(
        &cluster.status(),
        now(),
        Layout {
            width,
            height: None,
        },
    ))
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.plain() + "\n").collect()
}

#[test]
fn a_release_that_fails_is_shown_with_the_pod_that_crashes() {
    let cluster = promoting();
    expect_file!["../golden/promoting_80.txt"].assert_eq(&shown(&cluster, 80));
    expect_file!["../golden/promoting_200.txt"].assert_eq(&shown(&cluster, 200));
}

#[test]
fn a_rollback_names_its_cause_as_it_was_recorded() {
    let cluster = going_back();
    expect_file!["../golden/rolling_back_80.txt"].assert_eq(&shown(&cluster, 80));
    let cluster = rolled_back();
    expect_file!["../golden/rolled_back_80.txt"].assert_eq(&shown(&cluster, 80));
    let wide = shown(&cluster, 200);
    expect_file!["../golden/rolled_back_200.txt"].assert_eq(&wide);
    assert!(wide.contains(&format!("ContainerRestarts of component web: {CRASH}")));
}

#[test]
fn pods_in_the_same_trouble_are_one_line() {
    let cluster = stalled();
    expect_file!["../golden/stalled_80.txt"].assert_eq(&shown(&cluster, 80));
    expect_file!["../golden/stalled_200.txt"].assert_eq(&shown(&cluster, 200));
}

#[test]
fn of_many_components_those_in_trouble_are_unfolded() {
    let cluster = many(50, 20);
    expect_file!["../golden/many_80.txt"].assert_eq(&shown(&cluster, 80));
    let layout = Layout {
        width: 80,
        height: Some(24),
    };
    let lines = fitted(tree(&cluster.status(), now(), layout), layout);
    expect_file!["../golden/many_screen.txt"].assert_eq(&text(&lines));
}

/// The top holds what matters, so what does not fit is cut below.
#[test]
fn a_screen_is_never_exceeded_and_always_shows_the_top() {
    for cluster in [promoting(), rolled_back(), stalled(), many(50, 20)] {
        let status = cluster.status();
        for (width, height) in [(80, 24), (80, 8), (200, 50), (40, 10), (24, 5), (1, 1)] {
            let layout = Layout {
                width,
                height: Some(height),
            };
            let lines = fitted(tree(&status, now(), layout), layout);
            let rows: usize = lines.iter().map(|line| line.rows(width)).sum();
            assert!(rows <= height, "{width}x{height}: {rows} rows");
            if width >= 24 {
                let top = lines.first().map(Line::plain).unwrap_or_default();
                assert!(top.contains("shop  "), "{width}x{height}: {top}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_where_there_is_no_terminal() {
    let lines = tree(&stalled().status(), now(), Layout::UNBOUNDED);
    let text = text(&lines);
    assert!(
        text.contains("failed to pull and unpack image: not found"),
        "{text}"
    );
    assert!(
        !text.contains('…') || text.contains("older without pods"),
        "{text}"
    );
}

fn with(change: impl FnOnce(&mut Value)) -> super::super::PlanStatus {
    let cluster = rolled_back();
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
    .status()
}

#[test]
fn an_edit_that_nobody_looks_at_is_told_before_an_old_verdict() {
    let edited = with(|plan| {
        plan["metadata"]["generation"] = json!(5);
        plan["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update",
            "apiVersion": "belay.dev/v1alpha1", "time": "2026-03-01T03:00:00Z"}]);
    });
    assert_eq!(edited.verdict.reason, "Edited");
    assert_eq!(edited.verdict.health, Health::Failed);
    assert!(edited.verdict.title.contains("is the operator running?"));
    let command = edited.verdict.ways[0].command.as_deref();
    assert_eq!(command, Some("belay check -n web"));
    assert!(
        edited.verdict.message.contains("RolledBack"),
        "{}",
        edited.verdict.message
    );
    let new = with(|plan| plan["status"] = Value::Null);
    assert_eq!(new.verdict.reason, "New");
    assert_eq!(
        new.verdict.health,
        Health::Failed,
        "the plan is a month old"
    );
    let broken = with(|plan| plan["status"] = json!({"phase": "Tomorrow"}));
    assert_eq!(broken.verdict.reason, "StatusUnreadable");
}

#[test]
fn what_breaks_after_its_release_is_not_called_healthy() {
    let mut cluster = rolled_back();
    let plan = cluster.plan.as_mut().unwrap();
    let status = plan.status.as_mut().unwrap();
    for condition in &mut status.conditions {
        condition.reason = "Released".to_owned();
        let ready = condition.type_ == "Ready";
        condition.status = if ready { "True" } else { "False" }.to_owned();
    }
    assert_eq!(cluster.status().verdict.health, Health::Ok);
    // Beside all the pods that are wanted, one in trouble is only shown.
    let mut cluster = cluster.pods("web", 2, 1, &crashing());
    assert_eq!(cluster.status().verdict.health, Health::Ok);
    let text = shown(&cluster, 80);
    assert!(text.contains("web-2c8c9d7754-"), "{text}");
    let web = cluster.deployments.first_mut().unwrap();
    web.status.available_replicas = 1;
    assert_eq!(cluster.status().verdict.health, Health::Failed);
    let text = shown(&cluster, 80);
    assert!(text.starts_with("✗ shop  Was healthy"), "{text}");
    assert!(text.contains("  Pods    web-2c8c9d7754-"), "{text}");
}

/// The fixture `promoting` with another plan.
fn going(change: impl FnOnce(&mut Value)) -> Cluster {
    let cluster = promoting();
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
}

#[test]
fn a_release_with_a_pod_in_trouble_says_that_it_may_end_before_the_deadline() {
    let next = |change: &dyn Fn(&mut Value)| going(change).status().verdict.next;
    let deadline = "or if web makes no progress";
    assert_eq!(
        next(&|plan| plan["spec"]["failFast"] = json!({"restarts": 5})),
        format!(
            "all goes back as soon as a container has restarted 5 times (failFast), {deadline}"
        )
    );
    assert_eq!(
        next(&|plan| plan["spec"]["onFailure"] = json!("Freeze")),
        format!(
            "it stops where it is as soon as a container has restarted 3 times (failFast), {deadline}"
        )
    );
    assert_eq!(
        next(&|plan| plan["status"]["stableRevision"] = Value::Null),
        format!(
            "it fails and stays in place as soon as a container has restarted 3 times (failFast), {deadline}"
        )
    );
    // Its pods keep their restarts, and only the deadline judges them.
    assert_eq!(
        next(&|plan| plan["status"]["release"]["retried"] = json!(true)),
        "all goes back if web makes no progress"
    );
    // Without a deadline that runs.
    assert_eq!(
        next(&|plan| plan["status"]["components"][0]["progressAt"] = Value::Null),
        "all goes back as soon as a container has restarted 3 times (failFast); \
         done once all components are available"
    );
    // Of old pods nothing is said, and of new ones that only start.
    let mut old = promoting();
    old.pods
        .retain(|pod| !pod.metadata.name.as_deref().unwrap().starts_with("web-2"));
    let old = old.pods("web", 1, 1, &crashing());
    assert_eq!(
        old.status().verdict.next,
        "all goes back if web makes no progress"
    );
    let mut pulls = promoting();
    pulls
        .pods
        .retain(|pod| !pod.metadata.name.as_deref().unwrap().starts_with("web-2"));
    let first = json!({"phase": "Pending", "containerStatuses": [{
        "name": "app", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]});
    assert_eq!(
        pulls.pods("web", 2, 1, &first).status().verdict.next,
        format!(
            "all goes back as soon as the kubelet backs off from pulling (failFast), {deadline}"
        )
    );
}

/// A plan at rest with a reason, of which `web` is not well.
fn resting(ready: bool, reason: &str, web: &[(&str, i32, i32)], crash: bool) -> Cluster {
    let type_ = if ready { "Ready" } else { "Reconciling" };
    let message = format!("{STABLE} is released and healthy");
    let status = json!({
        "observedGeneration": 4, "phase": "Stable", "stableRevision": STABLE,
        "conditions": conditions(reason, type_, "2026-03-01T03:03:58Z", &message),
        "components": [component("web", "Stable", None)],
    });
    let spec = json!({"components": [{"workload": {"kind": "Deployment", "name": "web"}}]});
    let cluster = Cluster::new(&spec, &status).deployment("web", 2, web);
    if crash {
        return cluster.pods("web", web.len(), 2, &crashing());
    }
    cluster
}

#[test]
fn the_top_line_and_the_marks_below_agree() {
    let top = |cluster: &Cluster| {
        let status = cluster.status();
        let text = shown(cluster, 80);
        let marks: Vec<char> = text
            .lines()
            .filter_map(|line| line.chars().next())
            .filter(|c| "✓~=✗".contains(*c))
            .collect();
        assert_eq!(marks.len(), 2, "{text}");
        assert_eq!(marks[0], marks[1], "{text}");
        (status.verdict.health, text)
    };
    let (health, _) = top(&resting(true, "Released", &[("web:1", 2, 2)], false));
    assert_eq!(health, Health::Ok);
    let (health, text) = top(&resting(true, "Released", &[("web:1", 2, 0)], true));
    assert_eq!(health, Health::Failed);
    assert!(
        text.contains("deployment/web: 0 of 2 pods are available"),
        "{text}"
    );
    assert!(!text.contains("released and healthy"), "{text}");
    let (health, text) = top(&resting(true, "Released", &[("web:1", 2, 1)], false));
    assert_eq!(health, Health::Working);
    assert!(text.contains("not all pods are available"), "{text}");
    assert!(!text.contains("healthy"), "{text}");
    for reason in ["BaselineUnavailable", "Undone", "Paused"] {
        let (health, text) = top(&resting(false, reason, &[("web:1", 2, 0)], true));
        assert_eq!(health, Health::Failed, "{text}");
    }
    let (health, _) = top(&resting(
        false,
        "BaselineUnavailable",
        &[("web:1", 2, 0)],
        false,
    ));
    assert_eq!(health, Health::Working);
}

/// Of the same plan two commands must not say two things.
#[test]
fn a_line_of_the_list_has_the_verdict_of_the_whole() {
    let well = || resting(true, "Released", &[("shop/web:2", 2, 2)], false);
    let mut gone = well();
    gone.deployments.clear();
    let short = resting(true, "Released", &[("shop/web:2", 2, 1)], false);
    let old = [("shop/web:3", 2, 2), ("shop/web:2", 1, 1)];
    let changing = resting(true, "Released", &old, false);
    for (cluster, health) in [
        (well(), Health::Ok),
        (gone, Health::Failed),
        (short, Health::Working),
        (changing, Health::Working),
    ] {
        let (line, whole) = (cluster.line(), cluster.status());
        assert_eq!(line.verdict, whole.verdict);
        assert_eq!(line.verdict.health, health);
        assert!(line.components.is_none());
    }
    let mut unread = well();
    unread.deployments.clear();
    unread.unread.push("deployments are not shown".to_owned());
    assert_eq!(unread.line().verdict.health, Health::Ok);
    assert_eq!(unread.line().unread.len(), 1);
}

/// The numbers that are named are never those of something that is complete.
#[test]
fn what_is_incomplete_is_named_as_it_is() {
    let told = |sets: &[(&str, i32, i32)], change: &dyn Fn(&mut Cluster)| {
        let mut cluster = resting(true, "Released", sets, false);
        change(&mut cluster);
        let verdict = cluster.status().verdict;
        (verdict.title, verdict.message)
    };
    let changing = "Released; workloads are changing at present";
    let (title, message) = told(&[("shop/web:3", 2, 2), ("shop/web:2", 1, 1)], &|_| {});
    assert_eq!(title, changing);
    assert_eq!(
        message,
        "deployment/web: 1 pod of an older template still there"
    );
    let (title, message) = told(&[("shop/web:3", 2, 2)], &|cluster| {
        cluster.deployments[0].metadata.generation = Some(9);
    });
    assert_eq!(title, changing);
    assert_eq!(message, "deployment/web: its last edit is not taken up yet");
    let (title, message) = told(&[("shop/web:3", 2, 1)], &|_| {});
    assert!(title.contains("not all pods are available"), "{title}");
    assert_eq!(message, "deployment/web: 1 of 2 pods are available");
    let broken = resting(
        true,
        "Released",
        &[("shop/web:3", 2, 2), ("shop/web:2", 0, 0)],
        false,
    )
    .pods("web", 2, 1, &crashing());
    let mut broken = broken;
    broken.deployments[0].status.replicas = 3;
    let verdict = broken.status().verdict;
    assert!(
        verdict.message.contains("is in trouble (CrashLoopBackOff)"),
        "{verdict:?}"
    );
}

#[test]
fn a_deployment_that_does_not_exist_is_brought_back_by_no_undo() {
    let with_history = |exists: bool| {
        let mut cluster = resting(true, "Released", &[("shop/web:2", 2, 0)], true);
        let records = super::super::fixtures::stalled().plan.unwrap();
        let history = records.status.unwrap().history;
        cluster
            .plan
            .as_mut()
            .unwrap()
            .status
            .as_mut()
            .unwrap()
            .history = history;
        if !exists {
            cluster.deployments.clear();
        }
        cluster.status().verdict
    };
    let commands = |exists| {
        let ways = with_history(exists).ways.into_iter();
        ways.filter_map(|way| way.command).collect::<Vec<_>>()
    };
    assert!(commands(true).iter().any(|c| c.contains("undo")));
    assert!(!commands(false).iter().any(|c| c.contains("undo")));
}

#[test]
fn pods_are_selected_by_all_labels_that_the_workloads_have_in_common() {
    let deployment = |labels: Value| -> super::super::objects::DeploymentView {
        serde_json::from_value(json!({"spec": {"selector": {"matchLabels": labels}}})).unwrap()
    };
    let of = |labels: &[Value]| {
        let all: Vec<_> = labels.iter().cloned().map(deployment).collect();
        super::super::tree::common_selector(all.iter())
    };
    let cart = json!({"app": "cart", "tier": "front"});
    let web = json!({"app": "web", "tier": "front", "x": "y"});
    assert_eq!(
        of(std::slice::from_ref(&cart)).as_deref(),
        Some("app in (cart),tier in (front)")
    );
    assert_eq!(
        of(&[web, cart.clone()]).as_deref(),
        Some("app in (cart,web),tier in (front)")
    );
    assert_eq!(of(&[cart, json!({"other": "x"})]), None);
}

#[test]
fn what_may_not_be_read_makes_a_plan_no_worse() {
    let mut cluster = resting(true, "Released", &[("web:1", 2, 2)], false);
    cluster.deployments.clear();
    cluster.unread.push("deployments are not shown".to_owned());
    let text = shown(&cluster, 80);
    assert!(text.starts_with("✓ shop  Released and healthy"), "{text}");
}

#[test]
fn what_was_left_to_another_writer_is_marked() {
    let mut cluster = resting(false, "Contended", &[("web:2", 2, 2)], false);
    let judged = |cluster: &mut Cluster, digest: &str| {
        let status = cluster.plan.as_mut().unwrap().status.as_mut().unwrap();
        status.components[0].live_digest = Some(digest.to_owned());
    };
    cluster.deployments[0].spec.template.digest = "theirs".to_owned();
    judged(&mut cluster, "ours");
    let text = shown(&cluster, 80);
    assert!(text.starts_with("✗ shop  Somebody else"), "{text}");
    assert!(
        text.contains("\n✗ web ") && text.contains("Contended\n"),
        "{text}"
    );
    judged(&mut cluster, "theirs");
    let text = shown(&cluster, 80);
    assert!(text.starts_with("✗ shop  Somebody else"), "{text}");
    assert!(text.contains("\n✓ web "), "{text}");
}

/// Whatever else of a release goes on meanwhile. And it is told what to do.
#[test]
fn what_waits_for_a_person_is_marked_so() {
    for reason in Reason::ALL.iter().filter(|r| waits_for_person(**r)) {
        let held = going(|plan| {
            for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
                condition["reason"] = json!(reason.as_str());
            }
        });
        let verdict = held.status().verdict;
        assert_eq!(verdict.health, Health::Failed, "{reason:?}");
        assert!(!verdict.ways.is_empty(), "{reason:?}");
    }
}

#[test]
fn a_pause_in_mid_release_can_be_ended_either_way_and_says_so_once() {
    let paused = going(|plan| {
        plan["spec"]["paused"] = json!(true);
        for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
            condition["reason"] = json!("Paused");
            condition["message"] = json!(
                "forward motion is held: the plan is paused (spec.paused). To go on: kubectl patch relplan shop -n web --type merge -p '{\"spec\":{\"paused\":false}}'"
            );
        }
    });
    let text = shown(&paused, 200);
    let abort = format!("go back now: belay abort shop --revision {TARGET} -n web");
    for words in [
        "  Why     forward motion is held: the plan is paused (spec.paused)\n",
        "  Do      go on: belay resume shop -n web\n",
        &abort,
    ] {
        assert!(text.contains(words), "{text}");
    }
    // Programs get the operator's own words.
    assert!(paused.status().verdict.message.contains("kubectl patch"));
}

#[test]
fn a_live_template_that_nobody_looked_at_stands_on_top() {
    let template = json!({"spec": {"containers": [{"name": "app", "image": "web:2"}]}});
    let edited = |at: &str, judged: &Value| {
        let mut cluster = resting(true, "Released", &[("web:1", 2, 2)], false);
        let status = cluster.plan.as_mut().unwrap().status.as_mut().unwrap();
        status.components[0].live_digest = Some(canon::digest(judged));
        cluster.deployments = vec![
            serde_json::from_value(json!({
                "metadata": {"name": "web", "uid": "web", "generation": 7, "managedFields": [
                    {"manager": "kubectl-set", "operation": "Update", "time": at},
                    {"manager": "kube-controller-manager", "operation": "Update",
                     "subresource": "status", "time": "2026-03-01T03:04:11Z"}]},
                "spec": {"replicas": 2, "template": template},
                "status": {"observedGeneration": 7, "replicas": 2, "updatedReplicas": 2,
                           "readyReplicas": 2, "availableReplicas": 2}}))
            .unwrap(),
        ];
        cluster
    };
    let other = json!({"spec": {}});
    let long = edited("2026-03-01T03:03:32Z", &other);
    let verdict = long.status().verdict;
    assert_eq!(
        (verdict.health, verdict.reason.as_str()),
        (Health::Failed, "Edited")
    );
    let text = shown(&long, 200);
    for words in [
        "✗ shop  Nobody has looked at the pod template of deployment/web as it is now: is the operator running?",
        "03:03:32Z, 40s ago",
        "belay check -n web",
        "before that it was Released: ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("nothing goes back by itself"), "{text}");
    let fresh = edited("2026-03-01T03:04:05Z", &other);
    assert_eq!(fresh.status().verdict.health, Health::Working);
    let seen = edited("2026-03-01T03:03:32Z", &template);
    assert_eq!(seen.status().verdict.health, Health::Ok);
}

/// As the operator decides it: contents of a followed component are not part of
/// what the plan says.
#[test]
fn the_cause_of_refused_contents_is_found_as_the_operator_finds_it() {
    let cluster = rolled_back();
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    plan["spec"] = json!({"components": [
        {"workload": {"kind": "Deployment", "name": "web"}, "configMaps": ["web-config"]}]});
    plan["status"]["refused"][0]["spec"] = json!(null);
    plan["status"]["refused"][0]["live"] = json!([
        {"workload": {"kind": "Deployment", "name": "web"}, "digest": "d"}]);
    let plan = serde_json::from_value(plan).unwrap();
    let status = Cluster {
        plan: Some(plan),
        ..cluster
    }
    .status();
    assert!(status.verdict.cause.is_some());
    let retry = |way: &Way| way.command.as_ref().is_some_and(|c| c.contains(" retry "));
    assert!(
        status.verdict.ways.iter().any(retry),
        "{:?}",
        status.verdict.ways
    );
}

#[test]
fn components_stand_behind_those_that_they_come_after() {
    let status = promoting().status();
    let names: Vec<_> = status
        .components()
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(names, ["db", "cart", "web"]);
}

#[test]
fn programs_are_told_as_much_as_people() {
    let value = serde_json::to_value(promoting().status()).unwrap();
    expect_file!["../golden/promoting.json"]
        .assert_eq(&(serde_json::to_string_pretty(&value).unwrap() + "\n"));
}
