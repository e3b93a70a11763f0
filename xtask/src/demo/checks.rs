//! What is claimed, as functions of what kubectl said. Each answers what it
//! saw instead. No I/O.

use serde_json::Value;

/// The outcome of a check: what was seen instead, if it does not hold.
pub(crate) type Check = Result<(), String>;

/// Whether a condition holds; `seen` says what was seen.
pub(crate) fn holds(condition: bool, seen: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(seen()) }
}

/// Whether two values are the same.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(seen: &T, wanted: &T) -> Check {
    holds(seen == wanted, || {
        format!("seen: {seen:?}\nwanted: {wanted:?}")
    })
}

/// Whether a text names all of these.
pub(crate) fn names_all(text: &str, words: &[&str]) -> Check {
    let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
    holds(missing.is_empty(), || {
        format!("not in it: {missing:?}\n{text}")
    })
}

/// Whether a denial, as kubectl shows it, names a fault at exactly these paths.
pub(crate) fn faults_at(text: &str, paths: &[&str]) -> Check {
    let mut named: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("* ")?.split_once(": ")?.0))
        .collect();
    let mut wanted = paths.to_vec();
    named.sort_unstable();
    wanted.sort_unstable();
    same(&named, &wanted)
}

/// Whether each of these stands on a line of its own, as YAML.
pub(crate) fn has_lines(yaml: &str, lines: &[&str]) -> Check {
    let missing: Vec<&&str> = lines
        .iter()
        .filter(|wanted| {
            !yaml
                .lines()
                .any(|line| line.trim().trim_start_matches("- ") == **wanted)
        })
        .collect();
    holds(missing.is_empty(), || format!("missing: {missing:?}"))
}

/// Images of a list of Deployments, by name.
pub(crate) fn images(list: &Value) -> Vec<String> {
    let mut images: Vec<String> = items(list)
        .iter()
        .map(|item| text(&item["spec"]["template"]["spec"]["containers"][0]["image"]))
        .collect();
    images.sort_unstable();
    images
}

/// Whether every Deployment of a list is rolled out and available in full.
pub(crate) fn available(list: &Value) -> Check {
    let wanting: Vec<String> = items(list)
        .iter()
        .filter(|item| {
            let wanted = &item["spec"]["replicas"];
            let status = &item["status"];
            let complete = ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|field| status[field] == *wanted);
            !complete || status["observedGeneration"] != item["metadata"]["generation"]
        })
        .map(|item| format!("{}: {}", item["metadata"]["name"], item["status"]))
        .collect();
    holds(wanting.is_empty() && !items(list).is_empty(), || {
        wanting.join("\n")
    })
}

/// What of Belay is on these objects (read with `--show-managed-fields`).
pub(crate) fn nothing_of_belay(list: &Value) -> Check {
    let traces: Vec<String> = items(list)
        .iter()
        .flat_map(|item| {
            let name = text(&item["metadata"]["name"]);
            let managers = item["metadata"]["managedFields"]
                .as_array()
                .into_iter()
                .flatten();
            let managed = managers
                .filter(|entry| entry["manager"] == "belay")
                .map(|entry| format!("managedFields: {entry}"));
            let whole = item.to_string();
            let marked = whole
                .contains("belay.dev")
                .then(|| format!("belay.dev in {whole}"));
            managed
                .chain(marked)
                .map(move |trace| format!("{name}: {trace}"))
                .collect::<Vec<_>>()
        })
        .collect();
    holds(traces.is_empty(), || traces.join("\n"))
}

/// Generations of a list of objects: they rise with every change of a spec.
pub(crate) fn generations(list: &Value) -> Vec<String> {
    items(list)
        .iter()
        .map(|item| {
            format!(
                "{} {}",
                text(&item["metadata"]["name"]),
                item["metadata"]["generation"]
            )
        })
        .collect()
}

/// The reason and the message of a plan's condition.
pub(crate) fn condition(plan: &Value, type_: &str) -> (String, String) {
    let conditions = plan["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == type_);
    found.map_or_else(Default::default, |c| {
        (text(&c["reason"]), text(&c["message"]))
    })
}

/// A JSON string, or nothing.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A call as one would type it.
pub(crate) fn line(program: &str, args: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    let mut line = program.to_owned();
    for arg in args {
        line.push(' ');
        if !arg.is_empty() && arg.chars().all(plain) {
            line.push_str(arg);
        } else {
            line.push_str(&format!("'{}'", arg.replace('\'', r"'\''")));
        }
    }
    line
}

/// From the first line that ends with one text to the next that ends with the
/// other, both included.
pub(crate) fn between<'t>(lines: &[&'t str], first: &str, last: &str) -> Vec<&'t str> {
    let start = lines.iter().position(|line| line.ends_with(first));
    let rest = lines
        .get(start.unwrap_or(lines.len())..)
        .unwrap_or_default();
    let end = rest.iter().position(|line| line.ends_with(last));
    rest.iter()
        .take(end.map_or(rest.len(), |end| end + 1))
        .copied()
        .collect()
}

/// The lines of a watch, without those that only repeat the one before.
pub(crate) fn without_repeats(lines: &[String]) -> String {
    let mut kept = lines.to_vec();
    // The age moves while nothing happens.
    let gist = |line: &String| -> Vec<String> {
        let is_age = |word: &&str| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm'])
        };
        line.split_whitespace()
            .filter(|word| !is_age(word))
            .map(str::to_owned)
            .collect()
    };
    kept.dedup_by_key(|line| gist(line));
    kept.join("\n")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_must_stand_at_its_own_path() {
        let text = "The ReleasePlan \"shop\" is invalid:\n* spec.strategy.rolling: Invalid value: x\n* spec.a[1].name: Duplicate value: y\n";
        assert!(faults_at(text, &["spec.a[1].name", "spec.strategy.rolling"]).is_ok());
        assert!(
            faults_at(text, &["spec.a[1].name"]).is_err(),
            "one too many"
        );
        assert!(faults_at(text, &["spec.a[1].name", "spec.strategy"]).is_err());
    }

    #[test]
    fn a_deployment_in_the_middle_of_a_rollout_is_not_available() {
        let with = |updated: u8, observed: u8| {
            json!({"items": [{
                "metadata": {"name": "cart", "generation": 2},
                "spec": {"replicas": 2},
                "status": {"replicas": 2, "updatedReplicas": updated, "availableReplicas": 2, "observedGeneration": observed},
            }]})
        };
        assert!(available(&with(2, 2)).is_ok());
        assert!(available(&with(1, 2)).is_err());
        assert!(available(&with(2, 1)).is_err());
        assert!(available(&json!({"items": []})).is_err());
    }

    #[test]
    fn traces_of_belay_are_found_but_the_namespace_is_none() {
        let with = |manager: &str, annotations: Value| {
            json!({"items": [{"metadata": {
                "name": "cart", "namespace": "belay-demo", "annotations": annotations,
                "managedFields": [{"manager": manager, "operation": "Apply"}],
            }}]})
        };
        assert!(nothing_of_belay(&with("kubectl", json!({}))).is_ok());
        assert!(nothing_of_belay(&with("belay", json!({}))).is_err());
        assert!(nothing_of_belay(&with("kubectl", json!({"belay.dev/x": ""}))).is_err());
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_would_need_it() {
        assert_eq!(
            line("kubectl", &["get", "pods", "-o", "jsonpath={.a}"]),
            "kubectl get pods -o 'jsonpath={.a}'"
        );
    }

    #[test]
    fn a_part_begins_and_ends_with_the_lines_named() {
        let lines = ["a", " Conditions:", "  x", "  Type: Ready", "b"];
        assert_eq!(between(&lines, "Conditions:", "Ready"), lines[1..4]);
        assert!(between(&lines, "Events:", "Ready").is_empty());
    }

    #[test]
    fn a_line_that_only_grew_older_is_a_repeat() {
        let lines = [
            "shop Stable 1s Released",
            "shop Stable 3s Released",
            "shop Pending 3s X",
        ];
        let lines: Vec<String> = lines.map(str::to_owned).to_vec();
        assert_eq!(without_repeats(&lines).lines().count(), 2);
    }
}
