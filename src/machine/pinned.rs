//! Contents behind names that a template has of its own: what was live before a
//! plan tracked a ConfigMap names the ConfigMap itself, so the name alone would
//! bring back whatever it holds by then.
//!
//! Decides which contents are kept for such a template, and when it has to come
//! back with the name of their snapshot in the place of its own. The ConfigMaps
//! themselves are never written here: they are the user's.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    adopt,
    context::{Context, View},
    report, snapshots,
};
use crate::{
    api::Reason,
    config_maps::{Tracked, names, rewrite},
    fields::canon,
    revision::{Frozen, Revision, RevisionData},
};

/// The contents that a live template stands for by names of its own, and those of
/// snapshots that it names, as where a status was lost. What a followed workload
/// names itself belongs to its content and goes back so.
pub(super) fn of(ctx: &Context<'_>, view: View<'_>) -> Vec<Tracked> {
    let Some(live) = view.observed.workload.as_ref() else {
        return Vec::new();
    };
    let world = ctx.input.world;
    let known = world.known.iter().map(|known| &known.revision);
    let known = known.chain(world.revisions.values().map(AsRef::as_ref));
    let known = known.filter_map(|revision| revision.data.of(&view.scope.target));
    let known = known.flat_map(Frozen::keeps).chain(&view.scope.tracked);
    let names = names(&live.template);
    let left = known.filter(|tracked| names.contains(&tracked.snapshot));
    let own = view.scope.tracked.iter().filter(|tracked| {
        let templated = view.scope.template.is_some();
        templated && names.contains(&tracked.name)
    });
    let all: BTreeSet<&Tracked> = left.chain(own).collect();
    all.into_iter().cloned().collect()
}

fn named(template: &Value, tracked: impl Iterator<Item = Tracked>) -> Vec<Tracked> {
    let names = names(template);
    let named = tracked.filter(|tracked| names.contains(&tracked.name));
    named.collect()
}

/// The contents that a template of the user's own reads from snapshots: those
/// that a plan put there which does not say any more what the workload runs.
pub(super) fn left(template: &Value, before: &Frozen) -> Vec<Tracked> {
    let names = names(template);
    let left = before.keeps().filter(|t| names.contains(&t.snapshot));
    let left: BTreeSet<&Tracked> = left.collect();
    left.into_iter().cloned().collect()
}

/// Keeps the contents of ConfigMaps that a plan begins to track, for the stable
/// revision that names them, before a release leaves it. True if a record was
/// replaced.
pub(super) fn take(ctx: &mut Context<'_>) -> bool {
    let stable = ctx.status.stable_revision.clone();
    let proven = ctx.status.proven_revision.clone();
    let stable = stable.and_then(|name| taken(ctx, &name));
    let proven = proven.and_then(|name| taken(ctx, &name));
    let maps = stable.iter().chain(&proven).flat_map(|(_, kept)| kept);
    let maps: Vec<Tracked> = maps.cloned().collect();
    // What cannot be kept is told where it is needed, by the release.
    if maps.is_empty() || snapshots::store(ctx, &maps).is_err() {
        return false;
    }
    if let Some((data, _)) = proven {
        ctx.status.proven_revision = Some(adopt::store_revision(ctx, data));
    }
    if let Some((data, _)) = stable {
        let before = ctx.status.stable_revision.clone().unwrap_or_default();
        let name = adopt::rename_stable(ctx, data);
        let text = format!(
            "the stable revision {before} names {}, which the plan tracks now; it is {name} from here on, with the contents of today",
            list(maps.iter().map(|tracked| &tracked.name))
        );
        ctx.log(Reason::BaselineTaken, &text);
    }
    ctx.wake_in(Duration::ZERO);
    true
}

/// A revision with contents that it lacks, and these.
fn taken(ctx: &Context<'_>, revision: &String) -> Option<(RevisionData, Vec<Tracked>)> {
    let mut data = ctx.revision(Some(revision))?.data.clone();
    let mut all = Vec::new();
    for view in ctx.components().filter(|v| v.scope.template.is_some()) {
        let mut components = data.components.iter_mut();
        let frozen = components.find(|frozen| frozen.workload == view.scope.target.to_ref());
        // Contents with which nothing runs are nothing to return to.
        let live = view.observed.workload.as_ref();
        let runs = ctx.has_applied() || live.is_some_and(|live| live.available > 0);
        let Some(frozen) = frozen.filter(|_| runs) else {
            continue;
        };
        let lacks = |name: &String| frozen.keeps().all(|known| known.name != *name);
        let new = view.scope.tracked.iter();
        let new = new.filter(|new| lacks(&new.name) || is_newly_tracked(ctx, &new.name));
        let new = new.map(|new| then(ctx, view, new));
        let mut new = named(&frozen.template, new);
        new.retain(|new| !frozen.named.contains(new));
        frozen
            .named
            .retain(|known| new.iter().all(|new| new.name != known.name));
        frozen.named.extend(new.clone());
        all.extend(new);
    }
    (!all.is_empty()).then_some((data, all))
}

/// Whether no pass has looked at a ConfigMap since the plan began to track it:
/// what was kept of it before is not what it held until now.
fn is_newly_tracked(ctx: &Context<'_>, name: &str) -> bool {
    let mut known = ctx.input.status.config_maps.iter();
    known.all(|known| known.name != *name)
}

/// What a ConfigMap held when the release in progress began with it.
fn then(ctx: &Context<'_>, view: View<'_>, now: &Tracked) -> Tracked {
    let applied = ctx.release().into_iter().flat_map(|r| &r.applied);
    let mut applied = applied.filter_map(|name| ctx.revision(Some(name)));
    let first = applied.find_map(|revision| {
        let frozen = revision.data.of(&view.scope.target)?;
        frozen.config_maps.iter().find(|then| then.name == now.name)
    });
    first.unwrap_or(now).clone()
}

/// The names that do not stand for the contents of then any more, with the names
/// of what does. Of a ConfigMap that the plan does not track nothing is known.
fn moved(ctx: &Context<'_>, frozen: &Frozen) -> BTreeMap<String, String> {
    let names = names(&frozen.template);
    let moved = frozen.named.iter().filter(|tracked| {
        let source = ctx.input.world.config_maps.get(&tracked.name);
        let source = source.filter(|_| names.contains(&tracked.name));
        let Some(source) = source else { return false };
        if source.unreadable.is_some() {
            let mut seen = ctx.input.status.config_maps.iter();
            let seen = seen.find(|seen| seen.name == tracked.name);
            return seen.and_then(|seen| seen.digest.as_ref()) != Some(&tracked.digest);
        }
        source.digest.as_ref() != Some(&tracked.digest)
    });
    moved
        .map(|tracked| (tracked.name.clone(), tracked.snapshot.clone()))
        .collect()
}

/// A revision as it comes back: where a ConfigMap that its templates name does
/// not have the contents of then, they name their snapshot.
pub(super) fn returned<'a>(ctx: &Context<'_>, revision: &'a Revision) -> Cow<'a, Revision> {
    let frozen = revision.data.components.iter();
    let moved: Vec<_> = frozen.map(|frozen| moved(ctx, frozen)).collect();
    if moved.iter().all(BTreeMap::is_empty) {
        return Cow::Borrowed(revision);
    }
    let mut data = revision.data.clone();
    // It is not what a plan says that has the same words.
    if !data.spec.is_empty() {
        data.spec = canon::digest_json(&json!([data.spec, moved]));
    }
    for (frozen, moved) in data.components.iter_mut().zip(&moved) {
        frozen.template = rewrite(&frozen.template, moved);
        if let Some(digest) = frozen.partial_digest.as_mut().filter(|_| !moved.is_empty()) {
            *digest = canon::digest_json(&json!([digest, moved]));
        }
    }
    let name = revision.name.clone();
    Cow::Owned(Revision { name, data })
}

/// Replaces the stable revision by what it comes back as. True if that is
/// another one.
pub(super) fn pin(ctx: &mut Context<'_>) -> bool {
    let asked = |stable: &&Revision| {
        let plan = ctx.input.plan;
        plan.is_ok_and(|plan| plan.content() == stable.data.spec)
    };
    // What the plan says by these names is what is meant now.
    let Some(stable) = ctx.stable().filter(|stable| !asked(stable)) else {
        return false;
    };
    let Cow::Owned(revision) = returned(ctx, stable) else {
        return false;
    };
    let frozen = stable.data.components.iter();
    let maps: Vec<String> = frozen.flat_map(|f| moved(ctx, f).into_keys()).collect();
    let before = &stable.name;
    let name = adopt::rename_stable(ctx, revision.data);
    let text = format!(
        "{before} names {}, which does not have the contents of then any more; it comes back as {name}, with their snapshot",
        list(maps.iter())
    );
    ctx.log(Reason::RollingBack, &text);
    report::progressing(ctx, Reason::RollingBack, &text);
    ctx.wake_in(Duration::ZERO);
    true
}

fn list<'a>(maps: impl Iterator<Item = &'a String>) -> String {
    let maps: BTreeSet<&str> = maps.map(String::as_str).collect();
    let maps: Vec<&str> = maps.into_iter().collect();
    format!("configmap {}", maps.join(" and "))
}
