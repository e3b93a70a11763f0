//! The components below the top of what `belay status NAME` shows, with their
//! ReplicaSets and the pods in trouble.

use k8s_openapi::jiff::Timestamp;

use super::{
    config,
    model::{ComponentView, Health, PlanStatus, PodTrouble, ReplicaSetStatus},
    pods::age,
    render::{Fold, Layout, mark},
    text::{Line, Tone, span},
};
use crate::api::ComponentState;

/// Kinds of trouble of one ReplicaSet that are shown.
const KINDS: usize = 3;

/// Columns of the components.
struct Columns {
    name: usize,
    ready: usize,
}

const UPDATED: usize = 9;
const STATE: usize = 12;

/// The components, with as much folded as is asked for.
pub(super) fn components(
    plan: &PlanStatus,
    now: Timestamp,
    layout: Layout,
    fold: Fold,
) -> Vec<Line> {
    let all = plan.components();
    if all.is_empty() {
        return Vec::new();
    }
    let longest = all.iter().map(|c| super::text::width(&c.name)).max();
    let columns = Columns {
        name: longest.unwrap_or_default().clamp(9, 30) + 4,
        ready: all
            .iter()
            .map(|c| ready(c).len())
            .max()
            .unwrap_or_default()
            .max(5)
            + 2,
    };
    let mut lines = vec![Line::default(), header(&columns).cut(layout.width)];
    let mut folded: Vec<&ComponentView> = Vec::new();
    for component in all {
        if fold == Fold::Runs && is_quiet(component) {
            folded.push(component);
            continue;
        }
        lines.extend(run(&folded, &columns, layout));
        folded.clear();
        lines.push(row(component, plan, &columns).cut(layout.width));
        if fold == Fold::None || !is_quiet(component) {
            lines.extend(below(component, plan, now, layout));
        }
    }
    lines.extend(run(&folded, &columns, layout));
    lines
}

fn header(columns: &Columns) -> Line {
    let line = Line::of(Tone::Faint, "  COMPONENT").to(columns.name);
    let line = line
        .and(Tone::Faint, "READY")
        .to(columns.name + columns.ready);
    let line = line.and(Tone::Faint, "UPDATED");
    line.to(columns.name + columns.ready + UPDATED)
        .and(Tone::Faint, "STATE")
}

/// Healthy components next to each other.
fn run(folded: &[&ComponentView], columns: &Columns, layout: Layout) -> Option<Line> {
    let (first, last) = (folded.first()?, folded.last()?);
    let text = match folded.len() {
        1 => format!("✓ {}", first.name),
        2 => format!("✓ {}, {}", first.name, last.name),
        many => format!("✓ {many} healthy: {} … {}", first.name, last.name),
    };
    let line = Line::of(Tone::Good, &text).to(columns.name);
    Some(line.cut(layout.width))
}

fn is_quiet(component: &ComponentView) -> bool {
    component.health == Health::Ok
        && component.trouble().next().is_none()
        && !component.config_maps.iter().any(|map| map.missing)
}

fn ready(component: &ComponentView) -> String {
    component.deployment.map_or_else(
        || "-".to_owned(),
        |counts| format!("{}/{}", counts.ready, counts.wanted),
    )
}

fn row(component: &ComponentView, plan: &PlanStatus, columns: &Columns) -> Line {
    let (tone, sign) = mark(component.health);
    let name = Line::of(Tone::Strong, &component.name).cut(columns.name - 4);
    let mut line = Line::of(tone, &format!("{sign} ")).and(Tone::Strong, &name.plain());
    line = line.to(columns.name).and(Tone::Plain, &ready(component));
    line = line.to(columns.name + columns.ready);
    let updated = component
        .deployment
        .map_or_else(|| "-".to_owned(), |c| c.updated.to_string());
    line = line
        .and(Tone::Plain, &updated)
        .to(columns.name + columns.ready + UPDATED);
    let state = state(component, plan);
    line = line
        .and(tone, &state)
        .to(columns.name + columns.ready + UPDATED + STATE);
    line.and(Tone::Faint, &remarks(component))
}

fn state(component: &ComponentView, plan: &PlanStatus) -> String {
    let Some(state) = component.state else {
        return if component.deployment.is_none() && plan.unread.is_empty() {
            "Missing".to_owned()
        } else {
            "-".to_owned()
        };
    };
    match state {
        _ if component.contended => "Contended".to_owned(),
        // Said by the operator before the Deployment was seen to be broken.
        ComponentState::Updated | ComponentState::Stable if component.health == Health::Failed => {
            "Broken".to_owned()
        }
        state => format!("{state:?}"),
    }
}

fn remarks(component: &ComponentView) -> String {
    let mut remarks = Vec::new();
    let own = component
        .workload
        .split_once('/')
        .map_or("", |(_, name)| name);
    if own != component.name {
        remarks.push(component.workload.clone());
    }
    if component.leaving {
        remarks.push("leaves the plan".to_owned());
    }
    if let Some(counts) = component.deployment {
        if counts.paused {
            remarks.push("paused by its own spec.paused".to_owned());
        }
        if !counts.observed {
            remarks.push("not seen by its controller yet".to_owned());
        }
    }
    if !component.after.is_empty() {
        remarks.push(format!("after {}", component.after.join(", ")));
    }
    remarks.join("; ")
}

/// ConfigMaps, ReplicaSets and pods in trouble.
fn below(
    component: &ComponentView,
    plan: &PlanStatus,
    now: Timestamp,
    layout: Layout,
) -> Vec<Line> {
    let (shown, empty): (Vec<&ReplicaSetStatus>, Vec<&ReplicaSetStatus>) =
        component.replica_sets.iter().partition(|set| is_shown(set));
    let name = shown
        .iter()
        .map(|set| super::text::width(&set.name))
        .max()
        .unwrap_or_default();
    let mut lines = Vec::new();
    let sets = !component.replica_sets.is_empty();
    for (index, map) in component.config_maps.iter().enumerate() {
        let last = index + 1 == component.config_maps.len() && !sets;
        let (bend, rail) = if last {
            ("└ ", "  ")
        } else {
            ("├ ", "│ ")
        };
        let tone = if map.missing {
            Tone::Waits
        } else {
            Tone::Plain
        };
        let line = Line::default().to(4).and(Tone::Faint, bend);
        let line = line.and(tone, &config::told(map, plan));
        let indent = Line::default().to(4).and(Tone::Faint, rail).to(8);
        lines.extend(line.wrap(layout.width, &indent, layout.most()));
    }
    for (index, set) in shown.iter().enumerate() {
        let last = index + 1 == shown.len() && empty.is_empty();
        let (bend, rail) = if last {
            ("└ ", "  ")
        } else {
            ("├ ", "│ ")
        };
        lines.push(set_row(set, bend, name, layout.width).cut(layout.width));
        let rail = Line::default().to(4).and(Tone::Faint, rail);
        lines.extend(trouble(set, &rail, now, layout));
    }
    if !empty.is_empty() {
        let text = format!("└ … {} older without pods", empty.len());
        lines.push(Line::default().to(4).and(Tone::Faint, &text));
    }
    lines
}

fn is_shown(set: &ReplicaSetStatus) -> bool {
    set.live || set.wanted > 0 || set.ready > 0 || set.starting > 0 || !set.trouble.is_empty()
}

fn set_row(set: &ReplicaSetStatus, bend: &str, name: usize, columns: usize) -> Line {
    let line = Line::default().to(4).and(Tone::Faint, bend);
    let line = line.and(Tone::Plain, &set.name).to(6 + name + 2);
    let which = if set.live { "new" } else { "old" };
    let line = line.and(Tone::Faint, which).to(6 + name + 7);
    let counts = format!("{}/{}", set.ready, set.wanted);
    let line = line.and(Tone::Plain, &counts).to(6 + name + 14);
    let starting = match set.starting {
        0 => String::new(),
        1 => "  1 pod starting".to_owned(),
        many => format!("  {many} pods starting"),
    };
    let room = columns.saturating_sub(line.width() + starting.len());
    let images = images(&set.images, room);
    line.and(Tone::Plain, &format!("{images}{starting}"))
}

/// Images within a width. Where they are too long their ends stay: the tag is what
/// tells one from another.
fn images(images: &[String], columns: usize) -> String {
    let all = images.join(", ");
    if super::text::width(&all) <= columns {
        return all;
    }
    let count = images.len().max(1);
    let each = columns.saturating_sub(2 * (count - 1)) / count;
    let ends = images.iter().map(|image| {
        let length = image.chars().count();
        if length <= each {
            return image.clone();
        }
        let end = image.chars().skip(length + 1 - each.clamp(1, length));
        format!("…{}", end.collect::<String>())
    });
    ends.collect::<Vec<_>>().join(", ")
}

/// Pods in trouble, alike ones on one line.
fn trouble(set: &ReplicaSetStatus, rail: &Line, now: Timestamp, layout: Layout) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut tell = |text: &str| {
        let line = rail.clone().and(Tone::Bad, "✗ ").and(Tone::Plain, text);
        let indent = rail.clone().to(8);
        lines.extend(line.wrap(layout.width, &indent, layout.most()));
    };
    if let Some(refused) = &set.refused {
        tell(&format!("its pods are refused: {refused}"));
    }
    let kinds = kinds(set.trouble.iter());
    for kind in kinds.iter().take(KINDS) {
        if let Some(pod) = kind.first() {
            tell(&told(pod, kind.len() - 1, now));
        }
    }
    let rest: usize = kinds.iter().skip(KINDS).map(Vec::len).sum();
    if rest > 0 {
        tell(&format!("{rest} more pods in trouble"));
    }
    lines
}

/// Pods in trouble, alike ones together.
pub(in crate::cli) fn kinds<'a>(
    pods: impl Iterator<Item = &'a PodTrouble>,
) -> Vec<Vec<&'a PodTrouble>> {
    let mut kinds: Vec<Vec<&PodTrouble>> = Vec::new();
    for pod in pods {
        let alike = kinds
            .iter_mut()
            .find(|kind| kind.first().is_some_and(|k| is_alike(k, pod)));
        match alike {
            Some(kind) => kind.push(pod),
            None => kinds.push(vec![pod]),
        }
    }
    kinds
}

fn is_alike(a: &PodTrouble, b: &PodTrouble) -> bool {
    a.container == b.container && a.reason == b.reason && a.last_exit == b.last_exit
}

/// A pod in trouble in one sentence.
pub(in crate::cli) fn told(pod: &PodTrouble, others: usize, now: Timestamp) -> String {
    let mut text = pod.pod.clone();
    if others > 0 {
        text.push_str(&format!(" and {others} more"));
    }
    if let Some(container) = &pod.container {
        text.push_str(&format!(" container {container}"));
    }
    text.push_str(&format!(": {}", pod.reason));
    if pod.restarts > 0 {
        let times = if pod.restarts == 1 {
            "restart"
        } else {
            "restarts"
        };
        text.push_str(&format!(", {} {times}", pod.restarts));
    }
    if let Some(exit) = &pod.last_exit {
        let why = exit
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        text.push_str(&format!(", last exit code {}{why}", exit.code));
    }
    if let Some(since) = &pod.since {
        text.push_str(&format!(", {} ago", span(age(since, now))));
    }
    if !pod.message.is_empty() {
        text.push_str(&format!(": {}", pod.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows would be the same otherwise.
    #[test]
    fn of_an_image_that_is_too_long_the_tag_stays() {
        let image = "registry.example.com/team/shop-configuration-service:3.1.0-rc.7";
        let all = [image.to_owned(), "a:1".to_owned()];
        assert_eq!(images(&all[..1], 100), image);
        assert_eq!(images(&all[..1], 30), "…figuration-service:3.1.0-rc.7");
        assert_eq!(images(&all[..1], 0), "…");
        let two = images(&all, 40);
        assert_eq!(two, "…service:3.1.0-rc.7, a:1");
    }
}
