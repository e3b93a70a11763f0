//! What others can see of the operator's work: every status that a plan had, and
//! what was written to Deployments.

use std::sync::{Arc, Mutex};

use belay::api::{Phase, ReleasePlanStatus, Stage, StoredPlan};
use futures::StreamExt as _;
use kube::runtime::{
    WatchStreamExt as _,
    watcher::{self, Event, watcher},
};
use tokio::task::JoinHandle;

use crate::support::{Scene, holds};

/// Every status that a plan had, in order, for as long as this is there.
pub struct Witness {
    seen: Arc<Mutex<Vec<ReleasePlanStatus>>>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Starts to watch a plan, and waits until what it is now was seen.
    pub async fn of(scene: &Scene, plan: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (first, started) = tokio::sync::oneshot::channel();
        let mut first = Some(first);
        let config = watcher::Config::default().fields(&format!("metadata.name={plan}"));
        // Without a pause after an error the task would never come to a point at
        // which it can be ended.
        let mut stream = Box::pin(watcher(scene.plans(), config).default_backoff());
        let record = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Some(event) = stream.next().await {
                let note = |plan: StoredPlan| {
                    let Some(status) = plan.status else { return };
                    let mut record = record.lock().unwrap();
                    if record.last() != Some(&status) {
                        record.push(status);
                    }
                };
                match event {
                    Ok(Event::Apply(plan) | Event::InitApply(plan)) => note(plan),
                    Ok(Event::InitDone) => {
                        if let Some(first) = first.take() {
                            let _ = first.send(());
                        }
                    }
                    Ok(Event::Init | Event::Delete(_)) | Err(_) => {}
                }
            }
        });
        tokio::time::timeout(crate::support::SOON, started)
            .await
            .expect("the plan is watched")
            .unwrap();
        Self { seen, task }
    }

    /// All that was seen so far.
    pub fn seen(&self) -> Vec<ReleasePlanStatus> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a status was seen here too, which another watch saw first.
    pub async fn saw(&self, status: &ReleasePlanStatus) {
        let seen = async {
            while !self.seen().contains(status) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::support::SOON, seen)
            .await
            .expect("the status is seen");
    }

    /// The phases that were seen, each once in a row.
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self.seen().iter().filter_map(|s| s.phase).collect();
        phases.dedup();
        phases
    }

    /// Checks that no status contradicted itself.
    pub fn assert_coherent(&self) {
        let seen = self.seen();
        assert!(!seen.is_empty(), "nothing was seen");
        for status in &seen {
            if let Some(fault) = contradiction(status) {
                panic!("{fault}: {status:#?}");
            }
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How phase, stage, step and conditions of a status contradict each other.
fn contradiction(status: &ReleasePlanStatus) -> Option<String> {
    let stage = status.release.as_ref().map(|release| release.stage);
    let step = status.step.as_deref().unwrap_or_default();
    let phase = status.phase?;
    let fits = match phase {
        Phase::RollingOut => matches!(stage, Some(Stage::Settle | Stage::Promote | Stage::Bake)),
        Phase::Rollback => stage == Some(Stage::Restore),
        Phase::Pending | Phase::Stable => stage.is_none(),
        Phase::Frozen => stage == Some(Stage::Stopped),
        Phase::Failed => matches!(stage, None | Some(Stage::Stopped)),
    };
    if !fits {
        return Some(format!("phase {phase:?} and stage {stage:?}"));
    }
    let wanted = match stage {
        Some(Stage::Settle) => "Settle",
        Some(Stage::Promote) => "Promote",
        Some(Stage::Bake) => "Bake",
        Some(Stage::Restore) => "Restore",
        Some(Stage::Stopped) | None => "",
    };
    if !step.starts_with(wanted) || (wanted.is_empty() && !step.is_empty()) {
        return Some(format!("stage {stage:?} and step {step:?}"));
    }
    let conditions = [
        ("RollingOut", phase == Phase::RollingOut),
        ("RollbackInProgress", phase == Phase::Rollback),
    ];
    for (type_, wanted) in conditions {
        if holds(status, type_, "True") != wanted {
            return Some(format!("phase {phase:?} and condition {type_}"));
        }
    }
    (holds(status, "Reconciling", "True") && holds(status, "Stalled", "True"))
        .then(|| "both Reconciling and Stalled".to_owned())
}

/// The image in what was written to a Deployment: an apply or a patch.
pub fn image_in(body: &serde_json::Value) -> Option<String> {
    const IMAGE: &str = "/spec/containers/0/image";
    let template = match body {
        serde_json::Value::Array(operations) => operations
            .iter()
            .find(|operation| operation["path"] == "/spec/template")?
            .get("value")?,
        apply => apply.pointer("/spec/template")?,
    };
    Some(template.pointer(IMAGE)?.as_str()?.to_owned())
}
