//! The API server refuses what the operator writes: policies of the house, a
//! webhook of others that is away, rights that were withdrawn.

use belay::api::{Cause, Phase, Reason};
use serde_json::json;

use crate::support::{Scene, holds, image_of, own, plan, why};

/// One component that cannot go back must not keep the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_restore_of_one_component_does_not_hold_the_others() {
    let scene = Scene::new("refusals-restore").await;
    scene
        .stable(
            &[
                ("aa", "shop/aa:1"),
                ("bb", "shop/bb:1"),
                ("cc", "shop/cc:1"),
            ],
            "",
        )
        .await;
    let bad = [
        ("aa", "shop/aa:2"),
        ("bb", "shop/bb:2"),
        ("cc", "shop/cc:2-unready"),
    ];
    scene.shop(&bad, "  progressDeadline: 20s\n").await;
    scene
        .deployment_until("cc", "has 2", |d| image_of(d).contains(":2"))
        .await;
    scene
        .policy(
            "refusals-restore",
            "object.metadata.name != 'cc' || !object.spec.template.spec.containers.exists(c, c.image.endsWith(':1'))",
            &["set", "image", "deployment/cc", "app=shop/zz:1", "--dry-run=server"],
        )
        .await;
    scene.phase("shop", Phase::Rollback).await;
    for name in ["aa", "bb"] {
        let image = format!("shop/{name}:1");
        scene
            .deployment_until(name, "is back although cc is not", |d| image_of(d) == image)
            .await;
    }
    scene
        .plan_until("shop", "says what holds it", |s| {
            why(s).contains("policy of the house")
        })
        .await;
    scene.lift("refusals-restore").await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert!(holds(&end, "Stable", "True"));
    assert_eq!(scene.image("cc").await, "shop/cc:1");
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_appears_in_mid_release_ends_it() {
    let scene = Scene::new("refusals-policy").await;
    let with = |tags: [&str; 2]| {
        let (aa, bb) = (
            format!("shop/aa:{}", tags[0]),
            format!("shop/bb:{}", tags[1]),
        );
        plan("shop", &[("aa", &aa), ("bb", &bb)], "    after: [aa]\n")
    };
    scene.deployment("aa", "shop/aa:1", 1).await;
    scene.deployment("bb", "shop/bb:1", 1).await;
    scene.apply(&with(["1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&with(["2-unready", "forbidden"])).await;
    scene
        .deployment_until("aa", "has 2", |d| image_of(d).contains(":2"))
        .await;
    let forbidden = [
        "set",
        "image",
        "deployment/bb",
        "app=x:forbidden",
        "--dry-run=server",
    ];
    scene
        .policy(
            "refusals-policy",
            "!object.spec.template.spec.containers.exists(c, c.image.endsWith(':forbidden'))",
            &forbidden,
        )
        .await;
    // Now it is the turn of bb.
    let pod = scene
        .kubectl(&[
            "get",
            "pods",
            "-l",
            "app=aa",
            "--sort-by=.metadata.creationTimestamp",
            "-o",
            "name",
        ])
        .await;
    let pod = pod.lines().last().unwrap().to_owned();
    let ready = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
    }});
    scene
        .kubectl(&[
            "patch",
            &pod,
            "--subresource=status",
            "-p",
            &ready.to_string(),
        ])
        .await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(end.refused.last().unwrap().cause, Cause::TemplateRefused);
    assert!(why(&end).contains("policy of the house"), "{}", why(&end));
    assert_eq!(scene.image("aa").await, "shop/aa:1");
    assert_eq!(scene.image("bb").await, "shop/bb:1");
    // And in the dry run: at admission already.
    let other = with(["3", "forbidden"]).replace("shop/bb:", "shop/other:");
    let refused = scene.try_apply(&other, &[]).await;
    assert!(
        !refused.success() && refused.stderr.contains("policy of the house"),
        "{}",
        refused.stderr
    );
    scene.assert_calm().await;
}

/// A house that freezes its Deployments for a while must still be able to let
/// go of a plan: nothing of it is in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_at_rest_can_be_deleted_while_its_workload_cannot_be_written() {
    let scene = Scene::new("refusals-freeze").await;
    scene.stable(&[("cart", "shop/cart:1")], "").await;
    scene
        .policy(
            "refusals-freeze",
            "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
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
    scene.delete_plans(&["shop"]).await;
    assert_eq!(scene.revisions().await, 0);
}

/// A component that fails is judged, although the write of another one errs.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_counts_although_the_next_component_cannot_be_written() {
    let scene = Scene::new("refusals-away").await;
    let with = |tags: [&str; 3]| {
        let [aa, bb, cc] = tags.map(|tag| format!("shop/x:{tag}"));
        plan("shop", &[("aa", &aa), ("bb", &bb), ("cc", &cc)], "")
            .replace("name: bb}\n", "name: bb}\n    after: [cc]\n")
    };
    for name in ["aa", "bb", "cc"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
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
metadata: {{name: refusals-away}}
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
    scene
        .refused(&[
            "label",
            "deployment",
            "bb",
            "x=y",
            "--dry-run=server",
            "--overwrite",
        ])
        .await;
    scene
        .deployment_until("aa", "is back, as it crashes", |d| {
            image_of(d) == "shop/x:1"
        })
        .await;
    scene
        .kubectl(&["delete", "validatingwebhookconfiguration", "refusals-away"])
        .await;
    scene.nudge("shop").await;
    scene.because("shop", Reason::RolledBack).await;
}

/// The operator's right to write Deployments is withdrawn in mid-release. That
/// says nothing about the content; with the right the release goes on.
#[tokio::test(flavor = "multi_thread")]
async fn rights_withdrawn_in_mid_release_refuse_no_content() {
    let (cluster, _operator) = own().await;
    let scene = Scene::on(&cluster, "refusals-rights").await;
    let with = |tags: [&str; 2]| {
        let [cart, web] = tags.map(|tag| format!("shop/x:{tag}"));
        let rest = "    after: [cart]\n  retry: {maxRetries: 5}\n";
        plan("shop", &[("cart", &cart), ("web", &web)], rest)
    };
    for name in ["cart", "web"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene.apply(&with(["1", "1"])).await;
    scene.ready("shop").await;
    scene.apply(&with(["2-slow", "2"])).await;
    scene.because("shop", Reason::Promoting).await;
    let role = scene
        .kubectl(&["get", "clusterrole", "belay", "-o", "json"])
        .await;
    let whole: serde_json::Value = serde_json::from_str(&role).unwrap();
    let mut bare = whole.clone();
    for rule in bare["rules"].as_array_mut().unwrap() {
        if rule["resources"] == json!(["deployments"]) {
            rule["verbs"] = json!(["get", "list", "watch"]);
        }
    }
    let grant = async |role: &serde_json::Value| {
        let rules = json!({"rules": role["rules"]});
        scene.merge("clusterrole", "belay", &rules).await;
    };
    grant(&bare).await;
    let status = scene.because("shop", Reason::ReconcileError).await;
    assert!(why(&status).contains("forbidden"), "{}", why(&status));
    assert_eq!(
        status.refused,
        [],
        "missing rights say nothing about the content"
    );
    assert_eq!(status.phase, Some(Phase::RollingOut));
    assert_eq!(scene.image("web").await, "shop/x:1");
    grant(&whole).await;
    scene.nudge("shop").await;
    scene.ready("shop").await;
    assert_eq!(scene.image("web").await, "shop/x:2");
}
