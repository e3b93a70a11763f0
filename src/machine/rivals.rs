//! Other writers: how they are named, and what is said to whoever has to part
//! them from Belay.

use super::{
    Workload, contents,
    context::{Context, View},
    stable::REASSERTIONS,
    ways,
};
use crate::{
    api::{Cause, RETRY},
    plan::{Target, is_gone_from_plan},
};

/// Who changed a workload, by field manager.
pub(super) fn writer(workload: &Workload) -> String {
    if workload.managers.is_empty() {
        "another writer".to_owned()
    } else {
        format!("field manager {}", workload.managers.join(" or "))
    }
}

/// What is told where somebody changed fields that the plan holds.
pub(super) fn text(target: &Target, workload: &Workload, fields: &str) -> String {
    format!(
        "{} changed what the plan holds in {target}: {fields}; it is set again",
        writer(workload)
    )
}

/// Says who fights over which fields of a workload.
pub(super) fn managers(
    ctx: &Context<'_>,
    view: View<'_>,
    workload: &Workload,
    fields: &str,
) -> String {
    let target = &view.scope.target;
    let now = contents::now(ctx, view.scope, workload);
    let held = ctx.refused_as(target, &now);
    if let Some(held) = held.filter(|_| !ctx.input.world.plan.deleting) {
        let why = if held.cause == Cause::Undone {
            "undone"
        } else {
            "refused"
        };
        let name = &held.revision;
        let plan = ctx.input.plan;
        let is_gone = plan.is_ok_and(|p| is_gone_from_plan(&ctx.status, p.content(), name));
        let retry = if is_gone {
            " or give it other content".to_owned()
        } else {
            let retry = ways::order(ctx, &[(RETRY, name)]);
            format!(", give it other content, or try that one again: {retry}")
        };
        return format!(
            "{} keeps giving {target} the template of {name}, which was {why}. Belay sent the stable one back {REASSERTIONS} times in 10m, holds now, and tries again once these are past. Stop what applies it{retry}",
            writer(workload)
        );
    }
    let out = if ctx.input.world.plan.deleting {
        "Stop it"
    } else {
        "Take the field out of one of the two, or give it there the value of the plan; newer content ends this as well"
    };
    format!(
        "{} keeps changing what the plan holds in {target}: {fields}. Belay set it {REASSERTIONS} times in 10m, holds now, and tries again once these are past. {out}. Who owns what: {}",
        writer(workload),
        ways::owners(ctx, &target.name)
    )
}
