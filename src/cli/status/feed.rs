//! What a cluster holds, kept up to date by one watch for each kind.
//!
//! A watch that fails is begun again by itself, ever more slowly. Meanwhile what
//! was known stays, and it is said that it may be old.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use kube::{
    Api, Client, Resource,
    core::Status,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;

use super::{
    failure::{Failure, innermost},
    fetch::{forbidden, namespace_of, only, tracking, workloads},
    kept::{Kept, is_answer},
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
    /// How much of what is below the plans is wanted too.
    pub(super) below: Below,
}

/// What is watched below plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// Their workloads alone, as a list of plans needs them.
    Workloads,
    /// Everything.
    All,
}

impl Wanted {
    fn holds(&self, plan: &StoredPlan) -> bool {
        let name = plan.metadata.name.clone().unwrap_or_default();
        let key = (namespace_of(plan).to_owned(), name);
        self.names.is_empty() || self.names.contains(&key)
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
    /// Watches of which a complete list was had.
    listed: BTreeSet<Source>,
    /// What the API server will never answer otherwise about plans.
    over: Option<Status>,
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
            listed: BTreeSet::new(),
            over: None,
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
                    let answer = is_answer(&event);
                    let known = self.plans.take(scope, event);
                    self.heard(("releaseplans", scope), answer, known);
                    self.follow_workloads();
                    self.follow_records();
                }
                Err(error) => self.failed(("releaseplans", scope), &error),
            },
            Event::Deployment(scope, Ok(event)) => {
                let answer = is_answer(&event);
                let known = self.deployments.take(scope, event);
                self.heard(("deployments", scope), answer, known);
                self.follow_leaves();
            }
            Event::Set(scope, Ok(event)) => {
                let answer = is_answer(&event);
                let known = self.sets.take(scope, event);
                self.heard(("replicasets", scope), answer, known);
            }
            Event::Pod(scope, Ok(event)) => {
                let answer = is_answer(&event);
                let known = self.pods.take(scope, event);
                self.heard(("pods", scope), answer, known);
            }
            Event::Revision(scope, Ok(event)) => {
                let answer = is_answer(&event);
                let known = self.revisions.take(scope, event);
                self.heard(("controllerrevisions", scope), answer, known);
            }
            Event::Revision(scope, Err(error)) => {
                self.failed(("controllerrevisions", scope), &error);
            }
            Event::Deployment(scope, Err(error)) => self.failed(("deployments", scope), &error),
            Event::Set(scope, Err(error)) => self.failed(("replicasets", scope), &error),
            Event::Pod(scope, Err(error)) => self.failed(("pods", scope), &error),
        }
    }

    fn heard(&mut self, source: Source, answer: bool, known: bool) {
        if answer {
            self.faults.remove(&source);
            self.refused.remove(&source);
        }
        if known {
            self.listed.insert(source);
            self.waiting.remove(&source);
        }
    }

    fn failed(&mut self, source: Source, error: &watcher::Error) {
        let (kind, scope) = source;
        let namespace = self.namespace(scope).cloned().unwrap_or_default();
        let text = match Failure::of(error) {
            Failure::Forbidden => {
                self.refused.insert(source);
                forbidden(kind, &namespace)
            }
            Failure::Outdated => return,
            Failure::Final(status) => {
                let text = format!("{kind} are not shown: {}", status.message);
                if kind == "releaseplans" {
                    self.over = Some(*status);
                }
                text
            }
            Failure::Passing if self.listed.contains(&source) => {
                format!("what is shown may be old: {}", innermost(error))
            }
            Failure::Passing => format!("{kind} are not known yet: {}", innermost(error)),
        };
        self.waiting.remove(&source);
        self.faults.insert(source, text);
    }

    /// Nothing is known of kinds that are watched by other names or labels now.
    fn begin_anew(&mut self, kinds: &[&str]) {
        self.waiting.retain(|(kind, _)| !kinds.contains(kind));
        self.listed.retain(|(kind, _)| !kinds.contains(kind));
    }

    /// The plans by the number of their scope, once it is known what they name.
    fn settled(&self) -> Option<BTreeMap<usize, Vec<&StoredPlan>>> {
        let settled = !self.waiting.iter().any(|(kind, _)| *kind == "releaseplans");
        if !settled {
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
        if self.wanted.below == Below::Workloads {
            return;
        }
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
        self.begin_anew(&["controllerrevisions"]);
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
        // Of several names the watch is the same, whichever they are.
        let asked = |named: &BTreeMap<usize, BTreeSet<String>>| -> Vec<(usize, Option<String>)> {
            let scopes = named.iter();
            scopes.map(|(scope, names)| (*scope, only(names))).collect()
        };
        if asked(&named) == asked(&self.named) {
            self.named = named;
            return self.follow_leaves();
        }
        self.workloads.clear();
        self.deployments.clear();
        self.begin_anew(&["deployments"]);
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
        let listed = !self.waiting.iter().any(|(kind, _)| *kind == "deployments");
        if self.wanted.below == Below::Workloads || !listed {
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
        self.begin_anew(&["replicasets", "pods"]);
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

    /// Whether there ever was a complete list of the plans: before that, nothing
    /// tells whether there are any.
    pub(super) fn is_known(&self) -> bool {
        (0..self.scopes.len()).all(|scope| self.listed.contains(&("releaseplans", scope)))
    }

    /// What the API server answers about plans for good.
    pub(super) const fn over(&self) -> Option<&Status> {
        self.over.as_ref()
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
    use crate::cli::status::{
        render::Layout,
        text::Line,
        watch::{View, lines},
    };

    fn feed() -> Feed {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let wanted = Wanted {
            namespaces: ["s".to_owned()].into(),
            names: [].into(),
            selector: None,
            below: Below::Workloads,
        };
        Feed::new(Client::try_from(config).unwrap(), wanted)
    }

    fn plans(event: watcher::Event<StoredPlan>) -> Event {
        Event::Plan(0, Box::new(Ok(event)))
    }

    fn failing(code: u16, message: &str) -> Event {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = kube::Error::Api(Box::new(status));
        let error = watcher::Error::InitialListFailed(error);
        Event::Plan(0, Box::new(Err(error)))
    }

    /// The client begins a list before it has asked for it.
    #[tokio::test]
    async fn only_an_answer_ends_the_note_that_what_is_shown_may_be_old() {
        let mut feed = feed();
        feed.take(plans(watcher::Event::Init));
        feed.take(plans(watcher::Event::InitDone));
        assert!(feed.is_known() && feed.notes().is_empty());
        feed.take(failing(503, "not now"));
        assert_eq!(feed.notes().len(), 1);
        feed.take(plans(watcher::Event::Init));
        assert_eq!(feed.notes().len(), 1, "nothing has answered yet");
        feed.take(failing(503, "not now"));
        feed.take(plans(watcher::Event::Init));
        feed.take(plans(watcher::Event::InitDone));
        assert!(feed.notes().is_empty());
    }

    #[tokio::test]
    async fn without_one_complete_list_nothing_is_known() {
        let mut feed = feed();
        feed.take(plans(watcher::Event::Init));
        let said = |feed: &Feed| {
            let view = View {
                table: true,
                namespaces: false,
                format: None,
            };
            let now = crate::cli::testing::noon();
            let lines = lines(&[], feed, &view, now, Layout::UNBOUNDED);
            let lines: Vec<String> = lines.iter().map(Line::plain).collect();
            lines.join("\n")
        };
        assert!(said(&feed).starts_with("Not known yet"), "{}", said(&feed));
        feed.take(failing(503, "not now"));
        assert!(feed.is_complete() && !feed.is_known());
        for _ in 0..2 {
            let told = said(&feed);
            assert!(told.starts_with("Not known yet"), "{told}");
            assert!(
                told.contains("! releaseplans are not known yet: "),
                "{told}"
            );
            feed.take(plans(watcher::Event::Init));
            feed.take(failing(503, "not now"));
        }
        feed.take(plans(watcher::Event::Init));
        feed.take(plans(watcher::Event::InitDone));
        assert!(feed.is_known());
        assert_eq!(said(&feed), "There are no plans.");
        feed.take(failing(503, "not now"));
        assert!(said(&feed).contains("! what is shown may be old: "));
    }

    #[tokio::test]
    async fn what_no_repetition_mends_is_told_from_what_may_pass() {
        for code in [400, 401, 404, 422] {
            let mut feed = feed();
            feed.take(failing(code, "so it is"));
            assert_eq!(feed.over().map(|status| status.code), Some(code));
        }
        for code in [403, 409, 410, 429, 500, 503] {
            let mut feed = feed();
            feed.take(failing(code, "so it is"));
            assert!(feed.over().is_none(), "{code}");
        }
    }
}
