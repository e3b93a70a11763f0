//! What a valid plan is checked for against the cluster at admission.
//!
//! Only what is certain is a fault: a container that is not there, a template
//! that the API server refuses. Everything else, above all what cannot be found
//! out in time, is a warning, because plans may be applied before the workloads
//! they name and the controller makes the same checks again.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{
    config_maps,
    lookup::{Lookup, Merged},
    warning::shortened,
};
use crate::{
    api::StoredPlan,
    cluster::{ApplyFailure, Snapshot},
    fields::{get, taken_over},
    plan::{ComponentPlan, Plan, Target, Violation, ViolationKind, incumbent, missing_containers},
};

/// Time for all look-ups of one review together.
pub(super) const BUDGET: Duration = Duration::from_secs(2);
/// Look-ups of one review that run at the same time.
pub(super) const PARALLEL: usize = 8;

/// What the look-ups brought to light.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) faults: Vec<Violation>,
    pub(super) warnings: Vec<String>,
}

impl Findings {
    fn warn(message: String) -> Self {
        Self {
            warnings: vec![message],
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.faults.append(&mut other.faults);
        self.warnings.append(&mut other.warnings);
    }
}

/// Checks the components of `plan` that differ from those of the plan it
/// replaces. What was admitted before is not judged again, so that a plan whose
/// surroundings changed can still be labelled.
pub(super) async fn check(
    lookup: &dyn Lookup,
    namespace: &str,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
) -> Findings {
    let changed: Vec<(usize, &ComponentPlan)> = plan
        .components()
        .iter()
        .enumerate()
        .filter(|(index, _)| is_changed(old, new, *index))
        .collect();
    let deadline = Instant::now() + BUDGET;
    let maps = timeout_at(
        deadline,
        config_maps::missing(lookup, namespace, old, new, plan),
    );
    if changed.is_empty() && !config_maps::is_new(old, new, plan) {
        return Findings::default();
    }
    let mut findings = Findings::default();
    let mut checks = Vec::new();
    for (index, component) in &changed {
        checks.push(async move {
            let before = template_before(old, new, *index);
            let check = check_component(lookup, namespace, *index, component, before);
            timeout_at(deadline, check).await.unwrap_or_else(|_| {
                Findings::warn(format!(
                    "{} was not checked: the cluster did not answer in time",
                    component.target
                ))
            })
        });
    }
    let components = stream::iter(checks).buffered(PARALLEL).collect::<Vec<_>>();
    let rivals = check_rivals(lookup, namespace, old, new, plan, &changed);
    let rivals = timeout_at(deadline, rivals);
    let (components, maps, rivals) = futures::future::join3(components, maps, rivals).await;
    components.into_iter().for_each(|found| findings.add(found));
    findings
        .warnings
        .extend(maps.unwrap_or_else(|_| unchecked_maps()));
    findings.add(rivals.unwrap_or_else(|_| {
        Findings::warn(format!("{UNSEEN}: the cluster did not answer in time"))
    }));
    findings
}

/// What is said where the other plans are not known.
const UNSEEN: &str = "other plans for the same workloads were not looked for";

fn unchecked_maps() -> Vec<String> {
    vec!["tracked configmaps were not checked: the cluster did not answer in time".to_owned()]
}

/// Whether the component at `index` asks for something new: no component of the
/// old plan has the same workload and template.
fn is_changed(old: Option<&StoredPlan>, new: &StoredPlan, index: usize) -> bool {
    fn asks(component: &Value) -> (Option<&Value>, Option<&Value>) {
        (component.get("workload"), component.get("template"))
    }
    let Some(wanted) = new.spec.pointer(&format!("/components/{index}")) else {
        return true;
    };
    let before = old.and_then(|old| old.spec.get("components")?.as_array());
    !before.is_some_and(|before| before.iter().any(|one| asks(one) == asks(wanted)))
}

/// The template that the plan had so far for the workload of the component at
/// `index`.
fn template_before<'a>(
    old: Option<&'a StoredPlan>,
    new: &StoredPlan,
    index: usize,
) -> Option<&'a Value> {
    let workload = new.spec.pointer(&format!("/components/{index}/workload"))?;
    let mut before = old?.spec.get("components")?.as_array()?.iter();
    before
        .find(|one| one.get("workload") == Some(workload))?
        .get("template")
}

async fn check_component(
    lookup: &dyn Lookup,
    namespace: &str,
    index: usize,
    component: &ComponentPlan,
    before: Option<&Value>,
) -> Findings {
    let target = &component.target;
    // A second attempt, because the workload may change between the read and
    // the dry run: its own status updates do that all the time.
    for _ in 0..2 {
        let workload = match lookup.workload(namespace, target).await {
            Ok(Some(workload)) => workload,
            Ok(None) => {
                return Findings::warn(format!(
                    "{target} does not exist yet: the plan waits for it"
                ));
            }
            Err(error) => {
                return Findings::warn(format!("{target} was not checked: {error}"));
            }
        };
        let Some(template) = &component.template else {
            return Findings::default();
        };
        let faults = unknown_containers(index, target, &workload, template);
        if !faults.is_empty() {
            return Findings {
                faults,
                ..Findings::default()
            };
        }
        match lookup.dry_run(namespace, target, &workload, template).await {
            Ok(merged) => {
                let warnings = replaced_whole(target, &workload, &merged, template, before);
                return Findings {
                    warnings,
                    ..Findings::default()
                };
            }
            Err(ApplyFailure::Refused(message)) => {
                return Findings {
                    faults: vec![Violation {
                        path: format!("spec.components[{index}].template"),
                        kind: ViolationKind::Invalid,
                        message: format!("{target} cannot take it: {message}"),
                    }],
                    ..Findings::default()
                };
            }
            Err(ApplyFailure::Undecided(message)) => {
                return Findings::warn(format!(
                    "the template of {target} was not checked: {message}"
                ));
            }
            Err(ApplyFailure::Conflict) => {}
        }
    }
    Findings::warn(format!(
        "the template of {target} was not checked: it keeps changing"
    ))
}

/// Atomic lists and maps with a value that the template takes over. What the
/// plan asked for `before` was told then.
fn replaced_whole(
    target: &Target,
    workload: &Snapshot,
    merged: &Merged,
    template: &Value,
    before: Option<&Value>,
) -> Vec<String> {
    let Merged {
        template: result,
        owned,
    } = merged;
    taken_over(&workload.template, result, &workload.owned, owned)
        .into_iter()
        .filter(|taken| {
            let wanted = get(template, &taken.path);
            before.and_then(|before| get(before, &taken.path)) != wanted
        })
        .map(|taken| {
            format!(
                "{} of {target} is replaced whole, not merged: {} becomes {}",
                taken.path,
                shortened(&taken.old),
                shortened(&taken.new)
            )
        })
        .collect()
}

/// Containers that the template names and the workload does not have.
fn unknown_containers(
    index: usize,
    target: &Target,
    workload: &Snapshot,
    template: &Value,
) -> Vec<Violation> {
    missing_containers(template, &workload.template)
        .into_iter()
        .map(|missing| Violation {
            path: format!(
                "spec.components[{index}].template.spec.{}[{}].name",
                missing.list, missing.index
            ),
            kind: ViolationKind::NotFound,
            message: format!("{target} has {missing}"),
        })
        .collect()
}

/// Looks for other plans that have a workload of this one, or a ConfigMap.
async fn check_rivals(
    lookup: &dyn Lookup,
    namespace: &str,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
    changed: &[(usize, &ComponentPlan)],
) -> Findings {
    let plans = match lookup.plans(namespace).await {
        Ok(plans) => plans,
        Err(error) => return Findings::warn(format!("{UNSEEN}: {error}")),
    };
    let mut findings = Findings::default();
    for (_, component) in changed {
        if let Some(name) = incumbent(new, &component.target, plans.iter()) {
            findings.warnings.push(format!(
                "{} belongs to ReleasePlan {name}: this plan does nothing until it lets go",
                component.target
            ));
        }
    }
    let shared = config_maps::shared(old, new, plan, &plans);
    findings.warnings.extend(shared);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::WorkloadKind;
    use serde_json::json;

    fn target(name: &str) -> Target {
        Target {
            kind: WorkloadKind::Deployment,
            name: name.into(),
        }
    }

    #[test]
    fn only_components_that_ask_for_something_new_are_looked_up() {
        let with = |image: &str| -> StoredPlan {
            serde_json::from_value(json!({"spec": {"components": [
                {"workload": {"name": "db"}},
                {"workload": {"name": "cart"}, "template": {"image": image}}
            ]}}))
            .unwrap()
        };
        let (one, two) = (with("1"), with("2"));
        assert!(is_changed(None, &one, 0));
        assert!(!is_changed(Some(&one), &two, 0));
        assert!(is_changed(Some(&one), &two, 1));
        assert!(!is_changed(Some(&one), &one, 1));
    }

    #[test]
    fn containers_that_the_workload_lacks_are_named_with_those_it_has() {
        let workload = Snapshot {
            template: json!({"spec": {"containers": [{"name": "app"}, {"name": "proxy"}]}}),
            ..Snapshot::default()
        };
        let template = json!({"spec": {
            "containers": [{"name": "ap"}, {"name": "proxy"}, {}],
            "initContainers": [{"name": "app"}]
        }});
        let faults = unknown_containers(3, &target("cart"), &workload, &template);
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "spec.components[3].template.spec.containers[0].name: Not found: \
                 deployment cart has no container ap (it has: app, proxy)",
                "spec.components[3].template.spec.initContainers[0].name: Not found: \
                 deployment cart has no init container app (it has none)",
            ]
        );
        let odd = json!({"spec": {"containers": "none"}});
        assert_eq!(unknown_containers(0, &target("cart"), &workload, &odd), []);
    }
}
