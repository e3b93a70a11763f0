//! `belay status`: where a plan is, the one thing it waits for, and everything
//! below it that is in trouble.
//!
//! Reads and shows; judges nothing. The model is a pure function of what was
//! read and the time, and text, JSON and `--watch` are made from it alone.

pub(super) mod away;
mod below;
mod caller;
mod changes;
mod components;
mod config;
mod failure;
mod feed;
mod fetch;
mod first;
mod head;
pub(super) mod held;
mod kept;
pub(super) mod later;
mod list;
mod model;
mod objects;
pub(super) mod pods;
pub(super) mod render;
mod rivals;
pub(super) mod said;
mod screen;
pub(super) mod text;
mod tree;
pub(super) mod undone;
pub(super) mod verdict;
mod watch;
mod ways;
mod words;

#[cfg(test)]
pub(super) mod fixtures;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

pub use caller::Caller;
pub use model::{
    CauseView, ComponentView, ConfigMapMode, ConfigMapView, ContentsView, CurrentRelease,
    DeploymentCounts, Exit as ContainerExit, Health, LastRelease, PlanStatus, PodTrouble,
    ReplicaSetStatus, Revisions, Verdict, Way,
};
pub(super) use tree::workload;

use self::{
    feed::{Below, Wanted},
    render::Layout,
    text::{Line, Tone},
};
use super::{
    CliError, Document, Exit, Format, Invocation, Output, SomePlans, clean, plan_name, print_all,
};
use crate::api::StoredPlan;

/// A plan with everything below it, read for one look.
///
/// # Errors
/// What is below it cannot be read, for another reason than want of rights.
pub(super) async fn look(
    client: &Client,
    plan: &StoredPlan,
    now: Timestamp,
    caller: &Caller,
) -> Result<PlanStatus, CliError> {
    let mut trees = fetch::trees(client, std::slice::from_ref(plan), now, caller).await?;
    Ok(trees
        .pop()
        .unwrap_or_else(|| tree::summary(plan, now, caller)))
}

/// Which plans, and how they are shown.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusArgs {
    #[command(flatten)]
    plans: SomePlans,

    /// Go on showing what changes until Ctrl-C.
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    output: Output,
}

impl StatusArgs {
    /// Whether it goes on until somebody has enough.
    pub(super) const fn is_watch(&self) -> bool {
        self.watch
    }
}

/// Shows where plans are.
///
/// # Errors
/// They cannot be read, or the answer cannot be written.
pub async fn run(args: &StatusArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?.with_unreadable();
    let caller = Caller::of(call);
    let named = !args.plans.targets.is_empty() || !args.plans.files.is_empty();
    if args.watch && args.output.output == Some(Format::Name) {
        return Err(CliError::usage("--watch has no form of names", "-o json"));
    }
    if args.watch && !named {
        let namespaces = if args.plans.all_namespaces {
            [].into()
        } else {
            [session.namespace.clone()].into()
        };
        let wanted = Wanted {
            namespaces,
            names: [].into(),
            selector: args.plans.selector.clone(),
            below: Below::Workloads,
        };
        let view = watch::View {
            table: true,
            namespaces: args.plans.all_namespaces,
            format: args.output.output,
        };
        return watch::run(session.client, wanted, &view, &caller, call).await;
    }
    let plans = session.plans(&args.plans).await?;
    if plans.is_empty() {
        session.found_none(&args.plans, &mut call.streams).await?;
    }
    if args.watch {
        let key = |plan: &StoredPlan| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            (part(&plan.metadata.namespace), part(&plan.metadata.name))
        };
        let wanted = Wanted {
            namespaces: plans.iter().map(|plan| key(plan).0).collect(),
            names: plans.iter().map(key).collect(),
            selector: None,
            below: Below::All,
        };
        let view = watch::View {
            table: false,
            namespaces: false,
            format: args.output.output,
        };
        return watch::run(session.client, wanted, &view, &caller, call).await;
    }
    once(&session.client, &plans, named, args, &caller, call).await
}

async fn once(
    client: &Client,
    plans: &[StoredPlan],
    named: bool,
    args: &StatusArgs,
    caller: &Caller,
    call: &mut Invocation<'_>,
) -> Result<Exit, CliError> {
    let now = call.clock.now();
    let statuses = if named {
        fetch::trees(client, plans, now, caller).await?
    } else {
        let all = args.plans.all_namespaces;
        let mut lines = fetch::lines(client, plans, all, now, caller).await?;
        list::sort(&mut lines);
        let notes: BTreeSet<&String> = lines.iter().flat_map(|line| &line.unread).collect();
        for note in notes {
            writeln!(call.streams.err, "note: {}", clean(note))?;
        }
        lines
    };
    if let Some(format) = args.output.output {
        let names: Vec<String> = statuses.iter().map(|s| plan_name(&s.name)).collect();
        let documents = statuses.into_iter().map(|s| Document::new("PlanStatus", s));
        let one = args.plans.targets.len() == 1;
        let all = documents.collect();
        print_all(
            &mut call.streams,
            format,
            "PlanStatusList",
            all,
            one,
            &names,
        )?;
        return Ok(Exit::Done);
    }
    let layout = Layout {
        width: call.streams.width.unwrap_or(Layout::UNBOUNDED.width),
        height: None,
    };
    let mut lines: Vec<Line> = Vec::new();
    if named {
        for status in &statuses {
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            lines.extend(render::tree(status, now, layout));
        }
    } else if statuses.is_empty() {
        lines.push(Line::of(Tone::Plain, "There are no plans."));
    } else {
        lines = list::table(&statuses, args.plans.all_namespaces, now, layout);
    }
    for line in &lines {
        writeln!(call.streams.out, "{}", line.paint())?;
    }
    Ok(Exit::Done)
}
