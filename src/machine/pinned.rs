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
    Workload, adopt,
    back::touched,
    context::{Context, View},
    report, snapshots,
};
use crate::{
    api::Reason,
    config_maps::{Tracked, names, rewrite},
    fields::{canon, put_back},
    plan::Target,
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

/// The contents that a template reads from snapshots which the plan does not put
/// there by now, as where it does not say any more what the workload runs.
pub(super) fn left(
    ctx: &Context<'_>,
    view: View<'_>,
    template: &Value,
    own: &[Tracked],
) -> Vec<Tracked> {
    let names = names(template);
    let known = ctx.input.world.revisions.values();
    let known = known.filter_map(|revision| revision.data.of(&view.scope.target));
    let known = known.flat_map(Frozen::keeps);
    let left = known.filter(|t| names.contains(&t.snapshot) && !own.contains(t));
    let left: BTreeSet<&Tracked> = left.collect();
    left.into_iter().cloned().collect()
}

/// A live template as its user has it: what came back by a snapshot stands for
/// the ConfigMap.
pub(super) fn users(template: &Value, stable: Option<&Frozen>) -> Value {
    let kept = stable.into_iter().flat_map(Frozen::keeps);
    let names = kept.map(|kept| (kept.snapshot.clone(), kept.name.clone()));
    rewrite(template, &names.collect())
}

/// What a workload was that was followed then and has a template of the plan by
/// now: the ConfigMap is its user's, so the contents of then come back by their
/// snapshot.
fn read_only(view: View<'_>, frozen: &mut Frozen) {
    if view.scope.template.is_none() || frozen.partial_digest.is_some() {
        return;
    }
    let names = names(&frozen.template);
    for own in std::mem::take(&mut frozen.config_maps) {
        let reads = names.contains(&own.name) || names.contains(&own.snapshot);
        if reads && !frozen.named.contains(&own) {
            frozen.named.push(own);
        }
    }
}

/// Contents of a ConfigMap that the plan does not track any more say nothing
/// once nothing is under way: its name stands for what it holds.
fn is_stale(view: View<'_>, names: &BTreeSet<String>, kept: &Tracked) -> bool {
    !view.scope.config_maps.contains(&kept.name) && !names.contains(&kept.snapshot)
}

/// Whether a component of the stable revision keeps contents that say nothing.
pub(super) fn keeps_stale(view: View<'_>, frozen: &Frozen) -> bool {
    let names = names(&frozen.template);
    let mut named = frozen.named.iter();
    view.scope.template.is_some() && named.any(|kept| is_stale(view, &names, kept))
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
    let changed = stable.is_some() || proven.is_some();
    if !changed || snapshots::store(ctx, &maps).is_err() {
        return false;
    }
    if let Some((data, _)) = proven {
        ctx.status.proven_revision = Some(adopt::store_revision(ctx, data));
    }
    if let Some((data, kept)) = stable {
        let before = ctx.status.stable_revision.clone().unwrap_or_default();
        let name = adopt::rename_stable(ctx, data);
        if !kept.is_empty() {
            let text = format!(
                "the stable revision {before} names {}, which the plan tracks now; it is {name} from here on, with the contents of today",
                list(kept.iter().map(|tracked| &tracked.name))
            );
            ctx.log(Reason::BaselineTaken, &text);
        }
    }
    ctx.wake_in(Duration::ZERO);
    true
}

/// A revision with contents that it lacks, and these; and without those of
/// ConfigMaps that the plan does not track any more, which hold what they like.
fn taken(ctx: &Context<'_>, revision: &String) -> Option<(RevisionData, Vec<Tracked>)> {
    let revision = ctx.revision(Some(revision))?;
    let mut data = revision.data.clone();
    let mut all = Vec::new();
    for view in ctx.components().filter(|v| v.scope.template.is_some()) {
        let mut components = data.components.iter_mut();
        let frozen = components.find(|frozen| frozen.workload == view.scope.target.to_ref());
        let Some(frozen) = frozen else { continue };
        read_only(view, frozen);
        if !ctx.has_applied() {
            let names = names(&frozen.template);
            frozen.named.retain(|kept| !is_stale(view, &names, kept));
        }
        // Contents with which nothing runs are nothing to return to.
        let live = view.observed.workload.as_ref();
        let runs = |live: &Workload| live.available > 0 || live.replicas == 0;
        if !ctx.has_applied() && !live.is_some_and(runs) {
            continue;
        }
        let lacks = |new: &&Tracked| frozen.keeps().all(|known| known.name != new.name);
        let new = view.scope.tracked.iter().filter(lacks);
        let new = named(&frozen.template, new.map(|new| then(ctx, view, new)));
        frozen.named.extend(new.clone());
        all.extend(new);
    }
    (data != revision.data).then_some((data, all))
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
        if frozen.partial_digest.is_none() && names.contains(&tracked.snapshot) {
            // It came back already; what kept its name then is not the plan's.
            return false;
        }
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
/// not have the contents of then, they name their snapshot. Fields that do not
/// come back stay as they were.
pub(super) fn returned<'a>(ctx: &Context<'_>, revision: &'a Revision) -> Cow<'a, Revision> {
    let mut moves = Vec::new();
    let mut data = revision.data.clone();
    for view in ctx.components() {
        let reference = view.scope.target.to_ref();
        let mut components = data.components.iter_mut();
        if let Some(frozen) = components.find(|frozen| frozen.workload == reference) {
            read_only(view, frozen);
        }
    }
    for frozen in &mut data.components {
        let moved = moved(ctx, frozen);
        let target = Target::from_ref(&frozen.workload);
        let Some(target) = target.filter(|_| !moved.is_empty()) else {
            continue;
        };
        let rewritten = rewrite(&frozen.template, &moved);
        let fields = touched(ctx, &target);
        let template = if fields.is_empty() {
            rewritten
        } else {
            let fields = fields.union(&frozen.touched());
            put_back(&frozen.template, &rewritten, &fields)
        };
        if canon::equal(&template, &frozen.template) {
            continue;
        }
        frozen.template = template;
        // It is not what a plan says that has the same words.
        if let Some(digest) = &mut frozen.partial_digest {
            *digest = canon::digest_json(&json!([digest, moved]));
        }
        moves.push(moved);
    }
    if data == revision.data {
        return Cow::Borrowed(revision);
    }
    if !data.spec.is_empty() && !moves.is_empty() {
        data.spec = canon::digest_json(&json!([data.spec, moves]));
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
    let is_first = began(ctx).is_none_or(|began| began.name == stable.name);
    let name = adopt::rename_stable(ctx, revision.data);
    if let Some(release) = ctx.status.release.as_mut().filter(|_| is_first) {
        // What the release changed is only known beside what it began from.
        release.applied.insert(0, before.clone());
    }
    let text = format!(
        "{before} names {}, which does not have the contents of then any more; it comes back as {name}, with their snapshot",
        list(maps.iter())
    );
    ctx.log(Reason::RollingBack, &text);
    report::progressing(ctx, Reason::RollingBack, &text);
    ctx.wake_in(Duration::ZERO);
    true
}

/// The stable revision as the release in progress began from it.
pub(super) fn began<'a>(ctx: &Context<'a>) -> Option<&'a Revision> {
    let stable = ctx.stable()?;
    if stable.data.components.iter().all(|f| f.named.is_empty()) {
        // Only names that stand for contents are ever replaced.
        return Some(stable);
    }
    let by_name = |frozen: &Frozen| {
        let named = frozen.named.iter();
        let names = named.map(|named| (named.snapshot.clone(), named.name.clone()));
        rewrite(&frozen.template, &names.collect())
    };
    let same = |(now, then): (&Frozen, &Frozen)| {
        now.workload == then.workload
            && now.config_maps == then.config_maps
            && now.named == then.named
            && canon::equal(&by_name(now), &by_name(then))
    };
    let is_same = |revision: &&Revision| {
        let (now, then) = (&stable.data.components, &revision.data.components);
        now.len() == then.len() && now.iter().zip(then).all(same)
    };
    let mut applied = ctx.release().into_iter().flat_map(|r| &r.applied);
    let began = applied.find_map(|name| ctx.revision(Some(name)).filter(is_same));
    began.or(Some(stable))
}

/// Lets another release begin from what is stable by now.
pub(super) fn begin_anew(ctx: &mut Context<'_>) {
    let began = began(ctx).map(|began| began.name.clone());
    if began == ctx.status.stable_revision {
        return;
    }
    if let Some(release) = ctx.status.release.as_mut() {
        release.applied.retain(|name| Some(name) != began.as_ref());
    }
}

fn list<'a>(maps: impl Iterator<Item = &'a String>) -> String {
    let maps: BTreeSet<&str> = maps.map(String::as_str).collect();
    let maps: Vec<&str> = maps.into_iter().collect();
    format!("configmap {}", maps.join(" and "))
}
