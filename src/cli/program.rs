//! The name that the program was called by, which its help and hints repeat.

use std::{ffi::OsStr, path::Path};

use clap::{Command, CommandFactory as _};

use super::exit;
use crate::config::Cli;

/// The name that the program was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `belay`.
    Belay,
    /// `kubectl-belay`, which people call as `kubectl belay`.
    Plugin,
    /// `kubectl_complete-belay`, which kubectl calls to complete a line.
    Complete,
}

impl Program {
    /// From the first word of the command line.
    #[must_use]
    pub fn from_argv0(argv0: Option<&OsStr>) -> Self {
        let stem = argv0.and_then(|path| Path::new(path).file_stem()?.to_str());
        match stem {
            Some("kubectl-belay") => Self::Plugin,
            Some("kubectl_complete-belay") => Self::Complete,
            _ => Self::Belay,
        }
    }

    /// As a person types it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Belay => "belay",
            Self::Plugin | Self::Complete => "kubectl belay",
        }
    }

    /// The command line, whose help names the form it was called by.
    #[must_use]
    pub fn command(self) -> Command {
        let command = Cli::command().after_help(exit::help());
        if self == Self::Belay {
            return command;
        }
        let mut command = command.bin_name(self.name());
        let names: Vec<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in names {
            command = command.mut_subcommand(name, |sub| match sub.get_after_help() {
                Some(help) => {
                    let help = help.to_string();
                    sub.after_help(self.rename(&help))
                }
                None => sub,
            });
        }
        command
    }

    /// Examples, in the form that the program was called by.
    #[must_use]
    pub fn rename(self, examples: &str) -> String {
        if self == Self::Belay {
            return examples.to_owned();
        }
        let lines = examples.split('\n').map(|line| {
            let bare = line.trim_start();
            match bare.strip_prefix("belay ") {
                Some(rest) => {
                    let indent = &line[..line.len() - bare.len()];
                    format!("{indent}{} {rest}", self.name())
                }
                None => line.replace(" | belay ", &format!(" | {} ", self.name())),
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(program: Program, verb: &str) -> String {
        let mut command = program.command();
        command.build();
        let sub = command.find_subcommand_mut(verb).unwrap();
        sub.render_long_help().to_string()
    }

    #[test]
    fn the_name_comes_from_the_link_that_was_called() {
        let program = |name: &str| Program::from_argv0(Some(OsStr::new(name)));
        assert_eq!(program("/usr/local/bin/belay"), Program::Belay);
        assert_eq!(program("/usr/local/bin/kubectl-belay"), Program::Plugin);
        assert_eq!(program("kubectl-belay.exe"), Program::Plugin);
        assert_eq!(program("kubectl_complete-belay"), Program::Complete);
        assert_eq!(Program::from_argv0(None), Program::Belay);
    }

    #[test]
    fn help_names_the_form_that_the_program_was_called_by() {
        let plain = help(Program::Belay, "completion");
        assert!(plain.contains("Usage: belay completion "), "{plain}");
        assert!(plain.contains("\n  belay completion fish"), "{plain}");
        let plugin = help(Program::Plugin, "completion");
        assert!(
            plugin.contains("Usage: kubectl belay completion "),
            "{plugin}"
        );
        assert!(
            plugin.contains("\n  kubectl belay completion fish"),
            "{plugin}"
        );
    }

    /// Whoever reads the help of a command wants to see it used, and to use it.
    #[test]
    fn every_command_for_people_has_examples_that_can_be_parsed() {
        for command in Program::Belay.command().get_subcommands() {
            if ["run", "crd"].contains(&command.get_name()) {
                continue;
            }
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let mut examples = 0;
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                let mut parts = line.trim().split(" | ");
                let Some(call) = parts.find(|part| part.starts_with("belay ")) else {
                    continue;
                };
                let call = call.split(['#', '>']).next().unwrap();
                let words = call.split_whitespace();
                if let Err(error) = Cli::command().try_get_matches_from(words) {
                    panic!("{line}\n{error}");
                }
                examples += 1;
            }
            assert!(examples > 0, "{}", command.get_name());
        }
    }
}
