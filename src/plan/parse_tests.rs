//! One test for each rule of the spec outside templates.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Plan, Target};
use crate::api::{DeletionPolicy, WorkloadKind};

pub(super) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Exactly these faults, in this order.
#[track_caller]
pub(super) fn rejects(spec: &str, expected: &[&str]) {
    let spec = yaml(spec);
    let violations = Plan::parse(&spec).expect_err("accepted");
    let found: Vec<_> = violations
        .as_slice()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected, "{spec}");
}

#[track_caller]
pub(super) fn accepts(spec: &str) -> Plan {
    Plan::parse(&yaml(spec)).unwrap_or_else(|violations| panic!("{violations}"))
}

/// A plan that is valid up to `rest`, which goes below `spec`.
pub(super) fn with(rest: &str) -> String {
    format!("components: [{{workload: {{kind: Deployment, name: cart}}}}]\n{rest}")
}

#[test]
fn a_plan_has_its_defaults() {
    let plan = accepts("components: [{workload: {kind: Deployment, name: cart}}]");
    let [component] = plan.components() else {
        panic!("{plan:?}");
    };
    assert_eq!(component.name, "cart");
    assert_eq!(
        component.target,
        Target {
            kind: WorkloadKind::Deployment,
            name: "cart".to_owned()
        }
    );
    assert_eq!(component.template, None);
    assert_eq!(component.template_digest, None);
    assert_eq!(plan.progress_deadline(), Duration::from_mins(10));
    assert_eq!(plan.bake_time(), Duration::ZERO);
    assert_eq!(plan.restarts(), 3);
    assert!(!plan.paused());
    assert_eq!(plan.deletion_policy(), DeletionPolicy::Rollback);
    assert_eq!(plan.max_retries(), 8);
    assert_eq!(plan.history_limit(), 10);
}

#[test]
fn a_plan_with_everything_that_is_carried_out() {
    let plan = accepts(
        "
        components:
        - {name: db, workload: {kind: Deployment, name: postgres}}
        - {workload: {kind: Deployment, name: cart}, after: [db, web], configMaps: []}
        - name: web
          workload: {kind: Deployment, name: frontend.v2}
          template: {spec: {containers: [{name: app, image: web:2}]}}
          after: [db]
        strategy: {rolling: {}}
        checks: []
        progressDeadline: 1h30m
        bakeTime: 168h
        failFast: {restarts: 1}
        onFailure: Rollback
        paused: true
        deletionPolicy: Keep
        retry: {maxRetries: 100}
        revisionHistoryLimit: 1",
    );
    let after: Vec<_> = plan.components().iter().map(|c| c.after.clone()).collect();
    assert_eq!(after, [vec![], vec![0, 2], vec![0]]);
    assert!(plan.components()[2].template_digest.is_some());
    assert_eq!(plan.progress_deadline(), Duration::from_mins(90));
    assert_eq!(plan.bake_time(), Duration::from_hours(168));
    assert_eq!(plan.restarts(), 1);
    assert!(plan.paused());
    assert_eq!(plan.deletion_policy(), DeletionPolicy::Keep);
    assert_eq!(plan.max_retries(), 100);
    assert_eq!(plan.history_limit(), 1);
}

#[test]
fn defaults_are_those_of_the_schema() {
    let crd = serde_json::to_value(crate::api::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut expected = json!({});
    for (name, field) in spec["properties"].as_object().unwrap() {
        if let Some(default) = field.get("default") {
            expected[name] = default.clone();
        }
    }
    let completed = super::completed(&json!({"spec": {}}), None, "jane");
    assert_eq!(completed["spec"], expected);
}

#[test]
fn unknown_fields_are_passed_over_and_null_is_absent() {
    accepts(
        "
        components:
        - {name: null, workload: {kind: Deployment, name: cart, uid: 5}, after: null, sidecar: {}}
        strategy: {rolling: {pace: slow}, canary: null}
        progressDeadline: null
        webhook: 7",
    );
}

#[test]
fn a_spec_must_be_an_object_with_components() {
    rejects("null", &["spec: Required value: says what is released"]);
    rejects(
        "[]",
        &["spec: Invalid value: must be an object, not a list"],
    );
    for spec in ["{}", "{components: []}"] {
        rejects(
            spec,
            &["spec.components: Required value: must name at least one workload"],
        );
    }
}

#[test]
fn every_value_of_the_wrong_type_is_named() {
    rejects(
        "
        components:
        - none
        - {name: 5, workload: [Deployment, cart], template: [], after: [1, {}, db]}
        - {name: db, workload: {kind: {Deployment: null}, name: db}}
        - {name: web, workload: {kind: StatefulSet, name: web}, after: db}
        strategy: {rolling: 5}
        progressDeadline: 10
        failFast: {restarts: '3'}
        paused: 'yes'
        deletionPolicy: Orphan
        retry: {maxRetries: 1.5}
        revisionHistoryLimit: 99999999999",
        &[
            r#"spec.components[0]: Invalid value: must be an object, not the string "none""#,
            "spec.components[1].name: Invalid value: must be a string, not the number 5",
            "spec.components[1].workload: Invalid value: must be an object, not a list",
            "spec.components[1].template: Invalid value: must be an object, not a list",
            "spec.components[1].after[0]: Invalid value: must be a string, not the number 1",
            "spec.components[1].after[1]: Invalid value: must be a string, not an object",
            "spec.components[2].workload.kind: Invalid value: must be a string, not an object",
            r#"spec.components[3].workload.kind: Unsupported value: "StatefulSet": supported values: "Deployment""#,
            r#"spec.components[3].after: Invalid value: must be a list, not the string "db""#,
            "spec.strategy.rolling: Invalid value: must be an object, not the number 5",
            "spec.progressDeadline: Invalid value: must be a string, not the number 10",
            r#"spec.failFast.restarts: Invalid value: must be a whole number, not the string "3""#,
            r#"spec.paused: Invalid value: must be true or false, not the string "yes""#,
            r#"spec.deletionPolicy: Unsupported value: "Orphan": supported values: "Rollback", "Keep""#,
            "spec.retry.maxRetries: Invalid value: must be a whole number, not the number 1.5",
            "spec.revisionHistoryLimit: Invalid value: 99999999999 is out of range",
        ],
    );
    rejects(
        "components: one",
        &[r#"spec.components: Invalid value: must be a list, not the string "one""#],
    );
}

#[test]
fn endless_faults_come_to_an_end() {
    let violations = Plan::parse(&json!({"components": vec![json!(1); 1000]})).unwrap_err();
    assert_eq!(violations.as_slice().len(), 65);
    assert!(
        violations.as_slice()[0]
            .to_string()
            .contains("too many values of the wrong type")
    );
}

#[test]
fn a_component_needs_a_workload() {
    rejects(
        "components: [{name: a}, {workload: {}}, {workload: {kind: Deployment, name: ''}}]",
        &[
            "spec.components[0].workload: Required value: names the workload, such as {kind: Deployment, name: cart}",
            "spec.components[1].workload.kind: Required value: must be Deployment",
            "spec.components[1].workload.name: Required value: names the workload",
            "spec.components[2].workload.name: Invalid value: must not be empty",
        ],
    );
}

#[test]
fn names_are_those_of_objects() {
    let rule = "must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit";
    rejects(
        &format!(
            "components:
            - {{name: Cart, workload: {{kind: Deployment, name: -cart}}}}
            - {{name: a_b, workload: {{kind: Deployment, name: cart.}}}}
            - {{name: {}, workload: {{kind: Deployment, name: a}}}}",
            "x".repeat(254)
        ),
        &[
            &format!("spec.components[0].name: Invalid value: \"Cart\" {rule}"),
            &format!("spec.components[0].workload.name: Invalid value: \"-cart\" {rule}"),
            &format!("spec.components[1].name: Invalid value: \"a_b\" {rule}"),
            &format!("spec.components[1].workload.name: Invalid value: \"cart.\" {rule}"),
            "spec.components[2].name: Invalid value: must have at most 253 characters",
        ],
    );
}

#[test]
fn names_and_workloads_are_unique() {
    rejects(
        "
        components:
        - {workload: {kind: Deployment, name: a}}
        - {workload: {kind: Deployment, name: a}}
        - {name: a, workload: {kind: Deployment, name: b}}
        - {name: c, workload: {kind: Deployment, name: b}}
        - {name: d, workload: {kind: Deployment, name: c}}
        - {workload: {kind: Deployment, name: d}}",
        &[
            "spec.components[1].workload: Duplicate value: deployment a is the workload of spec.components[0] already",
            r#"spec.components[2].name: Duplicate value: "a" is the name of spec.components[0] already"#,
            "spec.components[3].workload: Duplicate value: deployment b is the workload of spec.components[2] already",
            r#"spec.components[5].name: Duplicate value: "d" is the name of spec.components[4] already"#,
        ],
    );
}

#[test]
fn a_plan_has_at_most_32_components() {
    let components: Vec<_> = (0..33)
        .map(|n| json!({"workload": {"kind": "Deployment", "name": format!("w{n}")}}))
        .collect();
    rejects(
        &json!({"components": components}).to_string(),
        &["spec.components: Invalid value: must have at most 32 elements, has 33"],
    );
    accepts(&json!({"components": components[..32]}).to_string());
}

#[test]
fn after_names_other_components_once() {
    rejects(
        "
        components:
        - {workload: {kind: Deployment, name: a}, after: [a, nope, b, b, '']}
        - {workload: {kind: Deployment, name: b}}",
        &[
            r#"spec.components[0].after[0]: Invalid value: "a" cannot come after itself"#,
            r#"spec.components[0].after[1]: Not found: no component of this plan is named "nope" (there are: a, b)"#,
            r#"spec.components[0].after[3]: Duplicate value: "b" stands in this list already"#,
            "spec.components[0].after[4]: Invalid value: must not be empty",
        ],
    );
}

#[test]
fn cycles_are_named_once_each() {
    rejects(
        "
        components:
        - {workload: {kind: Deployment, name: x}, after: [c]}
        - {workload: {kind: Deployment, name: a}, after: [c]}
        - {workload: {kind: Deployment, name: b}, after: [a]}
        - {workload: {kind: Deployment, name: c}, after: [b]}
        - {workload: {kind: Deployment, name: d}, after: [e, a]}
        - {workload: {kind: Deployment, name: e}, after: [d]}",
        &[
            "spec.components[1].after: Invalid value: components wait for each other in a circle: a -> c -> b -> a",
            "spec.components[4].after: Invalid value: components wait for each other in a circle: d -> e -> d",
        ],
    );
}

#[test]
fn exactly_one_strategy() {
    rejects(
        &with("strategy: {}"),
        &[
            "spec.strategy: Required value: exactly one of rolling, canary and blueGreen must be set",
        ],
    );
    rejects(
        &with("strategy: {rolling: {}, blueGreen: {}}"),
        &[
            "spec.components[0].template: Required value: the strategy blueGreen needs a template in every component",
            "spec.strategy: Invalid value: exactly one of rolling, canary and blueGreen must be set, found rolling and blueGreen; to change from the default to blueGreen, set rolling: null beside it",
            "spec.strategy.blueGreen: Not available yet: this version releases by rolling only",
        ],
    );
}

#[test]
fn durations_have_a_form_and_bounds() {
    for (value, fault) in [
        ("0s", "must be longer than 0s"),
        ("168h1ms", "must be at most 168h (7 days), is 168h1ms"),
        (
            "''",
            r#""" must be a duration such as "30s", "10m" or "1h30m""#,
        ),
        (
            "1.5h",
            r#""1.5h" must be a duration such as "30s", "10m" or "1h30m""#,
        ),
    ] {
        rejects(
            &with(&format!("progressDeadline: {value}")),
            &[&format!("spec.progressDeadline: Invalid value: {fault}")],
        );
    }
    accepts(&with("bakeTime: 0s"));
    rejects(
        &with("bakeTime: 169h"),
        &["spec.bakeTime: Invalid value: must be at most 168h (7 days), is 169h"],
    );
}

#[test]
fn numbers_have_bounds() {
    for wrong in [0, 101, -1] {
        rejects(
            &with(&format!(
                "failFast: {{restarts: {wrong}}}\nretry: {{maxRetries: {wrong}}}\nrevisionHistoryLimit: {wrong}"
            )),
            &[
                &format!(
                    "spec.failFast.restarts: Invalid value: must be between 1 and 100, is {wrong}"
                ),
                &format!(
                    "spec.retry.maxRetries: Invalid value: must be between 1 and 100, is {wrong}"
                ),
                &format!(
                    "spec.revisionHistoryLimit: Invalid value: must be between 1 and 100, is {wrong}"
                ),
            ],
        );
    }
}

#[test]
fn what_a_template_does_not_name_cannot_be_tracked() {
    let component = |template: &str, names: &str| {
        format!(
            "components: [{{workload: {{kind: Deployment, name: cart}}, template: {template}, configMaps: {names}}}]"
        )
    };
    let template = "{spec: {containers: [{name: app, envFrom: [{configMapRef: {name: env}}]}]}}";
    rejects(
        &component(template, "[env, settings, 'Bad_Name']"),
        &[
            r#"spec.components[0].configMaps[1]: Invalid value: the template of this component does not name configmap "settings", so its contents could not be released and brought back with it; name it as the workload does, such as template.spec.volumes: [{name: config, configMap: {name: settings}}], or template.spec.containers: [{name: app, envFrom: [{configMapRef: {name: settings}}]}]"#,
            r#"spec.components[0].configMaps[2]: Invalid value: "Bad_Name" must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit"#,
        ],
    );
    assert!(Plan::parse(&yaml(&component(template, "[env]"))).is_ok());
    assert!(Plan::parse(&yaml(&component("null", "[settings]"))).is_ok());
}

#[test]
fn contents_cannot_go_back_in_two_ways() {
    let spec = |web: &str| {
        format!(
            "components:
            - workload: {{kind: Deployment, name: cart}}
              template: {{spec: {{containers: [{{name: app, envFrom: [{{configMapRef: {{name: env}}}}]}}]}}}}
              configMaps: [env]
            - workload: {{kind: Deployment, name: web}}
              configMaps: [{web}]"
        )
    };
    rejects(
        &spec("env"),
        &[
            r#"spec.components[0].configMaps[0]: Invalid value: configmap "env" is tracked by spec.components[1] too, which has no template, so its contents would go back in two ways; give both components a template, or each a ConfigMap of its own"#,
        ],
    );
    assert!(Plan::parse(&yaml(&spec("other"))).is_ok());
}
