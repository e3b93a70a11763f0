//! What `belay status NAME` looks like: the one reason on top, the components
//! below, healthy ones folded as soon as there are many, within the room there is.

use k8s_openapi::jiff::Timestamp;

use super::{
    components::components,
    head::head,
    model::{Health, PlanStatus},
    text::{Line, Tone},
};
pub(in crate::cli) use super::{
    components::{kinds, told},
    head::{next, ways},
};

/// Column of what stands behind a label.
pub(super) const TEXT: usize = 10;
/// Components beyond which healthy ones take a line each.
const MANY: usize = 8;

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
    pub(super) const fn most(self) -> usize {
        match self.height {
            Some(_) => 3,
            None => 6,
        }
    }
}

/// How much is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fold {
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

/// A label and the text behind it.
pub(super) fn labelled(label: &str, tone: Tone, text: &str, layout: Layout) -> Vec<Line> {
    let line = Line::of(Tone::Faint, &format!("  {label}"));
    let indent = Line::default().to(TEXT);
    line.to(TEXT)
        .and(tone, text)
        .wrap(layout.width, &indent, layout.most())
}
