//! What the operator does when there is nothing to do, told by the audit log.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use belay::api::ReleasePlanStatus;
use belay_testenv::AuditFilter;
use k8s_openapi::jiff::Timestamp;

use super::{SOON, Scene};

/// How long the operator is watched for loops.
const WINDOW: Duration = Duration::from_secs(3);
/// Passes over one plan within the window that can still have a reason: looks
/// that come more and more rarely after a stall, and echoes of own writes.
const PASSES: usize = 8;
/// Requests for each plan within the window.
const REQUESTS: usize = 30;
/// Without a write for so long, nothing is on its way any more. More than the
/// five seconds for which new content is awaited at most.
const REST: Duration = Duration::from_secs(6);

/// The time that passes while nothing is waited for. That it passes is what
/// the test is about.
pub async fn pass_time(time: Duration) {
    tokio::time::sleep(time).await;
}

/// To be compared with times that the operator or the API server wrote.
#[allow(
    clippy::disallowed_methods,
    reason = "compared with times that others wrote"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

impl Scene {
    fn of_operator(&self) -> AuditFilter {
        AuditFilter::new()
            .service_account("belay-system", "belay")
            .namespace(&self.namespace)
    }

    /// Checks for a window of three seconds that the operator is in no loop:
    /// no plan is looked at again and again, and its log has no error of this
    /// namespace.
    pub async fn assert_calm(&self) {
        let before = self.audited(self.of_operator()).await.len();
        pass_time(WINDOW).await;
        let requests = self.audited(self.of_operator()).await.split_off(before);
        let mut passes = BTreeMap::<&str, usize>::new();
        for entry in &requests {
            if entry.verb == "get" && entry.resource == "releaseplans" {
                *passes.entry(&entry.name).or_default() += 1;
            }
        }
        assert!(
            passes.values().all(|passes| *passes <= PASSES),
            "passes in {WINDOW:?} of rest: {passes:?}"
        );
        let most = REQUESTS * passes.len().max(1);
        assert!(
            requests.len() <= most,
            "{} requests in {WINDOW:?} of rest",
            requests.len()
        );
        let log = std::fs::read_to_string(self.cluster.logs().join("operator.log")).unwrap();
        let bad: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&self.namespace))
            .filter(|line| line.contains("\"ERROR\"") || line.contains("panic"))
            .collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }

    /// Waits until the operator has written nothing in the namespace for six
    /// seconds from now on, and tells how the plan is then.
    pub async fn at_rest(&self, plan: &str) -> ReleasePlanStatus {
        self.unwritten_for(REST).await;
        let plan = self.plans().get(plan).await.unwrap();
        plan.status.unwrap_or_default()
    }

    /// Waits until the operator has written nothing in the namespace for so
    /// long, from now on.
    pub async fn unwritten_for(&self, window: Duration) {
        let (began, deadline) = (now(), Instant::now() + SOON);
        loop {
            let writes = self.writes().await;
            let last = writes.last().map_or(began, |w| w.completed.max(began));
            let quiet = Duration::try_from(now().duration_since(last)).unwrap_or_default();
            let Some(left) = window.checked_sub(quiet) else {
                return;
            };
            assert!(
                Instant::now() < deadline,
                "the operator does not come to rest: {:#?}",
                writes.last()
            );
            pass_time(left.max(Duration::from_millis(50))).await;
        }
    }

    /// Checks that the operator wrote nothing to Deployments since there were so
    /// many writes to them.
    pub async fn assert_no_deployment_written_since(&self, before: usize) {
        let after = self.writes_to_deployments().await;
        assert_eq!(after.len(), before, "{:#?}", &after[before..]);
    }

    /// Makes the operator look at the plan, and answers when it began to.
    async fn look(&self, plan: &str, pass: u32) -> Timestamp {
        let stamp = format!("belay-test/pass={pass}");
        self.kubectl(&["annotate", "--overwrite", "relplan", plan, &stamp])
            .await;
        let of_plan = AuditFilter::new()
            .resource("releaseplans")
            .namespace(&self.namespace)
            .name(plan);
        let provoked = self.audited(of_plan.user("admin").writes()).await;
        // The event may be there before the write is answered.
        let provoked = provoked.last().map(|entry| entry.received);
        // A pass takes the plan from the cache and reads its workloads.
        let reads = AuditFilter::new()
            .resource("deployments")
            .namespace(&self.namespace)
            .service_account("belay-system", "belay")
            .verbs(["get"]);
        let deadline = Instant::now() + SOON;
        loop {
            let reads = self.audited(reads.clone()).await;
            let after = reads.iter().find(|read| Some(read.received) > provoked);
            if let Some(read) = after {
                return read.received;
            }
            assert!(Instant::now() < deadline, "the operator looks at the plan");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Checks that the operator writes nothing while `passes` full looks at the
    /// plan are made, each provoked by an event.
    pub async fn assert_quiet(&self, plan: &str, passes: u32) {
        // Once it looks again, it is done with what it was doing.
        let first = self.look(plan, 0).await;
        let started = self.plans().get(plan).await.unwrap().status;
        // The pass after the last one begins when that one is over.
        for pass in 1..=passes {
            self.look(plan, pass).await;
        }
        let mut writes = self.writes().await;
        writes.retain(|write| write.received > first);
        assert!(writes.is_empty(), "writes: {writes:#?}");
        assert_eq!(self.plans().get(plan).await.unwrap().status, started);
    }
}
