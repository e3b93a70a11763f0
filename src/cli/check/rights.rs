//! The rights that are needed: those of the operator as `deploy/rbac.yaml`
//! grants them, and those of people.

use std::fmt;

use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    rbac::v1::{ClusterRole, PolicyRule, Role},
};
use serde_json::Value;

/// What the operator is given when it is installed.
const GRANTED: &str = include_str!("../../../deploy/rbac.yaml");

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    /// Empty for all objects.
    pub(super) name: String,
    /// Empty for all namespaces.
    pub(super) namespace: String,
}

impl Right {
    /// A verb on all objects of a resource, in a namespace or everywhere.
    pub(super) fn on(verb: &str, group: &str, resource: &str, namespace: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: String::new(),
            namespace: namespace.to_owned(),
        }
    }

    /// As reviews ask for it.
    pub(super) fn attributes(&self) -> ResourceAttributes {
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        ResourceAttributes {
            verb: some(&self.verb),
            group: some(&self.group),
            resource: some(&self.resource),
            subresource: some(&self.subresource),
            name: some(&self.name),
            namespace: some(&self.namespace),
            ..ResourceAttributes::default()
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, Objects(self))
    }
}

/// What a right is on.
struct Objects<'a>(&'a Right);

impl fmt::Display for Objects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(right) = self;
        f.write_str(&right.resource)?;
        if !right.subresource.is_empty() {
            write!(f, "/{}", right.subresource)?;
        }
        if !right.group.is_empty() {
            write!(f, ".{}", right.group)?;
        }
        if !right.name.is_empty() {
            write!(f, " {}", right.name)?;
        }
        if !right.namespace.is_empty() {
            write!(f, " in {}", right.namespace)?;
        }
        Ok(())
    }
}

/// Rights as messages tell them: verbs on the same objects together, and not all
/// of them where there are many.
pub(super) fn told(rights: &[Right]) -> String {
    const NAMED: usize = 6;
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for right in rights {
        let objects = Objects(right).to_string();
        match groups.iter_mut().find(|(known, _)| *known == objects) {
            Some((_, verbs)) => verbs.push(&right.verb),
            None => groups.push((objects, vec![&right.verb])),
        }
    }
    let more: usize = groups
        .iter()
        .skip(NAMED)
        .map(|(_, verbs)| verbs.len())
        .sum();
    let named = groups.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|(objects, verbs)| format!("{} {objects}", verbs.join("/")))
        .collect();
    let mut text = named.join(", ");
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text
}

/// The rights of the operator; `namespace` is its own.
pub(super) fn of_operator(namespace: &str) -> Vec<Right> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(GRANTED).unwrap_or_default();
    let mut rights = Vec::new();
    for document in documents {
        match document.get("kind").and_then(Value::as_str) {
            Some("ClusterRole") => {
                let role = serde_json::from_value::<ClusterRole>(document);
                add(role.ok().and_then(|role| role.rules), "", &mut rights);
            }
            Some("Role") => {
                let role = serde_json::from_value::<Role>(document);
                add(
                    role.ok().and_then(|role| role.rules),
                    namespace,
                    &mut rights,
                );
            }
            _ => {}
        }
    }
    rights
}

fn add(rules: Option<Vec<PolicyRule>>, namespace: &str, rights: &mut Vec<Right>) {
    for rule in rules.into_iter().flatten() {
        let all = [String::new()];
        let names = rule.resource_names.as_deref().unwrap_or(&all);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    rights.extend(names.iter().map(|name| Right {
                        name: name.clone(),
                        ..Right::on(verb, group, resource, namespace)
                    }));
                }
            }
        }
    }
}

/// What people need to work with plans in a namespace.
pub(super) fn of_people(namespace: &str) -> Vec<Right> {
    ["get", "list", "watch", "create", "patch", "delete"]
        .iter()
        .map(|verb| Right::on(verb, crate::api::GROUP, "releaseplans", namespace))
        .collect()
}

/// What it takes to install Belay. Nobody can grant what they do not have, so
/// the operator's own rights are part of it.
pub(super) fn to_install(namespace: &str) -> Vec<Right> {
    let rbac = "rbac.authorization.k8s.io";
    let webhooks = "admissionregistration.k8s.io";
    let mut rights: Vec<Right> = [
        ("apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("", "namespaces", ""),
        (rbac, "clusterroles", ""),
        (rbac, "clusterrolebindings", ""),
        (webhooks, "mutatingwebhookconfigurations", ""),
        (webhooks, "validatingwebhookconfigurations", ""),
        (rbac, "roles", namespace),
        (rbac, "rolebindings", namespace),
        ("", "serviceaccounts", namespace),
        ("", "services", namespace),
        ("apps", "deployments", namespace),
    ]
    .iter()
    .flat_map(|(group, resource, namespace)| {
        ["create", "patch"].map(|verb| Right::on(verb, group, resource, namespace))
    })
    .collect();
    rights.extend(of_operator(namespace));
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_of_the_operator_are_those_that_are_installed() {
        let rights: Vec<String> = of_operator("ops").iter().map(ToString::to_string).collect();
        for right in [
            "patch releaseplans/status.belay.dev",
            "patch deployments.apps",
            "list pods",
            "patch mutatingwebhookconfigurations.admissionregistration.k8s.io belay.dev",
            "get secrets belay-webhook-tls in ops",
            "create secrets in ops",
        ] {
            assert!(
                rights.iter().any(|known| known == right),
                "{right}: {rights:#?}"
            );
        }
    }
}
