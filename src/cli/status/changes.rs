//! What became different between two looks at a plan, a line for each: what
//! `--watch` appends where there is no terminal.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    config, later,
    list::why,
    model::{ComponentView, Health, PlanStatus, PodTrouble},
    render::told,
};

/// Lines to append; without an earlier look, what is worth knowing at first.
pub(super) fn changes(
    before: Option<&PlanStatus>,
    plan: &PlanStatus,
    now: Timestamp,
) -> Vec<String> {
    let stamp = Time(now).0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let line = |text: String| format!("{stamp} {}/{} {text}", plan.namespace, plan.name);
    let mut lines = Vec::new();
    // An edit or order that was just made is told by what comes of it.
    let fresh = ["Edited", "Ordered"].contains(&&*plan.verdict.reason)
        && plan.verdict.health == Health::Working;
    if before.is_none_or(|before| headline(before) != headline(plan) && !fresh) {
        lines.push(line(headline(plan)));
    }
    for component in plan.components() {
        let known = before.and_then(|b| b.components().iter().find(|c| c.name == component.name));
        let told = summary(component);
        if known.is_none_or(|known| summary(known) != told) {
            lines.push(line(told));
        }
        for map in &component.config_maps {
            let told = config::told(map, plan);
            let mut before = before.zip(known).into_iter().flat_map(|(plan, known)| {
                let maps = known.config_maps.iter();
                maps.map(move |map| config::told(map, plan))
            });
            if !before.any(|before| before == told) {
                lines.push(line(format!("{}: {told}", component.name)));
            }
        }
        for pod in component.trouble() {
            let mut known = known.into_iter().flat_map(ComponentView::trouble);
            if !known.any(|k| is_same(k, pod)) {
                let text = told_of(component, pod, now);
                lines.push(line(text));
            }
        }
        for pod in known.into_iter().flat_map(ComponentView::trouble) {
            if !component.trouble().any(|p| p.pod == pod.pod) {
                lines.push(line(format!(
                    "{}: {} is out of trouble or gone",
                    component.name, pod.pod
                )));
            }
        }
    }
    let waits = later::told(plan);
    if before.map_or(waits.is_some(), |before| later::told(before) != waits) {
        lines.extend(waits.map(|waits| line(format!("then {waits}"))));
    }
    for note in &plan.unread {
        if before.is_none_or(|before| !before.unread.contains(note)) {
            lines.push(line(format!("! {note}")));
        }
    }
    lines
}

fn headline(plan: &PlanStatus) -> String {
    let verdict = &plan.verdict;
    let step = plan
        .step
        .as_ref()
        .map_or_else(String::new, |step| format!(" {step}"));
    let phase = plan
        .phase
        .map_or_else(|| "New".to_owned(), |phase| format!("{phase:?}"));
    format!("{phase}{step} {}: {}", verdict.reason, why(plan))
}

fn summary(component: &ComponentView) -> String {
    let state = component
        .state
        .map_or_else(String::new, |state| format!(", {state:?}"));
    let Some(counts) = component.deployment else {
        return format!(
            "{}: {} is not there{state}",
            component.name, component.workload
        );
    };
    format!(
        "{}: {}/{} ready, {} updated{state}",
        component.name, counts.ready, counts.wanted, counts.updated
    )
}

fn told_of(component: &ComponentView, pod: &PodTrouble, now: Timestamp) -> String {
    format!("{}: {}", component.name, told(pod, 0, now))
}

fn is_same(a: &PodTrouble, b: &PodTrouble) -> bool {
    a.pod == b.pod && a.reason == b.reason && a.restarts == b.restarts && a.container == b.container
}
