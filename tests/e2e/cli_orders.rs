//! Orders by command: with no rights but on plans, and only where they mean
//! something.

use belay::api::{ABORT, Phase, Reason, Stage};
use belay_testenv::AuditFilter;

use crate::{
    cli::{allow, belay, command, end},
    support::{Scene, following, plan},
};

async fn released(scene: &Scene) {
    scene.deployment("cart", "shop/cart:1", 1).await;
    for tag in ["1", "2"] {
        let image = format!("shop/cart:{tag}");
        scene.apply(&plan("shop", &[("cart", &image)], "")).await;
        scene.ready("shop").await;
    }
}

#[tokio::test]
async fn a_user_who_may_only_patch_plans_can_give_every_order() {
    let scene = Scene::new("cli-orders").await;
    released(&scene).await;
    allow(&scene, "jane", "patch").await;
    let jane = |order: &'static str| ["--as", "jane", order, "shop"];

    belay(&scene, &jane("pause")).await.exits(0);
    let paused = scene.plans().get("shop").await.unwrap();
    assert_eq!(paused.spec["paused"], true);
    let said = belay(&scene, &jane("pause")).await.exits(0);
    assert!(said.stdout.contains("paused already"), "{said:#?}");
    belay(&scene, &jane("resume")).await.exits(0);

    belay(&scene, &jane("undo")).await.exits(0);
    scene.because("shop", Reason::Undone).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    belay(&scene, &["wait", "shop", "--for", "undone"])
        .await
        .exits(0);
    belay(&scene, &jane("retry")).await.exits(0);
    belay(&scene, &["wait", "shop"]).await.exits(0);
    assert_eq!(scene.image("cart").await, "shop/cart:2");

    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-unready")], ""))
        .await;
    scene.phase("shop", Phase::RollingOut).await;
    scene
        .plan_until("shop", "has a target", |s| s.target_revision.is_some())
        .await;
    belay(&scene, &jane("abort")).await.exits(0);
    belay(&scene, &["wait", "shop", "--for", "rolledback"])
        .await
        .exits(0);
    assert_eq!(scene.image("cart").await, "shop/cart:2");

    // Who may not even patch is told so, and by whom.
    allow(&scene, "joe", "get").await;
    let said = belay(&scene, &["pause", "shop", "--as", "joe"])
        .await
        .exits(2);
    assert!(
        said.stderr.contains(r#"User "joe" cannot patch"#),
        "{said:#?}"
    );
    assert!(said.stderr.contains("hint: "), "{said:#?}");
}

/// The second must not bring back what the first took away.
#[tokio::test]
async fn two_undos_in_a_row_go_two_revisions_back() {
    let scene = Scene::new("cli-orders-undo-twice").await;
    released(&scene).await;
    let status = scene.ready("shop").await;
    let (second, first) = (
        status.stable_revision.unwrap(),
        status.history[0].from.clone().unwrap(),
    );
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    let third = scene.ready("shop").await.stable_revision.unwrap();

    let said = belay(&scene, &["undo", "shop"]).await.exits(0);
    assert!(
        said.stdout.contains(&format!("undo to {second}")),
        "{said:#?}"
    );
    belay(&scene, &["wait", "shop", "--for", "undone"])
        .await
        .exits(0);
    assert_eq!(scene.image("cart").await, "shop/cart:2");

    let said = belay(&scene, &["undo", "shop"]).await.exits(0);
    for words in [
        format!("undo to {first} asked for"),
        format!("{third} is passed over: {second} was asked for by admin in the place of {third}"),
    ] {
        assert!(said.stdout.contains(&words), "{said:#?}");
    }
    belay(&scene, &["wait", "shop", "--for", "undone"])
        .await
        .exits(0);
    assert_eq!(scene.image("cart").await, "shop/cart:1");

    // There is nothing before that, whatever the name of what is live now.
    let said = belay(&scene, &["undo", "shop"]).await.exits(2);
    assert!(said.stderr.contains("no earlier revision"), "{said:#?}");
    let said = belay(&scene, &["undo", "shop", "--to", &first])
        .await
        .exits(2);
    assert!(said.stderr.contains("already"), "{said:#?}");
}

/// For a second or so it has no name that could be given.
#[tokio::test]
async fn an_abort_right_after_an_edit_in_mid_release_waits_for_what_it_is_to_end() {
    let scene = Scene::new("cli-orders-nameless").await;
    released(&scene).await;
    let edit = async |image: &str| scene.apply(&plan("shop", &[("cart", image)], "")).await;
    edit("shop/cart:3-unready").await;
    scene
        .plan_until("shop", "has a target", |s| s.target_revision.is_some())
        .await;
    edit("shop/cart:4-unready").await;
    scene
        .plan_until("shop", "is prepared", |s| {
            let release = s.release.as_ref();
            release.is_some_and(|r| r.stage == Stage::Settle && !r.applied.is_empty())
        })
        .await;
    belay(&scene, &["abort", "shop"]).await.exits(0);
    belay(&scene, &["wait", "shop", "--for", "rolledback"])
        .await
        .exits(0);
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

/// The operator may not have looked at it yet.
#[tokio::test]
async fn an_abort_right_after_an_edit_of_a_deployment_waits_for_what_it_is_to_end() {
    let scene = Scene::new("cli-orders-unseen").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.apply(&following("shop", &["web"], "")).await;
    scene.ready("shop").await;
    for tag in ["2", "3", "4"] {
        let image = format!("shop/web:{tag}-unready");
        scene.set_image("web", &image).await;
        belay(&scene, &["abort", "shop"]).await.exits(0);
        belay(&scene, &["wait", "shop", "--for", "rolledback"])
            .await
            .exits(0);
        assert_eq!(scene.image("web").await, "shop/web:1");
    }
}

#[tokio::test]
async fn orders_that_mean_nothing_are_refused_with_what_is_current() {
    let scene = Scene::new("cli-orders-refused").await;
    released(&scene).await;
    let status = scene.ready("shop").await;
    let stable = status.stable_revision.unwrap();
    for (args, words) in [
        (vec!["abort", "shop"], "has no release to abort"),
        (vec!["retry", "shop"], "has nothing to try again"),
        (
            vec!["undo", "shop", "--to", "shop-nosuch"],
            "does not keep shop-nosuch",
        ),
        (
            vec!["undo", "shop", "--to", &stable],
            "is the stable revision",
        ),
        (vec!["abort", "nosuch"], "not found"),
    ] {
        let said = belay(&scene, &args).await.exits(2);
        assert!(said.stderr.contains(words), "{args:?}: {said:#?}");
    }
    let orders = AuditFilter::new()
        .resource("releaseplans")
        .namespace(&scene.namespace)
        .user("admin")
        .verbs(["patch"]);
    let sent = scene.audited(orders).await;
    let sent = sent
        .iter()
        .filter(|e| e.user_agent.starts_with("belay-cli/"));
    assert_eq!(sent.count(), 0, "nothing was sent");
}

#[tokio::test]
async fn a_dry_run_and_a_shown_patch_change_nothing_and_the_patch_works() {
    let scene = Scene::new("cli-orders-dry").await;
    released(&scene).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-unready")], ""))
        .await;
    let status = scene
        .plan_until("shop", "has a target", |s| s.target_revision.is_some())
        .await;
    let target = status.target_revision.unwrap();
    let said = belay(&scene, &["abort", "shop", "--dry-run", "server"])
        .await
        .exits(0);
    assert!(said.stdout.contains("(server dry run)"), "{said:#?}");
    let said = belay(&scene, &["abort", "deploy/cart", "--show-patch"])
        .await
        .exits(0);
    assert_eq!(
        said.stdout,
        format!(
            "kubectl -n {} annotate --overwrite releaseplan/shop {ABORT}={target}\n",
            scene.namespace
        )
    );
    let kept = scene.plans().get("shop").await.unwrap();
    assert_eq!(kept.annotation(ABORT), None);

    let shell = {
        let mut shell = command(&scene, "belay");
        let path: Vec<_> = shell
            .get_envs()
            .filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())))
            .collect();
        shell = std::process::Command::new("sh");
        shell
            .envs(path)
            .args(["-c", said.stdout.trim()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        shell.spawn().unwrap()
    };
    end(shell, None).await.exits(0);
    scene.because("shop", Reason::RolledBack).await;
}
