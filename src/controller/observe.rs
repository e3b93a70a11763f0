//! Reads what a decision needs, and nothing more.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::{join_all, try_join_all};
use k8s_openapi::{
    api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
};
use kube::{Api, api::DynamicObject, runtime::reflector::ObjectRef};
use serde_json::{Value, json};

use super::{
    Context, ReconcileError, config_maps,
    error::judged,
    revisions,
    trials::{Answer, Question},
    watches::Watched,
};
use crate::{
    api::{
        ABORT, DeletionPolicy, FIELD_MANAGER, FINALIZER, ORDERED_BY, Phase, RELEASE_DIGEST,
        RELEASE_GENERATION, REQUESTED_BY, RETRY, ReleasePlanStatus, StoredPlan, UNDO,
    },
    cluster::{Snapshot, as_stored, deployments, dry_run},
    fields::{Found, canon, managed_by},
    machine::{self, DryRun, Observed, PlanFacts, Scope, Source, Workload, World},
    plan::{Plan, Stamps, Target, Violations, incumbent},
    revision::Revision,
};

/// A workload as the API server returned it, and what was made of it.
struct Live {
    workload: Workload,
    snapshot: Snapshot,
    /// Digest of who owns which of its fields.
    ownership: String,
    selector: String,
    /// Time for which a pod has to be ready to count as available.
    min_ready: Duration,
    /// Whether it says that pods cannot be created.
    refusing: bool,
}

/// Reads the world around a plan.
pub(super) async fn observe(
    ctx: &Context,
    stored: &StoredPlan,
    parsed: Result<&Plan, &Violations>,
    status: &ReleasePlanStatus,
    sources: BTreeMap<String, Source>,
    namespace_terminating: bool,
) -> Result<(World, Pods), ReconcileError> {
    let namespace = stored.metadata.namespace.as_deref().unwrap_or_default();
    let facts = PlanFacts {
        namespace_terminating,
        ..facts(stored, parsed)
    };
    let scope = machine::scope(parsed.ok(), status);
    let reads = scope
        .iter()
        .map(|scope| read(ctx, namespace, &scope.target));
    let mut live: Vec<Option<Live>> = try_join_all(reads).await?;

    let workloads: Vec<Option<Workload>> = live
        .iter()
        .map(|live| live.as_ref().map(|live| live.workload.clone()))
        .collect();
    let needs = machine::needs(&scope, &workloads, status, &facts);
    let loaded = revisions::load(ctx, namespace, &facts.uid, &needs.revisions).await?;
    let known = if needs.known {
        revisions::find(ctx, namespace, &facts.uid).await?
    } else {
        Vec::new()
    };

    let resting = status.release.is_none() && status.phase == Some(Phase::Stable);
    let stable = status.stable_revision.as_ref();
    let record_lost = match stable.filter(|_| resting && !facts.deleting) {
        Some(name) if loaded.iter().any(|revision| revision.name == *name) => false,
        Some(name) => revisions::is_gone(ctx, namespace, &facts.uid, name).await,
        None => false,
    };

    let pods = watch(ctx, stored, &scope, &mut live, needs.pods).await;
    let revisions: BTreeMap<String, Arc<Revision>> =
        loaded.into_iter().map(|r| (r.name.clone(), r)).collect();
    let snapshots = if namespace_terminating {
        BTreeMap::new()
    } else {
        let wanted = machine::snapshots(&scope, revisions.values().map(AsRef::as_ref));
        config_maps::kept(ctx, namespace, &facts.uid, &wanted).await
    };
    let stable = status
        .stable_revision
        .as_ref()
        .and_then(|name| revisions.get(name));
    let tries = scope
        .iter()
        .zip(&mut live)
        .zip(&needs.dry_run)
        .filter(|(_, wanted)| **wanted)
        .map(|((scope, live), _)| {
            let found = machine::found(status, &revisions, &scope.target);
            try_templates(ctx, stored, scope, live.as_mut(), found, stable, status)
        });
    for outcome in join_all(tries).await {
        outcome?;
    }
    if !needs.dry_run.contains(&true) {
        ctx.trials.forget(&facts.uid);
    }

    let plans = ctx.plans.state();
    let components = scope
        .iter()
        .zip(live)
        .map(|(scope, live)| Observed {
            incumbent: incumbent(stored, &scope.target, plans.iter().map(AsRef::as_ref)),
            workload: live.map(|live| live.workload),
        })
        .collect();
    let world = World {
        plan: facts,
        components,
        revisions,
        record_lost,
        known,
        config_maps: sources,
        snapshots,
        refusals: BTreeMap::new(),
    };
    Ok((world, pods))
}

/// Adds what the partial template of a component would make of its workload,
/// and, where that is not what the stable revision holds, what the API server
/// makes of the frozen template today.
async fn try_templates(
    ctx: &Context,
    stored: &StoredPlan,
    scope: &Scope,
    live: Option<&mut Live>,
    found: Found,
    stable: Option<&Arc<Revision>>,
    status: &ReleasePlanStatus,
) -> Result<(), ReconcileError> {
    let Some(live) = live else {
        return Ok(());
    };
    let uid = stored.metadata.uid.as_deref().unwrap_or_default();
    let frozen = stable.and_then(|revision| revision.data.of(&scope.target));
    // New content of the plan is another template anyway, and once a release
    // has begun the question is answered.
    let frozen = frozen
        .filter(|frozen| status.release.is_none() && frozen.partial_digest == scope.template_digest)
        .map(|frozen| &frozen.template);
    let question = Question::new(scope, &live.snapshot, &live.ownership, &found, frozen);
    let now = Instant::now();
    let answer = match ctx.trials.get(uid, &scope.target, &question, now) {
        Some(answer) => answer,
        None => {
            let namespace = stored.metadata.namespace.as_deref().unwrap_or_default();
            let touched = status.release.iter().any(|r| !r.applied.is_empty());
            let answer = match ask(ctx, namespace, scope, live, &found, frozen).await {
                Ok(answer) => answer,
                // What was moved so far must be judged all the same.
                Err(ReconcileError::Undecided { message, .. }) if touched => {
                    tracing::warn!(workload = %scope.target, %message, "the API server does not judge a template");
                    live.workload.dry_run = Some(DryRun::Undecided(message));
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            ctx.trials
                .keep(uid, &scope.target, question, answer.clone(), now);
            answer
        }
    };
    live.workload.dry_run = answer.dry_run;
    live.workload.stable_today = answer.stable_today;
    Ok(())
}

async fn ask(
    ctx: &Context,
    namespace: &str,
    scope: &Scope,
    live: &Live,
    found: &Found,
    frozen: Option<&Value>,
) -> Result<Answer, ReconcileError> {
    let (client, target, snapshot) = (&ctx.client, &scope.target, &live.snapshot);
    let undecided = |failure| judged(target, failure);
    let tried = match &scope.template {
        Some(partial) => Some(
            dry_run(client, namespace, target, snapshot, partial, found)
                .await
                .map_err(undecided)?,
        ),
        None => None,
    };
    let wanted = match &tried {
        Some(DryRun::Merged { template, .. }) => template,
        _ => &live.workload.template,
    };
    let stable_today = match frozen.filter(|frozen| !canon::equal(frozen, wanted)) {
        Some(frozen) => as_stored(client, namespace, target, snapshot, frozen)
            .await
            .map_err(undecided)?,
        None => None,
    };
    Ok(Answer {
        dry_run: tried,
        stable_today,
    })
}

fn facts(stored: &StoredPlan, parsed: Result<&Plan, &Violations>) -> PlanFacts {
    let meta = &stored.metadata;
    let namespace = meta.namespace.clone().unwrap_or_default();
    let policy = stored
        .spec
        .get("deletionPolicy")
        .cloned()
        .unwrap_or_default();
    PlanFacts {
        name: meta.name.clone().unwrap_or_default(),
        namespace: namespace.clone(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        // A number that belongs to other content says nothing about this one.
        release_generation: stored
            .annotation(RELEASE_GENERATION)
            .filter(|_| {
                parsed
                    .is_ok_and(|plan| stored.annotation(RELEASE_DIGEST) == Some(plan.spec_digest()))
            })
            .and_then(|number| number.parse().ok()),
        requested_by: stored.annotation(REQUESTED_BY).map(str::to_owned),
        abort: stored.annotation(ABORT).map(str::to_owned),
        undo: stored.annotation(UNDO).map(str::to_owned),
        retry: stored.annotation(RETRY).map(str::to_owned),
        ordered_by: Stamps::read(stored.annotation(ORDERED_BY)),
        deleting: stored.is_deleting(),
        deletion_policy: serde_json::from_value(policy).unwrap_or(DeletionPolicy::Rollback),
        finalizer: meta
            .finalizers
            .iter()
            .flatten()
            .any(|name| name == FINALIZER),
        namespace_terminating: false,
    }
}

/// Whether the namespace of a plan goes with it. Deleting a namespace deletes
/// its plans, so only then it can matter.
pub(super) async fn is_terminating(
    ctx: &Context,
    stored: &StoredPlan,
) -> Result<bool, ReconcileError> {
    if !stored.is_deleting() {
        return Ok(false);
    }
    let name = stored.metadata.namespace.as_deref().unwrap_or_default();
    let namespaces = Api::<Namespace>::all(ctx.client.clone());
    let namespace = namespaces
        .get_opt(name)
        .await
        .map_err(ReconcileError::api(format!("read namespace {name}")))?;
    Ok(namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
}

/// When the pods have to be looked at again, beside what their watches tell.
#[derive(Default)]
pub(super) struct Pods {
    /// Whether something of them could not be read.
    pub(super) unread: bool,
    /// Time until a pod that is ready counts as available.
    pub(super) wake: Option<Duration>,
}

/// Keeps the watches on pods while they are needed, and adds what they say. Where
/// they cannot be read nothing is said of them: the deadlines count all the same.
async fn watch(
    ctx: &Context,
    stored: &StoredPlan,
    scope: &[Scope],
    live: &mut [Option<Live>],
    needed: bool,
) -> Pods {
    let uid = stored.metadata.uid.as_deref().unwrap_or_default();
    if !needed {
        ctx.watches.stop(uid);
        return Pods::default();
    }
    let namespace = stored.metadata.namespace.as_deref().unwrap_or_default();
    let plan = ObjectRef::from_obj(stored);
    let looks = scope.iter().zip(live).map(async |(scope, live)| {
        let Some(live) = live else {
            return Pods::default();
        };
        let watched = Watched {
            uid,
            namespace,
            target: &scope.target,
            selector: &live.selector,
            min_ready: live.min_ready,
            refusing: live.refusing,
        };
        match ctx
            .watches
            .look(&plan, &watched, &live.workload, ctx.clock.now())
            .await
        {
            Ok(seen) => {
                let (said, wake) = seen.unzip();
                live.workload.new_pods = said;
                Pods {
                    unread: false,
                    wake: wake.flatten(),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a release goes on without what its pods say");
                Pods {
                    unread: true,
                    wake: None,
                }
            }
        }
    });
    let seen = join_all(looks).await;
    Pods {
        unread: seen.iter().any(|pods| pods.unread),
        wake: seen.iter().filter_map(|pods| pods.wake).min(),
    }
}

/// Reads a workload without a typed round trip, so that fields of its template
/// that this version does not know are kept.
async fn read(
    ctx: &Context,
    namespace: &str,
    target: &Target,
) -> Result<Option<Live>, ReconcileError> {
    let object = deployments(&ctx.client, namespace)
        .get_opt(&target.name)
        .await
        .map_err(ReconcileError::api(format!("read {target}")))?;
    object.map(|object| live(target, &object)).transpose()
}

fn live(target: &Target, object: &DynamicObject) -> Result<Live, ReconcileError> {
    let ownership = |source| ReconcileError::Ownership {
        target: target.clone(),
        source,
    };
    let data = &object.data;
    let number = |pointer: &str| {
        data.pointer(pointer)
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok())
    };
    let entries = object
        .metadata
        .managed_fields
        .as_deref()
        .unwrap_or_default();
    let snapshot = Snapshot::of(object).map_err(ownership)?;
    let generation = object.metadata.generation;
    let seen = data
        .pointer("/status/observedGeneration")
        .and_then(Value::as_i64);
    Ok(Live {
        workload: Workload {
            uid: snapshot.uid.clone(),
            resource_version: snapshot.resource_version.clone(),
            replicas: number("/spec/replicas").unwrap_or(1),
            total: number("/status/replicas").unwrap_or_default(),
            updated: number("/status/updatedReplicas").unwrap_or_default(),
            available: number("/status/availableReplicas").unwrap_or_default(),
            observed: seen >= generation,
            paused: data
                .pointer("/spec/paused")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            template: snapshot.template.clone(),
            owned: snapshot.owned.clone(),
            marked: entries.iter().any(is_ours),
            stray: entries
                .iter()
                .any(|entry| is_ours(entry) && entry.operation.as_deref() != Some("Apply")),
            managers: managers(entries),
            dry_run: None,
            refusal: None,
            stable_today: None,
            new_pods: None,
        },
        snapshot,
        ownership: ownership_digest(entries),
        selector: selector(data),
        min_ready: seconds(data.pointer("/spec/minReadySeconds")),
        refusing: refuses(data),
    })
}

/// Digest of who owns what, but for when it was taken and for the status.
fn ownership_digest(entries: &[ManagedFieldsEntry]) -> String {
    let owners: Vec<Value> = entries
        .iter()
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .map(|entry| json!([entry.manager, entry.operation, entry.fields_v1]))
        .collect();
    canon::digest_json(&Value::Array(owners))
}

/// Whether an entry of `managedFields` is Belay's.
pub(super) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Other managers of fields in the pod template, newest first.
fn managers(entries: &[ManagedFieldsEntry]) -> Vec<String> {
    let mut writers: Vec<_> = entries
        .iter()
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .filter_map(|entry| {
            let manager = entry
                .manager
                .as_deref()
                .filter(|name| *name != FIELD_MANAGER)?;
            let owned = managed_by(std::slice::from_ref(entry), manager).ok()?;
            (!owned.descend(&["spec", "template"]).is_empty())
                .then(|| (entry.time.as_ref().map(|time| time.0), manager.to_owned()))
        })
        .collect();
    writers.sort_by(|a, b| b.cmp(a));
    writers.dedup_by(|a, b| a.1 == b.1);
    writers
        .into_iter()
        .map(|(_, manager)| manager)
        .take(1)
        .collect()
}

fn seconds(value: Option<&Value>) -> Duration {
    Duration::from_secs(value.and_then(Value::as_u64).unwrap_or_default())
}

/// Whether a Deployment says of any of its ReplicaSets that it makes no pods.
fn refuses(data: &Value) -> bool {
    let conditions = data.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")
}

fn selector(data: &Value) -> String {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    let raw = data.pointer("/spec/selector").cloned().unwrap_or_default();
    let selector: LabelSelector = serde_json::from_value(raw).unwrap_or_default();
    kube::core::Selector::try_from(selector)
        .map(|selector| selector.to_string())
        .unwrap_or_default()
}
