//! Decides where each binary of the control plane comes from: the folder in
//! `KUBEBUILDER_ASSETS`, the user's cache, PATH, and at last a build from the
//! Go modules under `testenv/go` into the cache. A binary from elsewhere than
//! the cache is used only when it reports the pinned minor version or a newer
//! one.

mod build;
mod version;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use build::cargo_tool;

use crate::error::Error;
use crate::progress::{Progress, human};
use crate::settings;

/// A binary that a cluster needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// Deployments, ReplicaSets, garbage collection and the like.
    ControllerManager,
    /// Binds pods to the node.
    Scheduler,
    /// The command line.
    Kubectl,
    /// Plays the node.
    Kwok,
}

impl Tool {
    /// All of them, in the order in which they are built: the longest first
    /// would leave a person without a sign of progress for too long.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kwok,
    ];

    /// The file name of the binary.
    #[must_use]
    pub const fn binary(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
        }
    }
}

/// The binaries that were asked for, all present.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<Tool, PathBuf>,
}

impl Tools {
    /// Finds or builds every binary. A first build on a machine takes about
    /// 15 minutes on two cores; `progress` hears of it. Builds of several
    /// processes wait for each other.
    ///
    /// # Errors
    /// When a binary is missing and Go is not installed, or a build fails.
    pub fn ensure(progress: &dyn Progress) -> Result<Self, Error> {
        Self::ensure_only(&Tool::ALL, progress)
    }

    /// Finds or builds some of the binaries.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure_only(tools: &[Tool], progress: &dyn Progress) -> Result<Self, Error> {
        let cache = build::cache_bin()?;
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for tool in tools.iter().copied() {
            match find(tool, &cache, progress) {
                Some(path) => {
                    paths.insert(tool, path);
                }
                None => missing.push(tool),
            }
        }
        if !missing.is_empty() {
            let _lock = lock(&cache, progress)?;
            build_missing(&missing, &cache, progress)?;
            paths.extend(
                missing
                    .iter()
                    .map(|tool| (*tool, cache.join(tool.binary()))),
            );
        }
        Ok(Self { paths })
    }

    /// The binary of a tool.
    #[must_use]
    pub fn path(&self, tool: Tool) -> &Path {
        // Nobody asks for what was not ensured; if so, PATH may have it.
        self.paths
            .get(&tool)
            .map_or(Path::new(tool.binary()), PathBuf::as_path)
    }

    /// Makes `dir` hold a link to every binary.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn link_into(&self, dir: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        for (tool, path) in &self.paths {
            let link = dir.join(tool.binary());
            if std::fs::read_link(&link).is_ok_and(|current| current == *path) {
                continue;
            }
            if link.symlink_metadata().is_ok() {
                std::fs::remove_file(&link).map_err(Error::io("replace", &link))?;
            }
            std::os::unix::fs::symlink(path, &link).map_err(Error::io("create", &link))?;
        }
        Ok(())
    }
}

fn find(tool: Tool, cache: &Path, progress: &dyn Progress) -> Option<PathBuf> {
    if let Some(assets) = settings::var("KUBEBUILDER_ASSETS") {
        let candidate = Path::new(&assets).join(tool.binary());
        if candidate.is_file() {
            match version::check(tool, &candidate) {
                Ok(()) => return std::path::absolute(candidate).ok(),
                Err(reason) => progress.line(&format!(
                    "not using {} of KUBEBUILDER_ASSETS: {reason}",
                    tool.binary()
                )),
            }
        }
    }
    // The cache holds exactly the pinned version and costs nothing to trust,
    // so PATH is worth a look only while the cache is empty.
    let cached = cache.join(tool.binary());
    if cached.is_file() {
        return Some(cached);
    }
    let path = settings::var("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(tool.binary()))
        .find(|candidate| candidate.is_file() && version::check(tool, candidate).is_ok())
}

fn build_missing(missing: &[Tool], cache: &Path, progress: &dyn Progress) -> Result<(), Error> {
    let todo: Vec<Tool> = missing
        .iter()
        .copied()
        .filter(|tool| !cache.join(tool.binary()).is_file())
        .collect();
    for (index, tool) in todo.iter().enumerate() {
        progress.line(&format!(
            "building {} ({} of {}), {}, once per machine",
            tool.binary(),
            index + 1,
            todo.len(),
            build::estimate(*tool),
        ));
        let took = build::go_build(*tool, cache, progress)?;
        progress.line(&format!("built {} in {}", tool.binary(), human(took)));
    }
    Ok(())
}

/// Held while binaries are built; released when dropped.
pub(crate) fn lock(dir: &Path, progress: &dyn Progress) -> Result<File, Error> {
    std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let path = dir.join(".lock");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    if file.try_lock().is_err() {
        progress.line("another process is building the tools; waiting for it");
        file.lock().map_err(Error::io("lock", &path))?;
    }
    Ok(file)
}
