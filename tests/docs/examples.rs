//! What readers are told to type is what the program takes.

use std::{
    fs::{self, File},
    process::Command,
};

use belay::{config::Cli, plan::Plan};
use clap::CommandFactory as _;
use serde_json::Value;

use super::{DOCUMENTS, all, blocks, read};

/// Every line that calls a command is one that the program understands.
#[test]
fn commands_in_examples_can_be_parsed() {
    let mut lines = 0;
    for document in DOCUMENTS {
        for line in read(document).lines() {
            // Of a pipe or a list, the part that is ours.
            let line = line.trim().trim_start_matches("$ ");
            let parts = line.split(" | ").flat_map(|part| part.split("; "));
            let call = parts.into_iter().find(|part| part.starts_with("belay "));
            let Some(call) = call.filter(|_| !line.starts_with('|')) else {
                continue;
            };
            let call = call.split(" #").next().unwrap().split(" >").next().unwrap();
            let words = call.split_whitespace();
            if let Err(error) = Cli::command().try_get_matches_from(words) {
                panic!("{document}: {call}\n{error}");
            }
            lines += 1;
        }
    }
    assert!(lines >= 4, "{lines} lines were found");
}

#[test]
fn every_example_of_a_plan_is_valid() {
    let text = all();
    // The plan of the tour stands in a shell command.
    let tour = written(&text, "shop.yaml");
    let mut plans = 0;
    for text in blocks(&text, "yaml").into_iter().chain([tour]) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in documents.iter().filter(|d| d["kind"] == "ReleasePlan") {
            assert_eq!(document["apiVersion"], "belay.dev/v1alpha1");
            if let Err(violations) = Plan::parse(&document["spec"]) {
                panic!("{violations}\n{text}");
            }
            plans += 1;
        }
    }
    assert!(plans >= 3, "{plans} plans were found");
}

/// A session at a terminal: what was typed, and what was answered.
fn sessions(text: &str) -> Vec<(String, String)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for block in blocks(text, "console") {
        let mut open = false;
        for line in block.lines() {
            match (line.strip_prefix("$ "), calls.last_mut()) {
                (Some(typed), _) => {
                    calls.push((typed.to_owned(), String::new()));
                    open = typed.ends_with('|');
                }
                (None, Some((typed, _))) if open => {
                    typed.push_str(line.trim());
                    open = false;
                }
                (None, Some((_, answer))) => {
                    answer.push_str(line);
                    answer.push('\n');
                }
                (None, None) => unreachable!("an answer to nothing: {line}"),
            }
        }
    }
    calls
}

/// The text of a file that a reader makes by `cat > FILE <<'END'`.
fn written(text: &str, file: &str) -> String {
    let (_, rest) = text.split_once(&format!("cat > {file} <<'END'\n")).unwrap();
    format!("{}\n", rest.split("\nEND\n").next().unwrap())
}

/// The tour and the page that goes on from it can be followed from the top to the
/// bottom: what a line replaces in the file is there, and what comes of it is a
/// plan, where no fault is to be shown.
#[test]
fn examples_fit_what_the_examples_before_them_left() {
    let pages = [read("README.md"), read("docs/commands.md")];
    let mut file = written(&pages[0], "shop.yaml");
    let mut edits = 0;
    for (typed, answer) in pages.iter().flat_map(|page| sessions(page)) {
        let mut edited = file.clone();
        let words: Vec<&str> = typed.split('\'').collect();
        for word in words.iter().filter(|_| typed.contains("sed ")) {
            let parts: Vec<&str> = word.split('/').collect();
            let ["s", from, to, ""] = parts[..] else {
                continue;
            };
            assert!(edited.contains(from), "{typed}\nfinds no {from} in\n{file}");
            edited = edited.replace(from, to);
            edits += 1;
        }
        let faulty = answer.contains("is invalid");
        if !faulty && edited != file {
            let plan: Value = serde_saphyr::from_str(&edited).unwrap();
            assert!(Plan::parse(&plan["spec"]).is_ok(), "{typed}");
        }
        if typed.ends_with("mv next.yaml shop.yaml") {
            file = edited;
        }
    }
    assert!(edits > 10, "{edits} edits were found");
}

fn lint(input: &str, file: &str) -> String {
    let folder = std::env::temp_dir().join(format!("belay-docs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("in.yaml"), input).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    command.args(["lint", "-f", file]).env("NO_COLOR", "1");
    if file == "-" {
        command.stdin(File::open(folder.join("in.yaml")).unwrap());
    } else {
        fs::rename(folder.join("in.yaml"), folder.join(file)).unwrap();
    }
    let output = command.current_dir(&folder).output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
}

/// What the pages show of `lint` is what it prints.
#[test]
fn answers_of_lint_are_real() {
    let (readme, page) = (read("README.md"), read("docs/commands.md"));
    let answer = |page: &str, end: &str| {
        let mut calls = sessions(page).into_iter();
        let (_, answer) = calls.find(|(typed, _)| typed.ends_with(end)).unwrap();
        answer
    };
    let shop = written(&readme, "shop.yaml") + "  baketime: 5m\n";
    assert_eq!(answer(&readme, "belay lint -f -"), lint(&shop, "-"));
    let wrong = written(&page, "wrong.yaml");
    assert_eq!(
        answer(&page, "belay lint -f wrong.yaml"),
        lint(&wrong, "wrong.yaml")
    );
}
