//! Who else writes to the workloads of plans. Pure.

use std::collections::BTreeMap;

use super::{
    facts::{Facts, Owners},
    judge::unseen,
    report::Finding,
};
use crate::{
    cli::counted,
    plan::{Target, targets_of},
};

const CHECK: &str = "workloads";
/// Field managers of tools that write pod templates and replicas, by a part of
/// their names.
const TOOLS: [(&str, &str); 3] = [
    ("flagger", "Flagger"),
    ("rollouts-controller", "Argo Rollouts"),
    ("argo-rollouts", "Argo Rollouts"),
];

/// What is found about the workloads of the plans.
pub(super) fn owners(facts: &Facts) -> Vec<Finding> {
    let owners = match &facts.owners {
        Ok(owners) => owners,
        Err(_) if matches!(facts.crd, Ok(None)) => {
            return vec![Finding::warn(
                CHECK,
                "there are no plans whose workloads could be looked at",
                "the CRD does not exist",
                "see crd",
            )];
        }
        Err(silence) => {
            return vec![unseen(
                CHECK,
                "other owners of the workloads",
                silence,
                "list releaseplans and deployments",
            )];
        }
    };
    let mut claimed: BTreeMap<(String, Target), Vec<String>> = BTreeMap::new();
    for plan in &owners.plans {
        let namespace = plan.metadata.namespace.clone().unwrap_or_default();
        let name = plan.metadata.name.clone().unwrap_or_default();
        for target in targets_of(plan) {
            let plans = claimed.entry((namespace.clone(), target)).or_default();
            if !plans.contains(&name) {
                plans.push(name.clone());
            }
        }
    }
    let mut findings = Vec::new();
    for ((namespace, target), plans) in &claimed {
        if plans.len() > 1 {
            findings.push(Finding::warn(
                CHECK,
                format!(
                    "{target} in {namespace} stands in several plans: {}",
                    plans.join(", ")
                ),
                "one of them holds it and the others say Conflict and wait",
                "leave it in one plan",
            ));
        }
        findings.extend(rivals(owners, namespace, target));
    }
    if findings.is_empty() {
        let place = match &facts.namespace {
            Some(namespace) => format!("in {namespace}"),
            None => "in all namespaces".to_owned(),
        };
        let plans = counted(owners.plans.len(), "plan");
        let workloads = counted(claimed.len(), "workload");
        findings.push(Finding::ok(
            CHECK,
            format!("{plans} {place} with {workloads} that nobody else owns"),
        ));
    }
    findings
}

/// What else has a hand in a workload.
fn rivals(owners: &Owners, namespace: &str, target: &Target) -> Vec<Finding> {
    let place = format!("{target} in {namespace}");
    let objects = owners.others.iter();
    let mut findings: Vec<Finding> = objects
        .filter(|other| other.namespace == namespace && other.deployment == target.name)
        .map(|other| {
            Finding::fail(
                CHECK,
                format!("{place} is released by {} as well", other.what),
                "both write its pods, and each undoes the other's work",
                format!("take it out of the plan, or delete {}", other.what),
            )
        })
        .collect();
    let live = owners
        .deployments
        .iter()
        .map(|deployment| &deployment.metadata);
    let live = live.into_iter().find(|metadata| {
        metadata.namespace.as_deref() == Some(namespace)
            && metadata.name.as_deref() == Some(target.name.as_str())
    });
    let Some(live) = live else {
        findings.push(Finding::warn(
            CHECK,
            format!("{place} does not exist"),
            "the plan waits for it",
            "create it, or correct its name in the plan",
        ));
        return findings;
    };
    for owner in live.owner_references.iter().flatten() {
        if owner.controller == Some(true) {
            findings.push(Finding::warn(
                CHECK,
                format!("{place} belongs to {} {}", owner.kind, owner.name),
                "its owner writes it back to what the owner says",
                "release the owner's way, or let the owner leave the pod template alone",
            ));
        }
    }
    if findings.is_empty() {
        let managers = live.managed_fields.iter().flatten();
        let managers = managers.filter_map(|entry| entry.manager.as_deref());
        let tool = managers
            .filter_map(|manager| TOOLS.iter().find(|(part, _)| manager.contains(part)))
            .next();
        if let Some((_, tool)) = tool {
            findings.push(Finding::warn(
                CHECK,
                format!("{place} was written by {tool}"),
                "it owns fields there, though no object of it that names the workload was seen",
                format!("see that {tool} no longer releases it"),
            ));
        }
    }
    findings
}
