//! The account of releases: records of those that ended, and the revisions that
//! are kept for them.

use super::{
    Action, contents,
    context::{Context, cut},
    needs::tried_before,
    rebuild, ways,
};
use serde_json::{Value, json};

use crate::{
    api::{
        RefusedContent, ReleasePlanStatus, ReleaseRecord,
        ReleaseResult::{self, Failed, RolledBack, Succeeded},
    },
    config_maps::{Tracked, rewrite},
    fields::{FieldSet, canon, diff, graft, put_back},
    plan::{Plan, last_word},
    revision::{Frozen, RevisionData},
};

/// How many records are kept where the plan cannot be read.
const LIMIT: usize = 10;
/// How many forms of templates of those that were refused.
const TEMPLATES: usize = 1000;

/// Enters the release in progress into the history.
pub(super) fn record(ctx: &mut Context<'_>, result: ReleaseResult, message: Option<String>) {
    let ended = ctx.time();
    let Some(release) = ctx.release() else { return };
    let stable = ctx.status.stable_revision.clone();
    // An undo that ends the loss of a status has made its revision the stable one,
    // and what was live before it is not known.
    let (revision, from) = if rebuild::is_asked_for_in_loss(ctx) {
        (stable, None)
    } else {
        (ctx.status.target_revision.clone(), stable)
    };
    let record = ReleaseRecord {
        number: release.number,
        kind: release.kind,
        revision,
        requested_by: release.requested_by.clone(),
        unproven: false,
        changes: changes(ctx),
        from,
        started_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(release.started_at.0),
        ended_at: ended,
        result,
        message: message.map(|message| cut(&message)),
    };
    ctx.status.history.push(record);
    // Bounded here too, for a release that is superseded again and again.
    let limit = ctx.input.plan.map_or(LIMIT, |plan| plan.history_limit());
    let ordered = ctx.input.world.plan.undo.as_deref();
    bound(&mut ctx.status.history, limit, ordered);
}

/// What is said of content that failed when it was tried last, and was taken away
/// since.
pub(super) fn failed_before(ctx: &Context<'_>, name: &str) -> String {
    let mut records = ctx.status.history.iter().rev();
    let judged = |record: &&ReleaseRecord| {
        let result = record.result;
        let judged = [Succeeded, RolledBack, Failed].contains(&result);
        judged && record.revision.as_deref() == Some(name)
    };
    let last = records.find(judged);
    let last = last.filter(|record| record.result != Succeeded);
    let why = last.and_then(|record| record.message.as_deref());
    why.map_or_else(String::new, |why| {
        format!("{name} failed before: {}. ", ways::brief(why))
    })
}

/// Keeps the last of the records, and beside them always the one of the release
/// that brought the stable content: attempts that fail, and restarts, must not
/// push out where an undo goes to. Nor may they where one that waits goes to.
fn bound(history: &mut Vec<ReleaseRecord>, limit: usize, ordered: Option<&str>) {
    let surplus = history.len().saturating_sub(limit);
    let made = last_word(history);
    let made = made.map(|record| record.number);
    let mut index = 0;
    history.retain(|record| {
        index += 1;
        let names = [&record.revision, &record.from];
        let ordered = ordered.is_some() && names.iter().any(|name| name.as_deref() == ordered);
        index > surplus || Some(record.number) == made || ordered
    });
}

/// Keeps the last of what was refused, and whatever still holds something: what
/// the plan asks for now, and the last that was refused of each workload.
fn bound_refused(ctx: &mut Context<'_>, limit: usize) {
    let content = ctx.input.plan.map(Plan::content).ok();
    let refused = &ctx.status.refused;
    let surplus = refused.len().saturating_sub(limit);
    let holds = |index: usize, one: &RefusedContent| {
        let later = refused.iter().skip(index + 1).flat_map(|later| &later.live);
        let later: Vec<_> = later.map(|live| &live.workload).collect();
        let mut same = refused.iter().skip(index + 1);
        let is_last = !same.any(|later| later.spec == one.spec);
        one.spec.is_some() && one.spec.as_deref() == content && is_last
            || one.live.iter().any(|live| !later.contains(&&live.workload))
    };
    // Whatever its length, it has to fit into the status.
    let mut entries = 0;
    let newest = refused.iter().rev().take_while(|one| {
        entries += one.live.len();
        entries <= TEMPLATES
    });
    let surplus = surplus.max(refused.len() - newest.count());
    let kept = refused.iter().enumerate();
    let kept = kept.filter(|(index, one)| *index >= surplus || holds(*index, one));
    ctx.status.refused = kept.map(|(_, one)| one.clone()).collect();
}

/// Bounds the history, and with it the revisions that are kept.
pub(super) fn prune(ctx: &mut Context<'_>, limit: usize) {
    let ordered = ctx.input.world.plan.undo.as_deref();
    bound(&mut ctx.status.history, limit, ordered);
    bound_refused(ctx, limit);
    let mut keep: Vec<String> = ctx
        .status
        .history
        .iter()
        .flat_map(|record| [record.revision.clone(), record.from.clone()])
        .flatten()
        .chain(
            ctx.status
                .refused
                .iter()
                .map(|refused| refused.revision.clone()),
        )
        // The status that no longer needs them is not stored yet: until then
        // they may still be what a rollback returns to.
        .chain(needed(&ctx.status))
        .chain(needed(ctx.input.status))
        .collect();
    keep.sort();
    keep.dedup();
    ctx.act(Action::PruneRevisions { keep });
}

/// Revisions that a release or a rollback needs.
fn needed(status: &ReleasePlanStatus) -> impl Iterator<Item = String> {
    let applied = status
        .release
        .iter()
        .flat_map(|release| release.applied.clone());
    status
        .stable_revision
        .clone()
        .into_iter()
        .chain(status.proven_revision.clone())
        .chain(status.target_revision.clone())
        .chain(applied)
}

/// Changes that a record lists.
const CHANGES: usize = 8;
/// Longest of them, in characters.
const CHANGE: usize = 160;

/// What is said of a first release that is tried again.
const AGAIN: &str = "the same again";

/// What the target changes against the stable revision, in short.
fn changes(ctx: &Context<'_>) -> Vec<String> {
    match (ctx.target(), ctx.stable()) {
        (Some(target), Some(stable)) => changes_of(&stable.data, &target.data),
        (Some(target), None) => match ctx.revision(tried_before(&ctx.status)) {
            Some(before) if before.name == target.name => owned(&target.data, AGAIN),
            Some(before) => changes_of(&before.data, &target.data),
            None => first(&target.data),
        },
        _ => Vec::new(),
    }
}

/// What a first release changes, as far as it is known what stood in the fields
/// that it took.
fn first(target: &RevisionData) -> Vec<String> {
    let mut before = target.clone();
    for frozen in &mut before.components {
        for found in frozen.found.iter() {
            frozen.template = match &found.value {
                Some(value) => {
                    let mut template = frozen.template.clone();
                    // What no longer has a place is no change of a value.
                    let _ = graft(&mut template, &found.path, value.clone());
                    template
                }
                None => {
                    let mut field = FieldSet::default();
                    field.insert(&found.path);
                    put_back(&frozen.template, &json!({}), &field)
                }
            };
        }
    }
    let changes = changes_of(&before, target);
    if !changes.is_empty() {
        return changes;
    }
    owned(target, "first content")
}

/// Says something of each component that the plan has a template for.
fn owned(target: &RevisionData, what: &str) -> Vec<String> {
    let owned = target.components.iter();
    let owned = owned.filter(|frozen| frozen.partial_digest.is_some());
    owned
        .take(CHANGES)
        .map(|frozen| format!("{}: {what}", frozen.name))
        .collect()
}

/// What a revision changes against another, in the words of a release's record.
#[must_use]
pub fn changes_of(stable: &RevisionData, target: &RevisionData) -> Vec<String> {
    let mut changes = Vec::new();
    for now in &target.components {
        let mut before = stable.components.iter();
        let Some(before) = before.find(|before| before.workload == now.workload) else {
            changes.push(format!("{}: new in the plan", now.name));
            continue;
        };
        let others = changes.len();
        for change in diff(&plain(before), &plain(now)) {
            changes.push(format!("{}: {change}", now.name));
        }
        let of = |all: &[Tracked], name: &str| all.iter().find(|t| t.name == *name).cloned();
        for new in now.keeps() {
            let old = of(&before.config_maps, &new.name);
            let named = of(&now.config_maps, &new.name).is_none();
            // Contents that are only named are no change by themselves.
            let other = || of(&before.named, &new.name).filter(|old| old.digest != new.digest);
            let text = match old.or_else(other) {
                Some(old) if old.digest == new.digest => continue,
                // Of templated components by the names that stand in the cluster.
                Some(old) if now.partial_digest.is_some() => {
                    format!("{} → {}", old.snapshot, new.snapshot)
                }
                Some(old) => format!(
                    "{} → {}",
                    canon::short(&old.digest),
                    canon::short(&new.digest)
                ),
                None if named => continue,
                None => format!("tracked from {}", canon::short(&new.digest)),
            };
            changes.push(format!("{}: configmap {}: {text}", now.name, new.name));
        }
        let keeps = |left: &Tracked| now.keeps().any(|now| now.name == left.name);
        for left in before.config_maps.iter().filter(|left| !keeps(left)) {
            let text = "not tracked any more";
            changes.push(format!("{}: configmap {}: {text}", now.name, left.name));
        }
        if changes.len() == others {
            // A ConfigMap in the place of its snapshot, or the other way round.
            let [then, names] = [before, now].map(|frozen| contents::plain(&frozen.template));
            for change in diff(&then, &names) {
                changes.push(format!("{}: {change}", now.name));
            }
        }
    }
    let rest = changes.len().saturating_sub(CHANGES);
    changes.truncate(CHANGES);
    for change in &mut changes {
        if let Some((end, _)) = change.char_indices().nth(CHANGE) {
            change.truncate(end);
            change.push('…');
        }
    }
    if rest > 0 {
        changes.push(format!("{rest} more"));
    }
    changes
}

/// A template with the names that people gave to its ConfigMaps.
fn plain(frozen: &Frozen) -> Value {
    let names = frozen.keeps();
    let names = names.map(|tracked| (tracked.snapshot.clone(), tracked.name.clone()));
    contents::plain(&rewrite(&frozen.template, &names.collect()))
}
