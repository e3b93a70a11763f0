//! `belay check` on a real control plane, well and broken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use belay::api::Reason;
use belay_testenv::{Cluster, ClusterOptions, Operator, workspace_root};
use serde_json::Value;

use crate::{
    cli::{Said, allow, belay},
    support::{SOON, Scene, options, plan},
};

/// The level and text of each finding about one thing.
fn findings(said: &Said, check: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(report["kind"], "CheckReport");
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|finding| finding["check"] == check)
        .map(|finding| {
            let level = finding["level"].as_str().unwrap().to_owned();
            if level != "OK" {
                assert!(finding["cause"].is_string() && finding["cure"].is_string());
            }
            (level, finding.to_string())
        })
        .collect()
}

/// Checks until one thing stands as expected: the API server takes a moment to
/// take notice of changed webhooks and rights.
async fn until(scene: &Scene, check: &str, level: &str, text: &str) -> Said {
    let deadline = Instant::now() + SOON;
    loop {
        let said = belay(scene, &["check", "-o", "json"]).await;
        let found = findings(&said, check);
        if found.iter().any(|(l, t)| l == level && t.contains(text)) {
            return said;
        }
        assert!(Instant::now() < deadline, "no {level} {text:?}: {found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_nothing_wrong_where_nothing_is_and_leaves_nothing_behind() {
    let scene = Scene::new("doctor-well").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    // The machine may be busy with other tests; that is not the doctor's time.
    let (mut said, mut took) = (None, Duration::MAX);
    for _ in 0..10 {
        let began = Instant::now();
        said = Some(belay(&scene, &["check", "--color", "never"]).await.exits(0));
        took = took.min(began.elapsed());
        if took < Duration::from_secs(3) {
            break;
        }
    }
    let said = said.unwrap();
    assert!(!said.stdout.contains("FAIL"), "{said:?}");
    for line in [
        "OK    crd ",
        "OK    rights       serviceaccount belay-system/belay has all",
        "OK    webhooks ",
        "OK    certificate  the authority is good",
        "OK    admission    a sound plan is admitted and a faulty one is refused",
        "OK    lease        skipped",
        "OK    you ",
        "OK    workloads    1 plan in doctor-well with 1 workload",
    ] {
        assert!(said.stdout.contains(line), "{line}: {}", said.stdout);
    }
    assert!(took < Duration::from_secs(3), "it took {took:?}");
    let plans = scene.plans().list(&Default::default()).await.unwrap();
    assert_eq!(plans.items.len(), 1, "dry runs leave nothing");

    // Somebody with few rights sees less, and that is no failure.
    allow(&scene, "eve", "get").await;
    let said = belay(&scene, &["check", "--as", "eve", "-o", "json"])
        .await
        .exits(0);
    for check in ["crd", "rights", "webhooks", "admission", "you", "workloads"] {
        assert_eq!(findings(&said, check)[0].0, "WARN", "{check}: {said:?}");
    }
    // No way to a cluster at all.
    belay(&scene, &["check", "--kubeconfig", "/no/such/file"])
        .await
        .exits(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_other_owners_of_a_workload() {
    let scene = Scene::new("doctor-owners").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("first", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("first").await;
    scene
        .apply(&plan("second", &[("cart", "shop/cart:1")], ""))
        .await;
    scene
        .apply(&crate::support::following("third", &["gone"], ""))
        .await;
    // As Flagger's CRD is called, and as much of it as matters here.
    scene
        .apply(
            "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: canaries.flagger.app}
spec:
  group: flagger.app
  scope: Namespaced
  names: {kind: Canary, plural: canaries, singular: canary, listKind: CanaryList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
",
        )
        .await;
    scene
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/canaries.flagger.app",
        ])
        .await;
    scene
        .apply(
            "apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}}
",
        )
        .await;
    let said = belay(&scene, &["check", "-o", "json"]).await.exits(1);
    let found = findings(&said, "workloads");
    for (level, text) in [
        ("WARN", "stands in several plans: first, second"),
        ("FAIL", "is released by Flagger's Canary cart as well"),
        ("WARN", "deployment gone in doctor-owners does not exist"),
    ] {
        assert!(
            found.iter().any(|(l, t)| l == level && t.contains(text)),
            "{text}: {found:?}"
        );
    }
    let said = belay(&scene, &["check", "-o", "name"]).await.exits(1);
    assert_eq!(said.stdout, "workloads\n");
    scene
        .kubectl(&["delete", "crd", "canaries.flagger.app"])
        .await;
}

/// From an empty cluster to an installation that is broken piece by piece.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_what_is_missing_before_and_after_an_installation() {
    let start = || Arc::new(Cluster::start(ClusterOptions::new()).unwrap());
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let scene = Scene::on(&cluster, "doctor").await;

    let said = belay(&scene, &["check", "--pre", "-o", "json"])
        .await
        .exits(0);
    for check in ["server", "crd", "names", "rights"] {
        assert_eq!(findings(&said, check)[0].0, "OK", "{said:?}");
    }
    allow(&scene, "eve", "get").await;
    let said = belay(&scene, &["check", "--pre", "--as", "eve", "-o", "json"])
        .await
        .exits(1);
    assert!(
        findings(&said, "rights")[0]
            .1
            .contains("create/patch clusterroles")
    );
    let said = belay(&scene, &["check", "-o", "json"]).await.exits(1);
    assert!(
        findings(&said, "crd")[0].1.contains("does not exist"),
        "{said:?}"
    );
    assert!(
        findings(&said, "admission")[0]
            .1
            .contains("does not know ReleasePlans"),
        "{said:?}"
    );

    let operator = {
        let cluster = Arc::clone(&cluster);
        let start = move || Operator::start(&cluster, &options()).unwrap();
        tokio::task::spawn_blocking(start).await.unwrap()
    };
    let said = until(&scene, "admission", "OK", "").await.exits(0);
    assert_eq!(findings(&said, "rights")[0].0, "OK");
    let said = belay(&scene, &["check", "--pre", "-o", "json"])
        .await
        .exits(0);
    assert!(
        findings(&said, "crd")[0].1.contains("this is an upgrade"),
        "{said:?}"
    );

    // Rights.
    scene
        .kubectl(&["delete", "clusterrolebinding", "belay"])
        .await;
    let said = until(&scene, "rights", "FAIL", "lacks").await.exits(1);
    assert!(
        findings(&said, "rights")[0]
            .1
            .contains("may not get/list/watch/patch releaseplans.belay.dev"),
        "{said:?}"
    );
    let bind = [
        "create",
        "clusterrolebinding",
        "belay",
        "--clusterrole=belay",
    ];
    let account = "--serviceaccount=belay-system:belay";
    scene.kubectl(&[&bind[..], &[account]].concat()).await;
    until(&scene, "rights", "OK", "").await;

    // A CRD of another version.
    let patch = r#"[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/bakeTime"}]"#;
    let crd = "crd/releaseplans.belay.dev";
    scene
        .kubectl(&["patch", crd, "--type=json", "-p", patch])
        .await;
    until(&scene, "crd", "FAIL", "the schemas differ at spec.bakeTime")
        .await
        .exits(1);
    let file = workspace_root().join("crds/releaseplans.belay.dev.yaml");
    scene
        .kubectl(&["apply", "-f", file.to_str().unwrap()])
        .await;
    until(&scene, "crd", "OK", "").await;

    // The operator is away, and somebody edits what it follows.
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&crate::support::following("web", &["web"], ""))
        .await;
    scene.ready("web").await;
    let said = belay(&scene, &["status", "web"]).await.exits(0);
    assert!(said.stdout.starts_with("✓ web"), "{said:?}");
    let maps = ["create", "configmap", "site", "--from-literal=text=old"];
    scene.kubectl(&maps).await;
    scene.deployment("site", "shop/site:1", 1).await;
    let site = crate::support::following("site", &["site"], "    configMaps: [site]\n");
    scene.apply(&site).await;
    scene.ready("site").await;
    scene.deployment("cold", "shop/cold:1", 1).await;
    scene
        .apply(&crate::support::following(
            "cold",
            &["cold"],
            "  onFailure: Freeze\n",
        ))
        .await;
    scene.ready("cold").await;
    let image = ["set", "image", "deploy/cold", "app=shop/cold:2-pullerror"];
    scene.kubectl(&image).await;
    scene.because("cold", Reason::Frozen).await;
    {
        let kill = move || operator.kill().unwrap();
        tokio::task::spawn_blocking(kill).await.unwrap();
    }
    until(
        &scene,
        "admission",
        "FAIL",
        "no operator serves the webhook",
    )
    .await
    .exits(1);
    let said = belay(&scene, &["check", "-o", "json"]).await.exits(1);
    let admission = findings(&said, "admission");
    assert!(
        admission[0]
            .1
            .contains("see that the operator that serves https://"),
        "{admission:?}"
    );
    scene
        .kubectl(&["set", "image", "deploy/web", "app=shop/web:2-crash"])
        .await;
    let image = ["set", "image", "deploy/cold", "app=shop/cold:3"];
    scene.kubectl(&image).await;
    let patch = r#"{"data":{"text":"new"}}"#;
    scene
        .kubectl(&["patch", "configmap", "site", "-p", patch])
        .await;
    let wait = ["wait", "deploy/web", "--timeout", "11s"];
    let said = belay(&scene, &wait).await.exits(124);
    assert!(
        said.stderr
            .contains("is the operator running? belay check -n doctor"),
        "{said:?}"
    );
    // What it says at rest, or where it stopped, is about what was live before.
    for (target, what) in [
        ("site", "configmap site"),
        ("deploy/site", "configmap site"),
        ("cold", "deployment cold"),
        ("deploy/cold", "deployment cold"),
    ] {
        for timeout in ["0", "1s"] {
            let wait = ["wait", target, "--timeout", timeout];
            let said = belay(&scene, &wait).await.exits(124);
            assert!(said.last().contains(" reason=Unseen "), "{said:?}");
            let words = format!("nobody has looked at {what} as it is now, edited ");
            assert!(said.stderr.contains(&words), "{said:?}");
        }
    }
    let said = belay(&scene, &["status", "web"]).await.exits(0);
    let top = "✗ web  Nobody has looked at the pod template of deployment/web as it is now";
    assert!(said.stdout.starts_with(top), "{said:?}");
    assert!(!said.stdout.contains("goes back by itself"), "{said:?}");

    // One webhook, then the other.
    scene
        .kubectl(&["delete", "mutatingwebhookconfiguration", "belay.dev"])
        .await;
    until(
        &scene,
        "webhooks",
        "FAIL",
        "MutatingWebhookConfiguration belay.dev does not exist",
    )
    .await;
    // What is said to bring them back does, also where a URL stands in the other one.
    until(&scene, "webhooks", "FAIL", "kubectl replace --force -f ").await;
    let file = workspace_root().join("deploy/webhooks.yaml");
    let file = file.to_str().unwrap();
    let applied = scene.kubectl_raw(&["apply", "-f", file]).await;
    assert!(
        applied.stderr.contains("exactly one of url or service"),
        "{}",
        applied.stderr
    );
    scene.kubectl(&["replace", "--force", "-f", file]).await;
    until(&scene, "webhooks", "FAIL", "has no caBundle").await;
    scene
        .kubectl(&["delete", "mutatingwebhookconfiguration", "belay.dev"])
        .await;
    scene
        .kubectl(&["delete", "validatingwebhookconfiguration", "belay.dev"])
        .await;
    until(
        &scene,
        "admission",
        "FAIL",
        "the mutating webhook is not asked",
    )
    .await
    .exits(1);
}
