//! Containers that a partial template names and the workload does not have.
//!
//! Server-side apply would add such a container instead of changing one, so a
//! misspelt name must not get that far.

use std::fmt;

use serde_json::Value;

/// A container that the workload does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingContainer {
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// Index in the partial template's list.
    pub index: usize,
    /// The name in the partial template.
    pub name: String,
    /// The names that the workload has.
    pub known: Vec<String>,
}

impl fmt::Display for MissingContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.list == "initContainers" {
            "init container"
        } else {
            "container"
        };
        write!(f, "no {kind} {} ", self.name)?;
        if self.known.is_empty() {
            write!(f, "(it has none)")
        } else {
            write!(f, "(it has: {})", self.known.join(", "))
        }
    }
}

/// Containers of `partial` that `live`, the workload's own template, lacks.
#[must_use]
pub fn missing_containers(partial: &Value, live: &Value) -> Vec<MissingContainer> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| {
            let known: Vec<String> = names(live, list).map(|(_, name)| name).collect();
            names(partial, list)
                .filter(|(_, name)| !known.contains(name))
                .map(|(index, name)| MissingContainer {
                    list,
                    index,
                    name,
                    known: known.clone(),
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The names in a list with their indices; one without a name is another fault.
fn names(template: &Value, list: &str) -> impl Iterator<Item = (usize, String)> {
    let containers = template
        .get("spec")
        .and_then(|spec| spec.get(list))
        .and_then(Value::as_array);
    let containers = containers.map(Vec::as_slice).unwrap_or_default();
    containers
        .iter()
        .enumerate()
        .filter_map(|(index, container)| Some((index, container.get("name")?.as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_what_is_missing_and_what_is_there() {
        let partial = json!({"spec": {"containers": [{"name": "app"}, {"name": "ap"}]}});
        let live = json!({"spec": {"containers": [{"name": "app"}, {"name": "proxy"}]}});
        let missing = missing_containers(&partial, &live);
        assert_eq!(missing.len(), 1);
        assert_eq!((missing[0].list, missing[0].index), ("containers", 1));
        assert_eq!(
            missing[0].to_string(),
            "no container ap (it has: app, proxy)"
        );
    }

    #[test]
    fn an_init_container_is_not_a_container() {
        let partial = json!({"spec": {"initContainers": [{"name": "app"}]}});
        let live = json!({"spec": {"containers": [{"name": "app"}]}});
        assert_eq!(
            missing_containers(&partial, &live)[0].to_string(),
            "no init container app (it has none)"
        );
    }
}
