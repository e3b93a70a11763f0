//! The edge to the environment: variables and well-known folders.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;

#[allow(
    clippy::disallowed_methods,
    reason = "the test environment has no command line of its own; this is its only reader of variables"
)]
pub(crate) fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether stopped clusters keep their folder (`BELAY_KEEP`).
pub(crate) fn keep() -> bool {
    var("BELAY_KEEP").is_some()
}

/// The root of the workspace that this crate was built in.
#[must_use]
pub fn workspace_root() -> &'static Path {
    let testenv = Path::new(env!("CARGO_MANIFEST_DIR"));
    testenv.parent().unwrap_or(testenv)
}

/// The user's cache folder for Belay, shared by every clone.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let base = match var("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(var("HOME").ok_or(Error::NoCacheDir)?).join(".cache"),
    };
    Ok(base.join("belay"))
}
