//! Pods and ReplicaSets as far as a verdict needs them, trimmed while they are
//! decoded, and what they say about the new template.

use std::borrow::Cow;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition},
        core::v1::{ContainerStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    api::Cause,
    fields::canon,
    machine::{NewPods, PodFault},
};

/// A ReplicaSet: whose it is, which template it has and how its pods are.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ReplicaSetView {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(rename = "spec", default, deserialize_with = "template_digest")]
    pub(super) digest: String,
    #[serde(default)]
    status: ReplicaSetViewStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetViewStatus {
    #[serde(default)]
    available_replicas: i32,
    #[serde(default)]
    conditions: Vec<ReplicaSetCondition>,
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
    container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    init_container_statuses: Vec<ContainerStatus>,
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

macro_rules! view_of {
    ($view:ty, $kind:ty) => {
        impl Resource for $view {
            type DynamicType = ();
            type Scope = <$kind as Resource>::Scope;

            fn kind(dt: &()) -> Cow<'_, str> {
                <$kind as Resource>::kind(dt)
            }

            fn group(dt: &()) -> Cow<'_, str> {
                <$kind as Resource>::group(dt)
            }

            fn version(dt: &()) -> Cow<'_, str> {
                <$kind as Resource>::version(dt)
            }

            fn plural(dt: &()) -> Cow<'_, str> {
                <$kind as Resource>::plural(dt)
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

view_of!(ReplicaSetView, ReplicaSet);
view_of!(PodView, Pod);

/// What the pods of a Deployment's live template say. Pods of older templates
/// and pods that are going do not count.
pub(super) fn new_pods<'a>(
    deployment_uid: &str,
    live_template: &Value,
    replica_sets: impl Iterator<Item = &'a ReplicaSetView>,
    pods: impl Iterator<Item = &'a PodView>,
) -> NewPods {
    let live = canon::digest(live_template);
    let Some(current) = replica_sets
        .filter(|set| is_owned(&set.metadata, deployment_uid))
        .find(|set| set.digest == live)
    else {
        return NewPods::default();
    };
    let uid = current.metadata.uid.as_deref().unwrap_or_default();
    let mut faults: Vec<PodFault> = pods
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_owned(&pod.metadata, uid))
        .flat_map(faults)
        .collect();
    faults.sort_by(|a, b| {
        let rank = |fault: &PodFault| (fault.cause.is_none(), -fault.restarts);
        rank(a).cmp(&rank(b)).then_with(|| a.pod.cmp(&b.pod))
    });
    faults.truncate(5);
    let failure = current
        .status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    NewPods {
        available: current.status.available_replicas,
        refused: failure.map(|c| c.message.clone().unwrap_or_else(|| "no message".to_owned())),
        faults,
    }
}

fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner: &OwnerReference| owner.uid == uid)
}

fn faults(pod: &PodView) -> impl Iterator<Item = PodFault> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let statuses = pod
        .status
        .init_container_statuses
        .iter()
        .chain(&pod.status.container_statuses);
    statuses.filter_map(move |status| {
        let waiting = status
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        let reason = waiting
            .and_then(|waiting| waiting.reason.clone())
            .unwrap_or_default();
        // A first failed pull (ErrImagePull) and a first crash are not yet
        // reasons: registries and dependencies come back.
        let cause = match reason.as_str() {
            "ImagePullBackOff" => Some(Cause::ImagePullBackOff),
            "InvalidImageName" => Some(Cause::InvalidImageName),
            "CreateContainerConfigError" => Some(Cause::CreateContainerConfigError),
            _ => None,
        };
        if cause.is_none() && status.restart_count == 0 && reason.is_empty() {
            return None;
        }
        let ended = status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let ended = ended.or_else(|| status.state.as_ref().and_then(|s| s.terminated.as_ref()));
        let mut message = reason;
        if let Some(text) = waiting.and_then(|waiting| waiting.message.as_deref()) {
            message = if message.is_empty() {
                text.to_owned()
            } else {
                format!("{message}: {text}")
            };
        }
        if let Some(ended) = ended {
            let why = ended.reason.as_deref().unwrap_or("ended");
            let text = format!("last exit code {} ({why})", ended.exit_code);
            message = if message.is_empty() {
                text
            } else {
                format!("{message}, {text}")
            };
        }
        Some(PodFault {
            pod: name.clone(),
            container: status.name.clone(),
            restarts: status.restart_count,
            cause,
            message,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(name: &str, image: &str, available: i32) -> ReplicaSetView {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "d"}]},
            "spec": {"template": {
                "metadata": {"labels": {"app": "cart", "pod-template-hash": name}},
                "spec": {"containers": [{"name": "app", "image": image}]}}},
            "status": {"replicas": 3, "availableReplicas": available}
        }))
        .unwrap()
    }

    fn pod(name: &str, owner: &str, state: Value) -> PodView {
        serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}]},
            "status": {"containerStatuses": [state]}
        }))
        .unwrap()
    }

    fn waiting(reason: &str, restarts: i32) -> Value {
        json!({"name": "app", "ready": false, "restartCount": restarts, "image": "x", "imageID": "",
               "state": {"waiting": {"reason": reason, "message": "back-off"}},
               "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}})
    }

    #[test]
    fn only_pods_of_the_live_template_count() {
        let live = json!({"metadata": {"labels": {"app": "cart"}},
                          "spec": {"containers": [{"name": "app", "image": "cart:2"}]}});
        let sets = [set("old", "cart:1", 3), set("new", "cart:2", 1)];
        let pods = [
            pod("old-1", "old", waiting("CrashLoopBackOff", 9)),
            pod("new-1", "new", waiting("CrashLoopBackOff", 2)),
            pod("new-2", "new", waiting("ImagePullBackOff", 0)),
        ];
        let seen = new_pods("d", &live, sets.iter(), pods.iter());
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
        assert!(
            seen.faults[1].message.contains("last exit code 1"),
            "{}",
            seen.faults[1].message
        );
    }

    #[test]
    fn a_first_failed_pull_is_not_yet_a_cause() {
        let live = json!({"metadata": {"labels": {"app": "cart"}},
                          "spec": {"containers": [{"name": "app", "image": "cart:2"}]}});
        let sets = [set("new", "cart:2", 0)];
        let pods = [pod("new-1", "new", waiting("ErrImagePull", 0))];
        let seen = new_pods("d", &live, sets.iter(), pods.iter());
        assert_eq!(
            seen.faults.iter().map(|f| f.cause).collect::<Vec<_>>(),
            [None]
        );
    }
}
