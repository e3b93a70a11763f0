//! Contents of ConfigMaps: which have to be read, which are wanted, and what
//! has to be kept in snapshots before a template may count on them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Action, Scope, Source,
    context::{Context, View, cut},
    desired::Obstacle,
    ways,
};
use crate::{
    api::{Cause, ConfigMapStatus, Failure, Reason, ReleasePlanStatus},
    config_maps::{Kept, MAX_BYTES, Tracked, names},
    plan::Plan,
    revision::{Frozen, Revision},
};

/// The ConfigMaps of users that a pass looks at: those that the plan tracks,
/// and those that it tracked when the release in progress began.
#[must_use]
pub fn sources(plan: Option<&Plan>, status: &ReleasePlanStatus) -> Vec<String> {
    let tracked = plan.into_iter().flat_map(Plan::config_maps);
    let before = status.config_maps.iter().map(|known| known.name.as_str());
    let before = before.filter(|_| plan.is_none() || status.release.is_some());
    let names: BTreeSet<&str> = tracked.chain(before).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Digests of the contents that count: those that were read, and of a ConfigMap
/// that is gone, cannot be read or is too large those that were last seen.
#[must_use]
pub fn digests(
    status: &ReleasePlanStatus,
    sources: &BTreeMap<String, Source>,
) -> BTreeMap<String, String> {
    let known = |name: &String| {
        let mut known = status.config_maps.iter();
        known.find(|c| c.name == *name)?.digest.clone()
    };
    let digest = |(name, source): (&String, &Source)| {
        let read = source.digest.clone().filter(|_| source.bytes <= MAX_BYTES);
        Some((name.clone(), read.or_else(|| known(name))?))
    };
    sources.iter().filter_map(digest).collect()
}

/// The snapshots that a pass has to know of: those of what is wanted and of the
/// revisions that it rests on.
#[must_use]
pub fn snapshots<'a>(
    scope: &[Scope],
    revisions: impl Iterator<Item = &'a Revision>,
) -> Vec<Tracked> {
    let frozen = revisions.flat_map(|revision| &revision.data.components);
    let frozen = frozen.flat_map(Frozen::keeps);
    let wanted = scope.iter().flat_map(|scope| &scope.tracked);
    let all: BTreeSet<&Tracked> = wanted.chain(frozen).collect();
    all.into_iter().cloned().collect()
}

/// Keeps what was seen of the ConfigMaps in the status, and tells of those that
/// were deleted.
pub(super) fn remember(ctx: &mut Context<'_>) {
    let sources = &ctx.input.world.config_maps;
    let digests = digests(ctx.input.status, sources);
    let seen: Vec<ConfigMapStatus> = sources
        .iter()
        .map(|(name, source)| ConfigMapStatus {
            name: name.clone(),
            digest: digests.get(name).cloned(),
            missing: source.digest.is_none() && source.unreadable.is_none(),
        })
        .collect();
    let before = std::mem::replace(&mut ctx.status.config_maps, seen.clone());
    for gone in seen
        .iter()
        .filter(|now| now.missing && now.digest.is_some())
    {
        if before
            .iter()
            .any(|then| then.name == gone.name && !then.missing)
        {
            let text = format!(
                "configmap {} was deleted; {}",
                gone.name,
                without(ctx, &gone.name)
            );
            ctx.tell(true, Reason::ConfigMapMissing, &text);
        }
    }
}

/// What it means that a ConfigMap is gone: pods read it where their template has
/// its own name, and its contents out of a snapshot where that stands.
fn without(ctx: &Context<'_>, name: &str) -> String {
    let tracks = |view: &View<'_>| view.scope.config_maps.iter().any(|known| known == name);
    let named = |view: &View<'_>| {
        let live = view.observed.workload.as_ref();
        live.is_some_and(|live| names(&live.template).contains(name))
    };
    let read = ctx.components().filter(|view| {
        let followed = view.scope.template.is_none();
        tracks(view) && (followed || named(view))
    });
    let read: Vec<String> = read.map(|view| view.scope.target.to_string()).collect();
    if read.is_empty() {
        return "the contents that it had stay in use".to_owned();
    }
    let read = ways::brief(&read.join(" and "));
    format!("no new pod of {read} can start until it exists")
}

/// The tracked ConfigMaps of whose contents nothing is known: those that do not
/// exist, and, with the reason, those that cannot be read.
pub(super) fn missing(ctx: &Context<'_>) -> (Vec<String>, Vec<String>) {
    let scopes = ctx.scope.iter().filter(|scope| !scope.leaving);
    let names: BTreeSet<&String> = scopes
        .flat_map(|scope| {
            let known = |name: &&String| scope.tracked.iter().all(|t| t.name != **name);
            scope.config_maps.iter().filter(known)
        })
        .collect();
    let mut gone = Vec::new();
    let mut unread = Vec::new();
    for name in names.into_iter().filter(|name| !is_too_large(ctx, name)) {
        match why_unreadable(ctx, name) {
            Some(why) => unread.push(readable(name, why)),
            None => gone.push(format!("configmap {name}")),
        }
    }
    (gone, unread)
}

/// Why a ConfigMap of a user could not be read, if so.
fn why_unreadable<'a>(ctx: &Context<'a>, name: &str) -> Option<&'a str> {
    let source = ctx.input.world.config_maps.get(name)?;
    source.unreadable.as_deref()
}

/// "configmap web to be readable", and why it is not.
pub(super) fn readable(name: &str, why: &str) -> String {
    format!("configmap {name} to be readable ({why})")
}

/// Whether all contents that are wanted are known.
pub(super) fn is_resolved(ctx: &Context<'_>) -> bool {
    ctx.scope
        .iter()
        .all(|scope| scope.leaving || scope.tracked.len() == scope.config_maps.len())
}

fn is_too_large(ctx: &Context<'_>, name: &str) -> bool {
    let source = ctx.input.world.config_maps.get(name);
    source.is_some_and(|source| source.bytes > MAX_BYTES)
}

/// Says so if a tracked ConfigMap is too large to be kept.
pub(super) fn too_large(ctx: &Context<'_>) -> Option<String> {
    let tracked = ctx.scope.iter().filter(|scope| !scope.leaving);
    let tracked: BTreeSet<&String> = tracked.flat_map(|scope| &scope.config_maps).collect();
    let texts: Vec<String> = tracked
        .into_iter()
        .filter(|name| is_too_large(ctx, name))
        .map(|name| {
            let bytes = ctx.input.world.config_maps[name].bytes;
            format!("configmap {name} holds {bytes} bytes; up to {MAX_BYTES} are released. Make it smaller, or split it")
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The same as a remark behind a verdict on something else, told once as itself.
pub(super) fn larger(ctx: &mut Context<'_>) -> String {
    let Some(text) = too_large(ctx) else {
        return String::new();
    };
    tell_new(ctx, Reason::ConfigMapRefused, &text);
    format!("; {text}")
}

/// What has to be stored before a template may be written that counts on these
/// contents: nothing, if all are kept.
pub(super) fn secure(ctx: &Context<'_>, tracked: &[Tracked]) -> Result<Vec<Action>, Obstacle> {
    let mut create = Vec::new();
    let mut faults: Vec<(Reason, String)> = Vec::new();
    for tracked in tracked {
        match keep(ctx, tracked, was_kept(ctx, tracked)) {
            Ok(action) => create.extend(action),
            Err(obstacle) => faults.push((obstacle.reason, obstacle.message)),
        }
    }
    let Some((reason, _)) = faults.first() else {
        return Ok(create);
    };
    let reason = *reason;
    let texts: Vec<String> = faults.into_iter().map(|(_, text)| text).collect();
    Err(Obstacle {
        reason,
        message: texts.join("; "),
    })
}

/// What has to be stored so that contents are kept; `was_kept` says whether they
/// were before.
fn keep(ctx: &Context<'_>, tracked: &Tracked, was_kept: bool) -> Result<Option<Action>, Obstacle> {
    let Tracked {
        name,
        snapshot,
        digest,
    } = tracked;
    let world = ctx.input.world;
    let source = world.config_maps.get(name);
    let there = source.and_then(|source| source.digest.as_ref());
    let obstacle = |reason, message| Err(Obstacle { reason, message });
    // What nobody asked for is not in doubt.
    match world.snapshots.get(snapshot).unwrap_or(&Kept::Whole) {
        Kept::Whole => Ok(None),
        Kept::Missing if there == Some(digest) => match world.refusals.get(snapshot) {
            None => Ok(Some(Action::CreateSnapshot {
                tracked: tracked.clone(),
            })),
            Some(text) => {
                let text = ways::brief(text);
                let text = format!(
                    "configmap {snapshot}, which has to keep contents of configmap {name}, cannot be stored: {text}. Change what refuses it"
                );
                obstacle(Reason::ConfigMapRefused, text)
            }
        },
        Kept::Missing => {
            if let Some(why) = why_unreadable(ctx, name) {
                let text = format!(
                    "waiting for {}; its contents have to be kept",
                    readable(name, why)
                );
                obstacle(Reason::TargetsMissing, text)
            } else if there.is_none() && !was_kept {
                let text = format!(
                    "waiting for configmap {name} to exist; it was deleted before its contents were kept"
                );
                obstacle(Reason::TargetsMissing, text)
            } else if source.is_none() {
                let text = format!(
                    "configmap {snapshot}, which kept contents of configmap {name}, was deleted, and the plan does not track {name} any more, so that nothing can be made again from it; add it to spec.components[].configMaps and give it the contents of then ({digest}), or restore {snapshot}"
                );
                obstacle(Reason::SnapshotLost, text)
            } else {
                let text = format!(
                    "configmap {snapshot}, which kept contents of configmap {name}, was deleted, and {name} does not have them any more; give {name} those of then, as a backup has them ({digest}). The content of the plan is released with whatever {name} holds once this is over; pause the plan or correct its content before, if that must not be"
                );
                obstacle(Reason::SnapshotLost, text)
            }
        }
        Kept::Damaged => {
            let text = format!(
                "configmap {snapshot}, which keeps contents of configmap {name}, was changed by somebody; delete it, and it is made again from {name} if that has the contents"
            );
            obstacle(Reason::SnapshotLost, text)
        }
        Kept::Unknown(why) => {
            let text = format!(
                "waiting for {}, which keeps contents of configmap {name}",
                readable(snapshot, why)
            );
            obstacle(Reason::TargetsMissing, text)
        }
        Kept::Foreign => {
            let text = format!(
                "configmap {snapshot} is in the way: contents of configmap {name} have to be kept under this name, and the one that is there is not this plan's; delete or rename it"
            );
            obstacle(Reason::ConfigMapRefused, text)
        }
    }
}

/// Whether a snapshot of these contents is not there, or does not hold them. One
/// that cannot be read may.
pub(super) fn is_gone(ctx: &Context<'_>, tracked: &[Tracked]) -> bool {
    let kept = |tracked: &Tracked| ctx.input.world.snapshots.get(&tracked.snapshot);
    tracked.iter().any(|tracked| {
        let whole = matches!(kept(tracked), None | Some(Kept::Whole | Kept::Unknown(_)));
        !whole
    })
}

/// Makes snapshots again that somebody took away while nothing is released and
/// the users' ConfigMaps still have the contents.
pub(super) fn renew(ctx: &mut Context<'_>) {
    for tracked in in_use(ctx) {
        if let Ok(Some(action)) = keep(ctx, &tracked, true) {
            ctx.act_once(action);
        }
    }
}

/// What is said of the configuration of a plan at rest behind its verdict:
/// ConfigMaps that were deleted, and contents that a rollback could not bring
/// back, since they are no longer kept and cannot be kept again.
pub(super) fn caveats(ctx: &mut Context<'_>) -> String {
    let mut text = String::new();
    let gone = ctx.status.config_maps.iter().filter(|c| c.missing);
    let gone: Vec<&str> = gone.map(|c| c.name.as_str()).collect();
    for gone in gone {
        let without = without(ctx, gone);
        text = format!("{text}; configmap {gone} was deleted, and {without}");
    }
    for (workload, name) in beside(ctx) {
        text = format!(
            "{text}; {workload} names configmap {name} also where the template of the plan does not, and there it reads what {name} holds, also after a rollback"
        );
    }
    for (workload, name, snapshot) in instead(ctx) {
        text = format!(
            "{text}; {workload} names configmap {snapshot} in the place of {name}, as the plan had put it there, and reads what that keeps; apply its own manifest to let it read {name}"
        );
    }
    text.push_str(&larger(ctx));
    let in_use = in_use(ctx).into_iter();
    let lacks = in_use.filter_map(|tracked| keep(ctx, &tracked, true).err());
    let lacks: Vec<String> = lacks.filter_map(in_doubt).collect();
    if !lacks.is_empty() {
        let lacks = format!(
            "a rollback could not bring all configuration back: {}",
            lacks.join("; ")
        );
        tell_new(ctx, Reason::SnapshotLost, &lacks);
        text = format!("{text}; {lacks}");
    }
    text
}

/// Workloads that name a tracked ConfigMap themselves beside its snapshot.
fn beside(ctx: &Context<'_>) -> Vec<(String, String)> {
    let mut beside = Vec::new();
    for view in ctx.components().filter(|v| v.scope.template.is_some()) {
        let live = view.observed.workload.as_ref();
        let names = live.map(|live| names(&live.template)).unwrap_or_default();
        let both = |t: &&Tracked| names.contains(&t.name) && names.contains(&t.snapshot);
        let both = view.scope.tracked.iter().filter(both);
        beside.extend(both.map(|t| (view.scope.target.to_string(), t.name.clone())));
    }
    beside
}

/// Followed workloads that name a snapshot in the place of a tracked ConfigMap,
/// with both.
fn instead(ctx: &Context<'_>) -> Vec<(String, String, String)> {
    let mut instead = Vec::new();
    for view in ctx.components().filter(|v| v.scope.template.is_none()) {
        let live = view.observed.workload.as_ref();
        let names = live.map(|live| names(&live.template)).unwrap_or_default();
        for tracked in view
            .scope
            .tracked
            .iter()
            .filter(|t| !names.contains(&t.name))
        {
            let is_snapshot = |name: &&String| {
                let digest = name.strip_prefix(&tracked.name);
                let digest = digest.and_then(|rest| rest.strip_prefix('-'));
                digest.is_some_and(|d| d.len() == 10 && d.bytes().all(|b| b.is_ascii_hexdigit()))
            };
            if let Some(snapshot) = names.iter().find(is_snapshot) {
                let workload = view.scope.target.to_string();
                instead.push((workload, tracked.name.clone(), snapshot.clone()));
            }
        }
    }
    instead
}

/// What a plan at rest counts on: what its stable revision holds, which is only
/// read where the plan asks for something else.
fn in_use(ctx: &Context<'_>) -> BTreeSet<Tracked> {
    if let Some(stable) = ctx.stable() {
        let frozen = stable.data.components.iter();
        return frozen.flat_map(Frozen::keeps).cloned().collect();
    }
    let scopes = ctx.scope.iter().filter(|scope| !scope.leaving);
    scopes.flat_map(|scope| scope.tracked.clone()).collect()
}

/// Why contents are not kept and cannot be. What only cannot be read is not in
/// doubt.
fn in_doubt(obstacle: Obstacle) -> Option<String> {
    (obstacle.reason != Reason::TargetsMissing).then_some(obstacle.message)
}

/// Keeps what the stable revision holds while a release leaves it, and tells of
/// contents that a rollback of this release could not bring back; what it says
/// stands behind a verdict. It is no obstacle: the release may be what mends it.
pub(super) fn way_back(ctx: &mut Context<'_>) -> String {
    let Some(stable) = ctx.stable() else {
        return String::new();
    };
    let frozen = stable.data.components.iter();
    let held = frozen.flat_map(Frozen::keeps).collect();
    let lacks = keep_for(ctx, &stable.name, held);
    lacks.map_or_else(String::new, |lacks| format!("; {lacks}"))
}

/// Keeps contents that a revision holds; says what of them is lost.
pub(super) fn keep_for(
    ctx: &mut Context<'_>,
    revision: &str,
    held: BTreeSet<&Tracked>,
) -> Option<String> {
    let mut lacks = Vec::new();
    for tracked in held {
        match keep(ctx, tracked, true) {
            Ok(Some(action)) => ctx.act_once(action),
            Ok(None) => {}
            Err(obstacle) => lacks.extend(in_doubt(obstacle)),
        }
    }
    if lacks.is_empty() {
        return None;
    }
    let text = format!(
        "a rollback to {revision} could not bring all configuration back: {}",
        lacks.join("; ")
    );
    tell_new(ctx, Reason::SnapshotLost, &text);
    Some(text)
}

/// Tells of contents, unless that was the last that was told for the reason.
pub(super) fn tell_new(ctx: &mut Context<'_>, reason: Reason, text: &str) {
    let mut told = ctx.status.decisions.iter().rev();
    let told = told.find(|told| told.reason == reason);
    if told.is_none_or(|told| told.message != cut(text)) {
        ctx.tell(true, reason, text);
    }
}

/// Whether the last that was said is that contents cannot be kept, or written.
pub(super) fn were_refused(ctx: &Context<'_>) -> bool {
    let mut conditions = ctx.input.status.conditions.iter();
    conditions.any(|c| c.type_ == "Ready" && c.reason == Reason::ConfigMapRefused.as_str())
}

/// Whether a revision that this pass rests on holds the contents.
fn was_kept(ctx: &Context<'_>, tracked: &Tracked) -> bool {
    let revisions = ctx.input.world.revisions.values();
    let mut frozen = revisions.flat_map(|revision| &revision.data.components);
    frozen.any(|frozen| frozen.keeps().any(|kept| kept == tracked))
}

/// What contents that are not kept make of a release: they fail it. What only
/// cannot be read now holds it.
pub(super) fn lost(
    ctx: &Context<'_>,
    view: View<'_>,
    obstacle: Obstacle,
) -> Result<Failure, Obstacle> {
    if obstacle.reason == Reason::TargetsMissing {
        return Err(obstacle);
    }
    Ok(Failure {
        component: Some(view.scope.name.clone()),
        cause: Cause::SnapshotLost,
        message: obstacle.message,
        at: ctx.micros(),
    })
}

/// Stores what has to be kept before a template is written; see [`secure`].
pub(super) fn store(ctx: &mut Context<'_>, tracked: &[Tracked]) -> Result<(), Obstacle> {
    for action in secure(ctx, tracked)? {
        ctx.act_once(action);
    }
    Ok(())
}
