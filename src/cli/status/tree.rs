//! From the objects of a cluster to what `belay status` knows of a plan.
//!
//! Pure: all that is shown was read before, and the time is an argument.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};

use super::{
    Caller,
    below::{self, Unseen},
    config, later,
    model::{
        ComponentView, CurrentRelease, DeploymentCounts, Health, LastRelease, PlanStatus,
        ReplicaSetStatus, Revisions,
    },
    objects::{DeploymentView, PodView, ReplicaSetView, RevisionView, is_owned, template_number},
    pods::{self, PodHealth},
    verdict::{self, Facts, last_edit},
};
use crate::{
    api::{ComponentState, ComponentStatus, ReleasePlanStatus, Stage, StoredPlan},
    machine::{Scope, scope},
    plan::{Target, as_seen, current},
};

/// What was read of a namespace, indexed for the plans in it.
#[derive(Default)]
pub(super) struct World<'a> {
    deployments: HashMap<&'a str, &'a DeploymentView>,
    sets: HashMap<&'a str, Vec<&'a ReplicaSetView>>,
    pods: HashMap<&'a str, Vec<&'a PodView>>,
    revisions: HashMap<&'a str, &'a RevisionView>,
    unread: Vec<String>,
}

impl<'a> World<'a> {
    /// Indexes what was read; `unread` says what could not be, and why.
    pub(super) fn new(
        deployments: impl IntoIterator<Item = &'a DeploymentView>,
        sets: impl IntoIterator<Item = &'a ReplicaSetView>,
        pods: impl IntoIterator<Item = &'a PodView>,
        revisions: impl IntoIterator<Item = &'a RevisionView>,
        unread: Vec<String>,
    ) -> Self {
        let mut world = Self {
            unread,
            ..Self::default()
        };
        for deployment in deployments {
            let name = deployment.metadata.name.as_deref().unwrap_or_default();
            world.deployments.insert(name, deployment);
        }
        for set in sets {
            for owner in set.metadata.owner_references.iter().flatten() {
                world.sets.entry(&owner.uid).or_default().push(set);
            }
        }
        for pod in pods {
            for owner in pod.metadata.owner_references.iter().flatten() {
                world.pods.entry(&owner.uid).or_default().push(pod);
            }
        }
        for revision in revisions {
            let name = revision.metadata.name.as_deref().unwrap_or_default();
            world.revisions.insert(name, revision);
        }
        world
    }

    /// A revision, if it could be read.
    pub(super) fn revision(&self, name: Option<&str>) -> Option<&'a RevisionView> {
        self.revisions.get(name?).copied()
    }

    fn sets_of(&self, deployment: &DeploymentView) -> Vec<&'a ReplicaSetView> {
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let mut sets = self.sets.get(uid).cloned().unwrap_or_default();
        sets.retain(|set| is_owned(&set.metadata, uid));
        // The number rises also when an older template comes back.
        sets.sort_by_key(|set| {
            let number = template_number(&set.metadata).unwrap_or_default();
            std::cmp::Reverse((
                number,
                set.metadata.creation_timestamp.as_ref().map(|t| t.0),
            ))
        });
        sets
    }
}

/// What is known of a plan without its workloads: a line in a list.
pub(super) fn summary(stored: &StoredPlan, now: Timestamp, caller: &Caller) -> PlanStatus {
    let status = stored.status.clone().unwrap_or_default();
    let parsed = as_seen(stored);
    PlanStatus {
        namespace: stored.metadata.namespace.clone().unwrap_or_default(),
        name: stored.metadata.name.clone().unwrap_or_default(),
        phase: status.phase,
        step: status.step.clone(),
        verdict: verdict::of(&Facts {
            stored,
            status: &status,
            plan: parsed.as_ref().ok(),
            now,
            caller,
        }),
        revisions: Revisions {
            stable: status.stable_revision.clone(),
            target: current(&status).map(str::to_owned),
            proven: status.proven_revision.clone(),
        },
        release: release(&status),
        last: last(&status),
        components: None,
        waiting: Vec::new(),
        unread: Vec::new(),
    }
}

/// A plan and everything below it.
pub(super) fn tree(
    stored: &StoredPlan,
    world: &World<'_>,
    now: Timestamp,
    caller: &Caller,
) -> PlanStatus {
    let status = stored.status.clone().unwrap_or_default();
    let parsed = as_seen(stored);
    let scope = scope(parsed.as_ref().ok(), &status);
    let order = in_order(&scope);
    let mut components = order
        .into_iter()
        .filter_map(|index| scope.get(index))
        .map(|component| view(component, &scope, &status, world, now))
        .collect::<Vec<_>>();
    let mut plan = summary(stored, now, caller);
    let facts = Facts {
        stored,
        status: &status,
        plan: parsed.as_ref().ok(),
        now,
        caller,
    };
    let unlike: Vec<Unseen> = unlike(&scope, &status, world).collect();
    below::mark_contended(&plan.verdict, &mut components, &unlike);
    below::agree(&mut plan.verdict, &facts, &components, unlike.first());
    plan.waiting = later::waiting(&facts, &components, &plan.verdict.reason);
    PlanStatus {
        components: Some(components),
        unread: world.unread.clone(),
        ..plan
    }
}

/// A line in a list: the verdict of the whole, from Deployments alone.
pub(super) fn line(
    stored: &StoredPlan,
    world: &World<'_>,
    now: Timestamp,
    caller: &Caller,
) -> PlanStatus {
    PlanStatus {
        components: None,
        ..tree(stored, world, now, caller)
    }
}

/// The Deployments whose live template is not the one that was judged.
fn unlike(
    scope: &[Scope],
    status: &ReleasePlanStatus,
    world: &World<'_>,
) -> impl Iterator<Item = Unseen> {
    scope.iter().filter_map(|component| {
        let reference = component.target.to_ref();
        let known = status.components.iter().find(|c| c.workload == reference)?;
        let judged = known.looked_at()?;
        let live = world.deployments.get(component.target.name.as_str())?;
        let digest = &live.spec.template.digest;
        (!digest.is_empty() && digest != judged).then(|| Unseen {
            workload: workload(&component.target),
            at: last_edit(&live.metadata),
        })
    })
}

fn release(status: &ReleasePlanStatus) -> Option<CurrentRelease> {
    let release = status.release.as_ref()?;
    let superseded = release.applied.last();
    let superseded = superseded.filter(|_| release.stage == Stage::Settle);
    Some(CurrentRelease {
        number: release.number,
        kind: release.kind,
        stage: release.stage,
        stage_since: seconds(&release.stage_since),
        started_at: seconds(&release.started_at),
        requested_by: release.requested_by.clone(),
        supersedes: superseded.cloned(),
    })
}

fn last(status: &ReleasePlanStatus) -> Option<LastRelease> {
    let record = status.history.last()?;
    Some(LastRelease {
        number: record.number,
        revision: record.revision.clone(),
        result: record.result,
        requested_by: record.requested_by.clone(),
        started_at: record.started_at.clone(),
        ended_at: record.ended_at.clone(),
    })
}

/// A time of the status in the precision that the output has.
pub(super) const fn seconds(time: &MicroTime) -> Time {
    Time(time.0)
}

/// Indices such that each component stands behind those that it comes after,
/// otherwise in the order of the plan.
fn in_order(scope: &[Scope]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(scope.len());
    while order.len() < scope.len() {
        let next = (0..scope.len()).find(|index| {
            !order.contains(index)
                && scope
                    .get(*index)
                    .is_some_and(|s| s.after.iter().all(|before| order.contains(before)))
        });
        // Without a valid plan nothing rules a cycle out.
        let Some(next) = next.or_else(|| (0..scope.len()).find(|i| !order.contains(i))) else {
            break;
        };
        order.push(next);
    }
    order
}

fn view(
    component: &Scope,
    scope: &[Scope],
    status: &ReleasePlanStatus,
    world: &World<'_>,
    now: Timestamp,
) -> ComponentView {
    let reference = component.target.to_ref();
    let known = status.components.iter().find(|c| c.workload == reference);
    let deployment = world
        .deployments
        .get(component.target.name.as_str())
        .copied();
    let replica_sets: Vec<ReplicaSetStatus> = deployment.map_or_else(Vec::new, |deployment| {
        let number = template_number(&deployment.metadata);
        let sets = world.sets_of(deployment);
        let set = |set: &&ReplicaSetView| set_status(set, number, world, now);
        sets.iter().map(set).collect()
    });
    let after = component.after.iter().filter_map(|index| scope.get(*index));
    ComponentView {
        name: component.name.clone(),
        workload: workload(&component.target),
        after: after.map(|before| before.name.clone()).collect(),
        health: health(known, deployment, &replica_sets, world),
        state: known.and_then(|known| known.state),
        contended: false,
        leaving: component.leaving,
        deployment: deployment.map(counts),
        replica_sets,
        config_maps: config::views(component, status, deployment, world),
    }
}

/// A workload as commands take it.
pub(in crate::cli) fn workload(target: &Target) -> String {
    format!("{:?}/{}", target.kind, target.name).to_lowercase()
}

fn counts(deployment: &DeploymentView) -> DeploymentCounts {
    DeploymentCounts {
        wanted: deployment.wanted(),
        replicas: deployment.status.replicas,
        ready: deployment.status.ready_replicas,
        updated: deployment.status.updated_replicas,
        available: deployment.status.available_replicas,
        paused: deployment.spec.paused,
        observed: deployment.is_observed(),
    }
}

fn health(
    known: Option<&ComponentStatus>,
    deployment: Option<&DeploymentView>,
    sets: &[ReplicaSetStatus],
    world: &World<'_>,
) -> Health {
    let Some(deployment) = deployment else {
        // Without the right to look there is only what the operator saw.
        let missing = known.is_some_and(|c| c.state == Some(ComponentState::Missing));
        return match known {
            Some(_) if !world.unread.is_empty() && !missing => Health::Working,
            _ => Health::Failed,
        };
    };
    let waits = matches!(
        known.and_then(|c| c.state),
        Some(ComponentState::Waiting | ComponentState::Restoring | ComponentState::Updating)
    );
    // One that was evicted, or restarted once, is in trouble beside all the pods
    // that are wanted.
    if deployment.is_complete() && !waits {
        return Health::Ok;
    }
    let broken = |set: &ReplicaSetStatus| set.refused.is_some() || !set.trouble.is_empty();
    if sets.iter().any(|set| set.wanted > 0 && broken(set)) {
        return Health::Failed;
    }
    if deployment.is_complete() {
        return Health::Working;
    }
    if deployment.spec.paused {
        return Health::Held;
    }
    Health::Working
}

fn set_status(
    set: &ReplicaSetView,
    number: Option<i64>,
    world: &World<'_>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let pods = world.pods.get(uid).map(Vec::as_slice).unwrap_or_default();
    let mut starting = 0;
    let mut trouble = Vec::new();
    for pod in pods {
        match pods::judge(pod, now) {
            PodHealth::Ready | PodHealth::Going => {}
            PodHealth::Starting => starting += 1,
            PodHealth::Trouble(found) => trouble.push(*found),
        }
    }
    trouble.sort_by(|a, b| {
        let rank = |t: &super::model::PodTrouble| std::cmp::Reverse(t.restarts);
        rank(a).cmp(&rank(b)).then_with(|| a.pod.cmp(&b.pod))
    });
    let own = template_number(&set.metadata);
    ReplicaSetStatus {
        name: set.metadata.name.clone().unwrap_or_default(),
        live: own.is_some() && own == number,
        images: set.images(),
        wanted: set.spec.replicas.unwrap_or(1),
        ready: set.status.ready_replicas,
        created_at: set.metadata.creation_timestamp.clone(),
        refused: set.refused().map(str::to_owned),
        starting,
        trouble,
    }
}

/// The labels that select the pods of all these Deployments and as few others
/// as possible; none if they have no label in common.
pub(super) fn common_selector<'a>(
    deployments: impl Iterator<Item = &'a DeploymentView>,
) -> Option<String> {
    let mut common: Option<BTreeMap<String, Vec<String>>> = None;
    for deployment in deployments {
        let labels = deployment
            .spec
            .selector
            .match_labels
            .clone()
            .unwrap_or_default();
        common = Some(match common {
            None => labels
                .into_iter()
                .map(|(key, value)| (key, vec![value]))
                .collect(),
            Some(known) => known
                .into_iter()
                .filter_map(|(key, mut values)| {
                    let value = labels.get(&key)?;
                    if !values.contains(value) {
                        values.push(value.clone());
                    }
                    Some((key, values))
                })
                .collect(),
        });
    }
    // Each narrows it down further: what two Deployments share, others may too.
    let keys: Vec<String> = common?
        .into_iter()
        .map(|(key, mut values)| {
            values.sort();
            format!("{key} in ({})", values.join(","))
        })
        .collect();
    (!keys.is_empty()).then(|| keys.join(","))
}
