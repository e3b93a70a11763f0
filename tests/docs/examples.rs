//! What readers are told to type is what the program takes.

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
            // Of a pipe, the part that is ours.
            let line = line.trim().trim_start_matches("$ ");
            let call = line.split(" | ").find(|part| part.starts_with("belay "));
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
    let tour = text.split("<<'END'\n").nth(1).unwrap();
    let tour = tour.split("\nEND\n").next().unwrap().to_owned();
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
