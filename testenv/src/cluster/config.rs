//! The folder of a cluster and the files that its processes read.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::net::free_port;

const NODE_STAGES: &str = include_str!("../../stages/node.yaml");
const POD_STAGES: &str = include_str!("../../stages/pod.yaml");

/// Writes are logged with their body, Secrets and tokens without it, reads
/// without one; what only tells that somebody is alive is left out.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: None
  verbs: [watch]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
  nonResourceURLs: ['/healthz*', '/livez*', '/readyz*', '/version', '/api', '/api/*', '/apis', '/apis/*', '/openapi/*']
- level: Metadata
  verbs: [get, list]
- level: Metadata
  resources:
  - {group: '', resources: [secrets, serviceaccounts/token]}
  - {group: authentication.k8s.io}
- level: Request
";

/// The files of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }
    pub(super) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }
    pub(super) fn pids(&self) -> PathBuf {
        self.root.join("pids")
    }
    /// Everything that goes away with the cluster.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }
    pub(super) fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }
    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }
    pub(super) fn pid_file(&self, process: &str) -> PathBuf {
        self.pids().join(process)
    }
    pub(super) fn kubeconfig_of(&self, process: &str) -> PathBuf {
        self.data().join(format!("{process}.kubeconfig"))
    }
    pub(super) fn tokens(&self) -> PathBuf {
        self.data().join("tokens.csv")
    }
    pub(super) fn audit_policy(&self) -> PathBuf {
        self.data().join("audit-policy.yaml")
    }
    pub(super) fn stages(&self) -> PathBuf {
        self.data().join("stages.yaml")
    }

    pub(super) fn make_dirs(&self) -> Result<(), Error> {
        for dir in [self.logs(), self.pids(), self.data()] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(Error::io("create", &dir))?;
        }
        Ok(())
    }
}

/// What the processes of a cluster must agree on. Kept in a file, so that a
/// later run can start what is missing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) api: u16,
    pub(super) controller_manager: u16,
    pub(super) scheduler: u16,
    pub(super) tokens: Tokens,
}

/// The bearer tokens of those who are not service accounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) admin: String,
    pub(super) controller_manager: String,
    pub(super) scheduler: String,
    pub(super) kwok: String,
}

impl State {
    /// The state of an earlier run in this folder, or a new one; whether it is
    /// new.
    pub(super) fn ensure(layout: &Layout) -> Result<(Self, bool), Error> {
        let path = layout.data().join("cluster.json");
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map(|state| (state, false))
                .map_err(|error| Error::Malformed {
                    path,
                    reason: error.to_string(),
                }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let state = Self {
                    etcd: free_port()?,
                    etcd_peer: free_port()?,
                    api: free_port()?,
                    controller_manager: free_port()?,
                    scheduler: free_port()?,
                    tokens: Tokens {
                        admin: token()?,
                        controller_manager: token()?,
                        scheduler: token()?,
                        kwok: token()?,
                    },
                };
                write(&path, &json!(state).to_string())?;
                Ok((state, true))
            }
            Err(error) => Err(Error::io("read", path)(error)),
        }
    }

    pub(super) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api)
    }
}

/// Writes every file that the processes read.
pub(super) fn write_files(layout: &Layout, state: &State, ca: &Path) -> Result<(), Error> {
    let tokens = &state.tokens;
    write(
        &layout.tokens(),
        &format!(
            "{},admin,admin,system:masters\n\
             {},system:kube-controller-manager,kube-controller-manager\n\
             {},system:kube-scheduler,kube-scheduler\n\
             {},kwok,kwok,system:masters\n",
            tokens.admin, tokens.controller_manager, tokens.scheduler, tokens.kwok
        ),
    )?;
    write(&layout.audit_policy(), AUDIT_POLICY)?;
    write(&layout.stages(), &stages())?;
    let ca = std::fs::read_to_string(ca).map_err(Error::io("read", ca))?;
    let server = state.server();
    for (path, user, token) in [
        (layout.kubeconfig(), "admin", &tokens.admin),
        (
            layout.kubeconfig_of("kube-controller-manager"),
            "system:kube-controller-manager",
            &tokens.controller_manager,
        ),
        (
            layout.kubeconfig_of("kube-scheduler"),
            "system:kube-scheduler",
            &tokens.scheduler,
        ),
        (layout.kubeconfig_of("kwok"), "kwok", &tokens.kwok),
    ] {
        write_kubeconfig(&path, &server, &ca, user, token)?;
    }
    Ok(())
}

/// What kwok plays.
pub(crate) fn stages() -> String {
    format!("{NODE_STAGES}---\n{POD_STAGES}")
}

/// Writes a kubeconfig with one context. JSON is YAML.
pub(crate) fn write_kubeconfig(
    path: &Path,
    server: &str,
    ca_pem: &str,
    user: &str,
    token: &str,
) -> Result<(), Error> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "belay",
        "clusters": [{"name": "belay", "cluster": {
            "server": server,
            "certificate-authority-data": base64(ca_pem.as_bytes()),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "belay", "context": {"cluster": "belay", "user": user}}],
    });
    write(path, &format!("{config:#}\n"))
}

/// Writes a kubeconfig for the cluster of another one, which has one context,
/// with a token instead of its user.
pub(crate) fn write_kubeconfig_for(
    other: &Path,
    path: &Path,
    user: &str,
    token: &str,
) -> Result<(), Error> {
    let text = std::fs::read_to_string(other).map_err(Error::io("read", other))?;
    let mut config: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Error::Malformed {
            path: other.to_owned(),
            reason: error.to_string(),
        })?;
    config["users"] = json!([{"name": user, "user": {"token": token}}]);
    config["contexts"][0]["context"]["user"] = json!(user);
    write_private(path, &format!("{config:#}\n"))
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io("write", path))
}

/// 256 bits that nobody can guess: the digest of a fresh private key.
fn token() -> Result<String, Error> {
    let digest = Sha256::digest(KeyPair::generate()?.serialize_der());
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn base64(raw: &[u8]) -> String {
    // The Kubernetes type for bytes serialises as base64.
    match json!(k8s_openapi::ByteString(raw.to_vec())) {
        serde_json::Value::String(text) => text,
        _ => String::new(),
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(Error::io("write", path))
}
