//! What is wrong with a pod, if anything: what the kubelet and the scheduler
//! report, in their own words.
//!
//! Unlike the verdict of a release, this is for people: it also shows what may
//! still pass, such as a first failed pull.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStatus, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    model::{Exit, PodTrouble},
    objects::PodView,
};

/// A pod that is not ready for this long is worth a line of its own.
const SLOW: Duration = Duration::from_secs(60);
/// A restart of a pod that is ready again is worth a line for this long.
const RECENT: Duration = Duration::from_secs(600);
/// A pod that is still there this long after it should be gone is stuck.
const LINGERING: Duration = Duration::from_secs(30);
/// What a container waits for while all is well.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// How a pod is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodHealth {
    /// Ready, or done.
    Ready,
    /// Not ready yet, and nothing is wrong.
    Starting,
    /// On its way out.
    Going,
    /// Something is wrong.
    Trouble(Box<PodTrouble>),
}

/// Judges a pod.
pub(super) fn judge(pod: &PodView, now: Timestamp) -> PodHealth {
    let trouble = |reason: &str, message: Option<&str>, since: Option<&Time>| {
        PodHealth::Trouble(Box::new(PodTrouble {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            container: None,
            reason: reason.to_owned(),
            message: message.unwrap_or_default().trim().to_owned(),
            restarts: 0,
            last_exit: None,
            since: since.cloned(),
            node: pod.spec.node_name.clone(),
            created: pod.metadata.creation_timestamp.clone(),
            restarted: None,
            restarted_before: None,
        }))
    };
    if let Some(gone_by) = &pod.metadata.deletion_timestamp {
        if age(gone_by, now) < LINGERING {
            return PodHealth::Going;
        }
        let text = "it was deleted and does not end";
        return trouble("Terminating", Some(text), Some(gone_by));
    }
    if pod.status.phase == "Succeeded" {
        return PodHealth::Ready;
    }
    if pod.status.phase == "Failed" {
        let reason = pod.status.reason.as_deref().unwrap_or("Failed");
        return trouble(reason, pod.status.message.as_deref(), None);
    }
    let condition = |type_: &str| pod.status.conditions.iter().find(|c| c.type_ == type_);
    if let Some(scheduled) = condition("PodScheduled")
        && scheduled.status == "False"
    {
        let reason = scheduled.reason.as_deref().unwrap_or("Unschedulable");
        let since = scheduled.last_transition_time.as_ref();
        return trouble(reason, scheduled.message.as_deref(), since);
    }
    let ready = condition("Ready");
    let is_ready = ready.is_some_and(|ready| ready.status == "True");
    if let Some(found) = worst(pod, is_ready, now) {
        return PodHealth::Trouble(Box::new(found));
    }
    if is_ready {
        return PodHealth::Ready;
    }
    let created = pod.metadata.creation_timestamp.as_ref();
    let since = started(ready).or(created);
    if since.is_none_or(|since| age(since, now) < SLOW) {
        return PodHealth::Starting;
    }
    let (reason, message) = unready(pod, ready);
    trouble(&reason, message.as_deref(), since)
}

/// Since when a pod is not ready.
fn started(ready: Option<&PodCondition>) -> Option<&Time> {
    ready?.last_transition_time.as_ref()
}

/// Why a pod without a fault is not ready.
fn unready(pod: &PodView, ready: Option<&PodCondition>) -> (String, Option<String>) {
    let waiting = containers(pod).find_map(|(_, status)| {
        let waiting = state(status)?.waiting.as_ref()?;
        waiting.reason.clone()
    });
    waiting.map_or_else(
        || {
            let message = ready.and_then(|ready| ready.message.clone());
            let message = message.unwrap_or_else(|| "it runs and does not become ready".to_owned());
            ("NotReady".to_owned(), Some(message))
        },
        |reason| (reason, None),
    )
}

/// Containers, init containers first, and whether they are those.
fn containers(pod: &PodView) -> impl Iterator<Item = (bool, &ContainerStatus)> {
    let status = &pod.status;
    let init = status.init_container_statuses.iter().map(|s| (true, s));
    init.chain(status.container_statuses.iter().map(|s| (false, s)))
}

fn state(status: &ContainerStatus) -> Option<&ContainerState> {
    status.state.as_ref()
}

fn worst(pod: &PodView, ready: bool, now: Timestamp) -> Option<PodTrouble> {
    let found = containers(pod).filter_map(|(init, status)| fault(pod, init, status, ready, now));
    found.max_by_key(|trouble| (USUAL.iter().all(|u| trouble.reason != *u), trouble.restarts))
}

fn fault(
    pod: &PodView,
    init: bool,
    status: &ContainerStatus,
    ready: bool,
    now: Timestamp,
) -> Option<PodTrouble> {
    let running = state(status).and_then(|s| s.running.as_ref());
    let waiting = state(status).and_then(|s| s.waiting.as_ref());
    let ended = state(status).and_then(|s| s.terminated.as_ref());
    let last = status
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref());
    let exit = ended.or(last);
    let before = last.and_then(|last| last.started_at.clone());
    // While a container runs or has just ended, its last state is of the run before.
    let run = running.map(|running| running.started_at.clone());
    let run = run.or_else(|| ended.map(|ended| ended.started_at.clone()));
    let (restarted, restarted_before) = match run {
        Some(run) => (run, before),
        None => (before, None),
    };
    let made = |reason: &str, message: &str, since: Option<Time>| PodTrouble {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        container: Some(status.name.clone()),
        reason: reason.to_owned(),
        message: message.trim().to_owned(),
        restarts: status.restart_count,
        last_exit: exit.map(|exit| Exit {
            code: exit.exit_code,
            reason: exit.reason.clone(),
        }),
        since,
        node: pod.spec.node_name.clone(),
        created: pod.metadata.creation_timestamp.clone(),
        restarted: restarted.clone(),
        restarted_before: restarted_before.clone(),
    };
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or("Waiting");
        if USUAL.contains(&reason) && status.restart_count == 0 {
            return None;
        }
        // Of a crash loop the kubelet only repeats the names; how the container
        // ended says more.
        let message = match reason {
            "CrashLoopBackOff" => "",
            _ => waiting.message.as_deref().unwrap_or_default(),
        };
        let since = last.filter(|_| reason == "CrashLoopBackOff");
        return Some(made(
            reason,
            message,
            since.and_then(|l| l.finished_at.clone()),
        ));
    }
    if let Some(ended) = ended {
        let done = ended.exit_code == 0 && (init || status.restart_count == 0);
        let reason = ended.reason.as_deref().unwrap_or("Terminated");
        let message = ended.message.as_deref().unwrap_or_default();
        return (!done).then(|| made(reason, message, ended.finished_at.clone()));
    }
    if running.is_none() || status.restart_count == 0 || (init && status.ready) {
        return None;
    }
    let at = last.and_then(|last| last.finished_at.clone());
    let recent = at.as_ref().is_none_or(|at| age(at, now) < RECENT);
    (recent || !ready).then(|| made("Restarted", "", at))
}

/// When a container had restarted this often, at the latest: the kubelet waits longer
/// from time to time, so that no restart took more than its share. What the restart
/// before the last one tells does not get later by the last one.
pub(super) fn restarted_at(pod: &PodTrouble, times: i32) -> Option<Time> {
    let last = pod.restarted.as_ref().or(pod.since.as_ref());
    let at = |restarts: i32, at: Option<&Time>| {
        let at = at.filter(|_| restarts >= times)?;
        if restarts == times {
            return Some(at.clone());
        }
        let created = pod.created.as_ref()?.0;
        let all = at.0.duration_since(created).checked_mul(times)?;
        let share = all.checked_div(restarts)?;
        created.checked_add(share).ok().map(Time)
    };
    let before = at(pod.restarts - 1, pod.restarted_before.as_ref());
    let known = at(pod.restarts, last).into_iter().chain(before);
    known.min_by_key(|at| at.0)
}

/// Time since `then`; zero if it is still to come.
pub(in crate::cli) fn age(then: &Time, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-03-01T03:00:00Z".parse().unwrap()
    }

    fn pod(status: Value) -> PodView {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "creationTimestamp": "2026-03-01T02:59:50Z",
                         "managedFields": [{"manager": "kubelet"}]},
            "spec": {"nodeName": "n1"},
            "status": status
        }))
        .unwrap()
    }

    fn told(status: Value) -> String {
        match judge(&pod(status), now()) {
            PodHealth::Trouble(t) => {
                let exit = t.last_exit.map(|e| format!(" exit {}", e.code));
                format!(
                    "{} {}{} x{}",
                    t.reason,
                    t.message,
                    exit.unwrap_or_default(),
                    t.restarts
                )
            }
            other => format!("{other:?}"),
        }
    }

    fn container(state: Value, restarts: i32) -> Value {
        json!({"name": "app", "ready": false, "restartCount": restarts, "image": "x",
               "imageID": "", "state": state})
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_who_saw_it() {
        let crash = json!({"name": "app", "ready": false, "restartCount": 2, "image": "x", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}});
        let table = [
            (
                json!({"phase": "Running", "containerStatuses": [crash]}),
                "CrashLoopBackOff  exit 1 x2",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [container(
                    json!({"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}), 0)]}),
                "ErrImagePull no such tag x0",
            ),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/3 nodes: Insufficient cpu"}]}),
                "Unschedulable 0/3 nodes: Insufficient cpu x0",
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
                "Evicted low on memory x0",
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [container(
                    json!({"terminated": {"exitCode": 3, "reason": "Error"}}), 0)]}),
                "Error  exit 3 x0",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [container(
                    json!({"waiting": {"reason": "ContainerCreating"}}), 0)]}),
                "Starting",
            ),
            (json!({"phase": "Pending"}), "Starting"),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
                "Ready",
            ),
        ];
        for (status, expected) in table {
            assert_eq!(told(status.clone()), expected, "{status}");
        }
    }

    #[test]
    fn a_pod_that_does_not_become_ready_is_in_trouble_after_a_minute() {
        let status = |since: &str| {
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False",
                "lastTransitionTime": since, "message": "containers with unready status: [app]"}]})
        };
        assert_eq!(told(status("2026-03-01T02:59:30Z")), "Starting");
        assert_eq!(
            told(status("2026-03-01T02:58:00Z")),
            "NotReady containers with unready status: [app] x0"
        );
    }

    #[test]
    fn a_restart_of_a_pod_that_is_ready_again_is_told_for_a_while() {
        let status = |ended: &str| {
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "app", "ready": true, "restartCount": 1, "image": "x",
                "imageID": "", "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ended}}}]})
        };
        assert_eq!(
            told(status("2026-03-01T02:55:00Z")),
            "Restarted  exit 137 x1"
        );
        assert_eq!(told(status("2026-03-01T01:55:00Z")), "Ready");
    }

    #[test]
    fn a_pod_on_its_way_out_is_no_trouble_until_it_should_be_gone() {
        let mut pod = pod(json!({"phase": "Running"}));
        let at = |text: &str| Some(Time(text.parse().unwrap()));
        pod.metadata.deletion_timestamp = at("2026-03-01T03:00:10Z");
        assert_eq!(judge(&pod, now()), PodHealth::Going);
        pod.metadata.deletion_timestamp = at("2026-03-01T02:50:00Z");
        assert!(matches!(judge(&pod, now()), PodHealth::Trouble(t) if t.reason == "Terminating"));
    }
}
