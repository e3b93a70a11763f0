//! The findings of the doctor, for people and for programs.

use serde::Serialize;

use crate::cli::{BAD, Exit, GOOD, WAITS, clean, counted, styled};

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    /// As it should be.
    #[serde(rename = "OK")]
    Ok,
    /// It may do harm, or it could not be seen.
    #[serde(rename = "WARN")]
    Warn,
    /// Belay does not work so.
    #[serde(rename = "FAIL")]
    Fail,
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The thing.
    pub check: &'static str,
    /// How it stands.
    pub level: Level,
    /// What is so.
    pub message: String,
    /// Why, unless it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do, unless it is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order in which things depend on each other.
    pub findings: Vec<Finding>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            message: message.into(),
            cause: None,
            cure: None,
        }
    }

    /// It may do harm, or cannot be seen.
    pub(super) fn warn(
        check: &'static str,
        message: impl Into<String>,
        cause: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warn,
            cause: Some(cause.into()),
            cure: Some(cure.into()),
            ..Self::ok(check, message)
        }
    }

    /// It does not work.
    pub(super) fn fail(
        check: &'static str,
        message: impl Into<String>,
        cause: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(check, message, cause, cure)
        }
    }
}

impl Report {
    /// The report for people: a line for each thing, cause and cure below it.
    #[must_use]
    pub fn text(&self) -> String {
        let wide = self.findings.iter().map(|f| f.check.len()).max();
        let wide = wide.unwrap_or_default();
        let mut text = String::new();
        for finding in &self.findings {
            let (name, style) = match finding.level {
                Level::Ok => ("OK  ", GOOD),
                Level::Warn => ("WARN", WAITS),
                Level::Fail => ("FAIL", BAD),
            };
            text.push_str(&format!(
                "{}  {:wide$}  {}\n",
                styled(style, name),
                finding.check,
                clean(&finding.message)
            ));
            for (what, said) in [("cause", &finding.cause), ("cure", &finding.cure)] {
                if let Some(said) = said {
                    text.push_str(&format!("      {:wide$}  {what}: {}\n", "", clean(said)));
                }
            }
        }
        let count = |level| self.findings.iter().filter(|f| f.level == level).count();
        let summary = match (count(Level::Fail), count(Level::Warn)) {
            (0, 0) => "all is well".to_owned(),
            (0, warnings) => format!("no failures, {}", counted(warnings, "warning")),
            (failures, 0) => counted(failures, "failure"),
            (failures, warnings) => format!(
                "{}, {}",
                counted(failures, "failure"),
                counted(warnings, "warning")
            ),
        };
        text.push_str(&summary);
        text.push('\n');
        text
    }

    /// How the command ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.findings.iter().any(|f| f.level == Level::Fail) {
            Exit::Failed
        } else {
            Exit::Done
        }
    }

    /// The things that do not work.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        let failed = self.findings.iter().filter(|f| f.level == Level::Fail);
        failed.map(|finding| finding.check.to_owned()).collect()
    }
}
