//! Content that came while everything goes back, and that is not looked at before
//! that is over.
//!
//! Pure. What the ConfigMaps hold is known as the operator last read it.

use std::collections::BTreeSet;

use super::{
    held::held,
    model::{ComponentView, ConfigMapMode, ConfigMapView, PlanStatus},
    verdict::{EDITED, Facts},
};
use crate::{
    api::{RELEASE_GENERATION, Reason, ReleaseProgress, Stage, StoredPlan},
    plan::Plan,
};

/// The stage of a release that was begun for older content than that of the plan.
pub(in crate::cli) fn passed_by(stored: &StoredPlan, release: &ReleaseProgress) -> Option<Stage> {
    let now: i64 = stored.annotation(RELEASE_GENERATION)?.parse().ok()?;
    (now > release.generation?).then_some(release.stage)
}

/// Where newer content stands that waits, as commands name it.
pub(super) fn waiting(
    facts: &Facts<'_>,
    components: &[ComponentView],
    reason: &str,
) -> Vec<String> {
    let Some(release) = &facts.status.release else {
        return Vec::new();
    };
    if release.stage != Stage::Restore || facts.stored.is_deleting() || reason == EDITED {
        return Vec::new();
    }
    // What goes back is no newer content, nor what is held.
    let tried = facts.plan.map(Plan::content) == Some(release.content.as_str());
    let known = tried || held(facts.plan, facts.status).is_some();
    let newer = !known && passed_by(facts.stored, release).is_some();
    let plan = newer.then(|| format!("releaseplan/{}", facts.name()));
    // Nothing is written over an edit of it, and the operator says so itself.
    let in_place = reason != Reason::ConfigMapEdited.as_str();
    let maps = components.iter().flat_map(|c| &c.config_maps);
    let maps = maps.filter(|map| in_place || map.mode == ConfigMapMode::Snapshot);
    let maps: BTreeSet<String> = maps
        .filter(|map| is_other(map))
        .map(|map| format!("configmap/{}", map.name))
        .collect();
    plan.into_iter().chain(maps).collect()
}

/// Whether a ConfigMap holds what belongs to no revision that is known.
pub(super) fn is_other(map: &ConfigMapView) -> bool {
    let mut known = [&map.stable, &map.target].into_iter().flatten().peekable();
    let seen = map.digest.as_ref().filter(|_| !map.missing);
    let any = known.peek().is_some();
    any && seen.is_some_and(|seen| known.all(|known| known.digest != *seen))
}

/// The same in words.
pub(in crate::cli) fn told(plan: &PlanStatus) -> Option<String> {
    let waiting = plan.waiting.join(", ");
    (!waiting.is_empty()).then(|| format!("newer content is looked at: {waiting}"))
}
