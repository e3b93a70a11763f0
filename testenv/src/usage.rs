//! What a process uses of the machine, as Linux says in `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;

/// What a process has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, in user and system mode, of all its threads.
    pub cpu: Duration,
    /// Bytes of memory it holds now.
    pub rss: u64,
    /// The most it held at any time.
    pub peak_rss: u64,
}

impl Usage {
    /// What the process of this pid has used.
    ///
    /// # Errors
    /// When there is no such process, or no `/proc`.
    pub fn of(pid: u32) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{name}"));
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok((path, text)),
                Err(source) => Err(Error::io("read", path)(source)),
            }
        };
        let malformed = |path| Error::Malformed {
            path,
            reason: "not in the form of Linux".to_owned(),
        };
        let (stat_path, stat) = read("stat")?;
        let (status_path, status) = read("status")?;
        let ticks = rustix::param::clock_ticks_per_second();
        let cpu = cpu_ticks(&stat)
            .map(|used| Duration::from_millis(used * 1_000 / ticks.max(1)))
            .ok_or_else(|| malformed(stat_path))?;
        match (bytes(&status, "VmRSS:"), bytes(&status, "VmHWM:")) {
            (Some(rss), Some(peak_rss)) => Ok(Self { cpu, rss, peak_rss }),
            _ => Err(malformed(status_path)),
        }
    }
}

/// User and system time from `/proc/PID/stat`. The second field, the name in
/// brackets, may hold blanks and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn bytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_after_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 99 1 2";
        assert_eq!(cpu_ticks(stat), Some(300));
    }

    #[test]
    fn sizes_are_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(1_048_576));
        assert_eq!(bytes(status, "VmHWM:"), Some(2_097_152));
        assert_eq!(bytes(status, "VmSwap:"), None);
    }

    #[test]
    fn a_process_can_look_at_itself() {
        if std::path::Path::new("/proc/self/stat").exists() {
            let usage = Usage::of(std::process::id()).unwrap();
            assert!(usage.rss > 0 && usage.peak_rss >= usage.rss / 2);
        }
    }
}
