//! Counts and times between two moments: what the operator asked for (audit
//! log), how often it reconciled (`/metrics`), what it used (`/proc`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use belay_testenv::{AuditEntry, AuditLog, Cluster, Operator, Usage};
use serde_json::Value;

use crate::error::Error;
use crate::metrics;

/// What the operator writes, as far as it is told apart.
pub(super) const RESOURCES: [&str; 5] = [
    "releaseplans",
    "releaseplans/status",
    "deployments",
    "controllerrevisions",
    "events",
];

const USER: &str = "system:serviceaccount:belay-system:belay";
const RECONCILES: &str = "belay_reconcile_duration_seconds_count";
/// An operator that has not reconciled for this long is at rest.
const REST: Duration = Duration::from_secs(2);
/// One that does not come to rest is measured all the same.
const REST_LIMIT: Duration = Duration::from_secs(30);
/// The default of `spec.failFast.restarts`.
const RESTARTS: i64 = 3;

/// A measurement that goes on.
pub(super) struct Meter<'a> {
    cluster: &'a Cluster,
    operator: &'a Operator,
    log: AuditLog,
    reconciles: u64,
    usage: Usage,
    started: Instant,
}

impl<'a> Meter<'a> {
    pub(super) fn start(cluster: &'a Cluster, operator: &'a Operator) -> Result<Self, Error> {
        cluster.settle_audit()?;
        Ok(Self {
            log: cluster.audit().from_here(),
            reconciles: reconciles(operator)?,
            usage: Usage::of(operator.pid()?)?,
            started: Instant::now(),
            cluster,
            operator,
        })
    }

    /// All requests since the start, of everybody.
    pub(super) fn entries(&self) -> Result<Vec<AuditEntry>, Error> {
        self.cluster.settle_audit()?;
        Ok(self.log.entries()?)
    }

    /// Ends it once the operator has come to rest: what follows the end of a
    /// release is part of its cost, but not of its time.
    pub(super) fn stop(self) -> Result<Sample, Error> {
        let took = self.started.elapsed();
        self.rest()?;
        Ok(Sample {
            took,
            ..self.stop_now()?
        })
    }

    /// Ends it now.
    pub(super) fn stop_now(self) -> Result<Sample, Error> {
        let took = self.started.elapsed();
        let cpu = Usage::of(self.operator.pid()?)?
            .cpu
            .saturating_sub(self.usage.cpu);
        let reconciles = reconciles(self.operator)?.saturating_sub(self.reconciles);
        let mut sample = Sample {
            took,
            cpu,
            reconciles,
            ..Sample::default()
        };
        let entries = self.entries()?;
        for entry in entries.iter().filter(|entry| entry.user == USER) {
            sample.count(entry);
        }
        Ok(sample)
    }

    fn rest(&self) -> Result<(), Error> {
        let end = Instant::now() + REST_LIMIT;
        let mut seen = (reconciles(self.operator)?, Instant::now());
        while seen.1.elapsed() < REST && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            let now = reconciles(self.operator)?;
            if now != seen.0 {
                seen = (now, Instant::now());
            }
        }
        Ok(())
    }
}

fn reconciles(operator: &Operator) -> Result<u64, Error> {
    metrics::value(&operator.metrics()?, RECONCILES)
        .ok_or_else(|| Error::NoMetric(RECONCILES.to_owned()))
}

/// What happened between two moments.
#[derive(Debug, Default)]
pub(super) struct Sample {
    took: Duration,
    cpu: Duration,
    reconciles: u64,
    writes: HashMap<String, u64>,
    dry_runs: u64,
    conflicts: u64,
    reads: u64,
}

impl Sample {
    fn count(&mut self, entry: &AuditEntry) {
        if entry.dry_run {
            self.dry_runs += 1;
        } else if entry.wrote() {
            let resource = match entry.subresource.as_str() {
                "" => entry.resource.clone(),
                sub => format!("{}/{sub}", entry.resource),
            };
            *self.writes.entry(resource).or_default() += 1;
        } else if matches!(entry.verb.as_str(), "get" | "list") {
            self.reads += 1;
        }
        if entry.code == 409 {
            self.conflicts += 1;
        }
    }

    pub(super) fn writes_per(&self, resource: &str, plans: u32) -> String {
        per(
            self.writes.get(resource).copied().unwrap_or_default(),
            plans,
        )
    }

    pub(super) fn all_writes_per(&self, plans: u32) -> String {
        per(self.writes.values().sum(), plans)
    }

    pub(super) fn dry_runs_per(&self, plans: u32) -> String {
        per(self.dry_runs, plans)
    }

    pub(super) fn conflicts_per(&self, plans: u32) -> String {
        per(self.conflicts, plans)
    }

    pub(super) fn reads_per(&self, plans: u32) -> String {
        per(self.reads, plans)
    }

    pub(super) fn reconciles_per(&self, plans: u32) -> String {
        per(self.reconciles, plans)
    }

    pub(super) fn cpu_per(&self, plans: u32) -> String {
        format!("{:.0}", self.cpu.as_secs_f64() * 1000.0 / f64::from(plans))
    }

    pub(super) fn took(&self) -> String {
        format!("{:.1}", self.took.as_secs_f64())
    }
}

fn per(count: u64, plans: u32) -> String {
    let plans = u64::from(plans.max(1));
    if count.is_multiple_of(plans) {
        return (count / plans).to_string();
    }
    let hundredths = count * 100 / plans;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// For each namespace, the time from the first pod status that fulfils failFast
/// to the operator's next write to a Deployment there.
pub(super) fn delays(entries: &[AuditEntry]) -> Vec<Duration> {
    let mut failed = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.wrote()) {
        let pods = entry.resource == "pods" && entry.subresource == "status";
        if pods
            && entry
                .request_object
                .as_ref()
                .is_some_and(|body| restarts(body) >= RESTARTS)
        {
            failed
                .entry(entry.namespace.as_str())
                .or_insert(entry.completed);
        }
    }
    let mut delays: Vec<Duration> = failed
        .iter()
        .filter_map(|(namespace, failed)| {
            let back = entries
                .iter()
                .filter(|entry| {
                    entry.wrote()
                        && entry.user == USER
                        && entry.resource == "deployments"
                        && entry.namespace == *namespace
                        && entry.completed >= *failed
                })
                .map(|entry| entry.completed)
                .min()?;
            Duration::try_from(back.duration_since(*failed)).ok()
        })
        .collect();
    delays.sort_unstable();
    delays
}

/// The most restarts that a patch of a pod's status tells of.
fn restarts(body: &Value) -> i64 {
    let statuses = body["status"]["containerStatuses"].as_array();
    let counts = statuses
        .into_iter()
        .flatten()
        .filter_map(|status| status["restartCount"].as_i64());
    counts.max().unwrap_or_default()
}

/// A percentile of sorted durations, by nearest rank.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<Duration> = (1..=20).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Some(Duration::from_millis(10)));
        assert_eq!(percentile(&values, 95), Some(Duration::from_millis(19)));
        assert_eq!(percentile(&values[..1], 95), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_share_is_shown_as_it_is() {
        assert_eq!(
            (
                per(4, 2).as_str(),
                per(5, 2).as_str(),
                per(101, 50).as_str()
            ),
            ("2", "2.50", "2.02")
        );
    }

    #[test]
    fn the_most_restarts_of_all_containers_count() {
        let body = serde_json::json!({"status": {"containerStatuses": [{"restartCount": 1}, {"restartCount": 4}]}});
        assert_eq!(restarts(&body), 4);
        assert_eq!(restarts(&serde_json::json!({})), 0);
    }
}
