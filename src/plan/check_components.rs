//! The components: each by itself, then as a set.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ComponentPlan, Target, ViolationKind,
    check_template::check_template,
    check_values::{check_length, check_list, check_name},
    decode::quoted,
    faults::Faults,
};
use crate::{
    api::{Component, Traffic},
    config_maps::names,
    fields::canon::digest_json,
};
use serde_json::Value;

const MAX_COMPONENTS: usize = 32;
const MAX_NAME: usize = 253;
const MAX_LIST: usize = 32;
const MAX_ROUTES: usize = 16;
const MAX_SERVICE_NAME: usize = 63;

/// Judges the components. The result is complete only if there is no fault.
pub(super) fn check_components(
    components: Option<&[Component]>,
    faults: &mut Faults,
) -> Vec<ComponentPlan> {
    let components = match components {
        None | Some([]) => {
            faults.required("spec.components", "must name at least one workload");
            return Vec::new();
        }
        Some(components) => components,
    };
    if components.len() > MAX_COMPONENTS {
        faults.invalid(
            "spec.components",
            format!(
                "must have at most {MAX_COMPONENTS} elements, has {}",
                components.len()
            ),
        );
    }
    let names: Vec<Option<&str>> = components
        .iter()
        .enumerate()
        .map(|(index, component)| {
            let broken = faults.is_broken(&format!("spec.components[{index}].name"));
            effective_name(component).filter(|_| !broken)
        })
        .collect();
    let mut seen = Seen::default();
    let mut plans = Vec::new();
    for (index, component) in components.iter().enumerate().take(MAX_COMPONENTS) {
        let path = format!("spec.components[{index}]");
        let target = check_component(&path, component, faults);
        let name = names.get(index).copied().flatten();
        seen.check_unique(index, component, name, target.as_ref(), faults);
        let after = check_after(&path, index, component, &names, faults);
        if let (Some(name), Some(target)) = (effective_name(component), target) {
            plans.push(ComponentPlan {
                name: name.to_owned(),
                target,
                template: component.template.clone(),
                template_digest: component.template.as_ref().map(digest_json),
                config_maps: component.config_maps.clone().unwrap_or_default(),
                tracked: Vec::new(),
                after,
            });
        }
    }
    check_shared(components, faults);
    // With one of them missing, the indices in `after` point elsewhere.
    if plans.len() == components.len() {
        check_cycles(&plans, faults);
    }
    plans
}

/// The name that a component goes by.
pub(super) fn effective_name(component: &Component) -> Option<&str> {
    let workload = component.workload.as_ref();
    component
        .name
        .as_deref()
        .or_else(|| workload?.name.as_deref())
}

fn check_component(path: &str, component: &Component, faults: &mut Faults) -> Option<Target> {
    if let Some(name) = &component.name {
        check_name(&format!("{path}.name"), name, MAX_NAME, faults);
    }
    let target = match &component.workload {
        None => {
            faults.required(
                format!("{path}.workload"),
                "names the workload, such as {kind: Deployment, name: cart}",
            );
            None
        }
        Some(workload) => {
            if workload.kind.is_none() {
                faults.required(format!("{path}.workload.kind"), "must be Deployment");
            }
            let name_path = format!("{path}.workload.name");
            match &workload.name {
                None => faults.required(name_path, "names the workload"),
                Some(name) => check_name(&name_path, name, MAX_NAME, faults),
            }
            Target::from_ref(workload)
        }
    };
    if let Some(template) = &component.template {
        check_template(&format!("{path}.template"), template, faults);
    }
    if let Some(names) = &component.config_maps {
        let path = format!("{path}.configMaps");
        check_list(&path, names, MAX_LIST, MAX_NAME, faults);
        check_tracked(&path, names, component.template.as_ref(), faults);
    }
    if let Some(traffic) = &component.traffic {
        check_traffic(&format!("{path}.traffic"), traffic, faults);
    }
    target
}

/// A rollback brings contents of a templated component back by the name of a
/// snapshot, and those of a followed one by a write into the ConfigMap itself,
/// which would be new content for the other.
fn check_shared(components: &[Component], faults: &mut Faults) {
    let tracked = |component: &Component| component.config_maps.clone().unwrap_or_default();
    let mut followed = BTreeMap::new();
    for (index, component) in components.iter().enumerate().take(MAX_COMPONENTS) {
        if component.template.is_none() {
            for name in tracked(component) {
                followed.entry(name).or_insert(index);
            }
        }
    }
    for (index, component) in components.iter().enumerate().take(MAX_COMPONENTS) {
        if component.template.is_none() {
            continue;
        }
        for (position, name) in tracked(component).iter().enumerate().take(MAX_LIST) {
            if let Some(other) = followed.get(name) {
                let text = format!(
                    "configmap {} is tracked by spec.components[{other}] too, which has no template, so its contents would go back in two ways; give both components a template, or each a ConfigMap of its own",
                    quoted(name)
                );
                faults.invalid(
                    format!("spec.components[{index}].configMaps[{position}]"),
                    text,
                );
            }
        }
    }
}

/// What a template does not name cannot be brought back with it.
fn check_tracked(path: &str, tracked: &[String], template: Option<&Value>, faults: &mut Faults) {
    let named = template.map(names);
    for (index, name) in tracked.iter().enumerate().take(MAX_LIST) {
        let path = format!("{path}[{index}]");
        if name.is_empty() || name.chars().count() > MAX_NAME {
            continue;
        }
        let before = faults.len();
        check_name(&path, name, MAX_NAME, faults);
        if faults.len() > before {
            continue;
        }
        if named.as_ref().is_some_and(|named| !named.contains(name)) {
            let text = format!(
                "the template of this component does not name configmap {}, so its contents could not be released and brought back with it; name it as the workload does, such as template.spec.volumes: [{{name: config, configMap: {{name: {name}}}}}], or template.spec.containers: [{{name: app, envFrom: [{{configMapRef: {{name: {name}}}}}]}}]",
                quoted(name)
            );
            faults.invalid(path, text);
        }
    }
}

fn check_traffic(path: &str, traffic: &Traffic, faults: &mut Faults) {
    faults.not_available(
        path,
        "traffic is not steered by this version; leave traffic out",
    );
    if let Some(service) = &traffic.service {
        check_length(
            &format!("{path}.service"),
            service,
            MAX_SERVICE_NAME,
            faults,
        );
    }
    if let Some(routes) = &traffic.http_routes {
        let path = format!("{path}.httpRoutes");
        check_list(&path, routes, MAX_ROUTES, MAX_NAME, faults);
    }
}

/// Names and workloads that stood before.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    targets: BTreeMap<Target, usize>,
}

impl Seen {
    fn check_unique(
        &mut self,
        index: usize,
        component: &Component,
        name: Option<&str>,
        target: Option<&Target>,
        faults: &mut Faults,
    ) {
        let path = format!("spec.components[{index}]");
        let mut same_workload = false;
        if let Some(target) = target {
            if let Some(first) = self.targets.get(target) {
                same_workload = true;
                faults.duplicate(
                    format!("{path}.workload"),
                    format!("{target} is the workload of spec.components[{first}] already"),
                );
            } else {
                self.targets.insert(target.clone(), index);
            }
        }
        let Some(name) = name else {
            return;
        };
        match self.names.get(name) {
            // A name that only follows from the workload is no fault of its own.
            Some(_) if same_workload && component.name.is_none() => {}
            Some(first) => faults.duplicate(
                format!("{path}.name"),
                format!(
                    "{} is the name of spec.components[{first}] already",
                    quoted(name)
                ),
            ),
            None => {
                self.names.insert(name.to_owned(), index);
            }
        }
    }
}

fn check_after(
    path: &str,
    index: usize,
    component: &Component,
    names: &[Option<&str>],
    faults: &mut Faults,
) -> Vec<usize> {
    let Some(after) = &component.after else {
        return Vec::new();
    };
    let path = format!("{path}.after");
    check_list(&path, after, MAX_LIST, MAX_NAME, faults);
    let own = names.get(index).copied().flatten();
    let mut found = BTreeSet::new();
    for (position, name) in after.iter().enumerate().take(MAX_LIST) {
        let path = format!("{path}[{position}]");
        if own == Some(name.as_str()) {
            faults.invalid(path, format!("{} cannot come after itself", quoted(name)));
        } else if let Some(other) = names.iter().position(|n| *n == Some(name.as_str())) {
            found.insert(other);
        } else if !name.is_empty() && names.iter().all(Option::is_some) {
            let known: Vec<_> = names.iter().copied().flatten().take(MAX_LIST).collect();
            faults.add(
                ViolationKind::NotFound,
                path,
                format!(
                    "no component of this plan is named {} (there are: {})",
                    quoted(name),
                    known.join(", ")
                ),
            );
        }
    }
    found.into_iter().collect()
}

/// Names each cycle once, at the first of its components.
fn check_cycles(components: &[ComponentPlan], faults: &mut Faults) {
    let mut cycles = BTreeSet::new();
    let mut done = vec![false; components.len()];
    for start in 0..components.len() {
        visit(start, components, &mut Vec::new(), &mut done, &mut cycles);
    }
    for cycle in cycles {
        let Some(first) = cycle.first() else { continue };
        let names: Vec<_> = cycle
            .iter()
            .chain([first])
            .filter_map(|index| components.get(*index))
            .map(|component| component.name.as_str())
            .collect();
        faults.invalid(
            format!("spec.components[{first}].after"),
            format!(
                "components wait for each other in a circle: {}",
                names.join(" -> ")
            ),
        );
    }
}

/// Depth first; as deep as there are components at most.
fn visit(
    at: usize,
    components: &[ComponentPlan],
    way: &mut Vec<usize>,
    done: &mut [bool],
    cycles: &mut BTreeSet<Vec<usize>>,
) {
    if let Some(begin) = way.iter().position(|step| *step == at) {
        let mut cycle = way.get(begin..).unwrap_or_default().to_vec();
        let smallest = cycle.iter().enumerate().min_by_key(|(_, index)| **index);
        let turn = smallest.map_or(0, |(position, _)| position);
        cycle.rotate_left(turn);
        cycles.insert(cycle);
        return;
    }
    if done.get(at).copied().unwrap_or(true) {
        return;
    }
    way.push(at);
    for next in components.get(at).map_or(&[][..], |c| c.after.as_slice()) {
        visit(*next, components, way, done, cycles);
    }
    way.pop();
    if let Some(done) = done.get_mut(at) {
        *done = true;
    }
}
