//! A real Kubernetes control plane for development and tests.
//!
//! [`Cluster::start`] runs etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler and kwok (which plays one node and its pods) as processes of
//! this machine: no containers, no root. [`Tools::ensure`] finds their binaries
//! or builds them once per machine from the Go modules under `testenv/go`.
//! [`Operator`] runs the operator against a cluster as its own ServiceAccount.
//!
//! Everything a process starts here ends with that process, also when it is
//! killed. This crate knows nothing of what the operator decides: it must not
//! depend on the operator's library.
//!
//! Environment:
//! * `KUBEBUILDER_ASSETS`: a folder with binaries to use instead of building.
//! * `BELAY_KEEP`: when set, a stopped cluster keeps its folder (logs, audit
//!   log, etcd data) and says where it is. The processes end all the same.

mod audit;
mod cluster;
mod error;
mod guest;
mod kubectl;
mod net;
mod operator;
mod pki;
mod process;
mod progress;
mod settings;
mod tools;
mod usage;
mod watchdog;

pub use audit::{AuditEntry, AuditFilter, AuditLog};
pub use cluster::{Cluster, ClusterOptions, client_for, down, runs};
pub use error::Error;
pub use guest::{GUEST_NODE, GUEST_TAINT, Guest};
pub use kubectl::{KubectlCommand, KubectlOutput};
pub use net::{HttpReply, free_port, http_get};
pub use operator::{Operator, OperatorOptions};
pub use process::is_alive;
pub use progress::{Progress, Silent, Terminal};
pub use settings::{cache_dir, workspace_root};
pub use tools::{Tool, Tools, cargo_tool};
pub use usage::Usage;
