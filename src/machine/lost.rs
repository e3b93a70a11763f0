//! The record of the stable revision, where somebody took it away while nothing is
//! released: it is written again where what is live and the plan say all of it, and
//! told where they do not.
//!
//! Nothing is written that does not have the name, and with it the digest, of the
//! record that is gone.

use std::time::Duration;

use super::{Action, contents, context::Context, snapshots};
use crate::{
    api::Reason,
    fields::{FieldSet, Found, canon},
    plan::{Plan, last_word},
    revision::{Frozen, Revision, RevisionData},
};

/// Pace at which a record that is gone is looked for again.
const LOOK: Duration = Duration::from_secs(60);

/// What is said of the record behind the verdict on a plan at rest.
pub(super) fn caveat(ctx: &mut Context<'_>, plan: &Plan) -> String {
    if !ctx.input.world.record_lost {
        return String::new();
    }
    let name = ctx.status.stable_revision.clone().unwrap_or_default();
    if let Some(revision) = again(ctx, plan, &name) {
        let made = last_word(&ctx.status.history);
        let number = made.map_or(0, |record| record.number);
        ctx.act_once(Action::CreateRevision {
            revision: Box::new(revision),
            number,
        });
        return String::new();
    }
    ctx.wake_in(LOOK);
    let text = format!(
        "controllerrevision {name} is gone, so nothing could go back to it. Restore it, labels and annotations included, or delete the plan and apply it again with what is live, which is stable then"
    );
    snapshots::tell_new(ctx, Reason::RevisionLost, &text);
    format!("; {text}")
}

/// The record as it was. What stood in the fields of a template before the plan
/// took them is told by nothing else, so of a plan that has any it is lost.
fn again(ctx: &Context<'_>, plan: &Plan, name: &str) -> Option<Revision> {
    let components = ctx.components().map(|view| {
        let live = view.observed.workload.as_ref()?;
        let tracked = &view.scope.tracked;
        view.scope.template.is_none().then(|| Frozen {
            name: view.scope.name.clone(),
            workload: view.scope.target.to_ref(),
            partial_digest: None,
            template: live.template.clone(),
            fields: contents::fields(&live.template, tracked),
            carried: FieldSet::default(),
            found: Found::default(),
            emptied: None,
            config_maps: tracked.clone(),
            named: Vec::new(),
        })
    });
    let data = RevisionData {
        canon: canon::CANON_VERSION,
        spec: plan.content().to_owned(),
        components: components.collect::<Option<Vec<_>>>()?,
    };
    let facts = &ctx.input.world.plan;
    let revision = data.named(&facts.name, &facts.uid);
    (revision.name == name).then_some(revision)
}
