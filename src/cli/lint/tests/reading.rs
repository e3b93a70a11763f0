//! YAML as kubectl reads it, and anything else.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cli::lint::{files::Source, judge::Judge, report::Report, yaml::documents};

thread_local! {
    static JUDGE: Judge = Judge::new();
}

fn read(text: &str) -> Vec<Result<Value, String>> {
    let documents = documents(text).into_iter();
    documents
        .map(|document| match document {
            Ok(document) => Ok(document.root.to_json()),
            Err(fault) => Err(fault.message),
        })
        .collect()
}

fn one(text: &str) -> Value {
    let mut documents = read(text);
    assert_eq!(documents.len(), 1, "{documents:?}");
    documents.remove(0).unwrap()
}

/// Each was read by kubectl itself.
#[test]
fn aliases_merges_and_keys_are_read_as_kubectl_reads_them() {
    let text = "\
a: &a {name: a}
x: {name: b, <<: *a}
v: {<<: *a, name: c}
w: {<<: [{a: 1}, {a: 2}]}
1e3: whole
on: word
\"<<\": quoted
l: &l [1, *a]
m: *l
";
    assert_eq!(
        one(text),
        json!({
            "a": {"name": "a"}, "x": {"name": "a"}, "v": {"name": "c"}, "w": {"a": 1},
            "1000": "whole", "true": "word", "<<": "quoted",
            "l": [1, {"name": "a"}], "m": [1, {"name": "a"}]
        })
    );
}

#[test]
fn json_may_be_indented_by_tabs() {
    let text = "{\n\t\"a\":\t\"b\\t\\\\\tc\",\n\t\"d\": \"\\\"\t\\/\"\n}\n";
    let parsed: Value = serde_json::from_str(&text.replace('\t', " ")).unwrap();
    let mut parsed = parsed;
    // Tabs in strings are kept.
    parsed["a"] = json!("b\t\\\tc");
    parsed["d"] = json!("\"\t/");
    assert_eq!(one(text), parsed);
}

#[test]
fn a_bomb_of_aliases_is_refused_soon() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let read = read(&text);
    assert!(read[0].as_ref().unwrap_err().contains("values"), "{read:?}");
}

#[test]
fn nesting_ends_where_the_webhook_stops_reading() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&nested(125))[0].is_ok());
    let refused = read(&nested(126));
    assert!(
        refused[0].as_ref().unwrap_err().contains("deeper"),
        "{refused:?}"
    );
    // Also by way of aliases.
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..200 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    let refused = read(&text);
    assert!(
        refused[0].as_ref().unwrap_err().contains("deeper"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_plan_is_too_deep_here_exactly_if_it_is_for_the_webhook() {
    for depth in 118..130 {
        // The lists stand in four objects.
        let deep = (4..depth).fold(json!(1), |inner, _| json!([inner]));
        let plan = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
            "metadata": {"name": "deep"},
            "spec": {"components": {"a": {"b": deep}}}
        });
        let here = read(&plan.to_string()).remove(0).is_ok();
        let there = crate::webhook::tests::is_read_at_creation(&plan).await;
        assert_eq!(here, there, "{depth} levels");
        assert_eq!(here, depth <= 125, "{depth} levels");
    }
}

/// Pieces that YAML has a meaning for, in any order.
fn almost_yaml() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "apiVersion: belay.dev/v1alpha1\n",
        "kind: ReleasePlan\n",
        "metadata: {name: a}\n",
        "spec:\n",
        "  components:\n",
        "  - workload: {kind: Deployment, name: a}\n",
        "  bakeTime: ",
        "  strategy: {rolling: {}}\n",
        "---\n",
        "...\n",
        "&a ",
        "*a ",
        "<<: ",
        "- ",
        "? ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        "|\n",
        ">-\n",
        "\t",
        "  ",
        "\n",
        "\r\n",
        "#",
        "%YAML 1.1\n",
        "!!int ",
        "!x ",
        "ä",
        "\u{feff}",
        "yes",
        "0x1F",
        ".inf",
        "\u{0}",
        "\u{2028}",
        "🦀",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Judges, and writes both forms of the report.
fn survives(text: String) -> Result<(), TestCaseError> {
    let length = text.lines().count() + 1;
    let name = "any".to_owned();
    let sources = [Source { name, text }];
    let report = JUDGE.with(|judge| Report::of(judge, &sources, &[]));
    for fault in &report.faults {
        prop_assert!((1..=length).contains(&fault.line), "{fault:?}");
        prop_assert!(fault.column >= 1 && !fault.message.is_empty(), "{fault:?}");
    }
    let lines = report.text(Some(80));
    prop_assert!(lines.ends_with('\n'));
    serde_json::to_string(&report).unwrap();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survives(String::from_utf8_lossy(&bytes).into_owned())?;
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}") {
        survives(text)?;
    }

    #[test]
    fn no_yaml_makes_it_panic(text in almost_yaml()) {
        survives(text)?;
    }

    #[test]
    fn json_is_read_as_json(value in crate::plan::properties::any_json()) {
        let text = value.to_string();
        // Numbers without a fraction arrive as integers, as they do in Go.
        fn whole(value: &mut Value) {
            match value {
                Value::Number(number) => {
                    let float = number.as_f64().unwrap_or_default();
                    let is_whole = number.is_f64() && float.fract() == 0.0;
                    // From 0 up to the largest that has 64 bits, and down to
                    // the smallest with a sign.
                    if is_whole && (0.0..18_446_744_073_709_551_616.0).contains(&float) {
                        *value = json!(float as u64);
                    } else if is_whole && (-9_223_372_036_854_775_808.0..0.0).contains(&float) {
                        *value = json!(float as i64);
                    }
                }
                Value::Array(items) => items.iter_mut().for_each(whole),
                Value::Object(fields) => fields.values_mut().for_each(whole),
                _ => {}
            }
        }
        let mut expected = value;
        whole(&mut expected);
        prop_assert_eq!(read(&text), [Ok(expected.clone())], "{}", text);
        let pretty = serde_json::to_string_pretty(&expected).unwrap();
        prop_assert_eq!(read(&pretty), [Ok(expected)], "{}", pretty);
    }
}
