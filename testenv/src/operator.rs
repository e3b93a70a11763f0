//! Runs the operator's binary against a cluster as its own service account,
//! with the rights that `deploy/` gives it and no others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster, write_kubeconfig};
use crate::error::Error;
use crate::kubectl::KubectlOutput;
use crate::net::{HttpReply, free_port, http_get, local};
use crate::process::{Process, Spec, tail, wait_until};
use crate::settings::workspace_root;

pub(crate) const NAME: &str = "operator";
pub(crate) const NAMESPACE: &str = "belay-system";
pub(crate) const ACCOUNT: &str = "belay";
const CRD: &str = "crd/releaseplans.belay.dev";
/// Longer than any test or day of development.
pub(crate) const TOKEN_LIFE: &str = "24h";
pub(crate) const READY: Duration = Duration::from_secs(30);
pub(crate) const STOP: Duration = Duration::from_secs(30);

/// How to run the operator.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    binary: PathBuf,
    manifests: PathBuf,
    server: Option<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl OperatorOptions {
    /// With this binary, the manifests of the workspace and the cluster's own
    /// address.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            manifests: workspace_root().to_owned(),
            server: None,
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// The folder that holds `crds/` and `deploy/`.
    #[must_use]
    pub fn manifests(mut self, dir: impl Into<PathBuf>) -> Self {
        self.manifests = dir.into();
        self
    }

    /// Sends the operator to this URL instead of the API server's own, for
    /// example to a proxy that makes faults. The proxy must be served with a
    /// certificate of the cluster's authority, or in plain HTTP.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.server = Some(url.into());
        self
    }

    /// One more argument for `belay run`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// An environment variable, for example `RUST_LOG`.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }
}

/// A running operator. It is ended when this is dropped, unless the cluster is
/// detached.
#[derive(Debug)]
pub struct Operator {
    cluster: Arc<Cluster>,
    spec: Spec,
    health: SocketAddr,
}

impl Operator {
    /// Installs CRDs, account, rights and webhooks, starts the operator, and
    /// waits until it says that it is ready.
    ///
    /// # Errors
    /// When a manifest is refused, or the operator ends or is not ready within
    /// 30 s; the error shows the end of its log.
    pub fn start(cluster: &Arc<Cluster>, options: &OperatorOptions) -> Result<Self, Error> {
        install(&|args| cluster.kubectl(args), &options.manifests)?;
        let kubeconfig = cluster.dir().join("data/operator.kubeconfig");
        let token = cluster
            .kubectl(&[
                "create",
                "token",
                ACCOUNT,
                "-n",
                NAMESPACE,
                "--duration",
                TOKEN_LIFE,
            ])?
            .ok()?;
        let server = options.server.clone().unwrap_or_else(|| cluster.server());
        write_kubeconfig(
            &kubeconfig,
            &server,
            &cluster.ca_pem()?,
            ACCOUNT,
            token.trim(),
        )?;
        let webhook = local(free_port()?);
        let health = local(free_port()?);
        let mut args = vec![
            "run".to_owned(),
            "--kubeconfig".to_owned(),
            kubeconfig.display().to_string(),
            "--webhook-listen".to_owned(),
            webhook.to_string(),
            "--webhook-url".to_owned(),
            format!("https://{webhook}"),
            "--health-listen".to_owned(),
            health.to_string(),
        ];
        args.extend(options.args.iter().cloned());
        let operator = Self {
            cluster: Arc::clone(cluster),
            spec: Spec {
                name: NAME.to_owned(),
                program: options.binary.clone(),
                args,
                env: options.env.clone(),
                log: cluster.logs().join("operator.log"),
            },
            health,
        };
        operator.run()?;
        Ok(operator)
    }

    /// Whether an operator that an earlier run started is still there.
    #[must_use]
    pub fn is_running(cluster: &Cluster) -> bool {
        cluster.adopt(NAME).is_some()
    }

    fn run(&self) -> Result<(), Error> {
        self.cluster.run(&self.spec)?;
        self.wait_ready(READY)
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// When the operator ends, or not in time.
    pub fn wait_ready(&self, limit: Duration) -> Result<(), Error> {
        let mut last = String::new();
        wait_until("the operator being ready", limit, || {
            self.cluster.with_process(NAME, Process::check)??;
            match self.get("/readyz") {
                Ok(reply) if reply.status == 200 => return Ok(true),
                Ok(reply) => last = format!("/readyz: {} {}", reply.status, reply.body),
                Err(error) => last = error.to_string(),
            }
            Ok(false)
        })
        .map_err(|error| match error {
            Error::Deadline { what, after, .. } => Error::Deadline {
                what,
                after,
                detail: format!("{last}\n{}", self.log_tail(30)),
            },
            other => other,
        })
    }

    /// Asks the health listener, for example for `/livez` or `/metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn get(&self, path: &str) -> Result<HttpReply, Error> {
        http_get(self.health, path)
    }

    /// The metrics in text form.
    ///
    /// # Errors
    /// When the operator does not answer, or not with 200.
    pub fn metrics(&self) -> Result<String, Error> {
        let reply = self.get("/metrics")?;
        if reply.status == 200 {
            Ok(reply.body)
        } else {
            Err(Error::Http {
                address: self.health,
                path: "/metrics".to_owned(),
                reason: format!("status {}: {}", reply.status, reply.body),
            })
        }
    }

    /// Where `/livez`, `/readyz` and `/metrics` are served.
    #[must_use]
    pub const fn health(&self) -> SocketAddr {
        self.health
    }

    /// Its pid.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn pid(&self) -> Result<u32, Error> {
        self.cluster.pid(NAME)
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// When it was stopped before.
    pub fn kill(&self) -> Result<(), Error> {
        self.cluster.stop_process(NAME)
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// When it was stopped before, or does not end within 30 s (it is killed
    /// then).
    pub fn stop(&self) -> Result<(), Error> {
        let ended = self.cluster.with_process(NAME, |process| {
            process.signal(rustix::process::Signal::TERM);
            process.wait(STOP)
        })?;
        if ended {
            self.cluster.forget(NAME);
            return Ok(());
        }
        self.kill()?;
        Err(Error::Deadline {
            what: "the operator ending after SIGTERM".to_owned(),
            after: STOP,
            detail: self.log_tail(30),
        })
    }

    /// Starts it again with the same arguments after [`Operator::kill`] or
    /// [`Operator::stop`], and waits until it is ready.
    ///
    /// # Errors
    /// As for [`Operator::start`].
    pub fn restart(&self) -> Result<(), Error> {
        self.run()
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.spec.log
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.spec.log, lines)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if !self.cluster.is_detached() {
            // Stopped already is as good.
            let _ = self.kill();
        }
    }
}

/// Installs CRDs, account, rights and webhooks, as their user would.
pub(crate) fn install(
    kubectl: &dyn Fn(&[&str]) -> Result<KubectlOutput, Error>,
    manifests: &Path,
) -> Result<(), Error> {
    let file = |name: &str| manifests.join(name).display().to_string();
    for name in [
        "crds/releaseplans.belay.dev.yaml",
        "deploy/namespace.yaml",
        "deploy/serviceaccount.yaml",
        "deploy/rbac.yaml",
    ] {
        kubectl(&["apply", "-f", &file(name)])?.ok()?;
    }
    kubectl(&["wait", "--for=condition=Established", CRD, "--timeout=20s"])?.ok()?;
    // Not `apply`: the operator replaces the Service of the manifest by a URL,
    // and merging the two would give a configuration with both.
    let webhooks = file("deploy/webhooks.yaml");
    if kubectl(&["get", "-f", &webhooks])?.success() {
        kubectl(&["replace", "-f", &webhooks])?.ok()?;
    } else {
        kubectl(&["apply", "-f", &webhooks])?.ok()?;
    }
    Ok(())
}
