//! Asks the API server whether the cluster can be used.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use crate::error::Error;

/// How long the whole cluster may take once its API server listens.
const USABLE: Duration = Duration::from_secs(90);
const NODE: &str = "node-1";
const POLL: Duration = Duration::from_millis(50);

/// A client for this kubeconfig that reports errors instead of retrying. It
/// belongs to the runtime it is made in.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub async fn client_for(kubeconfig: &Path) -> Result<Client, Error> {
    let unusable = |source| Error::Kubeconfig {
        path: kubeconfig.to_owned(),
        source: Box::new(source),
    };
    let file = Kubeconfig::read_from(kubeconfig).map_err(unusable)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(unusable)?;
    config.default_retry = false;
    Client::try_from(config).map_err(Error::api("cannot make a client"))
}

/// Runs a future to its end on a thread of its own: the caller may or may not
/// be inside a runtime.
pub(crate) fn block_on<T, F, Fut>(make: F) -> Result<T, Error>
where
    T: Send,
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<T, Error>>,
{
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| Error::Spawn {
                    name: "a runtime".to_owned(),
                    source,
                })?
                .block_on(make())
        });
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Waits until the API server is ready. `check` tells when a process has ended
/// meanwhile.
pub(super) async fn healthy(
    kubeconfig: &Path,
    check: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let ready = async |client: &Client| readyz(client).await.map(|()| None);
    wait_for("a ready API server", kubeconfig, check, ready).await
}

/// Waits until the node is there and takes pods, and the controllers run.
/// `check` tells when a process has ended meanwhile.
pub(super) async fn usable(
    kubeconfig: &Path,
    check: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    wait_for("a usable cluster", kubeconfig, check, lacking).await
}

async fn wait_for(
    what: &str,
    kubeconfig: &Path,
    check: impl Fn() -> Result<(), Error>,
    lacking: impl AsyncFn(&Client) -> Result<Option<String>, kube::Error>,
) -> Result<(), Error> {
    let client = client_for(kubeconfig).await?;
    let deadline = Instant::now() + USABLE;
    loop {
        check()?;
        let lacking = match lacking(&client).await {
            Ok(None) => return Ok(()),
            Ok(Some(lacking)) => lacking,
            // While it starts, an API server refuses connections and requests.
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(Error::Deadline {
                what: what.to_owned(),
                after: USABLE,
                detail: lacking,
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn readyz(client: &Client) -> Result<(), kube::Error> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

/// What is not there yet.
async fn lacking(client: &Client) -> Result<Option<String>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(node) = nodes.get_opt(NODE).await? else {
        nodes.create(&PostParams::default(), &node()).await?;
        return Ok(Some("the node".to_owned()));
    };
    if !takes_pods(&node) {
        return Ok(Some("a ready node without taints (kwok)".to_owned()));
    }
    // The controller manager makes it, and pods cannot be made without it.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    if accounts.get_opt("default").await?.is_none() {
        return Ok(Some(
            "the default service account (kube-controller-manager)".to_owned(),
        ));
    }
    Ok(None)
}

fn takes_pods(node: &Node) -> bool {
    let ready = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
    let tainted = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_ref())
        .is_some_and(|taints| !taints.is_empty());
    ready && !tainted
}

fn node() -> Node {
    // The kinds are plain structs; a literal of JSON reads like the manifest.
    serde_json::from_value(json!({
        "metadata": {
            "name": NODE,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": NODE,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
    }))
    .unwrap_or_default()
}

/// A read that nobody else makes: a mark in the audit log.
pub(super) async fn ask_for_nothing(kubeconfig: &Path, name: &str) -> Result<(), Error> {
    let client = client_for(kubeconfig).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.get_opt(name)
        .await
        .map(drop)
        .map_err(Error::api("cannot mark the audit log"))
}
