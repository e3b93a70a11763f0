//! One namespace of a real cluster with a real operator, for one test.

mod acts;
mod manifests;
mod rest;
mod status;
mod webhooks;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use belay::api::{Phase, Reason, ReleasePlanStatus, StoredPlan};
use belay_testenv::{
    AuditEntry, AuditFilter, AuditLog, Cluster, KubectlOutput, Operator, OperatorOptions,
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    runtime::wait::{Condition, await_condition},
};

pub use acts::own;
pub use manifests::{deployment, following, plan, plan_of};
pub use rest::{now, pass_time};
pub use status::{holds, image_of, message, owned, why};

/// Longest wait for something that is expected within seconds. Generous, since
/// tests run side by side on small machines, and twice the minute that is the
/// operator's slowest pace: a wait must not end at the moment of a look.
pub const SOON: Duration = Duration::from_secs(120);
/// The same for kubectl.
pub const PATIENCE: &str = "--timeout=120s";
/// What kubectl itself may take: it tells what it waited for in vain.
const KUBECTL: Duration = Duration::from_secs(150);

/// The cluster and the operator that most tests share.
struct Shared {
    cluster: Arc<Cluster>,
    /// Ended with the test process.
    _operator: Operator,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let cluster = Cluster::shared().unwrap();
        let operator = Operator::start(&cluster, &options()).unwrap();
        Shared {
            cluster,
            _operator: operator,
        }
    })
}

/// The operator under test.
pub fn options() -> OperatorOptions {
    OperatorOptions::new(Path::new(env!("CARGO_BIN_EXE_belay")))
        .arg("--drain")
        .arg("0s")
        .arg("--log")
        .arg("info,belay=debug")
}

/// One namespace, and what a test does in it. Tells all it can if the test
/// fails.
pub struct Scene {
    pub namespace: String,
    pub client: Client,
    pub cluster: Arc<Cluster>,
    audit: AuditLog,
}

impl Scene {
    /// A new namespace on the shared cluster.
    pub async fn new(name: &str) -> Self {
        let shared = tokio::task::spawn_blocking(shared).await.unwrap();
        Self::on(&shared.cluster, name).await
    }

    /// A new namespace on a cluster of the test's own.
    pub async fn on(cluster: &Arc<Cluster>, name: &str) -> Self {
        let client = cluster.client().await.unwrap();
        let namespace = Namespace {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            ..Namespace::default()
        };
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let audit = cluster.audit().from_here();
        Self {
            namespace: name.to_owned(),
            client,
            cluster: Arc::clone(cluster),
            audit,
        }
    }

    pub fn plans(&self) -> Api<StoredPlan> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// kubectl in the namespace, whatever comes of it.
    pub async fn kubectl_raw(&self, args: &[&str]) -> KubectlOutput {
        self.kubectl_with(args, None).await
    }

    async fn kubectl_with(&self, args: &[&str], stdin: Option<String>) -> KubectlOutput {
        let mut all = vec!["-n", &self.namespace];
        all.extend(args);
        let mut command = self.cluster.kubectl_command(&all).deadline(KUBECTL);
        if let Some(stdin) = stdin {
            command = command.stdin(stdin);
        }
        tokio::task::spawn_blocking(move || command.run())
            .await
            .unwrap()
            .unwrap()
    }

    /// kubectl in the namespace, which must succeed.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        let output = self.kubectl_raw(args).await;
        assert!(output.success(), "kubectl {args:?}: {}", output.stderr);
        output.stdout
    }

    /// `kubectl apply` of a manifest, whatever comes of it.
    pub async fn try_apply(&self, manifest: &str, args: &[&str]) -> KubectlOutput {
        let mut all = vec!["apply", "-f", "-"];
        all.extend(args);
        self.kubectl_with(&all, Some(manifest.to_owned())).await
    }

    /// `kubectl apply` of a manifest, which must succeed.
    pub async fn apply(&self, manifest: &str) {
        let output = self.try_apply(manifest, &[]).await;
        assert!(
            output.success(),
            "kubectl apply: {}\n{manifest}",
            output.stderr
        );
    }

    /// `kubectl create` of a manifest, whatever comes of it.
    pub async fn create(&self, manifest: &str) -> KubectlOutput {
        self.kubectl_with(
            &["create", "-f", "-", "-o", "name"],
            Some(manifest.to_owned()),
        )
        .await
    }

    /// Applies a Deployment of one container `app` and waits until it is
    /// available.
    pub async fn deployment(&self, name: &str, image: &str, replicas: u8) {
        self.apply(&deployment(name, image, replicas)).await;
        self.available(name).await;
    }

    /// Waits until a Deployment is rolled out in full.
    pub async fn available(&self, name: &str) {
        self.deployment_until(name, "is available", |deployment| {
            let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
                return false;
            };
            let wanted = spec.replicas;
            status.observed_generation >= deployment.metadata.generation
                && status.updated_replicas.unwrap_or_default() >= wanted.unwrap_or(1)
                && status.available_replicas.unwrap_or_default() >= wanted.unwrap_or(1)
                && status.replicas == status.updated_replicas
        })
        .await;
    }

    /// Waits for a Deployment to be as wanted.
    pub async fn deployment_until(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&Deployment) -> bool,
    ) -> Deployment {
        self.until(self.deployments(), name, what, SOON, condition)
            .await
    }

    /// Waits for a plan's status to be as wanted.
    pub async fn plan_until(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&ReleasePlanStatus) -> bool,
    ) -> ReleasePlanStatus {
        let plan = self
            .until(self.plans(), name, what, SOON, |plan: &StoredPlan| {
                plan.status.as_ref().is_some_and(&condition)
            })
            .await;
        plan.status.unwrap()
    }

    /// Waits for a plan as it is stored to be as wanted.
    pub async fn stored_until(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&StoredPlan) -> bool,
    ) -> StoredPlan {
        self.until(self.plans(), name, what, SOON, condition).await
    }

    /// Waits until a plan is Ready for the spec that it has now.
    pub async fn ready(&self, name: &str) -> ReleasePlanStatus {
        let plan = self.until(self.plans(), name, "is Ready", SOON, |plan: &StoredPlan| {
            let generation = plan.metadata.generation;
            plan.status.as_ref().is_some_and(|status| {
                holds(status, "Ready", "True") && status.observed_generation == generation
            })
        });
        plan.await.status.unwrap()
    }

    /// Waits until a plan is Ready, or not, for a reason.
    pub async fn because(&self, name: &str, reason: Reason) -> ReleasePlanStatus {
        self.plan_until(name, reason.as_str(), |status| {
            status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.reason == reason.as_str())
        })
        .await
    }

    /// Waits until what stands in a plan now has been looked at since `before`,
    /// which after a rollback is the last thing to be done.
    pub async fn has_judged(&self, name: &str, before: &ReleasePlanStatus) -> ReleasePlanStatus {
        let judged = |status: &ReleasePlanStatus| {
            let mut both = status.components.iter().zip(&before.components);
            both.all(|(now, then)| {
                now.live_digest.is_some() && now.partial_digest != then.partial_digest
            })
        };
        self.plan_until(name, "judged its content", judged).await
    }

    /// Waits until a plan is in a phase.
    pub async fn phase(&self, name: &str, phase: Phase) -> ReleasePlanStatus {
        self.plan_until(name, &format!("{phase:?}"), |status| {
            status.phase == Some(phase)
        })
        .await
    }

    async fn until<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        limit: Duration,
        condition: impl Fn(&K) -> bool,
    ) -> K
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let wanted = move |object: Option<&K>| object.is_some_and(&condition);
        let waited = await_condition(api, name, Wanted(wanted));
        match tokio::time::timeout(limit, waited).await {
            Ok(object) => object.unwrap().unwrap(),
            Err(_) => panic!("{name} not so within {limit:?}: {what}"),
        }
    }

    /// Waits until an object is gone.
    pub async fn gone(&self, name: &str) {
        let waited = await_condition(
            self.plans(),
            name,
            Wanted(|plan: Option<&StoredPlan>| plan.is_none()),
        );
        tokio::time::timeout(SOON, waited)
            .await
            .expect("the plan is gone")
            .unwrap();
    }

    /// The image of a container of a live template.
    pub async fn image(&self, name: &str) -> String {
        let deployment = self.deployments().get(name).await.unwrap();
        image_of(&deployment)
    }

    /// The live pod template as JSON.
    pub async fn template(&self, name: &str) -> serde_json::Value {
        let resource = kube::core::ApiResource::erase::<Deployment>(&());
        let api =
            Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
        api.get(name).await.unwrap().data["spec"]["template"].clone()
    }

    /// What the operator wrote in this namespace so far.
    pub async fn writes(&self) -> Vec<AuditEntry> {
        let filter = AuditFilter::new()
            .service_account("belay-system", "belay")
            .namespace(&self.namespace)
            .writes();
        self.audited(filter).await
    }

    /// Writes of the operator to the Deployments of this namespace.
    pub async fn writes_to_deployments(&self) -> Vec<AuditEntry> {
        let writes = self.writes().await;
        writes
            .into_iter()
            .filter(|entry| entry.resource == "deployments")
            .collect()
    }

    pub async fn audited(&self, filter: AuditFilter) -> Vec<AuditEntry> {
        let (cluster, audit) = (Arc::clone(&self.cluster), self.audit.clone());
        tokio::task::spawn_blocking(move || {
            cluster.settle_audit().unwrap();
            audit.matching(&filter).unwrap()
        })
        .await
        .unwrap()
    }
}

/// A condition made of a closure.
struct Wanted<F>(F);

impl<K, F: Fn(Option<&K>) -> bool> Condition<K> for Wanted<F> {
    fn matches_object(&self, object: Option<&K>) -> bool {
        (self.0)(object)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut report = format!("---- namespace {} ----\n", self.namespace);
        for args in [
            ["get", "releaseplans", "-o", "yaml"],
            ["get", "deployments,replicasets,pods", "-o", "wide"],
            ["get", "controllerrevisions", "-o", "wide"],
            ["get", "events", "-o", "wide"],
        ] {
            let mut all = vec!["-n", self.namespace.as_str()];
            all.extend(args);
            if let Ok(output) = self.cluster.kubectl(&all) {
                report.push_str(&format!("$ kubectl {}\n{}\n", all.join(" "), output.stdout));
            }
        }
        let log =
            std::fs::read_to_string(self.cluster.logs().join("operator.log")).unwrap_or_default();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&self.namespace))
            .collect();
        report.push_str(&lines[lines.len().saturating_sub(80)..].join("\n"));
        eprintln!("{report}");
    }
}
