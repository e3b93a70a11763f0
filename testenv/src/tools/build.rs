//! Builds tools into the user's cache. A build goes to a temporary name and is
//! renamed when complete, so that a half-built binary is never found.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::Tool;
use crate::error::Error;
use crate::process::{POLL, tail};
use crate::progress::{Progress, human};
use crate::settings;

const CONTROL_PLANE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../go/controlplane/go.mod")),
    ("go.sum", include_str!("../../go/controlplane/go.sum")),
    (
        "etcd/main.go",
        include_str!("../../go/controlplane/etcd/main.go"),
    ),
];
const KWOK: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../go/kwok/go.mod")),
    ("go.sum", include_str!("../../go/kwok/go.sum")),
];

/// Without these the servers report a version that kubectl cannot parse.
const CONTROL_PLANE_LDFLAGS: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.37.2 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=37 \
    -X k8s.io/component-base/version.gitTreeState=clean \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.37.2";
const KWOK_LDFLAGS: &str = "-s -w";

/// No build of ours comes near this on any machine; it ends one that hangs.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

struct Recipe {
    /// The folder under `testenv/go`.
    module: &'static str,
    files: &'static [(&'static str, &'static str)],
    package: String,
    ldflags: &'static str,
}

fn recipe(tool: Tool) -> Recipe {
    let (module, files, ldflags) = match tool {
        Tool::Kwok => ("kwok", KWOK, KWOK_LDFLAGS),
        Tool::Etcd
        | Tool::ApiServer
        | Tool::ControllerManager
        | Tool::Scheduler
        | Tool::Kubectl => ("controlplane", CONTROL_PLANE, CONTROL_PLANE_LDFLAGS),
    };
    let package = match tool {
        Tool::Etcd => "./etcd".to_owned(),
        Tool::Kwok => "sigs.k8s.io/kwok/cmd/kwok".to_owned(),
        Tool::ApiServer | Tool::ControllerManager | Tool::Scheduler | Tool::Kubectl => {
            format!("k8s.io/kubernetes/cmd/{}", tool.binary())
        }
    };
    Recipe {
        module,
        files,
        package,
        ldflags,
    }
}

/// About how long a cold build takes on two cores.
pub(super) const fn estimate(tool: Tool) -> &'static str {
    match tool {
        Tool::Etcd | Tool::Scheduler => "less than a minute",
        Tool::ApiServer => "about 8 minutes",
        Tool::ControllerManager | Tool::Kwok => "about 3 minutes",
        Tool::Kubectl => "about 1 minute",
    }
}

/// The folder of this exact set of sources and flags.
pub(super) fn cache_bin() -> Result<PathBuf, Error> {
    let mut hash = Sha256::new();
    for part in [std::env::consts::OS, std::env::consts::ARCH] {
        hash.update(part);
    }
    for (files, flags) in [(CONTROL_PLANE, CONTROL_PLANE_LDFLAGS), (KWOK, KWOK_LDFLAGS)] {
        for (name, text) in files {
            hash.update(name);
            hash.update(text);
        }
        hash.update(flags);
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(settings::cache_dir()?
        .join("tools")
        .join(digest)
        .join("bin"))
}

pub(super) fn go_build(tool: Tool, bin: &Path, progress: &dyn Progress) -> Result<Duration, Error> {
    let recipe = recipe(tool);
    let module = settings::workspace_root()
        .join("testenv/go")
        .join(recipe.module);
    for (name, text) in recipe.files {
        // The folder's name stands for what was compiled in here.
        let path = module.join(name);
        let found = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        if found != *text {
            return Err(Error::Malformed {
                path,
                reason: "it changed after this program was compiled".to_owned(),
            });
        }
    }
    let unfinished = bin.join(format!(".{}.new", tool.binary()));
    let mut command = Command::new("go");
    command
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false")
        .args(["build", "-trimpath", "-ldflags", recipe.ldflags, "-o"])
        .arg(&unfinished)
        .arg(&recipe.package);
    let job = Job {
        what: tool.binary().to_owned(),
        toolchain: "go",
        hint: "Go 1.26 or newer",
    };
    let took = run(command, &job, bin, progress)?;
    let finished = bin.join(tool.binary());
    std::fs::rename(&unfinished, &finished).map_err(Error::io("create", &finished))?;
    Ok(took)
}

/// Installs a pinned Rust tool into the cache, once per machine, and returns
/// its binary.
///
/// # Errors
/// When it cannot be built.
pub fn cargo_tool(name: &str, version: &str, progress: &dyn Progress) -> Result<PathBuf, Error> {
    let root = settings::cache_dir()?
        .join("cargo")
        .join(format!("{name}-{version}"));
    let binary = root.join("bin").join(name);
    if binary.is_file() {
        return Ok(binary);
    }
    let _lock = super::lock(&root, progress)?;
    if binary.is_file() {
        return Ok(binary);
    }
    progress.line(&format!(
        "building {name} {version}, some minutes, once per machine"
    ));
    let mut command = Command::new("cargo");
    command
        .args([
            "install",
            "--locked",
            "--quiet",
            name,
            "--version",
            version,
            "--root",
        ])
        .arg(&root)
        // The build must not land in the target folder of the caller.
        .env("CARGO_TARGET_DIR", root.join("target"));
    let job = Job {
        what: name.to_owned(),
        toolchain: "cargo",
        hint: "Rust",
    };
    let took = run(command, &job, &root, progress)?;
    // Several hundred megabytes of intermediate files.
    let _ = std::fs::remove_dir_all(root.join("target"));
    progress.line(&format!("built {name} in {}", human(took)));
    Ok(binary)
}

struct Job {
    what: String,
    toolchain: &'static str,
    hint: &'static str,
}

fn run(
    mut command: Command,
    job: &Job,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<Duration, Error> {
    let log_path = dir.join(format!("{}.log", job.what));
    let log = File::create(&log_path).map_err(Error::io("create", &log_path))?;
    let second = log.try_clone().map_err(Error::io("open", &log_path))?;
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(second)
        .spawn()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::MissingToolchain {
                tool: job.toolchain,
                what: job.what.clone(),
                hint: job.hint,
            },
            _ => Error::Spawn {
                name: job.toolchain.to_owned(),
                source,
            },
        })?;
    let mut next_sign = SIGN_OF_LIFE;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait for", &log_path))? {
            break status;
        }
        let spent = start.elapsed();
        if spent >= BUILD_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Deadline {
                what: format!("the build of {}", job.what),
                after: BUILD_LIMIT,
                detail: tail(&log_path, 30),
            });
        }
        if spent >= next_sign {
            progress.line(&format!("still building {}, {}", job.what, human(spent)));
            next_sign += SIGN_OF_LIFE;
        }
        std::thread::sleep(POLL);
    };
    if status.success() {
        Ok(start.elapsed())
    } else {
        Err(Error::Build {
            what: job.what.clone(),
            status: status.to_string(),
            output: tail(&log_path, 30),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    fn job(toolchain: &'static str) -> Job {
        Job {
            what: "etcd".to_owned(),
            toolchain,
            hint: "Go 1.26 or newer",
        }
    }

    #[test]
    fn a_missing_toolchain_is_named_with_what_to_install() {
        let dir = tempfile::tempdir().expect("a folder");
        let command = Command::new(dir.path().join("go"));
        let error = run(command, &job("go"), dir.path(), &Silent).expect_err("no go");
        assert_eq!(
            error.to_string(),
            "go is needed to build etcd and is not on PATH: install Go 1.26 or newer, \
             or set KUBEBUILDER_ASSETS to a folder that has the binaries"
        );
    }

    #[test]
    fn a_failed_build_shows_what_the_compiler_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo no such package >&2; exit 2"]);
        let error = run(command, &job("go"), dir.path(), &Silent).expect_err("failed");
        assert!(error.to_string().contains("no such package"), "{error}");
    }
}
