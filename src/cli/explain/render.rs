//! What `belay explain` looks like: the answer first, its grounds below.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::model::{DeploymentExplanation, Explanation, Measure, PlanExplanation};
use crate::cli::status::{
    CauseView, PodTrouble, later,
    pods::age,
    render::{Layout, kinds, mark, next, told, ways},
    said::{lines as lines_of, once},
    text::{Line, Tone, clock, span, width},
    undone,
};

/// Where what stands below a heading begins.
const INDENT: usize = 2;
/// What operators put before a message that its reason says, too.
const SAID: [&str; 2] = ["rolled back: ", "undone: "];
/// Columns for the names of components, at least and at most.
const NAMES: (usize, usize) = (12, 34);
/// Kinds of trouble that are shown.
const PODS: usize = 5;

/// The answer, within a width.
pub(super) fn lines(explanation: &Explanation, now: Timestamp, layout: Layout) -> Vec<Line> {
    let mut page = Page {
        lines: Vec::new(),
        layout,
    };
    if let Some(deployment) = &explanation.deployment {
        page.deployment(deployment);
    }
    if let Some(plan) = &explanation.plan {
        if explanation.deployment.is_some() {
            page.lines.push(Line::default());
        }
        page.plan(plan, now);
    }
    page.lines
}

struct Page {
    lines: Vec<Line>,
    layout: Layout,
}

impl Page {
    fn heading(&mut self, text: &str) {
        self.lines.push(Line::default());
        self.lines.push(Line::of(Tone::Strong, text));
    }

    fn text(&mut self, text: &str) {
        self.row("", 0, text);
    }

    /// A label and what stands behind it.
    fn row(&mut self, label: &str, column: usize, text: &str) {
        let column = INDENT + column;
        let indent = Line::default().to(column);
        let mut line = Line::default().to(INDENT).and(Tone::Faint, label);
        if !label.is_empty() && line.width() >= column {
            self.lines.push(line.cut(self.layout.width));
            line = Line::default();
        }
        let line = line.to(column).and(Tone::Plain, text);
        self.lines
            .extend(line.wrap(self.layout.width, &indent, usize::MAX));
    }

    fn plan(&mut self, plan: &PlanExplanation, now: Timestamp) {
        let verdict = &plan.status.verdict;
        let (tone, sign) = mark(verdict.health);
        let top = Line::of(tone, &format!("{sign} "))
            .and(Tone::Strong, &format!("releaseplan/{}", plan.status.name))
            .and(tone, &format!("  {}", verdict.title));
        self.lines
            .extend(top.wrap(self.layout.width, &Line::default().to(INDENT), usize::MAX));
        self.heading("Why");
        if !verdict.message.is_empty() {
            let message = once(&verdict.message, &verdict.ways);
            // The message may begin with its reason.
            let said = SAID.iter().find_map(|said| message.strip_prefix(said));
            let end = if message.contains(": kubectl ") || message.ends_with(['.', ':', ';']) {
                ""
            } else {
                "."
            };
            let text = format!("{}: {}{end}", verdict.reason, said.unwrap_or(&message));
            let head = Line::default().to(INDENT);
            let width = self.layout.width;
            self.lines.extend(lines_of(head, &text, width, usize::MAX));
        }
        if let Some(cause) = &verdict.cause
            && !verdict.message.contains(&cause.message)
        {
            self.text(&cause.told());
        }
        if let Some(since) = &verdict.since {
            let text = format!(
                "Since {}, {} ago.",
                clock(since, now),
                span(age(since, now))
            );
            self.text(&text);
        }
        self.text(&format!(
            "The content of the plan is {}.",
            plan.content.text
        ));
        self.moves(plan, now);
        self.numbers(plan, now);
        self.decisions(plan, now);
        self.refused(plan, now);
    }

    /// What would move it.
    fn moves(&mut self, plan: &PlanExplanation, now: Timestamp) {
        let verdict = &plan.status.verdict;
        self.heading("What would move it");
        self.row("Next", 8, &next(verdict, now));
        if let Some(later) = later::told(&plan.status) {
            self.row("Then", 8, &later);
        }
        for order in &plan.orders {
            let text = format!("{}={}: {}", order.annotation, order.revision, order.text);
            self.row("Order", 8, &text);
        }
        self.lines.extend(ways(verdict, self.layout));
    }

    /// The numbers that a release is judged by.
    fn numbers(&mut self, plan: &PlanExplanation, now: Timestamp) {
        let components = plan.status.components().iter();
        let alike: Vec<_> = components.flat_map(|c| kinds(c.trouble())).collect();
        let told = |kind: &Vec<&PodTrouble>| Some(told(kind.first()?, kind.len() - 1, now));
        let pods: Vec<String> = alike.iter().filter_map(told).collect();
        if !plan.measures.is_empty() || !pods.is_empty() {
            self.heading("What is seen");
        }
        let names = plan.measures.iter().map(|m| width(&m.component) + 2);
        let column = names.max().unwrap_or_default().clamp(NAMES.0, NAMES.1);
        for measure in &plan.measures {
            self.row(&measure.component, column, &measured(measure, now));
        }
        for text in pods.iter().take(PODS) {
            self.text(&format!("✗ {text}"));
        }
        let more: usize = alike.iter().skip(PODS).map(Vec::len).sum();
        if more > 0 {
            self.text(&format!("✗ {more} more pods in trouble"));
        }
        if plan.limits.is_empty() {
            return;
        }
        self.heading("What it is judged by");
        let widest = plan.limits.iter().map(|limit| limit.field.len()).max();
        let column = widest.unwrap_or_default() + 2;
        for limit in &plan.limits {
            let text = format!("{:<6} {}", limit.value, limit.effect);
            self.row(limit.field, column, &text);
        }
    }

    fn decisions(&mut self, plan: &PlanExplanation, now: Timestamp) {
        if plan.decisions.is_empty() {
            return;
        }
        self.heading("What was decided, newest last");
        let stamps: Vec<String> = plan.decisions.iter().map(|d| clock(&d.at, now)).collect();
        let column = stamps.iter().map(String::len).max().unwrap_or_default() + 2;
        for (decision, stamp) in plan.decisions.iter().zip(&stamps) {
            let text = format!("{}: {}", decision.reason, decision.message);
            self.row(stamp, column, &text);
        }
    }

    fn refused(&mut self, plan: &PlanExplanation, now: Timestamp) {
        if plan.refused.is_empty() {
            return;
        }
        self.heading("Content that is not tried again by itself, newest first");
        let widest = plan
            .refused
            .iter()
            .map(|refused| width(&refused.revision))
            .max();
        let column = widest.unwrap_or_default() + 2;
        for refused in &plan.refused {
            let failed = refused.component.as_deref().unwrap_or_default();
            let more = if refused.current {
                " This is what the plan asks for now.".to_owned()
            } else if refused.comes_again {
                format!(" It comes again now, beside other content of {failed}.")
            } else if refused.corrected {
                format!(
                    " Other content of {failed} was released since: what went back beside {failed} is refused only together with what {failed} had then."
                )
            } else {
                String::new()
            };
            let before = refused.failed_before.as_ref();
            let before = before.map_or_else(String::new, |b| format!(" It failed before: {b}."));
            // The answer has it already, in these words or in a line of its own.
            let verdict = &plan.status.verdict;
            let said = refused
                .cause
                .told(refused.component.as_deref(), &refused.message);
            let message = undone::message(refused.cause, &refused.message, &refused.revision);
            let told = refused.cause.told(refused.component.as_deref(), &message);
            let above = verdict.cause.as_ref().map(CauseView::told);
            let is_told = verdict.message.contains(&said) || above.is_some_and(|a| a == told);
            let told = match &refused.component {
                _ if !is_told => told,
                Some(component) => {
                    format!("{:?} of component {component}, see above", refused.cause)
                }
                None => format!("{:?}, see above", refused.cause),
            };
            let text = format!(
                "{told} ({} ago).{more}{before}",
                span(age(&refused.at, now))
            );
            self.row(&refused.revision, column, &text);
        }
    }

    fn deployment(&mut self, about: &DeploymentExplanation) {
        let name = format!("deployment/{}", about.name);
        let missing = if about.exists {
            ""
        } else {
            " It does not exist."
        };
        let text = match (&about.held_by, &about.component) {
            (Some(plan), Some(component)) => {
                format!("is component {component} of releaseplan/{plan}.{missing}")
            }
            (Some(plan), None) => {
                format!("is named by releaseplan/{plan}, which is not valid.{missing}")
            }
            (None, _) => format!("is held by no plan.{missing}"),
        };
        let line = Line::of(Tone::Strong, &name).and(Tone::Plain, &format!(" {text}"));
        let indent = Line::default().to(INDENT);
        self.lines
            .extend(line.wrap(self.layout.width, &indent, usize::MAX));
        for other in &about.also_named_by {
            self.text(&format!(
                "releaseplan/{other} names it, too, and writes nothing while another plan holds it."
            ));
        }
        if about.held_by.is_some() && !about.templated {
            self.text("It is followed: somebody else says what it runs, and the plan guards it.");
        }
        match (about.fields.is_empty(), about.held_by.is_some()) {
            (false, true) => self.text("These fields of its pod template are the plan's:"),
            (false, false) => {
                self.text("These fields of its pod template still have Belay's mark:");
            }
            (true, true) if about.exists => {
                self.text("No field of its pod template is the plan's at present.");
            }
            (true, _) => {}
        }
        for field in &about.fields {
            let value = field.value.as_ref();
            let value = value.map_or_else(String::new, |value| format!(": {value}"));
            self.text(&format!("  {}{value}", field.path));
        }
        if !about.other_writers.is_empty() {
            let text = format!(
                "Other fields were written by {}.",
                about.other_writers.join(", ")
            );
            self.text(&text);
        }
    }
}

fn measured(measure: &Measure, now: Timestamp) -> String {
    let since = &measure.progress_at;
    let mut text = format!(
        "{} of {} pods were available at best; last progress {} ago",
        measure.best_available,
        measure.wanted,
        span(age(since, now))
    );
    match &measure.stuck_at {
        // Nobody has looked since, or it would be over.
        Some(at) if at.0 <= now => {
            let over = span(age(at, now));
            text.push_str(&format!("; stuck since {}, {over} ago", clock(at, now)));
        }
        Some(at) => {
            let left = Duration::try_from(at.0.duration_since(now)).unwrap_or_default();
            text.push_str(&format!("; stuck at {}, in {}", clock(at, now), span(left)));
        }
        None => text.push_str("; its clock does not run"),
    }
    text
}
