//! `belay explain`: why a plan is where it is and what would move it, and what
//! a Deployment has to do with plans.
//!
//! Puts together what the operator recorded, in its own words, with the numbers
//! that it goes by. Judges nothing, and writes nothing.

mod deployment;
mod model;
mod plan;
mod render;

#[cfg(test)]
mod tests;

use clap::Args;
use kube::Client;

pub use self::model::{
    Content, DeploymentExplanation, Explanation, Limit, Measure, OwnedField, PlanExplanation,
    Refused, Waiting,
};
use super::{
    CliError, Document, Exit, Invocation, Kind, OnePlan, Output, Target, holder, plan_name, print,
    status::{Caller, look, render::Layout},
};
use crate::{api::StoredPlan, cluster::deployments};

/// What is to be explained, and in which form.
#[derive(Args, Clone, Debug, Default)]
pub struct ExplainArgs {
    #[command(flatten)]
    plan: OnePlan,

    #[command(flatten)]
    output: Output,
}

/// Explains a plan or a Deployment.
///
/// # Errors
/// It cannot be read, or the answer cannot be written.
pub async fn run(args: &ExplainArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?.with_unreadable();
    let caller = Caller::of(call);
    let target = args.plan.target().await?;
    let namespace = session.namespace_of(&target)?.to_owned();
    let now = call.clock.now();
    let (deployment, plan) = match target.kind {
        Kind::Plan => (None, Some(session.plan_of(&target).await?)),
        Kind::Deployment => {
            let plans = session.list(Some(&namespace), None).await?;
            let about = about(&session.client, &namespace, &target, &plans, &caller).await?;
            (Some(about), holder(&target.name, &plans).cloned())
        }
    };
    let plan = match plan {
        Some(stored) => {
            let shown = look(&session.client, &stored, now, &caller).await?;
            Some(plan::explain(&stored, shown))
        }
        None => None,
    };
    let explanation = Explanation { deployment, plan };
    if let Some(format) = args.output.output {
        let names = match (&explanation.deployment, &explanation.plan) {
            (Some(deployment), _) => vec![format!("deployment.apps/{}", deployment.name)],
            (None, Some(plan)) => vec![plan_name(&plan.status.name)],
            (None, None) => Vec::new(),
        };
        let document = Document::new("Explanation", explanation);
        print(&mut call.streams, format, &document, &names)?;
        return Ok(Exit::Done);
    }
    let layout = Layout {
        width: call.streams.width.unwrap_or(Layout::UNBOUNDED.width),
        height: None,
    };
    for line in render::lines(&explanation, now, layout) {
        writeln!(call.streams.out, "{}", line.paint())?;
    }
    Ok(Exit::Done)
}

/// What a Deployment has to do with plans; not found only if no plan names it
/// either.
async fn about(
    client: &Client,
    namespace: &str,
    target: &Target,
    plans: &[StoredPlan],
    caller: &Caller,
) -> Result<DeploymentExplanation, CliError> {
    let live = deployments(client, namespace).get_opt(&target.name).await;
    let live = live.map_err(|error| CliError::api(format!("read {target}"), error))?;
    let about = deployment::explain(namespace, &target.name, live.as_ref(), plans)?;
    if !about.exists && about.held_by.is_none() && about.also_named_by.is_empty() {
        return Err(CliError::NotFound {
            what: target.to_string(),
            namespace: namespace.to_owned(),
            hint: Some(format!(
                "to see the Deployments that there are: {}",
                caller.kubectl("get deployments", namespace)
            )),
        });
    }
    Ok(about)
}
