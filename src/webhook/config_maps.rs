//! Whether the ConfigMaps that a plan tracks exist.
//!
//! Never a fault, because plans may be applied before what they name; and what
//! the plan does until one exists is told with it.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::{checks::PARALLEL, lookup::Lookup};
use crate::{api::StoredPlan, plan::Plan};

/// Warnings about those ConfigMaps that are missing of what `plan` asks for and
/// the plan that it replaces did not.
pub(super) async fn missing(
    lookup: &dyn Lookup,
    namespace: &str,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
) -> Vec<String> {
    let looks = places(old, new, plan).into_iter().map(|(name, places)| async move {
        let found = lookup.config_map(namespace, &name).await;
        let places = places.join(", ");
        match found {
            Ok(true) => None,
            Ok(false) if is_known(old, &name) => Some(format!(
                "configmap {name} does not exist: templates of the plan keep its last contents, and no new pod of a followed workload can start until it does ({places})"
            )),
            Ok(false) => Some(format!(
                "configmap {name} does not exist yet: the plan releases nothing until it does ({places})"
            )),
            Err(error) => Some(format!("configmap {name} was not checked: {error} ({places})")),
        }
    });
    let looks = stream::iter(looks).buffered(PARALLEL);
    looks
        .filter_map(|warning| async { warning })
        .collect()
        .await
}

/// The tracked ConfigMaps by name, with the fields that name them, of components
/// that ask for something new.
fn places(
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
) -> BTreeMap<String, Vec<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, component) in plan.components().iter().enumerate() {
        if !is_changed(old, new, index) {
            continue;
        }
        for (position, name) in component.config_maps.iter().enumerate() {
            let place = format!("spec.components[{index}].configMaps[{position}]");
            places.entry(name.clone()).or_default().push(place);
        }
    }
    places
}

/// Whether no component of the old plan asks for the same.
fn is_changed(old: Option<&StoredPlan>, new: &StoredPlan, index: usize) -> bool {
    let asks = |component: &Value| {
        ["workload", "template", "configMaps"].map(|field| component.get(field).cloned())
    };
    let wanted = new.spec.pointer(&format!("/components/{index}")).map(asks);
    let before = old.and_then(|old| old.spec.get("components")?.as_array());
    !before.is_some_and(|before| before.iter().any(|one| Some(asks(one)) == wanted))
}

/// Whether the plan has contents of a ConfigMap from when it existed.
fn is_known(old: Option<&StoredPlan>, name: &str) -> bool {
    let status = old.and_then(|old| old.status.as_ref());
    let mut seen = status.into_iter().flat_map(|status| &status.config_maps);
    seen.any(|seen| seen.name == name && seen.digest.is_some())
}
