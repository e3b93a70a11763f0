//! What the person of the story applies. The tag of an image decides what
//! becomes of its pods: see `testenv/stages/pod.yaml`.

use belay_testenv::{GUEST_NODE, GUEST_TAINT};

/// Where the story takes place.
pub(crate) const NAMESPACE: &str = "belay-demo";

/// The Deployments that are there before Belay.
pub(crate) const COMPONENTS: [&str; 3] = ["cart", "web", "mail"];

/// A valid plan for a dry run.
pub(crate) const PROBE: &str = "\
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {name: probe}
spec:
  components:
  - workload: {kind: Deployment, name: probe}
";

/// The namespace and the Deployments, as people have them; on the simulated
/// node of a cluster whose other nodes are real.
pub(crate) fn deployments(simulated_node: bool) -> String {
    let place = if simulated_node {
        let (key, value) = GUEST_TAINT;
        format!(
            "      nodeSelector: {{kubernetes.io/hostname: {GUEST_NODE}}}
      tolerations: [{{key: {key}, value: '{value}'}}]
"
        )
    } else {
        String::new()
    };
    let mut text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    for name in COMPONENTS {
        text.push_str(&format!(
            "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: app
        image: shop/{name}:1
        env: [{{name: LOG, value: info}}]
{place}"
        ));
    }
    text
}

/// A plan with faults of many kinds.
pub(crate) const BAD: &str = "\
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {name: shop}
spec:
  components:
  - workload: {kind: Deployment, name: cart}
    after: [db]
  - name: cart
    workload: {kind: Deployment, name: web}
    template: {spec: {containers: [{image: 'shop/web:2'}]}}
  strategy: {rolling: {}, blueGreen: {}}
  progressDeadline: 10 minutes
  failFast: {restarts: 0}
  revisionHistoryLimit: 1000
";

/// The field path of each fault of [`BAD`], and no others.
pub(crate) const FAULTS: [&str; 9] = [
    "spec.components[0].template",
    "spec.components[0].after[0]",
    "spec.components[1].name",
    "spec.components[1].template.spec.containers[0].name",
    "spec.strategy",
    "spec.strategy.blueGreen",
    "spec.progressDeadline",
    "spec.failFast.restarts",
    "spec.revisionHistoryLimit",
];

/// A plan in which everything is right but the name of a container.
pub(crate) fn misspelt() -> String {
    plan("1", "1").replacen("name: app", "name: ap", 1)
}

/// The plan of the story: cart and web at these tags, mail as it is.
pub(crate) fn plan(cart: &str, web: &str) -> String {
    format!(
        "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: shop}}
spec:
  components:
  - workload: {{kind: Deployment, name: cart}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/cart:{cart}'}}]}}}}
  - workload: {{kind: Deployment, name: web}}
    template: {{spec: {{containers: [{{name: app, image: 'shop/web:{web}'}}]}}}}
  - workload: {{kind: Deployment, name: mail}} # no template: only followed
"
    )
}

/// The same, with a ConfigMap that cart reads and that is released with it.
pub(crate) fn plan_with_config(cart: &str, web: &str) -> String {
    let plain = format!(
        "    template: {{spec: {{containers: [{{name: app, image: 'shop/cart:{cart}'}}]}}}}\n"
    );
    let with = format!(
        "    configMaps: [cart-config]
    template:
      spec:
        containers:
        - name: app
          image: shop/cart:{cart}
          volumeMounts: [{{name: config, mountPath: /etc/cart}}]
        volumes: [{{name: config, configMap: {{name: cart-config}}}}]
"
    );
    plan(cart, web).replacen(&plain, &with, 1)
}

/// The ConfigMap that cart reads.
pub(crate) fn config(greeting: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: cart-config}}
data: {{greeting: {greeting}}}
"
    )
}

/// Lines of the answer to `kubectl apply -o yaml` that the person did not write.
pub(crate) const DEFAULTS: [&str; 10] = [
    "name: cart",
    "rolling: {}",
    "progressDeadline: 10m",
    "bakeTime: 0s",
    "restarts: 3",
    "onFailure: Rollback",
    "paused: false",
    "deletionPolicy: Rollback",
    "maxRetries: 8",
    "revisionHistoryLimit: 10",
];
