//! `up` and `down`: a control plane and the operator in the background.

use std::path::PathBuf;
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
