//! What the linter found, for people and for programs.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

use super::{
    files::{Source, Unreadable},
    judge::{Fault, Judge, Rule},
    place,
};
use crate::cli::{Exit, clean, clean_lines, counted};

/// Columns of a source line that are shown where the width is not known.
const WIDTH: usize = 120;

/// All that was found.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Files that were judged.
    pub files: usize,
    /// Plans in them.
    pub plans: usize,
    /// Objects of other kinds, which are not judged.
    pub skipped: usize,
    /// What is wrong, in the order of the files.
    pub faults: Vec<Finding>,
    /// What could not be read.
    pub unreadable: Vec<String>,
    #[serde(skip)]
    shown: Vec<Shown>,
}

/// One fault with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file, or `stdin`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The field; absent for a document that cannot be read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// Who finds fault.
    pub rule: Rule,
}

/// The source line of a finding, and the part of it that is meant.
#[derive(Clone, Debug)]
struct Shown {
    line: String,
    part: Range<usize>,
}

impl Report {
    /// Has sources judged.
    pub(super) fn of(judge: &Judge, sources: &[Source], unreadable: &[Unreadable]) -> Self {
        let mut report = Self {
            files: sources.len(),
            unreadable: unreadable.iter().map(ToString::to_string).collect(),
            ..Self::default()
        };
        for source in sources {
            let judged = judge.file(&source.text);
            report.plans += judged.plans;
            report.skipped += judged.skipped;
            for fault in judged.faults {
                report.add(source, fault);
            }
        }
        report
    }

    fn add(&mut self, source: &Source, fault: Fault) {
        let at = place::position(&source.text, fault.span.start);
        let (line, start) = place::line(&source.text, fault.span.start);
        let from = (fault.span.start.saturating_sub(start)).min(line.len());
        let to = (fault.span.end.saturating_sub(start)).min(line.len());
        let part = line.get(from..to.max(from)).unwrap_or_default();
        let before = shown(line.get(..from).unwrap_or_default()).len();
        self.shown.push(Shown {
            part: before..before + shown(part.trim_end()).len(),
            line: shown(line),
        });
        self.faults.push(Finding {
            file: source.name.clone(),
            line: at.line,
            column: at.column,
            path: fault.path,
            message: fault.message,
            rule: fault.rule,
        });
    }

    /// The report for people: each fault with its line, then the count.
    #[must_use]
    pub fn text(&self, width: Option<usize>) -> String {
        let renderer = Renderer::styled().term_width(width.unwrap_or(WIDTH));
        let mut text = String::new();
        for (finding, shown) in self.faults.iter().zip(&self.shown) {
            text.push_str(&clean_lines(&finding.headline()));
            text.push('\n');
            let snippet = Snippet::source(&shown.line)
                .line_start(finding.line)
                .annotation(AnnotationKind::Primary.span(shown.part.clone()));
            let group = Group::with_level(Level::ERROR).element(snippet);
            text.push_str(&renderer.render(&[group]));
            text.push_str("\n\n");
        }
        text.push_str(&self.summary());
        text.push('\n');
        text
    }

    /// The files that have faults, each once.
    #[must_use]
    pub fn faulty(&self) -> Vec<String> {
        let mut files: Vec<String> = self.faults.iter().map(|f| f.file.clone()).collect();
        files.dedup();
        files
    }

    /// How the command ends.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        if !self.unreadable.is_empty() {
            Exit::Error
        } else if self.faults.is_empty() {
            Exit::Done
        } else {
            Exit::Failed
        }
    }

    /// One line with the counts.
    #[must_use]
    pub fn summary(&self) -> String {
        let unread = self.unreadable.len();
        if self.files == 0 && unread > 0 {
            return "nothing was judged".to_owned();
        }
        let files = counted(self.files, "file");
        let mut text = match (self.plans, self.faults.len()) {
            // No verdict about what is not there.
            (0, 0) => format!("no plan in {files}"),
            (plans, faults) => {
                let faults = match faults {
                    0 => "no faults".to_owned(),
                    many => counted(many, "fault"),
                };
                format!("{} in {files}: {faults}", counted(plans, "plan"))
            }
        };
        if self.skipped > 0 {
            let objects = counted(self.skipped, "object");
            text.push_str(&format!("; {objects} of other kinds not judged"));
        }
        if unread > 0 {
            text.push_str(&format!("; {unread} more cannot be read"));
        }
        text
    }
}

/// A line of a file without what could do anything to a terminal: a blank for
/// each such character, so that places in it stay where they are. What tabs are
/// shown as is decided with the rest of the frame.
fn shown(line: &str) -> String {
    let parts: Vec<String> = line.split('\t').map(clean).collect();
    parts.join("\t")
}

impl Finding {
    /// `file:line:column: path: message`.
    fn headline(&self) -> String {
        let Self {
            file,
            line,
            column,
            path,
            message,
            ..
        } = self;
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("{path}: ")
        };
        format!("{file}:{line}:{column}: {path}{message}")
    }
}
