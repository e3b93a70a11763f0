//! How a wait ended, as programs and people read it: the exit code and the last
//! line. Decides nothing of what a plan means.

use serde::Serialize;

use super::{
    For, Form,
    verdict::{Outcome, State, UNANSWERED},
    waited::Waited,
};
use crate::cli::{
    BAD, CliError, Document, Exit, GOOD, Kind, Session, Streams, Target, WAITS, clean, styled,
};

/// What is printed at the end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitResult {
    namespace: Option<String>,
    name: Option<String>,
    result: Option<Outcome>,
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stable_revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release_generation: Option<i64>,
    exit: u8,
}

impl WaitResult {
    /// How it ended for one plan.
    pub(super) fn of(waited: Waited, exit: Exit) -> Self {
        let result = waited.outcome();
        let State {
            reason,
            message,
            revision,
            stable,
            ..
        } = waited.state;
        Self {
            namespace: Some(waited.namespace),
            name: Some(waited.name),
            result,
            reason,
            message,
            revision,
            stable_revision: stable,
            release_generation: waited.asked,
            exit: exit.code(),
        }
    }

    /// What was to be waited for, one for each object that was named, when nothing
    /// could be read of it.
    pub(super) fn unanswered(
        targets: &[Target],
        namespace: Option<&str>,
        generation: Option<i64>,
        session: &Session,
    ) -> Result<Vec<Self>, CliError> {
        let unknown = |namespace: Option<&str>, name: Option<&str>, generation| Self {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            result: None,
            reason: UNANSWERED.to_owned(),
            message: "the API server did not answer in time".to_owned(),
            revision: None,
            stable_revision: None,
            release_generation: generation,
            exit: Exit::Timeout.code(),
        };
        if targets.is_empty() {
            return Ok(vec![unknown(namespace, None, generation)]);
        }
        let all = targets.iter().map(|target| {
            let namespace = session.namespace_of(target)?;
            let name = (target.kind == Kind::Plan).then_some(target.name.as_str());
            let generation = generation.or(target.generation);
            Ok(unknown(Some(namespace), name, generation))
        });
        all.collect()
    }

    /// Prints it: for programs on standard output, for people beside it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn print(
        self,
        streams: &mut Streams<'_>,
        form: Option<Form>,
        exit: Exit,
    ) -> Result<(), CliError> {
        if form == Some(Form::Json) {
            let document = Document::new("WaitResult", self);
            let text =
                serde_json::to_string(&document).map_err(|e| CliError::Form(e.to_string()))?;
            writeln!(streams.out, "{text}")?;
            return Ok(());
        }
        let style = match exit {
            Exit::Done => GOOD,
            Exit::Person | Exit::Timeout => WAITS,
            Exit::Failed | Exit::Error | Exit::Interrupted => BAD,
        };
        if !self.message.is_empty() {
            let name = self.name.as_ref();
            let name = name.map(|name| format!("{} ", styled(style, &format!("{name}:"))));
            let name = name.unwrap_or_default();
            writeln!(streams.err, "{name}{}", clean(&self.message))?;
        }
        let word = self
            .result
            .map_or_else(|| "Timeout".to_owned(), |outcome| format!("{outcome:?}"));
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        writeln!(
            streams.out,
            "result={word} reason={} plan={}/{} generation={} revision={} stable={} exit={}",
            clean(&self.reason),
            or_none(self.namespace),
            or_none(self.name),
            or_none(self.release_generation.map(|number| number.to_string())),
            or_none(self.revision),
            or_none(self.stable_revision),
            self.exit,
        )?;
        Ok(())
    }
}

/// The exit code of one plan; without an outcome it has not come to an end.
pub(super) fn exit(outcome: Option<Outcome>, goal: For) -> Exit {
    let Some(outcome) = outcome else {
        return Exit::Timeout;
    };
    match (goal, outcome) {
        (_, Outcome::Deleted) => Exit::Failed,
        (_, Outcome::Ignored) => Exit::Error,
        (For::Settled, _)
        | (For::Released, Outcome::Released)
        | (For::Rolledback, Outcome::RolledBack)
        | (For::Undone, Outcome::Undone) => Exit::Done,
        (_, Outcome::Held) => Exit::Person,
        _ => Exit::Failed,
    }
}

/// The exit code of several plans: a failure before a hold, a hold before a
/// timeout.
pub(super) fn worse(a: Exit, b: Exit) -> Exit {
    let rank = |exit| match exit {
        Exit::Done => 0,
        Exit::Timeout => 1,
        Exit::Person => 2,
        Exit::Failed => 3,
        Exit::Error | Exit::Interrupted => 4,
    };
    if rank(b) > rank(a) { b } else { a }
}
