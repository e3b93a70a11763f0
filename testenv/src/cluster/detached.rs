//! What a later run knows of an earlier one: finds its processes by their pid
//! files and ends them.

use std::path::Path;
use std::time::Duration;

use super::config::Layout;
use crate::error::Error;
use crate::process::Process;

/// Stands in the command line of every process of a cluster.
pub(super) fn mark(layout: &Layout) -> String {
    layout.data().display().to_string()
}

/// Takes over what an earlier run started under this name, if it is still there.
pub(super) fn adopt(layout: &Layout, name: &str) -> Option<Process> {
    let pid = std::fs::read_to_string(layout.pid_file(name)).ok()?;
    let pid = pid.trim().parse().ok()?;
    Process::adopt(name, pid, layout.log(name), &mark(layout))
}

/// Whether a process of the cluster in this folder is there.
#[must_use]
pub fn runs(dir: &Path) -> bool {
    let Ok(root) = std::path::absolute(dir) else {
        return false;
    };
    let layout = Layout::new(&root);
    names(&layout).is_ok_and(|names| names.iter().any(|name| adopt(&layout, name).is_some()))
}

/// Ends the detached cluster in `dir`, also one that never came up fully, and
/// waits until every process is gone. Logs stay. Returns what was ended.
///
/// # Errors
/// When the folder cannot be read or cleared.
pub fn down(dir: &Path) -> Result<Vec<String>, Error> {
    let root = std::path::absolute(dir).map_err(Error::io("find", dir))?;
    let layout = Layout::new(&root);
    let names = names(&layout)?;
    // What uses the API server ends before it does; etcd ends last.
    let rank = |name: &str| match name {
        "etcd" => 2,
        "kube-apiserver" => 1,
        _ => 0,
    };
    let mut ended = Vec::new();
    for round in 0..=2 {
        let mut processes: Vec<Process> = names
            .iter()
            .filter(|name| rank(name) == round)
            .filter_map(|name| adopt(&layout, name))
            .collect();
        for process in &mut processes {
            process.signal(rustix::process::Signal::TERM);
        }
        for process in &mut processes {
            process.stop(Duration::from_secs(10));
            ended.push(process.name().to_owned());
        }
    }
    for path in [layout.pids(), layout.data()] {
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
    }
    let _ = std::fs::remove_file(layout.kubeconfig());
    Ok(ended)
}

/// The processes that an earlier run left a pid of.
fn names(layout: &Layout) -> Result<Vec<String>, Error> {
    let pids = layout.pids();
    match std::fs::read_dir(&pids) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", pids)(error)),
    }
}
