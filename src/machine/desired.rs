//! What every component should look like now, and how that differs from the
//! stable revision.

use serde_json::{Value, json};

use super::{
    Action, DryRun, adopt, contents,
    context::{Context, View},
    needs::found,
    pinned, snapshots,
};
use crate::{
    api::Reason,
    fields::{FieldSet, Found, canon, emptied, put_back},
    plan::{Plan, missing_containers},
    revision::{Frozen, Revision, RevisionData},
};

/// How a component differs from the stable revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Not at all.
    None,
    /// In fields of the plan, or in the template of a followed workload.
    Content,
    /// Only in fields that the plan does not own.
    Surroundings,
}

/// What is wanted of all components.
pub(super) struct Desired {
    /// Components of the revision that would be released, aligned with
    /// [`Context::components`].
    pub(super) frozen: Vec<Frozen>,
    /// How each differs from the stable revision.
    pub(super) changes: Vec<Change>,
    /// Whether each still has its stable template.
    pub(super) waiting: Vec<bool>,
    /// Digest of all that is wanted.
    pub(super) content: String,
    /// Digest of the spec's content that is part of it.
    pub(super) spec: String,
    /// Snapshots that have to be stored before any of it may be written.
    pub(super) keep: Vec<Action>,
}

impl Desired {
    pub(super) fn changed(&self) -> bool {
        self.changes.iter().any(|change| *change != Change::None)
    }

    /// Whether some of it was done to a workload itself, so that it is under way
    /// already and has to be guarded: a pause only holds what the plan would do.
    pub(super) fn has_begun(&self) -> bool {
        self.frozen
            .iter()
            .zip(&self.changes)
            .zip(&self.waiting)
            .any(|((frozen, change), waiting)| match change {
                Change::None => false,
                Change::Surroundings => true,
                Change::Content => frozen.partial_digest.is_none() && !waiting,
            })
    }

    pub(super) fn data(&self) -> RevisionData {
        RevisionData {
            canon: canon::CANON_VERSION,
            spec: self.spec.clone(),
            components: self.frozen.clone(),
        }
    }
}

/// What is in the way of knowing what is wanted.
pub(super) struct Obstacle {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// What is wanted of all components, or everything that is in the way.
pub(super) fn desired(ctx: &Context<'_>, plan: &Plan) -> Result<Desired, Obstacle> {
    if let Some(message) = missing(ctx) {
        return Err(Obstacle {
            reason: Reason::TargetsMissing,
            message,
        });
    }
    let undo = ctx.release().and_then(|release| release.undo.as_ref());
    if let Some(name) = undo {
        let Some(to) = ctx.revision(Some(name)) else {
            return Err(Obstacle {
                reason: Reason::RevisionLost,
                message: format!(
                    "controllerrevision {name}, which was asked for, is gone or damaged"
                ),
            });
        };
        return undone(ctx, to);
    }
    let refused = ctx.spec_refused(plan);
    let stable = ctx.stable().map(|stable| stable.data.spec.clone());
    let spec = match stable {
        Some(spec) if refused => spec,
        _ => plan.content().to_owned(),
    };
    collect(ctx, spec, |view| wanted(ctx, view, refused))
}

/// What an undo to a revision makes of all components.
pub(super) fn undone(ctx: &Context<'_>, to: &Revision) -> Result<Desired, Obstacle> {
    if let Some(message) = missing(ctx) {
        return Err(Obstacle {
            reason: Reason::TargetsMissing,
            message,
        });
    }
    let to = pinned::returned(ctx, to);
    let spec = to.data.spec.clone();
    collect(ctx, spec, |view| earlier(ctx, view, &to))
}

fn collect<'a>(
    ctx: &'a Context<'_>,
    spec: String,
    of: impl Fn(View<'a>) -> Result<Frozen, Obstacle>,
) -> Result<Desired, Obstacle> {
    let mut frozen = Vec::new();
    let mut changes = Vec::new();
    let mut keep = Vec::new();
    let mut waiting = Vec::new();
    let mut faults: Vec<(Reason, String)> = Vec::new();
    for view in ctx.components() {
        match of(view).and_then(|wanted| kept(ctx, wanted)) {
            Ok((wanted, create)) => {
                keep.extend(create);
                waiting.push(is_waiting(ctx, view));
                changes.push(change(ctx, view, &wanted));
                frozen.push(wanted);
            }
            Err(obstacle) => faults.push((obstacle.reason, obstacle.message)),
        }
    }
    if let Some((reason, _)) = faults.first() {
        let reason = *reason;
        let texts: Vec<String> = faults.into_iter().map(|(_, text)| text).collect();
        return Err(Obstacle {
            reason,
            message: texts.join("; "),
        });
    }
    let parts: Vec<_> = frozen
        .iter()
        .map(|f| json!([f.name, canon::digest(&f.template)]))
        .collect();
    let content = canon::digest_json(&json!({ "spec": spec, "templates": parts }));
    let desired = Desired {
        frozen,
        changes,
        waiting,
        content,
        spec,
        keep,
    };
    match adopt::too_large(&desired.data()) {
        None => Ok(desired),
        Some(message) => Err(Obstacle {
            reason: Reason::TemplateRefused,
            message,
        }),
    }
}

/// Whether a component has its stable template still.
fn is_waiting(ctx: &Context<'_>, view: View<'_>) -> bool {
    let stable = ctx
        .stable()
        .and_then(|stable| stable.data.of(&view.scope.target));
    let live = view.observed.workload.as_ref();
    live.zip(stable)
        .is_some_and(|(live, stable)| canon::equal(&live.template, &stable.template))
}

/// What is wanted, if the contents that belong to it are kept or can be, and
/// what has to be done for that.
fn kept(ctx: &Context<'_>, wanted: Frozen) -> Result<(Frozen, Vec<Action>), Obstacle> {
    let create = snapshots::secure(ctx, &wanted.reads())?;
    Ok((wanted, create))
}

/// Names the workloads and the ConfigMaps that do not exist, and the ConfigMaps
/// that cannot be read.
pub(super) fn missing(ctx: &Context<'_>) -> Option<String> {
    let workloads = ctx
        .components()
        .filter(|c| c.observed.workload.is_none())
        .map(|c| c.scope.target.to_string());
    let (config_maps, unread) = snapshots::missing(ctx);
    let gone: Vec<String> = workloads.chain(config_maps).collect();
    let unread = unread.join(", ");
    match (gone.join(", "), unread.is_empty()) {
        (gone, true) if gone.is_empty() => None,
        (gone, false) if gone.is_empty() => {
            Some(format!("waiting for {unread}. It is read again by itself"))
        }
        (gone, read) => {
            let and = if read { "" } else { " and for " };
            Some(format!(
                "waiting for {gone} to exist{and}{unread}. Create what is missing, or correct the name in the plan"
            ))
        }
    }
}

/// What a component was under a revision: the template of a followed workload,
/// and of a templated one the plan's fields, with what surrounds them as it is.
fn earlier(ctx: &Context<'_>, view: View<'_>, to: &Revision) -> Result<Frozen, Obstacle> {
    let target = &view.scope.target;
    let stable = ctx.stable().and_then(|stable| stable.data.of(target));
    let Some(workload) = &view.observed.workload else {
        return Err(Obstacle {
            reason: Reason::TargetsMissing,
            message: format!("waiting for {target} to exist"),
        });
    };
    let Some(then) = to.data.of(target).or(stable) else {
        return Err(Obstacle {
            reason: Reason::BaselineUnavailable,
            message: format!("component {}: not judged yet", view.scope.name),
        });
    };
    let named = |frozen| Frozen {
        name: view.scope.name.clone(),
        carried: FieldSet::default(),
        ..frozen
    };
    if view.scope.template.is_none() {
        return Ok(named(Frozen {
            partial_digest: None,
            fields: contents::fields(&then.template, &then.config_maps),
            found: Found::default(),
            emptied: None,
            ..then.clone()
        }));
    }
    let partial = then.body(&then.fields);
    if let Some(gone) = missing_containers(&partial, &workload.template).first() {
        return Err(Obstacle {
            reason: Reason::TemplateMismatch,
            message: format!("{target} has {gone}"),
        });
    }
    let touched = ctx
        .touched(target)
        .union(&then.touched())
        .union(&workload.owned);
    let template = if touched.is_empty() {
        // Nothing of it was ever the plan's, so all of it is what was asked for.
        then.template.clone()
    } else {
        put_back(&workload.template, &then.template, &touched)
    };
    Ok(named(Frozen {
        template,
        ..then.clone()
    }))
}

fn wanted(ctx: &Context<'_>, view: View<'_>, refused: bool) -> Result<Frozen, Obstacle> {
    let target = &view.scope.target;
    let stable = ctx.stable().and_then(|stable| stable.data.of(target));
    let mut found = found(&ctx.status, &ctx.input.world.revisions, target);
    let frozen = |partial_digest, template, fields, found| Frozen {
        name: view.scope.name.clone(),
        workload: target.to_ref(),
        partial_digest,
        template,
        fields,
        carried: FieldSet::default(),
        found,
        emptied: None,
        config_maps: view.scope.tracked.clone(),
        named: Vec::new(),
    };
    let Some(workload) = &view.observed.workload else {
        return Err(Obstacle {
            reason: Reason::TargetsMissing,
            message: format!("waiting for {target} to exist"),
        });
    };
    if view.scope.template.is_none() {
        // What was refused is not wanted, wherever it is set again.
        let template = contents::now(ctx, view.scope, workload);
        if let Some(stable) = stable
            && ctx.live_refused(target, &template)
        {
            return Ok(stable.clone());
        }
        let fields = contents::fields(&template, &view.scope.tracked);
        let named = pinned::left(ctx, view, &template, &view.scope.tracked);
        return Ok(Frozen {
            named,
            ..frozen(None, template, fields, Found::default())
        });
    }
    if refused && let Some(stable) = stable {
        // The stable values hold in the plan's own fields, whatever somebody
        // put there meanwhile; what surrounds them is as it was left.
        let fields = stable.fields.union(&workload.owned);
        let template = put_back(&workload.template, &stable.template, &fields);
        if ctx.live_refused(target, &template) {
            return Ok(stable.clone());
        }
        let digest = stable.partial_digest.clone();
        let named = if canon::equal(&template, &stable.template) {
            stable.named.clone()
        } else {
            // What its names stand for is what they stood for when it was made.
            pinned::of(ctx, view)
        };
        return Ok(Frozen {
            emptied: stable.emptied.clone(),
            config_maps: stable.config_maps.clone(),
            named,
            ..frozen(digest, template, stable.fields.clone(), found)
        });
    }
    let fault = |reason, text: &str| {
        Err(Obstacle {
            reason,
            message: format!("component {}: {text}", view.scope.name),
        })
    };
    match &workload.dry_run {
        Some(DryRun::Merged {
            template,
            owned,
            carried,
            ..
        }) => {
            let new = owned.difference(&workload.owned);
            let before = pinned::users(&workload.template, stable);
            found.merge(Found::record(&before, &new));
            // A field that was given back is recorded anew when it is taken
            // again.
            let back: FieldSet = found
                .iter()
                .map(|known| known.path.clone())
                .filter(|path| !owned.contains(path))
                .collect();
            found.forget(&back);
            let digest = view.scope.template_digest.clone();
            let partial = view.scope.template.as_ref();
            let emptied = partial.map(|partial| emptied(partial, template, owned));
            let emptied = match emptied.transpose() {
                Ok(emptied) => emptied.flatten(),
                Err(error) => return fault(Reason::TemplateRefused, &error.to_string()),
            };
            Ok(Frozen {
                named: pinned::left(ctx, view, template, &view.scope.tracked),
                carried: carried.clone(),
                emptied,
                ..frozen(digest, template.clone(), owned.clone(), found)
            })
        }
        Some(DryRun::Mismatch(text)) => fault(Reason::TemplateMismatch, text),
        Some(DryRun::Refused(text)) => fault(Reason::TemplateRefused, text),
        Some(DryRun::NotAvailable(text)) => fault(Reason::NotAvailableYet, text),
        Some(DryRun::Undecided(text)) => fault(Reason::Settling, text),
        // No dry run was asked for, so nothing about the component is new.
        None => match stable {
            Some(stable) => Ok(stable.clone()),
            None => fault(Reason::BaselineUnavailable, "not judged yet"),
        },
    }
}

/// Whether what is wanted of a templated component of which the plan owns nothing
/// is what somebody made of it.
fn is_surrounding(view: View<'_>, wanted: &Frozen) -> bool {
    let live = view.observed.workload.as_ref();
    let is_live = live.is_some_and(|live| canon::equal(&live.template, &wanted.template));
    is_live && view.scope.template.is_some()
}

fn change(ctx: &Context<'_>, view: View<'_>, wanted: &Frozen) -> Change {
    let Some(stable) = ctx
        .stable()
        .and_then(|stable| stable.data.of(&view.scope.target))
    else {
        return match &view.observed.workload {
            Some(live) if canon::equal(&live.template, &wanted.template) => Change::None,
            _ => Change::Content,
        };
    };
    let today = view
        .observed
        .workload
        .as_ref()
        .and_then(|live| live.stable_today.as_ref());
    let same = |template: &Value| canon::equal(template, &wanted.template);
    // An API server that adds defaults makes another template of the same
    // content, which is no reason to release it.
    if same(&stable.template) || today.is_some_and(same) {
        Change::None
    } else if wanted.partial_digest != stable.partial_digest {
        Change::Content
    } else if wanted.partial_digest.is_some() || is_surrounding(view, wanted) {
        Change::Surroundings
    } else {
        Change::Content
    }
}
