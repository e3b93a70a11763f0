//! What a cluster holds, kept up to date by one watch for each kind.
//!
//! A watch that fails is begun again by itself, ever more slowly. Meanwhile what
//! was known stays, and it is said that it may be old.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
};

use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;

use super::{
    fetch::{forbidden, namespace_of, only, tracking, workloads},
    objects::{DeploymentView, PodView, ReplicaSetView, RevisionView},
    tree::{World, common_selector},
};
use crate::api::StoredPlan;

/// Which plans are watched.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Namespaces; none for all.
    pub(super) namespaces: BTreeSet<String>,
    /// Names in their namespaces; all plans if there are none.
    pub(super) names: BTreeSet<(String, String)>,
    /// Labels of the plans.
    pub(super) selector: Option<String>,
    /// Whether what is below the plans is wanted too.
    pub(super) below: bool,
}

impl Wanted {
    fn holds(&self, plan: &StoredPlan) -> bool {
        let name = plan.metadata.name.clone().unwrap_or_default();
        let key = (namespace_of(plan).to_owned(), name);
        self.names.is_empty() || self.names.contains(&key)
    }
}

/// Objects of one kind.
struct Kept<K> {
    objects: HashMap<String, K>,
    /// What a watch that begins again has told so far, by the scope it is of.
    begun: HashMap<usize, HashMap<String, K>>,
    /// The scope that each object is of.
    scopes: HashMap<String, usize>,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            begun: HashMap::new(),
            scopes: HashMap::new(),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Kept<K> {
    /// True once a full list is known.
    fn take(&mut self, scope: usize, event: watcher::Event<K>) -> bool {
        let key = |object: &K| {
            let meta = object.meta();
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}/{}", part(&meta.namespace), part(&meta.name))
        };
        match event {
            watcher::Event::Apply(object) => {
                self.scopes.insert(key(&object), scope);
                self.objects.insert(key(&object), object);
            }
            watcher::Event::Delete(object) => {
                self.scopes.remove(&key(&object));
                self.objects.remove(&key(&object));
            }
            watcher::Event::Init => {
                self.begun.insert(scope, HashMap::new());
            }
            watcher::Event::InitApply(object) => {
                self.begun
                    .entry(scope)
                    .or_default()
                    .insert(key(&object), object);
            }
            watcher::Event::InitDone => {
                let fresh = self.begun.remove(&scope).unwrap_or_default();
                let scopes = &self.scopes;
                self.objects
                    .retain(|key, _| scopes.get(key) != Some(&scope));
                self.scopes.retain(|_, known| *known != scope);
                self.scopes
                    .extend(fresh.keys().map(|key| (key.clone(), scope)));
                self.objects.extend(fresh);
                return true;
            }
        }
        false
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

enum Event {
    Plan(usize, Box<watcher::Result<watcher::Event<StoredPlan>>>),
    Deployment(usize, watcher::Result<watcher::Event<DeploymentView>>),
    Set(usize, watcher::Result<watcher::Event<ReplicaSetView>>),
    Pod(usize, watcher::Result<watcher::Event<PodView>>),
    Revision(usize, watcher::Result<watcher::Event<RevisionView>>),
}

/// A watch: its kind and the number of its namespace.
type Source = (&'static str, usize);

/// The objects that are watched.
pub(super) struct Feed {
    client: Client,
    wanted: Wanted,
    scopes: Vec<Option<String>>,
    plans: Kept<StoredPlan>,
    deployments: Kept<DeploymentView>,
    sets: Kept<ReplicaSetView>,
    pods: Kept<PodView>,
    revisions: Kept<RevisionView>,
    roots: SelectAll<BoxStream<'static, Event>>,
    workloads: SelectAll<BoxStream<'static, Event>>,
    leaves: SelectAll<BoxStream<'static, Event>>,
    records: SelectAll<BoxStream<'static, Event>>,
    /// Names of workloads by namespace that are watched.
    named: BTreeMap<usize, BTreeSet<String>>,
    /// Labels by namespace that ReplicaSets and pods are watched by.
    selected: BTreeMap<usize, Option<String>>,
    /// Labels by namespace that revisions are watched by.
    tracked: BTreeMap<usize, String>,
    waiting: BTreeSet<Source>,
    faults: BTreeMap<Source, String>,
    /// Kinds that may not be read.
    refused: BTreeSet<Source>,
}

impl Feed {
    /// Begins to watch.
    pub(super) fn new(client: Client, wanted: Wanted) -> Self {
        let scopes: Vec<Option<String>> = if wanted.namespaces.is_empty() {
            vec![None]
        } else {
            wanted.namespaces.iter().cloned().map(Some).collect()
        };
        let mut feed = Self {
            client,
            scopes,
            plans: Kept::default(),
            deployments: Kept::default(),
            sets: Kept::default(),
            pods: Kept::default(),
            revisions: Kept::default(),
            roots: SelectAll::new(),
            workloads: SelectAll::new(),
            leaves: SelectAll::new(),
            records: SelectAll::new(),
            named: BTreeMap::new(),
            selected: BTreeMap::new(),
            tracked: BTreeMap::new(),
            waiting: BTreeSet::new(),
            faults: BTreeMap::new(),
            refused: BTreeSet::new(),
            wanted,
        };
        for scope in 0..feed.scopes.len() {
            let names = feed.wanted.names.iter();
            let namespace = feed.namespace(scope);
            let here: BTreeSet<String> = names
                .filter(|(of, _)| Some(of) == namespace)
                .map(|(_, name)| name.clone())
                .collect();
            let config = config(only(&here).as_deref(), feed.wanted.selector.as_deref());
            let stream = feed.watch::<StoredPlan>(scope, config);
            feed.roots
                .push(stream.map(move |e| Event::Plan(scope, Box::new(e))).boxed());
            feed.waiting.insert(("releaseplans", scope));
        }
        feed
    }

    fn namespace(&self, scope: usize) -> Option<&String> {
        self.scopes.get(scope).and_then(Option::as_ref)
    }

    fn watch<K>(
        &self,
        scope: usize,
        config: watcher::Config,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let client = self.client.clone();
        let api = match self.namespace(scope) {
            Some(namespace) => Api::<K>::namespaced(client, namespace),
            None => Api::<K>::all(client),
        };
        watcher(api, config).default_backoff().boxed()
    }

    /// Waits for the next change; false if nothing will ever change again.
    pub(super) async fn next(&mut self) -> bool {
        let event = tokio::select! {
            Some(event) = self.roots.next() => event,
            Some(event) = self.workloads.next() => event,
            Some(event) = self.leaves.next() => event,
            Some(event) = self.records.next() => event,
            else => return false,
        };
        self.take(event);
        true
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Plan(scope, event) => match *event {
                Ok(event) => {
                    let known = self.plans.take(scope, event);
                    self.heard(("releaseplans", scope), known);
                    self.follow_workloads();
                    self.follow_records();
                }
                Err(error) => self.failed(("releaseplans", scope), &error),
            },
            Event::Deployment(scope, Ok(event)) => {
                let known = self.deployments.take(scope, event);
                self.heard(("deployments", scope), known);
                self.follow_leaves();
            }
            Event::Set(scope, Ok(event)) => {
                let known = self.sets.take(scope, event);
                self.heard(("replicasets", scope), known);
            }
            Event::Pod(scope, Ok(event)) => {
                let known = self.pods.take(scope, event);
                self.heard(("pods", scope), known);
            }
            Event::Revision(scope, Ok(event)) => {
                let known = self.revisions.take(scope, event);
                self.heard(("controllerrevisions", scope), known);
            }
            Event::Revision(scope, Err(error)) => {
                self.failed(("controllerrevisions", scope), &error);
            }
            Event::Deployment(scope, Err(error)) => self.failed(("deployments", scope), &error),
            Event::Set(scope, Err(error)) => self.failed(("replicasets", scope), &error),
            Event::Pod(scope, Err(error)) => self.failed(("pods", scope), &error),
        }
    }

    fn heard(&mut self, source: Source, known: bool) {
        // The beginning of a list is not yet its end.
        if known || !self.waiting.contains(&source) {
            self.faults.remove(&source);
            self.refused.remove(&source);
        }
        if known {
            self.waiting.remove(&source);
        }
    }

    fn failed(&mut self, source: Source, error: &watcher::Error) {
        let (kind, scope) = source;
        let namespace = self.namespace(scope).cloned().unwrap_or_default();
        let text = match refusal(error) {
            Some(true) => {
                self.refused.insert(source);
                forbidden(kind, &namespace)
            }
            // The watch was too old, which it gets over by itself.
            Some(false) => return,
            None => format!("what is shown may be old: {}", innermost(error)),
        };
        self.waiting.remove(&source);
        self.faults.insert(source, text);
    }

    /// The plans by the number of their scope, once it is known what they name.
    fn settled(&self) -> Option<BTreeMap<usize, Vec<&StoredPlan>>> {
        let settled = !self.waiting.iter().any(|(kind, _)| *kind == "releaseplans");
        if !self.wanted.below || !settled {
            return None;
        }
        let mut plans: BTreeMap<usize, Vec<&StoredPlan>> = BTreeMap::new();
        for (key, plan) in &self.plans.objects {
            let scope = self.plans.scopes.get(key);
            if let Some(scope) = scope.filter(|_| self.wanted.holds(plan)) {
                plans.entry(*scope).or_default().push(plan);
            }
        }
        Some(plans)
    }

    /// Watches the revisions of the plans that track ConfigMaps by now.
    fn follow_records(&mut self) {
        let Some(plans) = self.settled() else { return };
        let tracked: BTreeMap<usize, String> = plans
            .into_iter()
            .filter_map(|(scope, plans)| Some((scope, tracking(plans.into_iter())?)))
            .collect();
        if tracked == self.tracked {
            return;
        }
        self.records.clear();
        self.revisions.clear();
        self.waiting
            .retain(|(kind, _)| *kind != "controllerrevisions");
        for (scope, labels) in &tracked {
            let scope = *scope;
            let stream = self.watch::<RevisionView>(scope, config(None, Some(labels)));
            self.records
                .push(stream.map(move |e| Event::Revision(scope, e)).boxed());
            self.waiting.insert(("controllerrevisions", scope));
        }
        self.tracked = tracked;
    }

    /// Watches the workloads that the plans name by now.
    fn follow_workloads(&mut self) {
        let Some(plans) = self.settled() else { return };
        let named = plans.into_iter();
        let named = named.map(|(scope, plans)| (scope, workloads(plans.into_iter())));
        let mut named: BTreeMap<usize, BTreeSet<String>> = named.collect();
        named.retain(|_, names| !names.is_empty());
        if named == self.named {
            return;
        }
        self.workloads.clear();
        self.deployments.clear();
        self.waiting.retain(|(kind, _)| *kind != "deployments");
        for (scope, names) in &named {
            let scope = *scope;
            let config = config(only(names).as_deref(), None);
            let stream = self.watch::<DeploymentView>(scope, config);
            self.workloads
                .push(stream.map(move |e| Event::Deployment(scope, e)).boxed());
            self.waiting.insert(("deployments", scope));
        }
        self.named = named;
    }

    /// Watches the ReplicaSets and pods of the workloads that there are by now.
    fn follow_leaves(&mut self) {
        if self.waiting.iter().any(|(kind, _)| *kind == "deployments") {
            return;
        }
        let mut selected: BTreeMap<usize, Option<String>> = BTreeMap::new();
        for (scope, names) in &self.named {
            let there: Vec<&DeploymentView> = self
                .deployments
                .objects
                .iter()
                .filter(|(key, _)| self.deployments.scopes.get(*key) == Some(scope))
                .map(|(_, deployment)| deployment)
                .filter(|d| {
                    d.metadata
                        .name
                        .as_ref()
                        .is_some_and(|name| names.contains(name))
                })
                .collect();
            if !there.is_empty() {
                selected.insert(*scope, common_selector(there.into_iter()));
            }
        }
        if selected == self.selected {
            return;
        }
        self.leaves.clear();
        self.sets.clear();
        self.pods.clear();
        self.waiting
            .retain(|(kind, _)| !matches!(*kind, "replicasets" | "pods"));
        for (scope, labels) in &selected {
            let scope = *scope;
            let sets = self.watch::<ReplicaSetView>(scope, config(None, labels.as_deref()));
            self.leaves
                .push(sets.map(move |e| Event::Set(scope, e)).boxed());
            let pods = self.watch::<PodView>(scope, config(None, labels.as_deref()));
            self.leaves
                .push(pods.map(move |e| Event::Pod(scope, e)).boxed());
            self.waiting
                .extend([("replicasets", scope), ("pods", scope)]);
        }
        self.selected = selected;
    }

    /// Whether everything has been read once.
    pub(super) fn is_complete(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Why the plans are not known, if they are not: in words, and whether it is
    /// for want of rights.
    pub(super) fn fault(&self) -> Option<(&str, bool)> {
        let (source, text) = self
            .faults
            .iter()
            .find(|((kind, _), _)| *kind == "releaseplans")?;
        Some((text, self.refused.contains(source)))
    }

    /// The plans, by namespace and name.
    pub(super) fn plans(&self) -> Vec<&StoredPlan> {
        let all = self.plans.objects.values();
        let mut plans: Vec<&StoredPlan> = all.filter(|plan| self.wanted.holds(plan)).collect();
        plans.sort_by_key(|p| (p.metadata.namespace.clone(), p.metadata.name.clone()));
        plans
    }

    /// What is below the plans of a namespace.
    pub(super) fn world(&self, namespace: &str) -> World<'_> {
        fn of<'a, K: Resource<DynamicType = ()>>(kept: &'a Kept<K>, namespace: &str) -> Vec<&'a K> {
            let all = kept.objects.values();
            all.filter(|object| object.meta().namespace.as_deref() == Some(namespace))
                .collect()
        }
        World::new(
            of(&self.deployments, namespace),
            of(&self.sets, namespace),
            of(&self.pods, namespace),
            of(&self.revisions, namespace),
            self.notes(),
        )
    }

    /// What is not known, or may be old.
    pub(super) fn notes(&self) -> Vec<String> {
        let texts: BTreeSet<&String> = self.faults.values().collect();
        texts.into_iter().cloned().collect()
    }
}

/// Whether a watch was refused for want of rights; none if it failed otherwise.
fn refusal(error: &watcher::Error) -> Option<bool> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => {
            if status.is_forbidden() {
                return Some(true);
            }
            (status.code == 410).then_some(false)
        }
        InitialListFailed(_)
        | WatchStartFailed(_)
        | WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// What is at the bottom of an error: those above only say who passed it on.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(below) = last.source() {
        last = below;
    }
    last.to_string()
}

fn config(fields: Option<&str>, labels: Option<&str>) -> watcher::Config {
    let mut config = watcher::Config::default();
    if let Some(fields) = fields {
        config = config.fields(fields);
    }
    if let Some(labels) = labels {
        config = config.labels(labels);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str) -> PodView {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "s"}})).unwrap()
    }

    fn names(kept: &Kept<PodView>) -> Vec<&str> {
        let mut names: Vec<&str> = kept.objects.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_was_known_stays_until_a_watch_that_begins_again_has_told_all() {
        let mut kept = Kept::default();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(pod("a")),
            watcher::Event::InitApply(pod("b")),
        ] {
            assert!(!kept.take(0, event));
        }
        assert_eq!(names(&kept), [""; 0]);
        assert!(kept.take(0, watcher::Event::InitDone));
        kept.take(1, watcher::Event::Apply(pod("other")));
        assert_eq!(names(&kept), ["s/a", "s/b", "s/other"]);

        kept.take(0, watcher::Event::Init);
        kept.take(0, watcher::Event::InitApply(pod("b")));
        assert_eq!(names(&kept), ["s/a", "s/b", "s/other"]);
        kept.take(0, watcher::Event::InitDone);
        assert_eq!(
            names(&kept),
            ["s/b", "s/other"],
            "that of another scope stays"
        );
        kept.take(0, watcher::Event::Delete(pod("b")));
        assert_eq!(names(&kept), ["s/other"]);
    }

    #[test]
    fn one_fault_of_several_watches_is_told_once() {
        let below = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let error = watcher::Error::WatchStartFailed(kube::Error::Service(Box::new(below)));
        assert_eq!(refusal(&error), None);
        assert_eq!(innermost(&error), "refused");
    }
}
