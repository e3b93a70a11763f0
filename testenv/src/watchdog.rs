//! Ends child processes also when their owner is killed.
//!
//! A small shell process holds the reading end of a pipe; this process holds
//! the only writing end. Whatever ends this process closes the pipe, and the
//! shell then kills what it was told about. No signal handler, no unsafe code.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

use crate::error::Error;

const SCRIPT: &str = include_str!("watchdog.sh");

/// The guard of one owner's processes.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Watchdog {
    /// Starts it, in a process group of its own so that Ctrl-C spares it.
    pub(crate) fn start() -> Result<Self, Error> {
        let spawn_error = |source| Error::Spawn {
            name: "the watchdog (/bin/sh)".to_owned(),
            source,
        };
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "belay-watchdog"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(spawn_error)?;
        let pipe = child.stdin.take();
        Ok(Self {
            child,
            pipe: Mutex::new(pipe),
        })
    }

    /// Guards a process (the leader of its process group).
    pub(crate) fn add(&self, pid: u32) {
        self.tell(&format!("add {pid}\n"));
    }

    /// Lets go of a process that has ended, before its pid can be reused.
    pub(crate) fn remove(&self, pid: u32) {
        self.tell(&format!("del {pid}\n"));
    }

    /// Removes this folder at the end.
    pub(crate) fn remove_dir_at_end(&self, dir: &Path) {
        self.tell(&format!("dir {}\n", dir.display()));
    }

    fn tell(&self, line: &str) {
        let mut pipe = self
            .pipe
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // If somebody killed the shell, ordinary Drop still does the work.
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        let _ = self.child.wait();
    }
}
