//! What the linter says, and that it says it about every input.

mod agreement;
mod reading;

use expect_test::expect_file;

use super::*;

/// The report on a text, as people see it without colours.
fn report(text: &str) -> String {
    let report = lint(&["-".into()], &mut text.as_bytes());
    anstream::adapter::strip_str(&report.text(None)).to_string()
}

fn faults(text: &str) -> Vec<String> {
    let report = lint(&["-".into()], &mut text.as_bytes());
    let place = |f: &Finding| format!("{}:{} {}: {}", f.line, f.column, f.path, f.message);
    report.faults.iter().map(place).collect()
}

const FAULTY: &str = r#"# All faults are told, each once.
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata:
  name: Shop
  labels: {team: yes}
spec:
  components:
  - workload: {kind: Deployment, name: cart}
    template:
      spec:
        containers:
        - {name: app, image: "cart:1"}
        - {name: app, image: "cart:2"}
  - name: web
    workload:
      kind: Job
    after: [cart, web, db]
  bakeTime: a while
  failfast: {restarts: 5}
  retry: {maxRetries: 0}
  revisionHistoryLimit: "10"
  strategy: {}
"#;

#[test]
fn every_fault_is_told_once_with_its_line() {
    expect_file!["tests/faulty.txt"].assert_eq(&report(FAULTY));
}

#[test]
fn a_sound_plan_has_no_fault_whatever_stands_beside_it() {
    let text = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: any, name: twice}
---
# nothing but a comment
---
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata: {name: shop, creationTimestamp: null}
spec:
  components: [{workload: {kind: Deployment, name: cart}}]
  strategy: null
---
image: not an object of Kubernetes
";
    assert_eq!(
        report(text),
        "1 plan in 1 file: no faults; 2 objects of other kinds not judged\n"
    );
}

#[test]
fn over_what_holds_no_plan_or_was_not_read_there_is_no_verdict() {
    let said = |names: &[&str], stdin: &str| {
        let names: Vec<PathBuf> = names.iter().map(Into::into).collect();
        let report = lint(&names, &mut stdin.as_bytes());
        (report.summary(), report.exit())
    };
    let none = "/nonexistent/plans";
    let service = "{apiVersion: v1, kind: Service}";
    let plan = "{apiVersion: belay.dev/v1alpha1, kind: ReleasePlan, metadata: {name: a}, \
                spec: {components: [{workload: {kind: Deployment, name: a}}]}}";
    for (names, stdin, summary, exit) in [
        (vec![none], "", "nothing was judged", Exit::Error),
        (vec!["-"], "", "nothing was judged", Exit::Error),
        (
            vec!["-"],
            "# only a comment",
            "no plan in 1 file",
            Exit::Done,
        ),
        (
            vec!["-"],
            service,
            "no plan in 1 file; 1 object of other kinds not judged",
            Exit::Done,
        ),
        (
            vec!["-", none],
            plan,
            "1 plan in 1 file: no faults; 1 more cannot be read",
            Exit::Error,
        ),
        (
            vec!["-", none],
            service,
            "no plan in 1 file; 1 object of other kinds not judged; 1 more cannot be read",
            Exit::Error,
        ),
    ] {
        assert_eq!(
            said(&names, stdin),
            (summary.to_owned(), exit),
            "{names:?} {stdin}"
        );
    }
}

/// A file may come from anywhere, and terminals obey more than `ESC`.
#[test]
fn a_line_that_is_shown_cannot_move_the_cursor_and_keeps_its_places() {
    let of = |odd: char| {
        let text = format!(
            "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: {{name: a}}\nspec: {{components: [{{workload: {{kind: Deployment, name: \"a{odd}b\"}}}}], nosuch: 1}}\n"
        );
        report(&text)
    };
    // YAML itself takes none of those, and the line is shown with its fault.
    let refused = of('\u{9b}');
    assert!(refused.contains("nosuch"), "{refused:?}");
    assert!(!refused.contains('\u{9b}'), "{refused:?}");
    let (odd, plain) = (of('\u{202e}'), of(' '));
    assert!(plain.contains("nosuch"), "{plain}");
    assert!(!odd.contains('\u{202e}'), "{odd:?}");
    let marks = |text: &str| -> Vec<String> {
        let marks = text.lines().filter(|line| line.contains('^'));
        marks.map(str::to_owned).collect()
    };
    assert!(!marks(&plain).is_empty(), "{plain}");
    assert_eq!(marks(&odd), marks(&plain));
}

#[test]
fn a_key_that_yaml_reads_as_something_else_is_named_as_it_is_written() {
    let text = "\
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata:
  name: shop
  labels: {y: 1, 5: [], 'n': 2}
  annotations: {on: a, yes: b}
spec:
  components: [{workload: {kind: Deployment, name: cart}}]
";
    assert_eq!(
        faults(text),
        [
            "5:15 metadata.labels[y]: Invalid value: must be a string; quote it: \"1\"; \
             the key y is read as true, quote it: \"y\"",
            "5:21 metadata.labels[5]: Invalid value: must be a string",
            "5:30 metadata.labels[n]: Invalid value: must be a string; quote it: \"2\"",
            "6:24 : the key \"true\" stands twice here, and all but the last are passed over; \
             yes is read so, quote it: \"yes\"",
        ]
    );
}

/// Whoever does as they are told must not be told of a fault again.
#[test]
fn what_to_write_in_the_place_of_a_number_is_no_fault_itself() {
    let hint = |spec: &str| {
        let text = format!(
            "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: {{name: a}}\nspec:\n  \
             components: [{{workload: {{kind: Deployment, name: a}}}}]\n  {spec}\n"
        );
        let found = faults(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        let hint = found[0].split_once("; ").map(|(_, hint)| hint.to_owned());
        hint.unwrap_or_default()
    };
    for field in ["bakeTime", "progressDeadline"] {
        let unit = r#"write it with its unit: "30s""#;
        assert_eq!(hint(&format!("{field}: 30")), unit, "{field}");
    }
    assert_eq!(hint("bakeTime: 0"), r#"write it with its unit: "0s""#);
    for wrong in ["bakeTime: 1.5", "bakeTime: true", "onFailure: 1"] {
        assert_eq!(hint(wrong), "", "{wrong}");
    }
    assert_eq!(
        hint("n: 1").split(", ").next(),
        Some("the key n is read as false")
    );
    assert!(!hint("n: 1").contains("quote"));
}

#[test]
fn lists_and_json_are_looked_into() {
    let text = "{\n\t\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t\t{\"apiVersion\": \"v1\", \"kind\": \"Secret\"},\n\t\t{\"apiVersion\": \"belay.dev/v1alpha1\", \"kind\": \"ReleasePlan\",\n\t\t \"metadata\": {\"name\": \"a\"}, \"spec\": {\"components\": []}}]}";
    assert_eq!(
        faults(text),
        ["5:54 spec.components: Required value: must name at least one workload"]
    );
    let report = lint(&["-".into()], &mut text.as_bytes());
    assert_eq!((report.plans, report.skipped), (1, 1));
}

/// As kubectl takes them, with the places in the file.
#[test]
fn of_json_one_object_may_follow_another() {
    let plan = |name: &str, more: &str| {
        format!(
            r#"{{"apiVersion":"belay.dev/v1alpha1","kind":"ReleasePlan","metadata":{{"name":"{name}"}},
"spec":{{"components":[{{"workload":{{"kind":"Deployment","name":"a"}}}}]{more}}}}}"#
        )
    };
    let bad = plan("b", r#","bakeTme":"5s""#);
    for between in ["", "\n", " \n\t", "\n---\n"] {
        let text = format!("{}{between}{}\n", plan("a", ""), plan("b", ""));
        let said = lint(&["-".into()], &mut text.as_bytes());
        assert_eq!((said.plans, said.faults.len()), (2, 0), "{text}");
        let text = format!("{}{between}{bad}", plan("a", ""));
        let lines = text.lines().count();
        let found = faults(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(&format!("{lines}:70 spec.bakeTme")),
            "{found:?}"
        );
    }
    // What comes behind may be YAML.
    let text = format!("{}\nkind: Service\napiVersion: v1\n", plan("a", ""));
    let said = lint(&["-".into()], &mut text.as_bytes());
    assert_eq!((said.plans, said.skipped, said.faults.len()), (1, 1, 0));
    // It is YAML where it does not begin as JSON.
    let text = format!("# not JSON\n{}{}", plan("a", ""), plan("b", ""));
    assert!(!faults(&text).is_empty());
}

/// What `kubectl apply` takes, and what it does not.
#[test]
fn documents_are_told_apart_as_kubectl_does() {
    let plan = "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: {name: a}\nspec: {components: [{workload: {kind: Deployment, name: a}}]}\n";
    let bad = plan.replace("spec: {", "spec: {bakeTme: 1s, ");
    for between in ["---\n\u{feff}", "--- # next\n", "---\t\r\n", "---\n---\n"] {
        let text = format!("\u{feff}{plan}{between}{plan}");
        let said = lint(&["-".into()], &mut text.as_bytes());
        assert_eq!((said.plans, said.faults.len()), (2, 0), "{text:?}");
        let found = faults(&format!("{plan}{between}{bad}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":8 spec.bakeTme"), "{found:?}");
    }
    let behind = ": kubectl takes nothing but a comment behind --- on its line";
    let found = faults(&format!("{plan}--- {{apiVersion: v1, kind: Service}}\n"));
    assert_eq!(found, [format!("5:5 {behind}")]);
    let found = faults(&format!("{plan}---x: y\n"));
    assert_eq!(found, [format!("5:4 {behind}")]);
    let found = faults(&plan.replace("name: a}\nspec", "generateName: a-}\nspec"));
    assert_eq!(
        found,
        [
            "3:11 metadata.name: Required value: kubectl apply takes no generateName; give the plan a name"
        ]
    );
    let found = faults("apiVersion: v1\nkind: List\nitems:\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("a List needs its items, be it an empty list"),
        "{found:?}"
    );
    assert_eq!(faults("apiVersion: v1\nkind: List\nitems: []\n"), [""; 0]);
}

#[test]
fn a_kind_or_version_that_is_not_served_is_a_fault() {
    assert_eq!(
        faults("apiVersion: belay.dev/v1\nkind: Releaseplan\n"),
        [
            "1:13 apiVersion: Unsupported value: \"belay.dev/v1\": must be belay.dev/v1alpha1",
            "2:7 kind: Unsupported value: \"Releaseplan\": must be ReleasePlan",
        ]
    );
    assert_eq!(
        faults("kind: ReleasePlan\nspec: {}\n"),
        ["1:1 apiVersion: Required value: must be belay.dev/v1alpha1"]
    );
    // Of somebody else.
    assert_eq!(
        faults("apiVersion: other.dev/v1\nkind: ReleasePlan\n"),
        [""; 0]
    );
}

#[test]
fn a_document_that_cannot_be_read_does_not_hide_the_next() {
    let text = "a: [1\n---\nkind: ReleasePlan\napiVersion: belay.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n";
    let found = faults(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("1:4 : unclosed"), "{found:?}");
    assert!(
        found[1].starts_with("6:7 spec.components: Required"),
        "{found:?}"
    );
}

#[test]
fn orders_cannot_stand_in_a_new_plan() {
    let found = faults(
        "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata:\n  name: a\n  annotations:\n    belay.dev/abort: a-1\nspec: {components: [{workload: {kind: Deployment, name: a}}]}\n",
    );
    assert_eq!(
        found,
        [
            "6:22 metadata.annotations[belay.dev/abort]: Forbidden: a new plan has no release to abort; leave the annotation out"
        ]
    );
}

/// The webhook would put a list of annotations right, but never gets to see it.
#[test]
fn metadata_is_judged_as_it_stands_in_the_file() {
    let found = faults(
        "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: {name: a, annotations: [], finalizers: {}}\nspec: {components: [{workload: {kind: Deployment, name: a}}]}\n",
    );
    assert_eq!(
        found,
        [
            "3:34 metadata.annotations: Invalid value: must be an object",
            "3:50 metadata.finalizers: Invalid value: must be a list",
        ]
    );
    let found = faults("apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: a\n");
    assert!(found[1].starts_with("3:11 metadata: Invalid"), "{found:?}");
}

#[test]
fn what_programs_read_has_places_rules_and_counts() {
    let report = lint(&["-".into()], &mut "apiVersion: belay.dev/v1alpha1\nkind: ReleasePlan\nmetadata: {name: a}\nspec: {components: [{workload: {kind: Deployment, name: a}}], bakeTme: 5s}\n".as_bytes());
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        serde_json::json!({
            "files": 1, "plans": 1, "skipped": 0, "unreadable": [],
            "faults": [{
                "file": "stdin", "line": 4, "column": 63, "path": "spec.bakeTme", "rule": "field",
                "message": "Forbidden: there is no such field; is bakeTime meant?"
            }]
        })
    );
}
