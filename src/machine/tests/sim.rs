//! A cluster, a plan in it and the controller's loop, all in memory and with a
//! clock that only the test moves.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cluster::Deployment;
pub(super) use super::plans::*;
use crate::{
    api::{
        ConditionType, DeletionPolicy, Phase, Reason, ReleasePlanStatus, ReleaseRecord,
        ReleaseResult,
    },
    config_maps::{Kept, MAX_BYTES, Tracked, names},
    machine::{
        Decision, DryRun, EventNote, Input, Known, Observed, PlanFacts, Scope, Source, Workload,
        World, digests, found, needs, scope, snapshots, sources, step,
    },
    plan::{Plan, Violations},
    revision::Revision,
};

/// Passes in which the controller must come to rest while the time stands
/// still.
const PASSES: usize = 25;
/// Why ConfigMaps cannot be read.
pub(super) const DENIED: &str = "configmaps is forbidden";

/// Why a pass ended early.
#[derive(Debug, PartialEq)]
pub(super) enum Stop {
    Conflict,
    Crash,
    Refused(String, String),
    /// A ConfigMap.
    Unwritten(String, String),
}

/// All there is.
#[derive(Clone)]
pub(super) struct Sim {
    pub(super) now: Timestamp,
    pub(super) spec: Value,
    plan: Result<Plan, Violations>,
    pub(super) facts: PlanFacts,
    pub(super) gone: bool,
    pub(super) status: ReleasePlanStatus,
    pub(super) deployments: BTreeMap<String, Deployment>,
    pub(super) incumbents: BTreeMap<String, String>,
    pub(super) revisions: BTreeMap<String, Revision>,
    /// The users' ConfigMaps: contents by name.
    pub(super) config_maps: BTreeMap<String, String>,
    /// Snapshots that are stored: contents by name.
    pub(super) snapshots: BTreeMap<String, String>,
    /// ConfigMaps are immutable.
    pub(super) immutable: bool,
    /// ConfigMaps of users cannot be read.
    pub(super) unreadable: bool,
    /// The API server answers no dry run of what is under way.
    pub(super) undecided: bool,
    /// Snapshots cannot be read.
    pub(super) blind: bool,
    /// Why these ConfigMaps of users cannot be written, and which snapshots of
    /// theirs.
    pub(super) policies: BTreeMap<String, &'static str>,
    /// Numbers that the revisions were stored with.
    pub(super) numbers: BTreeMap<String, i64>,
    pub(super) events: Vec<EventNote>,
    /// Writes on Deployments: what was done to which.
    pub(super) journal: Vec<(&'static str, String)>,
    /// Every write so far, that of the status included.
    pub(super) writes: usize,
    /// The process dies instead of making this write.
    pub(super) crash_at: Option<usize>,
    /// What the next pass sees instead of the Deployments as they are.
    pub(super) stale: Option<BTreeMap<String, Deployment>>,
    /// Whether something that is watched changed since the last pass.
    pub(super) dirty: bool,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) passes: usize,
    /// Whether every decision is held to the invariants.
    pub(super) checked: bool,
    /// Whether the status was lost: what was proven is then told from the
    /// revisions, or by a person.
    pub(super) lost: bool,
}

impl Sim {
    /// A plan over Deployments `name: image` that exist and are as healthy as
    /// their image lets them be.
    pub(super) fn new(spec: Value, deployments: &[(&str, &str)]) -> Self {
        Self {
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            plan: Plan::parse(&spec),
            spec,
            facts: PlanFacts {
                name: "shop".to_owned(),
                namespace: "prod".to_owned(),
                uid: "plan-uid".to_owned(),
                generation: 1,
                release_generation: Some(1),
                finalizer: true,
                ..PlanFacts::default()
            },
            gone: false,
            status: ReleasePlanStatus::default(),
            deployments: deployments
                .iter()
                .map(|(name, image)| {
                    let uid = format!("uid-{name}");
                    ((*name).to_owned(), Deployment::new(&uid, image))
                })
                .collect(),
            incumbents: BTreeMap::new(),
            revisions: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            immutable: false,
            unreadable: false,
            undecided: false,
            blind: false,
            policies: BTreeMap::new(),
            numbers: BTreeMap::new(),
            events: Vec::new(),
            journal: Vec::new(),
            writes: 0,
            crash_at: None,
            stale: None,
            dirty: true,
            wake_at: None,
            passes: 0,
            checked: false,
            lost: false,
        }
    }

    /// The same, run until it is at rest.
    pub(super) fn settled(spec: Value, deployments: &[(&str, &str)]) -> Self {
        let mut sim = Self::new(spec, deployments);
        sim.run(60);
        sim.journal.clear();
        sim.events.clear();
        sim
    }

    /// A user's edit of the plan.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut spec = self.spec.clone();
        change(&mut spec);
        if spec != self.spec {
            let before = self.plan.as_ref().ok().map(|p| p.content().to_owned());
            self.plan = Plan::parse(&spec);
            self.spec = spec;
            self.facts.generation += 1;
            let after = self.plan.as_ref().ok().map(|p| p.content().to_owned());
            if before != after {
                let number = self.facts.release_generation.get_or_insert(0);
                *number += 1;
            }
            let policy = self.spec.get("deletionPolicy").cloned().unwrap_or_default();
            self.facts.deletion_policy =
                serde_json::from_value(policy).unwrap_or(DeletionPolicy::Rollback);
        }
        self.dirty = true;
    }

    /// Sets the image that the plan wants of a component.
    pub(super) fn want(&mut self, name: &str, image: &str) {
        self.edit(|spec| {
            for component in spec["components"].as_array_mut().unwrap() {
                if component["name"] == name {
                    component["template"]["spec"]["containers"][0]["image"] = json!(image);
                }
            }
        });
    }

    pub(super) fn deployment(&mut self, name: &str) -> &mut Deployment {
        self.dirty = true;
        self.deployments.get_mut(name).unwrap()
    }

    pub(super) fn image(&self, name: &str) -> &str {
        self.deployments[name].image()
    }

    /// Takes the status away, as a restored backup does.
    pub(super) fn lose_status(&mut self) {
        self.status = ReleasePlanStatus::default();
        self.lost = true;
        self.dirty = true;
    }

    pub(super) fn delete(&mut self) {
        self.facts.deleting = true;
        self.facts.generation += 1;
        self.dirty = true;
    }

    pub(super) fn scope(&self) -> Vec<Scope> {
        scope(self.parsed().as_ref().ok(), &self.status)
    }

    /// The plan with the contents of its ConfigMaps.
    pub(super) fn parsed(&self) -> Result<Plan, Violations> {
        let plan = self.plan.as_ref().map_err(Clone::clone)?;
        let digests = digests(&self.status, &self.sources());
        Ok(plan.resolved(&self.facts.uid, &digests))
    }

    fn sources(&self) -> BTreeMap<String, Source> {
        let names = sources(self.plan.as_ref().ok(), &self.status).into_iter();
        let read = |name: &String| match self.config_maps.get(name) {
            _ if self.unreadable => Source {
                unreadable: Some(DENIED.to_owned()),
                ..Source::default()
            },
            None => Source::default(),
            Some(text) => Source {
                // Nobody keeps what is too large, and its digest takes long.
                digest: Some(if text.len() > MAX_BYTES {
                    text.len().to_string()
                } else {
                    contents(text).digest()
                }),
                bytes: text.len(),
                uid: format!("uid-{name}"),
                immutable: self.immutable,
                ..Source::default()
            },
        };
        names.map(|name| (name.clone(), read(&name))).collect()
    }

    /// A user's edit of a ConfigMap.
    pub(super) fn configure(&mut self, name: &str, text: &str) {
        self.config_maps.insert(name.to_owned(), text.to_owned());
        self.dirty = true;
    }

    /// What the pods of a Deployment read where they name a ConfigMap, by its
    /// live template; none if there is nothing of that name.
    pub(super) fn configuration(&self, deployment: &str) -> Vec<Option<&str>> {
        let named = names(&self.deployments[deployment].template).into_iter();
        let read = |name| {
            self.snapshots
                .get(&name)
                .or_else(|| self.config_maps.get(&name))
        };
        named.map(|name| read(name).map(String::as_str)).collect()
    }

    /// The contents that the pods of `web` read of their one ConfigMap, by
    /// whichever way.
    pub(super) fn configuration_of_web(&self) -> &str {
        let read = self.configuration("web");
        read.first()
            .map_or(&self.config_maps["settings"], |read| read.unwrap())
    }

    /// What a pass reads.
    pub(super) fn observe(&self) -> World {
        let deployments = self.stale.as_ref().unwrap_or(&self.deployments);
        let scope = self.scope();
        let read = |pods| -> Vec<Option<Workload>> {
            scope
                .iter()
                .map(|s| Some(deployments.get(&s.target.name)?.read(pods)))
                .collect()
        };
        let facts = self.facts.clone();
        let config_maps = self.sources();
        let needs = needs(&scope, &read(false), &self.status, &facts);
        let revisions: BTreeMap<String, std::sync::Arc<Revision>> = needs
            .revisions
            .iter()
            .filter_map(|name| Some((name.clone(), self.revisions.get(name)?.clone().into())))
            .collect();
        let resting = self.status.release.is_none() && self.status.phase == Some(Phase::Stable);
        let stable = self.status.stable_revision.as_ref().filter(|_| resting);
        let record_lost = stable.is_some_and(|name| !self.revisions.contains_key(name));
        let known = self.revisions.values().filter(|_| needs.known);
        let known = known
            .map(|revision| Known {
                number: self.numbers[&revision.name],
                revision: revision.clone(),
            })
            .collect();
        let components = scope
            .iter()
            .zip(read(needs.pods))
            .zip(needs.dry_run)
            .map(|((scope, mut workload), dry)| {
                if let (true, Some(workload), Some(partial)) =
                    (dry, workload.as_mut(), scope.template.as_ref())
                {
                    let deployment = &deployments[&scope.target.name];
                    let found = found(&self.status, &revisions, &scope.target);
                    // Where nothing was touched yet, such a pass ends in an error.
                    let touched = self.status.release.iter().any(|r| !r.applied.is_empty());
                    workload.dry_run = Some(if self.undecided && touched {
                        DryRun::Undecided("the server is overloaded".to_owned())
                    } else {
                        dry_run(&scope.target, deployment, partial, &found)
                    });
                }
                Observed {
                    incumbent: self.incumbents.get(&scope.target.name).cloned(),
                    workload,
                }
            })
            .collect();
        World {
            plan: facts,
            components,
            record_lost,
            known,
            snapshots: snapshots(&scope, revisions.values().map(AsRef::as_ref))
                .into_iter()
                .map(|tracked| (tracked.snapshot.clone(), self.seen(&tracked)))
                .collect(),
            revisions,
            config_maps,
            refusals: BTreeMap::new(),
        }
    }

    /// What a pass sees of a snapshot.
    fn seen(&self, tracked: &Tracked) -> Kept {
        if self.blind {
            return Kept::Unknown(DENIED.to_owned());
        }
        self.kept(tracked)
    }

    pub(super) fn kept(&self, tracked: &Tracked) -> Kept {
        match self.snapshots.get(&tracked.snapshot) {
            None => Kept::Missing,
            Some(text) if contents(text).digest() == tracked.digest => Kept::Whole,
            Some(_) => Kept::Damaged,
        }
    }

    pub(super) fn decide(&self, world: &World) -> Decision {
        step(&Input {
            plan: self.parsed().as_ref(),
            status: &self.status,
            world,
            now: self.now,
        })
    }

    /// One pass: observe, decide, carry out, record. True if it did anything.
    pub(super) fn pass(&mut self) -> bool {
        self.dirty = false;
        self.passes += 1;
        let mut world = self.observe();
        self.stale = None;
        let mut decision = self.decide(&world);
        assert_eq!(
            decision,
            self.decide(&world),
            "a decision is not determined"
        );
        super::invariants::reasons_mean_one_thing(&decision);
        if self.checked {
            super::invariants::check(self, &world, &decision);
        }
        let mut outcome = self.carry_out(&decision.actions);
        while let Err(stop) = &outcome {
            let known = match stop {
                Stop::Refused(name, text) => {
                    let scope = self.scope();
                    let index = scope.iter().position(|s| s.target.name == *name).unwrap();
                    let workload = world.components[index].workload.as_mut().unwrap();
                    workload.refusal.replace(text.clone())
                }
                Stop::Unwritten(name, text) => world.refusals.insert(name.clone(), text.clone()),
                Stop::Conflict | Stop::Crash => break,
            };
            assert_eq!(known, None, "the same write was tried again: {decision:?}");
            decision = self.decide(&world);
            outcome = self.carry_out(&decision.actions);
        }
        if self.gone {
            return true;
        }
        let changed = decision.status != self.status;
        if outcome.is_ok() && changed {
            outcome = self.count();
        }
        match outcome {
            Ok(()) => {
                // Whoever tells of it once the event is gone has the reason alone.
                for event in &decision.events {
                    let same = event.warning == event.reason.is_warning();
                    assert!(same || event.reason == Reason::UndoIgnored, "{event:?}");
                }
                self.events.extend(decision.events);
                self.status = decision.status;
                self.wake_at = decision
                    .wake
                    .map(|wake| self.now + SignedDuration::try_from(wake).unwrap());
                changed || !decision.actions.is_empty()
            }
            Err(Stop::Conflict | Stop::Crash) => {
                self.dirty = true;
                true
            }
            Err(Stop::Refused(..) | Stop::Unwritten(..)) => unreachable!(),
        }
    }

    pub(super) fn count(&mut self) -> Result<(), Stop> {
        if self.crash_at == Some(self.writes) {
            self.crash_at = None;
            return Err(Stop::Crash);
        }
        self.writes += 1;
        Ok(())
    }

    /// Passes until the controller is at rest. It must get there.
    pub(super) fn rest(&mut self) {
        for _ in 0..PASSES {
            if self.gone || !self.pass() {
                return;
            }
        }
        panic!("the controller does not come to rest: {:#?}", self.status);
    }

    /// Runs until the pass that records the next end of a release, that pass
    /// included.
    pub(super) fn run_to_the_end(&mut self) {
        let last = |sim: &Self| sim.status.history.last().map(|record| record.number);
        let before = last(self);
        for _ in 0..2000 {
            self.elapse();
            for _ in 0..PASSES {
                if last(self) != before {
                    return;
                }
                if !self.pass() {
                    break;
                }
            }
        }
        panic!("the release never ends: {:#?}", self.status);
    }

    /// One second of everything but the controller.
    pub(super) fn elapse(&mut self) {
        self.now += SignedDuration::from_secs(1);
        for deployment in self.deployments.values_mut() {
            self.dirty |= deployment.tick();
        }
    }

    /// One second of everything. The controller looks only if something it
    /// watches changed, or when it asked to be woken.
    pub(super) fn tick(&mut self) {
        self.elapse();
        if self.gone {
            return;
        }
        if self.dirty || self.wake_at.is_some_and(|at| at <= self.now) {
            self.rest();
        }
    }

    pub(super) fn run(&mut self, seconds: usize) {
        for _ in 0..seconds {
            self.tick();
        }
    }

    /// Runs until something holds, within a bound.
    pub(super) fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        for _ in 0..2000 {
            if holds(self) {
                return Duration::try_from(self.now.duration_since(start)).unwrap();
            }
            self.tick();
        }
        panic!("{what} never came: {:#?}", self.status);
    }

    pub(super) fn phase(&self) -> Phase {
        self.status.phase.unwrap_or(Phase::Pending)
    }

    /// Status, reason and message of a condition.
    pub(super) fn condition(&self, type_: ConditionType) -> (bool, &str, &str) {
        let condition = self
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == type_.as_str())
            .unwrap_or_else(|| panic!("no condition {type_:?}"));
        (
            condition.status == "True",
            &condition.reason,
            &condition.message,
        )
    }

    pub(super) fn ready(&self) -> bool {
        self.condition(ConditionType::Ready).0
    }

    pub(super) fn reason(&self) -> &str {
        self.condition(ConditionType::Ready).1
    }

    pub(super) fn stalled(&self) -> bool {
        self.condition(ConditionType::Stalled).0
    }

    pub(super) fn results(&self) -> Vec<ReleaseResult> {
        let history: &[ReleaseRecord] = &self.status.history;
        history.iter().map(|record| record.result).collect()
    }

    pub(super) fn told(&self, reason: Reason) -> usize {
        self.events.iter().filter(|e| e.reason == reason).count()
    }

    /// Writes on a Deployment's template.
    pub(super) fn writes_on(&self, name: &str) -> usize {
        self.journal
            .iter()
            .filter(|(what, on)| *what != "own" && on == name)
            .count()
    }
}
