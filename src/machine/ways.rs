//! What a person can do, as commands to paste.
//!
//! Whoever reads a message at night has no plan at hand and no memory of the
//! annotations: each way out is a whole command, with the namespace. Where text
//! follows a command, a space and a semicolon stand between them, which a shell
//! takes as well.

use std::collections::BTreeSet;

use super::{
    Scope,
    context::{Context, current_name, cut_to},
};
use crate::{
    api::{ABORT, ReleasePlanStatus, ReleaseRecord, ReleaseResult, UNDO},
    fields::{FieldSet, diff, project},
    plan::{last_word, undoable},
};

/// Longest part that an explanation may take of a message, in bytes, so that
/// the ways out behind it are never cut off.
const EXPLANATION: usize = 400;
/// Fields that are named of those that somebody else changed.
const FIELDS: usize = 3;

/// A cause or an answer of the API server, short enough to stand before a way
/// out.
pub(super) fn brief(explanation: &str) -> String {
    cut_to(explanation, EXPLANATION)
}

/// Places that are named of those where content comes from.
const PLACES: usize = 4;

/// To change the content where it comes from: in the plan, in ConfigMaps that it
/// tracks, in workloads that it follows.
pub(super) fn change(ctx: &Context<'_>) -> String {
    change_of(ctx, None)
}

/// The same for what a component brings, if it is still in the plan: other content of
/// another one would not correct what failed.
pub(super) fn change_of(ctx: &Context<'_>, component: Option<&str>) -> String {
    let all = || ctx.scope.iter().filter(|scope| !scope.leaving);
    let failed = component.filter(|failed| all().any(|scope| scope.name == **failed));
    let is_it = |scope: &&Scope| failed.is_none_or(|failed| scope.name == failed);
    let present = || all().filter(is_it);
    let templated = present().any(|scope| scope.template.is_some());
    let plan = templated.then(|| "the plan".to_owned());
    let followed = present().filter(|scope| scope.template.is_none());
    let followed = followed.map(|scope| scope.target.to_string());
    let tracked: BTreeSet<&String> = present().flat_map(|scope| &scope.config_maps).collect();
    let tracked = tracked.into_iter().map(|name| format!("configmap {name}"));
    let places: Vec<String> = plan.into_iter().chain(followed).chain(tracked).collect();
    let more = if places.len() > PLACES { " or …" } else { "" };
    let places = places[..places.len().min(PLACES)].join(" or ");
    format!("Change the content of {places}{more}")
}

/// Gives orders: annotations with the revisions they name.
pub(super) fn order(ctx: &Context<'_>, orders: &[(&str, &str)]) -> String {
    let facts = &ctx.input.world.plan;
    let orders: Vec<String> = orders
        .iter()
        .map(|(annotation, revision)| format!("{annotation}={revision}"))
        .collect();
    format!(
        "kubectl annotate relplan {} -n {} {} --overwrite",
        facts.name,
        facts.namespace,
        orders.join(" ")
    )
}

fn set(ctx: &Context<'_>, field: &str) -> String {
    let facts = &ctx.input.world.plan;
    format!(
        "kubectl patch relplan {} -n {} --type merge -p '{{\"spec\":{{{field}}}}}'",
        facts.name, facts.namespace
    )
}

/// Ends a pause of the plan.
pub(super) fn resume(ctx: &Context<'_>) -> String {
    set(ctx, r#""paused":false"#)
}

/// Lets a plan that is deleted go without waiting.
pub(super) fn let_go(ctx: &Context<'_>) -> String {
    set(ctx, r#""deletionPolicy":"Keep""#)
}

/// Deletes the plan.
pub(super) fn delete(ctx: &Context<'_>) -> String {
    let facts = &ctx.input.world.plan;
    format!(
        "kubectl delete relplan {} -n {}",
        facts.name, facts.namespace
    )
}

/// What leads out of a rollback that does not come to its end.
pub(super) fn out_of_rollback(ctx: &Context<'_>, stable: &str) -> String {
    if ctx.input.world.plan.deleting {
        return format!("To let the plan go without it: {}", let_go(ctx));
    }
    let left = current_name(ctx);
    let older = older(&ctx.status, stable);
    let out = match older.filter(|name| *name != left) {
        _ if left.is_empty() => String::new(),
        Some(older) => format!(
            ". If {stable} itself is at fault, go to an older one: {}",
            order(ctx, &[(UNDO, older), (ABORT, &left)])
        ),
        None => format!(
            ". To end it and keep what is live: {}",
            order(ctx, &[(ABORT, &left)])
        ),
    };
    format!(
        "It ends by itself once they are available, and new content in the plan takes its place at once{out}"
    )
}

/// The revision that was stable before this one, if it can be gone to.
fn older<'a>(status: &'a ReleasePlanStatus, stable: &str) -> Option<&'a str> {
    let history = &status.history;
    let named = |name: &Option<String>| name.as_deref() == Some(stable);
    let released = |record: &&ReleaseRecord| record.result == ReleaseResult::Succeeded;
    let mut brought = history.iter().rev().filter(released);
    let brought = brought.find(|record| named(&record.revision));
    // What was live before the first of them has none, and a record that was
    // respelled since is that of the last one.
    let brought = match brought {
        None if history.iter().any(|record| named(&record.from)) => return None,
        None => last_word(history)?,
        Some(brought) => brought,
    };
    let before = history.iter().rev().filter(released);
    let before = before.skip_while(|record| record.number != brought.number);
    let names = before.flat_map(|record| [record.revision.as_deref(), record.from.as_deref()]);
    let mut names = names.flatten().filter(|name| *name != stable);
    let respelled = brought.revision.as_deref();
    let known = undoable(status);
    names.find(|name| Some(*name) != respelled && known.contains(name))
}

/// Ends a pause of a workload.
pub(super) fn resume_workload(ctx: &Context<'_>, name: &str) -> String {
    let namespace = &ctx.input.world.plan.namespace;
    format!("kubectl rollout resume deployment/{name} -n {namespace}")
}

/// Shows who owns which fields of a workload.
pub(super) fn owners(ctx: &Context<'_>, name: &str) -> String {
    let namespace = &ctx.input.world.plan.namespace;
    format!("kubectl get deployment {name} -n {namespace} -o yaml --show-managed-fields")
}

/// Names the fields in which a live template is not as wanted; where a set is
/// not empty, only fields in it count.
pub(super) fn fields(
    live: &serde_json::Value,
    wanted: &serde_json::Value,
    set: &FieldSet,
) -> String {
    let changes = if set.is_empty() {
        diff(live, wanted)
    } else {
        diff(&project(live, set), &project(wanted, set))
    };
    let mut names: Vec<String> = changes
        .iter()
        .take(FIELDS)
        .map(|change| change.path.brief())
        .collect();
    if changes.len() > FIELDS {
        names.push(format!("{} more", changes.len() - FIELDS));
    }
    cut_to(&names.join(", "), EXPLANATION)
}
