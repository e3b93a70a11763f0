//! `belay history` and `events`, the names that the program is called by, and
//! what a shell is offered.

use belay::api::Reason;
use belay_testenv::AuditFilter;
use serde_json::Value;

use crate::{
    cli::{allow, belay, command, end},
    support::{Scene, following, image_of, plan},
};

async fn rolled_back(scene: &Scene) {
    scene.deployment("cart", "shop/cart:1", 1).await;
    for tag in ["1", "2"] {
        let image = format!("shop/cart:{tag}");
        scene.apply(&plan("shop", &[("cart", &image)], "")).await;
        scene.ready("shop").await;
    }
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-pullerror")], ""))
        .await;
    belay(scene, &["wait", "shop", "--for", "rolledback"])
        .await
        .exits(0);
}

#[tokio::test]
async fn history_and_events_tell_what_was_done_and_why() {
    let scene = Scene::new("cli-reads").await;
    rolled_back(&scene).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    let cause = status.refused.last().unwrap().message.clone();

    let said = belay(&scene, &["history", "shop"]).await.exits(0);
    assert!(
        said.stdout.contains("shop/cart:2 → shop/cart:3-pullerror"),
        "{said:#?}"
    );
    assert!(said.stdout.contains("RolledBack"), "{said:#?}");
    // The cause reads the same everywhere.
    assert!(said.stdout.contains(&cause), "{said:#?}\n{cause}");

    let said = belay(&scene, &["history", "shop", "-o", "json"])
        .await
        .exits(0);
    let history: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(history["kind"], "History");
    assert_eq!(history["releases"][0]["result"], "RolledBack");
    assert_eq!(history["releases"][1]["result"], "Succeeded");
    let said = belay(&scene, &["history", "-o", "name"]).await.exits(0);
    assert_eq!(said.stdout, "releaseplan.belay.dev/shop\n");

    let said = belay(&scene, &["events", "deploy/cart"]).await.exits(0);
    for words in [
        "ScalingReplicaSet",
        "replicaset/cart-",
        "releaseplan/shop",
        &cause,
    ] {
        assert!(said.stdout.contains(words), "{words}: {said:#?}");
    }
    // When the events are gone, the plan's own account is left.
    scene.kubectl(&["delete", "events", "--all"]).await;
    let said = belay(&scene, &["events", "shop"]).await.exits(0);
    assert!(!said.stdout.contains("ScalingReplicaSet"), "{said:#?}");
    for words in ["RollbackStarted", "Decision", "RolledBack", &cause] {
        assert!(said.stdout.contains(words), "{words}: {said:#?}");
    }

    // Who may only read plans is told what plans tell.
    allow(&scene, "ann", "get").await;
    for verb in ["history", "events"] {
        let said = belay(&scene, &[verb, "shop", "--as", "ann"]).await.exits(0);
        assert!(said.stdout.contains("RolledBack"), "{said:#?}");
    }
}

#[tokio::test]
async fn a_command_about_one_plan_makes_one_call() {
    let scene = Scene::new("cli-calls").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    allow(&scene, "ann", "get").await;
    belay(&scene, &["wait", "shop", "--timeout", "0"])
        .await
        .exits(0);
    let calls = scene.audited(AuditFilter::new().user("admin")).await;
    let calls: Vec<_> = calls
        .iter()
        .filter(|call| call.user_agent.starts_with("belay-cli/"))
        .filter(|call| call.uri.contains("/cli-calls/"))
        .collect();
    assert_eq!(calls.len(), 1, "{calls:#?}");
}

/// Whoever misspells a namespace is not told that all is quiet there.
#[tokio::test]
async fn a_namespace_that_is_not_there_is_told_from_one_without_plans() {
    let scene = Scene::new("cli-nowhere").await;
    let run = async |args: &[&str]| {
        let child = command(&scene, "belay").args(args).spawn().unwrap();
        end(child, None).await
    };
    for args in [
        &["status"][..],
        &["status", "-o", "json"],
        &["status", "--watch"],
        &["history"],
        &["events"],
        &["wait", "-l", "a=b"],
        &["explain", "shop"],
        &["wait", "shop", "deploy/web"],
    ] {
        let said = run(&[args, &["-n", "cli-nowhere-2"]].concat())
            .await
            .exits(2);
        assert!(
            said.stderr
                .contains("error: namespace cli-nowhere-2 not found"),
            "{said:#?}"
        );
        assert_eq!(said.stdout, "", "{said:#?}");
        let said = run(&[args, &["-n", "no/where"]].concat()).await.exits(2);
        assert!(
            said.stderr.contains("'no/where' for '--namespace"),
            "{said:#?}"
        );
    }
    let said = belay(&scene, &["status"]).await.exits(0);
    assert_eq!(said.stdout, "There are no plans.\n");
    assert_eq!(said.stderr, "");
    allow(&scene, "ann", "get, list").await;
    let said = belay(&scene, &["status", "--as", "ann"]).await.exits(0);
    assert_eq!(said.stdout, "There are no plans.\n");
    assert!(
        said.stderr
            .contains("was not checked: you may not get namespaces"),
        "{said:#?}"
    );

    // Where there are plans, there is nothing to ask.
    let asked = async || {
        let calls = scene.audited(AuditFilter::new().user("admin")).await;
        let ours = calls.iter().filter(|call| {
            call.user_agent.starts_with("belay-cli/")
                && call.uri.ends_with("/api/v1/namespaces/cli-nowhere")
        });
        ours.count()
    };
    let before = asked().await;
    assert!(before > 0);
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    for verb in ["status", "history", "events"] {
        belay(&scene, &[verb]).await.exits(0);
    }
    assert_eq!(asked().await, before);
}

/// Healthy or not, what another writer insists on is not what the plan says.
#[tokio::test]
async fn a_workload_that_was_left_to_another_writer_is_marked() {
    let scene = Scene::new("cli-contended").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    scene.ready("shop").await;
    let bad = ["set", "image", "deploy/cart", "app=shop/cart:2-pullerror"];
    scene.kubectl(&bad).await;
    scene.because("shop", Reason::RolledBack).await;
    for _ in 0..3 {
        scene.kubectl(&bad).await;
        scene
            .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
            .await;
    }
    scene.kubectl(&bad).await;
    scene.because("shop", Reason::Contended).await;
    let said = belay(&scene, &["status", "shop"]).await.exits(0);
    assert!(
        said.stdout.starts_with("✗ shop  Somebody else"),
        "{said:#?}"
    );
    let mut rows = said.stdout.lines();
    let row = rows.find(|line| line.starts_with("✗ cart "));
    assert!(row.unwrap_or_default().contains("Contended"), "{said:#?}");
}

#[tokio::test]
async fn kubectl_finds_the_plugin_and_its_help_says_so() {
    let scene = Scene::new("cli-plugin").await;
    rolled_back(&scene).await;
    let run = async |args: &[&str]| {
        let child = command(&scene, "kubectl").args(args).spawn().unwrap();
        end(child, None).await
    };
    let said = run(&["belay", "history", "shop", "-n", &scene.namespace])
        .await
        .exits(0);
    assert!(said.stdout.contains("RolledBack"), "{said:#?}");
    let said = run(&["belay", "wait", "--help"]).await.exits(0);
    assert!(
        said.stdout.contains("Usage: kubectl belay wait"),
        "{said:#?}"
    );
    let said = run(&["belay", "nonsense"]).await.exits(2);
    assert!(said.stderr.contains("Usage: kubectl belay"), "{said:#?}");
    let said = run(&["__complete", "belay", "wait", "-n", &scene.namespace, ""]).await;
    let said = said.exits(0);
    assert!(said.stdout.starts_with("shop"), "{said:#?}");
    assert!(said.stdout.ends_with(":4\n"), "{said:#?}");
}

#[tokio::test]
async fn a_shell_is_offered_the_plans_and_revisions_that_there_are() {
    let scene = Scene::new("cli-complete").await;
    rolled_back(&scene).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    let offered = async |line: &[&str]| {
        let mut all = vec!["--", "belay", "-n", &scene.namespace];
        all.extend(line);
        let child = command(&scene, "belay")
            .env("COMPLETE", "fish")
            .args(all)
            .spawn()
            .unwrap();
        end(child, None).await.exits(0).stdout
    };
    let plans = offered(&["wait", "sh"]).await;
    assert!(plans.starts_with("shop\t"), "{plans}");
    let refused = offered(&["retry", "shop", "--revision", ""]).await;
    assert_eq!(refused.trim(), status.refused[0].revision);
    let kept = offered(&["undo", "shop", "--to", ""]).await;
    assert!(kept.contains(&status.stable_revision.unwrap()), "{kept}");
}
