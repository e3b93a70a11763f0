//! One pass over one plan: observe, parse, step, apply, record.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use kube::{
    Api, ResourceExt as _,
    runtime::{controller::Action, reflector::ObjectRef},
};
use tracing::Instrument as _;

use super::{
    Context, ReconcileError, apply, backoff::LASTING, config_maps, events, heal, observe, record,
};
use crate::{
    api::{
        ConditionType, GatewayDuration, Phase, Reason, ReleasePlanStatus, StoredPlan,
        merge_conditions,
    },
    config_maps::Kept,
    machine::{self, Decision, EventNote, Input, World},
    plan::{Plan, Violations},
    telemetry,
};

/// Longest time that a pass may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause before a pass that lost a race is made again.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// Longest part that an error may take of a message, in bytes. An event takes
/// 1024.
const ERROR: usize = 700;
/// Failures in a row before a plan that cannot be read is reported as stalled.
const MAX_RETRIES: u32 = 8;

/// Makes a pass, and turns whatever goes wrong in it into a wait. All that is
/// logged on the way names the plan.
pub(super) async fn reconcile(
    plan: Arc<StoredPlan>,
    ctx: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let namespace = plan.namespace().unwrap_or_default();
    let span = telemetry::span_of(&namespace, &plan.name_any());
    attempt(plan, ctx).instrument(span).await
}

async fn attempt(plan: Arc<StoredPlan>, ctx: Arc<Context>) -> Result<Action, ReconcileError> {
    let reference = ObjectRef::from_obj(plan.as_ref());
    let hurry = match ctx.pace.ask(&reference, Instant::now()) {
        Ok(hurry) => hurry,
        Err(wait) => return Ok(Action::requeue(wait)),
    };
    let _turn = tokio::select! {
        biased;
        () = ctx.stop.cancelled() => return Ok(Action::await_change()),
        turn = ctx.turns.take(&hurry) => turn,
    };
    ctx.queued.remove(&reference);
    ctx.pace.begin(&reference);
    // It may be gone since it was woken, or another by now.
    let Some(plan) = ctx.plans.get(&reference) else {
        ctx.forget(&plan);
        return Ok(Action::await_change());
    };
    let started = Instant::now();
    // Boxed, so that who waits does not take the room of a whole pass.
    let limited = tokio::time::timeout(LIMIT, Box::pin(pass(&plan, &ctx)));
    let guarded = AssertUnwindSafe(limited).catch_unwind();
    let outcome = match guarded.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(ReconcileError::Timeout(LIMIT)),
        Err(panic) => Err(ReconcileError::Panic(said(&*panic))),
    };
    ctx.metrics.reconciled(
        started.elapsed(),
        outcome.as_ref().is_err_and(|e| !e.is_conflict()),
    );
    let uid = plan.metadata.uid.clone().unwrap_or_default();
    let wake = match outcome {
        Ok(Wake::Never) => {
            ctx.forget(&plan);
            // What wakes it before the cache knows must not do the same again.
            let cached = ctx.plans.get(&reference);
            if cached.is_some_and(|cached| cached.metadata.uid == plan.metadata.uid) {
                ctx.last_writes.distrust(&plan);
            }
            return Ok(Action::await_change());
        }
        Ok(Wake::After(wake)) => {
            ctx.backoffs.reset(&uid);
            ctx.conflicts.reset(&uid);
            wake
        }
        Err(error) if error.is_conflict() => {
            tracing::debug!(%error, "read again");
            // The first is the usual race; a writer who never lets us through
            // must not be answered at full speed.
            let wait = ctx.conflicts.failed(&uid, Instant::now(), u32::MAX);
            wait.delay.max(AFTER_CONFLICT)
        }
        Err(error) => {
            let most = Plan::parse(&plan.spec).map_or(MAX_RETRIES, |plan| plan.max_retries());
            let wait = ctx.backoffs.failed(&uid, Instant::now(), most);
            tracing::warn!(%error, failures = wait.failures, delay = ?wait.delay, "a pass failed");
            if wait.stalled {
                report(&ctx, &plan, &error, most).await;
            }
            wait.delay
        }
    };
    // What was kept in a pass over a plan that is gone by now, nobody will forget.
    let cached = ctx.plans.get(&reference);
    if cached.is_none_or(|cached| cached.metadata.uid != plan.metadata.uid) {
        ctx.forget(&plan);
    }
    ctx.pace.end(&reference, Instant::now(), Some(wake));
    Ok(Action::requeue(wake))
}

/// When to look at a plan again without being woken by a change.
enum Wake {
    /// It is gone.
    Never,
    After(Duration),
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_owned())
}

async fn pass(cached: &StoredPlan, ctx: &Context) -> Result<Wake, ReconcileError> {
    let name = cached.name_any();
    let Some(mut plan) = newest(cached, ctx).await? else {
        return Ok(Wake::Never);
    };
    if let Some(fault) = plan.status_fault.take() {
        return Err(ReconcileError::Status { name, fault });
    }
    let parsed = Plan::parse(&plan.spec);
    if let Ok(parsed) = &parsed {
        heal::heal(ctx, &mut plan, parsed).await?;
    }
    let status = plan.status.clone().unwrap_or_default();
    // What goes with its namespace is not waited for.
    let terminating = observe::is_terminating(ctx, &plan).await?;
    let sources = if terminating {
        BTreeMap::new()
    } else {
        config_maps::read(ctx, &plan, parsed.as_ref().ok(), &status).await
    };
    let parsed = parsed.map(|parsed| {
        let uid = plan.metadata.uid.as_deref().unwrap_or_default();
        parsed.resolved(uid, &machine::digests(&status, &sources))
    });
    let parsed = parsed.as_ref();
    let (mut world, pods) =
        observe::observe(ctx, &plan, parsed, &status, sources, terminating).await?;
    let again = read_again(ctx, &world, pods.unread);
    let decision = carry_out(ctx, &mut plan, parsed, &status, &mut world).await?;
    if decision.actions.contains(&machine::Action::RemoveFinalizer) {
        events::tell(ctx, &plan, &decision.events).await;
        return Ok(Wake::Never);
    }
    let next = record::record(ctx, &plan, &decision.status).await?;
    log(&decision);
    count(ctx, &status, &decision.status);
    events::tell(ctx, &plan, &decision.events).await;
    let wakes = [decision.wake, next, again, pods.wake];
    let wake = wakes.into_iter().flatten().min();
    Ok(Wake::After(wake.unwrap_or(ctx.resync).min(ctx.resync)))
}

/// The plan, from the cache unless that may be behind: a decision on what was
/// there before our own last write would be made twice, one that lost a race would
/// lose it again, and after an error nobody knows what was written. None if it is
/// gone.
async fn newest(cached: &StoredPlan, ctx: &Context) -> Result<Option<StoredPlan>, ReconcileError> {
    let uid = cached.metadata.uid.as_deref().unwrap_or_default();
    let failed = ctx.conflicts.has_failed(uid) || ctx.backoffs.has_failed(uid);
    if ctx.last_writes.are_in(cached) && !failed {
        return Ok(Some(cached.clone()));
    }
    let name = cached.name_any();
    let namespace = cached.namespace().unwrap_or_default();
    let doing = format!("read releaseplan {namespace}/{name}");
    Api::<StoredPlan>::namespaced(ctx.client.clone(), &namespace)
        .get_opt(&name)
        .await
        .map_err(ReconcileError::api(doing))
}

/// When to look again at what could not be read; none if all was.
fn read_again(ctx: &Context, world: &World, pods: bool) -> Option<Duration> {
    let mut sources = world.config_maps.values();
    let mut kept = world.snapshots.values();
    let unread = pods
        || sources.any(|source| source.unreadable.is_some())
        || kept.any(|kept| matches!(kept, Kept::Unknown(_)));
    if !unread {
        ctx.unreadable.reset(&world.plan.uid);
        return None;
    }
    let wait = ctx
        .unreadable
        .failed(&world.plan.uid, Instant::now(), u32::MAX);
    Some(wait.delay)
}

/// Decides and carries out. That the API server refuses a write is part of the
/// world: what it makes of the plan is decided like everything else.
async fn carry_out(
    ctx: &Context,
    plan: &mut StoredPlan,
    parsed: Result<&Plan, &Violations>,
    status: &ReleasePlanStatus,
    world: &mut World,
) -> Result<Decision, ReconcileError> {
    let scope = machine::scope(parsed.ok(), status);
    loop {
        let decision = decide(ctx, parsed, status, world);
        let error = match apply::apply(ctx, plan, &decision.actions).await {
            Ok(()) => return Ok(decision),
            Err(error) => error,
        };
        let new = match &error {
            ReconcileError::Refused { target, message } => {
                let mut components = scope.iter().zip(&mut world.components);
                let component = components.find(|(s, _)| s.target == *target);
                let workload = component.and_then(|(_, component)| component.workload.as_mut());
                workload.is_some_and(|w| w.refusal.replace(message.clone()).is_none())
            }
            ReconcileError::ConfigMapRefused { name, message } => {
                let refusals = &mut world.refusals;
                refusals.insert(name.clone(), message.clone()).is_none()
            }
            _ => false,
        };
        if !new {
            return Err(error);
        }
    }
}

fn decide(
    ctx: &Context,
    plan: Result<&Plan, &Violations>,
    status: &ReleasePlanStatus,
    world: &World,
) -> Decision {
    let input = Input {
        plan,
        status,
        world,
        now: ctx.clock.now(),
    };
    machine::step(&input)
}

fn log(decision: &Decision) {
    for event in &decision.events {
        let phase = decision.status.phase.map_or("", phase_name);
        tracing::info!(phase, reason = %event.reason, "{}", event.note);
    }
}

/// Counts what a recorded decision began and ended.
fn count(ctx: &Context, before: &ReleasePlanStatus, after: &ReleasePlanStatus) {
    let last = before.history.last().map_or(0, |record| record.number);
    for record in after.history.iter().filter(|record| record.number > last) {
        ctx.metrics.release_finished(record.result);
    }
    let failure = |status: &ReleasePlanStatus| {
        status
            .release
            .as_ref()
            .and_then(|release| release.failure.clone())
    };
    if let (None, Some(failure)) = (failure(before), failure(after)) {
        ctx.metrics.rollback_started(failure.cause);
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Stable => "Stable",
        Phase::RollingOut => "RollingOut",
        Phase::Rollback => "Rollback",
        Phase::Frozen => "Frozen",
        Phase::Failed => "Failed",
    }
}

/// Says in the status that the operator keeps failing on a plan. Best effort:
/// the API server may be what fails.
async fn report(ctx: &Context, cached: &StoredPlan, error: &ReconcileError, most: u32) {
    let api =
        Api::<StoredPlan>::namespaced(ctx.client.clone(), &cached.namespace().unwrap_or_default());
    let write = async {
        let plan = api
            .get(&cached.name_any())
            .await
            .map_err(ReconcileError::api("read the plan"))?;
        if plan.status_fault.is_some() {
            // What cannot be read must not be overwritten.
            return Ok(None);
        }
        let mut status = plan.status.clone().unwrap_or_default();
        let text = format!(
            "{}. The operator failed on this plan {most} times in a row or more, for {} or longer, and tries again once a minute",
            machine::cut_to(&error.to_string(), ERROR),
            GatewayDuration::from(LASTING)
        );
        let known = status
            .conditions
            .iter()
            .any(|c| c.reason == Reason::ReconcileError.as_str() && c.message == text);
        if known {
            return Ok(None);
        }
        let wanted = [
            (
                ConditionType::Ready,
                false,
                Reason::ReconcileError,
                text.clone(),
            ),
            (
                ConditionType::Reconciling,
                false,
                Reason::ReconcileError,
                String::new(),
            ),
            (
                ConditionType::Stalled,
                true,
                Reason::ReconcileError,
                text.clone(),
            ),
        ];
        merge_conditions(
            &mut status.conditions,
            &wanted,
            plan.metadata.generation,
            ctx.clock.now(),
        );
        let recorded = record::record(ctx, &plan, &status).await;
        let event = EventNote {
            warning: true,
            reason: Reason::ReconcileError,
            note: text,
        };
        events::tell(ctx, &plan, &[event]).await;
        recorded
    };
    match tokio::time::timeout(Duration::from_secs(5), write).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the failure could not be reported in the status"),
        Err(_) => tracing::warn!("the failure could not be reported in the status in time"),
    }
}
