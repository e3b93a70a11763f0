//! Hostile cases: verdicts, odd templates, names; and what all hostile cases
//! look at.

use std::time::Duration;

use belay::api::{Reason, ReleasePlanStatus, ReleaseResult};
use belay_testenv::AuditFilter;

use crate::support::{SOON, Scene, deployment, following, holds, plan};

/// Requests of the operator in the namespace within a span of rest.
pub async fn requests(scene: &Scene, span: Duration) -> usize {
    let filter = || {
        AuditFilter::new()
            .service_account("belay-system", "belay")
            .namespace(&scene.namespace)
    };
    let before = scene.audited(filter()).await.len();
    tokio::time::sleep(span).await;
    scene.audited(filter()).await.len() - before
}

/// No hot loop, and nothing in the log that should not be there.
pub async fn sane(scene: &Scene) {
    let count = requests(scene, Duration::from_secs(4)).await;
    assert!(count < 30, "{count} requests in 4 s of rest");
    let log = std::fs::read_to_string(scene.cluster.logs().join("operator.log")).unwrap();
    let bad: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(&scene.namespace))
        .filter(|line| line.contains("\"ERROR\"") || line.contains("panic"))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

pub fn why(status: &ReleasePlanStatus) -> String {
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    ready.map_or_else(String::new, |c| format!("{}: {}", c.reason, c.message))
}

/// The revisions in the namespace that are not needed by the status.
pub async fn revisions(scene: &Scene) -> usize {
    let list = scene
        .kubectl(&["get", "controllerrevisions", "-o", "name"])
        .await;
    list.lines().count()
}

pub async fn policy(scene: &Scene, name: &str, expression: &str) {
    let namespace = &scene.namespace;
    scene
        .apply(&format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules:
    - {{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}}
  validations:
  - expression: \"{expression}\"
    message: the policy of the house
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
        ))
        .await;
}

/// Waits until the API server enforces a policy.
pub async fn enforced(scene: &Scene, probe: &[&str]) {
    for _ in 0..200 {
        if !scene.kubectl_raw(probe).await.success() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the policy is not enforced");
}

/// Waits until a plan did not change for some seconds, and tells how it is.
pub async fn rested(scene: &Scene, name: &str) -> ReleasePlanStatus {
    let deadline = tokio::time::Instant::now() + SOON;
    let mut last = scene.plans().get(name).await.unwrap();
    let mut since = tokio::time::Instant::now();
    while since.elapsed() < Duration::from_secs(6) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{name} does not come to rest: {:#?}",
            last.status.unwrap().history
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = scene.plans().get(name).await.unwrap();
        if now.metadata.resource_version != last.metadata.resource_version {
            since = tokio::time::Instant::now();
        }
        last = now;
    }
    last.status.unwrap()
}

/// A pod that restarted in the past, of a component that the release does not
/// touch, says nothing about the release.
#[tokio::test(flavor = "multi_thread")]
async fn old_restarts_of_an_untouched_component_do_not_fail_a_release() {
    let scene = Scene::new("break-restarts").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:1")],
            "",
        ))
        .await;
    scene.ready("shop").await;
    let pod = scene
        .kubectl(&["get", "pods", "-l", "app=cart", "-o", "name"])
        .await;
    let patch = r#"[{"op":"replace","path":"/status/containerStatuses/0/restartCount","value":7}]"#;
    scene
        .kubectl(&[
            "patch",
            pod.trim(),
            "--subresource=status",
            "--type=json",
            "-p",
            patch,
        ])
        .await;
    scene
        .apply(&plan(
            "shop",
            &[("cart", "shop/cart:1"), ("web", "shop/web:2")],
            "",
        ))
        .await;
    let end = scene
        .plan_until("shop", "ends", |s| {
            s.release.is_none() && !s.history.is_empty()
        })
        .await;
    assert_eq!(
        end.history.last().unwrap().result,
        ReleaseResult::Succeeded,
        "{}",
        why(&end)
    );
    assert_eq!(scene.image("web").await, "shop/web:2");
}

/// A ReplicaFailure that the old ReplicaSet left behind says nothing about the
/// new template.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_failure_from_before_the_release_does_not_fail_it() {
    let scene = Scene::new("break-stale-rf").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&["create", "quota", "tight", "--hard=pods=2"])
        .await;
    // Let the quota be counted before it is hit.
    scene
        .kubectl(&[
            "wait",
            "quota/tight",
            "--for=jsonpath={.status.used.pods}=2",
            "--timeout=60s",
        ])
        .await;
    scene
        .kubectl(&["scale", "deployment/cart", "--replicas=3"])
        .await;
    scene
        .kubectl(&[
            "wait",
            "deployment/cart",
            "--for=condition=ReplicaFailure",
            "--timeout=60s",
        ])
        .await;
    // The controller of ReplicaSets backs off meanwhile.
    tokio::time::sleep(Duration::from_secs(12)).await;
    scene.kubectl(&["delete", "quota", "tight"]).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    let end = scene
        .plan_until("shop", "ends", |s| {
            s.release.is_none() && !s.history.is_empty()
        })
        .await;
    assert_eq!(
        end.history.last().unwrap().result,
        ReleaseResult::Succeeded,
        "{}",
        why(&end)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_ends_a_release_and_the_retry_after_it_was_raised_succeeds() {
    let scene = Scene::new("break-quota").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&["create", "quota", "tight", "--hard=pods=2"])
        .await;
    scene
        .kubectl(&[
            "wait",
            "quota/tight",
            "--for=jsonpath={.status.used.pods}=2",
            "--timeout=60s",
        ])
        .await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    scene.kubectl(&["delete", "quota", "tight"]).await;
    let retry = format!("belay.dev/retry={}", end.refused.last().unwrap().revision);
    scene
        .kubectl(&["annotate", "relplan", "shop", &retry])
        .await;
    scene.ready("shop").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_pod_security_refuses_end_a_release() {
    let scene = Scene::new("break-psa").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .kubectl(&[
            "label",
            "ns",
            &scene.namespace,
            "pod-security.kubernetes.io/enforce=restricted",
        ])
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    let end = scene.because("shop", Reason::RolledBack).await;
    assert_eq!(
        end.refused.last().unwrap().cause,
        belay::api::Cause::ReplicaFailure
    );
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_templates_come_to_rest() {
    let scene = Scene::new("break-odd").await;
    let many: Vec<String> = (0..300)
        .map(|n| format!("{{name: V{n}, value: \"{n}\"}}"))
        .collect();
    let cases = [
        ("empty", "{}".to_owned()),
        ("empty-spec", "{spec: {}}".to_owned()),
        ("empty-meta", "{metadata: {annotations: {}}}".to_owned()),
        ("name-only", "{spec: {containers: [{name: app}]}}".to_owned()),
        ("args", "{spec: {containers: [{name: app, args: []}]}}".to_owned()),
        ("no-env", "{spec: {containers: [{name: app, env: []}]}}".to_owned()),
        ("nulls", "{spec: {nodeSelector: null, containers: [{name: app, image: \"shop/x:1\", env: null}]}}".to_owned()),
        ("selector", "{spec: {nodeSelector: {}, tolerations: [], containers: [{name: app, resources: {}, securityContext: {}}]}}".to_owned()),
        ("quantity", "{spec: {containers: [{name: app, resources: {limits: {cpu: 1000m, memory: 0.5Gi}}}]}}".to_owned()),
        ("many", format!("{{spec: {{containers: [{{name: app, env: [{}]}}]}}}}", many.join(", "))),
        ("volume", "{spec: {containers: [{name: app}], volumes: [{name: tmp, emptyDir: {}}]}}".to_owned()),
        ("unicode", "{metadata: {annotations: {\"a/b\": \"ü ☃ 漢 \\\"\"}}}".to_owned()),
        ("port", "{spec: {containers: [{name: app, ports: [{containerPort: 80}], livenessProbe: {tcpSocket: {port: 80}}}]}}".to_owned()),
    ];
    let mut faults = Vec::new();
    let mut admitted = Vec::new();
    for (name, template) in &cases {
        scene.apply(&deployment(name, "shop/x:1", 1)).await;
        let manifest = format!(
            "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: {name}}}
spec:
  components:
  - workload: {{kind: Deployment, name: {name}}}
    template: {template}
"
        );
        let out = scene.try_apply(&manifest, &[]).await;
        if out.success() {
            admitted.push(*name);
        } else {
            eprintln!("{name} is not admitted: {}", out.stderr);
        }
    }
    for name in &admitted {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let plan = scene.plans().get(name).await.unwrap();
            let status = plan.status.unwrap_or_default();
            if holds(&status, "Ready", "True") {
                break;
            }
            if tokio::time::Instant::now() > deadline {
                faults.push(format!("{name}: {}", why(&status)));
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    sane(&scene).await;
    // A look for other reasons writes nothing.
    let before = scene.writes_to_deployments().await.len();
    for name in &admitted {
        scene
            .kubectl(&["annotate", "relplan", name, "example.com/x=y"])
            .await;
        scene
            .kubectl(&["set", "env", &format!("deployment/{name}"), "FROM=outside"])
            .await;
    }
    for name in &admitted {
        scene
            .plan_until(name, "guarded the surroundings", |s| {
                holds(s, "Ready", "True")
                    && s.history
                        .last()
                        .is_some_and(|r| r.kind == belay::api::ReleaseKind::Surroundings)
            })
            .await;
    }
    let after = scene.writes_to_deployments().await;
    assert_eq!(after.len(), before, "{:#?}", &after[before..]);
    sane(&scene).await;
}

/// An empty template still guards what surrounds it, and lets go of it all.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_with_an_empty_template_goes_back_too() {
    let scene = Scene::new("break-empty-back").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let before = scene.template("cart").await;
    let manifest = plan("shop", &[("cart", "x")], "")
        .replace("{spec: {containers: [{name: app, image: \"x\"}]}}", "{}");
    let out = scene.try_apply(&manifest, &[]).await;
    if !out.success() {
        eprintln!("not admitted: {}", out.stderr);
        return;
    }
    scene.ready("shop").await;
    scene
        .kubectl(&[
            "set",
            "image",
            "deployment/cart",
            "app=shop/cart:2-pullerror",
        ])
        .await;
    scene.because("shop", Reason::RolledBack).await;
    assert_eq!(scene.template("cart").await, before);
    sane(&scene).await;
}

/// What does not fit into a revision is said so, also for what is only followed.
#[tokio::test(flavor = "multi_thread")]
async fn followed_templates_over_the_limit_are_told() {
    let scene = Scene::new("break-huge").await;
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
    sane(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_length_work() {
    let scene = Scene::new("break-names").await;
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
    let events = scene
        .kubectl(&[
            "get",
            "events",
            "-o",
            "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}",
        ])
        .await;
    assert!(events.contains("RollbackStarted"), "{events}");
    scene
        .kubectl(&["delete", "relplan", &name, "--timeout=60s"])
        .await;
    assert_eq!(revisions(&scene).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dots_generated_names_and_other_appliers() {
    let scene = Scene::new("break-dots").await;
    for name in ["a", "b", "c"] {
        scene.deployment(name, "shop/x:1", 1).await;
    }
    scene
        .apply(&plan("x.y.z", &[("a", "shop/x:2")], "").replace(
            "{name: x.y.z}",
            "{name: x.y.z, annotations: {note: \"ü ☃ 漢\"}}",
        ))
        .await;
    scene.ready("x.y.z").await;
    let out = scene
        .create(&plan("g", &[("b", "shop/x:2")], "").replace("{name: g}", "{generateName: gen-}"))
        .await;
    assert!(out.success(), "{}", out.stderr);
    let made = out.stdout.trim().rsplit('/').next().unwrap().to_owned();
    scene.ready(&made).await;
    let manifest = plan("ssa", &[("c", "shop/x:1")], "");
    let out = scene
        .try_apply(&manifest, &["--server-side", "--field-manager=one"])
        .await;
    assert!(out.success(), "{}", out.stderr);
    scene.ready("ssa").await;
    let out = scene
        .try_apply(
            &manifest.replace("x:1", "x:2"),
            &["--server-side", "--field-manager=two", "--force-conflicts"],
        )
        .await;
    assert!(out.success(), "{}", out.stderr);
    scene.ready("ssa").await;
    assert_eq!(scene.image("c").await, "shop/x:2");
    sane(&scene).await;
}
