//! Image tags decide what pods do, and their statuses are those that a kubelet
//! reports. One cluster serves all cases, which run at the same time.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say why"
)]

use std::time::{Duration, Instant};

use belay_testenv::{Cluster, ClusterOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

const POLL: Duration = Duration::from_millis(50);

struct Case {
    client: Client,
    name: &'static str,
}

impl Case {
    /// Makes a Deployment of one pod with these images; its containers are
    /// called c0, c1, …
    async fn start(client: &Client, name: &'static str, images: &[&str]) -> Self {
        let containers: Vec<_> = images
            .iter()
            .enumerate()
            .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
            .collect();
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": containers},
                },
            },
        }))
        .expect("a deployment");
        Api::<Deployment>::default_namespaced(client.clone())
            .create(&PostParams::default(), &deployment)
            .await
            .expect("created");
        Self {
            client: client.clone(),
            name,
        }
    }

    async fn pods(&self) -> Vec<Pod> {
        let selector = format!("app={}", self.name);
        Api::<Pod>::default_namespaced(self.client.clone())
            .list(&ListParams::default().labels(&selector))
            .await
            .expect("pods")
            .items
    }

    /// The first status of the pod that fulfils the condition.
    async fn until(
        &self,
        what: &str,
        limit: Duration,
        condition: impl Fn(&PodStatus) -> bool,
    ) -> PodStatus {
        let deadline = Instant::now() + limit;
        loop {
            let pods = self.pods().await;
            let status = pods.into_iter().next().and_then(|pod| pod.status);
            if let Some(status) = &status
                && condition(status)
            {
                return status.clone();
            }
            assert!(
                Instant::now() < deadline,
                "{}: not {what} within {limit:?}: {}",
                self.name,
                json!(status)
            );
            tokio::time::sleep(POLL).await;
        }
    }

    async fn until_ready(&self, limit: Duration) -> PodStatus {
        self.until("ready", limit, |status| is(status, "Ready"))
            .await
    }
}

fn is(status: &PodStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|(status, _, _)| status == "True")
}

fn condition(status: &PodStatus, type_: &str) -> Option<(String, String, String)> {
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == type_)?;
    Some((
        condition.status.clone(),
        condition.reason.clone().unwrap_or_default(),
        condition.message.clone().unwrap_or_default(),
    ))
}

fn container(status: &PodStatus, index: usize) -> ContainerStatus {
    let statuses = status.container_statuses.as_ref().expect("statuses");
    let found = statuses.get(index).expect("the container");
    assert_eq!(found.name, format!("c{index}"));
    found.clone()
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

fn is_running(container: &ContainerStatus) -> bool {
    container
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

/// How the container ended before its present state.
fn last_exit(container: &ContainerStatus) -> Option<(i32, String)> {
    let last = container.last_state.as_ref()?.terminated.as_ref()?;
    Some((last.exit_code, last.reason.clone().unwrap_or_default()))
}

fn assert_unready(status: &PodStatus, names: &str) {
    let verdict = (
        "False".to_owned(),
        "ContainersNotReady".to_owned(),
        format!("containers with unready status: [{names}]"),
    );
    for type_ in ["Ready", "ContainersReady"] {
        assert_eq!(condition(status, type_), Some(verdict.clone()), "{type_}");
    }
    for type_ in ["PodScheduled", "Initialized", "PodReadyToStartContainers"] {
        assert!(is(status, type_), "{type_}");
    }
}

fn assert_good(container: &ContainerStatus) {
    assert!(
        container.ready && container.started == Some(true),
        "{container:?}"
    );
    assert_eq!(container.restart_count, 0);
    assert!(is_running(container));
    assert!(container.image_id.contains("@sha256:"));
    assert!(container.container_id.is_some());
    assert_eq!(last_exit(container), None);
}

async fn plain_tags_are_ready_at_once(client: &Client) {
    let case = Case::start(
        client,
        "plain",
        &["localhost:5000/team-crash/app:1.0", "db"],
    )
    .await;
    let status = case.until_ready(Duration::from_secs(10)).await;
    assert_eq!(status.phase.as_deref(), Some("Running"));
    for type_ in [
        "PodScheduled",
        "Initialized",
        "PodReadyToStartContainers",
        "ContainersReady",
    ] {
        assert!(is(&status, type_), "{type_}");
    }
    assert_good(&container(&status, 0));
    assert_good(&container(&status, 1));
    assert!(status.start_time.is_some());
    assert!(status.pod_ip.is_some() && status.host_ip.is_some());

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments
        .delete("plain", &DeleteParams::default())
        .await
        .expect("deleted");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !case.pods().await.is_empty() {
        assert!(Instant::now() < deadline, "deleted pods stay");
        tokio::time::sleep(POLL).await;
    }
}

async fn unready_runs_but_is_never_ready(client: &Client) {
    let case = Case::start(client, "unready", &["app:1", "app:1-unready"]).await;
    let status = case
        .until("started", Duration::from_secs(10), |s| {
            s.start_time.is_some()
        })
        .await;
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_unready(&status, "c1");
    assert_good(&container(&status, 0));
    let bad = container(&status, 1);
    assert!(is_running(&bad) && !bad.ready && bad.started == Some(true));
    assert_eq!(bad.restart_count, 0);
}

async fn crash_restarts_again_and_again(client: &Client) {
    let case = Case::start(client, "crash", &["app:1-crash", "app:1"]).await;
    let limit = Duration::from_secs(10);
    let status = case
        .until("crashed for the first time", limit, |s| {
            let first = container_or_default(s);
            first.state.is_some_and(|state| state.terminated.is_some())
        })
        .await;
    // The first restart comes without a pause.
    assert_eq!(container(&status, 0).restart_count, 0);
    assert_unready(&status, "c0");
    for restarts in 1..=3 {
        let status = case
            .until("in CrashLoopBackOff", limit, |s| {
                let first = container_or_default(s);
                first.restart_count >= restarts && waiting(&first).is_some()
            })
            .await;
        let bad = container(&status, 0);
        assert_eq!(bad.restart_count, restarts);
        assert_eq!(waiting(&bad).as_deref(), Some("CrashLoopBackOff"));
        assert_eq!(last_exit(&bad), Some((1, "Error".to_owned())));
        assert!(!bad.ready && bad.started == Some(false));
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_unready(&status, "c0");
        assert_good(&container(&status, 1));
    }
    let status = case
        .until("running between two crashes", limit, |s| {
            is_running(&container_or_default(s))
        })
        .await;
    let bad = container(&status, 0);
    assert!(!bad.ready && bad.restart_count > 3);
    assert_eq!(last_exit(&bad), Some((1, "Error".to_owned())));
    assert_unready(&status, "c0");
}

fn container_or_default(status: &PodStatus) -> ContainerStatus {
    let first = status.container_statuses.iter().flatten().next();
    first.cloned().unwrap_or_default()
}

async fn pullerror_never_starts(client: &Client) {
    let case = Case::start(client, "pullerror", &["app:1-pullerror", "app:1"]).await;
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let status = case
            .until(reason, Duration::from_secs(10), |s| {
                waiting(&container_or_default(s)).as_deref() == Some(reason)
            })
            .await;
        let bad = container(&status, 0);
        assert!(!bad.ready && bad.started == Some(false));
        assert_eq!((bad.restart_count, bad.image_id.as_str()), (0, ""));
        assert_eq!(last_exit(&bad), None);
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert_unready(&status, "c0");
        assert_good(&container(&status, 1));
    }
}

async fn slow_is_ready_after_ten_seconds(client: &Client) {
    let start = Instant::now();
    let case = Case::start(client, "slow", &["app:1-slow", "app:1"]).await;
    let status = case
        .until("started", Duration::from_secs(10), |s| {
            s.start_time.is_some()
        })
        .await;
    assert_unready(&status, "c0");
    assert_good(&container(&status, 1));
    let status = case.until_ready(Duration::from_secs(20)).await;
    assert!(
        start.elapsed() >= Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
    assert_good(&container(&status, 0));
    assert_eq!(condition(&status, "Ready").expect("Ready").1, "");
}

async fn dies_is_ready_and_then_crashes(client: &Client) {
    let case = Case::start(client, "dies", &["app:1-dies", "app:1"]).await;
    let status = case.until_ready(Duration::from_secs(10)).await;
    let ready = Instant::now();
    assert_good(&container(&status, 0));
    let status = case
        .until("unready", Duration::from_secs(20), |s| !is(s, "Ready"))
        .await;
    assert!(
        ready.elapsed() >= Duration::from_secs(8),
        "{:?}",
        ready.elapsed()
    );
    assert_unready(&status, "c0");
    assert_good(&container(&status, 1));
    let status = case
        .until("restarted three times", Duration::from_secs(10), |s| {
            container_or_default(s).restart_count >= 3
        })
        .await;
    assert_unready(&status, "c0");
}

async fn two_bad_containers_do_not_disturb_each_other(client: &Client) {
    let case = Case::start(client, "mixed", &["app:1-crash", "app:1-slow", "app:1"]).await;
    let status = case
        .until("restarted", Duration::from_secs(10), |s| {
            container_or_default(s).restart_count >= 2
        })
        .await;
    assert_unready(&status, "c0 c1");
    let slow = container(&status, 1);
    assert!(is_running(&slow) && slow.restart_count == 0);
    assert_good(&container(&status, 2));
    let status = case
        .until("past the slow start", Duration::from_secs(20), |s| {
            container(s, 1).ready
        })
        .await;
    assert_unready(&status, "c0");
}

#[tokio::test]
async fn image_tags_decide_what_pods_do() {
    let cluster = Cluster::start(ClusterOptions::new()).expect("a cluster");
    let client = cluster.client().await.expect("a client");
    tokio::join!(
        plain_tags_are_ready_at_once(&client),
        unready_runs_but_is_never_ready(&client),
        crash_restarts_again_and_again(&client),
        pullerror_never_starts(&client),
        slow_is_ready_after_ten_seconds(&client),
        dies_is_ready_and_then_crashes(&client),
        two_bad_containers_do_not_disturb_each_other(&client),
    );
    cluster.check().expect("every process lived through it");
}
