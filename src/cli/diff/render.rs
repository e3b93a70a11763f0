//! What `belay diff` looks like: differences on standard output, everything
//! else beside it.

use super::model::{Part, PlanDiff};
use crate::cli::{
    BAD, CliError, FAINT, GOOD, HEADING, Streams, WAITS,
    status::text::{Line, Tone},
    styled,
};

/// Writes the differences of a plan.
pub(super) fn write(
    diff: &PlanDiff,
    paths: bool,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    for note in &diff.notes {
        let line = Line::of(Tone::Plain, note);
        writeln!(streams.err, "{} {}", styled(WAITS, "note:"), line.plain())?;
    }
    for component in &diff.components {
        for part in &component.parts {
            if paths {
                by_path(&component.name, part, streams)?;
            } else {
                unified(&component.name, part, streams)?;
            }
        }
    }
    for fault in &diff.faults {
        let line = Line::of(Tone::Plain, fault);
        writeln!(streams.err, "{} {}", styled(BAD, "error:"), line.plain())?;
    }
    if diff.components.is_empty() && diff.faults.is_empty() {
        let text = format!("a release of {} would change nothing", diff.name);
        writeln!(streams.err, "{}", styled(FAINT, &text))?;
    }
    Ok(())
}

fn by_path(component: &str, part: &Part, streams: &mut Streams<'_>) -> Result<(), CliError> {
    for change in &part.changes {
        let line = Line::of(Tone::Plain, &format!("{component}: {}", change.text));
        writeln!(streams.out, "{}", line.plain())?;
    }
    Ok(())
}

fn unified(component: &str, part: &Part, streams: &mut Streams<'_>) -> Result<(), CliError> {
    let title = format!("component {component}: {}", part.what);
    writeln!(streams.out, "{}", styled(HEADING, &title))?;
    for text in part.unified.lines() {
        let style = match text.as_bytes().first() {
            Some(b'+') => Some(GOOD),
            Some(b'-') => Some(BAD),
            Some(b'@') => Some(FAINT),
            _ => None,
        };
        let line = Line::of(Tone::Plain, text).plain();
        match style {
            Some(style) => writeln!(streams.out, "{}", styled(style, &line))?,
            None => writeln!(streams.out, "{line}")?,
        }
    }
    Ok(())
}
