//! Whether the webhook configurations send all plans to the operator.
//!
//! Pure. The way there is walked by `admission`, which only sees requests of one
//! kind: what is left out of the rest only the configurations say.

use serde_json::Value;

use super::{
    cures::{configure, look},
    facts::{Facts, Hooks},
    judge::unseen,
    report::Finding,
};
use crate::api::GROUP;

/// What has to be asked about.
const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];
/// Fields that leave requests out, with what is said of each.
const NARROW: [(&str, &str); 3] = [
    ("namespaceSelector", "a namespaceSelector"),
    ("objectSelector", "an objectSelector"),
    ("matchConditions", "matchConditions"),
];

/// What the webhooks of a configuration are asked about.
pub(super) fn reach<'a>(webhooks: impl Iterator<Item = &'a Value>) -> Hooks {
    let mut hooks = Hooks::default();
    let mut asked: Vec<&str> = Vec::new();
    for webhook in webhooks {
        let rules = webhook["rules"].as_array().into_iter().flatten();
        for rule in rules.filter(|rule| is_about_plans(rule)) {
            let operations = rule["operations"].as_array().into_iter().flatten();
            asked.extend(operations.filter_map(Value::as_str));
        }
        if webhook["failurePolicy"] == "Ignore" {
            hooks.leaks.push("failurePolicy Ignore");
        }
        for (field, name) in NARROW {
            let empty = match &webhook[field] {
                Value::Object(selector) => selector.is_empty(),
                Value::Array(conditions) => conditions.is_empty(),
                _ => true,
            };
            if !empty {
                hooks.leaks.push(name);
            }
        }
    }
    let unasked = |operation: &&str| !asked.contains(operation) && !asked.contains(&"*");
    hooks.unasked = OPERATIONS.into_iter().filter(unasked).collect();
    hooks
}

fn is_about_plans(rule: &Value) -> bool {
    let has = |field: &str, one: &str| {
        let values = rule[field].as_array().into_iter().flatten();
        let mut values = values.filter_map(Value::as_str);
        values.any(|value| value == one || value == "*")
    };
    has("apiGroups", GROUP) && has("resources", "releaseplans")
}

pub(super) fn configuration(facts: &Facts) -> Finding {
    const CHECK: &str = "webhooks";
    let kinds = [
        (
            "MutatingWebhookConfiguration",
            &facts.mutating,
            "without their defaults, and without the finalizer that a rollback needs",
        ),
        (
            "ValidatingWebhookConfiguration",
            &facts.validating,
            "without being judged",
        ),
    ];
    for (kind, hooks, without) in kinds {
        let name = format!("{kind} belay.dev");
        let hooks = match hooks {
            Err(silence) => {
                let need = format!("get {}s", kind.to_lowercase());
                return unseen(CHECK, &name, silence, &need);
            }
            Ok(None) => {
                return Finding::fail(
                    CHECK,
                    format!("{name} does not exist"),
                    format!("plans are stored {without}"),
                    configure(facts),
                );
            }
            Ok(Some(hooks)) => hooks,
        };
        if hooks.trusted.is_empty() {
            return Finding::fail(
                CHECK,
                format!("{name} has no caBundle"),
                "the operator has not written its certificate authority there",
                look(facts),
            );
        }
        if !hooks.unasked.is_empty() {
            return Finding::fail(
                CHECK,
                format!("{name} leaves out {} of plans", hooks.unasked.join(" and ")),
                format!("its rules were changed: plans are stored {without}"),
                configure(facts),
            );
        }
        if !hooks.leaks.is_empty() {
            return Finding::warn(
                CHECK,
                format!("{name} has {}", hooks.leaks.join(" and ")),
                format!("some plans may be stored {without}"),
                configure(facts),
            );
        }
    }
    Finding::ok(CHECK, "both webhook configurations are there")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The configurations as they are installed.
    fn installed() -> Vec<Value> {
        let manifest = include_str!("../../../deploy/webhooks.yaml");
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        documents
            .iter()
            .map(|document| document["webhooks"].clone())
            .collect()
    }

    fn of(webhooks: &Value) -> Hooks {
        reach(webhooks.as_array().into_iter().flatten())
    }

    #[test]
    fn the_configurations_that_are_installed_leave_nothing_out() {
        let installed = installed();
        assert_eq!(installed.len(), 2);
        for webhooks in &installed {
            assert_eq!(of(webhooks), Hooks::default());
        }
    }

    #[test]
    fn whatever_leaves_plans_out_is_found() {
        for webhooks in installed() {
            let changed = |change: &dyn Fn(&mut Value)| {
                let mut webhooks = webhooks.clone();
                change(&mut webhooks[0]);
                of(&webhooks)
            };
            let less = changed(&|w| w["rules"][0]["operations"] = json!(["CREATE"]));
            assert_eq!(less.unasked, ["UPDATE"]);
            let all = changed(&|w| w["rules"][0]["operations"] = json!(["*"]));
            assert_eq!(all, Hooks::default());
            for none in [
                changed(&|w| w["rules"] = json!([])),
                changed(&|w| w["rules"][0]["resources"] = json!(["other"])),
                of(&json!([])),
            ] {
                assert_eq!(none.unasked, OPERATIONS);
            }
            let ignores = changed(&|w| w["failurePolicy"] = json!("Ignore"));
            assert_eq!(ignores.leaks, ["failurePolicy Ignore"]);
            let narrow = changed(&|w| {
                w["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
                w["objectSelector"] = json!({});
                w["matchConditions"] = json!([{"name": "n", "expression": "false"}]);
            });
            assert_eq!(narrow.leaks, ["a namespaceSelector", "matchConditions"]);
        }
    }
}
