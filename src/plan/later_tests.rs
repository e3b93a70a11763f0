//! Fields that a later version carries out: judged in full, and refused.

use super::{
    Plan,
    parse_tests::{rejects, yaml},
};

#[test]
fn what_is_not_carried_out_is_told_with_all_other_faults() {
    let spec = "
        components:
        - workload: {kind: Deployment, name: cart}
          template: {spec: {containers: [{name: app, image: a, envFrom: [{configMapRef: {name: settings}}]}]}}
          configMaps: [settings, settings]
          traffic: {service: '', httpRoutes: [cart, cart]}
        strategy: {canary: {steps: [{replicas: 10%, weight: 101}, {}, {replicas: 200%, pause: {}, checks: [smoke]}]}}
        checks:
        - {name: err, interval: 0s, failureLimit: -1, success: '', prometheus: {url: 'ftp://x', query: q}}
        - {name: err, success: result < 1}
        - {name: a.b, success: result < 1, prometheus: {url: 'https://me:secret@prometheus'}}
        onFailure: Freeze";
    rejects(
        spec,
        &[
            r#"spec.components[0].configMaps[1]: Duplicate value: "settings" stands in this list already"#,
            "spec.components[0].traffic: Not available yet: traffic is not steered by this version; leave traffic out",
            "spec.components[0].traffic.service: Invalid value: must not be empty",
            r#"spec.components[0].traffic.httpRoutes[1]: Duplicate value: "cart" stands in this list already"#,
            "spec.strategy.canary: Not available yet: this version releases by rolling only",
            "spec.strategy.canary.steps[0].weight: Invalid value: must be between 0 and 100, is 101",
            "spec.strategy.canary.steps[1]: Invalid value: must set replicas, weight, pause or checks",
            r#"spec.strategy.canary.steps[2].replicas: Invalid value: must be a number of pods or a share such as "10%", not the string "200%""#,
            "spec.strategy.canary.steps[2].pause: Invalid value: must have a duration, or approval: true",
            r#"spec.strategy.canary.steps[2].checks[0]: Not found: no check of this plan is named "smoke""#,
            "spec.checks: Not available yet: health gates are not judged by this version; leave checks out",
            "spec.checks[0].interval: Invalid value: must be longer than 0s",
            "spec.checks[0].failureLimit: Invalid value: must be between 0 and 1000, is -1",
            "spec.checks[0].success: Invalid value: must not be empty",
            r#"spec.checks[0].prometheus.url: Invalid value: "ftp://x" must be a URL such as "http://prometheus.monitoring:9090""#,
            r#"spec.checks[1].name: Duplicate value: "err" is the name of another check already"#,
            "spec.checks[1].prometheus: Required value: a check needs a source; there is prometheus",
            r#"spec.checks[2].name: Invalid value: "a.b" must not have dots"#,
            "spec.checks[2].prometheus.url: Forbidden: must not hold a user name or password",
            "spec.checks[2].prometheus.query: Required value: must be PromQL that yields one number",
        ],
    );
}

#[test]
fn a_plan_for_a_later_version_has_no_other_fault() {
    let violations = Plan::parse(&yaml(
        "
        components:
        - workload: {kind: Deployment, name: cart}
          template: {spec: {containers: [{name: app, image: a}]}}
          traffic: {service: cart, httpRoutes: [cart]}
        strategy:
          canary:
            steps:
            - {replicas: 10%, weight: 10, pause: {duration: 5m}}
            - {replicas: 3, pause: {approval: true}, checks: [errors]}
        checks:
        - name: errors
          interval: 30s
          failureLimit: 2
          success: result < 0.01
          prometheus: {url: 'http://prometheus.monitoring:9090', query: up}
        onFailure: Rollback",
    ))
    .unwrap_err();
    assert!(violations.only_not_available(), "{violations}");
    assert_eq!(violations.as_slice().len(), 3);
}
