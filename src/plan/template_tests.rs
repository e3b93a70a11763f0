//! One test for each rule of partial templates.

use super::parse_tests::{accepts, rejects};

/// A plan whose only component has this template; the faults' paths begin
/// below it.
#[track_caller]
fn rejects_template(template: &str, expected: &[&str]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|fault| format!("spec.components[0].template{fault}"))
        .collect();
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    rejects(&plan(template), &expected);
}

fn plan(template: &str) -> String {
    format!("components: [{{workload: {{kind: Deployment, name: cart}}, template: {template}}}]")
}

#[test]
fn a_template_may_set_any_field_of_a_pod() {
    for template in [
        "{spec: {containers: [{name: app, image: a}, {name: proxy}]}}",
        "{spec: {initContainers: [{name: app, command: []}]}}",
        "{spec: {volumes: []}}",
        "{spec: {nodeSelector: {}, someday: 5}}",
        "{metadata: {labels: {tier: front, belay.development: 'yes'}}}",
        "{metadata: {annotations: {note: ''}}, spec: {containers: []}}",
    ] {
        accepts(&plan(template));
    }
}

#[test]
fn a_template_changes_something() {
    for template in [
        "{}",
        "{spec: {}}",
        "{metadata: {}, spec: null}",
        "{metadata: {labels: {}, annotations: null}}",
        "{spec: {containers: [], initContainers: []}}",
        "{spec: {containers: [{name: app}, {name: proxy, image: null}]}}",
    ] {
        rejects_template(
            template,
            &[
                ": Invalid value: changes nothing; set a field, such as spec.containers[].image, or leave the template out to follow the workload",
            ],
        );
    }
}

#[test]
fn a_template_has_the_skeleton_of_a_pod_template() {
    rejects_template(
        "none",
        &[r#": Invalid value: must be an object, not the string "none""#],
    );
    rejects_template(
        "{metadata: [], spec: true}",
        &[
            ".metadata: Invalid value: must be an object, not a list",
            ".spec: Invalid value: must be an object, not true",
        ],
    );
    rejects_template(
        "{metadata: {name: x, labels: {a: 1}, annotations: [b]}, spec: {containers: {}, initContainers: [x]}}",
        &[
            ".metadata.name: Forbidden: only labels and annotations can be set on the pods",
            ".metadata.labels[a]: Invalid value: must be a string, not the number 1",
            ".metadata.annotations: Invalid value: must be an object, not a list",
            ".spec.containers: Invalid value: must be a list, not an object",
            r#".spec.initContainers[0]: Invalid value: must be an object, not the string "x""#,
        ],
    );
}

#[test]
fn containers_have_unique_names() {
    rejects_template(
        &format!(
            "{{spec: {{containers: [{{image: a}}, {{name: ''}}, {{name: 5}}, {{name: {}}}, {{name: a}}, {{name: a}}], initContainers: [{{name: a}}]}}}}",
            "x".repeat(64)
        ),
        &[
            ".spec.containers[0].name: Required value: names the container of the workload to change",
            ".spec.containers[1].name: Invalid value: must not be empty",
            ".spec.containers[2].name: Invalid value: must be a string, not the number 5",
            ".spec.containers[3].name: Invalid value: must have at most 63 characters",
            r#".spec.containers[5].name: Duplicate value: "a" stands in this list already"#,
        ],
    );
}

#[test]
fn keys_of_belay_are_kept_to_itself() {
    rejects_template(
        "{metadata: {labels: {belay.dev/plan: x}, annotations: {belay.dev/config-digest: y}}}",
        &[
            ".metadata.labels[belay.dev/plan]: Forbidden: belay.dev/ is kept for Belay itself",
            ".metadata.annotations[belay.dev/config-digest]: Forbidden: belay.dev/ is kept for Belay itself",
        ],
    );
}

#[test]
fn lists_and_maps_have_bounds() {
    let containers: Vec<_> = (0..65)
        .map(|n| format!("{{name: c{n}, image: a}}"))
        .collect();
    rejects_template(
        &format!("{{spec: {{containers: [{}]}}}}", containers.join(", ")),
        &[".spec.containers: Invalid value: must have at most 64 elements"],
    );
    let labels: Vec<_> = (0..257).map(|n| format!("l{n}: a")).collect();
    rejects_template(
        &format!("{{metadata: {{labels: {{{}}}}}}}", labels.join(", ")),
        &[".metadata.labels: Invalid value: must have at most 256 entries"],
    );
}
