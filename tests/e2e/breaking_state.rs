//! Hostile cases: records lost or forged, and rivals.

use std::time::Duration;

use belay::api::{Phase, Reason};

use crate::{
    breaking::{revisions, sane, why},
    support::{Scene, deployment, following, holds, image_of, plan},
};

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_at_rest_are_missed_loudly_and_a_new_plan_helps() {
    let scene = Scene::new("breakst-revs").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&["delete", "controllerrevisions", "--all"])
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.because("shop", Reason::RevisionLost).await;
    sane(&scene).await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_deleted_in_mid_release_are_told_and_keep_lets_go() {
    let scene = Scene::new("breakst-revs-mid").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&["delete", "controllerrevisions", "--all"])
        .await;
    // The running release still knows them.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene
        .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3")], ""))
        .await;
    let end = scene.because("shop", Reason::RevisionLost).await;
    assert!(holds(&end, "Stalled", "True") && holds(&end, "Ready", "False"));
    sane(&scene).await;
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--type=merge",
            "-p",
            r#"{"spec":{"deletionPolicy":"Keep"}}"#,
        ])
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_at_rest_is_made_again() {
    let scene = Scene::new("breakst-wiped").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--subresource=status",
            "--type=json",
            "-p",
            r#"[{"op":"remove","path":"/status"}]"#,
        ])
        .await;
    scene.ready("shop").await;
    // And a failure still goes back.
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-pullerror")], ""))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    sane(&scene).await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=60s"])
        .await;
    assert_eq!(revisions(&scene).await, 0);
}

/// Never Ready on content that crashes, whatever becomes of the status.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_wiped_in_mid_release_does_not_make_broken_content_ready() {
    let scene = Scene::new("breakst-wiped-mid").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2-unready")],
            "  progressDeadline: 5s\n",
        ))
        .await;
    scene.because("shop", Reason::Promoting).await;
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--subresource=status",
            "--type=json",
            "-p",
            r#"[{"op":"remove","path":"/status"}]"#,
        ])
        .await;
    let status = scene.because("shop", Reason::StatusLost).await;
    assert!(!holds(&status, "Ready", "True"), "{}", why(&status));
    sane(&scene).await;
    // The way out that it names.
    let path = "jsonpath={.items[?(@.revision==0)].metadata.name}";
    let stable = scene
        .kubectl(&["get", "controllerrevisions", "-o", path])
        .await;
    assert!(why(&status).contains(stable.trim()), "{}", why(&status));
    let undo = format!("belay.dev/undo={}", stable.trim());
    scene.kubectl(&["annotate", "relplan", "shop", &undo]).await;
    scene
        .deployment_until("cart", "goes back", |d| image_of(d) == "shop/cart:1")
        .await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:3")],
            "  progressDeadline: 5s\n",
        ))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_statuses_neither_spin_nor_panic() {
    let scene = Scene::new("breakst-forged").await;
    let forged = [
        (
            "names",
            r#"{"status":{"stableRevision":"nope","targetRevision":"nada","phase":"RollingOut","release":{"number":1,"kind":"Content","stage":"Bake","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":["nope","nada"]}}}"#,
        ),
        (
            "emptynames",
            r#"{"status":{"stableRevision":"","targetRevision":"","phase":"RollingOut","release":{"number":1,"kind":"Content","stage":"Restore","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":[""]}}}"#,
        ),
        (
            "nostable",
            r#"{"status":{"stableRevision":null,"targetRevision":null,"phase":"Rollback","release":{"number":1,"kind":"Content","stage":"Restore","content":"x","startedAt":"2020-01-01T00:00:00.000000Z","stageSince":"2020-01-01T00:00:00.000000Z","applied":[]}}}"#,
        ),
        (
            "odd",
            r#"{"status":{"stableRevision":"../../x?y=z","phase":"Stable","components":[]}}"#,
        ),
        ("frozen", r#"{"status":{"phase":"Frozen"}}"#),
        (
            "future",
            r#"{"status":{"phase":"RollingOut","release":{"number":9223372036854775807,"kind":"Content","stage":"Settle","content":"x","startedAt":"9999-01-01T00:00:00.000000Z","stageSince":"9999-01-01T00:00:00.000000Z","applied":[]}}}"#,
        ),
    ];
    for (name, _) in forged {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
        scene.ready(name).await;
    }
    for (name, patch) in forged {
        let out = scene
            .kubectl_raw(&[
                "patch",
                "relplan",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                patch,
            ])
            .await;
        eprintln!("{name}: {} {}", out.stdout.trim(), out.stderr.trim());
        scene.apply(&plan(name, &[(name, "shop/x:2")], "")).await;
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let mut faults = Vec::new();
    for (name, _) in forged {
        let status = scene
            .plans()
            .get(name)
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        let image = scene.image(name).await;
        eprintln!(
            "{name}: image {image}, {:?}, {}",
            status.phase,
            why(&status)
        );
        if holds(&status, "Ready", "True") && image != "shop/x:2" {
            faults.push(format!("{name}: Ready with {image}"));
        }
    }
    sane(&scene).await;
    // There is always a way out.
    for (name, _) in forged {
        scene
            .kubectl(&[
                "patch",
                "relplan",
                name,
                "--type=merge",
                "-p",
                r#"{"spec":{"deletionPolicy":"Keep"}}"#,
            ])
            .await;
        let out = scene
            .kubectl_raw(&["delete", "relplan", name, "--timeout=20s"])
            .await;
        if !out.success() {
            faults.push(format!("{name} cannot be deleted: {}", out.stderr));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_removed_by_hand_comes_back_and_renames_leave_no_revisions() {
    let scene = Scene::new("breakst-renames").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&[
            "patch",
            "relplan",
            "shop",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ])
        .await;
    let finalizers = scene.plans().get("shop").await.unwrap().metadata.finalizers;
    assert!(
        finalizers
            .unwrap_or_default()
            .iter()
            .any(|f| f == belay::api::FINALIZER)
    );
    for n in 0..8 {
        let manifest = plan("shop", &[("cart", "shop/cart:1")], "")
            .replace("  - workload", &format!("  - name: c{n}\n    workload"));
        scene.apply(&manifest).await;
        scene
            .plan_until("shop", "has the new name", |s| {
                s.components.iter().any(|c| c.name == format!("c{n}")) && holds(s, "Ready", "True")
            })
            .await;
    }
    let count = revisions(&scene).await;
    assert!(
        count <= 3,
        "{count} revisions after 8 renames and not one release but the first"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_overlap_in_part_and_a_workload_that_moves_between_them() {
    let scene = Scene::new("breakst-overlap").await;
    for name in ["xx", "yy", "zz"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene
        .apply(&plan("a", &[("xx", "shop/x:1"), ("yy", "shop/x:1")], ""))
        .await;
    scene.ready("a").await;
    scene
        .apply(&plan("b", &[("yy", "shop/x:2"), ("zz", "shop/x:2")], ""))
        .await;
    let b = scene.because("b", Reason::Conflict).await;
    assert!(why(&b).contains("releaseplan a"));
    assert_eq!(
        scene.image("zz").await,
        "shop/x:1",
        "a plan in conflict writes nothing"
    );
    // In mid-release it stays.
    scene
        .apply(&plan(
            "a",
            &[("xx", "shop/x:1-slow"), ("yy", "shop/x:1-slow")],
            "",
        ))
        .await;
    scene.because("a", Reason::Promoting).await;
    let out = scene
        .try_apply(&plan("a", &[("xx", "shop/x:1-slow")], ""), &[])
        .await;
    assert!(
        !out.success(),
        "the set of components is fixed in mid-release"
    );
    scene.ready("a").await;
    scene
        .apply(&plan("a", &[("xx", "shop/x:1-slow")], ""))
        .await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:2");
    assert_eq!(scene.image("xx").await, "shop/x:1-slow");
    // And back, and forth within one breath.
    scene.apply(&plan("b", &[("zz", "shop/x:2")], "")).await;
    scene
        .apply(&plan(
            "a",
            &[("yy", "shop/x:5"), ("xx", "shop/x:1-slow")],
            "",
        ))
        .await;
    scene.ready("b").await;
    scene.ready("a").await;
    assert_eq!(scene.image("yy").await, "shop/x:5");
    sane(&scene).await;
    scene
        .kubectl(&["delete", "relplan", "a", "b", "--timeout=60s"])
        .await;
    assert_eq!(revisions(&scene).await, 0);
    for name in ["xx", "yy", "zz"] {
        let live = scene.deployments().get(name).await.unwrap();
        assert!(
            live.metadata
                .managed_fields
                .iter()
                .flatten()
                .all(|m| m.manager.as_deref() != Some("belay")),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_whose_selector_takes_in_anothers_pods() {
    let scene = Scene::new("breakst-selector").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    let twin = deployment("twin", "shop/twin:1-crash", 1)
        .replace("{app: twin}", "{app: cart, twin: \"1\"}");
    scene.apply(&twin).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    scene.ready("shop").await;
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_in_mid_release_of_something_else() {
    let scene = Scene::new("breakst-retry").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    for retry in ["", "a/b", "../x", "shop-0000000000"] {
        let out = scene
            .kubectl_raw(&[
                "annotate",
                "--overwrite",
                "relplan",
                "shop",
                &format!("belay.dev/retry={retry}"),
            ])
            .await;
        assert!(!out.success(), "{retry:?} is admitted");
    }
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-pullerror")], ""))
        .await;
    let refused = scene.because("shop", Reason::RolledBack).await.refused[0]
        .revision
        .clone();
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:3-slow")], ""))
        .await;
    scene.because("shop", Reason::Promoting).await;
    let out = scene
        .kubectl_raw(&[
            "annotate",
            "relplan",
            "shop",
            &format!("belay.dev/retry={refused}"),
        ])
        .await;
    assert!(
        !out.success() && out.stderr.contains("no longer what the plan asks for"),
        "{}",
        out.stderr
    );
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3-slow");
    sane(&scene).await;
    let annotations = scene
        .plans()
        .get("shop")
        .await
        .unwrap()
        .metadata
        .annotations
        .unwrap();
    assert!(
        !annotations.contains_key("belay.dev/retry"),
        "{annotations:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_leaves_in_mid_release() {
    let scene = Scene::new("breakst-untemplate").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    scene.because("shop", Reason::Promoting).await;
    let out = scene
        .try_apply(&following("shop", &["cart"], ""), &[])
        .await;
    eprintln!("untemplate: {} {}", out.stdout, out.stderr);
    if !out.success() {
        return;
    }
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    sane(&scene).await;
    scene
        .kubectl(&[
            "set",
            "image",
            "deployment/cart",
            "app=shop/cart:3-pullerror",
        ])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:2-slow");
    let live = scene.deployments().get("cart").await.unwrap();
    assert!(
        live.metadata
            .managed_fields
            .iter()
            .flatten()
            .all(|m| m.manager.as_deref() != Some("belay"))
    );
}

/// What is live is never healthy and what the plan wants is live already.
#[tokio::test(flavor = "multi_thread")]
async fn a_baseline_that_is_not_healthy_within_the_deadline_does_not_spin() {
    let scene = Scene::new("breakst-baseline").await;
    scene
        .apply(&deployment("cart", "shop/cart:1-unready", 1))
        .await;
    scene
        .apply(&following("shop", &["cart"], "  progressDeadline: 3s\n"))
        .await;
    scene.because("shop", Reason::BaselineUnavailable).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_release_that_failed_rests_and_good_content_heals_it() {
    let scene = Scene::new("breakst-failed").await;
    scene
        .apply(&deployment("cart", "shop/cart:1-pullerror", 1))
        .await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2-pullerror")],
            "  progressDeadline: 3s\n",
        ))
        .await;
    scene.phase("shop", Phase::Failed).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    sane(&scene).await;
    scene
        .kubectl(&["rollout", "restart", "deployment/cart"])
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!("failed and restarted: {:?} {}", status.phase, why(&status));
    sane(&scene).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:3")],
            "  progressDeadline: 3s\n",
        ))
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:3");
}
