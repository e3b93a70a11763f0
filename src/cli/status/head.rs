//! The top of what `belay status NAME` shows: the one thing that a plan waits for,
//! what happens next, and what a person can do.

use k8s_openapi::jiff::Timestamp;

use super::{
    later,
    model::{ComponentView, Health, PlanStatus, Verdict},
    pods::age,
    render::{Layout, TEXT, labelled, mark, told},
    said::{self, once, parts},
    text::{Line, Tone, clock, span},
};
use crate::api::{Reason, Stage};

/// Lines that the words of one way out may take: those of the longest names that there
/// can be, on a narrow screen.
const WAY: usize = 24;

/// The one reason, and what follows from it.
pub(super) fn head(plan: &PlanStatus, now: Timestamp, layout: Layout) -> Vec<Line> {
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
    if let Some(later) = later::told(plan) {
        lines.extend(labelled("Then", Tone::Plain, &later, layout));
    }
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
    let lost = verdict.reason == Reason::StatusLost.as_str();
    let stable = match stable {
        Some(name) => format!(", stable revision {name}"),
        None if lost => ", stable revision not known any more".to_owned(),
        None => ", no stable revision yet".to_owned(),
    };
    let text = format!("namespace {}, {phase}{step}{stable}", plan.namespace);
    lines.extend(labelled("Plan", Tone::Plain, &text, layout));
    lines
}

fn why(verdict: &Verdict, layout: Layout) -> Vec<Line> {
    let (message, doubts) = parts(verdict);
    let mut lines = Vec::new();
    let mut tell = |label: &str, text: &str| {
        if !text.is_empty() {
            let head = Line::of(Tone::Faint, &format!("  {label}")).to(TEXT);
            lines.extend(said::lines(head, text, layout.width, layout.most()));
        }
    };
    match &verdict.cause {
        // That all is well needs no words.
        _ if verdict.health == Health::Ok => {}
        Some(cause) => {
            tell("Why", &cause.told());
            tell("Now", &once(message, &verdict.ways));
        }
        None => tell("Why", &once(message, &verdict.ways)),
    }
    tell("But", &once(doubts, &verdict.ways));
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
    let indent = Line::default().to(TEXT);
    for (index, way) in verdict.ways.iter().enumerate() {
        let label = if index == 0 { "  Do" } else { "  or" };
        let line = Line::of(Tone::Faint, label).to(TEXT);
        let Some(command) = &way.command else {
            let line = line.and(Tone::Plain, &way.effect);
            lines.extend(line.wrap(layout.width, &indent, WAY));
            continue;
        };
        let line = line.and(Tone::Plain, &format!("{}: ", way.effect));
        let one = line.clone().and(Tone::Strong, command);
        if one.width() <= layout.width {
            lines.push(one);
        } else {
            lines.extend(line.wrap(layout.width, &indent, WAY));
            lines.push(indent.clone().and(Tone::Strong, command).whole());
        }
    }
    lines
}

fn release(plan: &PlanStatus, now: Timestamp) -> Option<String> {
    let release = plan.release.as_ref()?;
    let by = release.requested_by.as_ref();
    let by = by.map_or_else(String::new, |who| format!(" by {who}"));
    let stable = plan.revisions.stable.as_deref();
    let target = plan.revisions.target.as_deref();
    let target = target.unwrap_or(match release.stage {
        Stage::Settle => "(being prepared)",
        _ => "(not known)",
    });
    let way = match (stable, release.stage) {
        (Some(stable), Stage::Restore) => format!("{target} → back to {stable}"),
        (Some(stable), _) => format!("{stable} → {target}"),
        (None, _) => format!("first release, {target}"),
    };
    let running = span(age(&release.started_at, now));
    let live = release.supersedes.as_ref();
    let live = live.map_or_else(String::new, |name| {
        format!("; {name}, whose place it takes, is live in part or whole")
    });
    Some(format!(
        "{way}, number {}{by}, for {running}{live}",
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
