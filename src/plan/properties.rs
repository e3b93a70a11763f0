//! What holds for every spec.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Plan, completed, content_digest, defaults_patch};
use crate::api::{
    Component, DeletionPolicy, FailFast, GatewayDuration, OnFailure, ReleasePlanSpec, Retry,
    Rolling, Strategy as Way, WorkloadKind, WorkloadRef,
};

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "components",
        "name",
        "workload",
        "kind",
        "template",
        "metadata",
        "labels",
        "spec",
        "containers",
        "image",
        "after",
        "strategy",
        "rolling",
        "canary",
        "steps",
        "replicas",
        "weight",
        "pause",
        "checks",
        "prometheus",
        "url",
        "configMaps",
        "traffic",
        "failFast",
        "restarts",
        "progressDeadline",
        "onFailure",
        "retry",
        "annotations",
        "finalizers",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["Deployment", "a", "10m", "5%", "Freeze", "http://a"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter();
                Value::Object(fields.map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

prop_compose! {
    fn any_template()(
        image in prop::option::of("[a-z]{1,8}:[0-9]"),
        labels in prop::collection::btree_map("[a-z]{1,5}", "[a-z]{0,5}", 1..4),
        grace in prop::option::of(0..100),
    ) -> Value {
        let mut spec = json!({});
        if let Some(image) = image {
            spec["containers"] = json!([{"name": "app", "image": image}]);
        }
        if let Some(grace) = grace {
            spec["terminationGracePeriodSeconds"] = json!(grace);
        }
        json!({"metadata": {"labels": labels}, "spec": spec})
    }
}

prop_compose! {
    fn any_component(index: usize)(
        named in any::<bool>(),
        template in prop::option::of(any_template()),
        after in prop::collection::btree_set(0..index.max(1), 0..4),
    ) -> Component {
        Component {
            name: named.then(|| format!("w{index}")),
            workload: Some(WorkloadRef {
                kind: Some(WorkloadKind::Deployment),
                name: Some(format!("w{index}")),
            }),
            template,
            config_maps: None,
            traffic: None,
            after: (index > 0).then(|| after.iter().map(|n| format!("w{n}")).collect()),
        }
    }
}

fn components() -> impl Strategy<Value = Vec<Component>> {
    (1usize..=32).prop_flat_map(|count| (0..count).map(any_component).collect::<Vec<_>>())
}

fn duration(least: u64) -> impl Strategy<Value = Option<String>> {
    let millis = least..=7 * 24 * 3_600_000;
    prop::option::of(millis.prop_map(|millis| {
        GatewayDuration::from(std::time::Duration::from_millis(millis)).to_string()
    }))
}

prop_compose! {
    fn any_spec()(
        components in components(),
        rolling in any::<bool>(),
        (progress_deadline, bake_time) in (duration(1), duration(0)),
        (restarts, max_retries) in (prop::option::of(1..=100), prop::option::of(1..=100)),
        revision_history_limit in prop::option::of(1..=100),
        paused in any::<Option<bool>>(),
        keep in any::<bool>(),
        rollback in any::<bool>(),
    ) -> ReleasePlanSpec {
        ReleasePlanSpec {
            components: Some(components),
            strategy: rolling.then(|| Way { rolling: Some(Rolling {}), ..Way::default() }),
            checks: None,
            progress_deadline,
            bake_time,
            fail_fast: restarts.map(|restarts| FailFast { restarts: Some(restarts) }),
            on_failure: rollback.then_some(OnFailure::Rollback),
            paused,
            deletion_policy: keep.then_some(DeletionPolicy::Keep),
            retry: max_retries.map(|max_retries| Retry { max_retries: Some(max_retries) }),
            revision_history_limit,
        }
    }
}

pub(crate) fn any_valid() -> impl Strategy<Value = Value> {
    any_spec().prop_map(|spec| serde_json::to_value(spec).unwrap())
}

/// Faults that do not touch each other, with the path that each must name.
pub(crate) const FAULTS: &[(&str, &str, &str)] = &[
    (
        "/components/0/name",
        "\"Not A Name\"",
        "spec.components[0].name",
    ),
    (
        "/components/0/workload/kind",
        "\"Job\"",
        "spec.components[0].workload.kind",
    ),
    (
        "/components/0/template",
        "[]",
        "spec.components[0].template",
    ),
    (
        "/components/0/configMaps",
        "[7]",
        "spec.components[0].configMaps[0]",
    ),
    ("/components/0/traffic", "{}", "spec.components[0].traffic"),
    (
        "/components/0/after",
        "[\"nope\"]",
        "spec.components[0].after[0]",
    ),
    ("/strategy", "{}", "spec.strategy"),
    ("/checks", "7", "spec.checks"),
    ("/progressDeadline", "\"soon\"", "spec.progressDeadline"),
    ("/bakeTime", "\"9999h\"", "spec.bakeTime"),
    ("/failFast", "{\"restarts\": 0}", "spec.failFast.restarts"),
    ("/onFailure", "\"Maybe\"", "spec.onFailure"),
    ("/paused", "\"no\"", "spec.paused"),
    ("/deletionPolicy", "\"Maybe\"", "spec.deletionPolicy"),
    ("/retry", "[]", "spec.retry"),
    ("/revisionHistoryLimit", "101", "spec.revisionHistoryLimit"),
];

/// A valid spec with any value in one of its fields.
pub(crate) fn almost_valid() -> impl Strategy<Value = Value> {
    let place = prop::sample::select(FAULTS);
    (any_valid(), place, any_json()).prop_map(|(mut spec, (pointer, _, _), value)| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[key] = value;
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spec_makes_parse_panic(spec in prop_oneof![any_json(), almost_valid()]) {
        if let Err(violations) = Plan::parse(&spec) {
            prop_assert!(!violations.as_slice().is_empty());
            for fault in violations.as_slice() {
                prop_assert!(fault.path.starts_with("spec"), "{}", fault);
                prop_assert!(!fault.message.contains("struct"), "{}", fault);
            }
        }
    }

    #[test]
    fn whatever_parses_has_the_wire_type(spec in almost_valid()) {
        if Plan::parse(&spec).is_ok() {
            prop_assert!(serde_json::from_value::<ReleasePlanSpec>(spec).is_ok());
        }
    }

    #[test]
    fn a_valid_typed_spec_is_read_back(spec in any_spec()) {
        let plan = Plan::parse(&serde_json::to_value(&spec).unwrap());
        let plan = plan.map_err(|violations| TestCaseError::fail(violations.to_string()))?;
        let components = spec.components.unwrap();
        prop_assert_eq!(plan.components().len(), components.len());
        for (index, (parsed, wire)) in plan.components().iter().zip(&components).enumerate() {
            prop_assert_eq!(&parsed.name, &format!("w{index}"));
            prop_assert_eq!(&Some(parsed.target.to_ref()), &wire.workload);
            prop_assert_eq!(&parsed.template, &wire.template);
            let after = parsed.after.iter().map(|n| format!("w{n}")).collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(after, wire.after.clone().unwrap_or_default().into_iter().collect());
        }
        prop_assert_eq!(plan.restarts(), spec.fail_fast.map_or(3, |f| f.restarts.unwrap()));
        prop_assert_eq!(plan.paused(), spec.paused == Some(true));
        if let Some(deadline) = spec.progress_deadline {
            prop_assert_eq!(GatewayDuration::from(plan.progress_deadline()).to_string(), deadline);
        }
    }

    #[test]
    fn all_faults_are_told_at_once(
        valid in any_valid(),
        faults in prop::sample::subsequence(FAULTS, 1..=FAULTS.len()),
    ) {
        let mut spec = valid;
        let mut expected = Vec::new();
        for (pointer, value, path) in faults {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[key] = serde_json::from_str(value).unwrap();
            expected.push(path.to_owned());
        }
        let violations = Plan::parse(&spec).unwrap_err();
        let found: Vec<_> = violations
            .as_slice()
            .iter()
            .map(|fault| fault.path.clone())
            // Others may name component 0 by the name that it had.
            .filter(|path| !path.contains("].after[") || path.starts_with("spec.components[0]"))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn defaults_are_idempotent(object in any_json(), spec in any_json(), old in prop::option::of(any_valid())) {
        let old = old.map(|spec| json!({"metadata": {"name": "a"}, "spec": spec}));
        for object in [object.clone(), json!({"metadata": object, "spec": spec})] {
            let once = completed(&object, old.as_ref(), "jane");
            prop_assert_eq!(&completed(&once, old.as_ref(), "jane"), &once);
            prop_assert_eq!(defaults_patch(&once, old.as_ref(), "jane"), None);
        }
    }

    #[test]
    fn a_valid_spec_stays_valid_and_the_same_with_defaults(spec in any_valid()) {
        let object = completed(&json!({"spec": spec}), None, "jane");
        prop_assert_eq!(Plan::parse(&object["spec"]), Plan::parse(&spec));
        prop_assert_eq!(defaults_patch(&object, Some(&object), "joe"), None);
    }

    #[test]
    fn content_is_the_same_in_any_order_and_with_defaults(spec in any_valid()) {
        let digest = content_digest(&spec);
        let completed = completed(&json!({"spec": spec}), None, "jane");
        prop_assert_eq!(&content_digest(&completed["spec"]), &digest);
        let mut other = spec;
        other["components"].as_array_mut().unwrap().reverse();
        for component in other["components"].as_array_mut().unwrap() {
            component.as_object_mut().unwrap().remove("after");
            component["configMaps"] = json!([]);
        }
        other["paused"] = json!(true);
        prop_assert_eq!(&content_digest(&other), &digest);
        let plan = Plan::parse(&other).unwrap();
        prop_assert_eq!(plan.content(), &digest);
    }

    #[test]
    fn content_is_another_with_any_change_of_a_template(
        spec in any_valid(),
        template in any_template(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut changed = spec.clone();
        let components = changed["components"].as_array_mut().unwrap();
        let at = at.index(components.len());
        let before = components[at].get("template").cloned();
        components[at]["template"] = template.clone();
        prop_assert_eq!(
            content_digest(&spec) == content_digest(&changed),
            before == Some(template)
        );
        let old = Plan::parse(&spec).unwrap();
        let new = Plan::parse(&changed).unwrap();
        prop_assert_eq!(
            old.components()[at].template_digest == new.components()[at].template_digest,
            content_digest(&spec) == content_digest(&changed)
        );
    }

    #[test]
    fn content_is_another_with_another_component(spec in any_valid()) {
        let mut changed = spec.clone();
        let component = json!({"workload": {"kind": "Deployment", "name": "other"}});
        changed["components"].as_array_mut().unwrap().push(component);
        prop_assert_ne!(content_digest(&spec), content_digest(&changed));
        changed["components"].as_array_mut().unwrap().pop();
        changed["components"][0]["name"] = json!("renamed");
        prop_assert_ne!(content_digest(&spec), content_digest(&changed));
    }
}
