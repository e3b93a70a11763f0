//! What the API server's refusals mean, on the API server itself: a new version
//! of Kubernetes that words them otherwise shows up here.

use belay::{
    api::{FIELD_MANAGER, WorkloadKind},
    cluster::{ApplyFailure, apply_body, classify, deployments, replace_template},
    plan::Target,
};
use kube::{
    Client, Config,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::support::{SOON, Scene};

const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: judged.belay.test}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  validations:
  - expression: \"object.spec.template.spec.containers.all(c, !c.image.startsWith('untrusted/'))\"
    message: images of untrusted are not allowed
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: judged.belay.test}
spec:
  policyName: judged.belay.test
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: judged}}}
";

/// What an apply came to.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Is {
    Accepted,
    Refused,
    Conflict,
    Undecided,
}

struct Bench<'a> {
    scene: &'a Scene,
    uid: String,
    version: String,
}

impl Bench<'_> {
    /// Applies a template by a dry run, bound to this uid and resourceVersion.
    async fn apply(
        &self,
        client: &Client,
        name: &str,
        bound: (&str, &str),
        template: &Value,
        strict: bool,
    ) -> (Is, String) {
        let target = Target {
            kind: WorkloadKind::Deployment,
            name: name.to_owned(),
        };
        let body = apply_body(&self.scene.namespace, &target, bound.0, bound.1, template);
        let mut params = PatchParams::apply(FIELD_MANAGER).force();
        params.dry_run = true;
        if strict {
            params = params.validation_strict();
        }
        let answer = deployments(client, &self.scene.namespace)
            .patch(name, &params, &Patch::Apply(&body))
            .await;
        judged(answer)
    }

    async fn content(&self, template: &Value, strict: bool) -> (Is, String) {
        let bound = (self.uid.as_str(), self.version.as_str());
        self.apply(&self.scene.client, "cart", bound, template, strict)
            .await
    }
}

fn judged(answer: Result<DynamicObject, kube::Error>) -> (Is, String) {
    let Err(error) = answer else {
        return (Is::Accepted, String::new());
    };
    let said = error.to_string();
    match classify(&error) {
        ApplyFailure::Refused(text) => (Is::Refused, text),
        ApplyFailure::Conflict => (Is::Conflict, said),
        ApplyFailure::Undecided(text) => (Is::Undecided, text),
    }
}

fn container(rest: Value) -> Value {
    let mut container = json!({"name": "app"});
    for (key, value) in rest.as_object().unwrap() {
        container[key] = value.clone();
    }
    json!({"spec": {"containers": [container]}})
}

/// Somebody without any rights.
async fn nobody(scene: &Scene) -> Client {
    let kubeconfig = Kubeconfig::read_from(scene.cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.auth_info.impersonate = Some("nobody".to_owned());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A table of what can go wrong with an apply, each made on the API server: a
/// fault of the content is a refusal, a workload that moved is a conflict, and
/// of the rest nothing is concluded.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_refusal_of_the_api_server_is_told_apart() {
    let scene = Scene::new("judged").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(POLICY).await;
    let live = scene.deployments().get("cart").await.unwrap();
    let bench = Bench {
        scene: &scene,
        uid: live.metadata.uid.unwrap(),
        version: live.metadata.resource_version.unwrap(),
    };
    let fine = container(json!({"image": "shop/cart:2"}));
    assert_eq!(bench.content(&fine, false).await.0, Is::Accepted);

    let untrusted = container(json!({"image": "untrusted/cart:2"}));
    let deadline = tokio::time::Instant::now() + SOON;
    // The API server hears of a new policy by a watch of its own.
    while bench.content(&untrusted, false).await.0 == Is::Accepted {
        assert!(tokio::time::Instant::now() < deadline, "the policy works");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let port = json!({"containerPort": 80});
    #[rustfmt::skip]
    let contents = [
        ("unknown field", container(json!({"imag": "shop/cart:2"})), "imag"),
        ("unknown field higher up", json!({"spec": {"container": []}}), "container"),
        ("wrong type", container(json!({"image": 2})), "image"),
        ("list instead of map", json!({"metadata": {"labels": ["a"]}}), "labels"),
        ("duplicate key", json!({"spec": {"containers": [{"name": "app", "image": "a"}, {"name": "app", "image": "b"}]}}), "app"),
        ("duplicate port", container(json!({"ports": [port.clone(), port]})), "80"),
        ("bad quantity", container(json!({"resources": {"limits": {"cpu": "much"}}})), "quantit"),
        ("missing required", json!({"spec": {"containers": [{"name": "app"}, {"name": "new"}]}}), "image"),
        ("missing merge key", json!({"spec": {"containers": [{"image": "shop/cart:2"}]}}), "name"),
        ("invalid value", container(json!({"imagePullPolicy": "Sometimes"})), "imagePullPolicy"),
        ("label of the selector", json!({"metadata": {"labels": {"app": "other"}}}), "selector"),
        ("denied by a policy", untrusted, "untrusted are not allowed"),
    ];
    let mut wrong = Vec::new();
    for (what, template, said) in &contents {
        for strict in [false, true] {
            let (is, text) = bench.content(template, strict).await;
            if is != Is::Refused || !text.contains(said) {
                wrong.push(format!("{what} (strict: {strict}): {is:?} {text}"));
            }
        }
    }

    let uid = "00000000-0000-4000-8000-000000000000";
    let nobody = nobody(&scene).await;
    let own = (bench.uid.as_str(), bench.version.as_str());
    #[rustfmt::skip]
    let others = [
        ("wrong uid", &scene.client, "cart", (uid, own.1), Is::Conflict),
        ("wrong resourceVersion", &scene.client, "cart", (own.0, "1"), Is::Conflict),
        ("both", &scene.client, "cart", (uid, "1"), Is::Conflict),
        ("missing object", &scene.client, "gone", own, Is::Conflict),
        ("no rights", &nobody, "cart", own, Is::Undecided),
        ("no rights, missing object", &nobody, "gone", own, Is::Undecided),
    ];
    for (what, client, name, bound, wanted) in others {
        let (is, text) = bench.apply(client, name, bound, &fine, false).await;
        if is != wanted {
            wrong.push(format!("{what}: {is:?} {text}"));
        }
    }

    // The other way to write a template, with its own ways to fail.
    let whole = scene.template("cart").await;
    let api = deployments(&scene.client, &scene.namespace);
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let mut unnamed = whole.clone();
    unnamed["spec"]["containers"][0]["name"] = json!("");
    let mut mistyped = whole.clone();
    mistyped["spec"]["containers"][0]["image"] = json!(2);
    #[rustfmt::skip]
    let patches = [
        ("whole", own, &whole, "cart", Is::Accepted),
        ("whole, wrong uid", (uid, own.1), &whole, "cart", Is::Conflict),
        ("whole, wrong resourceVersion", (own.0, "1"), &whole, "cart", Is::Conflict),
        ("whole, both", (uid, "1"), &whole, "cart", Is::Conflict),
        ("whole, missing object", own, &whole, "gone", Is::Undecided),
        ("whole, missing name", own, &unnamed, "cart", Is::Refused),
        ("whole, wrong type", own, &mistyped, "cart", Is::Refused),
    ];
    for (what, bound, template, name, wanted) in patches {
        let patch = replace_template(bound.0, bound.1, template).unwrap();
        let (is, text) = judged(api.patch(name, &params, &patch).await);
        if is != wanted {
            wrong.push(format!("{what}: {is:?} {text}"));
        }
    }
    assert_eq!(wrong, [] as [String; 0], "{wrong:#?}");
}
