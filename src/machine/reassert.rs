//! Holds what is stable against other writers between releases: fields of the
//! plan that somebody took, and content that was refused and came again.
//!
//! Decides which writes that takes, and gives up where they are undone again and
//! again. What is new content is not decided here.

use super::{
    Action, Workload,
    again::{Turn, expire, refuse_again, refused_now, turn},
    contents,
    context::{Context, View, is_at},
    desired::{Change, Desired, Obstacle},
    rivals, snapshots,
    stable::{CONTENTION_WINDOW, REASSERTIONS, can_write, may_write, own, strays, write},
    types::DryRun,
    ways,
};
use crate::{
    api::Reason,
    fields::{FieldSet, canon, put_back},
    plan::Plan,
    revision::{Frozen, Revision},
};

/// A write that a component needs between releases.
struct Due {
    index: usize,
    action: Action,
    /// Whether it goes over somebody else's.
    fight: bool,
    /// Who is in the way if it does so too often.
    who: String,
    /// What to tell of it.
    text: String,
    /// Who gave the workload what.
    gave: String,
}

/// What came of holding the plan's fields against other writers.
pub(super) struct Reasserted {
    pub(super) wrote: bool,
    pub(super) contended: Option<String>,
    /// Contents that the templates count on are not kept.
    pub(super) lost: Option<Obstacle>,
    /// Some of it may be part of content that is on its way.
    pub(super) waits: bool,
}

/// Sets the plan's fields again where somebody took them, and takes those that
/// have the wanted value but are not owned yet. Refused templates of followed
/// workloads that come back are sent back again. All of it a few times only.
pub(super) fn run(
    ctx: &mut Context<'_>,
    plan: &Plan,
    stable: &'_ Revision,
    desired: &Desired,
) -> Reasserted {
    let refused = ctx.spec_refused(plan);
    let mut due: Vec<Due> = Vec::new();
    for (view, (wanted, change)) in ctx
        .components()
        .zip(desired.frozen.iter().zip(&desired.changes))
    {
        let Some(workload) = &view.observed.workload else {
            continue;
        };
        let Some(frozen) = stable.data.of(&view.scope.target) else {
            continue;
        };
        if let Some((action, fight)) =
            correction(ctx, view, workload, frozen, wanted, *change, refused)
        {
            let none = FieldSet::default();
            let fields = ways::fields(&workload.template, &wanted.template, &none);
            let (writer, target) = (rivals::writer(workload), &view.scope.target);
            let text = rivals::text(target, workload, &fields);
            due.push(Due {
                index: view.index,
                action,
                fight,
                who: rivals::managers(ctx, view, workload, &fields),
                text,
                gave: format!("{writer} gave {target} ({fields})"),
            });
        }
    }
    let mut outcome = Reasserted {
        wrote: false,
        contended: None,
        lost: None,
        waits: false,
    };
    for due in due {
        let Due {
            index,
            action,
            fight,
            ..
        } = due;
        let again = refused_now(ctx, index).map(|refused| refused.revision.clone());
        let again = again.filter(|_| fight);
        let wanted = ctx.scope.get(index);
        let wanted = wanted.and_then(|scope| stable.data.of(&scope.target));
        let can = !fight || can_write(ctx, index, REASSERTIONS);
        if let Some(wanted) = wanted.filter(|_| again.is_some()) {
            let turn = turn(ctx, index, wanted, can);
            if turn == Turn::Enters {
                refuse_again(ctx, plan, index, stable);
            }
            if turn != Turn::Due {
                outcome.waits = true;
                continue;
            }
        }
        let bring = match before(ctx, index, &action, stable) {
            Ok(writes) => writes,
            Err(obstacle) => {
                outcome.lost.get_or_insert(obstacle);
                continue;
            }
        };
        let settled = contents::is_settled(ctx, &action);
        let contents = contents::names(&bring);
        let who = if settled {
            contents::refilled(&contents, &stable.name)
        } else {
            due.who
        };
        let text = match &again {
            Some(again) if settled => format!(
                "{contents} was given what was refused as {again}; the contents of {} are written back",
                stable.name
            ),
            Some(again) => {
                let with = if contents.is_empty() {
                    contents
                } else {
                    format!(" with {contents}")
                };
                format!(
                    "{} what was refused as {again}; what is stable is put back{with}",
                    due.gave
                )
            }
            None => due.text,
        };
        if !can {
            outcome.contended.get_or_insert(who);
            ctx.wake_in(CONTENTION_WINDOW);
            continue;
        }
        outcome.wrote |= fight;
        if fight {
            may_write(ctx, index, REASSERTIONS);
            ctx.tell(true, Reason::Reasserted, &text);
        }
        for write in bring {
            ctx.act_once(write);
        }
        if !settled {
            ctx.act(action);
        }
    }
    expire(ctx);
    outcome
}

/// What has to be stored and written before a write to a component: contents
/// that it counts on, and those that go back before its template does.
fn before(
    ctx: &mut Context<'_>,
    index: usize,
    action: &Action,
    stable: &Revision,
) -> Result<Vec<Action>, Obstacle> {
    let scope = ctx.scope.get(index);
    let frozen = scope.and_then(|scope| stable.data.of(&scope.target));
    let Some(frozen) = frozen.filter(|_| !matches!(action, Action::Own { .. })) else {
        return Ok(Vec::new());
    };
    snapshots::store(ctx, &frozen.reads())?;
    contents::force(ctx, frozen)
}

/// The write that a component needs to be as it should between releases, and
/// whether it goes over somebody else's.
fn correction(
    ctx: &Context<'_>,
    view: View<'_>,
    workload: &Workload,
    stable: &Frozen,
    wanted: &Frozen,
    change: Change,
    refused: bool,
) -> Option<(Action, bool)> {
    if view.scope.template.is_none() {
        let now = contents::now(ctx, view.scope, workload);
        if ctx.live_refused(&view.scope.target, &now) {
            let write = write(view, workload, stable.template.clone());
            return Some((Action::Replace { write }, true));
        }
        if change == Change::None && !canon::equal(&workload.template, &wanted.template) {
            // Somebody put another stamp on it than that of its contents.
            let write = write(view, workload, wanted.template.clone());
            return Some((Action::Replace { write }, true));
        }
        let fields = &wanted.fields;
        let wrong = strays(workload, fields) || !fields.is_subset(&workload.owned);
        return (change == Change::None && workload.marked && wrong)
            .then(|| (own(view, workload, fields.clone()), false));
    }
    let surroundings = refused || change == Change::Surroundings;
    if surroundings && ctx.live_refused(&view.scope.target, &workload.template) {
        let write = write(view, workload, stable.template.clone());
        return Some((Action::Replace { write }, true));
    }
    if refused {
        let fields = stable.fields.union(&workload.owned);
        if fields.is_empty() {
            // Nothing of it was the plan's, so nothing of it is held.
            return None;
        }
        if !is_at(workload, stable, &fields) {
            let template = put_back(&workload.template, &stable.template, &fields);
            let write = write(view, workload, template);
            return Some((Action::Replace { write }, true));
        }
        return strays(workload, &stable.fields)
            .then(|| (own(view, workload, stable.fields.clone()), false));
    }
    let Some(DryRun::Merged {
        body,
        owned,
        template,
        ..
    }) = &workload.dry_run
    else {
        return None;
    };
    let reverted = !canon::equal(template, &workload.template);
    if change == Change::None && (reverted || !owned.is_subset(&workload.owned)) {
        let write = write(view, workload, body.clone());
        return Some((Action::Apply { write }, reverted));
    }
    (change == Change::None && strays(workload, owned))
        .then(|| (own(view, workload, owned.clone()), false))
}
