//! What `kubectl apply` says: refusals, defaults, warnings.

use serde_json::Value;

use crate::support::{Scene, following, plan};

/// A rejected plan names every fault at once with its field path.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_plan_names_every_fault_at_once() {
    let scene = Scene::new("admission-faults").await;
    let output = scene
        .try_apply(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {name: shop}
spec:
  components:
  - workload: {kind: Deployment, name: Cart}
    template: {spec: {containers: [{name: app, image: 'shop/cart:2'}, {name: app}]}}
    after: [nowhere]
  - name: web
    workload: {kind: StatefulSet, name: web}
    configMaps: [web-config]
  progressDeadline: 10 minutes
  failFast: {restarts: 0}
  onFailure: Abandon
  strategy: {canary: {steps: [{weight: 10}]}}
",
            &[],
        )
        .await;
    assert!(!output.success());
    for path in [
        "spec.components[0].workload.name",
        "spec.components[0].template.spec.containers[1].name",
        "spec.components[0].after[0]",
        "spec.components[1].workload.kind",
        "spec.components[1].configMaps",
        "spec.progressDeadline",
        "spec.failFast.restarts",
        "spec.onFailure",
        "spec.strategy.canary",
    ] {
        assert!(
            output.stderr.contains(path),
            "{path} is missing in: {}",
            output.stderr
        );
    }
    assert!(
        output.stderr.contains("Not available yet"),
        "{}",
        output.stderr
    );
}

/// A plan that has its strategy by default keeps that beside what a manifest
/// adds; the answer says how to change from it, and that works.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_from_the_default_strategy_is_explained() {
    let scene = Scene::new("admission-strategy").await;
    let cart = [("cart", "shop/cart:1")];
    scene.apply(&plan("shop", &cart, "")).await;
    let canary = |rolling: &str| {
        let rest = format!("  strategy: {{{rolling}canary: {{steps: [{{replicas: 1}}]}}}}\n");
        plan("shop", &cart, &rest)
    };
    let both = scene.try_apply(&canary(""), &[]).await;
    assert!(
        !both.success() && both.stderr.contains("set rolling: null beside it"),
        "{}",
        both.stderr
    );
    let one = scene.try_apply(&canary("rolling: null, "), &[]).await;
    assert!(!one.stderr.contains("exactly one of"), "{}", one.stderr);
}

/// An accepted plan shows its defaults, finalizer and release generation in the
/// answer of `kubectl apply -o yaml`; the number rises exactly with the content.
#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_plan_shows_its_defaults_finalizer_and_release_generation() {
    let scene = Scene::new("admission-defaults").await;
    let answer = async |manifest: &str| -> Value {
        let output = scene.try_apply(manifest, &["-o", "json"]).await;
        assert!(output.success(), "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    };
    let generation = |answer: &Value| {
        answer["metadata"]["annotations"]["belay.dev/release-generation"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = answer(&plan("shop", &[("cart", "shop/cart:1")], "")).await;
    assert_eq!(
        first["metadata"]["finalizers"],
        serde_json::json!(["belay.dev/rollback"])
    );
    assert_eq!(first["spec"]["components"][0]["name"], "cart");
    assert_eq!(first["spec"]["progressDeadline"], "10m");
    assert_eq!(
        first["spec"]["strategy"],
        serde_json::json!({"rolling": {}})
    );
    assert_eq!(generation(&first), "1");
    assert_eq!(
        first["metadata"]["annotations"]["belay.dev/requested-by"],
        "admin"
    );
    let tuned = answer(&plan(
        "shop",
        &[("cart", "shop/cart:1")],
        "  paused: true\n",
    ))
    .await;
    assert_eq!(generation(&tuned), "1");
    let second = answer(&plan("shop", &[("cart", "shop/cart:2")], "")).await;
    assert_eq!(generation(&second), "2");
    scene
        .kubectl(&[
            "annotate",
            "--overwrite",
            "relplan",
            "shop",
            "belay.dev/release-generation=99",
        ])
        .await;
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(
        stored.annotation("belay.dev/release-generation"),
        Some("2"),
        "nobody sets it by hand"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_container_is_refused_with_the_names_there_are() {
    let scene = Scene::new("admission-container").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let wrong = plan("shop", &[("cart", "shop/cart:2")], "").replace("name: app", "name: ap");
    let output = scene.try_apply(&wrong, &[]).await;
    assert!(!output.success());
    assert!(
        output
            .stderr
            .contains("spec.components[0].template.spec.containers[0].name"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("no container ap (it has: app)"),
        "{}",
        output.stderr
    );
}

/// WV-01: DELETE has no rule and no object; labels and deletion pass.
#[tokio::test(flavor = "multi_thread")]
async fn wv_01_a_plan_is_created_labelled_and_deleted_by_kubectl() {
    let scene = Scene::new("wv-01").await;
    let output = scene.create(&following("shop", &["cart"], "")).await;
    assert!(output.success(), "{}", output.stderr);
    scene
        .kubectl(&["label", "relplan", "shop", "team=shop"])
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=30s"])
        .await;
}

/// WV-02: an object with generateName has no name at admission.
#[tokio::test(flavor = "multi_thread")]
async fn wv_02_plans_with_generated_names_are_admitted_and_the_second_waits() {
    let scene = Scene::new("wv-02").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let manifest = following("shop", &["cart"], "").replace("name: shop", "generateName: shop-");
    let mut names = Vec::new();
    for _ in 0..2 {
        let output = scene.create(&manifest).await;
        assert!(output.success(), "{}", output.stderr);
        let name = output.stdout.trim().rsplit('/').next().unwrap().to_owned();
        if names.is_empty() {
            scene.ready(&name).await;
        }
        names.push(name);
    }
    assert_ne!(names[0], names[1]);
    scene.because(&names[1], belay::api::Reason::Conflict).await;
    // A refusal names it by its prefix.
    let broken = manifest.replace("kind: Deployment", "kind: Pod");
    let output = scene.create(&broken).await;
    assert!(
        !output.success() && output.stderr.contains("shop-"),
        "{}",
        output.stderr
    );
}

/// WV-08: a misspelt field is refused by strict clients, warned about, or
/// pruned; a misspelt strategy leaves the block empty and is refused always; a
/// typo inside the template is found by the dry run.
#[tokio::test(flavor = "multi_thread")]
async fn wv_08_a_misspelt_field_does_not_vanish_silently() {
    let scene = Scene::new("wv-08").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let misspelt = following("shop", &["cart"], "  progresDeadline: 5m\n");
    let strict = scene
        .try_apply(&misspelt, &["--validate=strict", "--dry-run=server"])
        .await;
    assert!(
        !strict.success() && strict.stderr.contains("progresDeadline"),
        "{}",
        strict.stderr
    );
    let warn = scene
        .try_apply(&misspelt, &["--validate=warn", "--dry-run=server"])
        .await;
    assert!(
        warn.success() && warn.stderr.contains("progresDeadline"),
        "{}",
        warn.stderr
    );
    let ignore = scene
        .try_apply(
            &misspelt,
            &["--validate=ignore", "--dry-run=server", "-o", "yaml"],
        )
        .await;
    assert!(ignore.success(), "{}", ignore.stderr);
    assert!(
        ignore.stdout.contains("progressDeadline: 10m"),
        "the answer shows the default: {}",
        ignore.stdout
    );

    let strategy = following("shop", &["cart"], "  strategy: {canry: {}}\n");
    for mode in ["--validate=strict", "--validate=warn", "--validate=ignore"] {
        let output = scene
            .try_apply(&strategy, &[mode, "--dry-run=server"])
            .await;
        assert!(!output.success(), "{mode}: {}", output.stdout);
        // Strict decoding comes first and speaks of the unknown field alone.
        let named = output.stderr.contains("spec.strategy") || output.stderr.contains("canry");
        assert!(named, "{mode}: {}", output.stderr);
    }
    let template = plan("shop", &[("cart", "shop/cart:2")], "").replace("image:", "imag:");
    let output = scene.try_apply(&template, &["--validate=ignore"]).await;
    assert!(!output.success(), "{}", output.stdout);
    assert!(
        output.stderr.contains("spec.components[0].template") && output.stderr.contains("imag"),
        "{}",
        output.stderr
    );
}

/// WR-01: a dry run leaves no trace: nothing is written, and the apply after it
/// gives what it would have given without.
#[tokio::test(flavor = "multi_thread")]
async fn wr_01_a_dry_run_has_no_side_effects() {
    let scene = Scene::new("wr-01").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let content = plan("shop", &[("cart", "shop/cart:1")], "");
    let output = scene
        .try_apply(&content, &["--dry-run=server", "-o", "json"])
        .await;
    assert!(output.success(), "{}", output.stderr);
    let promised: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(scene.writes().await.len(), 0);
    scene.apply(&content).await;
    scene.ready("shop").await;
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(stored.spec, promised["spec"]);
    assert_eq!(stored.annotation("belay.dev/release-generation"), Some("1"));

    let newer = plan("shop", &[("cart", "shop/cart:2")], "");
    for args in [
        vec!["--dry-run=server"],
        vec![
            "--dry-run=server",
            "--server-side",
            "--field-manager=ci",
            "--force-conflicts",
        ],
    ] {
        let output = scene.try_apply(&newer, &args).await;
        assert!(output.success(), "{}", output.stderr);
    }
    let output = scene
        .kubectl_raw(&[
            "set",
            "image",
            "deployment/cart",
            "app=shop/cart:9",
            "--dry-run=server",
        ])
        .await;
    assert!(output.success(), "{}", output.stderr);
    scene.assert_quiet("shop", 2).await;
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(stored.annotation("belay.dev/release-generation"), Some("1"));
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// WR-02: people see the words of a denial, never "invalid webhook response".
#[tokio::test(flavor = "multi_thread")]
async fn wr_02_kubectl_shows_the_words_of_a_denial() {
    let scene = Scene::new("wr-02").await;
    let output = scene
        .try_apply(&following("shop", &["cart", "cart"], ""), &[])
        .await;
    assert!(!output.success());
    assert!(
        output.stderr.contains("spec.components[1]"),
        "{}",
        output.stderr
    );
    for wrong in [
        "invalid webhook response",
        "Internal error",
        "failed calling webhook",
    ] {
        assert!(!output.stderr.contains(wrong), "{}", output.stderr);
    }
}

/// What holds a plan until its rollback is through cannot be taken off by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_may_drop_its_finalizer_only_when_nothing_is_unfinished() {
    let scene = Scene::new("admission-finalizer").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-unready")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| {
            crate::support::image_of(d) == "shop/cart:2-unready"
        })
        .await;
    scene
        .kubectl(&["delete", "relplan", "shop", "--wait=false"])
        .await;
    let strip = [
        "patch",
        "relplan",
        "shop",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ];
    let output = scene.kubectl_raw(&strip).await;
    // The rollback may be through by now, and then the plan is gone.
    if output.success() || output.stderr.contains("not found") {
        assert_eq!(
            scene.image("cart").await,
            "shop/cart:1",
            "not before everything is back"
        );
    } else {
        assert!(
            output.stderr.contains("deletionPolicy"),
            "{}",
            output.stderr
        );
    }
    scene.gone("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
}

/// Lists and maps that are replaced whole are told with both values, when the
/// plan takes them over and not again.
#[tokio::test(flavor = "multi_thread")]
async fn taking_over_an_atomic_list_or_map_is_a_warning_with_both_values() {
    let scene = Scene::new("admission-atomic").await;
    let from = |map: &str| {
        format!("valueFrom: {{configMapKeyRef: {{name: {map}, key: k, optional: true}}}}")
    };
    let live = crate::support::deployment("cart", "shop/cart:1", 1)
        .replace(
            "        env:\n",
            &format!(
                "        args: [-v, --port=80]
        resources: {{limits: {{cpu: 100m}}}}
        env:
        - {{name: FROM, {}}}\n",
                from("one")
            ),
        )
        .replace(
            "    spec:\n      containers",
            "    spec:\n      nodeSelector: {kubernetes.io/os: linux}\n      containers",
        );
    scene.apply(&live).await;
    let wants = |image: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template:
      spec:
        nodeSelector: {{kubernetes.io/os: linux}}
        containers:
        - name: app
          image: {image}
          args: [-q]
          resources: {{limits: {{cpu: 200m}}}}
          env: [{{name: FROM, {}}}, {{name: LOG, value: debug}}]
",
            from("two")
        )
    };
    let output = scene
        .try_apply(&wants("shop/cart:2"), &["--dry-run=server"])
        .await;
    assert!(output.success(), "{}", output.stderr);
    let warnings: Vec<&str> = output
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("Warning: "))
        .collect();
    let text = warnings.join(" ");
    for wanted in [
        r#"spec.containers[name="app"].args of deployment cart is replaced whole, not merged: ["-v","--port=80"] becomes ["-q"]"#,
        r#"spec.containers[name="app"].env[name="FROM"].valueFrom.configMapKeyRef of deployment cart is replaced whole"#,
        r#""name":"one""#,
        r#""name":"two""#,
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    for merged in ["limits", "LOG", "nodeSelector", "image"] {
        assert!(!text.contains(merged), "{merged} in {text}");
    }
    scene.apply(&wants("shop/cart:2")).await;
    scene.ready("shop").await;
    for again in ["shop/cart:2", "shop/cart:3"] {
        let output = scene.try_apply(&wants(again), &[]).await;
        assert!(
            output.success() && !output.stderr.contains("replaced whole"),
            "{}",
            output.stderr
        );
    }
}
