//! `belay wait`: how a release ended, by exit code, and never an older result.

use belay::api::{Phase, Reason};
use belay_testenv::AuditFilter;

use crate::{
    cli::{allow, belay, belay_stdin, command, end, start},
    support::{Scene, following, plan},
};

async fn released(scene: &Scene, name: &str) {
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan(name, &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready(name).await;
}

#[tokio::test]
async fn wait_tells_a_release_a_rollback_and_a_timeout_apart() {
    let scene = Scene::new("cli-wait").await;
    released(&scene, "shop").await;
    let said = belay(&scene, &["wait", "shop", "--timeout", "0"])
        .await
        .exits(0);
    assert!(said.last().starts_with("result=Released "), "{said:#?}");
    assert!(said.last().ends_with(" exit=0"), "{said:#?}");

    // Ready after 10 s: until then there is no result.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    let said = belay(&scene, &["wait", "shop", "--timeout", "0"])
        .await
        .exits(124);
    assert!(said.last().starts_with("result=Timeout "), "{said:#?}");
    belay(&scene, &["wait", "shop", "--timeout", "1s"])
        .await
        .exits(124);
    let said = belay(&scene, &["wait", "plan/shop", "--timeout", "90s"])
        .await
        .exits(0);
    assert!(said.stderr.contains("shop: Promoting"), "{said:#?}");
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");

    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-pullerror")], ""))
        .await;
    let said = belay(&scene, &["wait", "shop", "--timeout", "90s"])
        .await
        .exits(1);
    assert!(said.last().starts_with("result=RolledBack "), "{said:#?}");
    assert!(said.stderr.contains("ImagePullBackOff"), "{said:#?}");
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    belay(&scene, &["wait", "shop", "--timeout", "0"])
        .await
        .exits(1);
    // A reader that goes away changes nothing of how it ended.
    let mut unread = start(&scene, &["wait", "shop", "--timeout", "0"]);
    drop((unread.stdout.take(), unread.stderr.take()));
    let ended = tokio::task::spawn_blocking(move || unread.wait().unwrap());
    assert_eq!(ended.await.unwrap().code(), Some(1));
    belay(
        &scene,
        &["wait", "shop", "--timeout", "0", "--for", "rolledback"],
    )
    .await
    .exits(0);

    let said = belay(&scene, &["wait", "shop", "--timeout", "0", "-o", "json"])
        .await
        .exits(1);
    let result: serde_json::Value = serde_json::from_str(said.last()).unwrap();
    assert_eq!(result["apiVersion"], "cli.belay.dev/v1");
    assert_eq!(result["kind"], "WaitResult");
    assert_eq!(result["result"], "RolledBack");
    assert_eq!(result["exit"], 1);
}

#[tokio::test]
async fn wait_never_tells_an_older_result() {
    let scene = Scene::new("cli-wait-older").await;
    released(&scene, "shop").await;
    // Good and bad take turns, so that every older result is the wrong one.
    for (tag, code) in [
        ("2", 0),
        ("3-pullerror", 1),
        ("4", 0),
        ("5-pullerror", 1),
        ("6", 0),
    ] {
        let image = format!("shop/cart:{tag}");
        let manifest = plan("shop", &[("cart", &image)], "");
        let answer = scene
            .try_apply(&manifest, &["-o", "yaml"])
            .await
            .ok()
            .unwrap();
        let said = belay_stdin(&scene, &["wait", "-f", "-", "--timeout", "90s"], answer).await;
        let said = said.exits(code);
        let live = scene.image("cart").await;
        assert_eq!(live == image, code == 0, "{live} after {said:#?}");
    }
    // A retry is no news before it was carried out and judged again.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:7-pullerror")], ""))
        .await;
    belay(&scene, &["wait", "shop"]).await.exits(1);
    let before = scene.because("shop", Reason::RolledBack).await;
    belay(&scene, &["retry", "shop"]).await.exits(0);
    belay(&scene, &["wait", "shop"]).await.exits(1);
    let after = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert!(after.history.len() > before.history.len(), "{after:#?}");
}

/// The number of its release may be the same.
#[tokio::test]
async fn a_plan_that_was_made_anew_is_no_result_for_the_one_that_was_applied() {
    let scene = Scene::new("cli-wait-anew").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let manifest = plan("shop", &[("cart", "shop/cart:1")], "");
    let apply = async || {
        scene
            .try_apply(&manifest, &["-o", "yaml"])
            .await
            .ok()
            .unwrap()
    };
    let first = apply().await;
    scene.ready("shop").await;
    scene.kubectl(&["delete", "relplan", "shop"]).await;
    let second = apply().await;
    scene.ready("shop").await;
    let wait = ["wait", "-f", "-", "--timeout", "90s"];
    let said = belay_stdin(&scene, &wait, first).await.exits(1);
    assert!(said.last().starts_with("result=Deleted "), "{said:#?}");
    belay_stdin(&scene, &wait, second).await.exits(0);
}

#[tokio::test]
async fn wait_for_a_deployment_is_about_what_was_set_on_it() {
    let scene = Scene::new("cli-wait-followed").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.apply(&following("web", &["web"], "")).await;
    scene.ready("web").await;
    for (tag, code) in [("2", 0), ("3-pullerror", 1), ("4", 0)] {
        let image = format!("shop/web:{tag}");
        let set = format!("app={image}");
        scene.kubectl(&["set", "image", "deploy/web", &set]).await;
        let said = belay(&scene, &["wait", "deploy/web", "--timeout", "90s"]).await;
        let said = said.exits(code);
        let live = scene.image("web").await;
        assert_eq!(live == image, code == 0, "{live} after {said:#?}");
    }
}

/// Another pipeline may change what else is in the plan meanwhile: what was set
/// on the Deployment is released all the same.
#[tokio::test]
async fn newer_content_of_the_plan_does_not_end_a_wait_for_a_deployment() {
    let scene = Scene::new("cli-wait-newer").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let both = |tag: &str| {
        let followed = "  - workload: {kind: Deployment, name: web}\n";
        plan("shop", &[("cart", tag)], followed)
    };
    scene.apply(&both("shop/cart:1")).await;
    scene.ready("shop").await;
    scene
        .kubectl(&["set", "image", "deploy/web", "app=shop/web:2-slow"])
        .await;
    scene.phase("shop", Phase::RollingOut).await;
    let waiting = begun(start(&scene, &["wait", "deploy/web", "--timeout", "90s"])).await;
    let of_plan = begun(start(&scene, &["wait", "shop", "--timeout", "90s"])).await;
    let ends = [waiting, of_plan].map(|child| tokio::spawn(end(child, None)));
    scene.apply(&both("shop/cart:2")).await;
    let [waiting, of_plan] = ends;
    let said = waiting.await.unwrap().exits(0);
    assert!(said.last().starts_with("result=Released "), "{said:#?}");
    assert!(said.last().contains(" generation=2 "), "{said:#?}");
    assert_eq!(scene.image("web").await, "shop/web:2-slow");
    // Of the plan, newer content is another thing than what was asked for.
    let said = of_plan.await.unwrap().exits(1);
    assert!(said.last().starts_with("result=Superseded "), "{said:#?}");
}

/// What another pipeline put into the plan and was refused does not fail whoever
/// applies the Deployment.
#[tokio::test]
async fn a_deployment_is_done_while_content_of_its_plan_stays_refused() {
    let scene = Scene::new("cli-wait-guarded").await;
    released(&scene, "shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], ""))
        .await;
    let wait = |target| ["wait", target, "--timeout", "90s"];
    let said = belay(&scene, &wait("shop")).await.exits(1);
    assert!(said.last().starts_with("result=RolledBack "), "{said:#?}");
    belay(&scene, &wait("deploy/cart")).await.exits(1);

    // Fields that the plan does not own.
    let team = r#"{"spec":{"template":{"metadata":{"annotations":{"team":"red"}}}}}"#;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p", team])
        .await;
    let said = belay(&scene, &wait("deploy/cart")).await.exits(0);
    assert!(said.last().starts_with("result=Released "), "{said:#?}");
    assert!(
        said.stderr.contains("content of the plan stays refused"),
        "{said:#?}"
    );
    belay(&scene, &wait("shop")).await.exits(1);
    let bound = ["wait", "deploy/cart", "--generation", "2", "--timeout", "0"];
    belay(&scene, &bound).await.exits(1);
}

#[tokio::test]
async fn wait_ends_with_3_when_only_a_person_can_go_on() {
    let scene = Scene::new("cli-wait-person").await;
    released(&scene, "shop").await;
    let rest = "  onFailure: Freeze\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], rest))
        .await;
    let said = belay(&scene, &["wait", "shop", "--timeout", "90s"])
        .await
        .exits(3);
    assert!(said.last().contains(" reason=Frozen "), "{said:#?}");
    belay(
        &scene,
        &["wait", "shop", "--for", "settled", "--timeout", "0"],
    )
    .await
    .exits(0);
    belay(&scene, &["abort", "shop"]).await.exits(0);
    belay(&scene, &["wait", "shop", "--timeout", "90s"])
        .await
        .exits(1);

    // A plan that is paused holds new content for a person.
    belay(&scene, &["pause", "shop"]).await.exits(0);
    scene.kubectl(&["patch", "relplan", "shop", "--type=json", "-p",
        r#"[{"op": "replace", "path": "/spec/components/0/template/spec/containers/0/image", "value": "shop/cart:3"}]"#]).await;
    let said = belay(&scene, &["wait", "shop", "--timeout", "90s"])
        .await
        .exits(3);
    assert!(said.last().contains(" reason=Paused "), "{said:#?}");
    belay(&scene, &["resume", "shop"]).await.exits(0);
    belay(&scene, &["wait", "shop", "--timeout", "90s"])
        .await
        .exits(0);
}

#[tokio::test]
async fn wait_ends_when_the_plan_is_deleted_or_the_person_has_enough() {
    let scene = Scene::new("cli-wait-gone").await;
    released(&scene, "shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene.phase("shop", Phase::RollingOut).await;

    let interrupted = begun(start(&scene, &["wait", "shop"])).await;
    let pid = interrupted.id().to_string();
    let ended = tokio::spawn(end(interrupted, None));
    let kill = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(kill.unwrap().success());
    let said = ended.await.unwrap();
    assert_eq!(said.code, Some(130), "{said:#?}");

    let waiting = begun(start(&scene, &["wait", "shop", "-o", "json"])).await;
    let deleted = tokio::spawn(end(waiting, None));
    scene.kubectl(&["delete", "relplan", "shop"]).await;
    let said = deleted.await.unwrap().exits(1);
    assert!(said.last().contains(r#""result":"Deleted""#), "{said:#?}");
}

/// An order that waits for its turn and is dropped for newer content is no
/// success, whatever becomes of that content.
#[tokio::test]
async fn wait_tells_that_an_order_was_dropped() {
    let scene = Scene::new("cli-wait-dropped").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    let first = scene.ready("shop").await.stable_revision.unwrap();
    let image = async |tag: &str| {
        let image = format!("app=shop/cart:{tag}");
        let set = ["set", "image", "deployment/cart", &image];
        scene.kubectl(&set).await;
    };
    image("2").await;
    scene
        .plan_until("shop", "2 is released", |s| {
            s.history.len() == 1 && s.release.is_none()
        })
        .await;
    image("3-unready").await;
    scene
        .plan_until("shop", "3 is under way", |s| s.target_revision.is_some())
        .await;
    // To whoever waits already, or waits for content, it is somebody else's.
    let wait = ["wait", "shop", "--timeout", "90s"];
    let before = begun(start(&scene, &wait)).await;
    belay(&scene, &["undo", "shop", "--to", &first])
        .await
        .exits(0);
    let waiting = begun(start(&scene, &wait)).await;
    let bound = [&wait[..], &["--generation", "1"]].concat();
    let bound = begun(start(&scene, &bound)).await;
    let [before, waiting, bound] = [before, waiting, bound].map(|c| tokio::spawn(end(c, None)));
    image("4").await;
    for other in [before, bound] {
        let said = other.await.unwrap().exits(0);
        assert!(said.last().starts_with("result=Released "), "{said:#?}");
    }
    let said = waiting.await.unwrap().exits(2);
    assert!(said.last().starts_with("result=Ignored "), "{said:#?}");
    assert!(said.last().contains(" reason=UndoIgnored "), "{said:#?}");
    assert!(said.stderr.contains("newer content came"), "{said:#?}");
}

/// However many there are, each namespace is watched and its Deployments are
/// listed for all of its plans together.
#[tokio::test]
async fn wait_for_several_plans_shares_what_it_reads() {
    let scene = Scene::new("cli-wait-shared").await;
    let names = ["a", "b", "c"];
    let agent = |call: &belay_testenv::AuditEntry| {
        call.user_agent.starts_with("belay-cli/") && call.uri.contains("/cli-wait-shared/")
    };
    for name in names {
        scene.deployment(name, "shop/web:1", 1).await;
        scene.apply(&following(name, &[name], "")).await;
        scene.ready(name).await;
    }
    let set = async |tag: &str| {
        for name in names {
            let image = format!("app=shop/web:{tag}");
            let set = ["set", "image", &format!("deploy/{name}"), &image];
            scene.kubectl(&set).await;
        }
    };
    set("2-slow").await;
    let said = belay(&scene, &["wait", "a", "b", "c", "--timeout", "90s"])
        .await
        .exits(0);
    assert_eq!(said.stdout.lines().count(), 3, "{said:#?}");
    for name in names {
        assert_eq!(scene.image(name).await, "shop/web:2-slow");
    }
    let calls = scene.audited(AuditFilter::new().user("admin")).await;
    let count = |what: &dyn Fn(&str) -> bool| {
        let ours = calls.iter().filter(|call| agent(call));
        ours.filter(|call| what(&call.uri)).count()
    };
    // Each watch begins with a list.
    let lists = count(&|uri| uri.contains("/releaseplans?"));
    assert_eq!(lists, 1, "{calls:#?}");
    assert!(count(&|uri| uri.ends_with("/deployments") || uri.contains("/deployments?")) > 0);
    let singly = count(&|uri| uri.contains("/deployments/"));
    assert_eq!(singly, 0, "{calls:#?}");

    // One that is deleted ends its own wait alone.
    set("3-slow").await;
    for name in names {
        scene.phase(name, Phase::RollingOut).await;
    }
    let child = start(&scene, &["wait", "a", "b", "c", "--timeout", "90s"]);
    let waiting = tokio::spawn(end(begun_as(child, "a: ").await, None));
    scene.kubectl(&["delete", "relplan", "b"]).await;
    let said = waiting.await.unwrap().exits(1);
    let results: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(results.len(), 3, "{said:#?}");
    for (result, expected) in results.iter().zip(["Released", "Deleted", "Released"]) {
        assert!(
            result.starts_with(&format!("result={expected} ")),
            "{said:#?}"
        );
    }
}

#[tokio::test]
async fn wait_is_interrupted_while_nothing_comes_from_standard_input() {
    let scene = Scene::new("cli-wait-stdin").await;
    let mut waiting = start(&scene, &["wait", "-f", "-", "--timeout", "90s"]);
    let open = waiting.stdin.take();
    // Until the signal is heard by the command itself, the system ends it.
    let pid = waiting.id();
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 0b10 != 0
    };
    let deadline = std::time::Instant::now() + crate::support::SOON;
    while !caught() {
        assert!(std::time::Instant::now() < deadline, "SIGINT is caught");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let pid = pid.to_string();
    let kill = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(kill.unwrap().success());
    let ended = tokio::task::spawn_blocking(move || waiting.wait().unwrap());
    let ended = tokio::time::timeout(crate::support::SOON, ended).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(130));
    drop(open);
}

/// The command once it has read the plan and told where it is.
async fn begun(waiting: std::process::Child) -> std::process::Child {
    begun_as(waiting, "shop: ").await
}

async fn begun_as(mut waiting: std::process::Child, start: &'static str) -> std::process::Child {
    use std::io::{BufRead as _, BufReader};
    let reading = tokio::task::spawn_blocking(move || {
        let mut told = BufReader::new(waiting.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.starts_with(start), "{line:?}");
        waiting.stderr = Some(told.into_inner());
        waiting
    });
    reading.await.unwrap()
}

#[tokio::test]
async fn wait_tells_what_cannot_be_waited_for() {
    let scene = Scene::new("cli-wait-usage").await;
    let said = belay(&scene, &["wait", "nosuch"]).await.exits(2);
    assert!(
        said.stderr.contains("releaseplan/nosuch not found"),
        "{said:#?}"
    );
    assert!(said.stderr.contains("hint: "), "{said:#?}");
    belay(&scene, &["wait", "pod/x"]).await.exits(2);
    belay(&scene, &["wait", "shop", "--for", "christmas"])
        .await
        .exits(2);
    let said = belay_stdin(&scene, &["wait", "-f", "-"], "kind: Service".into()).await;
    let said = said.exits(2);
    assert!(said.stderr.contains("no ReleasePlan"), "{said:#?}");
    let said = belay(&scene, &["wait", "x", "--context", "nosuch"])
        .await
        .exits(2);
    assert!(said.stderr.contains("nosuch"), "{said:#?}");
    let said = belay(&scene, &["wait", "x", "--as", "nobody"])
        .await
        .exits(2);
    assert!(
        said.stderr.contains(r#"User "nobody" cannot get"#),
        "{said:#?}"
    );
    let said = end(command(&scene, "belay").arg("wait").spawn().unwrap(), None).await;
    let said = said.exits(2);
    assert!(said.stderr.contains("say which plan"), "{said:#?}");
    belay(&scene, &["history", "-A"]).await.exits(2);

    // To look needs less than to wait.
    released(&scene, "shop").await;
    allow(&scene, "ann", "get").await;
    let look = ["wait", "shop", "--as", "ann", "--timeout", "0"];
    belay(&scene, &look).await.exits(0);
    scene.apply(&following("other", &["web"], "")).await;
    let two = [&look[..], &["plan/other"]].concat();
    let said = belay(&scene, &two).await.exits(124);
    assert!(said.last().contains("/other "), "{said:#?}");
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    let said = belay(&scene, &["wait", "shop", "--as", "ann"])
        .await
        .exits(2);
    assert!(said.stderr.contains("list"), "{said:#?}");
}
