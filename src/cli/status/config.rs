//! The tracked ConfigMaps of a component: which contents belong to what is
//! stable, to what is released and to what is live.
//!
//! Pure, from the revisions of the plan, its status and the live template.

use std::collections::BTreeSet;

use super::{
    later::is_other,
    model::{ConfigMapMode, ConfigMapView, ContentsView, PlanStatus},
    objects::{DeploymentView, RevisionView},
    tree::World,
};
use crate::{
    api::{ReleasePlanStatus, Stage},
    config_maps::is_snapshot_of,
    fields::canon::short,
    machine::Scope,
    plan::current,
};

/// The ConfigMaps that a component tracks, or did before the release.
pub(super) fn views(
    component: &Scope,
    status: &ReleasePlanStatus,
    deployment: Option<&DeploymentView>,
    world: &World<'_>,
) -> Vec<ConfigMapView> {
    let workload = component.target.to_ref();
    let of = |revision: Option<&RevisionView>| {
        let tracked =
            revision.and_then(|revision| revision.config_maps(&workload).map(<[_]>::to_vec));
        tracked.unwrap_or_default()
    };
    let names = [status.stable_revision.as_deref(), current(status)];
    let revisions = names.map(|name| world.revision(name));
    let [stable, target] = revisions.map(of);
    let mut names = component.config_maps.clone();
    if !target.is_empty() || names.is_empty() {
        let known = stable.iter().chain(&target);
        names.extend(known.map(|tracked| tracked.name.clone()));
        let mut told = BTreeSet::new();
        names.retain(|name| told.insert(name.clone()));
    }
    // The plan tells nothing of a component that left it, nor while it is not valid.
    let was_templated = || {
        let mut known = revisions.into_iter().flatten();
        component.config_maps.is_empty() && known.any(|known| known.is_templated(&workload))
    };
    let mode = if component.template.is_some() || was_templated() {
        ConfigMapMode::Snapshot
    } else {
        ConfigMapMode::Contents
    };
    let contents = |tracked: &[crate::config_maps::Tracked], name: &str| {
        let tracked = tracked.iter().find(|tracked| tracked.name == name)?;
        Some(ContentsView {
            digest: tracked.digest.clone(),
            snapshot: tracked.snapshot.clone(),
        })
    };
    let view = |name: String| {
        let seen = status.config_maps.iter().find(|seen| seen.name == name);
        ConfigMapView {
            mode,
            missing: seen.is_some_and(|seen| seen.missing),
            digest: seen.and_then(|seen| seen.digest.clone()),
            live: deployment.and_then(|d| live(&d.spec.template.config_maps, &name)),
            stable: contents(&stable, &name),
            target: contents(&target, &name),
            name,
        }
    };
    names.into_iter().map(view).collect()
}

/// What the live template names for a ConfigMap. Beside a snapshot it may name
/// the ConfigMap itself, in a place that the plan has nothing to say of.
fn live(named: &BTreeSet<String>, name: &str) -> Option<String> {
    let snapshot = named.iter().find(|named| is_snapshot_of(named, name));
    snapshot.or_else(|| named.get(name)).cloned()
}

/// A tracked ConfigMap in one sentence.
pub(super) fn told(map: &ConfigMapView, plan: &PlanStatus) -> String {
    let (stable, target) = (map.stable.as_ref(), map.target.as_ref());
    let goes_back = plan
        .release
        .as_ref()
        .is_some_and(|r| r.stage == Stage::Restore);
    let name = |contents: &ContentsView| match map.mode {
        ConfigMapMode::Snapshot => contents.snapshot.clone(),
        ConfigMapMode::Contents => format!("contents {}", short(&contents.digest)),
    };
    let mut notes = Vec::new();
    if is_other(map) && (target.is_none() || goes_back) {
        notes.push("the ConfigMap holds other contents by now".to_owned());
    }
    let mut text = match (stable, target) {
        (Some(stable), Some(target)) if stable != target => {
            let place = |contents: &ContentsView| {
                let is_live = map.live.as_ref() == Some(&contents.snapshot);
                let mark = if is_live { " (live)" } else { "" };
                format!("{}{mark}", name(contents))
            };
            let (stable, target) = (place(stable), place(target));
            if goes_back {
                format!("config {}: {target} → back to {stable}", map.name)
            } else {
                format!("config {}: {stable} → {target}", map.name)
            }
        }
        (Some(one), _) | (None, Some(one)) => format!("config {} → {}", map.name, name(one)),
        (None, None) => match (&map.live, &map.digest) {
            (Some(live), _) if map.mode == ConfigMapMode::Snapshot && *live != map.name => {
                format!("config {} → {live}", map.name)
            }
            (_, Some(digest)) => format!("config {} → contents {}", map.name, short(digest)),
            (_, None) => format!("config {}", map.name),
        },
    };
    if let (ConfigMapMode::Snapshot, Some(live)) = (map.mode, &map.live) {
        let mut known = [stable, target].into_iter().flatten().peekable();
        if known.peek().is_some() && known.all(|known| known.snapshot != *live) {
            notes.push(format!("the live template names {live}"));
        }
    }
    if map.missing {
        let last = stable.or(target).is_some() || map.digest.is_some();
        let what = if last {
            match map.mode {
                ConfigMapMode::Snapshot => "its last contents stay in use",
                ConfigMapMode::Contents => "no new pod can start until it exists",
            }
        } else {
            "it is waited for"
        };
        notes.push(format!("missing, {what}"));
    }
    for note in notes {
        text.push_str(&format!("; {note}"));
    }
    text
}
