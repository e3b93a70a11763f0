//! The operator on a cluster that is not ours: runs here, under its own
//! ServiceAccount there. Ends the process with its owner, and takes from the
//! cluster exactly what it put there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::commands::POD_CIDR;
use crate::cluster::write_kubeconfig_for;
use crate::error::Error;
use crate::kubectl::{KubectlCommand, KubectlOutput};
use crate::net::{HttpReply, free_port, http_get, local};
use crate::operator::{ACCOUNT, NAME, NAMESPACE, READY, STOP, install};
use crate::process::{Process, Spec, tail, wait_until};
use crate::settings::workspace_root;
use crate::watchdog::Watchdog;

/// Cluster-scoped objects that the operator's manifests make, in the order in
/// which they are taken away: first what answers for plans, last the kind.
const OBJECTS: [&str; 6] = [
    "validatingwebhookconfiguration/belay.dev",
    "mutatingwebhookconfiguration/belay.dev",
    "customresourcedefinition/releaseplans.belay.dev",
    "clusterrolebinding/belay",
    "clusterrole/belay",
    "namespace/belay-system",
];

/// The simulated node that [`Guest::start_node`] adds.
pub const GUEST_NODE: &str = "belay-simulated";
/// Keeps pods away from it that did not ask for it; key and value.
pub const GUEST_TAINT: (&str, &str) = ("simulated", "true");
const NODE_READY: &str = "--timeout=60s";

/// A cluster that was there before.
#[derive(Debug)]
pub struct Guest {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    dir: tempfile::TempDir,
    server: String,
    operator: Mutex<Option<(Process, u16)>>,
    kwok: Mutex<Option<Process>>,
    watchdog: Watchdog,
}

impl Guest {
    /// Reads how to reach the cluster that kubectl reaches from here
    /// (`KUBECONFIG`). Asks the cluster nothing.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub fn new(kubectl: &Path) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("belay-guest-")
            .tempdir()
            .map_err(Error::io("create a folder in", std::env::temp_dir()))?;
        // It holds the user's credentials: gone also when we are killed.
        let watchdog = Watchdog::start()?;
        watchdog.remove_dir_at_end(dir.path());
        let view = KubectlCommand::as_found(
            kubectl,
            &[
                "config",
                "view",
                "--raw",
                "--minify",
                "--flatten",
                "-o",
                "json",
            ],
        );
        let text = view.run()?.ok()?;
        let kubeconfig = dir.path().join("kubeconfig");
        crate::cluster::write_private(&kubeconfig, &text)?;
        let view: Value = serde_json::from_str(&text).map_err(|error| Error::Malformed {
            path: kubeconfig.clone(),
            reason: error.to_string(),
        })?;
        let server = view["clusters"][0]["cluster"]["server"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(Self {
            kubectl: kubectl.to_owned(),
            kubeconfig,
            dir,
            server,
            operator: Mutex::new(None),
            kwok: Mutex::new(None),
            watchdog,
        })
    }

    /// The API server's URL.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A copy of the kubeconfig with the current context alone.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A temporary folder for what belongs to this cluster.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A kubectl call as the user of the kubeconfig.
    #[must_use]
    pub fn kubectl_command(&self, args: &[&str]) -> KubectlCommand {
        KubectlCommand::new(&self.kubectl, &self.kubeconfig, args)
    }

    fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput, Error> {
        self.kubectl_command(args).run()
    }

    /// Which of the operator's cluster-scoped objects are there: another
    /// installation's, before [`Guest::start_operator`].
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub fn installed(&self) -> Result<Vec<&'static str>, Error> {
        let mut found = Vec::new();
        for object in OBJECTS {
            let args = ["get", object, "--ignore-not-found", "-o", "name"];
            if !self.kubectl(&args)?.ok()?.trim().is_empty() {
                found.push(object);
            }
        }
        Ok(found)
    }

    /// Installs what `deploy/` and `crds/` say, without the operator's own
    /// Deployment, and runs this binary beside the cluster. The API server is
    /// told to reach the webhooks at `host`.
    ///
    /// # Errors
    /// When a manifest is refused, or the operator ends or is not ready in time.
    pub fn start_operator(&self, binary: &Path, host: IpAddr) -> Result<(), Error> {
        install(&|args| self.kubectl(args), workspace_root())?;
        let token = self
            .kubectl(&["create", "token", ACCOUNT, "-n", NAMESPACE])?
            .ok()?;
        let kubeconfig = self.dir().join("operator.kubeconfig");
        write_kubeconfig_for(&self.kubeconfig, &kubeconfig, ACCOUNT, token.trim())?;
        let (webhook, health) = (free_port()?, free_port()?);
        // Only what the API server has to reach is served to others than us.
        let listen = if host.is_loopback() {
            host
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        let (listen, reach) = (
            SocketAddr::new(listen, webhook),
            SocketAddr::new(host, webhook),
        );
        let args = [
            "run".to_owned(),
            "--kubeconfig".to_owned(),
            kubeconfig.display().to_string(),
            "--webhook-listen".to_owned(),
            listen.to_string(),
            "--webhook-url".to_owned(),
            format!("https://{reach}"),
            "--health-listen".to_owned(),
            local(health).to_string(),
            "--drain".to_owned(),
            "0s".to_owned(),
        ];
        let spec = Spec {
            name: NAME.to_owned(),
            program: binary.to_owned(),
            args: args.to_vec(),
            env: Vec::new(),
            log: self.log(),
        };
        let process = Process::spawn(&spec, &self.dir().display().to_string())?;
        self.watchdog.add(process.pid());
        *self.operator() = Some((process, health));
        let ready = wait_until("the operator being ready", READY, || {
            if let Some((process, _)) = self.operator().as_mut() {
                process.check()?;
            }
            Ok(self.get("/readyz").is_ok_and(|reply| reply.status == 200))
        });
        ready.map_err(|error| match error {
            Error::Deadline { what, after, .. } => Error::Deadline {
                what,
                after,
                detail: self.log_tail(30),
            },
            other => other,
        })
    }

    /// Adds a node whose pods are simulated from here, by this kwok. Only pods
    /// that select its name and tolerate its taint come to it.
    ///
    /// # Errors
    /// When the node is refused or does not get ready.
    pub fn start_node(&self, kwok: &Path) -> Result<(), Error> {
        let stages = self.dir().join("stages.yaml");
        crate::cluster::write_private(&stages, &crate::cluster::stages())?;
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": GUEST_NODE,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": GUEST_NODE},
            },
            "spec": {"taints": [{"key": GUEST_TAINT.0, "value": GUEST_TAINT.1, "effect": "NoSchedule"}]},
        });
        self.kubectl_command(&["create", "-f", "-"])
            .stdin(node.to_string())
            .run()?
            .ok()?;
        let spec = Spec {
            name: "kwok".to_owned(),
            program: kwok.to_owned(),
            args: vec![
                format!("--kubeconfig={}", self.kubeconfig.display()),
                format!("--config={}", stages.display()),
                format!("--manage-nodes-with-label-selector=kubernetes.io/hostname={GUEST_NODE}"),
                "--manage-all-nodes=false".to_owned(),
                format!("--cidr={POD_CIDR}"),
                "--node-ip=10.0.0.1".to_owned(),
                "--node-lease-duration-seconds=40".to_owned(),
            ],
            env: Vec::new(),
            log: self.dir().join("kwok.log"),
        };
        let process = Process::spawn(&spec, &self.dir().display().to_string())?;
        self.watchdog.add(process.pid());
        *self.kwok.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        let node = format!("node/{GUEST_NODE}");
        self.kubectl_command(&["wait", &node, "--for=condition=Ready", NODE_READY])
            .deadline(Duration::from_secs(70))
            .run()?
            .ok()?;
        Ok(())
    }

    /// Takes the node away, if there is one.
    ///
    /// # Errors
    /// When it cannot be taken away.
    pub fn remove_node(&self) -> Result<(), Error> {
        let mut kwok = self.kwok.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut process) = kwok.take() else {
            return Ok(());
        };
        let node = format!("node/{GUEST_NODE}");
        let removed = self.kubectl(&["delete", &node, "--ignore-not-found", "--timeout=30s"]);
        process.kill();
        self.watchdog.remove(process.pid());
        removed?.ok().map(drop)
    }

    fn operator(&self) -> MutexGuard<'_, Option<(Process, u16)>> {
        self.operator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> PathBuf {
        self.dir().join("operator.log")
    }

    /// Asks the operator's health listener.
    ///
    /// # Errors
    /// When the operator does not run or does not answer.
    pub fn get(&self, path: &str) -> Result<HttpReply, Error> {
        let port = self.operator().as_ref().map(|(_, port)| *port);
        match port {
            Some(port) => http_get(local(port), path),
            None => Err(Error::UnknownProcess {
                name: NAME.to_owned(),
                known: "none".to_owned(),
            }),
        }
    }

    /// The last lines of the operator's log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log(), lines)
    }

    /// Takes away what [`Guest::start_operator`] installed and ends the
    /// operator. The operator goes last: it has to let go of plans.
    ///
    /// # Errors
    /// When something cannot be taken away; the error names it.
    pub fn uninstall(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for object in OBJECTS {
            let args = ["delete", object, "--ignore-not-found", "--timeout=60s"];
            let deleted = self
                .kubectl_command(&args)
                .deadline(Duration::from_secs(70))
                .run()
                .and_then(KubectlOutput::ok);
            // What is left is worth less trouble than not trying the others.
            result = result.and(deleted.map(drop));
        }
        self.stop();
        result
    }

    fn stop(&self) {
        if let Some((mut process, _)) = self.operator().take() {
            process.stop(STOP);
            self.watchdog.remove(process.pid());
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop();
        if let Some(mut process) = self
            .kwok
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            process.kill();
        }
    }
}
