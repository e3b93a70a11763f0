//! How workloads come under a plan and leave it: claims, the first stable
//! revision, and changes of the set of components.

use super::{
    Action, Workload,
    context::{Context, View, is_complete},
    desired::{Obstacle, desired, missing},
    first, pinned, report, settle, snapshots, stable,
};
use crate::{
    api::{ComponentState, Phase, Reason},
    config_maps::Tracked,
    fields::{FieldSet, Found, canon},
    plan::{Plan, Target},
    revision::{Frozen, MAX_BYTES, Revision, RevisionData},
};

/// Marks the workloads as held by this plan, from now on if they were not.
pub(super) fn claim(ctx: &mut Context<'_>, plan: &Plan) {
    let now = ctx.micros();
    for index in 0..ctx.scope.len() {
        let live = ctx
            .input
            .world
            .components
            .get(index)
            .and_then(|c| c.workload.as_ref());
        let uid = live.map(|workload| workload.uid.clone());
        if let Some(component) = ctx.component(index) {
            component.claimed_at.get_or_insert_with(|| now.clone());
            if component.uid.is_some() && uid.is_some() && component.uid != uid {
                // Another object: nobody has fought over this one yet.
                component.written_at.clear();
            }
        }
    }
    let order = |reference: &crate::api::WorkloadRef| {
        let target = Target::from_ref(reference);
        plan.components()
            .iter()
            .position(|c| Some(&c.target) == target.as_ref())
    };
    ctx.status
        .components
        .sort_by_key(|c| order(&c.workload).unwrap_or(usize::MAX));
}

/// Takes what is live as the first stable revision once it is healthy, or
/// starts the first release if it is not and the plan wants something else.
pub(super) fn baseline(ctx: &mut Context<'_>, plan: &Plan) {
    if first::is_held(ctx, plan) {
        return first::hold(ctx, plan);
    }
    ctx.status.phase = Some(Phase::Pending);
    if let Some(text) = snapshots::too_large(ctx) {
        return report::stalled(ctx, Reason::ConfigMapRefused, &text);
    }
    if let Some(text) = missing(ctx) {
        for index in 0..ctx.scope.len() {
            let gone = ctx
                .input
                .world
                .components
                .get(index)
                .is_none_or(|c| c.workload.is_none());
            if let Some(component) = ctx.component(index) {
                component.state = Some(if gone {
                    ComponentState::Missing
                } else {
                    ComponentState::Waiting
                });
            }
        }
        return report::progressing(ctx, Reason::TargetsMissing, &text);
    }
    let waiting: Vec<(usize, String, bool)> = ctx
        .components()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            (!is_complete(workload)).then(|| {
                (
                    view.index,
                    availability(view, workload),
                    workload.available == 0,
                )
            })
        })
        .collect();
    if waiting.is_empty() {
        return take(ctx, plan);
    }
    first(ctx, plan, &waiting);
}

/// Waits for the live templates to become healthy; with nothing available, or
/// after the deadline, a different content is released without a way back.
fn first(ctx: &mut Context<'_>, plan: &Plan, waiting: &[(usize, String, bool)]) {
    let deadline = plan.progress_deadline();
    let now = ctx.micros();
    let mut due = false;
    for (index, _, nothing) in waiting {
        let Some(component) = ctx.component(*index) else {
            continue;
        };
        component.state = Some(ComponentState::Waiting);
        let since = component
            .progress_at
            .get_or_insert_with(|| now.clone())
            .clone();
        let passed = ctx.since(&since);
        due |= *nothing || passed >= deadline;
        if passed < deadline {
            ctx.wake_in(deadline.saturating_sub(passed));
        }
    }
    let texts: Vec<&str> = waiting.iter().map(|(_, text, _)| text.as_str()).collect();
    let text = format!(
        "nothing can be returned to before what is live is available; waiting for {}",
        texts.join(", ")
    );
    if due && !plan.paused() {
        match desired(ctx, plan) {
            Ok(desired) if desired.changed() => return settle::begin(ctx, &desired),
            Ok(_) => {}
            Err(obstacle) => {
                return stable::obstructed(ctx, obstacle.reason, &obstacle.message);
            }
        }
    }
    report::progressing(ctx, Reason::BaselineUnavailable, &text);
}

fn take(ctx: &mut Context<'_>, plan: &Plan) {
    let data = match desired(ctx, plan) {
        // What is live is what the plan asks for, with the fields that it will
        // own and what stands in them.
        Ok(desired) if !desired.changed() => desired.data(),
        // Contents that cannot be kept cannot be returned to.
        Err(obstacle)
            if matches!(
                obstacle.reason,
                Reason::SnapshotLost | Reason::ConfigMapRefused
            ) =>
        {
            return report::stalled(ctx, obstacle.reason, &obstacle.message);
        }
        _ => RevisionData {
            canon: canon::CANON_VERSION,
            // What the plan asks for was not released yet.
            spec: String::new(),
            components: ctx
                .components()
                .filter_map(|view| frozen(ctx, view))
                .collect(),
        },
    };
    if let Some(text) = too_large(&data) {
        return report::stalled(ctx, Reason::TemplateRefused, &text);
    }
    let spec = data.spec.clone();
    if let Err(obstacle) = store(ctx, data) {
        return stable::obstructed(ctx, obstacle.reason, &obstacle.message);
    }
    first::taken(ctx, &spec);
    ctx.status.phase = Some(Phase::Stable);
    let name = ctx.status.stable_revision.clone().unwrap_or_default();
    ctx.tell(
        false,
        Reason::BaselineTaken,
        &format!("{name} is the first stable revision: it is what was live and available, and a release that fails returns to it"),
    );
    report::progressing(
        ctx,
        Reason::BaselineTaken,
        "the stable revision is taken; now the plan is compared with what is live",
    );
}

/// Says so if the templates do not fit into a revision.
pub(super) fn too_large(data: &RevisionData) -> Option<String> {
    let bytes = data.bytes();
    (bytes > MAX_BYTES).then(|| {
        format!("the pod templates take {bytes} bytes together; a revision holds up to {MAX_BYTES}. Move large values into ConfigMaps, or split the plan")
    })
}

fn store(ctx: &mut Context<'_>, data: RevisionData) -> Result<(), Obstacle> {
    let all: Vec<Tracked> = tracked(&data).cloned().collect();
    snapshots::store(ctx, &all)?;
    let _ = set_stable(ctx, data);
    Ok(())
}

fn tracked(data: &RevisionData) -> impl Iterator<Item = &Tracked> {
    data.components.iter().flat_map(Frozen::keeps)
}

/// Takes a revision as the stable one; gives its name back. What is held in the
/// place of the one before stays held.
pub(super) fn set_stable(ctx: &mut Context<'_>, data: RevisionData) -> String {
    let name = store_revision(ctx, data);
    let before = ctx.status.stable_revision.replace(name.clone());
    for refused in &mut ctx.status.refused {
        if Some(&refused.revision) == before.as_ref() {
            refused.revision.clone_from(&name);
        }
    }
    name
}

/// The same with another record of the same content, by which it is known from
/// here on.
pub(super) fn rename_stable(ctx: &mut Context<'_>, data: RevisionData) -> String {
    let before = ctx.status.stable_revision.clone();
    let name = set_stable(ctx, data);
    for record in &mut ctx.status.history {
        for known in [&mut record.revision, &mut record.from] {
            if *known == before {
                *known = Some(name.clone());
            }
        }
    }
    name
}

/// Stores a revision; gives its name back.
pub(super) fn store_revision(ctx: &mut Context<'_>, data: RevisionData) -> String {
    let facts = &ctx.input.world.plan;
    let revision = data.named(&facts.name, &facts.uid);
    let number = ctx.status.history.last().map_or(0, |record| record.number);
    let name = revision.name.clone();
    ctx.act(Action::CreateRevision {
        revision: Box::new(revision),
        number,
    });
    name
}

fn frozen(ctx: &Context<'_>, view: View<'_>) -> Option<Frozen> {
    let workload = view.observed.workload.as_ref()?;
    Some(Frozen {
        name: view.scope.name.clone(),
        workload: view.scope.target.to_ref(),
        partial_digest: None,
        template: workload.template.clone(),
        fields: FieldSet::default(),
        carried: FieldSet::default(),
        found: Found::default(),
        emptied: None,
        // A template of the user's own names the ConfigMap itself.
        config_maps: if view.scope.template.is_none() {
            view.scope.tracked.clone()
        } else {
            Vec::new()
        },
        named: pinned::of(ctx, view),
    })
}

/// Takes in components that are new in the plan and lets go of those that left
/// it; true if there were any.
pub(super) fn changed_set(ctx: &mut Context<'_>, current: &Revision) -> bool {
    let known = |view: &View<'_>| current.data.of(&view.scope.target).is_some();
    let new: Vec<View<'_>> = ctx.components().filter(|view| !known(view)).collect();
    let unready: Vec<String> = new
        .iter()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            (!is_complete(workload)).then(|| availability(*view, workload))
        })
        .collect();
    let left: Vec<View<'_>> = ctx.views().filter(|view| view.scope.leaving).collect();
    if new.is_empty() && left.is_empty() {
        return false;
    }
    let mut joined: Vec<Frozen> = new.iter().filter_map(|view| frozen(ctx, *view)).collect();
    // A ConfigMap has one contents in a revision: those that the others rest on.
    // What a template only names is nothing that is written back.
    let own = current.data.components.iter().flat_map(|c| &c.config_maps);
    let own: Vec<_> = own.cloned().collect();
    for tracked in joined.iter_mut().flat_map(|frozen| &mut frozen.config_maps) {
        if let Some(own) = own.iter().find(|own| own.name == tracked.name) {
            tracked.clone_from(own);
        }
    }
    let gone: Vec<Target> = left.iter().map(|view| view.scope.target.clone()).collect();
    let disowned: Vec<Action> = left
        .iter()
        .filter_map(|view| {
            let workload = view.observed.workload.as_ref()?;
            workload
                .marked
                .then(|| stable::own(*view, workload, FieldSet::default()))
        })
        .collect();
    if !unready.is_empty() {
        let text = format!(
            "new components join the plan once they are available, and until then nothing is released; waiting for {}",
            unready.join(", ")
        );
        report::progressing(ctx, Reason::BaselineUnavailable, &text);
        return true;
    }
    let is_gone = |reference: &crate::api::WorkloadRef| {
        Target::from_ref(reference).is_none_or(|target| gone.contains(&target))
    };
    let mut components: Vec<Frozen> = current
        .data
        .components
        .iter()
        .filter(|c| !is_gone(&c.workload))
        .cloned()
        .collect();
    components.extend(joined);
    let data = RevisionData {
        components,
        ..current.data.clone()
    };
    if let Some(text) = too_large(&data) {
        report::stalled(ctx, Reason::TemplateRefused, &text);
        return true;
    }
    let known: Vec<_> = tracked(&current.data).cloned().collect();
    let new: Vec<Tracked> = tracked(&data)
        .filter(|tracked| !known.contains(tracked))
        .cloned()
        .collect();
    if let Err(obstacle) = snapshots::store(ctx, &new) {
        stable::obstructed(ctx, obstacle.reason, &obstacle.message);
        return true;
    }
    let name = set_stable(ctx, data.clone());
    // What was lost before must not hold what may be its mending.
    let rest = tracked(&data).filter(|tracked| known.contains(tracked));
    let _ = snapshots::keep_for(ctx, &name, rest.collect());
    for action in disowned {
        ctx.act(action);
    }
    ctx.status.components.retain(|c| !is_gone(&c.workload));
    // The rest of the content may be new as well, or only the spec's record of
    // it: the next pass looks at all of it.
    for component in &mut ctx.status.components {
        component.live_digest = None;
    }
    let text = format!(
        "the set of components changed; {} is the stable revision now",
        ctx.status.stable_revision.as_deref().unwrap_or_default()
    );
    ctx.tell(false, Reason::BaselineTaken, &text);
    report::progressing(ctx, Reason::BaselineTaken, &text);
    true
}

/// How far a workload is, in words.
pub(super) fn availability(view: View<'_>, workload: &Workload) -> String {
    let old = workload.total - workload.updated;
    let rest = if old > 0 {
        let are = if old == 1 { "pod is" } else { "pods are" };
        format!("; {old} old {are} still there")
    } else {
        String::new()
    };
    format!(
        "{}: {} of {} pods have the template, {} are available in all{rest}",
        view.scope.target, workload.updated, workload.replicas, workload.available
    )
}
