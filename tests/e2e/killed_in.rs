//! The operator is killed after each of its writes in what is not a release
//! that fails: a plan that comes, that takes fields, that finishes, that gets
//! other components, that goes.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use belay::api::{ReleasePlan, ReleasePlanStatus, StoredPlan};
use belay_testenv::{AuditFilter, Cluster, Operator};
use futures::future::join_all;
use k8s_openapi::{
    api::apps::v1::{ControllerRevision, Deployment},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    killed::Killer,
    recovery::cluster,
    support::{SOON, Scene, holds, image_of, now, owned},
};

/// Without a write for so long, nothing of these is on its way any more.
const QUIET: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    /// A plan comes and takes what is live as stable.
    Adopt,
    /// A template comes that says what is live already: fields are taken, and
    /// no value changes.
    Own,
    /// A release that goes well, with records and revisions to prune.
    Finish,
    /// One component leaves the plan and another one joins it.
    Components,
    /// The plan is deleted in mid-release.
    Delete,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario::Adopt,
    Scenario::Own,
    Scenario::Finish,
    Scenario::Components,
    Scenario::Delete,
];

/// Components with an image each; without one they are followed.
fn spec(components: &[(&str, Option<&str>)]) -> Value {
    let component = |(name, image): &(&str, Option<&str>)| {
        let mut component = json!({"workload": {"kind": "Deployment", "name": name}});
        if let Some(image) = image {
            let containers = json!([{"name": "app", "image": image}]);
            component["template"] = json!({"spec": {"containers": containers}});
        }
        component
    };
    let components: Vec<_> = components.iter().map(component).collect();
    json!({"components": components, "revisionHistoryLimit": 1})
}

/// What is the same however often the operator was killed on the way.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: Option<Value>,
    deployments: BTreeMap<String, Value>,
    revisions: usize,
}

/// One run of a scenario in a namespace of its own.
struct Run {
    scene: Scene,
    scenario: Scenario,
    /// The write after which the operator is killed; none at zero.
    kill: i64,
    /// When the part began in which the operator is killed.
    began: OnceLock<Timestamp>,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, killed after write {}", self.scenario, self.kill)
    }
}

impl Run {
    /// Brings a scenario to where the operator is to be killed.
    async fn new(cluster: &Arc<Cluster>, killer: &Killer, scenario: Scenario, kill: i64) -> Self {
        let name = format!("killed-{scenario:?}-{kill}").to_lowercase();
        let run = Self {
            scene: Scene::on(cluster, &name).await,
            scenario,
            kill,
            began: OnceLock::new(),
        };
        run.prepare().await;
        run.settled(killer).await;
        run
    }

    /// Goes through the part in which the operator is killed, to its end.
    async fn go(&self, killer: &Killer) {
        self.began.set(now()).unwrap();
        killer.arm(&self.scene.namespace, self.kill);
        self.act().await;
        self.over().await;
        self.settled(killer).await;
    }

    async fn deployment(&self, name: &str) {
        let labels = json!({"app": name});
        let deployment: Deployment = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "app", "image": "shop/x:1"}]},
                },
            },
        }))
        .unwrap();
        let api = self.scene.deployments();
        api.create(&PostParams::default(), &deployment)
            .await
            .unwrap();
        self.scene.available(name).await;
    }

    /// Creates the plan, or replaces what it says; tried again while nobody
    /// answers for the webhooks.
    async fn says(&self, components: &[(&str, Option<&str>)]) {
        let api = Api::<ReleasePlan>::namespaced(self.scene.client.clone(), &self.scene.namespace);
        let spec = spec(components);
        let deadline = Instant::now() + SOON;
        loop {
            let answer = match api.get_opt("shop").await.unwrap() {
                None => {
                    let plan = serde_json::from_value(json!({
                        "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
                        "metadata": {"name": "shop"}, "spec": spec,
                    }));
                    api.create(&PostParams::default(), &plan.unwrap()).await
                }
                Some(_) => {
                    let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
                    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
                    api.patch("shop", &PatchParams::default(), &patch).await
                }
            };
            let Err(error) = answer else { return };
            let away = error.to_string().contains("failed calling webhook");
            assert!(away && Instant::now() < deadline, "{error}");
            sleep(POLL).await;
        }
    }

    /// Everything up to what the operator is to be killed in.
    async fn prepare(&self) {
        let (one, two) = (Some("shop/x:1"), Some("shop/x:2"));
        self.deployment("cart").await;
        match self.scenario {
            Scenario::Adopt => self.deployment("web").await,
            Scenario::Own => {
                self.says(&[("cart", None)]).await;
                self.scene.ready("shop").await;
            }
            Scenario::Finish => {
                self.says(&[("cart", one)]).await;
                self.scene.ready("shop").await;
                self.says(&[("cart", two)]).await;
                self.scene.ready("shop").await;
            }
            Scenario::Components => {
                self.deployment("web").await;
                self.deployment("pay").await;
                self.says(&[("cart", one), ("web", one)]).await;
                self.scene.ready("shop").await;
            }
            Scenario::Delete => {
                self.deployment("web").await;
                self.says(&[("cart", one), ("web", one)]).await;
                self.scene.ready("shop").await;
                let unready = Some("shop/x:2-unready");
                self.says(&[("cart", unready), ("web", unready)]).await;
                for name in ["cart", "web"] {
                    self.scene
                        .deployment_until(name, "has 2", |d| image_of(d).contains(":2"))
                        .await;
                }
                self.scene
                    .plan_until("shop", "waits for both", |s| {
                        s.components.iter().all(|c| c.updated_replicas == Some(1))
                    })
                    .await;
            }
        }
    }

    /// What the operator is to be killed in.
    async fn act(&self) {
        let one = Some("shop/x:1");
        match self.scenario {
            Scenario::Adopt => self.says(&[("cart", one), ("web", one)]).await,
            Scenario::Own => self.says(&[("cart", one)]).await,
            Scenario::Finish => self.says(&[("cart", Some("shop/x:3"))]).await,
            Scenario::Components => self.says(&[("cart", one), ("pay", one)]).await,
            Scenario::Delete => {
                let plans = self.scene.plans();
                plans
                    .delete("shop", &DeleteParams::default())
                    .await
                    .unwrap();
            }
        }
    }

    /// Waits until the plan says that this is over.
    async fn over(&self) {
        if self.scenario == Scenario::Delete {
            return self.scene.gone("shop").await;
        }
        let said = self.scene.plans().get("shop").await.unwrap();
        let generation = said.metadata.generation;
        self.scene
            .plan_until("shop", "is Ready", |s| {
                holds(s, "Ready", "True") && s.observed_generation == generation
            })
            .await;
    }

    /// Waits until nothing was written for a while.
    async fn settled(&self, killer: &Killer) {
        let deadline = Instant::now() + SOON;
        let writes = || killer.count(&self.scene.namespace).writes;
        loop {
            let before = writes();
            sleep(QUIET).await;
            if writes() == before {
                return;
            }
            assert!(Instant::now() < deadline, "{self} never settles");
        }
    }

    async fn outcome(&self) -> Outcome {
        let plan = self.scene.plans().get_opt("shop").await.unwrap();
        let status = plan.and_then(|plan: StoredPlan| plan.status);
        let status = status.map(|status: ReleasePlanStatus| {
            let conditions = status.conditions.iter();
            let conditions: Vec<_> = conditions
                .map(|c| (&c.type_, &c.status, &c.reason))
                .collect();
            let history: Vec<_> = status
                .history
                .iter()
                .map(|r| (r.number, r.result))
                .collect();
            let components = status.components.iter();
            let components: Vec<_> = components.map(|c| (&c.name, c.state)).collect();
            json!([
                status.phase,
                conditions,
                history,
                components,
                status.refused.len()
            ])
        });
        let mut deployments = BTreeMap::new();
        for live in self
            .scene
            .deployments()
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            let fields: Vec<_> = owned(&live).into_iter().map(|e| e.fields_v1).collect();
            let name = live.name_any();
            let seen = json!([
                live.metadata.generation,
                live.spec.unwrap().template,
                fields
            ]);
            deployments.insert(name, seen);
        }
        let revisions =
            Api::<ControllerRevision>::namespaced(self.scene.client.clone(), &self.scene.namespace);
        let revisions = revisions.list(&ListParams::default()).await.unwrap();
        Outcome {
            status,
            deployments,
            revisions: revisions.items.len(),
        }
    }
}

/// Starts the operator again whenever it was killed.
async fn undertaker(killer: Arc<Killer>, operator: Arc<Operator>) {
    loop {
        killer.killed.notified().await;
        let deadline = Instant::now() + SOON;
        loop {
            let operator = Arc::clone(&operator);
            let restarted = tokio::task::spawn_blocking(move || operator.restart()).await;
            // The next kill may come before it is ready.
            match restarted.unwrap() {
                Ok(()) => break,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }
}

/// How often the operator wrote each Deployment since a run began.
async fn written(cluster: &Arc<Cluster>, runs: &[&Run]) -> Vec<BTreeMap<String, usize>> {
    let filter = AuditFilter::new()
        .service_account("belay-system", "belay")
        .resource("deployments")
        .writes();
    let cluster = Arc::clone(cluster);
    // The log is read once for all.
    let entries = move || {
        cluster.settle_audit().unwrap();
        cluster.audit().matching(&filter).unwrap()
    };
    let entries = tokio::task::spawn_blocking(entries).await.unwrap();
    let count = |run: &&Run| {
        let mut names = BTreeMap::new();
        for entry in &entries {
            let began = *run.began.get().unwrap();
            if entry.namespace == run.scene.namespace && entry.received > began {
                *names.entry(entry.name.clone()).or_default() += 1;
            }
        }
        names
    };
    runs.iter().map(count).collect()
}

/// How a scenario goes without a kill.
struct Undisturbed {
    writes: i64,
    outcome: Outcome,
    /// Writes of each Deployment.
    written: BTreeMap<String, usize>,
}

impl Undisturbed {
    async fn see(cluster: &Arc<Cluster>, killer: &Killer, scenario: Scenario) -> (Scenario, Self) {
        let run = Run::new(cluster, killer, scenario, 0).await;
        let before = killer.count(&run.scene.namespace).writes;
        run.go(killer).await;
        let seen = Self {
            writes: killer.count(&run.scene.namespace).writes - before,
            outcome: run.outcome().await,
            written: written(cluster, &[&run]).await.remove(0),
        };
        assert!(seen.writes > 2, "{scenario:?}: {} writes", seen.writes);
        assert!(
            !seen.written.is_empty(),
            "{scenario:?} writes no Deployment"
        );
        (scenario, seen)
    }
}

/// Each scenario runs once undisturbed, and then as often as it has writes, with
/// SIGKILL after another one of them each time. All come to the same end, and no
/// Deployment is written once more than without a kill.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_any_write_of_a_plans_life_it_comes_to_the_same_end() {
    let cluster = cluster().await;
    let killer = Arc::new(Killer::default());
    let operator = killer.operator(&cluster).await;
    let undisturbed = SCENARIOS.map(|s| Undisturbed::see(&cluster, &killer, s));
    let undisturbed: BTreeMap<_, _> = join_all(undisturbed).await.into_iter().collect();
    let kills = undisturbed
        .iter()
        .flat_map(|(scenario, seen)| (1..=seen.writes).map(|kill| (*scenario, kill)));
    let runs = kills.map(|(scenario, kill)| Run::new(&cluster, &killer, scenario, kill));
    let runs = join_all(runs).await;

    let undertaker = tokio::spawn(undertaker(Arc::clone(&killer), operator));
    // Side by side only those of different scenarios: the more kills there are
    // at once, the more writes become one.
    for kill in 1..=runs.iter().map(|run| run.kill).max().unwrap() {
        let round = runs.iter().filter(|run| run.kill == kill);
        join_all(round.map(|run| run.go(&killer))).await;
    }
    assert!(!undertaker.is_finished());

    let mut kills = BTreeMap::<Scenario, i64>::new();
    for run in &runs {
        let wanted = &undisturbed[&run.scenario];
        assert_eq!(run.outcome().await, wanted.outcome, "{run}");
        *kills.entry(run.scenario).or_default() += killer.count(&run.scene.namespace).kills;
    }
    undertaker.abort();
    // A run may need fewer writes and be over before its kill: two statuses
    // become one where the operator was away between them.
    for (scenario, seen) in &undisturbed {
        let (kills, writes) = (kills[scenario], seen.writes);
        assert!(
            kills <= writes && 3 * kills >= 2 * writes,
            "{scenario:?}: {kills} of {writes}"
        );
    }
    let all: Vec<&Run> = runs.iter().collect();
    for (run, written) in runs.iter().zip(written(&cluster, &all).await) {
        let most = &undisturbed[&run.scenario].written;
        for (name, times) in written {
            assert!(
                most.get(&name) >= Some(&times),
                "{run}: {name} is written {times} times instead of {most:?}"
            );
        }
    }
}
