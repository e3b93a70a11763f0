//! `belay history`: the releases of a plan, newest first: what was changed, who
//! asked, when, and how it ended.
//!
//! The records are the plan's, and say what changed. Of a release under way, and
//! of records of older versions, that is told from the revisions, as long as they
//! are kept and may be read. Without the right to read them the rest is shown.

mod before;
mod nothing;
mod stopped;

use std::collections::HashMap;

use anstyle::Style;
use clap::Args;
use k8s_openapi::{
    api::apps::v1::ControllerRevision, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::{Api, api::ListParams};
use serde::Serialize;

use self::{before::Attempt, nothing::Untold};
use super::{
    BAD, Cell, CliError, Exit, GOOD, Invocation, Output, PerPlan, Session, SomePlans, Streams,
    Table, WAITS, age, clean, list_all, scopes, status::Caller, tell,
};
use crate::{
    api::{
        Failure, PLAN_UID, ReleaseKind, ReleasePlanStatus, ReleaseRecord, ReleaseResult, StoredPlan,
    },
    machine::changes_of,
    plan::current,
    revision::{Revision, RevisionData},
};

/// Changes of one component that a line of the table names.
const NAMED: usize = 2;

/// Arguments of `history`.
#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    plans: SomePlans,
    #[command(flatten)]
    output: Output,
}

/// The releases of a plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct History {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stable_revision: Option<String>,
    /// Newest first.
    releases: Vec<Release>,
    /// What was live before the first release that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<String>,
    /// Why none is known, where that does not mean that there was none.
    #[serde(flatten)]
    untold: Option<Untold>,
}

/// A release.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Release {
    number: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    kind: ReleaseKind,
    /// The release of the same content that this one tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<i64>,
    /// By component; absent if that cannot be told any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Vec<Changed>>,
    /// Changes that the record does not name.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<String>,
    started_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Time>,
    /// Absent while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ReleaseResult>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unproven: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// What a release changed in a component.
#[derive(Debug, Serialize)]
struct Changed {
    component: String,
    fields: Vec<String>,
}

/// Tells the releases.
///
/// # Errors
/// A plan that is not there or cannot be read.
pub(super) async fn run(args: &HistoryArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?;
    let plans = session.plans(&args.plans).await?;
    if plans.is_empty() {
        session.found_none(&args.plans, &mut call.streams).await?;
    }
    let untold = plans.iter().filter(|plan| needs_revisions(plan));
    let untold: Vec<&StoredPlan> = untold.collect();
    let mut revisions = HashMap::new();
    for scope in scopes(untold.iter().copied(), args.plans.all_namespaces) {
        revisions.extend(read_revisions(&session, scope, &untold).await);
    }
    let caller = Caller::of(call);
    let told = |plan| History {
        untold: nothing::untold(plan, &caller),
        ..history(plan, &revisions)
    };
    let histories = plans.iter().map(told).collect();
    tell(histories, &args.plans, args.output, call)
}

impl PerPlan for History {
    const KINDS: (&'static str, &'static str) = ("History", "HistoryList");

    fn plan(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn write(&self, streams: &mut Streams<'_>, now: Timestamp) -> Result<(), CliError> {
        write(streams, self, now)
    }
}

/// Whether the status alone does not tell what was changed.
fn needs_revisions(plan: &StoredPlan) -> bool {
    plan.status.as_ref().is_some_and(|status| {
        let under_way = status.release.is_some();
        under_way
            || status
                .history
                .iter()
                .any(|record| record.changes.is_empty())
    })
}

/// The kept revisions that can be read and are whole, by the plan's uid and
/// their name. Those of one plan are found by its uid.
async fn read_revisions(
    session: &Session,
    scope: Option<&str>,
    plans: &[&StoredPlan],
) -> HashMap<(String, String), RevisionData> {
    let api: Api<ControllerRevision> = session.api(scope);
    let selector = match plans {
        [StoredPlan { metadata, .. }] => {
            format!("{PLAN_UID}={}", metadata.uid.as_deref().unwrap_or_default())
        }
        _ => PLAN_UID.to_owned(),
    };
    let params = ListParams::default().labels(&selector);
    // What changed is comfort: the rest is told without it.
    let objects = list_all(&api, params).await.unwrap_or_default();
    let read = |object: &ControllerRevision| {
        let uid = object.metadata.labels.as_ref()?.get(PLAN_UID)?.clone();
        let revision = Revision::from_object(object, &uid).ok()?;
        Some(((uid, revision.name), revision.data))
    };
    objects.iter().filter_map(read).collect()
}

fn history(plan: &StoredPlan, revisions: &HashMap<(String, String), RevisionData>) -> History {
    let empty = ReleasePlanStatus::default();
    let status = plan.status.as_ref().unwrap_or(&empty);
    let uid = plan.metadata.uid.clone().unwrap_or_default();
    let revision = |name: Option<&String>| revisions.get(&(uid.clone(), name?.clone()));
    let changed = |from: Option<&String>, to: Option<&String>| {
        let changes = changes_of(revision(from)?, revision(to)?);
        recorded(&changes).or_else(|| Some((Vec::new(), None)))
    };
    let split = |told: Option<(Vec<Changed>, Option<usize>)>| match told {
        Some((all, more)) => (Some(all), more),
        None => (None, None),
    };
    let told = |record: &ReleaseRecord| {
        let told = recorded(&record.changes);
        // Written before records told it.
        split(told.or_else(|| changed(record.from.as_ref(), record.revision.as_ref())))
    };
    let ended = status
        .history
        .iter()
        .rev()
        .map(|record| (record, told(record)));
    let ended = ended.map(|(record, (changed, more))| Release {
        retry_of: before::retried(status, &record.into()),
        number: record.number,
        revision: record.revision.clone(),
        from: record.from.clone(),
        kind: record.kind,
        changed,
        more,
        requested_by: record.requested_by.clone(),
        started_at: record.started_at.clone(),
        ended_at: Some(record.ended_at.clone()),
        result: Some(record.result),
        unproven: record.unproven,
        message: stopped::message(status, record),
    });
    // A release that a person left in the middle is in the history already.
    let last = status.history.last().map(|record| record.number);
    let going = status.release.iter();
    let going = going.filter(|release| Some(release.number) != last);
    let from = &status.stable_revision;
    // What took the place of the target may have no revision.
    let to = current(status).map(str::to_owned);
    let going = going.map(|release| {
        let (changed, more) = split(changed(from.as_ref(), to.as_ref()));
        Release {
            retry_of: before::retried(
                status,
                &Attempt {
                    number: release.number,
                    kind: release.kind,
                    revision: to.as_deref(),
                    ended_at: None,
                    message: None,
                },
            ),
            number: release.number,
            revision: to.clone(),
            from: from.clone(),
            kind: release.kind,
            changed,
            more,
            requested_by: release.requested_by.clone(),
            started_at: Time(release.started_at.0),
            ended_at: None,
            result: None,
            unproven: false,
            message: release.failure.as_ref().map(Failure::told),
        }
    });
    History {
        namespace: plan.metadata.namespace.clone().unwrap_or_default(),
        name: plan.metadata.name.clone().unwrap_or_default(),
        stable_revision: status.stable_revision.clone(),
        releases: going.chain(ended).collect(),
        baseline: before::baseline(&status.history).cloned(),
        untold: None,
    }
}

/// What a record says was changed, by component, and how many changes it leaves
/// out; none if it says nothing.
fn recorded(changes: &[String]) -> Option<(Vec<Changed>, Option<usize>)> {
    let mut all: Vec<Changed> = Vec::new();
    let mut more = None;
    for change in changes {
        let Some((component, field)) = change.split_once(": ") else {
            more = change
                .split(' ')
                .next()
                .and_then(|count| count.parse().ok());
            continue;
        };
        match all.iter_mut().find(|known| known.component == component) {
            Some(known) => known.fields.push(field.to_owned()),
            None => all.push(Changed {
                component: component.to_owned(),
                fields: vec![field.to_owned()],
            }),
        }
    }
    (!changes.is_empty()).then_some((all, more))
}

fn write(streams: &mut Streams<'_>, history: &History, now: Timestamp) -> Result<(), CliError> {
    if history.releases.is_empty() {
        return nothing::write(streams, &history.name, history.untold.as_ref());
    }
    let mut table = Table::new(&[
        "RELEASE", "REVISION", "KIND", "RESULT", "AGE", "TOOK", "WHO", "CHANGED",
    ]);
    let none = || "-".to_owned();
    for release in &history.releases {
        let (style, result) = result(release);
        let ended = release.ended_at.as_ref().map_or(now, |ended| ended.0);
        let is_stable = release.revision.is_some() && release.revision == history.stable_revision;
        let mark = if is_stable { "*" } else { "" };
        table.row([
            release.number.to_string().into(),
            format!("{}{mark}", release.revision.clone().unwrap_or_else(none)).into(),
            kind(release).into(),
            Cell::new(style, result),
            age(release.started_at.0, now).into(),
            age(release.started_at.0, ended).into(),
            release.requested_by.clone().unwrap_or_else(none).into(),
            told(release).into(),
        ]);
    }
    if let Some(baseline) = &history.baseline {
        let is_stable = history.stable_revision.as_ref() == Some(baseline);
        let mark = if is_stable { "*" } else { "" };
        table.row([
            "-".into(),
            format!("{baseline}{mark}").into(),
            "Baseline".into(),
            Cell::new(Style::new(), "-"),
            "-".into(),
            "-".into(),
            "-".into(),
            "live before the releases above".into(),
        ]);
    }
    table.print(streams)?;
    if let Some(stable) = &history.stable_revision {
        writeln!(
            streams.out,
            "* {} is stable: a rollback returns to it",
            clean(stable)
        )?;
    }
    for release in &history.releases {
        if let (Some(message), true) = (
            &release.message,
            release.result != Some(ReleaseResult::Succeeded),
        ) {
            writeln!(
                streams.out,
                "release {}: {}",
                release.number,
                clean(message)
            )?;
        }
    }
    Ok(())
}

fn result(release: &Release) -> (Style, String) {
    let Some(result) = release.result else {
        let word = match release.message {
            Some(_) => "failing",
            None => "under way",
        };
        return (WAITS, word.to_owned());
    };
    let style = match result {
        ReleaseResult::Succeeded => GOOD,
        ReleaseResult::RolledBack | ReleaseResult::Failed => BAD,
        ReleaseResult::Superseded | ReleaseResult::Reverted => Style::new(),
    };
    let proof = if release.unproven { " (unproven)" } else { "" };
    (style, format!("{result:?}{proof}"))
}

/// What was released, in one word.
fn kind(release: &Release) -> String {
    match release.retry_of {
        Some(_) => "Retry".to_owned(),
        None => format!("{:?}", release.kind),
    }
}

/// What changed, on one line.
fn told(release: &Release) -> String {
    let Some(changed) = &release.changed else {
        // What was taken back before it was prepared changed nothing.
        let nothing = release.result == Some(ReleaseResult::Reverted);
        return if nothing { "-" } else { "?" }.to_owned();
    };
    let mut parts: Vec<String> = changed
        .iter()
        .map(|changed| {
            let is_image = |field: &&String| field.contains(".image: ");
            let images = changed.fields.iter().filter(is_image);
            let others = changed.fields.iter().filter(|field| !is_image(field));
            let mut shown: Vec<String> = images.chain(others).take(NAMED).cloned().collect();
            let rest = changed.fields.len().saturating_sub(NAMED);
            if rest > 0 {
                shown.push(format!("{rest} more"));
            }
            format!("{}: {}", changed.component, shown.join(", "))
        })
        .collect();
    parts.extend(release.more.map(|more| format!("{more} more")));
    parts.join("; ")
}

#[cfg(test)]
mod tests;
