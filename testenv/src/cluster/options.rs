//! How a cluster is started.

use std::path::PathBuf;

/// How to start a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterOptions {
    pub(super) audit: bool,
    pub(super) dir: Option<PathBuf>,
    pub(super) detached: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            audit: true,
            dir: None,
            detached: false,
        }
    }
}

impl ClusterOptions {
    /// With audit log, in a temporary folder, owned.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the API server writes an audit log (yes unless told).
    #[must_use]
    pub const fn audit(mut self, audit: bool) -> Self {
        self.audit = audit;
        self
    }

    /// Keeps everything in this folder instead of a temporary one. A cluster
    /// that is there already is completed, not replaced.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// The cluster goes on after its owner, until [`crate::down`].
    #[must_use]
    pub const fn detached(mut self, detached: bool) -> Self {
        self.detached = detached;
        self
    }
}
