//! The manifests in `deploy/` fit the program that they install.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use belay::{
    certs::publish::CONFIGURATION,
    config::{Cli, Command},
    webhook::{MUTATE, VALIDATE},
};
use clap::Parser as _;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
        WebhookClientConfig,
    },
    apps::v1::Deployment,
    core::v1::{Namespace, Service, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file);
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The one document of its kind in a file. Fields that the kind does not have
/// are found out.
fn one<T: DeserializeOwned + serde::Serialize>(file: &str, kind: &str) -> T {
    let all = documents(file);
    let of_kind: Vec<&Value> = all.iter().filter(|doc| doc["kind"] == kind).collect();
    assert_eq!(of_kind.len(), 1, "{kind} in {file}");
    let typed: T = serde_json::from_value(of_kind[0].clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), of_kind[0], "{file}");
    typed
}

fn only_plans_and_only_writes(rules: Option<Vec<RuleWithOperations>>) {
    let rules = rules.unwrap();
    assert_eq!(rules.len(), 1);
    let strings = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    assert_eq!(strings(&rules[0].api_groups), ["belay.dev"]);
    assert_eq!(strings(&rules[0].api_versions), ["v1alpha1"]);
    assert_eq!(strings(&rules[0].resources), ["releaseplans"]);
    assert_eq!(strings(&rules[0].operations), ["CREATE", "UPDATE"]);
}

fn reaches(config: &WebhookClientConfig, path: &str) {
    let service: Service = one("service.yaml", "Service");
    let reached = config.service.as_ref().unwrap();
    assert_eq!(Some(&reached.name), service.metadata.name.as_ref());
    assert_eq!(
        Some(&reached.namespace),
        service.metadata.namespace.as_ref()
    );
    assert_eq!(reached.path.as_deref(), Some(path));
    let ports = service.spec.unwrap().ports.unwrap();
    assert_eq!(reached.port, Some(ports[0].port));
}

/// WR-04: nothing that the operator or the cluster needs to get up again goes
/// through its webhooks.
#[test]
fn wr_04_the_webhooks_see_plans_and_nothing_else() {
    let mutating: MutatingWebhookConfiguration =
        one("webhooks.yaml", "MutatingWebhookConfiguration");
    assert_eq!(mutating.metadata.name.as_deref(), Some(CONFIGURATION));
    for webhook in mutating.webhooks.unwrap() {
        assert!(webhook.name.ends_with(&format!(".{CONFIGURATION}")));
        reaches(&webhook.client_config, MUTATE);
        only_plans_and_only_writes(webhook.rules);
        assert_eq!(webhook.side_effects, "None");
        assert_eq!(webhook.timeout_seconds, Some(5));
        assert_eq!(webhook.admission_review_versions, ["v1"]);
    }
    let validating: ValidatingWebhookConfiguration =
        one("webhooks.yaml", "ValidatingWebhookConfiguration");
    assert_eq!(validating.metadata.name.as_deref(), Some(CONFIGURATION));
    for webhook in validating.webhooks.unwrap() {
        assert!(webhook.name.ends_with(&format!(".{CONFIGURATION}")));
        reaches(&webhook.client_config, VALIDATE);
        only_plans_and_only_writes(webhook.rules);
        assert_eq!(webhook.side_effects, "None");
        assert_eq!(webhook.timeout_seconds, Some(5));
        assert_eq!(webhook.admission_review_versions, ["v1"]);
    }
}

fn grants(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut grants = BTreeSet::new();
    for rule in rules {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                grants.insert(format!("{verb} {resource}"));
            }
        }
    }
    grants
}

#[test]
fn the_operator_has_no_right_that_hands_over_the_cluster() {
    let cluster: ClusterRole = one("rbac.yaml", "ClusterRole");
    let rules = cluster.rules.unwrap();
    let granted = grants(&rules);
    for grant in &granted {
        let (verb, resource) = grant.split_once(' ').unwrap();
        assert!(!grant.contains('*'), "{grant}");
        assert!(
            !resource.contains("secrets") && !resource.contains("role"),
            "{grant}"
        );
        assert!(
            !["escalate", "bind", "impersonate"].contains(&verb),
            "{grant}"
        );
        let makes = verb == "create" || verb == "delete";
        assert!(
            !makes || ["controllerrevisions", "configmaps", "events"].contains(&resource),
            "{grant}"
        );
    }
    for rule in rules {
        let webhooks = rule
            .api_groups
            .iter()
            .flatten()
            .any(|g| g.starts_with("admission"));
        assert!(!webhooks || rule.resource_names == Some(vec![CONFIGURATION.to_owned()]));
    }
}

#[test]
fn the_operator_may_use_the_secret_that_it_keeps_its_certificate_in() {
    let Command::Run(args) =
        Cli::parse_from(["belay", "run", "--pod-namespace", "belay-system"]).command
    else {
        panic!("run is run");
    };
    let (namespace, secret) = args.reach().unwrap().secret.unwrap();
    let role: Role = one("rbac.yaml", "Role");
    assert_eq!(role.metadata.namespace, Some(namespace));
    let rules = role.rules.unwrap();
    assert_eq!(rules[0].resource_names, Some(vec![secret]));
    let granted = grants(&rules);
    let wanted = ["create secrets", "get secrets", "update secrets"];
    assert_eq!(granted, wanted.map(str::to_owned).into());
}

#[test]
fn the_rights_go_to_the_account_that_the_operator_runs_under() {
    let account: ServiceAccount = one("serviceaccount.yaml", "ServiceAccount");
    let (name, namespace) = (account.metadata.name.unwrap(), account.metadata.namespace);
    let in_cluster: ClusterRoleBinding = one("rbac.yaml", "ClusterRoleBinding");
    let in_namespace: RoleBinding = one("rbac.yaml", "RoleBinding");
    for subjects in [in_cluster.subjects.unwrap(), in_namespace.subjects.unwrap()] {
        assert_eq!(subjects.len(), 1);
        assert_eq!(
            (&subjects[0].name, &subjects[0].namespace),
            (&name, &namespace)
        );
    }
    let deployment: Deployment = one("deployment.yaml", "Deployment");
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name, Some(name));
}

#[test]
fn the_pod_meets_the_restricted_standard_that_its_namespace_enforces() {
    let namespace: Namespace = one("namespace.yaml", "Namespace");
    let labels = namespace.metadata.labels.unwrap();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    let deployment: Deployment = one("deployment.yaml", "Deployment");
    let spec = deployment.spec.unwrap();
    assert_eq!(
        (spec.replicas, spec.strategy.unwrap().type_.as_deref()),
        (Some(1), Some("Recreate"))
    );
    let pod = spec.template.spec.unwrap();
    let security = pod.security_context.unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
    for container in pod.containers {
        let security = container.security_context.unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(
            security.capabilities.unwrap().drop,
            Some(vec!["ALL".to_owned()])
        );
        assert!(container.resources.unwrap().limits.is_some());
        Cli::parse_from(
            ["belay".to_owned()]
                .into_iter()
                .chain(container.args.unwrap()),
        );
    }
}
