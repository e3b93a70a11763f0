//! Contents behind names that a template has of its own: what was live before a
//! plan tracked a ConfigMap names the ConfigMap itself, so the name alone would
//! bring back whatever it holds by then.
//!
//! Decides which contents are kept for such a template, and when it has to come
//! back with the name of their snapshot in the place of its own. The ConfigMaps
//! themselves are never written here: they are the user's.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    adopt,
    context::{Context, View, is_complete},
    snapshots,
};
use crate::{
    api::{Cause, Reason},
    config_maps::{Tracked, names, rewrite},
    fields::canon,
    revision::{Frozen, Revision, RevisionData},
};

/// The contents that a live template stands for by names of its own. Of a
/// followed workload these belong to its content and go back themselves.
pub(super) fn of(view: View<'_>) -> Vec<Tracked> {
    let Some(workload) = view
        .observed
        .workload
        .as_ref()
        .filter(|_| view.scope.template.is_some())
    else {
        return Vec::new();
    };
    named(&workload.template, view.scope.tracked.iter())
}

fn named<'a>(template: &Value, tracked: impl Iterator<Item = &'a Tracked>) -> Vec<Tracked> {
    let names = names(template);
    let named = tracked.filter(|tracked| names.contains(&tracked.name));
    named.cloned().collect()
}

/// Keeps the contents of ConfigMaps that a plan begins to track, for the stable
/// revision that names them, before a release leaves it. True if its record was
/// replaced.
pub(super) fn take(ctx: &mut Context<'_>) -> bool {
    let Some(stable) = ctx.stable() else {
        return false;
    };
    let mut data = stable.data.clone();
    let mut kept: Vec<Tracked> = Vec::new();
    for view in ctx.components() {
        let live = view.observed.workload.as_ref();
        let templated = view.scope.template.is_some();
        // Contents that do not do for what is live are nothing to return to.
        let healthy = ctx.has_applied() || live.is_some_and(is_complete);
        let mut components = data.components.iter_mut();
        let frozen = components.find(|frozen| frozen.workload == view.scope.target.to_ref());
        let Some(frozen) = frozen.filter(|_| templated && healthy) else {
            continue;
        };
        let new = view.scope.tracked.iter();
        let new = new.filter(|new| frozen.keeps().all(|known| known.name != new.name));
        let new = named(&frozen.template, new);
        kept.extend(new.clone());
        frozen.named.extend(new);
    }
    // What cannot be kept is told where it is needed, by the release.
    if kept.is_empty() || snapshots::store(ctx, &kept).is_err() {
        return false;
    }
    let before = stable.name.clone();
    let name = adopt::set_stable(ctx, data);
    for record in &mut ctx.status.history {
        if record.revision.as_ref() == Some(&before) {
            record.revision = Some(name.clone());
        }
    }
    let maps: BTreeSet<String> = kept.into_iter().map(|tracked| tracked.name).collect();
    let maps: Vec<String> = maps.into_iter().collect();
    let text = format!(
        "the stable revision {before} names configmap {}, which the plan tracks now; it is {name} from here on, with the contents of today",
        maps.join(" and ")
    );
    ctx.log(Reason::BaselineTaken, &text);
    ctx.wake_in(Duration::ZERO);
    true
}

/// A component as it comes back: where a ConfigMap that its template names does
/// not have the contents of then, the template names their snapshot.
pub(super) fn pinned(ctx: &Context<'_>, frozen: &Frozen) -> Frozen {
    let moved = moved(ctx, frozen);
    if moved.is_empty() {
        return frozen.clone();
    }
    // It is not what a plan says that has the same words.
    let digest = frozen.partial_digest.as_ref();
    Frozen {
        template: rewrite(&frozen.template, &moved),
        partial_digest: digest.map(|digest| canon::digest_json(&json!([digest, moved]))),
        ..frozen.clone()
    }
}

/// The digest of the spec under which components come back.
pub(super) fn spec(ctx: &Context<'_>, data: &RevisionData) -> String {
    let moved: Vec<_> = data.components.iter().map(|f| moved(ctx, f)).collect();
    if data.spec.is_empty() || moved.iter().all(BTreeMap::is_empty) {
        return data.spec.clone();
    }
    canon::digest_json(&json!([data.spec, moved]))
}

/// The names that do not stand for the contents of then any more, with the names
/// of what does.
fn moved(ctx: &Context<'_>, frozen: &Frozen) -> BTreeMap<String, String> {
    let sources = &ctx.input.world.config_maps;
    let known = snapshots::digests(ctx.input.status, sources);
    let stands = |tracked: &&Tracked| {
        let deleted = sources
            .get(&tracked.name)
            .is_none_or(|source| source.digest.is_none() && source.unreadable.is_none());
        !deleted && known.get(&tracked.name) == Some(&tracked.digest)
    };
    let names = names(&frozen.template);
    let moved = frozen.named.iter().filter(|t| names.contains(&t.name));
    let moved = moved.filter(|tracked| !stands(tracked));
    moved
        .map(|tracked| (tracked.name.clone(), tracked.snapshot.clone()))
        .collect()
}

/// Replaces the stable revision by one with the contents of then, where its names
/// do not stand for them any more. True if there was something to replace.
pub(super) fn pin(ctx: &mut Context<'_>, cause: Option<Cause>) -> bool {
    let Some(stable) = ctx.stable().filter(|_| cause != Some(Cause::Reverted)) else {
        // What somebody applied again names what is meant now.
        return false;
    };
    let Revision { name, data } = stable;
    let frozen = data.components.iter();
    let maps: BTreeSet<String> = frozen.flat_map(|f| moved(ctx, f).into_keys()).collect();
    if maps.is_empty() {
        return false;
    }
    let components = data.components.iter().map(|frozen| pinned(ctx, frozen));
    let data = RevisionData {
        spec: spec(ctx, data),
        components: components.collect(),
        ..data.clone()
    };
    let maps: Vec<String> = maps.into_iter().collect();
    let new = adopt::set_stable(ctx, data);
    let text = format!(
        "{name} names configmap {}, which does not have the contents of then any more; it comes back as {new}, with their snapshot",
        maps.join(" and ")
    );
    ctx.log(Reason::RollingBack, &text);
    true
}
