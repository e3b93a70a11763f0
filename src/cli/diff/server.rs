//! Asks the API server what a plan would make of its workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};

use super::{
    contents::{self, Now},
    model::{ComponentDiff, Part, PlanDiff},
    part,
};
use crate::{
    api::{ReleasePlanStatus, Stage, StoredPlan},
    cli::{
        CliError, Session, list_all,
        status::{Caller, held::held, workload},
    },
    cluster::{ApplyFailure, Snapshot, deployments, dry_run},
    fields::Found,
    machine::{self, DryRun},
    plan::{ComponentPlan, Plan, Target, incumbent, targets_of},
    revision::Revision,
};

/// Dry runs at a time.
const AT_ONCE: usize = 8;
/// Times that a workload is read again which changes meanwhile.
const AGAIN: usize = 3;

/// What is known beside a component and its workload.
struct Known<'a> {
    client: &'a Client,
    namespace: &'a str,
    status: &'a ReleasePlanStatus,
    revisions: &'a BTreeMap<String, Arc<Revision>>,
    now: &'a Now,
    caller: &'a Caller,
}

impl Known<'_> {
    /// What would change of the contents that belong to a component.
    async fn contents(
        &self,
        component: &ComponentPlan,
        template: &serde_json::Value,
    ) -> Result<Vec<Part>, CliError> {
        contents::parts(
            self.client,
            self.namespace,
            component,
            template,
            self.revisions,
            self.status,
            self.now,
        )
        .await
    }
}

/// What came of a component.
enum Outcome {
    Same,
    Differs(ComponentDiff),
    Fault(String),
}

/// What the next release of a plan would change.
pub(super) async fn diff(
    session: &Session,
    wanted: &StoredPlan,
    from_file: bool,
    caller: &Caller,
    shared: &mut Shared,
) -> Result<PlanDiff, CliError> {
    let client = &session.client;
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let namespace = wanted.metadata.namespace.clone().unwrap_or_default();
    let mut diff = PlanDiff {
        namespace: namespace.clone(),
        name: name.clone(),
        notes: Vec::new(),
        faults: Vec::new(),
        components: Vec::new(),
    };
    let plan = match Plan::parse(&wanted.spec) {
        Ok(plan) => plan,
        Err(faults) => {
            diff.faults = faults.as_slice().iter().map(ToString::to_string).collect();
            return Ok(diff);
        }
    };
    let stored = if from_file {
        let api = Api::<StoredPlan>::namespaced(client.clone(), &namespace);
        let read = api.get_opt(&name).await;
        read.map_err(|error| CliError::api(format!("read releaseplan/{name}"), error))?
    } else {
        Some(wanted.clone())
    };
    let status = stored
        .as_ref()
        .and_then(|s| s.status.clone())
        .unwrap_or_default();
    let now = contents::read(client, &namespace, &plan, &status, caller).await?;
    let uid = stored.as_ref().and_then(|s| s.metadata.uid.as_deref());
    let plan = plan.resolved(uid.unwrap_or_default(), &now.digests);
    diff.notes = notes(&plan, stored.as_ref(), &status, from_file);
    if uid.is_none() && !now.digests.is_empty() {
        let text = "names of snapshots are told as an example: they depend on the plan's uid";
        diff.notes.push(text.to_owned());
    }
    diff.notes.extend(now.notes.iter().cloned());
    diff.faults.extend(now.faults.iter().cloned());
    let me = stored.as_ref().unwrap_or(wanted);
    match shared.plans(session).await? {
        Some(all) => {
            let claimed = claimed(me, &plan, all);
            if waits_for_others(&status) {
                diff.faults.extend(claimed);
            } else {
                diff.notes.extend(claimed);
            }
        }
        None => diff.notes.push(
            "whether another plan holds a workload of this one was not checked: you may not list releaseplans"
                .to_owned(),
        ),
    }
    // Nothing of it would be written, so there is nothing to compare.
    if !diff.faults.is_empty() {
        return Ok(diff);
    }
    let revisions = revisions(
        client,
        &namespace,
        stored.as_ref(),
        &status,
        &mut diff.notes,
    )
    .await;
    let live = shared.live(client).await?;
    let known = Known {
        client,
        namespace: &namespace,
        status: &status,
        revisions: &revisions,
        now: &now,
        caller,
    };
    let tried = plan.components().iter().map(|component| {
        let live = live.get(&component.target.name);
        try_component(&known, component, live)
    });
    let outcomes: Vec<Result<Outcome, CliError>> =
        stream::iter(tried).buffered(AT_ONCE).collect().await;
    for outcome in outcomes {
        match outcome? {
            Outcome::Same => {}
            Outcome::Differs(component) => diff.components.push(component),
            Outcome::Fault(text) => diff.faults.push(text),
        }
    }
    Ok(diff)
}

/// What is read of a namespace once for all plans that are compared in it.
#[derive(Default)]
pub(super) struct Shared {
    namespace: String,
    /// Names of the workloads of those plans.
    workloads: BTreeSet<String>,
    /// All plans there are; none where they may not be listed.
    plans: Option<Option<Vec<StoredPlan>>>,
    live: Option<BTreeMap<String, DynamicObject>>,
}

impl Shared {
    /// For these plans, by their namespaces. Nothing is read yet.
    pub(super) fn of(plans: &[StoredPlan]) -> BTreeMap<String, Self> {
        let mut shared: BTreeMap<String, Self> = BTreeMap::new();
        for plan in plans {
            let namespace = plan.metadata.namespace.clone().unwrap_or_default();
            let of = shared.entry(namespace.clone()).or_insert_with(|| Self {
                namespace,
                ..Self::default()
            });
            let names = targets_of(plan).into_iter().map(|target| target.name);
            of.workloads.extend(names);
        }
        shared
    }

    async fn plans(&mut self, session: &Session) -> Result<Option<&[StoredPlan]>, CliError> {
        if self.plans.is_none() {
            let listed = match session.list(Some(&self.namespace), None).await {
                Ok(all) => Some(all),
                Err(CliError::Forbidden { .. }) => None,
                Err(error) => return Err(error),
            };
            self.plans = Some(listed);
        }
        Ok(self.plans.as_ref().and_then(Option::as_deref))
    }

    /// The workloads by name.
    async fn live(
        &mut self,
        client: &Client,
    ) -> Result<&BTreeMap<String, DynamicObject>, CliError> {
        let known = match self.live.take() {
            Some(known) => known,
            None => live(client, &self.namespace, &self.workloads).await?,
        };
        Ok(self.live.insert(known))
    }
}

/// Whether a plan does nothing while another one holds a workload of it: a
/// release that wrote something goes on to its end.
pub(super) fn waits_for_others(status: &ReleasePlanStatus) -> bool {
    let release = status.release.as_ref();
    release.is_none_or(|release| release.applied.is_empty())
}

/// The workloads that other plans hold.
pub(super) fn claimed(me: &StoredPlan, plan: &Plan, all: &[StoredPlan]) -> Vec<String> {
    let waits = me.status.as_ref().is_none_or(waits_for_others);
    let what = if waits {
        "writes nothing"
    } else {
        "begins nothing more than the release in progress"
    };
    let held = plan.components().iter().filter_map(|component| {
        let holder = incumbent(me, &component.target, all.iter())?;
        Some(format!(
            "{}: {} is held by releaseplan {holder}, and this plan {} until one of the two leaves it out",
            component.name, component.target, what
        ))
    });
    held.collect()
}

/// What is to be known beside the differences.
pub(super) fn notes(
    plan: &Plan,
    stored: Option<&StoredPlan>,
    status: &ReleasePlanStatus,
    from_file: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if stored.is_none() {
        notes.push(
            "the plan is not in the cluster yet: what is live becomes its stable revision first"
                .to_owned(),
        );
    }
    if let Some((refused, own)) = held(Some(plan), status) {
        let what = if own {
            "this content"
        } else {
            "what was done to the workloads"
        };
        notes.push(format!(
            "{what} is held and not released by itself: {} ({})",
            refused.revision,
            refused.told()
        ));
    }
    if let Some(release) = &status.release {
        let what = match release.stage {
            Stage::Restore => "a rollback is under way",
            Stage::Stopped => "a release stopped where it is",
            Stage::Settle | Stage::Promote | Stage::Bake => "a release is under way",
        };
        notes.push(format!(
            "{what}, so what is compared with is not all stable"
        ));
    }
    if plan.paused() {
        notes.push("the plan is paused, so nothing of it would begin".to_owned());
    }
    if from_file && stored.is_some() {
        let known = |c: &&ComponentPlan| {
            let reference = c.target.to_ref();
            !status
                .components
                .iter()
                .any(|known| known.workload == reference)
        };
        for component in plan.components().iter().filter(known) {
            notes.push(format!(
                "component {} is new: it joins the stable revision as it is",
                component.name
            ));
        }
        let left = status.components.iter().filter(|known| {
            !plan
                .components()
                .iter()
                .any(|c| c.target.to_ref() == known.workload)
        });
        for component in left {
            notes.push(format!(
                "component {} leaves the plan: its values stay as they are",
                component.name
            ));
        }
    }
    notes
}

/// The revisions that say what stood in the plan's fields before it took them.
async fn revisions(
    client: &Client,
    namespace: &str,
    stored: Option<&StoredPlan>,
    status: &ReleasePlanStatus,
    notes: &mut Vec<String>,
) -> BTreeMap<String, Arc<Revision>> {
    let mut found = BTreeMap::new();
    let Some(uid) = stored.and_then(|stored| stored.metadata.uid.as_deref()) else {
        return found;
    };
    let api = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
    let applied = status.release.iter().flat_map(|release| &release.applied);
    for name in status.stable_revision.iter().chain(applied) {
        let read = api.get_opt(name).await;
        let revision = match read {
            Ok(Some(object)) => Revision::from_object(&object, uid).map_err(|e| e.to_string()),
            Ok(None) => Err(format!("controllerrevision {name} is gone")),
            Err(error) => Err(format!("controllerrevision {name} cannot be read: {error}")),
        };
        match revision {
            Ok(revision) => {
                found.insert(name.clone(), Arc::new(revision));
            }
            Err(text) => notes.push(format!(
                "{text}; fields that leave the template are shown with the values that they have"
            )),
        }
    }
    found
}

/// The workloads by name.
async fn live(
    client: &Client,
    namespace: &str,
    workloads: &BTreeSet<String>,
) -> Result<BTreeMap<String, DynamicObject>, CliError> {
    let resource = ApiResource::erase::<Deployment>(&());
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let mut params = ListParams::default();
    if let (Some(only), 1) = (workloads.first(), workloads.len()) {
        params = params.fields(&format!("metadata.name={only}"));
    }
    let listed = list_all(&api, params).await;
    let listed = listed.map_err(|error| CliError::api("list deployments", error))?;
    let named = listed
        .into_iter()
        .filter_map(|object| Some((object.metadata.name.clone()?, object)));
    Ok(named.collect())
}

async fn try_component(
    known: &Known<'_>,
    component: &ComponentPlan,
    live: Option<&DynamicObject>,
) -> Result<Outcome, CliError> {
    let Known {
        client,
        namespace,
        caller,
        ..
    } = known;
    let target = &component.target;
    let found: Found = machine::found(known.status, known.revisions, target);
    let Some(live) = live else {
        return Ok(Outcome::Fault(format!(
            "{}: {target} does not exist",
            component.name
        )));
    };
    let ownership = |error| CliError::Form(format!("managedFields of {target}: {error}"));
    let mut snapshot = Snapshot::of(live).map_err(ownership)?;
    // Of a followed component the plan says nothing but its ConfigMaps that
    // could differ.
    let Some(partial) = &component.template else {
        let parts = known.contents(component, &snapshot.template).await?;
        return Ok(differs(component, parts));
    };
    for _ in 0..AGAIN {
        match dry_run(client, namespace, target, &snapshot, partial, &found).await {
            Ok(DryRun::Merged { template, .. }) => {
                let live = &snapshot.template;
                let part = part::template(&workload(target), live, &template)?;
                let mut parts: Vec<Part> = part.into_iter().collect();
                parts.extend(known.contents(component, live).await?);
                return Ok(differs(component, parts));
            }
            Ok(
                DryRun::Mismatch(text)
                | DryRun::Refused(text)
                | DryRun::NotAvailable(text)
                | DryRun::Undecided(text),
            ) => {
                return Ok(Outcome::Fault(format!("{}: {text}", component.name)));
            }
            Err(ApplyFailure::Conflict) => {
                let again = deployments(client, namespace).get(&target.name).await;
                let again = again.map_err(|e| CliError::api(format!("read {target}"), e))?;
                snapshot = Snapshot::of(&again).map_err(ownership)?;
            }
            Err(ApplyFailure::Refused(text)) => {
                return Ok(Outcome::Fault(format!("{}: {text}", component.name)));
            }
            Err(ApplyFailure::Undecided(text)) => {
                return Err(undecided(target, namespace, text, caller));
            }
        }
    }
    Ok(Outcome::Fault(format!(
        "{}: {target} keeps changing; try again",
        component.name
    )))
}

fn differs(component: &ComponentPlan, parts: Vec<Part>) -> Outcome {
    if parts.is_empty() {
        return Outcome::Same;
    }
    Outcome::Differs(ComponentDiff {
        name: component.name.clone(),
        workload: workload(&component.target),
        parts,
    })
}

/// The dry run could not be made. Most often that is for want of rights.
fn undecided(target: &Target, namespace: &str, text: String, caller: &Caller) -> CliError {
    if text.contains("cannot patch resource") {
        let message = format!(
            "{target} cannot be tried: a dry run needs patch on deployments in namespace {namespace}, which you may not do"
        );
        let hint = caller.kubectl("auth can-i patch deployments", namespace);
        return CliError::refused(message, format!("ask for that right, then: {hint}"));
    }
    CliError::refused(format!("{target} cannot be tried: {text}"), "try again")
}
