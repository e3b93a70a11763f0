//! Hostile cases of the way back and of leaving.

use std::time::Duration;

use belay::api::{Phase, Reason};

use crate::{
    breaking::{enforced, policy, rested, revisions, sane, why},
    support::{Scene, holds, image_of, plan},
};

/// One component that cannot go back must not keep the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_restore_of_one_component_does_not_hold_the_others() {
    let scene = Scene::new("break-restore-refused").await;
    let names = ["aa", "bb", "cc"];
    for name in names {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    scene
        .apply(&plan(
            "shop",
            &[
                ("aa", "shop/aa:1"),
                ("bb", "shop/bb:1"),
                ("cc", "shop/cc:1"),
            ],
            "",
        ))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[
                ("aa", "shop/aa:2"),
                ("bb", "shop/bb:2"),
                ("cc", "shop/cc:2-unready"),
            ],
            "  progressDeadline: 20s\n",
        ))
        .await;
    scene
        .deployment_until("cc", "has 2", |d| image_of(d).contains(":2"))
        .await;
    policy(
        &scene,
        "break-no-one",
        "object.metadata.name != 'cc' || !object.spec.template.spec.containers.exists(c, c.image.endsWith(':1'))",
    )
    .await;
    enforced(
        &scene,
        &[
            "set",
            "image",
            "deployment/cc",
            "app=shop/zz:1",
            "--dry-run=server",
        ],
    )
    .await;
    scene.phase("shop", Phase::Rollback).await;
    scene
        .deployment_until("aa", "is back although cc is not", |d| {
            image_of(d) == "shop/aa:1"
        })
        .await;
    scene
        .deployment_until("bb", "is back although cc is not", |d| {
            image_of(d) == "shop/bb:1"
        })
        .await;
    scene
        .plan_until("shop", "says what holds it", |s| {
            why(s).contains("policy of the house")
        })
        .await;
    scene
        .kubectl(&["delete", "validatingadmissionpolicybinding", "break-no-one"])
        .await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert!(holds(&end, "Stable", "True"));
    assert_eq!(scene.image("cc").await, "shop/cc:1");
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_appears_in_mid_release_ends_it() {
    let scene = Scene::new("break-policy-mid").await;
    scene.deployment("aa", "shop/aa:1", 1).await;
    scene.deployment("bb", "shop/bb:1", 1).await;
    let with = |tag: [&str; 2]| {
        plan(
            "shop",
            &[
                ("aa", &format!("shop/aa:{}", tag[0])),
                ("bb", &format!("shop/bb:{}", tag[1])),
            ],
            "",
        ) + "    after: [aa]\n"
    };
    scene.apply(&with(["1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&with(["2-slow", "forbidden"])).await;
    scene
        .deployment_until("aa", "has 2", |d| image_of(d).contains(":2"))
        .await;
    policy(
        &scene,
        "break-forbidden",
        "!object.spec.template.spec.containers.exists(c, c.image.endsWith(':forbidden'))",
    )
    .await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(
        end.refused.last().unwrap().cause,
        belay::api::Cause::TemplateRefused
    );
    assert!(why(&end).contains("policy of the house"), "{}", why(&end));
    assert_eq!(scene.image("aa").await, "shop/aa:1");
    assert_eq!(scene.image("bb").await, "shop/bb:1");
    // And in the dry run: at admission already.
    let refused = scene
        .try_apply(
            &with(["3", "x:forbidden"]).replace("shop/bb:x:", "shop/bb-x:"),
            &[],
        )
        .await;
    assert!(
        !refused.success() && refused.stderr.contains("policy of the house"),
        "{}",
        refused.stderr
    );
    sane(&scene).await;
}

/// A workload whose records of ownership were wiped by hand still goes back in
/// full.
#[tokio::test(flavor = "multi_thread")]
async fn managed_fields_wiped_in_mid_release_do_not_hold_the_way_back() {
    let scene = Scene::new("break-managed").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let before = scene.template("cart").await;
    let with =
        |container: &str| plan("shop", &[("cart", "x")], "").replace("image: \"x\"", container);
    scene.apply(&with("image: 'shop/cart:1'")).await;
    scene.ready("shop").await;
    scene
        .apply(&with(
            "image: 'shop/cart:2-unready', env: [{name: LOG, value: debug}, {name: A, value: a}]",
        ))
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    scene
        .kubectl(&[
            "patch",
            "deployment",
            "cart",
            "--type=merge",
            "-p",
            r#"{"metadata":{"managedFields":[{}]}}"#,
        ])
        .await;
    scene.apply(&with("image: 'shop/cart:3-pullerror'")).await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.template("cart").await, before);
    sane(&scene).await;
}

/// What a user does to the surroundings in mid-release outlives the rollback,
/// and all of the plan's fields are back.
#[tokio::test(flavor = "multi_thread")]
async fn surroundings_edited_in_mid_release_outlive_the_rollback() {
    let scene = Scene::new("break-edit-mid").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:2-unready")],
            "  progressDeadline: 12s\n",
        ))
        .await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    scene
        .kubectl(&[
            "set",
            "resources",
            "deployment/cart",
            "--limits=cpu=200m,memory=64Mi",
        ])
        .await;
    scene
        .kubectl(&[
            "patch",
            "deployment",
            "cart",
            "-p",
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}"#,
        ])
        .await;
    let end = scene
        .plan_until("shop", "rests", |s| {
            s.release.is_none() && s.history.len() > 1 && holds(s, "Stalled", "True")
        })
        .await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    // The guarded release of the surroundings may still come.
    let template = scene.template("cart").await.to_string();
    assert!(
        template.contains("shop/cart:1")
            && template.contains("side:1")
            && template.contains("200m"),
        "{template}"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    let end = scene
        .plan_until("shop", "rests", |s| {
            s.release.is_none() && holds(s, "Stalled", "True")
        })
        .await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    scene.available("cart").await;
    sane(&scene).await;
}

/// A house that freezes its Deployments for a while must still be able to let
/// go of a plan: nothing of it is in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_at_rest_can_be_deleted_while_its_workload_cannot_be_written() {
    let scene = Scene::new("break-freeze").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    policy(
        &scene,
        "break-freeze",
        "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
    )
    .await;
    enforced(
        &scene,
        &[
            "annotate",
            "deployment",
            "cart",
            "x=y",
            "--dry-run=server",
            "--overwrite",
        ],
    )
    .await;
    let out = scene
        .kubectl_raw(&["delete", "relplan", "shop", "--timeout=20s"])
        .await;
    if !out.success() {
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
        let keep = scene
            .kubectl_raw(&["delete", "relplan", "shop", "--timeout=20s"])
            .await;
        let status = scene.plans().get("shop").await.unwrap().status.unwrap();
        scene
            .kubectl(&["delete", "validatingadmissionpolicybinding", "break-freeze"])
            .await;
        assert!(keep.success(), "not even with Keep: {}", why(&status));
        panic!("only with Keep: {}", why(&status));
    }
    scene
        .kubectl(&["delete", "validatingadmissionpolicybinding", "break-freeze"])
        .await;
}

/// A sync tool took what the release added for its own (server-side apply with
/// the same value). The way back ends all the same, or says the truth.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_another_applier_shares_does_not_hold_the_way_back() {
    let scene = Scene::new("break-shared").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let before = scene.template("cart").await;
    let with =
        |container: &str| plan("shop", &[("cart", "x")], "").replace("image: \"x\"", container);
    scene.apply(&with("image: 'shop/cart:1'")).await;
    scene.ready("shop").await;
    let bad = with("image: 'shop/cart:2-unready', env: [{name: A, value: a}]")
        + "  progressDeadline: 10s\n";
    scene.apply(&bad).await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let shared = "apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  template:
    spec:
      containers:
      - name: app
        env: [{name: A, value: a}]
";
    let out = scene
        .try_apply(shared, &["--server-side", "--field-manager=sync"])
        .await;
    assert!(out.success(), "{}", out.stderr);
    let end = scene
        .plan_until("shop", "is stalled", |s| holds(s, "Stalled", "True"))
        .await;
    assert!(why(&end).starts_with("RolledBack"), "{}", why(&end));
    assert_eq!(scene.template("cart").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_and_forced_deletion_in_mid_release_go_back_first() {
    let scene = Scene::new("break-cascade").await;
    for (name, how) in [
        ("cart", "--cascade=foreground"),
        ("web", "--cascade=orphan"),
    ] {
        scene.deployment(name, "shop/x:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/x:1")], "")).await;
        scene.ready(name).await;
        scene
            .apply(&plan(name, &[(name, "shop/x:2-unready")], ""))
            .await;
        scene.because(name, Reason::Promoting).await;
        scene
            .kubectl(&[
                "delete",
                "relplan",
                name,
                how,
                "--force",
                "--grace-period=0",
                "--timeout=60s",
            ])
            .await;
        scene.gone(name).await;
        assert_eq!(scene.image(name).await, "shop/x:1", "{how}");
    }
    assert_eq!(revisions(&scene).await, 0);
}

/// A container that somebody renamed in mid-release is not added a second time
/// by the way back.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_does_not_add_a_container_that_was_renamed_in_mid_release() {
    let scene = Scene::new("break-rename-container").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let both = |cart: &str, web: &str| {
        plan(
            "shop",
            &[
                ("cart", &format!("shop/cart:{cart}")),
                ("web", &format!("shop/web:{web}")),
            ],
            "  progressDeadline: 8s\n",
        )
    };
    scene.apply(&both("1", "1")).await;
    scene.ready("shop").await;
    scene.apply(&both("2", "2-unready")).await;
    scene
        .deployment_until("cart", "has 2", |d| image_of(d).contains(":2"))
        .await;
    scene
        .kubectl(&[
            "patch",
            "deployment",
            "cart",
            "--type=json",
            "-p",
            r#"[{"op":"replace","path":"/spec/template/spec/containers/0/name","value":"main"}]"#,
        ])
        .await;
    let end = scene
        .plan_until("shop", "is stalled", |s| holds(s, "Stalled", "True"))
        .await;
    eprintln!("renamed: {}", why(&end));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let template = scene.template("cart").await;
    let names: Vec<&str> = template["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    eprintln!(
        "later: {} {names:?} web {}",
        why(&status),
        scene.image("web").await
    );
    // web never gets ready, so it is not left there for the sake of cart.
    assert_eq!(scene.image("web").await, "shop/web:1", "{}", why(&status));
}

/// A rollback of the surroundings leaves no mark on them: another applier may
/// set them without a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_of_the_surroundings_leaves_no_ownership_behind() {
    let scene = Scene::new("break-marks").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&["patch", "deployment", "cart", "-p",
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1-pullerror"}]}}}}"#])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    scene
        .kubectl(&["set", "env", "deployment/cart", "LOG=debug"])
        .await;
    rested(&scene, "shop").await;
    let live = scene.deployments().get("cart").await.unwrap();
    let ours: Vec<_> = live
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|m| m.manager.as_deref() == Some("belay"))
        .map(|m| {
            (
                m.operation.clone(),
                serde_json::to_string(&m.fields_v1).unwrap(),
            )
        })
        .collect();
    assert_eq!(ours.len(), 1, "{ours:#?}");
    assert!(
        ours[0].1.contains("f:image")
            && !ours[0].1.contains("side")
            && !ours[0].1.contains("f:env"),
        "{ours:#?}"
    );
}

/// A component that fails is judged, although the write of another one errs.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_counts_although_the_next_component_cannot_be_written() {
    let scene = Scene::new("break-judge-err").await;
    for name in ["aa", "bb", "cc"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    let with = |tags: [&str; 3]| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: aa}}
    template: {{spec: {{containers: [{{name: app, image: \"shop/x:{}\"}}]}}}}
  - workload: {{kind: Deployment, name: bb}}
    after: [cc]
    template: {{spec: {{containers: [{{name: app, image: \"shop/x:{}\"}}]}}}}
  - workload: {{kind: Deployment, name: cc}}
    template: {{spec: {{containers: [{{name: app, image: \"shop/x:{}\"}}]}}}}
",
            tags[0], tags[1], tags[2]
        )
    };
    scene.apply(&with(["1", "1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&with(["2-dies", "2", "2-slow"])).await;
    scene
        .deployment_until("aa", "has 2", |d| image_of(d).contains(":2"))
        .await;
    scene
        .apply(&format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: break-judge-err}}
webhooks:
- name: away.example.com
  admissionReviewVersions: [v1]
  sideEffects: NoneOnDryRun
  failurePolicy: Fail
  timeoutSeconds: 2
  clientConfig: {{url: \"https://127.0.0.1:1/\"}}
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}
  rules: [{{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments], scope: Namespaced}}]
  matchConditions:
  - {{name: bb, expression: \"object.metadata.name == 'bb' && !request.userInfo.username.startsWith('system:serviceaccount:kube-system:')\"}}
",
            scene.namespace
        ))
        .await;
    let back = tokio::time::timeout(
        Duration::from_secs(50),
        scene.deployment_until("aa", "is back, as it crashes", |d| {
            image_of(d) == "shop/x:1"
        }),
    );
    let back = back.await.is_ok();
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    scene
        .kubectl(&[
            "delete",
            "validatingwebhookconfiguration",
            "break-judge-err",
        ])
        .await;
    assert!(
        back,
        "aa crash loops and nothing goes back: {:?} {}",
        status.phase,
        why(&status)
    );
    scene.because("shop", Reason::RolledBack).await;
}
