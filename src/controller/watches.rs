//! Watches on pods, for as long as a release runs.
//!
//! An idle plan has none. Each watch is a task of its own; all of them are
//! owned by [`Watches::run`], which the supervisor owns. Which ReplicaSet the new
//! pods belong to is looked up once for each template: a watch on ReplicaSets
//! would be one more connection for each component, to hear nothing else.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use super::{
    ReconcileError,
    views::{self, PodView, ReplicaSetView, Seen},
};
use crate::{
    api::{Cause, StoredPlan},
    cluster::Connections,
    fields::canon,
    machine::Workload,
    plan::Target,
};

/// All watches of running releases.
pub(super) struct Watches {
    connections: Connections,
    client: Client,
    entries: Mutex<HashMap<String, HashMap<Target, Entry>>>,
    tasks: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    alarms: mpsc::Sender<ObjectRef<StoredPlan>>,
}

struct Entry {
    selector: String,
    pods: Store<PodView>,
    set: Option<Set>,
    _stop: DropGuard,
}

/// The ReplicaSet that was last found for a component.
#[derive(Clone)]
struct Set {
    name: String,
    of: Template,
}

/// A template of a Deployment.
#[derive(Clone, PartialEq, Eq)]
struct Template {
    deployment_uid: String,
    digest: String,
}

/// What is watched of a component beside its workload.
pub(super) struct Watched<'a> {
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
    pub(super) target: &'a Target,
    /// Selects its pods.
    pub(super) selector: &'a str,
    /// Time for which its pods have to be ready to count as available.
    pub(super) min_ready: Duration,
    /// Whether the Deployment says that pods cannot be created.
    pub(super) refusing: bool,
}

/// Tasks to be run by [`run`].
pub(super) type Tasks = mpsc::UnboundedReceiver<BoxFuture<'static, ()>>;

impl Watches {
    /// No watches yet; whose pods get into trouble later is sent to `alarms`.
    pub(super) fn new(
        connections: Connections,
        client: Client,
        alarms: mpsc::Sender<ObjectRef<StoredPlan>>,
    ) -> (Self, Tasks) {
        let (tasks, receiver) = mpsc::unbounded_channel();
        (
            Self {
                connections,
                client,
                entries: Mutex::default(),
                tasks,
                alarms,
            },
            receiver,
        )
    }

    /// Watches the pods of a component of a plan, unless that is done already.
    ///
    /// # Errors
    /// If there can be no connection to watch on.
    fn ensure(&self, plan: &ObjectRef<StoredPlan>, of: &Watched<'_>) -> Result<(), ReconcileError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let plan_entries = entries.entry(of.uid.to_owned()).or_default();
        if plan_entries
            .get(of.target)
            .is_some_and(|entry| entry.selector == of.selector)
        {
            return Ok(());
        }
        let stop = CancellationToken::new();
        let entry = Entry {
            selector: of.selector.to_owned(),
            pods: self.start(plan, of, &stop)?,
            set: None,
            _stop: stop.drop_guard(),
        };
        plan_entries.insert(of.target.clone(), entry);
        Ok(())
    }

    fn start(
        &self,
        plan: &ObjectRef<StoredPlan>,
        of: &Watched<'_>,
        stop: &CancellationToken,
    ) -> Result<Store<PodView>, ReconcileError> {
        let seat = self.connections.seat()?;
        let api = Api::<PodView>::namespaced(seat.client(), of.namespace);
        let (store, writer) = reflector::store();
        let (plan, alarms, stop) = (plan.clone(), self.alarms.clone(), stop.clone());
        let stream = watcher(api, watcher::Config::default().labels(of.selector))
            .default_backoff()
            .modify(|pod| views::trim(&mut pod.metadata))
            .reflect(writer);
        let task = async move {
            let _seat = seat;
            let mut stream = std::pin::pin!(stream);
            let mut known = Alarms::default();
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => match event {
                        Some(Ok(event)) => {
                            if known.is_news(&event) && alarms.send(plan.clone()).await.is_err() {
                                return;
                            }
                        }
                        Some(Err(error)) => {
                            tracing::warn!(%error, "watch of the pods of a release failed and is tried again");
                        }
                        None => return,
                    },
                }
            }
        };
        // The receiver is gone only while the process ends.
        let _ = self.tasks.send(Box::pin(task.in_current_span()));
        Ok(store)
    }

    /// Ends the watches of a plan.
    pub(super) fn stop(&self, uid: &str) {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }

    /// Watches the pods of a component, and answers what they say at `now` and how
    /// long it takes until one that is ready counts as available; none until the
    /// first full list is in.
    ///
    /// # Errors
    /// If there can be no connection to watch on, or the ReplicaSets have to be
    /// read and cannot be.
    pub(super) async fn look(
        &self,
        plan: &ObjectRef<StoredPlan>,
        of: &Watched<'_>,
        workload: &Workload,
        now: Timestamp,
    ) -> Result<Option<Seen>, ReconcileError> {
        self.ensure(plan, of)?;
        let Some((pods, known)) = self.known(of) else {
            return Ok(None);
        };
        let template = Template {
            deployment_uid: workload.uid.clone(),
            digest: canon::digest(&workload.template),
        };
        let known = known.filter(|set| set.of == template).map(|set| set.name);
        // Pods that are of no set that is known: it is another by now.
        let known = known.filter(|set| {
            workload.updated == 0 || pods.state().iter().any(|pod| views::is_of(set, pod))
        });
        // Until its controller has seen the template there is no set to be found.
        let listed = match &known {
            Some(_) if !of.refusing => None,
            None if !workload.observed => return Ok(Some(Seen::default())),
            _ => self.look_up(of, workload).await?,
        };
        let refused = listed.as_ref().and_then(views::refused);
        let Some(name) = listed.map(|set| set.name_any()).or(known) else {
            return Ok(Some(Seen::default()));
        };
        let pods = pods.state();
        let pods = pods.iter().map(AsRef::as_ref);
        let said = views::new_pods(&name, refused, of.min_ready, now, pods);
        self.remember(of, Set { name, of: template });
        Ok(Some(said))
    }

    fn known(&self, of: &Watched<'_>) -> Option<(Store<PodView>, Option<Set>)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(of.uid)?.get(of.target)?;
        is_ready(&entry.pods).then(|| (entry.pods.clone(), entry.set.clone()))
    }

    fn remember(&self, of: &Watched<'_>, set: Set) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries
            .get_mut(of.uid)
            .and_then(|plan| plan.get_mut(of.target));
        if let Some(entry) = entry {
            entry.set = Some(set);
        }
    }

    async fn look_up(
        &self,
        of: &Watched<'_>,
        workload: &Workload,
    ) -> Result<Option<ReplicaSetView>, ReconcileError> {
        let api = Api::<ReplicaSetView>::namespaced(self.client.clone(), of.namespace);
        let listed = api
            .list(&ListParams::default().labels(of.selector))
            .await
            .map_err(ReconcileError::api(format!(
                "list the replicasets of {}",
                of.target
            )))?;
        Ok(views::set_of(&workload.uid, &workload.template, listed.items.iter()).cloned())
    }
}

/// What the pods of a component were last seen to suffer from, by pod.
#[derive(Default)]
struct Alarms(HashMap<String, Vec<(i32, Option<Cause>)>>);

impl Alarms {
    /// Whether an event says something that must not wait: that all pods are
    /// known now, or that one suffers from something else than before. That pods
    /// come, get ready and go, their Deployment tells.
    fn is_news(&mut self, event: &watcher::Event<PodView>) -> bool {
        match event {
            watcher::Event::Init => {
                self.0.clear();
                false
            }
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                let (name, alarm) = (pod.name_any(), views::alarm(pod));
                let news = self.0.get(&name).map_or(&[][..], Vec::as_slice) != alarm;
                if alarm.is_empty() {
                    self.0.remove(&name);
                } else if news {
                    self.0.insert(name, alarm);
                }
                news && matches!(event, watcher::Event::Apply(_))
            }
            watcher::Event::Delete(pod) => {
                self.0.remove(&pod.name_any());
                false
            }
            watcher::Event::InitDone => true,
        }
    }
}

fn is_ready<K>(store: &Store<K>) -> bool
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    use futures::FutureExt as _;
    matches!(store.wait_until_ready().now_or_never(), Some(Ok(())))
}

/// Runs the watches until `stop`.
pub(super) async fn run(mut tasks: Tasks, stop: CancellationToken) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            task = tasks.recv() => match task {
                Some(task) => { running.spawn(task); }
                None => break,
            },
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a watch ended in a panic");
                }
            }
        }
    }
    running.shutdown().await;
}
