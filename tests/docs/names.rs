//! Everything that users can meet has a row of its own somewhere.

use belay::{
    api::{ConditionType, Reason},
    cli::Exit,
    config::Cli,
};
use clap::CommandFactory as _;
use serde_json::Value;

use super::{all, read, schema, section, without_row};

#[test]
fn every_reason_and_condition_is_explained() {
    let types = [
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Stalled,
        ConditionType::RollingOut,
        ConditionType::RollbackInProgress,
        ConditionType::Stable,
    ];
    let missing = without_row("## Conditions", types.map(ConditionType::as_str));
    assert_eq!(missing, [""; 0], "conditions without a row");
    let groups = [NOTHING, BY_ITSELF, PERSON].map(reasons_of);
    for reason in Reason::ALL {
        let found = groups.iter().flatten().filter(|found| *found == reason);
        assert_eq!(found.count(), 1, "rows of {reason}");
    }
}

const NOTHING: &str = "### Nothing to do";
const BY_ITSELF: &str = "### Goes on by itself";
const PERSON: &str = "### Waits for a person";

/// Reasons that have a row under a heading.
fn reasons_of(heading: &str) -> Vec<Reason> {
    let text = section(heading);
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let name = |row: &str| row.split('`').next().unwrap().to_owned();
    rows.map(|row| serde_json::from_value(name(row).into()).unwrap())
        .collect()
}

/// What waits for a person is what ends a wait, and no warning is told as one that
/// nobody has to look at.
#[test]
fn reasons_stand_in_the_group_that_the_code_puts_them_in() {
    for reason in reasons_of(NOTHING) {
        assert!(!reason.is_warning(), "{reason} is a warning");
    }
    let source = include_str!("../../src/cli/wait/verdict.rs");
    let arms = lines_between(source, "fn outcome(", "}").join(" ");
    let (ends, goes_on) = arms.split_once("// Work, or what the operator").unwrap();
    let mut told = 0;
    for reason in Reason::ALL {
        let stands_in = |arms: &str| {
            let mut words = arms.split(|c: char| !c.is_alphanumeric() && c != ':');
            words.any(|word| word.strip_prefix("Reason::") == Some(reason.as_str()))
        };
        assert_ne!(stands_in(ends), stands_in(goes_on), "{reason}");
        let waits = reasons_of(PERSON).contains(reason);
        assert_eq!(waits, stands_in(ends), "{reason} waits for a person");
        told += usize::from(waits);
    }
    assert!(told > 10, "{told} reasons were found");
}

/// What is shown of tracked ConfigMaps is what the command prints.
#[test]
fn the_status_of_config_maps_is_shown_as_it_is() {
    let golden = include_str!("../../src/cli/status/golden/configuration_80.txt");
    let (_, components) = golden.split_once("STATE\n").unwrap();
    assert!(all().contains(components), "{components}");
}

#[test]
fn every_phase_and_cause_is_explained() {
    let status = &schema()["status"]["properties"];
    let causes = &status["refused"]["items"]["properties"]["cause"]["enum"];
    for (heading, list) in [
        ("## Phases", &status["phase"]["enum"]),
        ("## Causes of a rollback", causes),
    ] {
        let names: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(names.len() > 5, "{list}");
        let missing = without_row(heading, names);
        assert_eq!(missing, [""; 0], "values without a row");
    }
}

/// The names come from the source, since a metric without a value is not
/// rendered.
#[test]
fn every_metric_is_explained() {
    let source = include_str!("../../src/metrics.rs");
    let names: Vec<String> = source
        .split("registry.register")
        .skip(1)
        .map(|call| format!("belay_{}", call.split('"').nth(1).unwrap()))
        .collect();
    assert!(names.len() > 5, "{names:?}");
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| {
            // Counters and units have a suffix.
            ["", "_total", "_seconds"].iter().all(|suffix| {
                let name = format!("{name}{suffix}");
                !without_row("## Watching the operator", [name]).is_empty()
            })
        })
        .collect();
    assert_eq!(missing, [""; 0], "metrics without a row");
}

/// An alert on a name that nobody serves is never raised.
#[test]
fn alerts_are_on_metrics_that_there_are() {
    let alerts = section("## Alerts");
    let words = alerts.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("belay_"));
    let names = names.map(|name| {
        // Series of a histogram.
        let series = ["_bucket", "_count"].iter();
        let mut stems = series.filter_map(|end| name.strip_suffix(end));
        stems.next().unwrap_or(name)
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 5, "{names:?}");
    let missing = without_row("## Watching the operator", names);
    assert_eq!(missing, [""; 0], "alerts on other names");
}

/// The same for a label that no plan ever has.
#[test]
fn alerts_are_on_reasons_that_there_are() {
    let alerts = section("## Alerts");
    let matchers = alerts.split("{reason").skip(1);
    let names = matchers.flat_map(|rest| rest.split('"').nth(1).unwrap().split('|'));
    let known = |name: &str| Reason::ALL.iter().any(|reason| reason.as_str() == name);
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 2, "{names:?}");
    let missing: Vec<&str> = names.into_iter().filter(|name| !known(name)).collect();
    assert_eq!(missing, [""; 0], "alerts on other reasons");
}

/// Paths of the fields below a schema, with their defaults. What is below a
/// pod template is not Belay's.
fn fields(path: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let (below, inner) = match field["type"].as_str() {
            Some("array") => (format!("{path}[]"), &field["items"]),
            _ => (path.clone(), field),
        };
        if name == "template" || inner["properties"].is_null() {
            found.push((path, field["default"].clone()));
        } else {
            fields(&below, inner, found);
        }
    }
}

#[test]
fn every_field_of_the_spec_is_explained_with_its_default() {
    let mut found = Vec::new();
    fields("", &schema()["spec"], &mut found);
    assert!(found.len() > 20, "{found:?}");
    assert_eq!(
        without_row("## Fields of `spec`", found.iter().map(|(path, _)| path)),
        [""; 0],
        "fields without a row"
    );
    let table = section("## Fields of `spec`");
    for (path, default) in &found {
        let text = match default {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let row = format!("| `{path}` | `{text}` |");
        assert!(table.contains(&row), "no row begins {row}");
    }
}

/// What `kubectl explain` shows: it knows a default and the values of a list of
/// words only if the text names them.
fn unexplained(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let text = field["description"].as_str().unwrap_or_default();
        let default = match &field["default"] {
            Value::String(text) => Some(text.clone()),
            Value::Null | Value::Object(_) => None,
            other => Some(other.to_string()),
        };
        let default = default.map(|default| format!("Default: {default}"));
        let words = field["enum"].as_array().into_iter().flatten();
        let words = words.filter_map(Value::as_str).map(str::to_owned);
        let missing: Vec<String> = words
            .chain(default)
            .chain(Some(String::new()).filter(|_| text.is_empty()))
            .filter(|part| part.is_empty() || !text.contains(part.as_str()))
            .collect();
        if !missing.is_empty() {
            found.push(format!("{path}: {missing:?}"));
        }
        if name == "template" {
            continue;
        }
        unexplained(&path, field, found);
        unexplained(&format!("{path}[]"), &field["items"], found);
    }
}

#[test]
fn every_field_of_the_spec_explains_itself_with_its_values_and_default() {
    let mut found = Vec::new();
    unexplained("spec", &schema()["spec"], &mut found);
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_flag_is_explained() {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").unwrap();
    let flags: Vec<String> = run
        .get_arguments()
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    assert!(flags.len() > 5, "{flags:?}");
    let missing = without_row("## Settings", flags);
    assert_eq!(missing, [""; 0], "flags without a row");
}

#[test]
fn every_command_and_exit_code_is_explained() {
    let cli = Cli::command();
    let commands = cli.get_subcommands().map(clap::Command::get_name);
    let people = commands.filter(|name| !["run", "crd"].contains(name));
    let missing = without_row("# Commands", people);
    assert_eq!(missing, [""; 0], "commands without a row");
    let codes = Exit::ALL.map(|exit| exit.code().to_string());
    let missing = without_row("## Exit codes", codes);
    assert_eq!(missing, [""; 0], "exit codes without a row");
}

#[test]
fn tags_of_the_local_cluster_are_explained() {
    let stages = read("testenv/stages/pod.yaml");
    let tags: Vec<&str> = stages
        .lines()
        .take_while(|line| line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("#   -"))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert!(tags.len() > 3, "{tags:?}");
    let names = tags.iter().map(|tag| format!("-{tag}"));
    let missing = without_row("## A two-minute tour", names);
    assert_eq!(missing, [""; 0], "tags without a row");
}

/// Lines of a source file from the one that holds `from` to the one that is `to`.
fn lines_between<'a>(source: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let lines = source.lines().skip_while(|line| !line.contains(from));
    lines
        .skip(1)
        .take_while(|line| *line != to)
        .map(str::trim)
        .collect()
}

/// The enum is not for other crates, so its names come from the source.
#[test]
fn every_result_of_wait_is_explained_with_the_reasons_that_mean_it() {
    let source = include_str!("../../src/cli/wait/verdict.rs");
    let outcomes: Vec<&str> = lines_between(source, "enum Outcome", "}")
        .into_iter()
        .filter_map(|line| line.strip_suffix(','))
        .collect();
    assert!(outcomes.len() > 5, "{outcomes:?}");
    let missing = without_row("## In a pipeline", outcomes.iter().chain(&["Timeout"]));
    assert_eq!(missing, [""; 0], "results without a row");
    let text = section("## In a pipeline");
    let arms = lines_between(source, "fn outcome(", "}").join(" ");
    let words = arms.split(|c: char| !c.is_alphanumeric() && c != ':');
    let (mut reasons, mut told) = (Vec::new(), 0);
    for word in words {
        if let Some(reason) = word.strip_prefix("Reason::") {
            reasons.push(reason);
        } else if let Some(outcome) = word.strip_prefix("Outcome::") {
            let start = format!("| `{outcome}` |");
            let row = text.lines().find(|line| line.starts_with(&start));
            let row = row.unwrap_or_else(|| panic!("no row {start}"));
            for reason in reasons.drain(..) {
                assert!(row.contains(&format!("`{reason}`")), "{reason}: {row}");
                told += 1;
            }
        } else if word == "None" {
            reasons.clear();
        }
    }
    assert!(told > 10, "{told} reasons were found");
}

#[test]
fn what_a_pipeline_reads_is_explained() {
    let source = include_str!("../../src/cli/wait/told.rs");
    let line = source.split("\"result={word} ").nth(1).unwrap();
    let line = line.split('"').next().unwrap();
    let fields: Vec<&str> = line
        .split(' ')
        .filter_map(|field| field.split('=').next())
        .collect();
    assert!(fields.len() > 4, "{fields:?}");
    let missing = without_row("## In a pipeline", fields.iter().chain(&["result"]));
    assert_eq!(missing, [""; 0], "fields without a row");
    for reason in ["`Unseen`", "`Unanswered`"] {
        assert!(section("## In a pipeline").contains(reason));
    }
}

#[test]
fn what_history_and_events_call_things_is_explained() {
    let status = &schema()["status"]["properties"];
    let record = &status["history"]["items"]["properties"];
    for field in ["kind", "result"] {
        let names = record[field]["enum"].as_array().unwrap();
        let names = names.iter().filter_map(Value::as_str);
        let missing = without_row("## Looking back", names);
        assert_eq!(missing, [""; 0], "{field} without a row");
    }
    let history = include_str!("../../src/cli/history.rs");
    for word in ["under way", "failing"] {
        assert!(history.contains(&format!("=> \"{word}\"")), "{word}");
        assert_eq!(without_row("## Looking back", [word]), [""; 0]);
    }
    let events = include_str!("../../src/cli/events.rs");
    let types = lines_between(events, "let (style, type_)", "        };");
    let types: Vec<&str> = types
        .iter()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(types.len() > 3, "{types:?}");
    let missing = without_row("## Looking back", types);
    assert_eq!(missing, [""; 0], "types without a row");
}
