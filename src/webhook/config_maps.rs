//! Whether the ConfigMaps that a plan tracks exist, and who else tracks them.
//!
//! Never a fault, because plans may be applied before what they name; and what
//! the plan does until one exists is told with it.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::{checks::PARALLEL, lookup::Lookup, warning::LONGEST};
use crate::{api::StoredPlan, plan::Plan};

/// Warnings about those ConfigMaps of `plan` that are missing, each with its field
/// and with what that means there. All are looked for as soon as any component
/// asks for something new: they are released together.
pub(super) async fn missing(
    lookup: &dyn Lookup,
    namespace: &str,
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
) -> Vec<String> {
    if !is_new(old, new, plan) {
        return Vec::new();
    }
    let looks = places(plan).into_iter().map(|(name, places)| async move {
        let found = lookup.config_map(namespace, &name).await;
        let told = |place: &Place| {
            let said = match &found {
                Ok(true) => return None,
                Ok(false) if !is_known(old, &name) => "does not exist yet: the plan waits for it",
                Ok(false) if place.templated => "is gone: the template keeps its last contents",
                Ok(false) => "is gone: no new pod that needs it can start",
                Err(error) => &format!("was not checked: {error}"),
            };
            Some(one_line(&name, said, &place.path))
        };
        places.iter().filter_map(told).collect::<Vec<_>>()
    });
    let looks = stream::iter(looks).buffered(PARALLEL);
    looks.collect::<Vec<_>>().await.concat()
}

/// Whether any component asks for something new.
pub(super) fn is_new(old: Option<&StoredPlan>, new: &StoredPlan, plan: &Plan) -> bool {
    (0..plan.components().len()).any(|index| is_changed(old, new, index))
}

/// Warnings about the ConfigMaps of `plan` that one of the `others` tracks as
/// well. Of a workload without a template the contents go back by a write into the
/// ConfigMap itself, which whoever else tracks it takes for an edit.
pub(super) fn shared(
    old: Option<&StoredPlan>,
    new: &StoredPlan,
    plan: &Plan,
    others: &[StoredPlan],
) -> Vec<String> {
    let me = new.metadata.name.as_deref();
    let mut warnings = Vec::new();
    for (name, places) in places(plan) {
        for place in places
            .iter()
            .filter(|place| is_changed(old, new, place.index))
        {
            for other in others
                .iter()
                .filter(|other| other.metadata.name != new.metadata.name)
            {
                let theirs = trackers(other, &name);
                let Some(followed) = theirs
                    .iter()
                    .find(|templated| !**templated)
                    .or(theirs.first())
                else {
                    continue;
                };
                let (me, other) = (
                    me.unwrap_or("this plan"),
                    other.metadata.name.as_deref().unwrap_or_default(),
                );
                let (writes, reads) = match (place.templated, *followed) {
                    (false, _) => (me, other),
                    (true, false) => (other, me),
                    (true, true) => continue,
                };
                warnings.push(format!(
                    "configmap {name} ({}) is tracked by ReleasePlan {other} too: a rollback of {writes} writes its old contents back, which is new content for {reads}",
                    place.path
                ));
            }
        }
    }
    warnings
}

/// Whether they have a template: the components of a plan, valid or not, that
/// track a ConfigMap.
fn trackers(plan: &StoredPlan, config_map: &str) -> Vec<bool> {
    let components = plan.spec.get("components").and_then(Value::as_array);
    let tracks = |component: &&Value| {
        let names = component.get("configMaps").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|name| name == config_map))
    };
    let components = components.into_iter().flatten().filter(tracks);
    components
        .map(|component| component.get("template").is_some_and(|t| !t.is_null()))
        .collect()
}

/// The warning in one line, for which a very long name is cut: the path tells
/// which one it is.
fn one_line(name: &str, said: &str, path: &str) -> String {
    let line = |name: &str| format!("configmap {name} {said} ({path})");
    let whole = line(name);
    let over = whole.chars().count().saturating_sub(LONGEST);
    let keep = name.chars().count().saturating_sub(over + 1);
    if over == 0 || keep == 0 {
        return whole;
    }
    line(&name.chars().take(keep).chain(['…']).collect::<String>())
}

/// A field that names a ConfigMap.
struct Place {
    index: usize,
    path: String,
    templated: bool,
}

/// The tracked ConfigMaps by name, with the fields that name them.
fn places(plan: &Plan) -> BTreeMap<String, Vec<Place>> {
    let mut places: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for (index, component) in plan.components().iter().enumerate() {
        for (position, name) in component.config_maps.iter().enumerate() {
            places.entry(name.clone()).or_default().push(Place {
                index,
                path: format!("spec.components[{index}].configMaps[{position}]"),
                templated: component.template.is_some(),
            });
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
