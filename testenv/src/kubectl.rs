//! Runs kubectl with a deadline.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::process::POLL;

/// What kubectl said.
#[derive(Debug, Clone)]
pub struct KubectlOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error: errors and admission warnings.
    pub stderr: String,
    args: String,
}

impl KubectlOutput {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Standard output of a successful run.
    ///
    /// # Errors
    /// When it failed; the error shows what it said.
    pub fn ok(self) -> Result<String, Error> {
        if self.success() {
            Ok(self.stdout)
        } else {
            Err(Error::Kubectl {
                args: self.args,
                status: self.status.to_string(),
                stderr: self.stderr,
            })
        }
    }
}

/// One call of kubectl, still to be made.
#[derive(Debug)]
pub struct KubectlCommand {
    command: Command,
    args: String,
    stdin: Option<String>,
    deadline: Duration,
}

impl KubectlCommand {
    /// A call with this binary and kubeconfig. The discovery cache is kept
    /// beside the kubeconfig, so that clusters do not share one.
    #[must_use]
    pub fn new(binary: &Path, kubeconfig: &Path, args: &[&str]) -> Self {
        let mut call = Self::as_found(binary, args);
        call.command.env("KUBECONFIG", kubeconfig);
        if let Some(dir) = kubeconfig.parent() {
            call.command.env("KUBECACHEDIR", dir.join("kubectl-cache"));
        }
        call
    }

    /// A call with the kubeconfig that kubectl finds by itself.
    #[must_use]
    pub fn as_found(binary: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.args(args);
        Self {
            command,
            args: args.join(" "),
            stdin: None,
            deadline: Duration::from_secs(60),
        }
    }

    /// Text for its standard input.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Runs it in this folder, so that files can be named shortly.
    #[must_use]
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// How long it may take (60 s unless told).
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it to its end. A kubectl that fails is an answer, not an error:
    /// see [`KubectlOutput::ok`].
    ///
    /// # Errors
    /// When it cannot be started or does not end in time (it is killed then).
    pub fn run(mut self) -> Result<KubectlOutput, Error> {
        let spawn_error = |source| Error::Spawn {
            name: "kubectl".to_owned(),
            source,
        };
        let mut child = self
            .command
            .stdin(match self.stdin {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(spawn_error)?;
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), self.stdin.take()) {
            // kubectl may end without reading everything; its status tells.
            thread::spawn(move || pipe.write_all(text.as_bytes()));
        }
        let end = Instant::now() + self.deadline;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(spawn_error)? {
                break status;
            }
            if Instant::now() >= end {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::Deadline {
                    what: format!("kubectl {}", self.args),
                    after: self.deadline,
                    detail: collect(stderr),
                });
            }
            thread::sleep(POLL);
        };
        Ok(KubectlOutput {
            status,
            stdout: collect(stdout),
            stderr: collect(stderr),
            args: self.args,
        })
    }
}

type Reader = thread::JoinHandle<String>;

fn read_all(mut pipe: impl Read + Send + 'static) -> Reader {
    thread::spawn(move || {
        let mut raw = Vec::new();
        // What came before an error is still worth showing.
        let _ = pipe.read_to_end(&mut raw);
        String::from_utf8_lossy(&raw).into_owned()
    })
}

fn collect(reader: Option<Reader>) -> String {
    reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default()
}
