//! The rules in CEL that stand in the CRD, judged by the text of the CRD itself.

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

use crate::plan::{Violation, ViolationKind};

/// The rules of a schema, ready to be asked.
pub(super) struct Rules {
    compiled: CompiledSchema,
    validator: Validator,
}

impl Rules {
    pub(super) fn new(schema: &Value) -> Self {
        Self {
            compiled: compile_schema(schema),
            validator: Validator::new(),
        }
    }

    /// What the rules have against an object that fits the schema.
    pub(super) fn judge(&self, object: &Value) -> Vec<Violation> {
        let judged = self
            .validator
            .validate_compiled(&self.compiled, object, None);
        let Err(errors) = judged else {
            return Vec::new();
        };
        errors
            .into_vec()
            .into_iter()
            .map(|error| Violation {
                path: error.field_path,
                kind: ViolationKind::Invalid,
                message: error.message,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lint::crd_schema;
    use serde_json::json;

    fn judge(spec: &Value) -> Vec<String> {
        let rules = Rules::new(&crd_schema());
        let found = rules.judge(&json!({"metadata": {"name": "shop"}, "spec": spec}));
        found.iter().map(ToString::to_string).collect()
    }

    /// A rule that this build could not read would refuse every plan, or none.
    #[test]
    fn every_rule_of_the_crd_can_refuse_and_does_not_refuse_all() {
        let component = |name: &str| json!({"workload": {"kind": "Deployment", "name": name}});
        let with = |field: &str, value: Value| {
            let mut component = component("a");
            component[field] = value;
            json!({"components": [component, component_b()], "strategy": {"rolling": {}}})
        };
        fn component_b() -> Value {
            json!({"name": "b", "workload": {"kind": "Deployment", "name": "b2"}})
        }
        let two = json!([{"name": "app"}, {"name": "app"}]);
        for (spec, rule) in [
            (with("name", json!("b")), "component names must be unique"),
            (
                with("workload", json!({"kind": "Deployment", "name": "b2"})),
                "a workload may stand in one component only",
            ),
            (
                with("after", json!(["c"])),
                "after must name components of this plan",
            ),
            (
                with("after", json!(["a"])),
                "a component cannot come after itself",
            ),
            (
                with("template", json!({"spec": {"containers": two}})),
                "container names must be unique",
            ),
            (
                with("template", json!({"spec": {"initContainers": two}})),
                "init container names must be unique",
            ),
            (
                json!({"components": [component("a")], "strategy": {}}),
                "exactly one of rolling, canary and blueGreen must be set",
            ),
            (
                json!({"components": [component("a")], "checks": [{"name": "a"}, {"name": "a"}]}),
                "check names must be unique",
            ),
        ] {
            let found = judge(&spec);
            assert_eq!(found.len(), 1, "{rule}: {found:?}");
            assert!(found[0].contains(rule), "{found:?}");
        }
        let good = with("after", json!(["b"]));
        assert_eq!(judge(&good), [""; 0]);
        let source = crd_schema().to_string();
        let rules = source.matches("\"rule\":").count();
        assert_eq!(rules, 8, "a rule of the CRD has no case here");
    }
}
