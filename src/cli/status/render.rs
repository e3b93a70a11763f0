//! What `belay status NAME` looks like: the one reason on top, the components
//! below, healthy ones folded as soon as there are many.

use k8s_openapi::jiff::Timestamp;

use super::{
    config,
    model::{ComponentView, Health, PlanStatus, PodTrouble, ReplicaSetStatus, Verdict},
    pods::age,
    said::once,
    text::{Line, Tone, clock, span},
};
use crate::api::{ComponentState, Reason, Stage};

/// Column of what stands behind a label.
const TEXT: usize = 10;
/// Components beyond which healthy ones take a line each.
const MANY: usize = 8;
/// Kinds of trouble of one ReplicaSet that are shown.
const KINDS: usize = 3;

/// The room that there is.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Layout {
    /// Columns.
    pub(in crate::cli) width: usize,
    /// Lines, where nothing can be scrolled.
    pub(in crate::cli) height: Option<usize>,
}

impl Layout {
    /// Room without bounds, for a file or a pipe.
    pub(in crate::cli) const UNBOUNDED: Self = Self {
        width: usize::MAX,
        height: None,
    };

    /// Lines that one message may take.
    const fn most(self) -> usize {
        match self.height {
            Some(_) => 3,
            None => 6,
        }
    }
}

/// How much is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fold {
    /// Nothing but empty ReplicaSets and healthy pods.
    None,
    /// Each healthy component to a line.
    Healthy,
    /// Healthy components next to each other to one line.
    Runs,
}

/// The mark of a state. The words beside it say the same.
pub(in crate::cli) const fn mark(health: Health) -> (Tone, &'static str) {
    match health {
        Health::Ok => (Tone::Good, "✓"),
        Health::Working => (Tone::Waits, "~"),
        Health::Held => (Tone::Waits, "="),
        Health::Failed => (Tone::Bad, "✗"),
    }
}

/// A plan and everything below it, within the room that there is.
pub(in crate::cli) fn tree(plan: &PlanStatus, now: Timestamp, layout: Layout) -> Vec<Line> {
    let least = if plan.components().len() > MANY {
        Fold::Healthy
    } else {
        Fold::None
    };
    let folds = [Fold::None, Fold::Healthy, Fold::Runs];
    let mut lines = Vec::new();
    for fold in folds.into_iter().filter(|fold| *fold >= least) {
        lines = head(plan, now, layout);
        lines.extend(components(plan, now, layout, fold));
        if fits(&lines, layout) {
            return lines;
        }
    }
    lines
}

fn fits(lines: &[Line], layout: Layout) -> bool {
    let rows: usize = lines.iter().map(|line| line.rows(layout.width)).sum();
    layout.height.is_none_or(|height| rows <= height)
}

/// Lines that fit on a screen, the top always among them.
pub(in crate::cli) fn fitted(lines: Vec<Line>, layout: Layout) -> Vec<Line> {
    let Some(height) = layout.height else {
        return lines;
    };
    let total = lines.len();
    let mut kept = Vec::new();
    let mut rows = 0;
    for line in lines {
        let line = line.cut(layout.width);
        rows += line.rows(layout.width);
        kept.push((rows, line));
    }
    if rows > height {
        kept.retain(|(rows, _)| *rows < height);
        let text = format!("… {} more lines", total - kept.len());
        kept.push((height, Line::of(Tone::Faint, &text).cut(layout.width)));
    }
    kept.into_iter().map(|(_, line)| line).collect()
}

fn labelled(label: &str, tone: Tone, text: &str, layout: Layout) -> Vec<Line> {
    let line = Line::of(Tone::Faint, &format!("  {label}"));
    let indent = Line::default().to(TEXT);
    line.to(TEXT)
        .and(tone, text)
        .wrap(layout.width, &indent, layout.most())
}

/// The one reason, and what follows from it.
fn head(plan: &PlanStatus, now: Timestamp, layout: Layout) -> Vec<Line> {
    let verdict = &plan.verdict;
    let (tone, sign) = mark(verdict.health);
    let top = Line::of(tone, &format!("{sign} "))
        .and(Tone::Strong, &plan.name)
        .and(tone, &format!("  {}", verdict.title))
        .and(Tone::Faint, &format!(" ({})", verdict.reason));
    let mut lines = top.wrap(layout.width, &Line::default().to(2), 3);
    lines.extend(unread(plan, layout));
    lines.extend(why(verdict, layout));
    lines.extend(pods(plan, now, layout));
    if let Some(since) = &verdict.since {
        let text = format!("{}, {} ago", clock(since, now), span(age(since, now)));
        lines.extend(labelled("Since", Tone::Plain, &text, layout));
    }
    lines.extend(labelled("Next", Tone::Plain, &next(verdict, now), layout));
    lines.extend(ways(verdict, layout));
    for (label, text) in [("Release", release(plan, now)), ("Last", last(plan, now))] {
        let text = text.unwrap_or_default();
        if !text.is_empty() {
            lines.extend(labelled(label, Tone::Plain, &text, layout));
        }
    }
    let phase = plan
        .phase
        .map_or_else(|| "no phase yet".to_owned(), |phase| format!("{phase:?}"));
    let step = plan
        .step
        .as_ref()
        .map_or_else(String::new, |step| format!(", {step}"));
    let stable = plan.revisions.stable.as_ref();
    let stable = stable.map_or_else(
        || ", no stable revision yet".to_owned(),
        |name| format!(", stable revision {name}"),
    );
    let text = format!("namespace {}, {phase}{step}{stable}", plan.namespace);
    lines.extend(labelled("Plan", Tone::Plain, &text, layout));
    lines
}

fn why(verdict: &Verdict, layout: Layout) -> Vec<Line> {
    if verdict.health == Health::Ok {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let Some(cause) = &verdict.cause {
        lines.extend(labelled("Why", Tone::Plain, &cause.told(), layout));
        // These only add what is shown anyway.
        let said = [
            Reason::RolledBack,
            Reason::Undone,
            Reason::Frozen,
            Reason::RollbackStarted,
            Reason::RollingBack,
            Reason::Reverted,
            Reason::RollbackAborted,
        ];
        if said.iter().any(|reason| reason.as_str() == verdict.reason) {
            return lines;
        }
        let text = once(&verdict.message, &verdict.ways);
        lines.extend(labelled("Now", Tone::Plain, &text, layout));
    } else if !verdict.message.is_empty() {
        let text = once(&verdict.message, &verdict.ways);
        lines.extend(labelled("Why", Tone::Plain, &text, layout));
    }
    lines
}

/// The worst pod, since what is below may not fit on the screen.
fn pods(plan: &PlanStatus, now: Timestamp, layout: Layout) -> Vec<Line> {
    let broken = |c: &&ComponentView| c.trouble().next().is_some();
    let first = plan.components().iter().find(broken);
    let Some(pod) = first.and_then(|c| c.trouble().next()) else {
        return Vec::new();
    };
    let all: usize = plan.components().iter().map(|c| c.trouble().count()).sum();
    let text = match all {
        1 => told(pod, 0, now),
        many => format!("{many} in trouble, such as {}", told(pod, 0, now)),
    };
    labelled("Pods", Tone::Bad, &text, layout)
}

/// What happens next, and when at the latest.
pub(in crate::cli) fn next(verdict: &Verdict, now: Timestamp) -> String {
    let Some(at) = &verdict.next_at else {
        return verdict.next.clone();
    };
    let left = at.0.duration_since(now);
    let left = match std::time::Duration::try_from(left) {
        Ok(left) => format!("in {}", span(left)),
        Err(_) => format!("due since {}", span(age(at, now))),
    };
    format!("{} by {} ({left})", verdict.next, clock(at, now))
}

/// What a person can do; commands stand so that they can be pasted.
pub(in crate::cli) fn ways(verdict: &Verdict, layout: Layout) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, way) in verdict.ways.iter().enumerate() {
        let label = if index == 0 { "  Do" } else { "  or" };
        let line = Line::of(Tone::Faint, label).to(TEXT);
        let Some(command) = &way.command else {
            lines.push(line.and(Tone::Plain, &way.effect).cut(layout.width));
            continue;
        };
        let line = line.and(Tone::Plain, &format!("{}: ", way.effect));
        let one = line.clone().and(Tone::Strong, command);
        if one.width() <= layout.width {
            lines.push(one);
        } else {
            lines.push(line.cut(layout.width));
            lines.push(Line::default().to(TEXT).and(Tone::Strong, command).whole());
        }
    }
    lines
}

fn release(plan: &PlanStatus, now: Timestamp) -> Option<String> {
    let release = plan.release.as_ref()?;
    let by = release.requested_by.as_ref();
    let by = by.map_or_else(String::new, |who| format!(" by {who}"));
    let stable = plan.revisions.stable.as_deref();
    let target = plan
        .revisions
        .target
        .as_deref()
        .unwrap_or("(being prepared)");
    let way = match (stable, release.stage) {
        (Some(stable), Stage::Restore) => format!("{target} → back to {stable}"),
        (Some(stable), _) => format!("{stable} → {target}"),
        (None, _) => format!("first release, {target}"),
    };
    let running = span(age(&release.started_at, now));
    Some(format!(
        "{way}, number {}{by}, for {running}",
        release.number
    ))
}

fn last(plan: &PlanStatus, now: Timestamp) -> Option<String> {
    let last = plan.last.as_ref().filter(|_| plan.release.is_none())?;
    let by = last.requested_by.as_ref();
    let by = by.map_or_else(String::new, |who| format!(" by {who}"));
    let what = last.revision.as_ref();
    let what = what.map_or_else(String::new, |name| format!(" of {name}"));
    let took = span(age(&last.started_at, last.ended_at.0));
    let ago = span(age(&last.ended_at, now));
    Some(format!(
        "release {}{what}{by}: {:?} after {took}, {ago} ago",
        last.number, last.result
    ))
}

fn unread(plan: &PlanStatus, layout: Layout) -> Vec<Line> {
    let notes = plan.unread.iter();
    notes
        .flat_map(|note| {
            let text = format!("! {note}");
            let line = Line::default().to(2).and(Tone::Waits, &text);
            line.wrap(layout.width, &Line::default().to(4), 3)
        })
        .collect()
}

/// Columns of the components.
struct Columns {
    name: usize,
    ready: usize,
}

const UPDATED: usize = 9;
const STATE: usize = 12;

fn components(plan: &PlanStatus, now: Timestamp, layout: Layout, fold: Fold) -> Vec<Line> {
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
        lines.push(set_row(set, bend, name).cut(layout.width));
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

fn set_row(set: &ReplicaSetStatus, bend: &str, name: usize) -> Line {
    let line = Line::default().to(4).and(Tone::Faint, bend);
    let line = line.and(Tone::Plain, &set.name).to(6 + name + 2);
    let which = if set.live { "new" } else { "old" };
    let line = line.and(Tone::Faint, which).to(6 + name + 7);
    let counts = format!("{}/{}", set.ready, set.wanted);
    let line = line.and(Tone::Plain, &counts).to(6 + name + 14);
    let mut more = set.images.join(", ");
    if set.starting > 0 {
        let pods = if set.starting == 1 { "pod" } else { "pods" };
        more.push_str(&format!("  {} {pods} starting", set.starting));
    }
    line.and(Tone::Plain, &more)
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
    let mut kinds: Vec<Vec<&PodTrouble>> = Vec::new();
    for pod in &set.trouble {
        let alike = kinds
            .iter_mut()
            .find(|kind| kind.first().is_some_and(|k| is_alike(k, pod)));
        match alike {
            Some(kind) => kind.push(pod),
            None => kinds.push(vec![pod]),
        }
    }
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
