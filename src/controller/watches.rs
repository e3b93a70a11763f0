//! Watches on pods and ReplicaSets, for as long as a release runs.
//!
//! An idle plan has none. Each watch is a task of its own; all of them are
//! owned by [`Watches::run`], which the supervisor owns.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt as _, future::BoxFuture};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::views::{Current, PodView, ReplicaSetView, current, trim};
use crate::{api::StoredPlan, plan::Target};

/// All watches of running releases.
pub(super) struct Watches {
    client: Client,
    entries: Mutex<HashMap<String, HashMap<Target, Entry>>>,
    tasks: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    triggers: mpsc::Sender<ObjectRef<StoredPlan>>,
}

struct Entry {
    selector: String,
    pods: Store<PodView>,
    sets: Store<ReplicaSetView>,
    _stop: DropGuard,
}

/// Tasks to be run by [`run`].
pub(super) type Tasks = mpsc::UnboundedReceiver<BoxFuture<'static, ()>>;

impl Watches {
    /// No watches yet; every event of a later one is sent to `triggers`.
    pub(super) fn new(
        client: Client,
        triggers: mpsc::Sender<ObjectRef<StoredPlan>>,
    ) -> (Self, Tasks) {
        let (tasks, receiver) = mpsc::unbounded_channel();
        (
            Self {
                client,
                entries: Mutex::default(),
                tasks,
                triggers,
            },
            receiver,
        )
    }

    /// Watches the pods that `selector` selects for a component of a plan,
    /// unless that is done already.
    pub(super) fn ensure(
        &self,
        plan: &ObjectRef<StoredPlan>,
        uid: &str,
        target: &Target,
        selector: &str,
    ) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let plan_entries = entries.entry(uid.to_owned()).or_default();
        if plan_entries
            .get(target)
            .is_some_and(|entry| entry.selector == selector)
        {
            return;
        }
        let namespace = plan.namespace.as_deref().unwrap_or_default();
        let stop = CancellationToken::new();
        let pods = self.start::<PodView>(namespace, selector, plan, &stop);
        let sets = self.start::<ReplicaSetView>(namespace, selector, plan, &stop);
        let entry = Entry {
            selector: selector.to_owned(),
            pods,
            sets,
            _stop: stop.drop_guard(),
        };
        plan_entries.insert(target.clone(), entry);
    }

    fn start<K>(
        &self,
        namespace: &str,
        selector: &str,
        plan: &ObjectRef<StoredPlan>,
        stop: &CancellationToken,
    ) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let (store, writer) = reflector::store();
        let (plan, triggers, stop) = (plan.clone(), self.triggers.clone(), stop.clone());
        let stream = watcher(api, watcher::Config::default().labels(selector))
            .default_backoff()
            .modify(|object| trim(object.meta_mut()))
            .reflect(writer);
        let task = async move {
            let mut stream = std::pin::pin!(stream);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => match event {
                        Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => {}
                        Some(Ok(_)) => {
                            if triggers.send(plan.clone()).await.is_err() {
                                return;
                            }
                        }
                        Some(Err(error)) => {
                            tracing::warn!(%plan, kind = %K::kind(&()), %error, "watch of a release failed and is tried again");
                        }
                        None => return,
                    },
                }
            }
        };
        // The receiver is gone only while the process ends.
        let _ = self.tasks.send(Box::pin(task));
        store
    }

    /// Ends the watches of a plan.
    pub(super) fn stop(&self, uid: &str) {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }

    /// What is known of the live template of a component; none until the first full list is in.
    pub(super) fn current(
        &self,
        uid: &str,
        target: &Target,
        deployment_uid: &str,
        template: &serde_json::Value,
    ) -> Option<Current> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(uid)?.get(target)?;
        if !is_ready(&entry.pods) || !is_ready(&entry.sets) {
            return None;
        }
        let (sets, pods) = (entry.sets.state(), entry.pods.state());
        let sets = sets.iter().map(AsRef::as_ref);
        let pods = pods.iter().map(AsRef::as_ref);
        Some(current(deployment_uid, template, sets, pods))
    }
}

fn is_ready<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
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
