//! `up` and `down`: a control plane and the operator in the background.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_testenv::{Cluster, ClusterOptions, Operator, OperatorOptions, workspace_root};

use crate::cargo;
use crate::error::Error;
use crate::ui;

/// Where `up` keeps everything.
pub(crate) fn dir() -> PathBuf {
    workspace_root().join("target/cluster")
}

/// Starts what is missing.
pub(crate) fn up(with_operator: bool) -> Result<(), Error> {
    let dir = dir();
    ui::step("control plane");
    let cluster = Arc::new(Cluster::start(
        ClusterOptions::new().dir(&dir).detached(true),
    )?);
    cluster.tools().link_into(&dir.join("bin"))?;
    if with_operator {
        if Operator::is_running(&cluster) {
            ui::step("operator: runs already");
        } else {
            ui::step("operator");
            let binary = cargo::build_release("belay")?;
            for name in ["belay", "kubectl-belay"] {
                link(&binary, &dir.join("bin").join(name))?;
            }
            Operator::start(&cluster, &OperatorOptions::new(binary))?;
        }
    }
    ui::say(&format!(
        "export KUBECONFIG={}",
        cluster.kubeconfig().display()
    ));
    ui::say(&format!("export PATH={}:$PATH", dir.join("bin").display()));
    ui::say(&format!(
        "logs are in {}; end it with: cargo xtask down",
        cluster.logs().display()
    ));
    Ok(())
}

/// Makes `link` lead to `file`, whatever it was before.
fn link(file: &Path, link: &Path) -> Result<(), Error> {
    let io = |source| Error::Link {
        path: link.to_owned(),
        source,
    };
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(link).map_err(io)?;
    }
    std::os::unix::fs::symlink(file, link).map_err(io)
}

/// Ends everything that runs.
pub(crate) fn down() -> Result<(), Error> {
    let ended = belay_testenv::down(&dir())?;
    if ended.is_empty() {
        ui::say("nothing was running");
    } else {
        ui::say(&format!("ended {}", ended.join(", ")));
    }
    Ok(())
}
