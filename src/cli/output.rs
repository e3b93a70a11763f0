//! The form of answers: text for people, and one versioned structure for
//! programs.
//!
//! Everything that `-o json` and `-o yaml` print is a [`Document`], or a list
//! of them. A field may be added; none changes its meaning or goes without a
//! new version.

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::{COMMON, CliError, Exit, HEADING, Invocation, SomePlans, Streams, styled};

/// Version of what `-o json` prints.
pub const API_VERSION: &str = "cli.belay.dev/v1";

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// The names only, one on a line.
    Name,
}

/// The flag `-o`, for every command that reads.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Print for programs instead of for people.
    #[arg(short, long, value_enum, value_name = "FORM", help_heading = COMMON)]
    pub output: Option<Format>,
}

/// An answer for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    body: T,
}

impl<T: Serialize> Document<T> {
    /// An answer of a kind, such as `History`.
    pub const fn new(kind: &'static str, body: T) -> Self {
        Self {
            api_version: API_VERSION,
            kind,
            body,
        }
    }
}

/// Several answers in one document.
#[derive(Debug, Serialize)]
struct Items<T> {
    items: Vec<T>,
}

/// A number with its noun.
pub(super) fn counted(count: usize, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        many => format!("{many} {name}s"),
    }
}

/// A name as `-o name` prints it and as commands take it.
#[must_use]
pub fn plan_name(name: &str) -> String {
    format!("releaseplan.belay.dev/{name}")
}

/// Writes one answer in a form for programs; `names` are the lines of
/// `-o name`.
///
/// # Errors
/// The answer cannot be written.
pub fn print<T: Serialize>(
    streams: &mut Streams<'_>,
    format: Format,
    document: &Document<T>,
    names: &[String],
) -> Result<(), CliError> {
    match format {
        Format::Json => {
            let text = serde_json::to_string_pretty(document).map_err(form)?;
            writeln!(streams.out, "{text}")?;
        }
        Format::Yaml => {
            let text = serde_saphyr::to_string(document).map_err(form)?;
            write!(streams.out, "{text}")?;
        }
        Format::Name => {
            for name in names {
                writeln!(streams.out, "{name}")?;
            }
        }
    }
    Ok(())
}

/// Writes several answers of one kind as a document of the kind `<kind>List`,
/// or the only one as itself, as kubectl does.
///
/// # Errors
/// The answer cannot be written.
pub fn print_all<T: Serialize>(
    streams: &mut Streams<'_>,
    format: Format,
    list_kind: &'static str,
    mut documents: Vec<Document<T>>,
    one: bool,
    names: &[String],
) -> Result<(), CliError> {
    if one
        && documents.len() == 1
        && let Some(document) = documents.pop()
    {
        return print(streams, format, &document, names);
    }
    let items = Items { items: documents };
    print(streams, format, &Document::new(list_kind, items), names)
}

/// An answer about one plan, of a command that gives one for each.
pub(super) trait PerPlan: Serialize {
    /// Its kind as a document, and that of a list of them.
    const KINDS: (&'static str, &'static str);

    /// Namespace and name of the plan.
    fn plan(&self) -> (&str, &str);

    /// Writes it for people.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&self, streams: &mut Streams<'_>, now: Timestamp) -> Result<(), CliError>;
}

/// Writes the answers in the form that was asked for.
///
/// # Errors
/// They cannot be written.
pub(super) fn tell<T: PerPlan>(
    answers: Vec<T>,
    plans: &SomePlans,
    output: Output,
    call: &mut Invocation<'_>,
) -> Result<Exit, CliError> {
    let streams = &mut call.streams;
    if let Some(format) = output.output {
        let names: Vec<String> = answers.iter().map(|one| plan_name(one.plan().1)).collect();
        let (kind, list) = T::KINDS;
        let documents = answers.into_iter();
        let documents = documents.map(|one| Document::new(kind, one)).collect();
        let one = plans.targets.len() == 1;
        print_all(streams, format, list, documents, one, &names)?;
        return Ok(Exit::Done);
    }
    let now = call.clock.now();
    if answers.is_empty() {
        writeln!(streams.err, "no plans found")?;
    }
    for (index, one) in answers.iter().enumerate() {
        if index > 0 {
            writeln!(streams.out)?;
        }
        if answers.len() > 1 {
            let (namespace, name) = one.plan();
            let title = format!("{namespace}/{name}");
            writeln!(streams.out, "{}", styled(HEADING, &title))?;
        }
        one.write(streams, now)?;
    }
    Ok(Exit::Done)
}

fn form(error: impl std::fmt::Display) -> CliError {
    CliError::Form(error.to_string())
}
