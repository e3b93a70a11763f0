//! `belay history`: the releases of a plan, newest first: what was changed, who
//! asked, when, and how it ended.
//!
//! The records are the plan's, and say what changed. Of a release under way, and
//! of records of older versions, that is told from the revisions, as long as they
//! are kept and may be read. Without the right to read them the rest is shown.

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

use self::nothing::Untold;
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
    let mut befores = status.history.iter().filter_map(|r| r.from.clone());
    let released = |name: &String| {
        let mut all = status.history.iter();
        all.any(|record| record.revision.as_ref() == Some(name))
    };
    let baseline = befores.next().filter(|name| !released(name));
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
        baseline,
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
            format!("{:?}", release.kind).into(),
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
mod tests {
    use super::super::testing::{noon, printed, rolled_back, with};
    use super::*;
    use crate::{cli::Document, config_maps::Tracked};
    use expect_test::expect;
    use serde_json::json;

    fn revisions() -> HashMap<(String, String), RevisionData> {
        let revision = |name: &str, cart: &str, web: &str| {
            let component = |name: &str, image: &str| {
                json!({
                    "name": name,
                    "workload": {"kind": "Deployment", "name": name},
                    "template": {"spec": {"containers": [{
                        "name": "app", "image": image,
                        "env": [{"name": "TOKEN", "value": image}],
                    }]}},
                })
            };
            let data = json!({
                "canon": 1, "spec": name,
                "components": [component("cart", cart), component("web", web)],
            });
            let data: RevisionData = serde_json::from_value(data).unwrap();
            (("u1".to_owned(), name.to_owned()), data)
        };
        HashMap::from([
            revision("shop-aaaa", "cart:1", "web:1"),
            revision("shop-bbbb", "cart:2", "web:1"),
            revision("shop-cccc", "cart:3", "web:2"),
        ])
    }

    #[test]
    fn a_history_tells_what_changed_who_asked_and_how_it_ended() {
        let history = history(&with(rolled_back), &revisions());
        let text = printed(None, |streams| write(streams, &history, noon()).unwrap());
        expect![[r#"
            RELEASE   REVISION     KIND       RESULT       AGE   TOOK    WHO    CHANGED
            2         shop-cccc    Content    RolledBack   11m   60s     joe    cart: containers[app].image: cart:2 → cart:3, containers[app].env[TOKEN].value: changed; web: containers[app].image: web:1 → web:2, containers[app].env[TOKEN].value: changed
            1         shop-bbbb*   Content    Succeeded    60m   2m30s   jane   cart: containers[app].image: cart:1 → cart:2, containers[app].env[TOKEN].value: changed
            -         shop-aaaa    Baseline   -            -     -       -      live before the releases above
            * shop-bbbb is stable: a rollback returns to it
            release 2: ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)
        "#]].assert_eq(&text);
    }

    #[test]
    fn what_the_record_says_needs_no_revisions() {
        let plan = with(|plan| {
            plan["status"]["history"][0]["changes"] = json!([
                "cart: containers[app].image: cart:1 → cart:2",
                "cart: configmap settings: 12 → 34",
                "web: new in the plan",
                "3 more",
            ]);
        });
        assert!(!needs_revisions(&plan));
        assert!(needs_revisions(&with(rolled_back)));
        let release = &history(&plan, &HashMap::new()).releases[0];
        assert_eq!(
            told(release),
            "cart: containers[app].image: cart:1 → cart:2, configmap settings: 12 → 34; \
             web: new in the plan; 3 more"
        );
    }

    #[test]
    fn without_revisions_the_rest_is_told() {
        let history = history(&with(rolled_back), &HashMap::new());
        let text = printed(None, |streams| write(streams, &history, noon()).unwrap());
        expect![[r#"
            RELEASE   REVISION     KIND       RESULT       AGE   TOOK    WHO    CHANGED
            2         shop-cccc    Content    RolledBack   11m   60s     joe    ?
            1         shop-bbbb*   Content    Succeeded    60m   2m30s   jane   ?
            -         shop-aaaa    Baseline   -            -     -       -      live before the releases above
            * shop-bbbb is stable: a rollback returns to it
            release 2: ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)
        "#]].assert_eq(&text);
    }

    #[test]
    fn a_release_under_way_stands_on_top() {
        let plan = with(|plan| {
            plan["status"]["targetRevision"] = json!("shop-cccc");
            plan["status"]["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z",
            });
        });
        let history = history(&plan, &revisions());
        let text = printed(Some(100), |streams| {
            write(streams, &history, noon()).unwrap()
        });
        expect![[r#"
            RELEASE   REVISION     KIND       RESULT      AGE   TOOK    WHO    CHANGED
            2         shop-cccc    Content    under way   60s   60s     -
                cart: containers[app].image: cart:2 → cart:3, containers[app].env[TOKEN].value: changed; web:
                containers[app].image: web:1 → web:2, containers[app].env[TOKEN].value: changed
            1         shop-bbbb*   Content    Succeeded   60m   2m30s   jane
                cart: containers[app].image: cart:1 → cart:2, containers[app].env[TOKEN].value: changed
            -         shop-aaaa    Baseline   -           -     -       -      live before the releases above
            * shop-bbbb is stable: a rollback returns to it
        "#]].assert_eq(&text);
    }

    /// Its target gave way to content that the API server refused.
    #[test]
    fn a_release_that_goes_back_from_what_was_live_is_told_by_its_revision() {
        let plan = with(|plan| {
            plan["status"]["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Restore", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
            });
        });
        let release = &history(&plan, &revisions()).releases[0];
        assert_eq!(release.revision.as_deref(), Some("shop-cccc"));
        assert!(told(release).contains("cart:2 → cart:3"), "{release:?}");
    }

    /// Names of snapshots and the annotation with their digest are ours alone.
    #[test]
    fn a_release_under_way_is_told_in_the_words_of_its_record() {
        let revision = |name: &str, digest: char| {
            let tracked = Tracked::new("cart-config", &digest.to_string().repeat(64), "u1");
            let data = json!({"canon": 1, "spec": name, "components": [
                {"name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
                 "template": {
                    "metadata": {"annotations": {"belay.dev/config-digest": digest.to_string()}},
                    "spec": {"volumes": [
                        {"name": "c", "configMap": {"name": tracked.snapshot.clone()}}]}},
                 "configMaps": [tracked]}]});
            let data: RevisionData = serde_json::from_value(data).unwrap();
            (("u1".to_owned(), name.to_owned()), data)
        };
        let plan = with(|plan| {
            plan["status"]["targetRevision"] = json!("shop-cccc");
            plan["status"]["release"] = json!({
                "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
                "startedAt": "2026-03-01T11:59:00.000000Z",
                "stageSince": "2026-03-01T11:59:00.000000Z",
            });
        });
        let revisions = HashMap::from([revision("shop-bbbb", 'a'), revision("shop-cccc", 'b')]);
        let release = &history(&plan, &revisions).releases[0];
        assert_eq!(
            told(release),
            "cart: configmap cart-config: aaaaaaaaaa → bbbbbbbbbb"
        );
    }

    /// Programs read this: what is here must not change without a new version.
    #[test]
    fn the_structure_for_programs_is_what_it_was() {
        let history = history(&with(rolled_back), &revisions());
        let document = Document::new("History", history);
        let text = serde_json::to_string_pretty(&document).unwrap();
        expect![[r#"
            {
              "apiVersion": "cli.belay.dev/v1",
              "kind": "History",
              "namespace": "s",
              "name": "shop",
              "stableRevision": "shop-bbbb",
              "releases": [
                {
                  "number": 2,
                  "revision": "shop-cccc",
                  "from": "shop-bbbb",
                  "kind": "Content",
                  "changed": [
                    {
                      "component": "cart",
                      "fields": [
                        "containers[app].env[TOKEN].value: changed",
                        "containers[app].image: cart:2 → cart:3"
                      ]
                    },
                    {
                      "component": "web",
                      "fields": [
                        "containers[app].env[TOKEN].value: changed",
                        "containers[app].image: web:1 → web:2"
                      ]
                    }
                  ],
                  "requestedBy": "joe",
                  "startedAt": "2026-03-01T11:49:00Z",
                  "endedAt": "2026-03-01T11:50:00Z",
                  "result": "RolledBack",
                  "message": "ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)"
                },
                {
                  "number": 1,
                  "revision": "shop-bbbb",
                  "from": "shop-aaaa",
                  "kind": "Content",
                  "changed": [
                    {
                      "component": "cart",
                      "fields": [
                        "containers[app].env[TOKEN].value: changed",
                        "containers[app].image: cart:1 → cart:2"
                      ]
                    }
                  ],
                  "requestedBy": "jane",
                  "startedAt": "2026-03-01T11:00:00Z",
                  "endedAt": "2026-03-01T11:02:30Z",
                  "result": "Succeeded"
                }
              ],
              "baseline": "shop-aaaa"
            }"#]].assert_eq(&text);
    }
}
