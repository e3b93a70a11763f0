//! The linter and the webhook say the same.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    cli::lint::{Rule, judge::Judge},
    plan::properties::{FAULTS, almost_valid, any_json, any_valid},
    webhook::tests::faults_at_creation,
};

/// A plan around a spec.
fn plan(spec: Value) -> Value {
    json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
        "metadata": {"name": "shop"}, "spec": spec
    })
}

/// A valid spec with several faults.
fn faulty() -> impl Strategy<Value = Value> {
    let faults = prop::sample::subsequence(FAULTS, 1..=4);
    (any_valid(), faults).prop_map(|(mut spec, faults)| {
        for (pointer, value, _) in faults {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[key] = serde_json::from_str(value).unwrap();
        }
        spec
    })
}

/// A valid spec with one value anywhere in it replaced, removed or doubled.
fn mutated() -> impl Strategy<Value = Value> {
    (any_valid(), any::<prop::sample::Index>(), 0..3, any_json()).prop_map(
        |(mut spec, at, how, value)| {
            let mut places = Vec::new();
            pointers(&spec, String::new(), &mut places);
            let place = &places[at.index(places.len())];
            let Some((parent, key)) = place.rsplit_once('/') else {
                return value;
            };
            match spec.pointer_mut(parent).unwrap() {
                Value::Object(fields) if how == 0 => {
                    fields.remove(key);
                }
                Value::Object(fields) => {
                    fields.insert(key.to_owned(), value);
                }
                Value::Array(items) => {
                    let index: usize = key.parse().unwrap();
                    match how {
                        0 => drop(items.remove(index)),
                        1 => items[index] = value,
                        _ => items.push(items[index].clone()),
                    }
                }
                _ => unreachable!("only these hold values"),
            }
            spec
        },
    )
}

fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                pointers(value, format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

thread_local! {
    static JUDGE: Judge = Judge::new();
    static RUNTIME: Runtime = Runtime::new().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Unknown fields apart, which the API server refuses by itself before it
    /// asks a webhook.
    #[test]
    fn a_plan_passes_here_exactly_if_the_webhook_lets_it_pass(
        spec in prop_oneof![any_valid(), faulty(), almost_valid(), mutated()],
    ) {
        let plan = plan(spec);
        let found = JUDGE.with(|judge| judge.object(&plan));
        let mut here: BTreeSet<String> = BTreeSet::new();
        for (rule, fault) in &found {
            // What the schema or its rules find, the webhook has found as well.
            prop_assert!(matches!(rule, Rule::Plan | Rule::Field), "{:?} {}", rule, fault);
            if *rule == Rule::Plan {
                here.insert(fault.path.clone());
            }
        }
        let there = RUNTIME.with(|runtime| runtime.block_on(faults_at_creation(&plan)));
        prop_assert_eq!(here, there.into_iter().collect::<BTreeSet<_>>());
    }
}
