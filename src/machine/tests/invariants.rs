//! What must hold of every single decision, whatever led to it.

use super::sim::Sim;
use crate::{
    api::{Cause, ConditionType, RefusedContent, ReleasePlanStatus, Stage},
    config_maps::{Tracked, names, rewrite},
    fields::{FieldSet, canon, project},
    machine::{Action, Decision, TemplateWrite, World, context::is_complete},
    plan::{Target, abortable, is_lost, retryable, undoable},
    revision::{Frozen, Revision, RevisionData},
};

pub(super) fn check(sim: &Sim, world: &World, decision: &Decision) {
    conditions_agree(sim, decision);
    ready_means_released(sim, decision);
    stable_means_proven(sim, world, decision);
    writes_follow_a_record(sim, decision);
    refused_content_is_not_released(sim, decision);
    failures_lead_to_what_was_proven(sim, decision);
    memory_is_bounded(decision);
    orders_in_messages_can_be_pasted(decision);
    revisions_keep_what_their_templates_name(sim, decision);
    what_came_back_reads_what_it_read(sim, world, decision);
}

/// Where a name of a ConfigMap came back at the end of a rollback, it stands for
/// the contents of then, but where the plan asks for that name itself.
fn what_came_back_reads_what_it_read(sim: &Sim, world: &World, decision: &Decision) {
    let release = sim.status.release.as_ref();
    let restores = release.is_some_and(|release| release.stage == Stage::Restore);
    let ended = decision.status.release.is_none() && !sim.facts.deleting;
    let stable = decision.status.stable_revision.as_ref();
    let stable = stable.and_then(|name| revision(sim, decision, name));
    let Some(stable) = stable.filter(|_| restores && ended) else {
        return;
    };
    let asked = sim
        .parsed()
        .is_ok_and(|plan| plan.content() == stable.data.spec);
    for scope in sim.scope().iter().filter(|scope| scope.template.is_some()) {
        let Some(frozen) = stable.data.of(&scope.target).filter(|_| !asked) else {
            continue;
        };
        let named = names(&frozen.template);
        // A name beside the snapshot is none of the plan's.
        let own = |kept: &&Tracked| named.contains(&kept.name) && !named.contains(&kept.snapshot);
        for kept in frozen.named.iter().filter(own) {
            let source = world.config_maps.get(&kept.name);
            let source = source.filter(|source| source.unreadable.is_none());
            assert!(
                source.is_none_or(|source| source.digest.as_ref() == Some(&kept.digest)),
                "{} does not have the contents of {}: {frozen:#?}",
                kept.name,
                stable.name
            );
        }
    }
}

/// A snapshot that a template of a revision names is kept for that revision.
fn revisions_keep_what_their_templates_name(sim: &Sim, decision: &Decision) {
    for action in &decision.actions {
        let Action::CreateRevision { revision, .. } = action else {
            continue;
        };
        for frozen in &revision.data.components {
            let names = names(&frozen.template).into_iter();
            for name in names.filter(|name| sim.snapshots.contains_key(name)) {
                assert!(
                    frozen.keeps().any(|kept| kept.snapshot == name),
                    "{} of {} is not kept: {frozen:#?}",
                    name,
                    revision.name
                );
            }
        }
    }
}

/// Each reason stands with the same one of `Ready`, `Reconciling` and `Stalled`
/// in every history, which is what the readings of other tools are tested with.
pub(super) fn reasons_mean_one_thing(decision: &Decision) {
    let status = &decision.status;
    let Some(ready) = status.conditions.iter().find(|c| c.type_ == "Ready") else {
        return;
    };
    let says = [
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Stalled,
    ];
    let says = says.into_iter().find(|says| holds(status, *says));
    let line = format!(
        "{} {}",
        ready.reason,
        says.map_or("", ConditionType::as_str)
    );
    let mut known = include_str!("reasons.txt").lines();
    assert!(known.any(|known| known == line), "{line} is new");
}

/// Each order that a message names is a whole command, and one that admission
/// would let through.
fn orders_in_messages_can_be_pasted(decision: &Decision) {
    let status = &decision.status;
    let message = status.conditions.iter().find(|c| c.type_ == "Ready");
    let message = message.map_or("", |condition| condition.message.as_str());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" belay.dev/") {
        let (order, tail) = after.split_once(' ').expect(message);
        let (verb, revision) = order.split_once('=').expect(message);
        let whole = before.ends_with("kubectl annotate relplan shop -n prod")
            && (tail.starts_with("--overwrite") || tail.starts_with("belay.dev/"));
        assert!(whole || before.is_empty(), "{message}");
        let stable = status.stable_revision.as_deref() == Some(revision);
        let takes = match verb {
            "abort" => abortable(status) == Some(revision),
            "undo" => stable || is_lost(status) || undoable(status).contains(&revision),
            "retry" => retryable(status).contains(&revision),
            _ => false,
        };
        assert!(takes, "{verb} of {revision} is not taken: {message}");
        // The next order of the same command.
        rest = &after[order.len()..];
        if rest.starts_with(" --overwrite") {
            rest = &rest[" --overwrite".len()..];
        }
    }
}

fn failures_lead_to_what_was_proven(sim: &Sim, decision: &Decision) {
    let stage = |status: &ReleasePlanStatus| status.release.as_ref().map(|r| r.stage);
    let cause = |status: &ReleasePlanStatus| Some(status.release.as_ref()?.failure.as_ref()?.cause);
    let wished = [Cause::Reverted, Cause::Aborted, Cause::PlanDeleted];
    let began = stage(&sim.status) != Some(Stage::Restore)
        && stage(&decision.status) == Some(Stage::Restore)
        && !cause(&decision.status).is_some_and(|cause| wished.contains(&cause));
    if let Some(proven) = decision.status.proven_revision.as_ref().filter(|_| began) {
        let proven = &sim.revisions[proven];
        let joined = |s: &crate::machine::Scope| proven.data.of(&s.target).is_none();
        assert!(
            sim.scope().iter().any(joined),
            "a failure leads to what has not run"
        );
    }
}

fn holds(status: &ReleasePlanStatus, type_: ConditionType) -> bool {
    status
        .conditions
        .iter()
        .any(|c| c.type_ == type_.as_str() && c.status == "True")
}

fn conditions_agree(sim: &Sim, decision: &Decision) {
    let status = &decision.status;
    if status.conditions.is_empty() {
        return;
    }
    let verdicts = [
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Stalled,
    ];
    let holding = verdicts.iter().filter(|t| holds(status, **t)).count();
    assert_eq!(holding, 1, "exactly one verdict: {:#?}", status.conditions);
    let directions = [
        ConditionType::RollingOut,
        ConditionType::RollbackInProgress,
        ConditionType::Stable,
    ];
    assert!(directions.iter().filter(|t| holds(status, **t)).count() <= 1);
    for condition in &status.conditions {
        assert_eq!(condition.observed_generation, status.observed_generation);
        assert!(condition.message.len() <= 1000, "{}", condition.message);
        if condition.type_ == "Ready" {
            assert!(!condition.message.is_empty());
        }
    }
    assert!(status.observed_generation <= Some(sim.facts.generation));
}

/// A revision that is stored, or that this decision stores.
fn revision<'a>(sim: &'a Sim, decision: &'a Decision, name: &str) -> Option<&'a Revision> {
    let created = decision.actions.iter().find_map(|action| match action {
        Action::CreateRevision { revision, .. } if revision.name == name => Some(&**revision),
        _ => None,
    });
    created.or_else(|| sim.revisions.get(name))
}

fn ready_means_released(sim: &Sim, decision: &Decision) {
    let status = &decision.status;
    if !holds(status, ConditionType::Ready)
        || status.observed_generation != Some(sim.facts.generation)
    {
        return;
    }
    let plan = sim
        .parsed()
        .expect("a plan that is not valid is never ready");
    assert!(status.release.is_none());
    let stable = status
        .stable_revision
        .as_ref()
        .expect("ready without a stable revision");
    let stable = revision(sim, decision, stable).expect("ready on a revision that is not there");
    assert_eq!(
        stable.data.spec,
        plan.content(),
        "ready for content that was not released"
    );
    assert!(
        status
            .refused
            .iter()
            .all(|r| r.spec.as_deref() != Some(plan.content()))
    );
}

fn stable_means_proven(sim: &Sim, world: &World, decision: &Decision) {
    let (before, after) = (
        &sim.status.stable_revision,
        &decision.status.stable_revision,
    );
    let Some(name) = after.as_ref().filter(|_| before != after) else {
        assert!(
            before.is_none() || after.is_some(),
            "the stable revision was forgotten"
        );
        return;
    };
    let told = sim.lost && before.is_none() && sim.revisions.contains_key(name);
    if told || sim.status.proven_revision.as_ref() == Some(name) {
        return;
    }
    let stable = revision(sim, decision, name).expect("a stable revision that is not stored");
    let old = before.as_ref().and_then(|name| sim.revisions.get(name));
    for (scope, observed) in sim.scope().iter().zip(&world.components) {
        let Some(frozen) = stable.data.of(&scope.target) else {
            continue;
        };
        let old = old.and_then(|old| old.data.of(&scope.target));
        // The snapshot of what a name stood for is the same content.
        let names = frozen.named.iter();
        let names = names.map(|named| (named.snapshot.clone(), named.name.clone()));
        let names = names.collect();
        let by_name = |frozen: &Frozen| rewrite(&frozen.template, &names);
        let kept = old.is_some_and(|old| canon::equal(&by_name(old), &by_name(frozen)));
        // From before the plan owned anything, what it owned until now is what
        // had to come back; the rest is surroundings.
        let left = old.filter(|_| scope.template.is_some() && frozen.fields.is_empty());
        let fields = left.map(Frozen::touched).unwrap_or_default();
        let proven = observed.workload.as_ref().is_some_and(|workload| {
            is_complete(workload) && looks_like(&workload.template, frozen, &fields)
        });
        assert!(
            kept || proven,
            "{} is stable but was not proven",
            scope.target
        );
    }
}

fn looks_like(live: &serde_json::Value, frozen: &Frozen, left: &FieldSet) -> bool {
    let fields = frozen.touched().union(left);
    if fields.is_empty() {
        return canon::equal(live, &frozen.template);
    }
    canon::equal(&project(live, &fields), &project(&frozen.template, &fields))
}

fn writes(decision: &Decision) -> impl Iterator<Item = &TemplateWrite> {
    decision.actions.iter().filter_map(|action| match action {
        Action::Apply { write } | Action::Replace { write } => Some(write),
        _ => None,
    })
}

fn writes_follow_a_record(sim: &Sim, decision: &Decision) {
    // What counts is what was recorded before this pass.
    let Some(release) = &sim.status.release else {
        let wrote = writes(decision).next().is_some();
        assert!(!wrote || sim.status.stable_revision.is_some());
        return;
    };
    for write in writes(decision) {
        assert!(
            !matches!(release.stage, Stage::Settle | Stage::Stopped),
            "a write before all is prepared, or after a stop"
        );
        if release.stage == Stage::Restore {
            assert!(
                was_moved(sim, &write.target),
                "{} was never moved",
                write.target
            );
            continue;
        }
        let target = sim
            .status
            .target_revision
            .as_ref()
            .expect("a write without a target");
        assert!(release.applied.contains(target));
        assert!(sim.revisions.contains_key(target));
    }
}

fn was_moved(sim: &Sim, target: &Target) -> bool {
    let find = |name: &String| sim.revisions.get(name)?.data.of(target);
    let stable = sim.status.stable_revision.as_ref().and_then(find);
    if stable.is_some_and(|stable| stable.partial_digest.is_some()) {
        // Its fields are held against others at all times.
        return true;
    }
    let release = sim.status.release.as_ref();
    let told = release.and_then(|release| release.failure.as_ref());
    if sim.lost && told.is_some_and(|failure| failure.cause == Cause::StatusLost) {
        // A person named where to go, since nobody knows what was moved.
        return true;
    }
    let applied = release.iter().flat_map(|r| &r.applied);
    applied
        .filter_map(find)
        .any(|frozen| stable.is_none_or(|stable| !canon::equal(&stable.template, &frozen.template)))
}

fn refused_content_is_not_released(sim: &Sim, decision: &Decision) {
    let status = &decision.status;
    let Some(release) = status
        .release
        .as_ref()
        .filter(|r| !matches!(r.stage, Stage::Restore | Stage::Stopped))
    else {
        return;
    };
    let Some(target) = status.target_revision.as_ref() else {
        return;
    };
    let target = revision(sim, decision, target).expect("a target that is not stored");
    let find = |name: &String| sim.revisions.get(name);
    let stable = status.stable_revision.as_ref().and_then(find);
    for refused in &status.refused {
        let stable = stable.map(|stable| &stable.data);
        let corrected = |part| is_corrected(refused, part, &target.data, stable);
        let again = refused.spec.as_ref() == Some(&target.data.spec)
            && stable.is_none_or(|stable| stable.spec != target.data.spec);
        let again = again && !corrected(None);
        assert!(!again, "release {} has refused content", release.number);
        for template in &refused.live {
            let again = target.data.components.iter().any(|frozen| {
                let same = |f: &Frozen| canon::digest(&f.template) == template.digest;
                let before =
                    stable.and_then(|s| s.components.iter().find(|f| f.name == frozen.name));
                // What a template of the plan asks for anew is no live template.
                let own = frozen.partial_digest.is_some();
                let anew = own && before.is_none_or(|b| b.partial_digest != frozen.partial_digest);
                frozen.workload == template.workload
                    && !anew
                    && same(frozen)
                    && !before.is_some_and(same)
                    && !corrected(Some(frozen))
            });
            assert!(!again, "release {} has a refused template", release.number);
        }
    }
}

/// Beside other content of what failed, what went back with it is new. The part
/// is a component, or what the plan says.
fn is_corrected(
    refused: &RefusedContent,
    part: Option<&Frozen>,
    target: &RevisionData,
    stable: Option<&RevisionData>,
) -> bool {
    if matches!(refused.cause, Cause::Undone | Cause::StatusLost) {
        return false;
    }
    let is_failed = |part: &Frozen| refused.component.as_ref() == Some(&part.name);
    if refused.corrected {
        return !part.is_some_and(is_failed);
    }
    let other_spec = refused.spec.as_ref().is_some_and(|s| *s != target.spec);
    let other_spec = part.is_some() && other_spec;
    let mut components = target.components.iter();
    components.any(|now| {
        let failed = refused.component.as_ref();
        let mut before = stable.into_iter().flat_map(|stable| &stable.components);
        let before = before.find(|before| before.workload == now.workload);
        let changed = before.is_some_and(|before| before.template != now.template);
        let templated = now.partial_digest.is_some();
        part.is_none_or(|part| part.workload != now.workload)
            && failed.is_none_or(|failed| *failed == now.name)
            && if templated { other_spec } else { changed }
    })
}

fn memory_is_bounded(decision: &Decision) {
    let status = &decision.status;
    assert!(status.decisions.len() <= 20);
    assert!(status.history.len() <= 30 && status.refused.len() <= 10);
    let size = serde_json::to_string(status).unwrap().len();
    assert!(size < 64 << 10, "the status takes {size} bytes");
}
