//! Where the demo takes place: a control plane of its own, or the cluster of
//! the person's kubeconfig. Says what is done to the latter before it is done.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_testenv::{
    Cluster, ClusterOptions, GUEST_NODE, Guest, KubectlCommand, Operator, OperatorOptions,
    Terminal, Tool, Tools,
};

use super::manifests::NAMESPACE;
use super::{Options, Screen, Stop};
use crate::error::Error;
use crate::{cargo, local};

/// A cluster with a running operator.
pub(crate) enum Place {
    /// Ends with the demo, or with `cargo xtask down`.
    Own {
        /// The control plane.
        cluster: Arc<Cluster>,
        /// The operator.
        operator: Operator,
        /// The operator's binary, which is the commands' too.
        binary: PathBuf,
    },
    /// Was there before.
    Existing {
        /// The cluster.
        guest: Box<Guest>,
        /// Whether the demo added a node.
        node: bool,
        /// The operator's binary, which is the commands' too.
        binary: PathBuf,
    },
}

impl Place {
    /// Builds the operator, finds or starts a cluster, and starts the operator
    /// there.
    pub(crate) fn prepare(options: &Options, screen: &Screen) -> Result<Self, Stop> {
        screen.chapter("A control plane and the operator");
        if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
            let tools = Tools::ensure_only(&[Tool::Kubectl], &Terminal)?;
            let guest = Guest::new(tools.path(Tool::Kubectl))?;
            if reachable(&guest)? {
                return existing(guest, options, screen);
            }
            screen.text(&format!(
                "KUBECONFIG is set, but {} does not answer: a cluster of the demo's own is used.",
                guest.server()
            ));
        }
        own(options, screen)
    }

    /// A kubectl call of the person.
    pub(crate) fn kubectl(&self, args: &[&str]) -> KubectlCommand {
        match self {
            Self::Own { cluster, .. } => cluster.kubectl_command(args),
            Self::Existing { guest, .. } => guest.kubectl_command(args),
        }
    }

    /// A command of Belay that the person gives.
    pub(crate) fn belay(&self, args: &[&str]) -> KubectlCommand {
        let (Self::Own { binary, .. } | Self::Existing { binary, .. }) = self;
        KubectlCommand::new(binary, self.kubeconfig(), args)
    }

    /// The person's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        match self {
            Self::Own { cluster, .. } => cluster.kubeconfig(),
            Self::Existing { guest, .. } => guest.kubeconfig(),
        }
    }

    /// Whether pods have to go to a node that the demo added.
    pub(crate) const fn adds_a_node(&self) -> bool {
        matches!(self, Self::Existing { node: true, .. })
    }

    /// A folder for the manifests of the story.
    pub(crate) fn folder(&self) -> PathBuf {
        match self {
            Self::Own { cluster, .. } => cluster.dir().join("demo"),
            Self::Existing { guest, .. } => guest.dir().join("demo"),
        }
    }

    /// How often the operator has looked at a plan.
    pub(crate) fn reconciles(&self) -> Result<u64, Stop> {
        let text = match self {
            Self::Own { operator, .. } => operator.metrics()?,
            Self::Existing { guest, .. } => guest.get("/metrics")?.body,
        };
        crate::metrics::value(&text, "belay_reconcile_duration_seconds_count")
            .ok_or_else(|| Stop::Other("/metrics does not count reconciliations".to_owned()))
    }

    /// The end of the operator's log.
    pub(crate) fn log_tail(&self, lines: usize) -> String {
        match self {
            Self::Own { operator, .. } => operator.log_tail(lines),
            Self::Existing { guest, .. } => guest.log_tail(lines),
        }
    }

    /// Ends or clears what the demo made.
    pub(crate) fn end(self, keep: bool, screen: &Screen) -> Result<(), Stop> {
        match self {
            Self::Own {
                cluster, operator, ..
            } if keep => {
                screen.text(&kept(&cluster));
                drop(operator);
                Ok(())
            }
            Self::Own {
                cluster, operator, ..
            } => {
                let dir = cluster.dir().to_owned();
                drop(operator);
                drop(cluster);
                screen.text(&format!(
                    "The cluster is gone{}.",
                    if dir.exists() {
                        ", its folder stays"
                    } else {
                        ""
                    }
                ));
                Ok(())
            }
            Self::Existing { guest, .. } => {
                screen.text("Taking away what the demo put into the cluster.");
                clear(&guest)?;
                screen.text("The cluster is as it was.");
                Ok(())
            }
        }
    }
}

fn own(options: &Options, screen: &Screen) -> Result<Place, Stop> {
    let settings = if options.keep {
        // Where `up` and `down` look.
        let dir = local::dir();
        if belay_testenv::runs(&dir) {
            return Err(Stop::Other(format!(
                "a cluster runs in {} already; end it with `cargo xtask down`, or leave --keep away",
                dir.display()
            )));
        }
        ClusterOptions::new().dir(dir).detached(true)
    } else {
        ClusterOptions::new()
    };
    let binary = build(screen)?;
    screen.text(
        "Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok for a node and its pods.",
    );
    let cluster = Arc::new(Cluster::start(settings)?);
    if options.keep {
        cluster.tools().link_into(&local::dir().join("bin"))?;
    }
    screen.text(
        "Installing crds/ and deploy/, and running the operator as its own ServiceAccount with its own ClusterRole.",
    );
    let operator = Operator::start(
        &cluster,
        &OperatorOptions::new(&binary).arg("--drain").arg("0s"),
    )?;
    Ok(Place::Own {
        cluster,
        operator,
        binary,
    })
}

fn existing(guest: Guest, options: &Options, screen: &Screen) -> Result<Place, Stop> {
    if options.keep {
        return Err(Stop::Other(
            "--keep is for a cluster of the demo's own; unset KUBECONFIG to get one".to_owned(),
        ));
    }
    let mut found: Vec<String> = guest.installed()?.into_iter().map(str::to_owned).collect();
    let namespace = format!("namespace/{NAMESPACE}");
    let args = ["get", &namespace, "--ignore-not-found", "-o", "name"];
    if !guest.kubectl_command(&args).run()?.ok()?.trim().is_empty() {
        found.push(namespace);
    }
    if !found.is_empty() {
        return Err(Stop::Other(format!(
            "the cluster {} has {} already: it may be in use, so nothing was touched. Unset KUBECONFIG to let the demo start a cluster of its own, or remove these first (`cargo xtask down` ends what `cargo xtask up` started)",
            guest.server(),
            found.join(", ")
        )));
    }
    let node = needs_node(&guest)?;
    let tools = if node {
        let tools = Tools::ensure_only(&[Tool::Kwok], &Terminal)?;
        screen.text(&format!(
            "The nodes of this cluster are real. The story needs pods that fail on cue, so it adds a simulated node, {GUEST_NODE}, with a taint that keeps other pods away; only pods of DaemonSets that tolerate everything are pretended to run there too."
        ));
        Some(tools)
    } else {
        None
    };
    screen.text(&format!(
        "KUBECONFIG points at {}. For the demo it gets:\n\
         - the CustomResourceDefinition releaseplans.belay.dev, ClusterRole and ClusterRoleBinding belay, namespace belay-system\n\
         - webhook configurations belay.dev, for ReleasePlans only, which point at this machine ({})\n\
         - namespace {NAMESPACE} with three Deployments and a ReleasePlan\n\
         The operator runs on this machine as ServiceAccount belay-system/belay. Everything is taken away at the end.\n\
         Should this program be killed, take it away by hand:\n  \
         kubectl delete validatingwebhookconfiguration/belay.dev mutatingwebhookconfiguration/belay.dev\n  \
         kubectl -n {NAMESPACE} patch relplan shop --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'\n  \
         kubectl delete namespace {NAMESPACE} belay-system\n  \
         kubectl delete crd/releaseplans.belay.dev clusterrole/belay clusterrolebinding/belay node/{GUEST_NODE} --ignore-not-found",
        guest.server(),
        options.webhook_host,
    ));
    let binary = build(screen)?;
    let installed = guest
        .start_operator(&binary, options.webhook_host)
        .map_err(Stop::from)
        .and_then(|()| webhooks_answer(&guest, options))
        .and_then(|()| match &tools {
            Some(tools) => Ok(guest.start_node(tools.path(Tool::Kwok))?),
            None => Ok(()),
        });
    match installed {
        Ok(()) => Ok(Place::Existing {
            guest: Box::new(guest),
            node,
            binary,
        }),
        Err(stop) => {
            screen.text("Taking away what was installed.");
            clear(&guest)?;
            Err(stop)
        }
    }
}

fn build(screen: &Screen) -> Result<PathBuf, Error> {
    screen.text("Building the operator (release build).");
    cargo::build_release("belay")
}

fn reachable(guest: &Guest) -> Result<bool, Stop> {
    let args = ["get", "--raw", "/version", "--request-timeout=5s"];
    Ok(guest.kubectl_command(&args).run()?.success())
}

/// Whether a node of the demo's own is needed: what pods do in the story is
/// written in the tags of images that exist nowhere, and only simulated nodes
/// play that.
fn needs_node(guest: &Guest) -> Result<bool, Stop> {
    let query =
        r#"jsonpath={range .items[*]}{.metadata.annotations.kwok\.x-k8s\.io/node}{"\n"}{end}"#;
    let text = guest
        .kubectl_command(&["get", "nodes", "-o", query])
        .run()?
        .ok()?;
    Ok(text.is_empty() || text.lines().any(str::is_empty))
}

/// Whether the API server reaches the webhooks. Asks by a dry run.
fn webhooks_answer(guest: &Guest, options: &Options) -> Result<(), Stop> {
    let output = guest
        .kubectl_command(&["create", "--dry-run=server", "-f", "-", "-n", "default"])
        .stdin(super::manifests::PROBE)
        .run()?;
    if output.success() {
        return Ok(());
    }
    let said = output.stderr.trim();
    if said.contains("failed calling webhook") {
        return Err(Stop::Other(format!(
            "the API server of {} cannot reach the webhooks on this machine at {}: it runs elsewhere, or in a container. Give an address of this machine that it reaches with --webhook-host, or unset KUBECONFIG to let the demo start a cluster of its own. The API server said:\n{said}",
            guest.server(),
            options.webhook_host
        )));
    }
    Err(Stop::Other(format!("a valid plan was refused: {said}")))
}

fn clear(guest: &Guest) -> Result<(), Stop> {
    // While the operator still runs: plans have its finalizer.
    let delete = guest
        .kubectl_command(&[
            "delete",
            "namespace",
            NAMESPACE,
            "--ignore-not-found",
            "--timeout=90s",
        ])
        .deadline(std::time::Duration::from_secs(100))
        .run()?
        .ok();
    let uninstalled = guest.uninstall();
    let node = guest.remove_node();
    delete?;
    uninstalled?;
    Ok(node?)
}

fn kept(cluster: &Cluster) -> String {
    format!(
        "The cluster and the operator go on. Use them:\n  \
         export KUBECONFIG={}\n  \
         export PATH={}:$PATH\n  \
         kubectl -n {NAMESPACE} get deployments\n  \
         cd {} && kubectl -n {NAMESPACE} apply -f plan-1.yaml\n\
         Logs are in {}. End them with: cargo xtask down",
        cluster.kubeconfig().display(),
        local::dir().join("bin").display(),
        cluster.dir().join("demo").display(),
        cluster.logs().display(),
    )
}
