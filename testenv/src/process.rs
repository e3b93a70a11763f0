//! One child process: started in a process group of its own with its output in
//! a log file, watched, signalled, waited for. It must not know what the
//! process is for.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::Error;

/// How often a condition is looked at that nothing announces.
pub(crate) const POLL: Duration = Duration::from_millis(25);

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) log: PathBuf,
}

/// A running (or ended) process.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    log: PathBuf,
    pid: Pid,
    /// Absent for a process that an earlier run of ours started.
    child: Option<Child>,
    /// A text that stands in the process's command line: guards against a pid
    /// that the system has given to somebody else.
    mark: String,
}

impl Process {
    /// Starts it. The terminal's Ctrl-C does not reach it (own process group):
    /// its owner decides when it ends.
    pub(crate) fn spawn(spec: &Spec, mark: &str) -> Result<Self, Error> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .map_err(Error::io("open", &spec.log))?;
        let second = log.try_clone().map_err(Error::io("open", &spec.log))?;
        let spawn_error = |source| Error::Spawn {
            name: spec.name.clone(),
            source,
        };
        let child = Command::new(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(second)
            .process_group(0)
            .spawn()
            .map_err(spawn_error)?;
        Ok(Self {
            name: spec.name.clone(),
            log: spec.log.clone(),
            pid: Pid::from_child(&child),
            child: Some(child),
            mark: mark.to_owned(),
        })
    }

    /// Takes over a process that an earlier run started, if it is still there.
    pub(crate) fn adopt(name: &str, pid: u32, log: PathBuf, mark: &str) -> Option<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        let mut found = Self {
            name: name.to_owned(),
            log,
            pid,
            child: None,
            mark: mark.to_owned(),
        };
        found.exited().is_none().then_some(found)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The exit status in words, once it has ended.
    pub(crate) fn exited(&mut self) -> Option<String> {
        if let Some(child) = &mut self.child {
            return match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.to_string()),
                Err(error) => Some(error.to_string()),
            };
        }
        let alive = command_line(self.pid()).is_some_and(|line| line.contains(&self.mark));
        (!alive).then(|| "gone".to_owned())
    }

    /// An error that shows the end of the log, if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.exited() {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: tail(&self.log, 30),
            }),
        }
    }

    /// Sends a signal to the process alone.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            // It may end between the two calls; then there is nothing to signal.
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// Kills it and whatever it started, and waits for its end.
    pub(crate) fn kill(&mut self) {
        if self.exited().is_none() {
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        self.wait(Duration::from_secs(10));
    }

    /// Asks it to end and kills it after `grace`.
    pub(crate) fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if !self.wait(grace) {
            self.kill();
        }
    }

    /// Waits for the end; whether it came in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.exited().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

/// The command line of a live process, arguments separated by blanks. Empty
/// for one that has ended but was not collected by its parent yet.
fn command_line(pid: u32) -> Option<String> {
    let proc_file = PathBuf::from(format!("/proc/{pid}/cmdline"));
    if Path::new("/proc/self/cmdline").exists() {
        let raw = std::fs::read(proc_file).ok()?;
        return Some(String::from_utf8_lossy(&raw).replace('\0', " "));
    }
    let output = Command::new("ps")
        .args(["-o", "command=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a process of this pid runs: neither gone nor merely waiting to be
/// collected by its parent.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    command_line(pid).is_some_and(|line| !line.is_empty())
}

/// The last lines of a file; says so when it is empty or cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(raw) => {
            let text = String::from_utf8_lossy(&raw);
            let all: Vec<&str> = text.lines().collect();
            let kept = &all[all.len().saturating_sub(lines)..];
            if kept.is_empty() {
                "(the log is empty)".to_owned()
            } else {
                kept.join("\n")
            }
        }
        Err(error) => format!("(the log cannot be read: {error})"),
    }
}

/// Waits until `done` says so, looking every [`POLL`].
pub(crate) fn wait_until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    let deadline = Instant::now() + limit;
    loop {
        if done()? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::Deadline {
                what: what.to_owned(),
                after: limit,
                detail: String::new(),
            });
        }
        std::thread::sleep(POLL);
    }
}
