//! `belay wait`: waits until a release has ended, and tells how.
//!
//! Watches the plans, and never takes an older result for that of the release
//! asked for. What a plan's word means is decided in [`verdict`].

mod live;
mod orders;
mod verdict;

#[cfg(test)]
mod tests;

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _, stream::select_all};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watch_object},
    },
};
use serde::Serialize;

use self::{
    live::{Live, Word},
    orders::Orders,
    verdict::{Outcome, State, generation, judge, of_deployments},
};
use super::status::{
    Caller,
    pods::age,
    text::span,
    verdict::{AWAY, last_edit},
};
use super::{
    BAD, CliError, Document, Exit, GOOD, Invocation, Kind, Session, SomePlans, Streams, Target,
    WAITS, clean, styled,
};
use crate::api::{GatewayDuration, StoredPlan};

/// Longest time that a stop is doubted because something else is live: the
/// operator has seen that by then.
const DOUBT: Duration = Duration::from_secs(10);
/// Longest time that a look takes without a wait.
const LOOK: Duration = Duration::from_secs(30);

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum For {
    /// The content asked for is released and healthy.
    Released,
    /// Everything is back on the stable revision.
    Rolledback,
    /// The earlier revision that was asked for is live.
    Undone,
    /// Nothing goes on by itself any more, however it ended.
    Settled,
}

/// Form of the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A JSON document on one line.
    Json,
}

/// Arguments of `wait`.
#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    plans: SomePlans,

    /// What to wait for.
    #[arg(
        long = "for",
        value_name = "WHAT",
        value_enum,
        default_value = "released"
    )]
    goal: For,

    /// Longest wait; 0 tells how it is now.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = timeout)]
    timeout: Duration,

    /// Release generation to wait for [default: that of the file, or else that
    /// of the plan now].
    #[arg(long, value_name = "NUMBER")]
    generation: Option<i64>,

    /// Print the result as JSON.
    #[arg(short, long, value_enum, value_name = "FORM", help_heading = super::COMMON)]
    output: Option<Form>,
}

fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    text.parse::<GatewayDuration>()
        .map(GatewayDuration::get)
        .map_err(|error| error.to_string())
}

/// A plan that is waited for.
struct Waited {
    namespace: String,
    name: String,
    uid: Option<String>,
    asked: Option<i64>,
    /// Whether a release generation of the plan was named.
    bound: bool,
    /// What has to be what the plan's word is about.
    live: Live,
    /// Since when it is not certain that it is.
    unsure: Option<Instant>,
    /// The orders on the plan.
    orders: Orders,
    state: State,
    over: bool,
    /// When the plan was edited last.
    edited: Option<Time>,
    /// The last line about its progress.
    told: String,
}

/// What is printed at the end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitResult {
    namespace: String,
    name: String,
    result: Option<Outcome>,
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stable_revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release_generation: Option<i64>,
    exit: u8,
}

/// Waits, and tells how it ended.
///
/// # Errors
/// A plan that is not there, or that cannot be watched.
pub(super) async fn run(args: &WaitArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let named = !args.plans.targets.is_empty() || !args.plans.files.is_empty();
    if !named && !args.plans.all_namespaces && args.plans.selector.is_none() {
        return Err(CliError::usage(
            "say which plan to wait for",
            "belay wait NAME",
        ));
    }
    let session = call.connect().await?;
    let targets = args.plans.targets().await?;
    let now = tokio::time::Instant::now();
    let limit = if args.timeout.is_zero() {
        LOOK
    } else {
        args.timeout
    };
    let begun = begin(args, &targets, &session, &mut call.streams);
    let mut waited = match tokio::time::timeout_at(now + limit, begun).await {
        Ok(waited) => waited?,
        Err(_) => {
            writeln!(call.streams.err, "the API server did not answer in time")?;
            unanswered(args, &targets, &session)?
        }
    };
    if waited.is_empty() && targets.is_empty() {
        session.found_none(&args.plans, &mut call.streams).await?;
        return Err(CliError::usage(
            "there is no plan to wait for",
            "belay wait NAME",
        ));
    }
    if !waited.iter().all(|w| w.over) && !args.timeout.is_zero() {
        let going = follow(&session, &mut waited, &mut call.streams);
        if let Ok(outcome) = tokio::time::timeout_at(now + limit, going).await {
            outcome?;
        }
    }
    if waited.is_empty() {
        return Ok(Exit::Timeout);
    }
    let mut worst = Exit::Done;
    let (now, caller) = (call.clock.now(), Caller::of(call));
    for mut waited in waited {
        let exit = exit(&waited, args.goal);
        if exit == Exit::Timeout {
            waited.late(args.timeout, now, &caller);
        }
        worst = worse(worst, exit);
        print(&mut call.streams, args, waited, exit)?;
    }
    Ok(worst)
}

/// The plans as they are now.
async fn begin(
    args: &WaitArgs,
    targets: &[Target],
    session: &Session,
    streams: &mut Streams<'_>,
) -> Result<Vec<Waited>, CliError> {
    let some = SomePlans {
        targets: targets.to_vec(),
        files: Vec::new(),
        ..args.plans.clone()
    };
    let mut waited = Vec::new();
    for plan in session.plans(&some).await? {
        let told = targets
            .iter()
            .find(|target| is(target, &plan, &session.namespace));
        let asked = args
            .generation
            .or_else(|| told.and_then(|target| target.generation))
            .or_else(|| generation(&plan));
        let live = Live::of(&plan, targets, &session.namespace);
        let mut one = Waited {
            namespace: plan.metadata.namespace.clone().unwrap_or_default(),
            name: plan.metadata.name.clone().unwrap_or_default(),
            uid: plan.metadata.uid.clone(),
            asked,
            bound: args.generation.is_some(),
            live,
            unsure: None,
            orders: Orders::default(),
            state: judge(&plan, asked),
            over: false,
            edited: None,
            told: String::new(),
        };
        one.see(&plan, session, streams).await?;
        waited.push(one);
    }
    Ok(waited)
}

/// The plans that were named, when nothing could be read of them.
fn unanswered(
    args: &WaitArgs,
    targets: &[Target],
    session: &Session,
) -> Result<Vec<Waited>, CliError> {
    let plans = targets.iter().filter(|target| target.kind == Kind::Plan);
    let waited = plans.map(|target| {
        let unknown = StoredPlan::default();
        Ok(Waited {
            namespace: session.namespace_of(target)?.to_owned(),
            name: target.name.clone(),
            uid: None,
            asked: args.generation.or(target.generation),
            bound: true,
            live: Live::of(&unknown, &[], ""),
            unsure: None,
            orders: Orders::default(),
            state: judge(&unknown, None),
            over: false,
            edited: None,
            told: String::new(),
        })
    });
    waited.collect()
}

/// Whether a target is this plan; `namespace` is that of targets that name
/// none.
fn is(target: &Target, plan: &StoredPlan, namespace: &str) -> bool {
    let own = target.namespace.as_deref().unwrap_or(namespace);
    target.kind == Kind::Plan
        && plan.metadata.name.as_ref() == Some(&target.name)
        && plan.metadata.namespace.as_deref() == Some(own)
}

impl Waited {
    /// Takes in what a plan says now.
    async fn see(
        &mut self,
        plan: &StoredPlan,
        session: &Session,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        let theirs = self.live.deployments().filter(|_| !self.bound);
        if theirs.is_some() {
            // Newer content of the plan has what was applied to a Deployment in
            // it, whoever changed what else: its release is the one to wait for.
            self.asked = generation(plan);
        }
        let mut state = judge(plan, self.asked);
        if let Some(templated) = theirs {
            state = of_deployments(state, plan, templated);
        }
        self.edited = last_edit(&plan.metadata);
        let dropped = self.orders.dropped(plan);
        let superseded = state.outcome == Some(Outcome::Superseded);
        if let Some(decision) = dropped.filter(|_| !superseded) {
            state.outcome = Some(Outcome::Ignored);
            state.reason = decision.reason.as_str().to_owned();
            state.message.clone_from(&decision.message);
            (self.state, self.over) = (state, true);
            return Ok(());
        }
        (self.state, self.over) = (state.clone(), false);
        if state.outcome.is_some() {
            self.over = match self.live.word(plan, &state, session).await? {
                Word::Current => true,
                Word::Older => false,
                Word::Unsure => self.unsure.get_or_insert_with(Instant::now).elapsed() >= DOUBT,
            };
        }
        if state.outcome.is_none() || self.over {
            self.unsure = None;
        }
        let step = state.step.as_deref().unwrap_or_default();
        let what = match state.reason.as_str() {
            verdict::UNSEEN => &state.message,
            reason => reason,
        };
        let line = format!("{}: {what} {step}", self.name);
        if !self.over && self.told != line {
            writeln!(streams.err, "{}", clean(line.trim_end()))?;
            self.told = line;
        }
        Ok(())
    }

    /// The same while it is followed, where errors of reading pass.
    async fn look(
        &mut self,
        plan: &StoredPlan,
        session: &Session,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        match self.see(plan, session, streams).await {
            Err(error) if passes(&error) => Ok(()),
            seen => seen,
        }
    }

    /// Says at a timeout if it is the operator that did not come.
    fn late(&mut self, timeout: Duration, now: Timestamp, caller: &Caller) {
        let seen = self.state.outcome.is_none() && self.state.reason != verdict::UNSEEN;
        if seen || self.uid.is_none() {
            return;
        }
        // A verdict that is about something older tells nothing of when.
        let edited = self
            .edited
            .as_ref()
            .filter(|_| self.state.outcome.is_none());
        let waited = edited.map_or(timeout, |at| age(at, now));
        self.state.reason = verdict::UNSEEN.to_owned();
        verdict::NOT_YET.clone_into(&mut self.state.message);
        if waited <= AWAY {
            return;
        }
        let made = edited.map_or_else(String::new, |_| format!(", made {} ago", span(waited)));
        let check = caller.command("check", "", "", &self.namespace);
        self.state.message =
            format!("nobody has looked at this change{made}: is the operator running? {check}");
    }

    fn gone(&mut self) {
        self.over = true;
        self.state = State {
            outcome: Some(Outcome::Deleted),
            reason: "Deleted".into(),
            message: "the plan was deleted".into(),
            step: None,
            revision: self.state.revision.take(),
            stable: self.state.stable.take(),
        };
    }
}

type Changes = Pin<Box<dyn Stream<Item = (usize, watcher::Result<Option<StoredPlan>>)>>>;

/// Follows the plans until all have come to an end.
async fn follow(
    session: &Session,
    waited: &mut [Waited],
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let watches = waited.iter().enumerate().map(|(index, one)| -> Changes {
        let api = Api::<StoredPlan>::namespaced(session.client.clone(), &one.namespace);
        let changes = watch_object(api, &one.name).default_backoff();
        Box::pin(changes.map(move |change| (index, change)))
    });
    let mut changes = select_all(watches);
    let mut look = tokio::time::interval(live::AGAIN);
    let mut last: Vec<Option<StoredPlan>> = vec![None; waited.len()];
    while waited.iter().any(|one| !one.over) {
        let (index, change) = tokio::select! {
            change = changes.next() => match change {
                Some(change) => change,
                None => return Ok(()),
            },
            // A Deployment's change shows in the plan once the operator saw it.
            _ = look.tick() => {
                for (one, plan) in waited.iter_mut().zip(&last) {
                    if let (false, true, Some(plan)) = (one.over, one.state.outcome.is_some(), plan) {
                        one.look(plan, session, streams).await?;
                    }
                }
                continue;
            }
        };
        let Some(one) = waited.get_mut(index).filter(|one| !one.over) else {
            continue;
        };
        match change {
            // A plan of the same name is another one.
            Ok(Some(plan)) if plan.metadata.uid == one.uid => {
                one.look(&plan, session, streams).await?;
                last[index] = Some(plan);
            }
            Ok(_) => one.gone(),
            Err(error) => passing(error, &one.name)?,
        }
    }
    Ok(())
}

/// Whether an error of reading may be over at the next look.
fn passes(error: &CliError) -> bool {
    match error {
        CliError::Api { source, .. } => {
            !matches!(&**source, kube::Error::Api(status) if matches!(status.code, 401 | 403))
        }
        _ => false,
    }
}

/// Goes on after errors that pass, such as a restart of the API server.
fn passing(error: watcher::Error, plan: &str) -> Result<(), CliError> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) if matches!(&error, kube::Error::Api(status) if status.code == 403 || status.code == 401) => {
            Err(CliError::api(format!("watch releaseplan/{plan}"), error))
        }
        _ => Ok(()),
    }
}

/// The exit code of one plan.
fn exit(waited: &Waited, goal: For) -> Exit {
    let Some(outcome) = waited.state.outcome.filter(|_| waited.over) else {
        return Exit::Timeout;
    };
    match (goal, outcome) {
        (_, Outcome::Deleted) => Exit::Failed,
        (_, Outcome::Ignored) => Exit::Error,
        (For::Settled, _)
        | (For::Released, Outcome::Released)
        | (For::Rolledback, Outcome::RolledBack)
        | (For::Undone, Outcome::Undone) => Exit::Done,
        (_, Outcome::Held) => Exit::Person,
        _ => Exit::Failed,
    }
}

/// The exit code of several plans: a failure before a hold, a hold before a
/// timeout.
fn worse(a: Exit, b: Exit) -> Exit {
    let rank = |exit| match exit {
        Exit::Done => 0,
        Exit::Timeout => 1,
        Exit::Person => 2,
        Exit::Failed => 3,
        Exit::Error | Exit::Interrupted => 4,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn print(
    streams: &mut Streams<'_>,
    args: &WaitArgs,
    waited: Waited,
    exit: Exit,
) -> Result<(), CliError> {
    let result = WaitResult {
        namespace: waited.namespace,
        name: waited.name,
        result: waited.state.outcome.filter(|_| waited.over),
        reason: waited.state.reason,
        message: waited.state.message,
        revision: waited.state.revision,
        stable_revision: waited.state.stable,
        release_generation: waited.asked,
        exit: exit.code(),
    };
    if args.output == Some(Form::Json) {
        let document = Document::new("WaitResult", result);
        let text = serde_json::to_string(&document).map_err(|e| CliError::Form(e.to_string()))?;
        writeln!(streams.out, "{text}")?;
        return Ok(());
    }
    let style = match exit {
        Exit::Done => GOOD,
        Exit::Person | Exit::Timeout => WAITS,
        Exit::Failed | Exit::Error | Exit::Interrupted => BAD,
    };
    if !result.message.is_empty() {
        let name = styled(style, &format!("{}:", result.name));
        writeln!(streams.err, "{name} {}", clean(&result.message))?;
    }
    let word = match (result.result, exit) {
        (Some(outcome), _) => format!("{outcome:?}"),
        (None, _) => "Timeout".to_owned(),
    };
    let absent = || "-".to_owned();
    writeln!(
        streams.out,
        "result={word} reason={} plan={}/{} generation={} revision={} stable={} exit={}",
        clean(&result.reason),
        result.namespace,
        result.name,
        result
            .release_generation
            .map_or_else(absent, |number| number.to_string()),
        result.revision.unwrap_or_else(absent),
        result.stable_revision.unwrap_or_else(absent),
        result.exit,
    )?;
    Ok(())
}
