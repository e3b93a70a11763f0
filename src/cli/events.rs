//! `belay events`: what happened to a plan and everything it releases, in the
//! order of time.
//!
//! Events of the cluster live for an hour or so. What the plan itself decided,
//! and how its releases ended, stays in its status and is told from there when
//! the events are gone; what is told twice is shown once.

use clap::Args;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{Api, api::ListParams};
use serde::Serialize;

use super::{
    Cell, CliError, Exit, FAINT, HEADING, Invocation, Output, PerPlan, SomePlans, Streams, Table,
    WAITS, age, list_all, scopes, tell,
};
use crate::{
    api::{DecisionEntry, ReleaseResult, StoredPlan},
    plan::targets_of,
};

/// Seconds within which an event and an entry of the status are the same.
const SAME: i64 = 5;
/// Reasons and results of a plan that follow from what its pods do.
const ENDS: [&str; 8] = [
    "Released",
    "Succeeded",
    "RollbackStarted",
    "RolledBack",
    "ReleaseFailed",
    "Frozen",
    "RollbackStalled",
    "BaselineTaken",
];
/// Characters of a pod's name that are its own, as the API server makes them.
const RANDOM: usize = 5;
/// Longest part of a pod's name that comes from its ReplicaSet.
const STEM: usize = 58;

/// Arguments of `events`.
#[derive(Args, Clone, Debug)]
pub struct EventsArgs {
    #[command(flatten)]
    plans: SomePlans,
    #[command(flatten)]
    output: Output,
}

/// What happened around a plan.
#[derive(Debug, Serialize)]
struct Happened {
    namespace: String,
    name: String,
    /// Oldest first.
    events: Vec<Entry>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Entry {
    /// When, the last time.
    at: Time,
    /// Where it is known from.
    source: Source,
    /// The object, as `kind/name`.
    object: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    warning: bool,
    reason: String,
    message: String,
    /// How often.
    #[serde(skip_serializing_if = "is_one")]
    count: i32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_one(count: &i32) -> bool {
    *count == 1
}

/// Where something is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Source {
    /// An event of the cluster.
    Event,
    /// The plan's own account of its decisions.
    Decision,
    /// The plan's record of a release.
    Record,
}

/// Tells what happened.
///
/// # Errors
/// A plan that is not there, or events that cannot be read.
pub(super) async fn run(args: &EventsArgs, call: &mut Invocation<'_>) -> Result<Exit, CliError> {
    let session = call.connect().await?;
    let plans = session.plans(&args.plans).await?;
    if plans.is_empty() {
        session.found_none(&args.plans, &mut call.streams).await?;
    }
    let scopes = scopes(&plans, args.plans.all_namespaces);
    let mut events = Vec::new();
    for scope in scopes {
        let api: Api<Event> = session.api(scope);
        match list_all(&api, ListParams::default()).await {
            Ok(found) => events.extend(found),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                writeln!(
                    call.streams.err,
                    "events may not be read; this is what the plan itself knows"
                )?;
            }
            Err(error) => return Err(CliError::api("list events", error)),
        }
    }
    let happened = plans.iter().map(|plan| happened(plan, &events)).collect();
    tell(happened, &args.plans, args.output, call)
}

impl PerPlan for Happened {
    const KINDS: (&'static str, &'static str) = ("Events", "EventsList");

    fn plan(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn write(&self, streams: &mut Streams<'_>, now: Timestamp) -> Result<(), CliError> {
        write(streams, self, now)
    }
}

/// Everything about a plan, oldest first.
fn happened(plan: &StoredPlan, events: &[Event]) -> Happened {
    let name = plan.metadata.name.clone().unwrap_or_default();
    let namespace = plan.metadata.namespace.clone().unwrap_or_default();
    let workloads: Vec<String> = targets_of(plan).into_iter().map(|t| t.name).collect();
    let object = format!("releaseplan/{name}");
    let mut entries: Vec<Entry> = events
        .iter()
        .filter(|event| event.metadata.namespace.as_ref() == plan.metadata.namespace.as_ref())
        .filter(|event| concerns(event, plan, &workloads))
        .filter_map(entry)
        .collect();
    let status = plan.status.iter();
    let decisions = status.clone().flat_map(|status| &status.decisions);
    let decisions = decisions.map(|decision| Entry {
        at: decision.at.clone(),
        source: Source::Decision,
        object: object.clone(),
        warning: decision.reason.is_warning(),
        reason: decision.reason.as_str().to_owned(),
        message: decision.message.clone(),
        count: 1,
    });
    for entry in decisions {
        add(&mut entries, entry);
    }
    let records = status.flat_map(|status| &status.history);
    for record in records {
        let revision = record.revision.as_deref().unwrap_or("what was asked for");
        let why = record.message.as_ref().map(|why| format!(": {why}"));
        let entry = Entry {
            at: record.ended_at.clone(),
            source: Source::Record,
            object: object.clone(),
            warning: matches!(
                record.result,
                ReleaseResult::RolledBack | ReleaseResult::Failed
            ),
            reason: format!("{:?}", record.result),
            message: format!(
                "release {} of {revision} ended{}",
                record.number,
                why.unwrap_or_default()
            ),
            count: 1,
        };
        let verdict = verdict_of(record.result);
        let told = entries.iter().any(|other| {
            other.object == object
                && verdict.contains(&other.reason.as_str())
                && near(other.at.0, entry.at.0)
        });
        if !told {
            entries.push(entry);
        }
    }
    // Events tell whole seconds: what a plan did comes before what came of it, and
    // what it decided in the order in which it did.
    let ends = ends(&entries, plan);
    entries.sort_by_cached_key(|entry| {
        let second = entry.at.0.as_second();
        let decided = decided(entry, &object, plan);
        let earlier = ends.iter().filter(|(at, _)| *at == second);
        let earlier = earlier.filter(|(_, end)| decided.is_some_and(|own| own > *end));
        (second, earlier.count(), entry.depth(), decided, entry.at.0)
    });
    Happened {
        namespace,
        name,
        events: entries,
    }
}

/// Where a decision of the plan stands among all that are kept.
fn decided(entry: &Entry, object: &str, plan: &StoredPlan) -> Option<usize> {
    let decisions = &plan.status.as_ref()?.decisions;
    let own = |decision: &DecisionEntry| {
        entry.object == object
            && decision.reason.as_str() == entry.reason
            && decision.message == entry.message
            && near(decision.at.0, entry.at.0)
    };
    decisions.iter().rposition(own)
}

/// The decisions that tell what came of something, by second.
fn ends(entries: &[Entry], plan: &StoredPlan) -> Vec<(i64, usize)> {
    let ends = entries
        .iter()
        .filter(|entry| ENDS.contains(&&*entry.reason));
    let ends = ends.filter_map(|entry| {
        let decided = decided(entry, &entry.object, plan)?;
        Some((entry.at.0.as_second(), decided))
    });
    ends.collect()
}

impl Entry {
    /// How far down the object is in what makes what. How a release ended is known
    /// once all below is.
    fn depth(&self) -> u8 {
        match self.object.split('/').next() {
            Some("releaseplan") if ENDS.contains(&self.reason.as_str()) => 4,
            Some("releaseplan") => 0,
            Some("deployment") => 1,
            Some("replicaset") => 2,
            _ => 3,
        }
    }
}

/// The reasons by which a plan tells that a release ended so.
const fn verdict_of(result: ReleaseResult) -> &'static [&'static str] {
    match result {
        ReleaseResult::Succeeded => &["Released"],
        ReleaseResult::RolledBack => &["RolledBack"],
        ReleaseResult::Superseded => &["Superseded"],
        ReleaseResult::Reverted => &["Reverted"],
        ReleaseResult::Failed => &["ReleaseFailed", "RollbackAborted"],
    }
}

fn near(a: Timestamp, b: Timestamp) -> bool {
    a.duration_since(b).as_secs().abs() <= SAME
}

/// Adds what the plan itself knows, unless an event tells the same.
fn add(entries: &mut Vec<Entry>, entry: Entry) {
    let told = entries.iter().any(|other| {
        other.reason == entry.reason
            && other.object == entry.object
            && other.message == entry.message
            && near(other.at.0, entry.at.0)
    });
    if !told {
        entries.push(entry);
    }
}

/// Whether an event is about the plan, or a workload of it, or what that made.
fn concerns(event: &Event, plan: &StoredPlan, workloads: &[String]) -> bool {
    let object = &event.involved_object;
    let name = object.name.as_deref().unwrap_or_default();
    match object.kind.as_deref().unwrap_or_default() {
        // A plan of the same name that was there before is another one.
        "ReleasePlan" => object.uid == plan.metadata.uid,
        "Deployment" => workloads.iter().any(|workload| workload == name),
        "ReplicaSet" => workloads.iter().any(|w| is_set_of(name, w)),
        "Pod" => workloads.iter().any(|w| is_pod_of(name, w)),
        _ => false,
    }
}

/// Whether a ReplicaSet has the name of one that a Deployment made. Told by the
/// name, since neither need exist any more.
fn is_set_of(name: &str, deployment: &str) -> bool {
    let parts = name.rsplit_once('-');
    parts.is_some_and(|(stem, hash)| stem == deployment && !hash.is_empty())
}

/// Whether a pod has the name of one that a Deployment's ReplicaSet made.
fn is_pod_of(name: &str, deployment: &str) -> bool {
    let Some((stem, _)) = name.split_at_checked(name.len().saturating_sub(RANDOM)) else {
        return false;
    };
    match stem.strip_suffix('-') {
        Some(set) if stem.len() < STEM => is_set_of(set, deployment),
        // The API server cut it to fit.
        _ => stem.len() == STEM && cut_stem(stem, deployment),
    }
}

fn cut_stem(stem: &str, deployment: &str) -> bool {
    let prefix = format!("{deployment}-");
    match stem.strip_prefix(&prefix) {
        Some(rest) => !rest.trim_end_matches('-').contains('-'),
        None => prefix.starts_with(stem),
    }
}

fn entry(event: &Event) -> Option<Entry> {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref());
    let at = last
        .or(event.event_time.as_ref())
        .map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.first_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|t| t.0))?;
    let object = &event.involved_object;
    let kind = object.kind.as_deref().unwrap_or_default().to_lowercase();
    let name = object.name.as_deref().unwrap_or_default();
    Some(Entry {
        at: Time(at),
        source: Source::Event,
        object: format!("{kind}/{name}"),
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        count: series
            .and_then(|series| series.count)
            .or(event.count)
            .unwrap_or(1),
    })
}

fn write(streams: &mut Streams<'_>, one: &Happened, now: Timestamp) -> Result<(), CliError> {
    if one.events.is_empty() {
        writeln!(streams.err, "nothing is known of {}", one.name)?;
        return Ok(());
    }
    let mut table = Table::new(&["AGE", "OBJECT", "TYPE", "REASON", "MESSAGE"]);
    for entry in &one.events {
        let (style, type_) = match (entry.source, entry.warning) {
            (_, true) => (WAITS, "Warning"),
            (Source::Event, false) => (FAINT, "Normal"),
            (Source::Decision, false) => (HEADING, "Decision"),
            (Source::Record, false) => (HEADING, "Result"),
        };
        let times = match entry.count {
            1 => String::new(),
            count => format!(" (x{count})"),
        };
        // As they are put in order.
        let at = Timestamp::from_second(entry.at.0.as_second()).unwrap_or(entry.at.0);
        table.row([
            age(at, now).into(),
            entry.object.clone().into(),
            Cell::new(style, type_),
            entry.reason.clone().into(),
            format!("{}{times}", entry.message).into(),
        ]);
    }
    table.print(streams)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noon, printed, rolled_back, with};
    use super::*;
    use crate::cli::Document;
    use expect_test::expect;
    use serde_json::json;

    fn event(at: &str, kind: &str, name: &str, reason: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "e", "namespace": "s"},
            "involvedObject": {"kind": kind, "name": name, "uid": "u1"},
            "reason": reason, "message": message, "lastTimestamp": at, "count": 3,
            "type": if reason == "BackOff" { "Warning" } else { "Normal" },
        }))
        .unwrap()
    }

    #[test]
    fn plan_workloads_and_pods_are_told_in_the_order_of_time_and_nothing_twice() {
        let events = [
            event(
                "2026-03-01T11:49:30Z",
                "Pod",
                "web-5d4f8c-x2x4z",
                "BackOff",
                "back-off",
            ),
            event(
                "2026-03-01T11:49:10Z",
                "ReplicaSet",
                "cart-77aa",
                "SuccessfulCreate",
                "made",
            ),
            event(
                "2026-03-01T11:49:20Z",
                "Pod",
                "web-api-5d4f8c-x2x4z",
                "Pulled",
                "another's",
            ),
            event(
                "2026-03-01T11:49:00Z",
                "ReleasePlan",
                "shop",
                "ReleaseStarted",
                "2 begins",
            ),
            event(
                "2026-03-01T11:49:05Z",
                "Service",
                "web",
                "Sync",
                "no business of ours",
            ),
        ];
        let plan = with(|plan| {
            rolled_back(plan);
            plan["status"]["decisions"] = json!([
                {"at": "2026-03-01T09:00:00Z", "reason": "BaselineTaken", "message": "long ago"},
                {"at": "2026-03-01T11:49:01Z", "reason": "ReleaseStarted", "message": "2 begins"},
                {"at": "2026-03-01T11:02:31Z", "reason": "Released", "message": "1 is healthy"},
            ]);
        });
        let happened = happened(&plan, &events);
        let text = printed(None, |streams| write(streams, &happened, noon()).unwrap());
        expect![[r#"
            AGE   OBJECT                 TYPE       REASON             MESSAGE
            3h    releaseplan/shop       Decision   BaselineTaken      long ago
            57m   releaseplan/shop       Decision   Released           1 is healthy
            11m   releaseplan/shop       Normal     ReleaseStarted     2 begins (x3)
            10m   replicaset/cart-77aa   Normal     SuccessfulCreate   made (x3)
            10m   pod/web-5d4f8c-x2x4z   Warning    BackOff            back-off (x3)
            10m   releaseplan/shop       Warning    RolledBack         release 2 of shop-cccc ended: ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)
        "#]].assert_eq(&text);
        let document = serde_json::to_string(&Document::new("Events", &happened)).unwrap();
        assert!(document.starts_with(
            r#"{"apiVersion":"cli.belay.dev/v1","kind":"Events","namespace":"s","name":"shop","events":[{"at":"2026-03-01T09:00:00Z","source":"Decision","object":"releaseplan/shop","reason":"BaselineTaken","message":"long ago"}"#
        ), "{document}");
    }

    #[test]
    fn of_one_second_what_a_plan_did_comes_before_what_came_of_it() {
        let at = "2026-03-01T11:49:00Z";
        let events = [
            event(at, "ReleasePlan", "shop", "RolledBack", "all is back"),
            event(at, "Pod", "web-5d4f8c-x2x4z", "Scheduled", "to a node"),
            event(at, "ReplicaSet", "web-5d4f8c", "SuccessfulCreate", "made"),
            event(at, "Deployment", "web", "ScalingReplicaSet", "scaled"),
            event(
                "2026-03-01T11:48:59Z",
                "Pod",
                "web-77aa-x2x4z",
                "Killing",
                "old",
            ),
            event(at, "ReleasePlan", "shop", "ReleaseStarted", "3 begins"),
        ];
        let plan = with(|plan| plan["status"]["history"] = json!([]));
        let happened = happened(&plan, &events);
        let reasons: Vec<&str> = happened.events.iter().map(|e| e.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "Killing",
                "ReleaseStarted",
                "ScalingReplicaSet",
                "SuccessfulCreate",
                "Scheduled",
                "RolledBack"
            ]
        );
    }

    /// A stop that somebody leaves at once, and an order after an end.
    #[test]
    fn of_one_second_decisions_are_told_in_the_order_in_which_they_were_made() {
        let at = "2026-03-01T11:49:00Z";
        let told = |decisions: &[&str]| {
            let plan = with(|plan| {
                plan["status"]["history"] = json!([]);
                let decision =
                    |reason: &&str| json!({"at": at, "reason": reason, "message": reason});
                plan["status"]["decisions"] = decisions.iter().map(decision).collect();
            });
            // The API server lists them by names that tell nothing.
            let mut events: Vec<Event> = decisions
                .iter()
                .map(|reason| event(at, "ReleasePlan", "shop", reason, reason))
                .collect();
            events.sort_by_key(|event| event.reason.clone());
            events.push(event(at, "Pod", "web-5d4f8c-x2x4z", "BackOff", "back-off"));
            let happened = happened(&plan, &events);
            let told: Vec<String> = happened.events.into_iter().map(|e| e.reason).collect();
            told
        };
        let stopped = ["Frozen", "RollbackStarted", "RolledBack", "UndoRequested"];
        let expected = [
            "BackOff",
            "Frozen",
            "RollbackStarted",
            "RolledBack",
            "UndoRequested",
        ];
        assert_eq!(told(&stopped), expected);
        let ended = ["RollbackStarted", "RollbackAborted"];
        assert_eq!(
            told(&ended),
            ["BackOff", "RollbackStarted", "RollbackAborted"]
        );
    }

    /// Events live for an hour, and a failure does not get better after that.
    #[test]
    fn what_was_told_as_a_warning_stays_one_once_the_event_is_gone() {
        let plan = with(|plan| {
            plan["status"]["decisions"] = json!([
                {"at": "2026-03-01T09:00:00Z", "reason": "ReleaseStarted", "message": "1"},
                {"at": "2026-03-01T09:01:00Z", "reason": "ReleaseFailed", "message": "2"},
                {"at": "2026-03-01T09:02:00Z", "reason": "RollbackStarted", "message": "3"},
                {"at": "2026-03-01T09:03:00Z", "reason": "RolledBack", "message": "4"},
            ]);
            plan["status"]["history"] = json!([]);
        });
        let happened = happened(&plan, &[]);
        let warnings: Vec<bool> = happened.events.iter().map(|entry| entry.warning).collect();
        assert_eq!(warnings, [false, true, true, true]);
    }

    #[test]
    fn a_pod_is_told_from_that_of_another_deployment_by_its_name() {
        assert!(is_pod_of("web-5d4f8c-x2x4z", "web"));
        assert!(!is_pod_of("web-api-5d4f8c-x2x4z", "web"));
        assert!(is_pod_of("web-api-5d4f8c-x2x4z", "web-api"));
        assert!(!is_pod_of("web", "web"));
        assert!(!is_pod_of("", "web"));
        let long = "a".repeat(55);
        let cut = format!("{long}-5dx2x4z");
        assert!(is_pod_of(&cut, &long), "{cut}");
        assert!(!is_pod_of("wäb-5d4f8c-äöü", "web"));
    }
}
