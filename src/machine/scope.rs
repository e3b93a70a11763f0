//! Which workloads a pass is about.

use super::contents;
use crate::{
    api::ReleasePlanStatus,
    config_maps::Tracked,
    plan::{ComponentPlan, Plan, Target},
};
use serde_json::Value;

/// One component that a pass is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Name of the component.
    pub name: String,
    /// Its workload.
    pub target: Target,
    /// Its partial template, if the plan says one.
    pub template: Option<Value>,
    /// Digest of the partial template.
    pub template_digest: Option<String>,
    /// ConfigMaps whose contents belong to it.
    pub config_maps: Vec<String>,
    /// The same with their contents, as far as these are known.
    pub tracked: Vec<Tracked>,
    /// Indices of the components before it.
    pub after: Vec<usize>,
    /// Whether it left the plan and is only let go.
    pub leaving: bool,
}

impl Scope {
    /// Digest of the contents that belong to a followed workload.
    #[must_use]
    pub fn config_digest(&self) -> Option<String> {
        if self.template.is_some() {
            return None;
        }
        contents::digest(&self.tracked)
    }
}

impl From<&ComponentPlan> for Scope {
    fn from(component: &ComponentPlan) -> Self {
        Self {
            name: component.name.clone(),
            target: component.target.clone(),
            template: component.template.clone(),
            template_digest: component.template_digest.clone(),
            config_maps: component.config_maps.clone(),
            tracked: component.tracked.clone(),
            after: component.after.clone(),
            leaving: false,
        }
    }
}

/// The components to look at: those of the plan, then those that left it. In
/// mid-release the set is the one that the release began with, and a plan that
/// is not valid cannot change it.
#[must_use]
pub fn scope(plan: Option<&Plan>, status: &ReleasePlanStatus) -> Vec<Scope> {
    let known = status.components.iter().filter_map(|c| {
        Some(Scope {
            name: c.name.clone(),
            target: Target::from_ref(&c.workload)?,
            template: None,
            template_digest: None,
            config_maps: Vec::new(),
            tracked: Vec::new(),
            after: Vec::new(),
            leaving: true,
        })
    });
    let Some(plan) = plan else {
        return known
            .map(|scope| Scope {
                leaving: false,
                ..scope
            })
            .collect();
    };
    let planned: Vec<Scope> = plan.components().iter().map(Scope::from).collect();
    let same = |a: &Scope, b: &Scope| a.name == b.name && a.target == b.target;
    let known: Vec<Scope> = known.collect();
    if status.release.is_some() {
        let fixed = known.len() == planned.len()
            && known.iter().all(|k| planned.iter().any(|p| same(p, k)));
        if !fixed {
            return known
                .into_iter()
                .map(|scope| Scope {
                    leaving: false,
                    ..scope
                })
                .collect();
        }
        return planned;
    }
    let left: Vec<Scope> = known
        .into_iter()
        .filter(|k| !planned.iter().any(|p| p.target == k.target))
        .collect();
    planned.into_iter().chain(left).collect()
}

/// The components in the reverse of the order they are written in.
pub(super) fn backwards(scope: &[Scope]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < scope.len() {
        let next = scope.iter().enumerate().find_map(|(index, scope)| {
            let due = scope.after.iter().all(|before| order.contains(before));
            (!order.contains(&index) && due).then_some(index)
        });
        match next {
            Some(index) => order.push(index),
            None => break,
        }
    }
    order.reverse();
    order
}
