//! The frame of a decision: common looks at the world, the record of what is
//! decided, and the choice of the part that decides.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    Action, Decision, EventNote, Input, Observed, Scope, Workload, adopt, commands, deletion,
    rebuild,
    report::{self, stalled_since},
    restore, rollout, scope, settle, snapshots, stable, stopped,
};
use crate::{
    api::{
        ComponentStatus, DecisionEntry, HandledCommand, Phase, Reason, ReleasePlanStatus,
        ReleaseProgress, Stage,
    },
    fields::{FieldSet, canon, project},
    plan::{Plan, Target, current},
    revision::{Frozen, Revision},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};

/// Entries kept in `status.decisions`.
const DECISIONS: usize = 20;
/// Pace at which a stalled plan is looked at: from the first to the last.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(60);
/// Stands in a condition before what orders wait for.
pub(super) const WAITING: &str = "; meanwhile, ";
/// Longest message kept in status and events, in bytes. An event takes 1024.
const MESSAGE: usize = 1000;
/// Longest message of a condition, in bytes: also with the longest names there are it
/// holds its commands whole.
pub(super) const CONDITION: usize = 4000;
/// What a command of a message begins with.
const COMMAND: &str = ": kubectl ";
/// What stands behind it if text follows.
const ENDS: [&str; 2] = [" ;", " )"];
/// Bytes behind a command that are not worth to be kept.
const SHORT: usize = 20;
/// What stands between two parts of a message.
const BREAKS: [&str; 3] = [". ", "; ", ", or "];

/// Decides what to do next about a plan.
#[must_use]
pub fn step(input: &Input<'_>) -> Decision {
    let mut ctx = Context::new(input);
    run(&mut ctx);
    ctx.finish()
}

fn run(ctx: &mut Context<'_>) {
    let facts = &ctx.input.world.plan;
    if facts.namespace_terminating {
        // Nothing can be created there any more, and the workloads go too.
        if facts.deleting && facts.finalizer {
            ctx.act(Action::RemoveFinalizer);
        }
        return;
    }
    snapshots::remember(ctx);
    if facts.deleting {
        return deletion::run(ctx);
    }
    if commands::run(ctx) {
        return;
    }
    let plan = match ctx.input.plan {
        Ok(plan) => plan,
        Err(violations) => {
            match ctx.release().map(|release| release.stage) {
                Some(Stage::Restore) => return restore::run(ctx),
                Some(Stage::Stopped) => return stopped::run(ctx),
                _ => {}
            }
            let reason = if violations.only_not_available() {
                Reason::NotAvailableYet
            } else {
                Reason::InvalidPlan
            };
            let text = format!("{violations}");
            return match ctx.release().map(|release| release.stage) {
                Some(Stage::Promote | Stage::Bake) => rollout::hold(ctx, reason, &text),
                Some(Stage::Settle) if ctx.has_applied() => {
                    restore::refused(ctx, format!("the plan cannot be released: {text}"));
                }
                _ => report::stalled(ctx, reason, &text),
            };
        }
    };
    if ctx.release().is_none()
        && let Some(text) = conflict(ctx)
    {
        return report::stalled(ctx, Reason::Conflict, &text);
    }
    adopt::claim(ctx, plan);
    if rebuild::run(ctx) {
        return;
    }
    match ctx.release().map(|release| release.stage) {
        Some(Stage::Settle) => settle::run(ctx, plan),
        Some(Stage::Promote | Stage::Bake) => rollout::run(ctx, plan),
        Some(Stage::Restore) => restore::run(ctx),
        Some(Stage::Stopped) => stopped::run(ctx),
        None => match ctx.status.phase {
            Some(Phase::Stable) => stable::run(ctx, plan),
            _ => adopt::baseline(ctx, plan),
        },
    }
}

/// Names the plans that hold workloads of this one.
pub(super) fn conflict(ctx: &Context<'_>) -> Option<String> {
    let held: Vec<String> = ctx
        .components()
        .filter_map(|c| {
            let other = c.observed.incumbent.as_ref()?;
            Some(format!("{} is held by releaseplan {other}", c.scope.target))
        })
        .collect();
    (!held.is_empty()).then(|| {
        format!(
            "{}; this plan writes nothing until that plan is deleted or no longer names it",
            held.join(", ")
        )
    })
}

/// A decision in the making.
pub(super) struct Context<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) scope: Vec<Scope>,
    pub(super) status: ReleasePlanStatus,
    /// What orders wait for, as the conditions say it.
    pub(super) waiting: Vec<String>,
    /// Orders that waited in an earlier pass already.
    pub(super) waited: Vec<HandledCommand>,
    /// Who asked for the retry that a release now begins for.
    pub(super) retried_by: Option<String>,
    actions: Vec<Action>,
    events: Vec<EventNote>,
    wake: Option<Duration>,
}

/// One component with all that is known of it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) index: usize,
    pub(super) scope: &'a Scope,
    pub(super) observed: &'a Observed,
}

impl<'a> Context<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        Self {
            input,
            scope: scope(input.plan.ok(), input.status),
            status: input.status.clone(),
            waiting: Vec::new(),
            waited: Vec::new(),
            retried_by: None,
            actions: Vec::new(),
            events: Vec::new(),
            wake: None,
        }
    }

    fn finish(mut self) -> Decision {
        let mut actions = std::mem::take(&mut self.actions);
        for action in &mut actions {
            if let Action::Apply { write } | Action::Replace { write } = action {
                write.config_maps = self.config_maps(&write.target);
            }
        }
        Decision {
            status: self.status,
            actions,
            events: self.events,
            wake: self.wake,
        }
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.input.now
    }

    pub(super) const fn micros(&self) -> MicroTime {
        MicroTime(self.input.now)
    }

    pub(super) const fn time(&self) -> Time {
        Time(self.input.now)
    }

    /// Time since `then`; zero if the clock went back.
    pub(super) fn since(&self, then: &MicroTime) -> Duration {
        Duration::try_from(self.input.now.duration_since(then.0)).unwrap_or(Duration::ZERO)
    }

    pub(super) const fn release(&self) -> Option<&ReleaseProgress> {
        self.status.release.as_ref()
    }

    /// Whether a release may have moved workloads.
    pub(super) fn has_applied(&self) -> bool {
        self.release().is_some_and(|r| !r.applied.is_empty())
    }

    /// Whether the plan names other components than the release in progress
    /// began with; these stay until it has ended.
    pub(super) fn set_changed(&self, plan: &Plan) -> bool {
        let planned = plan.components();
        planned.len() != self.scope.len()
            || !self.scope.iter().all(|s| {
                planned
                    .iter()
                    .any(|p| p.name == s.name && p.target == s.target)
            })
    }

    /// The ConfigMaps that a workload has something to do with, now or under a
    /// revision of this pass.
    fn config_maps(&self, target: &Target) -> BTreeSet<String> {
        let scopes = self.scope.iter().filter(|scope| scope.target == *target);
        let now = scopes.flat_map(|scope| &scope.config_maps).cloned();
        let revisions = self.input.world.revisions.values();
        let frozen = revisions.filter_map(|revision| revision.data.of(target));
        let then = frozen.flat_map(|frozen| &frozen.config_maps);
        now.chain(then.map(|tracked| tracked.name.clone()))
            .collect()
    }

    pub(super) fn act(&mut self, action: Action) {
        let outside = matches!(
            action,
            Action::CreateRevision { .. }
                | Action::CreateSnapshot { .. }
                | Action::WriteContents { .. }
                | Action::Apply { .. }
                | Action::Replace { .. }
        );
        let facts = &self.input.world.plan;
        if outside
            && !facts.finalizer
            && !facts.deleting
            && !self.actions.contains(&Action::EnsureFinalizer)
        {
            // Whatever is left behind outside has to be taken back one day.
            self.actions.push(Action::EnsureFinalizer);
        }
        self.actions.push(action);
    }

    /// The same, unless this pass does it already.
    pub(super) fn act_once(&mut self, action: Action) {
        if !self.actions.contains(&action) {
            self.act(action);
        }
    }

    /// Takes back the writes of templates that were decided in this pass.
    pub(super) fn discard_writes(&mut self) {
        let template = |action: &Action| {
            matches!(
                action,
                Action::Apply { .. } | Action::Replace { .. } | Action::WriteContents { .. }
            )
        };
        self.actions.retain(|action| !template(action));
    }

    /// Looks again after `delay` at the latest.
    pub(super) fn wake_in(&mut self, delay: Duration) {
        self.wake = Some(self.wake.map_or(delay, |wake| wake.min(delay)));
    }

    /// Looks again at what only somebody outside can clear and no watch tells
    /// of: soon at first, then ever more slowly the longer it has been reported.
    pub(super) fn wake_while_stalled(&mut self, reason: Reason) {
        let status = self.input.status;
        let mut conditions = status.conditions.iter();
        let same = conditions.any(|c| c.type_ == "Stalled" && c.reason == reason.as_str());
        let since = stalled_since(status).filter(|_| same);
        let stalled = since.map_or(Duration::ZERO, |since| {
            Duration::try_from(self.input.now.duration_since(since.0)).unwrap_or_default()
        });
        self.wake_in(stalled.clamp(FIRST_LOOK, LAST_LOOK));
    }

    /// Enters a decision into the log.
    pub(super) fn log(&mut self, reason: Reason, message: &str) {
        let entry = DecisionEntry {
            at: self.time(),
            reason,
            message: cut(message),
        };
        self.status.decisions.push(entry);
        let surplus = self.status.decisions.len().saturating_sub(DECISIONS);
        self.status.decisions.drain(..surplus);
    }

    /// Enters a decision into the log and tells it as an event.
    pub(super) fn tell(&mut self, warning: bool, reason: Reason, message: &str) {
        self.log(reason, message);
        self.events.push(EventNote {
            warning: warning || reason.is_warning(),
            reason,
            note: cut(message),
        });
    }

    /// Tells of a state that somebody has to do something about, once for each
    /// time that the plan gets into it.
    pub(super) fn tell_entry(&mut self, reason: Reason, message: &str) {
        let told = cut_around(message, CONDITION);
        let conditions = &self.input.status.conditions;
        // What else is awaited stands behind it, and may change often.
        let head = |text: &str| text.split(WAITING).next().map(str::to_owned);
        let is_same = |known: &str| head(known) == head(&told);
        let known = conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.reason == reason.as_str() && is_same(&c.message));
        if !known && self.events.iter().all(|event| event.reason != reason) {
            self.tell(true, reason, message);
        }
    }

    /// The components that stay in the plan.
    pub(super) fn components(&self) -> impl Iterator<Item = View<'_>> {
        self.views().filter(|view| !view.scope.leaving)
    }

    /// All components, those that left the plan included.
    pub(super) fn views(&self) -> impl Iterator<Item = View<'_>> {
        self.scope
            .iter()
            .zip(&self.input.world.components)
            .enumerate()
            .map(|(index, (scope, observed))| View {
                index,
                scope,
                observed,
            })
    }

    pub(super) fn revision(&self, name: Option<&String>) -> Option<&'a Revision> {
        self.input.world.revisions.get(name?).map(Arc::as_ref)
    }

    pub(super) fn stable(&self) -> Option<&'a Revision> {
        self.revision(self.status.stable_revision.as_ref())
    }

    pub(super) fn target(&self) -> Option<&'a Revision> {
        self.revision(self.status.target_revision.as_ref())
    }

    /// Fields that may have been taken of a workload since the stable revision,
    /// as far as the revisions say.
    pub(super) fn touched(&self, target: &Target) -> FieldSet {
        let applied = self
            .release()
            .map(|r| r.applied.as_slice())
            .unwrap_or_default();
        self.status
            .stable_revision
            .iter()
            .chain(applied)
            .filter_map(|name| self.revision(Some(name))?.data.of(target))
            .fold(FieldSet::default(), |union, frozen| {
                union.union(&frozen.touched())
            })
    }

    /// The status of a component, made if it is new.
    pub(super) fn component(&mut self, index: usize) -> Option<&mut ComponentStatus> {
        let scope = self.scope.get(index)?;
        let reference = scope.target.to_ref();
        let at = self
            .status
            .components
            .iter()
            .position(|c| c.workload == reference);
        let at = at.unwrap_or_else(|| {
            self.status.components.push(ComponentStatus {
                workload: reference,
                ..ComponentStatus::default()
            });
            self.status.components.len() - 1
        });
        let component = self.status.components.get_mut(at)?;
        component.name.clone_from(&scope.name);
        Some(component)
    }
}

/// Whether the live template is the frozen one. Where the plan owned fields,
/// only these count: what surrounds them is not its business.
pub(super) fn is_at(workload: &Workload, frozen: &Frozen, touched: &FieldSet) -> bool {
    if touched.is_empty() {
        return canon::equal(&workload.template, &frozen.template);
    }
    canon::equal(
        &project(&workload.template, touched),
        &project(&frozen.template, touched),
    )
}

/// Whether the workload's controller has brought all pods to the live template
/// and all of them are available.
pub(super) const fn is_complete(workload: &Workload) -> bool {
    workload.observed
        && workload.updated >= workload.replicas
        && workload.total <= workload.updated
        && workload.available >= workload.replicas
}

/// Name of what the release in progress is about.
pub(super) fn current_name(ctx: &Context<'_>) -> String {
    current(&ctx.status).unwrap_or_default().to_owned()
}

/// Cuts a message as [`cut_around`] does.
pub(super) fn cut(message: &str) -> String {
    cut_around(message, MESSAGE)
}

/// Cuts a message at a character boundary to at most `most` bytes, such that the last
/// command in it stays whole: it is what a person needs.
pub(super) fn cut_around(message: &str, most: usize) -> String {
    let begin = message.rfind(COMMAND).filter(|_| message.len() > most);
    let Some(begin) = begin else {
        return cut_to(message, most);
    };
    let (before, rest) = message.split_at(begin);
    let (command, after) = rest.split_at(rest.find(ENDS[0]).unwrap_or(rest.len()));
    // With what leads to it, if there is room.
    let breaks = BREAKS.iter().filter_map(|text| before.rfind(text)).max();
    let fits = |at: &usize| before.len() - at + command.len() <= most;
    let (before, lead) = before.split_at(breaks.filter(fits).unwrap_or(before.len()));
    let Some(room) = most.checked_sub(lead.len() + command.len()) else {
        return cut_to(message, most);
    };
    let mut kept = cut_to(before, room);
    // A part of an earlier one is of no use, and may do harm.
    if let Some(begun) = kept.rfind(COMMAND).filter(|_| kept.len() < before.len())
        && !ENDS.iter().any(|end| kept[begun..].contains(end))
    {
        kept = format!("{}…", &kept[..begun]);
    }
    kept.push_str(lead);
    kept.push_str(command);
    let room = most.saturating_sub(kept.len());
    if room > SHORT {
        kept.push_str(&cut_to(after, room));
    }
    kept
}

/// Cuts a text at a character boundary to at most `most` bytes.
pub(crate) fn cut_to(message: &str, most: usize) -> String {
    if message.len() <= most {
        return message.to_owned();
    }
    let end = (0..=most.saturating_sub(3))
        .rev()
        .find(|&i| message.is_char_boundary(i))
        .unwrap_or(0);
    format!("{}…", message.get(..end).unwrap_or_default())
}
