//! Manifests that most tests start from.

/// A Deployment of one container `app`.
pub fn deployment(name: &str, image: &str, replicas: u8) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: app
        image: {image}
        env:
        - {{name: LOG, value: info}}
"
    )
}

/// A plan that says an image for container `app` of each component.
pub fn plan(name: &str, components: &[(&str, &str)], rest: &str) -> String {
    let components: String = components
        .iter()
        .map(|(workload, image)| {
            format!(
                "  - workload: {{kind: Deployment, name: {workload}}}
    template: {{spec: {{containers: [{{name: app, image: \"{image}\"}}]}}}}
"
            )
        })
        .collect();
    format!(
        "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: {name}}}
spec:
  components:
{components}{rest}"
    )
}

/// A plan that follows its workloads.
pub fn following(name: &str, workloads: &[&str], rest: &str) -> String {
    let components: String = workloads
        .iter()
        .map(|workload| format!("  - workload: {{kind: Deployment, name: {workload}}}\n"))
        .collect();
    format!(
        "apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {{name: {name}}}
spec:
  components:
{components}{rest}"
    )
}

/// A plan whose components say each the one container that is given, as YAML.
pub fn plan_of(name: &str, components: &[(&str, &str)], rest: &str) -> String {
    components
        .iter()
        .fold(plan(name, components, rest), |manifest, (_, container)| {
            manifest.replace(
                &format!("{{name: app, image: \"{container}\"}}"),
                &format!("{{name: app, {container}}}"),
            )
        })
}
