//! What `belay status` without a name looks like: a line for each plan, those
//! in trouble first.

use k8s_openapi::jiff::Timestamp;

use super::{
    away::{ORDERED, OVERDUE},
    model::{Health, PlanStatus},
    pods::age,
    render::{Layout, mark},
    text::{Line, Tone, span, width},
    verdict::EDITED,
};

/// Narrowest terminal on which phase and step have columns: the reason says
/// more than they do.
const WIDE: usize = 100;

/// Reasons of plans for which the operator has something to do.
const AWAY: [&str; 3] = [EDITED, ORDERED, OVERDUE];

/// Puts those that somebody has to look at first.
pub(super) fn sort(plans: &mut [PlanStatus]) {
    let rank = |plan: &PlanStatus| match plan.verdict.health {
        Health::Failed => 0,
        Health::Held => 1,
        Health::Working => 2,
        Health::Ok => 3,
    };
    plans.sort_by(|a, b| {
        let key = |p: &PlanStatus| (rank(p), p.namespace.clone(), p.name.clone());
        key(a).cmp(&key(b))
    });
}

/// The plans as a table within a width.
pub(super) fn table(
    plans: &[PlanStatus],
    namespaces: bool,
    now: Timestamp,
    layout: Layout,
) -> Vec<Line> {
    let mut head = Vec::new();
    if namespaces {
        head.push("NAMESPACE");
    }
    head.push("NAME");
    if layout.width >= WIDE {
        head.extend(["PHASE", "STEP"]);
    }
    head.extend(["SINCE", "REASON"]);
    let rows: Vec<Vec<String>> = plans.iter().map(|plan| cells(plan, &head, now)).collect();
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| width(cell)).max().unwrap_or_default();
            widest.max(title.len()) + 2
        })
        .collect();
    let mut line = Line::default().to(2);
    let mut column = 2;
    for (title, width) in head.iter().zip(&widths) {
        column += width;
        line = line.and(Tone::Faint, title).to(column);
    }
    let mut lines = vec![line.and(Tone::Faint, "WHY").cut(layout.width)];
    for (plan, row) in plans.iter().zip(&rows) {
        let (tone, sign) = mark(plan.verdict.health);
        let mut line = Line::of(tone, sign).to(2);
        let mut column = 2;
        for ((title, cell), width) in head.iter().zip(row).zip(&widths) {
            column += width;
            let tone = match *title {
                "NAME" => Tone::Strong,
                "REASON" => tone,
                _ => Tone::Plain,
            };
            line = line.and(tone, cell).to(column);
        }
        lines.push(line.and(Tone::Plain, &why(plan)).cut(layout.width));
    }
    lines
}

fn cells(plan: &PlanStatus, head: &[&str], now: Timestamp) -> Vec<String> {
    let cell = |title: &&str| match *title {
        "NAMESPACE" => plan.namespace.clone(),
        "NAME" => plan.name.clone(),
        "PHASE" => plan
            .phase
            .map_or_else(|| "-".to_owned(), |p| format!("{p:?}")),
        "STEP" => plan.step.clone().unwrap_or_else(|| "-".to_owned()),
        "SINCE" => {
            let since = plan.verdict.since.as_ref();
            since.map_or_else(|| "-".to_owned(), |since| span(age(since, now)))
        }
        _ => plan.verdict.reason.clone(),
    };
    head.iter().map(cell).collect()
}

/// Why a plan is where it is, on a line.
pub(super) fn why(plan: &PlanStatus) -> String {
    match &plan.verdict.cause {
        // The rest of the message repeats the cause.
        Some(cause) => cause.told(),
        // What it was before matters less than that nobody comes.
        None if plan.verdict.message.is_empty() || AWAY.contains(&&*plan.verdict.reason) => {
            plan.verdict.title.clone()
        }
        None => plan.verdict.message.clone(),
    }
}
