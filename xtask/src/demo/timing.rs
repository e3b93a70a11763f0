//! Measures from outside how long a rollback takes: watches pods and
//! Deployments of a namespace and notes when what was seen.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Stop;
use super::manifests::NAMESPACE;

/// What was seen at a moment.
struct Seen {
    at: Instant,
    what: What,
}

enum What {
    Restarts(i64),
    Template { name: String, template: Value },
}

type Notes = Arc<Mutex<Vec<Seen>>>;

/// A watch in the background.
pub(crate) struct Stopwatch {
    notes: Notes,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Stopwatch {
    /// Begins to watch.
    pub(crate) fn start(kubeconfig: &Path) -> Self {
        let notes = Notes::default();
        let (stop, stopped) = oneshot::channel();
        let (for_thread, kubeconfig) = (Arc::clone(&notes), kubeconfig.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?;
            runtime.block_on(async {
                tokio::select! {
                    result = watch(&kubeconfig, &for_thread) => result,
                    _ = stopped => Ok(()),
                }
            })
        });
        Self {
            notes,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Ends the watch. Answers how long it took, from the first pod status with
    /// `restarts` restarts, until each of the Deployments had its template.
    pub(crate) fn end(
        mut self,
        restarts: i64,
        templates: &[(&str, Value)],
    ) -> Result<Duration, Stop> {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = ended {
            return Err(Stop::Other(format!("the stopwatch: {error}")));
        }
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        took(&notes, restarts, templates).map_err(Stop::Other)
    }
}

fn took(notes: &[Seen], restarts: i64, templates: &[(&str, Value)]) -> Result<Duration, String> {
    let failed = notes
        .iter()
        .find(|seen| matches!(seen.what, What::Restarts(count) if count >= restarts))
        .ok_or_else(|| format!("no pod was seen with {restarts} restarts"))?;
    let mut last = failed.at;
    for (wanted, stable) in templates {
        let back = notes
            .iter()
            .filter(|seen| seen.at >= failed.at)
            .find(|seen| {
                matches!(&seen.what, What::Template { name, template } if name == wanted && template == stable)
            })
            .ok_or_else(|| format!("deployment {wanted} was not seen with its stable template again"))?;
        last = last.max(back.at);
    }
    Ok(last.duration_since(failed.at))
}

async fn watch(kubeconfig: &Path, notes: &Notes) -> Result<(), String> {
    let client = belay_testenv::client_for(kubeconfig)
        .await
        .map_err(|error| error.to_string())?;
    let note = |what| {
        let at = Instant::now();
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(Seen { at, what });
    };
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let pods = watcher(pods, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    // As it stands on the wire, without what typed decoding would add or drop.
    let kind = ApiResource::erase::<Deployment>(&());
    let deployments = Api::<DynamicObject>::namespaced_with(client, NAMESPACE, &kind);
    let deployments = watcher(deployments, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let pods = pods.map(|pod| {
        pod.map(|pod| {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            let counts = statuses.iter().flatten().map(|status| status.restart_count);
            What::Restarts(counts.max().unwrap_or_default().into())
        })
    });
    let deployments = deployments.map(|deployment| {
        deployment.map(|deployment| What::Template {
            name: deployment.metadata.name.unwrap_or_default(),
            template: deployment.data["spec"]["template"].clone(),
        })
    });
    let mut all = stream::select(pods.boxed(), deployments.boxed());
    while let Some(seen) = all.next().await {
        // A watch that broke off is taken up again by the next poll.
        if let Ok(what) = seen {
            note(what);
        }
    }
    Err("the watch ended".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stable_template_from_before_the_failure_does_not_count() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let template = |at, image: &str| Seen {
            at,
            what: What::Template {
                name: "web".to_owned(),
                template: json!(image),
            },
        };
        let restarts = |at, count| Seen {
            at,
            what: What::Restarts(count),
        };
        let mut notes = vec![
            template(at(0), "1"),
            template(at(1), "2"),
            restarts(at(10), 2),
            restarts(at(20), 3),
        ];
        let stable = [("web", json!("1"))];
        assert!(took(&notes, 3, &stable).is_err());
        notes.push(template(at(50), "1"));
        notes.push(template(at(90), "1"));
        assert_eq!(took(&notes, 3, &stable), Ok(Duration::from_millis(30)));
        assert!(took(&notes, 4, &stable).is_err());
    }
}
