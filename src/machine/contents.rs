//! ConfigMaps of followed workloads: the template names them by the user's own
//! name, so what is released and goes back is what they hold.
//!
//! One annotation of the pod template says which contents the pods were made
//! with; another value makes new pods. Contents that nobody knows are never
//! written over.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Action, Scope, Workload, context::Context, desired::Obstacle, restore::DEADLINE, snapshots,
    stable::REASSERTIONS, ways,
};
use crate::{
    api::{ABORT, CONFIG_DIGEST, Reason},
    config_maps::Tracked,
    fields::{FieldSet, Path, PathElement, canon, graft},
    revision::{Frozen, Revision},
};

/// What `kubectl rollout restart` sets.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// A template without the mark of `kubectl rollout restart`, which makes the same
/// pods anew.
pub(super) fn unrestarted(template: &Value) -> Value {
    let mut template = template.clone();
    let metadata = template.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(RESTARTED_AT);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    template
}

/// Digest of the contents that belong to a followed workload.
pub(super) fn digest(tracked: &[Tracked]) -> Option<String> {
    let contents: BTreeMap<&str, &str> = tracked
        .iter()
        .map(|tracked| (tracked.name.as_str(), tracked.digest.as_str()))
        .collect();
    (!contents.is_empty()).then(|| canon::digest_json(&json!(contents)))
}

fn path() -> Path {
    ["metadata", "annotations", CONFIG_DIGEST]
        .into_iter()
        .map(PathElement::field)
        .collect()
}

/// The annotation as a field that Belay owns.
pub(super) fn annotation() -> FieldSet {
    let mut fields = FieldSet::default();
    fields.insert(&path());
    fields
}

/// What Belay owns of a followed template.
pub(super) fn fields(template: &Value, tracked: &[Tracked]) -> FieldSet {
    if tracked.is_empty() || stamp(template).is_none() {
        FieldSet::default()
    } else {
        annotation()
    }
}

fn stamp(template: &Value) -> Option<&str> {
    let annotations = template.pointer("/metadata/annotations")?;
    annotations.get(CONFIG_DIGEST)?.as_str()
}

/// A template without the annotation.
pub(super) fn plain(template: &Value) -> Value {
    let mut template = template.clone();
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else {
        return template;
    };
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
        && annotations.remove(CONFIG_DIGEST).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
    template
}

/// A template with the annotation of another, or without one if that has none.
pub(super) fn stamped_as(template: &Value, other: &Value) -> Value {
    with(template, stamp(other))
}

/// A template with the annotation for contents that no revision has.
pub(super) fn stamped(template: &Value, tracked: &[Tracked]) -> Value {
    with(template, digest(tracked).as_deref())
}

fn with(template: &Value, stamp: Option<&str>) -> Value {
    let mut stamped = plain(template);
    if let Some(stamp) = stamp {
        // Nothing can be in the way of it in a template that is stored.
        let _ = graft(&mut stamped, &path(), json!(stamp));
    }
    stamped
}

/// The template of a followed workload with the annotation for the contents
/// that its ConfigMaps have now. Contents that a revision knows keep the
/// annotation that they have there, so that nothing restarts for them.
pub(super) fn now(ctx: &Context<'_>, scope: &Scope, workload: &Workload) -> Value {
    let live = &workload.template;
    if scope.template.is_some() || scope.config_maps.is_empty() {
        return live.clone();
    }
    let known = known(ctx, scope);
    if known.is_empty() {
        return live.clone();
    }
    let same: Vec<Option<&str>> = known
        .iter()
        .filter(|frozen| is_same(&frozen.config_maps, &scope.tracked))
        .map(|frozen| stamp(&frozen.template))
        .collect();
    if same.contains(&stamp(live)) {
        return live.clone();
    }
    let digest = digest(&scope.tracked);
    with(live, same.first().copied().unwrap_or(digest.as_deref()))
}

/// What the revisions of this pass say of a followed workload, the stable one
/// first.
fn known<'a>(ctx: &Context<'a>, scope: &Scope) -> Vec<&'a Frozen> {
    let world = ctx.input.world;
    let stable = ctx.stable().into_iter();
    let others = world.revisions.values().map(AsRef::as_ref);
    stable
        .chain(others)
        .filter_map(|revision| revision.data.of(&scope.target))
        .filter(|frozen| frozen.partial_digest.is_none())
        .collect()
}

/// Whether no ConfigMap has other contents. One that was not tracked before is
/// taken as it is.
fn is_same(before: &[Tracked], now: &[Tracked]) -> bool {
    now.iter().all(|now| {
        let before = before.iter().find(|before| before.name == now.name);
        before.is_none_or(|before| before.digest == now.digest)
    })
}

/// What has to be done so that the ConfigMaps of a followed workload hold what
/// they held with a template. Contents that nobody knows are in the way, and where
/// `over` does not say otherwise also those that were refused and came again.
pub(super) fn bring(
    ctx: &Context<'_>,
    frozen: &Frozen,
    over: bool,
) -> Result<Vec<Action>, Obstacle> {
    let undo = ctx.release().is_some_and(|release| release.undo.is_some());
    write(ctx, frozen, undo, |name, now| {
        is_known(ctx, name, now) || over && are_refused(ctx, name, None)
    })
}

/// Whether a workload that reads a ConfigMap, another than `except`, has refused
/// content again: nobody's edit is lost with that.
pub(super) fn are_refused(ctx: &Context<'_>, name: &str, except: Option<usize>) -> bool {
    ctx.components().any(|view| {
        let reads = view.scope.config_maps.iter().any(|map| map == name);
        let follows = view.scope.template.is_none() && Some(view.index) != except;
        let live = view.observed.workload.as_ref();
        follows
            && reads
            && live.is_some_and(|live| {
                let now = now(ctx, view.scope, live);
                ctx.live_refused(&view.scope.target, &now)
            })
    })
}

/// The same for an undo that is only asked for.
pub(super) fn back(ctx: &Context<'_>, frozen: &Frozen) -> Result<Vec<Action>, Obstacle> {
    write(ctx, frozen, true, |name, now| {
        is_known(ctx, name, now) || are_refused(ctx, name, None)
    })
}

/// The same over contents that are known to be refused.
pub(super) fn force(ctx: &Context<'_>, frozen: &Frozen) -> Result<Vec<Action>, Obstacle> {
    let stable = ctx.stable();
    let holds = |name: &str| {
        let stable = stable.iter().flat_map(|stable| &stable.data.components);
        let mut maps = stable.flat_map(|frozen| &frozen.config_maps);
        maps.any(|tracked| tracked.name == name)
    };
    // Of others nobody knows what they held, and which edit is meant.
    write(ctx, frozen, false, |name, now| {
        holds(name) || is_known(ctx, name, now)
    })
}

fn write(
    ctx: &Context<'_>,
    frozen: &Frozen,
    undo: bool,
    may: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Action>, Obstacle> {
    let mut writes = Vec::new();
    let templated =
        |scope: &Scope| scope.template.is_some() && scope.target.to_ref() == frozen.workload;
    // Of a workload that has a template by now the ConfigMap is its user's.
    if frozen.partial_digest.is_some() || ctx.scope.iter().any(templated) {
        return Ok(writes);
    }
    let obstacle = |reason, message| Err(Obstacle { reason, message });
    let deleting = ctx.input.world.plan.deleting;
    for tracked in &frozen.config_maps {
        let name = &tracked.name;
        let Some(source) = ctx.input.world.config_maps.get(name) else {
            if undo {
                let text = format!(
                    "configmap {name} belongs to what is to come back, and the plan does not track it any more; add it to spec.components[].configMaps"
                );
                return obstacle(Reason::ConfigMapRefused, text);
            }
            continue;
        };
        if let Some(why) = &source.unreadable {
            if deleting && is_overdue(ctx) {
                // Rights that are lost must not hold it for ever either.
                continue;
            }
            let text = format!("waiting for {}", snapshots::readable(name, why));
            return obstacle(Reason::TargetsMissing, text);
        }
        if source.digest.as_ref() == Some(&tracked.digest) {
            continue;
        }
        let edited = source.digest.as_ref().is_some_and(|now| !may(name, now));
        if deleting && (edited || source.immutable) {
            // Somebody's edit must not hold a plan that is to go: it stays.
            continue;
        }
        if edited {
            let end = end(ctx);
            let text = format!(
                "configmap {name} was edited since the release took it, so the contents of then are not written over the edit. Keep the edit elsewhere, and give {name} the contents of configmap {} or those that the release brought{end}",
                tracked.snapshot
            );
            return obstacle(Reason::ConfigMapEdited, text);
        }
        if source.immutable {
            let text = format!(
                "configmap {name} is immutable, so the contents of configmap {} cannot be written to it; delete it, and it is made again with them",
                tracked.snapshot
            );
            return obstacle(Reason::ConfigMapRefused, text);
        }
        if let Some(text) = ctx.input.world.refusals.get(name) {
            if deleting && is_overdue(ctx) {
                continue;
            }
            let (snapshot, text) = (&tracked.snapshot, ways::brief(text));
            let end = if deleting { String::new() } else { end(ctx) };
            let text = format!(
                "the contents of configmap {snapshot} cannot be written to configmap {name}: {text}. Change what refuses it{end}"
            );
            return obstacle(Reason::ConfigMapRefused, text);
        }
        writes.push(Action::WriteContents {
            tracked: tracked.clone(),
            uid: source.uid.clone(),
            resource_version: source.resource_version.clone(),
        });
    }
    Ok(writes)
}

/// What is said of ConfigMaps that do not go back with a plan that goes.
pub(super) fn left(ctx: &Context<'_>, stable: &Revision) -> String {
    let followed = ctx.components().filter(|v| v.scope.template.is_none());
    let frozen = followed.filter_map(|view| stable.data.of(&view.scope.target));
    let other = |then: &&Tracked| {
        let now = ctx.input.world.config_maps.get(&then.name);
        let now = now.and_then(|now| now.digest.as_ref());
        now.is_some_and(|now| *now != then.digest)
    };
    let left = frozen.flat_map(|frozen| &frozen.config_maps).filter(other);
    let left: BTreeSet<&str> = left.map(|left| left.name.as_str()).collect();
    if left.is_empty() || !ctx.input.world.plan.deleting {
        return String::new();
    }
    let left: Vec<&str> = left.into_iter().collect();
    let left = ways::brief(&left.join(" and "));
    format!(" but for configmap {left}, which was edited since and stays as it is")
}

/// How to end what is under way without the contents, if anything is.
fn end(ctx: &Context<'_>) -> String {
    let current = super::context::current_name(ctx);
    if current.is_empty() {
        return current;
    }
    let order = ways::order(ctx, &[(ABORT, &current)]);
    format!("; or end this where it is: {order}")
}

/// Whether the way back has taken longer than progress may.
pub(super) fn is_overdue(ctx: &Context<'_>) -> bool {
    let plan = ctx.input.plan;
    let deadline = plan.map_or(DEADLINE, |plan| plan.progress_deadline());
    ctx.release()
        .is_some_and(|release| ctx.since(&release.stage_since) >= deadline)
}

/// Whether a revision of this pass holds contents of a ConfigMap.
fn is_known(ctx: &Context<'_>, name: &str, digest: &str) -> bool {
    let revisions = ctx.input.world.revisions.values();
    let mut frozen = revisions.flat_map(|revision| &revision.data.components);
    frozen.any(|frozen| {
        let mut known = frozen.config_maps.iter();
        known.any(|known| known.name == name && known.digest == digest)
    })
}

/// Whether a followed workload has the template already, and only contents had
/// to go back.
pub(super) fn is_settled(ctx: &Context<'_>, action: &Action) -> bool {
    let Action::Replace { write } = action else {
        return false;
    };
    ctx.components().any(|view| {
        let live = view.observed.workload.as_ref();
        view.scope.target == write.target
            && live.is_some_and(|live| canon::equal(&live.template, &write.template))
    })
}

/// The ConfigMaps that are written to, in words.
pub(super) fn names(writes: &[Action]) -> String {
    let names: Vec<&str> = writes
        .iter()
        .filter_map(|write| match write {
            Action::WriteContents { tracked, .. } => Some(tracked.name.as_str()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!("configmap {}", names.join(" and "))
}

/// Says that contents are fought over.
pub(super) fn refilled(names: &str, stable: &str) -> String {
    format!(
        "{names} keeps being given refused contents; Belay wrote those of {stable} back {REASSERTIONS} times in 10m, holds now, and tries again once these are past. Stop what applies them, or give it other contents"
    )
}
