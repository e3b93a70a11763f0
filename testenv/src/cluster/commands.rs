//! The command line of each process of the control plane.

use std::path::Path;

use super::config::{Layout, State};
use crate::pki::Pki;
use crate::process::Spec;
use crate::tools::{Tool, Tools};

/// Addresses of pods: kwok's default range runs dry after 254 pods.
pub(crate) const POD_CIDR: &str = "10.64.0.0/12";

pub(super) struct Commands<'a> {
    pub(super) layout: &'a Layout,
    pub(super) state: &'a State,
    pub(super) pki: &'a Pki,
    pub(super) tools: &'a Tools,
    pub(super) audit: bool,
}

impl Commands<'_> {
    /// How to run this tool; `None` for one that is not a process.
    pub(super) fn spec(&self, tool: Tool) -> Option<Spec> {
        let args = match tool {
            Tool::Etcd => self.etcd(),
            Tool::ApiServer => self.api_server(),
            Tool::ControllerManager => self.controller_manager(),
            Tool::Scheduler => self.scheduler(),
            Tool::Kwok => self.kwok(),
            Tool::Kubectl => return None,
        };
        Some(Spec {
            name: tool.binary().to_owned(),
            program: self.tools.path(tool).to_owned(),
            args,
            env: Vec::new(),
            log: self.layout.log(tool.binary()),
        })
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.state.etcd);
        let peer = format!("http://127.0.0.1:{}", self.state.etcd_peer);
        vec![
            path("--data-dir=", &self.layout.data().join("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // The data goes away with the cluster.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.state.etcd),
            format!("--secure-port={}", self.state.api),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // A loopback address is not a valid endpoint of a Service.
            "--endpoint-reconciler-type=none".to_owned(),
            path("--cert-dir=", &self.layout.data()),
            path("--tls-cert-file=", &self.pki.cert),
            path("--tls-private-key-file=", &self.pki.key),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            path("--service-account-key-file=", &self.pki.sa_public),
            path("--service-account-signing-key-file=", &self.pki.sa_key),
            path("--token-auth-file=", &self.layout.tokens()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if self.audit {
            args.extend([
                path("--audit-policy-file=", &self.layout.audit_policy()),
                path("--audit-log-path=", &self.layout.audit_log()),
                "--audit-log-mode=blocking".to_owned(),
                // In MB; a rotated log would hide what tests look for.
                "--audit-log-maxsize=100000".to_owned(),
            ]);
        }
        args
    }

    fn controller_manager(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Tool::ControllerManager),
            path("--service-account-private-key-file=", &self.pki.sa_key),
            path("--root-ca-file=", &self.pki.ca),
            // Each controller acts as its own account, as in real clusters, so
            // that the audit log tells them apart.
            "--use-service-account-credentials=true".to_owned(),
            "--leader-elect=false".to_owned(),
            path("--cert-dir=", &self.layout.data()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.state.controller_manager),
            // Tests make many objects at once and should not wait for a
            // limit that is meant to spare large clusters.
            "--kube-api-qps=300".to_owned(),
            "--kube-api-burst=600".to_owned(),
        ]
    }

    fn scheduler(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Tool::Scheduler),
            "--leader-elect=false".to_owned(),
            path("--cert-dir=", &self.layout.data()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.state.scheduler),
        ]
    }

    fn kwok(&self) -> Vec<String> {
        vec![
            self.kubeconfig(Tool::Kwok),
            path("--config=", &self.layout.stages()),
            "--manage-all-nodes=true".to_owned(),
            format!("--cidr={POD_CIDR}"),
            "--node-ip=10.0.0.1".to_owned(),
            // The heartbeat stage is the slow one of a node with a lease;
            // without a lease the node would be lost after a minute.
            "--node-lease-duration-seconds=40".to_owned(),
        ]
    }

    fn kubeconfig(&self, tool: Tool) -> String {
        path("--kubeconfig=", &self.layout.kubeconfig_of(tool.binary()))
    }
}

fn path(flag: &str, path: &Path) -> String {
    format!("{flag}{}", path.display())
}
