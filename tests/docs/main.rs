//! The documents say what the code does, as far as a program can tell: names
//! are complete, examples are valid, defaults are right, links lead somewhere.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{fs, path::Path};

use belay::api::crd;
use serde_json::Value;

mod examples;
mod gitops;
mod links;
mod names;

const DOCUMENTS: [&str; 8] = [
    "README.md",
    "docs/plan.md",
    "docs/status.md",
    "docs/commands.md",
    "docs/gitops.md",
    "docs/operating.md",
    "CONTRIBUTING.md",
    "certs/README.md",
];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn schema() -> Value {
    let crd = serde_json::to_value(crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone()
}

/// All documents for people, one after the other.
fn all() -> String {
    DOCUMENTS.map(read).join("\n")
}

/// Text of the documents from a heading, which stands there once, to the next
/// one.
fn section(heading: &str) -> String {
    let all = all();
    let parts: Vec<&str> = all.split(&format!("\n{heading}\n")).collect();
    assert_eq!(parts.len(), 2, "{heading} is there once");
    parts[1].split("\n#").next().unwrap().to_owned()
}

/// Names without a row of their own in the tables under a heading: one whose
/// first cell holds the name as code.
fn without_row(heading: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let text = section(heading);
    let cells: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .collect();
    names
        .into_iter()
        .map(|name| name.as_ref().to_owned())
        .filter(|name| {
            let code = format!("`{name}`");
            !cells.iter().any(|cell| cell.contains(&code))
        })
        .collect()
}

/// Fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match &mut open {
            None if line.trim() == fence => open = Some(String::new()),
            None => {}
            Some(_) if line.trim() == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    blocks
}
