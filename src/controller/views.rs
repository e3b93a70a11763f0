//! Pods and ReplicaSets as far as a verdict needs them, trimmed while they are
//! decoded, and what they say about the new template.

use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::ReplicaSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    api::Cause,
    cluster::{Condition, replica_failure, view_of},
    fields::canon,
    machine::{NewPods, PodFault},
};

/// A ReplicaSet: whose it is, which template it has and why it makes no pods.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ReplicaSetView {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(rename = "spec", default, deserialize_with = "template_digest")]
    digest: String,
    #[serde(default)]
    status: ReplicaSetViewStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ReplicaSetViewStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// A pod: whose it is and how its containers are.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodView {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    status: PodViewStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodViewStatus {
    #[serde(default)]
    phase: String,
    #[serde(rename = "conditions", default, deserialize_with = "readiness")]
    ready: Option<Condition>,
    #[serde(default)]
    container_statuses: Vec<Container>,
    #[serde(default)]
    init_container_statuses: Vec<Container>,
}
/// A container's status as far as a verdict needs it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    name: String,
    #[serde(default)]
    restart_count: i32,
    #[serde(default)]
    state: State,
    #[serde(default)]
    last_state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Waiting {
    #[serde(default)]
    reason: String,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i32,
    reason: Option<String>,
}

/// Of the conditions of a pod, whether it is ready.
fn readiness<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Condition>, D::Error> {
    let conditions = Option::<Vec<Condition>>::deserialize(input)?;
    let mut conditions = conditions.into_iter().flatten();
    Ok(conditions.find(|condition| condition.kind == "Ready"))
}

/// Digest of the template without the label that the Deployment's controller
/// adds, so that it can be held against the Deployment's own.
fn template_digest<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(default)]
        template: Value,
    }
    let mut template = Spec::deserialize(input)?.template;
    if let Some(labels) = template
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove("pod-template-hash");
    }
    Ok(canon::digest(&template))
}

/// Drops what nobody reads from the metadata.
pub(super) fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.annotations = None;
    meta.labels = None;
}

view_of!(ReplicaSetView, ReplicaSet);
view_of!(PodView, Pod);

/// The ReplicaSet of a Deployment that has a template.
pub(super) fn set_of<'a>(
    deployment_uid: &str,
    template: &Value,
    mut sets: impl Iterator<Item = &'a ReplicaSetView>,
) -> Option<&'a ReplicaSetView> {
    let wanted = canon::digest(template);
    sets.find(|set| set.digest == wanted && owner(&set.metadata, |o| o.uid == deployment_uid))
}

/// Why a ReplicaSet cannot make more pods, if that is so.
pub(super) fn refused(set: &ReplicaSetView) -> Option<String> {
    replica_failure(&set.status.conditions).map(str::to_owned)
}

/// Whether a pod belongs to the ReplicaSet of this name. A set that somebody
/// deletes comes back under its name, not with its uid.
pub(super) fn is_of(set: &str, pod: &PodView) -> bool {
    owner(&pod.metadata, |o| o.kind == "ReplicaSet" && o.name == set)
}

/// What pods say, and how long it takes until one that is ready counts as
/// available.
pub(super) type Seen = (NewPods, Option<Duration>);

/// What the pods of the ReplicaSet of this name say; pods that are going do not
/// count. A pod is available once it has been ready for `min_ready`.
pub(super) fn new_pods<'a>(
    set: &str,
    refused: Option<String>,
    min_ready: Duration,
    now: Timestamp,
    pods: impl Iterator<Item = &'a PodView>,
) -> Seen {
    let pods: Vec<_> = pods
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_of(set, pod))
        .collect();
    let waits = pods.iter().filter_map(|pod| wait(pod, min_ready, now));
    let (available, waiting): (Vec<_>, Vec<_>) = waits.partition(Duration::is_zero);
    let available = i32::try_from(available.len()).unwrap_or(i32::MAX);
    let mut faults: Vec<PodFault> = pods.iter().copied().flat_map(all_faults).collect();
    faults.sort_by(|a, b| {
        let rank = |fault: &PodFault| (fault.cause.is_none(), -fault.restarts);
        rank(a).cmp(&rank(b)).then_with(|| a.pod.cmp(&b.pod))
    });
    faults.truncate(5);
    let said = NewPods {
        available,
        refused,
        faults,
    };
    (said, waiting.into_iter().min())
}

/// How long it takes until a ready pod is available; none if it is not ready.
fn wait(pod: &PodView, min_ready: Duration, now: Timestamp) -> Option<Duration> {
    let status = &pod.status;
    let ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
    let ready = status.ready.as_ref().filter(|ready| ready.status == "True");
    let ready = ready.filter(|_| !ended)?;
    // Another clock may be ahead of ours.
    let since = ready.last_transition_time.as_ref().map(|since| since.0);
    let passed = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
    Some(min_ready.saturating_sub(passed.unwrap_or_default()))
}

fn owner(meta: &ObjectMeta, is: impl Fn(&OwnerReference) -> bool) -> bool {
    meta.owner_references.iter().flatten().any(is)
}

/// What may end a release: the restarts of each container, and a cause that the
/// kubelet names. As long as it is the same, the pod says nothing new.
pub(super) fn alarm(pod: &PodView) -> Vec<(i32, Option<Cause>)> {
    let containers = containers(pod).map(|c| (c.restart_count, cause(c)));
    containers
        .filter(|(restarts, cause)| *restarts > 0 || cause.is_some())
        .collect()
}

fn containers(pod: &PodView) -> impl Iterator<Item = &Container> {
    let status = &pod.status;
    status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
}

/// A first failed pull (`ErrImagePull`) and a first crash are not yet causes:
/// registries and dependencies come back.
fn cause(container: &Container) -> Option<Cause> {
    match container.state.waiting.as_ref()?.reason.as_str() {
        "ImagePullBackOff" => Some(Cause::ImagePullBackOff),
        "InvalidImageName" => Some(Cause::InvalidImageName),
        "CreateContainerConfigError" => Some(Cause::CreateContainerConfigError),
        _ => None,
    }
}

/// What is wrong with a pod; that it is not ready, if its containers say nothing.
fn all_faults(pod: &PodView) -> Vec<PodFault> {
    let of_containers: Vec<PodFault> = faults(pod).collect();
    let unready = pod.status.ready.as_ref();
    let unready = unready.filter(|ready| of_containers.is_empty() && ready.status != "True");
    let said = unready.map(|ready| {
        let why = ready.message.as_deref().filter(|why| !why.is_empty());
        why.map_or_else(|| "not ready".to_owned(), |why| format!("not ready: {why}"))
    });
    let pod = pod.metadata.name.clone().unwrap_or_default();
    let unready = said.map(|message| PodFault {
        pod,
        container: String::new(),
        restarts: 0,
        cause: None,
        message,
    });
    of_containers.into_iter().chain(unready).collect()
}

fn faults(pod: &PodView) -> impl Iterator<Item = PodFault> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    containers(pod).filter_map(|container| {
        let waiting = container.state.waiting.as_ref();
        let reason = waiting.map_or("", |waiting| waiting.reason.as_str());
        let cause = cause(container);
        if cause.is_none() && container.restart_count == 0 && reason.is_empty() {
            return None;
        }
        let message = waiting.and_then(|waiting| waiting.message.as_deref());
        let waits = [Some(reason).filter(|reason| !reason.is_empty()), message];
        let waits = waits.into_iter().flatten().collect::<Vec<_>>().join(": ");
        let states = [&container.last_state, &container.state];
        let ended = states.iter().find_map(|state| state.terminated.as_ref());
        let ended = ended.map(|ended| {
            let why = ended.reason.as_deref().unwrap_or("ended");
            format!("last exit code {} ({why})", ended.exit_code)
        });
        let said = [Some(waits).filter(|waits| !waits.is_empty()), ended];
        Some(PodFault {
            pod: name.to_owned(),
            container: container.name.clone(),
            restarts: container.restart_count,
            cause,
            message: said.into_iter().flatten().collect::<Vec<_>>().join(", "),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "cart"}},
               "spec": {"containers": [{"name": "app", "image": image}]}})
    }

    fn set(name: &str, image: &str, conditions: Value) -> ReplicaSetView {
        let mut template = template(image);
        template["metadata"]["labels"]["pod-template-hash"] = json!(name);
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "d"}]},
            "spec": {"template": template},
            "status": {"replicas": 3, "conditions": conditions}
        }))
        .unwrap()
    }

    fn pod(name: &str, owner: &str, status: Value) -> PodView {
        serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "of-old"}]},
            "status": status
        }))
        .unwrap()
    }

    fn waiting(reason: &str, restarts: i32) -> Value {
        json!({"containerStatuses": [
            {"name": "app", "ready": false, "restartCount": restarts, "image": "x", "imageID": "",
             "state": {"waiting": {"reason": reason, "message": "back-off"}},
             "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})
    }

    fn ready(since: &str) -> Value {
        json!({"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True", "lastTransitionTime": since}]})
    }

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn seen(min_ready: u64, pods: &[PodView]) -> Seen {
        let min_ready = Duration::from_secs(min_ready);
        new_pods("new", None, min_ready, NOW.parse().unwrap(), pods.iter())
    }

    fn said(min_ready: u64, pods: &[PodView]) -> NewPods {
        seen(min_ready, pods).0
    }

    #[test]
    fn only_pods_of_the_live_template_count() {
        let pods = [
            pod("old-1", "old", waiting("CrashLoopBackOff", 9)),
            pod("old-2", "old", ready(NOW)),
            pod("new-1", "new", waiting("CrashLoopBackOff", 2)),
            pod("new-2", "new", waiting("ImagePullBackOff", 0)),
            pod("new-3", "new", ready(NOW)),
        ];
        let seen = said(0, &pods);
        assert_eq!(seen.available, 1);
        let names: Vec<_> = seen
            .faults
            .iter()
            .map(|f| (f.pod.as_str(), f.restarts, f.cause))
            .collect();
        assert_eq!(
            names,
            [
                ("new-2", 0, Some(Cause::ImagePullBackOff)),
                ("new-1", 2, None)
            ],
            "worst first"
        );
        assert_eq!(
            seen.faults[1].message,
            "CrashLoopBackOff: back-off, last exit code 1 (Error)"
        );
    }

    #[test]
    fn a_pod_is_available_once_it_was_ready_for_long_enough() {
        let mut going = pod("going", "new", ready("2026-01-01T00:00:00Z"));
        going.metadata.deletion_timestamp = Some(Time(NOW.parse().unwrap()));
        let mut unready = ready("2026-01-01T00:00:00Z");
        unready["conditions"][1]["status"] = json!("False");
        let mut done = ready("2026-01-01T00:00:00Z");
        done["phase"] = json!("Succeeded");
        let pods = [
            pod("long", "new", ready("2026-01-01T00:00:00Z")),
            pod("since-now", "new", ready(NOW)),
            pod("ahead", "new", ready("2026-01-01T00:01:09Z")),
            pod("unready", "new", unready),
            pod("done", "new", done),
            pod("no-status", "new", json!({})),
            going,
        ];
        let seen = |min_ready: u64| {
            let (said, wake) = seen(min_ready, &pods);
            (said.available, wake.map(|wake| wake.as_secs()))
        };
        assert_eq!(seen(0), (3, None));
        assert_eq!(seen(60), (1, Some(60)));
        assert_eq!(seen(61), (0, Some(1)));
    }

    #[test]
    fn the_set_of_a_template_is_found_and_why_it_makes_no_pods() {
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "quota"}]);
        let sets = [
            set("old", "cart:1", failure.clone()),
            set("new", "cart:2", failure),
            set("fine", "cart:3", json!([])),
        ];
        let found = |uid: &str, image: &str| {
            let set = set_of(uid, &template(image), sets.iter())?;
            Some((set.metadata.name.clone()?, refused(set)))
        };
        let quota = Some("quota".to_owned());
        assert_eq!(found("d", "cart:2"), Some(("new".to_owned(), quota)));
        assert_eq!(found("d", "cart:3"), Some(("fine".to_owned(), None)));
        assert_eq!(found("d", "cart:4"), None);
        assert_eq!(found("other", "cart:2"), None);
    }

    #[test]
    fn a_first_failed_pull_is_not_yet_a_cause() {
        let pods = [pod("new-1", "new", waiting("ErrImagePull", 0))];
        let causes: Vec<_> = said(0, &pods).faults.iter().map(|f| f.cause).collect();
        assert_eq!(causes, [None]);
    }

    #[test]
    fn a_pod_that_only_does_not_get_ready_is_named_with_the_reason() {
        let mut status = ready(NOW);
        status["conditions"][1]["status"] = json!("False");
        status["conditions"][1]["message"] = json!("containers with unready status: [app]");
        let pods = [pod("new-1", "new", status), pod("new-2", "new", ready(NOW))];
        let faults = said(0, &pods).faults;
        assert_eq!(faults.len(), 1);
        assert_eq!(
            (faults[0].place(), faults[0].message.as_str()),
            (
                "pod new-1".to_owned(),
                "not ready: containers with unready status: [app]"
            )
        );
    }

    #[test]
    fn only_restarts_and_causes_are_an_alarm() {
        let alarm = |status: Value| alarm(&pod("new-1", "new", status));
        assert_eq!(alarm(ready(NOW)), []);
        assert_eq!(alarm(waiting("ContainerCreating", 0)), []);
        assert_eq!(alarm(waiting("CrashLoopBackOff", 2)), [(2, None)]);
        let pull = Some(Cause::ImagePullBackOff);
        assert_eq!(alarm(waiting("ImagePullBackOff", 0)), [(0, pull)]);
    }
}
