//! What of the operator's words stands on top, and what a person can paste.

use expect_test::expect_file;
use serde_json::{Value, json};

use super::super::{
    fixtures::*,
    render::{Layout, tree},
    text::Line,
};

/// A cluster with another plan.
fn with(cluster: Cluster, change: impl FnOnce(&mut Value)) -> Cluster {
    let mut plan = serde_json::to_value(cluster.plan.as_ref().unwrap()).unwrap();
    change(&mut plan);
    Cluster {
        plan: Some(serde_json::from_value(plan).unwrap()),
        ..cluster
    }
}

/// The same with another reason and message.
fn saying(cluster: Cluster, reason: &str, message: &str) -> Cluster {
    with(cluster, |plan| {
        for condition in plan["status"]["conditions"].as_array_mut().unwrap() {
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
        }
    })
}

fn shown(cluster: &Cluster, width: usize) -> String {
    let layout = Layout {
        width,
        height: None,
    };
    let lines = tree(&cluster.status(), now(), layout);
    lines.iter().map(|line| line.plain() + "\n").collect()
}

#[test]
fn a_rollback_says_what_it_waits_for_and_what_orders_wait_for() {
    let text = shown(&going_back(), 200);
    assert!(
        text.contains("  Now     waiting for deployment cart to go back\n"),
        "{text}"
    );
    let order = "undo to shop-0123456789, asked for by jane, waits for the end of release 3";
    let message = format!(
        "going back to {STABLE} ({CRASH}); waiting for deployment cart to go back; meanwhile, {order}"
    );
    let text = shown(&saying(going_back(), "RollingBack", &message), 300);
    let words = format!("  Now     waiting for deployment cart to go back; meanwhile, {order}\n");
    assert!(text.contains(&words), "{text}");
    for reason in ["RollbackStarted", "Reverted", "Frozen", "RollbackAborted"] {
        let message = format!("{CRASH}; all components go back; meanwhile, {order}");
        let text = shown(&saying(going_back(), reason, &message), 200);
        assert!(text.contains(&format!("  Now     {order}\n")), "{text}");
        let text = shown(&saying(going_back(), reason, CRASH), 200);
        assert!(!text.contains("  Now "), "{text}");
    }
}

/// A way back that is lost is no fault of what is live, and has to be seen.
#[test]
fn what_is_in_doubt_of_a_plan_stands_below_what_is_said_of_it() {
    let lost = "a rollback could not bring all configuration back: configmap cart-config-1, which kept contents of configmap cart-config, was deleted";
    let gone = "configmap web-config was deleted, and no new pod can start";
    let well = format!("{STABLE} is released and healthy");
    let live = || configured('a', 'b', &snapshot('a'), false);
    let text = shown(&live(), 300);
    assert!(!text.contains("  But "), "{text}");
    let message = format!("{well}; {gone}; {lost}");
    let text = shown(&saying(live(), "Released", &message), 400);
    assert!(text.starts_with("✓ shop"), "{text}");
    assert!(
        text.contains(&format!("  But     {gone}; {lost}\n")),
        "{text}"
    );
    assert!(!text.contains("  Why "), "{text}");
    // It is not forgotten where something breaks.
    let mut broken = saying(live(), "Released", &message);
    broken.deployments[0].status.available_replicas = 0;
    broken.deployments[0].status.ready_replicas = 0;
    let text = shown(&broken, 400);
    assert!(text.contains("0 of 2 pods are available"), "{text}");
    assert!(text.contains(lost), "{text}");
    // Behind the ways out of a rollback, and of an undo.
    let order = "undo to shop-0123456789 waits until the plan is valid";
    let again =
        format!("kubectl annotate relplan shop -n web belay.dev/retry={TARGET} --overwrite");
    for (more, told) in [
        (format!(" ; {lost}"), lost.to_owned()),
        (
            format!(" ; {lost}; meanwhile, {order}"),
            format!("{lost}; meanwhile, {order}"),
        ),
        (format!("; meanwhile, {order}"), order.to_owned()),
    ] {
        let message = format!("rolled back: {CRASH}. Try again: {again}{more}");
        let text = shown(&saying(rolled_back(), "RolledBack", &message), 400);
        assert!(text.contains(&format!("  But     {told}\n")), "{text}");
        assert!(!text.contains("  Now "), "{text}");
    }
    // And behind what a release waits for, or a pause.
    let lost = lost.replace("a rollback", "a rollback to shop-1");
    let pause = r#"held. To go on: kubectl patch relplan shop -n web --type merge -p '{"spec":{"paused":false}}'"#;
    for (reason, message, told) in [
        (
            "Promoting",
            "waiting for deployment web",
            "waiting for deployment web",
        ),
        ("Paused", pause, "held"),
    ] {
        let text = shown(
            &saying(promoting(), reason, &format!("{message}; {lost}")),
            400,
        );
        assert!(text.contains(&format!("  Why     {told}\n")), "{text}");
        assert!(text.contains(&format!("  But     {lost}\n")), "{text}");
    }
}

/// Whatever the width, and wherever it stands.
#[test]
fn a_command_that_no_way_repeats_stands_whole_on_a_line_of_its_own() {
    let give = format!(
        "kubectl annotate relplan shop -n web belay.dev/elsewhere={TARGET} --overwrite --and-more"
    );
    let message = format!(
        "configmap cart-config was edited since the release took it, so the contents of then are not written over the edit. Keep the edit elsewhere, or end this where it is: {give} ; meanwhile, all others were sent back; waiting for deployment cart"
    );
    let cluster = saying(going_back(), "ConfigMapEdited", &message);
    for height in [None, Some(100)] {
        for width in [40, 80, 200, usize::MAX] {
            let lines = tree(&cluster.status(), now(), Layout { width, height });
            let lines: Vec<String> = lines.iter().map(Line::plain).collect();
            let at = lines.iter().position(|line| line.trim() == give);
            let at = at.unwrap_or_else(|| panic!("{lines:#?}"));
            let after = &lines[at + 1];
            assert!(
                after.trim().starts_with("meanwhile, all others"),
                "{lines:#?}"
            );
        }
    }
    let text = shown(&cluster, 80);
    expect_file!["../golden/edited_80.txt"].assert_eq(&text);
}

/// Only a Deployment itself says whether it is paused.
#[test]
fn what_is_resumed_are_the_workloads_that_are_paused() {
    let resumes = |cluster: &Cluster| {
        let ways = cluster.status().verdict.ways.into_iter();
        let commands = ways.filter_map(|way| way.command);
        commands
            .filter(|c| c.contains("resume"))
            .collect::<Vec<_>>()
    };
    let pause = |mut cluster: Cluster, names: &[&str]| {
        for deployment in &mut cluster.deployments {
            let name = deployment.metadata.name.as_deref().unwrap();
            deployment.spec.paused = names.contains(&name);
        }
        cluster
    };
    // The operator's numbers would have it be `web`.
    let held = |cluster: Cluster| {
        let cluster = saying(cluster, "WorkloadPaused", "held");
        with(cluster, |plan| {
            plan["status"]["components"][0]["updatedReplicas"] = json!(1);
        })
    };
    let mut both = pause(held(promoting()), &["web", "cart", "db"]);
    both.deployments[1].status.updated_replicas = 1;
    let resume = |name: &str| format!("kubectl rollout resume deployment/{name} -n web");
    // Those that others come after stand first.
    assert_eq!(resumes(&both), [resume("cart"), resume("web")]);
    let mut other = pause(held(promoting()), &["cart"]);
    other.deployments[1].status.updated_replicas = 1;
    assert_eq!(resumes(&other), [resume("cart")]);
    let mut unread = held(promoting());
    unread.deployments.clear();
    assert_eq!(resumes(&unread), [resume("web")]);
    // And so in a rollback, of which the message says the same.
    let message = format!(
        "going back to {STABLE} ({CRASH}); waiting for deployment cart: 0 of 3 (paused by its own spec.paused; to go on: {} ), deployment db to go back",
        resume("cart")
    );
    let back = pause(saying(going_back(), "RollingBack", &message), &["cart"]);
    assert_eq!(resumes(&back), [resume("cart")]);
    let text = shown(&back, 200);
    let words = "  Now     waiting for deployment cart: 0 of 3 (paused by its own spec.paused), deployment db to go back\n";
    assert!(text.contains(words), "{text}");
    assert_eq!(resumes(&pause(stalled(), &["cart"])), [resume("cart")]);
    assert!(resumes(&stalled()).is_empty());
}

#[test]
fn what_cannot_be_read_is_there_and_need_not_be_created() {
    let effects = |message: &str| {
        let verdict = saying(promoting(), "TargetsMissing", message)
            .status()
            .verdict;
        assert_eq!(
            verdict.title,
            "Something that the plan needs is not there, or cannot be read"
        );
        let ways = verdict.ways.into_iter();
        ways.map(|way| way.effect).collect::<Vec<_>>()
    };
    let read = "configmap web to be readable (forbidden)";
    let create = "create what is missing, or correct its name in the plan";
    assert!(effects(&format!("waiting for {read}. It is read again by itself")).is_empty());
    let both =
        format!("waiting for configmap cart to exist and for {read}. Create what is missing");
    assert_eq!(effects(&both), [create]);
    assert_eq!(effects("waiting for deployment web to exist"), [create]);
}

/// What follows half a release may be refused before it has a name.
#[test]
fn a_way_back_is_told_from_what_was_written_last() {
    let back = with(going_back(), |plan| {
        plan["status"]["targetRevision"] = Value::Null
    });
    let text = shown(&back, 200);
    assert!(
        text.contains(&format!("  Release {TARGET} → back to {STABLE}")),
        "{text}"
    );
    let contents = with(configuration("Restore", 'c'), |plan| {
        plan["status"]["targetRevision"] = Value::Null;
    });
    let text = shown(&contents, 200);
    assert!(text.contains("(live) → back to cart-config-"), "{text}");
    let next = with(promoting(), |plan| {
        plan["status"]["targetRevision"] = Value::Null;
        plan["status"]["release"]["stage"] = json!("Settle");
    });
    let text = shown(&next, 200);
    assert!(
        text.contains(&format!("  Release {STABLE} → (being prepared)")),
        "{text}"
    );
    // What it takes the place of is live until then.
    let live = format!("; {TARGET}, whose place it takes, is live in part or whole\n");
    assert!(text.contains(&live), "{text}");
}

/// Nobody can change what is immutable.
#[test]
fn contents_that_cannot_be_written_back_have_a_way_out_that_can_be_pasted() {
    let refused = |message: &str| {
        let message = format!("{message}; meanwhile, an order waits");
        let cluster = saying(configuration("Restore", 'c'), "ConfigMapRefused", &message);
        shown(&cluster, 200)
    };
    let text = refused(
        "configmap web-config is immutable, so the contents of configmap web-config-1 cannot be written to it; delete it, and it is made again with them",
    );
    for words in [
        "  Do      delete it, and it is made again with the contents of then: kubectl delete configmap web-config -n web\n".to_owned(),
        format!("  or      end the rollback and keep what is live: belay abort shop --revision {TARGET} -n web\n"),
    ] {
        assert!(text.contains(&words), "{text}");
    }
    let text = refused("the contents of configmap a cannot be written to configmap web-config: no");
    assert!(
        text.contains("  Do      change what refuses the contents\n"),
        "{text}"
    );
    assert!(!text.contains("kubectl delete"), "{text}");
}

#[test]
fn what_is_not_there_is_made_again_and_not_changed() {
    let told = |missing| {
        let cluster = configured('a', 'b', "cart-config", missing);
        shown(&saying(cluster, "RolledBack", "rolled back"), 200)
    };
    let text = told(true);
    let way = "  Do      change the content of the plan or deployment web or configmap web-config, or create configmap cart-config again\n";
    assert!(text.contains(way), "{text}");
    let text = told(false);
    assert!(!text.contains("create configmap"), "{text}");
}

#[test]
fn a_way_out_that_is_wider_than_the_screen_is_broken_between_words() {
    let cluster = configured('a', 'b', "cart-config", false);
    let text = shown(&saying(cluster, "RolledBack", "rolled back"), 80);
    let way = "  Do      change the content of the plan or deployment web or configmap\n          cart-config or 1 more\n";
    assert!(text.contains(way), "{text}");
}

/// None of them is cut, however many there are and however long their names.
#[test]
fn a_way_out_of_many_objects_is_told_whole() {
    let long = "x".repeat(240);
    let cluster = with(saying(rolled_back(), "RolledBack", "rolled back"), |plan| {
        let components = (0..9).map(
            |n| json!({"workload": {"kind": "Deployment", "name": format!("web-{n}-{long}")}}),
        );
        plan["spec"]["components"] = components.collect();
    });
    let text = shown(&cluster, 80);
    let way = text.split("  Do ").nth(1).unwrap();
    let way = way.split("  Last ").next().unwrap();
    assert!(way.ends_with(" or 6 more\n"), "{text}");
    assert!(!way.contains('…'), "{text}");
}

/// What is done about it now is to look for the operator.
#[test]
fn what_was_so_before_nobody_came_is_told_once_and_without_commands() {
    let message = format!(
        "undone: shop-1 was asked for by jane in its place. shop-1 is live, and {TARGET} is not released again by itself. Change the content of the plan, or try the same again: kubectl annotate relplan shop -n web belay.dev/retry={TARGET} --overwrite"
    );
    let cluster = with(saying(rolled_back(), "Undone", &message), |plan| {
        plan["metadata"]["generation"] = json!(9);
        plan["status"]["refused"][0]["cause"] = json!("Undone");
    });
    let text = shown(&cluster, 500);
    let why = format!(
        "before that it was Undone: shop-1 was asked for by jane in its place. shop-1 is live, and {TARGET} is not released again by itself\n"
    );
    assert!(text.contains(&why), "{text}");
    assert!(!text.contains("kubectl"), "{text}");
}

/// It is known to be bad: the history tells, whatever was asked for since.
#[test]
fn content_that_had_failed_before_it_was_undone_is_offered_with_that() {
    let offered = |cause: &str, why: &str| {
        let cluster = with(saying(rolled_back(), "Undone", "undone: x"), |plan| {
            let status = &mut plan["status"];
            status["refused"][0]["cause"] = json!(cause);
            status["refused"][0]["message"] = json!("shop-1 was asked for in its place");
            status["history"] = json!([{
                "number": 3, "kind": "Content", "from": STABLE, "revision": TARGET,
                "result": "RolledBack", "message": why,
                "startedAt": "2026-03-01T03:00:00Z", "endedAt": "2026-03-01T03:00:05Z"}]);
        });
        let ways = cluster.status().verdict.ways;
        ways.last().unwrap().effect.clone()
    };
    let crash =
        format!("it came again and was put back: ContainerRestarts of component web: {CRASH}");
    let told = "release the plan's content after all (it failed before: ContainerRestarts of component web)";
    assert_eq!(offered("Undone", &crash), told);
    assert_eq!(offered("ContainerRestarts", "x"), told);
    assert_eq!(
        offered("Undone", "the release was aborted as asked by jane"),
        "release the plan's content after all"
    );
}

/// The refusal is older than what was asked for, and is behind it.
#[test]
fn an_undo_after_a_rollback_says_who_asked_for_what() {
    let message = format!(
        "undone: shop-1 was asked for by jane. {TARGET} was rolled back before: ContainerRestarts of component web: {CRASH}. shop-1 is live, and {TARGET} is not released again by itself. Change the content of the plan, or try the same again: kubectl annotate relplan shop -n web belay.dev/retry={TARGET} --overwrite"
    );
    let text = shown(&saying(rolled_back(), "Undone", &message), 500);
    let why = format!(
        "  Why     undone: shop-1 was asked for by jane. {TARGET} was rolled back before: ContainerRestarts of component web: {CRASH}. shop-1 is live"
    );
    assert!(text.contains(&why), "{text}");
}

/// What was held by the first one still is, and names where that one went.
#[test]
fn of_several_undos_the_last_one_says_why() {
    let message = "undone: shop-0 was asked for by joe in its place. shop-0 is live";
    let cluster = with(saying(rolled_back(), "Undone", message), |plan| {
        let status = &mut plan["status"];
        status["stableRevision"] = json!("shop-0");
        status["refused"][0]["cause"] = json!("Undone");
        status["refused"][0]["message"] = json!("shop-1 was asked for by jane in its place");
        let undo = |number: u32, from: &str, to: &str, by: &str| {
            json!({"number": number, "kind": "Undo", "from": from, "revision": to,
                   "requestedBy": by, "result": "Succeeded",
                   "startedAt": "2026-03-01T03:00:00Z", "endedAt": "2026-03-01T03:00:05Z"})
        };
        status["history"] = json!([
            undo(4, TARGET, "shop-1", "jane"),
            undo(5, "shop-1", "shop-0", "joe")
        ]);
    });
    let why = cluster.status().verdict.cause.unwrap().told();
    assert_eq!(
        why,
        format!("shop-0 was asked for by joe in the place of {TARGET}")
    );
    let text = shown(&cluster, 200);
    assert!(!text.contains("by jane"), "{text}");
}

#[test]
fn why_a_deleted_plan_goes_back_is_said_once() {
    let why = "the plan was deleted in mid-release";
    let deleted = |message: &str| {
        with(saying(going_back(), "Deleting", message), |plan| {
            plan["metadata"]["deletionTimestamp"] = json!("2026-03-01T03:04:00Z");
            plan["status"]["release"]["failure"] = json!({
                "cause": "PlanDeleted", "message": why, "at": "2026-03-01T03:04:05.000000Z"});
        })
    };
    let keep =
        r#"kubectl patch relplan shop -n web --type merge -p '{"spec":{"deletionPolicy":"Keep"}}'"#;
    let message = format!(
        "going back to {STABLE} ({why}); waiting for deployment cart to go back. To let the plan go without it: {keep}"
    );
    let text = shown(&deleted(&message), 200);
    assert_eq!(text.matches(why).count(), 1, "{text}");
    assert!(
        text.contains("  Now     waiting for deployment cart to go back\n"),
        "{text}"
    );
    let text = shown(&deleted("fields of the plan are given up"), 200);
    assert!(
        text.contains("  Now     fields of the plan are given up\n"),
        "{text}"
    );
}

/// Nothing may end a rollback but a person.
#[test]
fn a_rollback_that_is_refused_can_be_ended() {
    for reason in ["TemplateRefused", "TargetsMissing", "ConfigMapRefused"] {
        let text = shown(&saying(going_back(), reason, "x"), 200);
        assert!(
            text.contains("end the rollback and keep what is live: belay abort shop "),
            "{reason}: {text}"
        );
    }
    let text = shown(&saying(rolled_back(), "TemplateRefused", "x"), 200);
    assert!(!text.contains("belay abort"), "{text}");
}

#[test]
fn what_was_broken_before_any_release_is_to_be_looked_at() {
    let broken = with(promoting(), |plan| {
        plan["status"]["release"] = Value::Null;
        plan["status"]["stableRevision"] = Value::Null;
        plan["status"]["phase"] = json!("Pending");
    });
    let text = shown(&saying(broken, "BaselineUnavailable", "x"), 200);
    assert!(
        text.contains(
            "  Do      find out why its pods do not run: kubectl describe deployment/web -n web\n"
        ),
        "{text}"
    );
}

/// There is no stable revision that others are told by.
#[test]
fn a_lost_status_leaves_a_way_to_the_revision_that_the_message_names() {
    let message = "the status of this plan is gone. Or name the one to go back to, such as shop-1: kubectl annotate relplan shop -n web belay.dev/undo=shop-1 --overwrite ; kept: shop-1 (release 1)";
    let status = json!({
        "observedGeneration": 4, "phase": "Pending",
        "conditions": conditions("StatusLost", "Stalled", "2026-03-01T03:03:58Z", message),
    });
    let text = shown(&Cluster::new(&spec(), &status), 200);
    for words in [
        "  Why     the status of this plan is gone; kept: shop-1 (release 1)\n",
        "  Do      go back to a kept revision: belay undo shop --to shop-1 -n web\n",
        "  Plan    namespace web, Pending, stable revision not known any more\n",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_lost_record_can_be_left_for_what_is_live() {
    let restore = "controllerrevision shop-1 is gone or damaged, so nothing can go back to it. Restore it, labels and annotations included";
    let delete = "kubectl delete releaseplan shop -n web";
    let keep = r#"kubectl patch releaseplan shop --type=merge -p '{"spec":{"deletionPolicy":"Keep"}}' -n web"#;
    let patch =
        r#"kubectl patch relplan shop -n web --type merge -p '{"spec":{"deletionPolicy":"Keep"}}'"#;
    let short = delete.replace("releaseplan", "relplan");
    for (told, command) in [
        (short.clone(), delete.to_owned()),
        (format!("{patch} && {short}"), format!("{keep} && {delete}")),
    ] {
        let message = format!(
            "{restore}, or take what is live as stable: {told} ; then apply the plan again"
        );
        let text = shown(&saying(rolled_back(), "RevisionLost", &message), 300);
        for words in [
            format!("  Why     {restore}\n"),
            format!("take what is live as stable, and apply the plan again then: {command}\n"),
        ] {
            assert!(text.contains(&words), "{text}");
        }
    }
    let text = shown(&saying(rolled_back(), "RevisionLost", restore), 300);
    assert!(!text.contains("kubectl delete"), "{text}");
}

/// A retry would bring what failed as it was.
#[test]
fn what_went_back_beside_a_correction_is_to_be_applied_once_more() {
    let message = "rolled back: what came again of shop-3 was put back. It failed before: ContainerRestarts of component web: m. shop-4 is live, and shop-3 is not released again by itself. Change the content of deployment web, or apply what went back once more: beside the correction it is new";
    let text = shown(&saying(rolled_back(), "RolledBack", message), 200);
    for part in [
        "what came again of shop-3 was put back. It failed before: ",
        "apply what went back once more: beside the correction it is new",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains("belay retry"), "{text}");
}
