//! How one workload goes back: which of its fields, by which write, and whether
//! it must at all. When it has to is decided in [`super::restore`].

use super::{
    Action, Workload, contents,
    context::{Context, View},
    pinned, rivals,
    rollout::held_fields,
    stable::{self, may_write},
    ways,
};
use crate::{
    api::{ComponentState, Reason},
    fields::{FieldSet, canon, get, put_back},
    plan::Target,
    revision::Frozen,
};

/// Fields to bring back of a workload; none means the whole template.
pub(super) fn touched(ctx: &Context<'_>, target: &Target) -> FieldSet {
    let stable = pinned::began(ctx).and_then(|stable| stable.data.of(target));
    let applied = ctx.release().map(|r| r.applied.clone()).unwrap_or_default();
    let surroundings = applied.iter().any(|name| {
        let frozen = ctx.revision(Some(name)).and_then(|r| r.data.of(target));
        frozen.zip(stable).is_some_and(|(frozen, stable)| {
            frozen.partial_digest.is_some()
                && frozen.partial_digest == stable.partial_digest
                && !canon::equal(&frozen.template, &stable.template)
        })
    });
    if surroundings {
        // What was released is what surrounds the plan's fields.
        return FieldSet::default();
    }
    let owned = ctx
        .components()
        .find(|view| view.scope.target == *target)
        .and_then(|view| view.observed.workload.as_ref())
        .map(|workload| workload.owned.clone());
    // What is owned now was taken by somebody's release, even where the record
    // of it is lost.
    let owned = owned
        .unwrap_or_default()
        .difference(&contents::annotation());
    ctx.touched(target).union(&owned)
}

/// Brings back also what surrounds the plan's fields, once: it may be what
/// keeps the stable values from becoming available.
pub(super) fn surroundings(
    ctx: &mut Context<'_>,
    view: View<'_>,
    workload: &Workload,
    frozen: &Frozen,
) -> bool {
    if canon::equal(&workload.template, &frozen.template)
        || !may_write(ctx, view.index, 1 + stable::REASSERTIONS)
    {
        return false;
    }
    let text = format!(
        "{} is back on the stable values of the plan's fields but does not become available; the rest of its template differs from the stable revision and is restored too",
        view.scope.target
    );
    ctx.tell(true, Reason::RollingBack, &text);
    if let Some(component) = ctx.component(view.index) {
        component.state = Some(ComponentState::Restoring);
        component.progress_at = None;
        component.best_ready = None;
    }
    ctx.act(Action::Replace {
        write: stable::write(view, workload, frozen.template.clone()),
    });
    true
}

/// Whether a followed workload has a template that is neither stable nor one
/// that was released: somebody's newer wish, which a rollback must not undo.
pub(super) fn is_newer(ctx: &Context<'_>, view: View<'_>, workload: &Workload) -> bool {
    let applied = ctx
        .release()
        .map(|release| release.applied.clone())
        .unwrap_or_default();
    let stable = ctx.stable().and_then(|s| s.data.of(&view.scope.target));
    let live = contents::plain(&workload.template);
    let is_live = |frozen: &Frozen| canon::equal(&contents::plain(&frozen.template), &live);
    let last = applied.last().and_then(|name| ctx.revision(Some(name)));
    let last = last.and_then(|last| last.data.of(&view.scope.target));
    let held = last.map_or_else(
        || ctx.touched(&view.scope.target),
        |last| held_fields(ctx, view.scope, last),
    );
    held.is_empty()
        && !stable.is_some_and(is_live)
        && applied.iter().all(|name| {
            // What is not known to be newer must not stay.
            ctx.revision(Some(name))
                .and_then(|revision| revision.data.of(&view.scope.target))
                .is_some_and(|frozen| !is_live(frozen))
        })
}

/// Sends a component back; says who is in the way if somebody keeps undoing it.
pub(super) fn back(
    ctx: &mut Context<'_>,
    view: View<'_>,
    workload: &Workload,
    frozen: &Frozen,
    touched: &FieldSet,
    contents: Vec<Action>,
) -> Option<String> {
    if !may_write(ctx, view.index, 1 + stable::REASSERTIONS) {
        let fields = ways::fields(&workload.template, &frozen.template, touched);
        return Some(rivals::managers(ctx, view, workload, &fields));
    }
    if let Some(component) = ctx.component(view.index) {
        component.state = Some(ComponentState::Restoring);
        component.progress_at = None;
    }
    for write in contents {
        ctx.act_once(write);
    }
    let body = frozen.body(touched);
    let says_all = || touched.leaves().iter().all(|p| get(&body, p).is_some());
    ctx.act(if touched.is_empty() {
        let write = stable::write(view, workload, frozen.template.clone());
        Action::Replace { write }
    } else if touched.leaves_order() && says_all() {
        // One write does it, ownership included. What is to be taken out may
        // have got another owner meanwhile, and would stay.
        let write = stable::write(view, workload, body);
        Action::Apply { write }
    } else {
        let template = put_back(&workload.template, &frozen.template, touched);
        let write = stable::write(view, workload, template);
        Action::Replace { write }
    });
    None
}
