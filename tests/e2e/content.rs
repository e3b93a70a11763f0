//! Odd content and odd names: what the API server and YAML allow, and few people
//! write.

use belay::api::{Reason, ReleaseKind};

use crate::support::{Scene, deployment, following, holds, plan, why};

/// A plan for one Deployment with a template as it is written.
fn raw(name: &str, template: &str) -> String {
    plan(name, &[(name, "x")], "").replace(
        "{spec: {containers: [{name: app, image: \"x\"}]}}",
        template,
    )
}

/// Templates that set nothing, however they are written, are refused, since a
/// plan that is to guard only leaves the template out.
#[tokio::test(flavor = "multi_thread")]
async fn templates_that_set_nothing_are_refused_at_admission() {
    let scene = Scene::new("content-nothing").await;
    scene.deployment("cart", "shop/x:1", 1).await;
    for template in [
        "{}",
        "{spec: {}}",
        "{metadata: {annotations: {}}}",
        "{spec: {containers: [{name: app}]}}",
    ] {
        let out = scene.try_apply(&raw("cart", template), &[]).await;
        assert!(
            !out.success()
                && out
                    .stderr
                    .contains("spec.components[0].template: Invalid value: changes nothing"),
            "{template}: {}",
            out.stderr
        );
    }
}

/// Nulls, empty lists and maps, quantities written otherwise, fields that the
/// API server fills in: none of them is news at the next look, nor when the
/// surroundings change.
#[tokio::test(flavor = "multi_thread")]
async fn odd_templates_come_to_rest() {
    let scene = Scene::new("content-odd").await;
    let many: Vec<String> = (0..300)
        .map(|n| format!("{{name: V{n}, value: \"{n}\"}}"))
        .collect();
    let many = format!(
        "{{spec: {{containers: [{{name: app, env: [{}]}}]}}}}",
        many.join(", ")
    );
    let cases = [
        ("args", "{spec: {containers: [{name: app, args: []}]}}"),
        ("no-env", "{spec: {containers: [{name: app, env: []}]}}"),
        (
            "nulls",
            "{spec: {nodeSelector: null, containers: [{name: app, image: \"shop/x:1\", env: null}]}}",
        ),
        (
            "selector",
            "{spec: {nodeSelector: {}, tolerations: [], containers: [{name: app, resources: {}, securityContext: {}}]}}",
        ),
        (
            "quantity",
            "{spec: {containers: [{name: app, resources: {limits: {cpu: 1000m, memory: 0.5Gi}}}]}}",
        ),
        ("many", many.as_str()),
        (
            "volume",
            "{spec: {containers: [{name: app}], volumes: [{name: tmp, emptyDir: {}}]}}",
        ),
        (
            "unicode",
            "{metadata: {annotations: {\"a/b\": \"ü ☃ 漢 \\\"\"}}}",
        ),
        (
            "port",
            "{spec: {containers: [{name: app, ports: [{containerPort: 80}], livenessProbe: {tcpSocket: {port: 80}}}]}}",
        ),
    ];
    for (name, template) in cases {
        scene.apply(&deployment(name, "shop/x:1", 1)).await;
        scene.apply(&raw(name, template)).await;
    }
    for (name, _) in cases {
        scene.ready(name).await;
    }
    scene.assert_calm().await;
    // A look for other reasons writes nothing.
    let before = scene.writes_to_deployments().await.len();
    for (name, _) in cases {
        let target = format!("deployment/{name}");
        scene.nudge(name).await;
        scene
            .kubectl(&["set", "env", &target, "FROM=outside"])
            .await;
    }
    for (name, _) in cases {
        scene
            .plan_until(name, "guarded the surroundings", |s| {
                holds(s, "Ready", "True")
                    && s.history
                        .last()
                        .is_some_and(|r| r.kind == ReleaseKind::Surroundings)
            })
            .await;
    }
    scene.assert_no_deployment_written_since(before).await;
    scene.assert_calm().await;
}

/// What does not fit into a revision is said so, also for what is only followed.
#[tokio::test(flavor = "multi_thread")]
async fn followed_templates_over_the_limit_are_told() {
    let scene = Scene::new("content-huge").await;
    for name in ["cart", "web"] {
        let value = "x".repeat(100_000);
        let env: Vec<String> = (0..8)
            .map(|n| format!("        - {{name: V{n}, value: {value}}}\n"))
            .collect();
        let manifest = deployment(name, "shop/x:1", 1) + &env.concat();
        let out = scene.create(&manifest).await;
        assert!(out.success(), "{}", out.stderr);
        scene.available(name).await;
    }
    scene.apply(&following("shop", &["cart", "web"], "")).await;
    let end = scene
        .plan_until("shop", "is stalled", |s| holds(s, "Stalled", "True"))
        .await;
    assert!(
        why(&end).starts_with("TemplateRefused") && why(&end).contains("1048576"),
        "{}",
        why(&end)
    );
    scene.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_length_work() {
    let scene = Scene::new("content-names").await;
    let workload = format!("{}.{}", "d".repeat(100), "e".repeat(130));
    let manifest = deployment("cart", "shop/cart:1", 1).replace(
        "metadata: {name: cart}",
        &format!("metadata: {{name: {workload}}}"),
    );
    scene.apply(&manifest).await;
    scene.available(&workload).await;
    // A dash where names are cut.
    let mut name: Vec<char> = "a".repeat(253).chars().collect();
    for at in [44, 62, 199] {
        name[at] = '-';
    }
    let name: String = name.into_iter().collect();
    let image = "shop/cart:2";
    scene.apply(&plan(&name, &[(&workload, image)], "")).await;
    scene.ready(&name).await;
    assert_eq!(scene.image(&workload).await, image);
    scene
        .apply(&plan(&name, &[(&workload, "shop/cart:3-pullerror")], ""))
        .await;
    scene.because(&name, Reason::RolledBack).await;
    let reasons = "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}";
    let events = scene.kubectl(&["get", "events", "-o", reasons]).await;
    assert!(events.contains("RollbackStarted"), "{events}");
    scene.delete_plans(&[&name]).await;
    assert_eq!(scene.revisions().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dots_generated_names_and_other_appliers() {
    let scene = Scene::new("content-dots").await;
    for name in ["a", "b", "c"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    let dotted = plan("x.y.z", &[("a", "shop/x:2")], "").replace(
        "{name: x.y.z}",
        "{name: x.y.z, annotations: {note: \"ü ☃ 漢\"}}",
    );
    scene.apply(&dotted).await;
    scene.ready("x.y.z").await;
    let generated =
        plan("g", &[("b", "shop/x:2")], "").replace("{name: g}", "{generateName: gen-}");
    let out = scene.create(&generated).await;
    assert!(out.success(), "{}", out.stderr);
    let made = out.stdout.trim().rsplit('/').next().unwrap().to_owned();
    scene.ready(&made).await;
    for (image, manager) in [("shop/x:1", "one"), ("shop/x:2", "two")] {
        let manager = format!("--field-manager={manager}");
        let args = ["--server-side", "--force-conflicts", &manager];
        let out = scene
            .try_apply(&plan("ssa", &[("c", image)], ""), &args)
            .await;
        assert!(out.success(), "{}", out.stderr);
        scene.ready("ssa").await;
        assert_eq!(scene.image("c").await, image);
    }
    scene.assert_calm().await;
}
