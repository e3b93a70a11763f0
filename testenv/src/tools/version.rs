//! Reads what version a binary says it has and decides whether it will do.

use std::path::Path;
use std::process::Command;

use super::Tool;

/// The oldest version of each tool that will do: major and minor.
const fn wanted(tool: Tool) -> (u32, u32) {
    match tool {
        Tool::Etcd => (3, 6),
        Tool::Kwok => (0, 8),
        Tool::ApiServer | Tool::ControllerManager | Tool::Scheduler | Tool::Kubectl => (1, 37),
    }
}

/// Whether this binary can be used; the reason if not.
pub(super) fn check(tool: Tool, binary: &Path) -> Result<(), String> {
    let args: &[&str] = match tool {
        Tool::Kubectl => &["version", "--client"],
        Tool::Etcd | Tool::ApiServer | Tool::ControllerManager | Tool::Scheduler | Tool::Kwok => {
            &["--version"]
        }
    };
    let output = Command::new(binary)
        .args(args)
        .output()
        .map_err(|error| format!("it does not run: {error}"))?;
    judge(tool, &String::from_utf8_lossy(&output.stdout))
}

fn judge(tool: Tool, answer: &str) -> Result<(), String> {
    let (major, minor) = wanted(tool);
    let found = version_in(answer).ok_or_else(|| {
        let first = answer.lines().next().unwrap_or_default();
        format!("its version is not a plain release: {first:?}")
    })?;
    if found >= (major, minor) {
        Ok(())
    } else {
        Err(format!(
            "it is version {}.{}, and {major}.{minor} or newer is needed",
            found.0, found.1
        ))
    }
}

/// The first word of the form `1.2.3` or `v1.2.3`. A suffix, as in
/// `v1.32.4-dispatcher`, marks a wrapper or a build of somebody's own.
fn version_in(answer: &str) -> Option<(u32, u32)> {
    let word = answer
        .split_whitespace()
        .map(|word| word.strip_prefix('v').unwrap_or(word))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))?;
    let mut parts = word.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(_)), None) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_and_newer_versions_will_do() {
        assert_eq!(judge(Tool::ApiServer, "Kubernetes v1.37.2\n"), Ok(()));
        assert_eq!(judge(Tool::Scheduler, "Kubernetes v1.40.0\n"), Ok(()));
        assert_eq!(
            judge(Tool::Etcd, "etcd Version: 3.7.0\nGit SHA: x\n"),
            Ok(())
        );
        assert_eq!(
            judge(Tool::Kwok, "kwok version 0.8.0 go1.26 (linux/amd64)"),
            Ok(())
        );
    }

    #[test]
    fn older_versions_will_not() {
        let reason = judge(Tool::ApiServer, "Kubernetes v1.31.0\n").expect_err("too old");
        assert_eq!(reason, "it is version 1.31, and 1.37 or newer is needed");
    }

    #[test]
    fn a_wrapper_of_a_cloud_sdk_will_not() {
        let answer = "Client Version: v1.37.4-dispatcher\nKustomize Version: v5.5.0\n";
        assert!(judge(Tool::Kubectl, answer).is_err());
    }

    #[test]
    fn a_build_without_a_version_will_not() {
        assert!(judge(Tool::ApiServer, "Kubernetes v0.0.0-master+$Format:%H$\n").is_err());
        assert!(judge(Tool::Kwok, "").is_err());
    }
}
