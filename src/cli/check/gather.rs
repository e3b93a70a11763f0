//! Asks the cluster. Decides what is asked and how long an answer may take, and
//! judges nothing. All questions go to the API server, at the same time; none of
//! them changes anything.

use std::time::Duration;

use axum::http::{Request, Uri};
use futures::{StreamExt as _, TryStreamExt as _, future::join_all, stream};
use http_body_util::BodyExt as _;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        apps::v1::Deployment,
        authorization::v1::{
            SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
            SubjectAccessReviewSpec,
        },
        coordination::v1::Lease,
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
    client::Body,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    facts::{Answer, Before, Facts, Hooks, Other, Owners, Reply, Served, Silence},
    hooks,
    rights::{self, Right},
};
use crate::{
    api::{GROUP, StoredPlan, VERSION},
    certs::publish::CONFIGURATION,
    cli::{CliError, Session, list_all, pages, status::Caller},
};

/// Time for each question. All of them together take little longer.
const DEADLINE: Duration = Duration::from_millis(2500);
/// Reviews of rights that run at the same time.
const PARALLEL: usize = 16;
/// Name of the operator's Deployment, ServiceAccount and lease.
const OPERATOR: &str = "belay";
/// Where the operator is if its webhooks do not say.
const OPERATOR_NAMESPACE: &str = "belay-system";
/// The Secret of the webhook's certificate.
const SECRET: &str = "belay-webhook-tls";
/// A workload that nobody has.
pub(super) const NOBODYS: &str = "belay-check-no-such-deployment";
/// A time that the schema takes and the webhook does not.
pub(super) const TOO_LONG: &str = "169h";

/// What is known of the cluster, before an installation.
///
/// # Errors
/// The API server does not answer at all.
pub(super) async fn before(session: &Session) -> Result<Before, CliError> {
    let client = &session.client;
    let version = version(client).await?;
    let needed = rights::to_install(OPERATOR_NAMESPACE);
    let (crd, lacks, resources) = tokio::join!(
        crd(client),
        timed(lacking(needed, |right| own_right(client, right))),
        timed(resources(client)),
    );
    Ok(Before {
        version,
        crd,
        lacks,
        resources,
    })
}

/// What is known of the cluster. `all` looks at the workloads of all
/// namespaces; `operator` says where the operator is.
///
/// # Errors
/// The API server does not answer at all.
pub(super) async fn facts(
    session: &Session,
    all: bool,
    operator: Option<&str>,
    now: Timestamp,
    caller: Caller,
) -> Result<Facts, CliError> {
    let client = &session.client;
    let tried = session.namespace.as_str();
    let (version, mutating, validating) = tokio::join!(
        version(client),
        configured::<MutatingWebhookConfiguration>(client),
        configured::<ValidatingWebhookConfiguration>(client),
    );
    let version = version?;
    let of = |hooks: &Answer<Option<Hooks>>| hooks.as_ref().ok()?.as_ref()?.service.clone();
    let named = operator.is_some();
    let operator = operator
        .map(str::to_owned)
        .or_else(|| of(&mutating))
        .unwrap_or_else(|| OPERATOR_NAMESPACE.to_owned());
    let namespace = (!all).then(|| tried.to_owned());
    let people = rights::of_people(tried);
    let own = rights::of_operator(&operator);
    let (crd, accepted, refused, operator_lacks, caller_lacks, deployment, leaf, lease, owners) = tokio::join!(
        crd(client),
        timed(attempt(client, tried, "0s")),
        timed(attempt(client, tried, TOO_LONG)),
        timed(lacking(own, |right| operator_right(
            client, &operator, right
        ))),
        timed(lacking(people, |right| own_right(client, right))),
        timed(get::<Deployment>(client, &operator, OPERATOR)),
        timed(leaf(client, &operator)),
        timed(lease(client, &operator)),
        timed(owners(client, namespace.as_deref())),
    );
    Ok(Facts {
        now,
        caller,
        namespace,
        operator,
        named,
        version,
        crd,
        mutating,
        validating,
        accepted,
        refused,
        operator_lacks,
        caller_lacks,
        deployment,
        leaf,
        lease,
        owners,
    })
}

async fn timed<T>(question: impl Future<Output = Result<T, kube::Error>>) -> Answer<T> {
    match timeout(DEADLINE, question).await {
        Err(_) => Err(Silence::Late),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
            Err(Silence::Forbidden(status.message.clone()))
        }
        Ok(Err(kube::Error::Api(status))) => Err(Silence::Failed(status.message.clone())),
        Ok(Err(error)) => Err(Silence::Failed(error.to_string())),
    }
}

/// Whoever has no answer to this has none to anything.
async fn version(client: &Client) -> Result<String, CliError> {
    let doing = "reach the API server";
    match timeout(DEADLINE, client.apiserver_version()).await {
        Ok(Ok(version)) => Ok(version.git_version),
        Ok(Err(error)) => Err(CliError::api(doing, error)),
        Err(_) => Err(CliError::NoCluster {
            reason: Silence::Late.to_string(),
            contexts: Vec::new(),
        }),
    }
}

async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    Api::<K>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
}

/// As a tree, since another tool's may have what ours does not.
async fn crd(client: &Client) -> Answer<Option<Value>> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let name = format!("releaseplans.{GROUP}");
    let found = timed(api.get_opt(&name)).await?;
    Ok(found.map(|crd| crd.data))
}

async fn configured<K: Resource<DynamicType = ()>>(client: &Client) -> Answer<Option<Hooks>> {
    let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let Some(found) = timed(api.get_opt(CONFIGURATION)).await? else {
        return Ok(None);
    };
    let webhooks = found.data.get("webhooks").and_then(Value::as_array);
    let mut hooks = hooks::reach(webhooks.into_iter().flatten());
    for webhook in webhooks.into_iter().flatten() {
        let config = webhook.get("clientConfig").cloned().unwrap_or_default();
        let config: WebhookClientConfig = serde_json::from_value(config)
            .map_err(|error| Silence::Failed(format!("it cannot be read: {error}")))?;
        hooks.trusted.extend(config.ca_bundle);
        hooks.service = config
            .service
            .map(|service| service.namespace)
            .or(hooks.service);
        hooks.url = config.url.as_deref().map(host).or(hooks.url);
    }
    Ok(Some(hooks))
}

/// A URL without its path; one that is none as it is.
pub(super) fn host(url: &str) -> String {
    let parsed: Option<Uri> = url.parse().ok();
    let parts = parsed
        .as_ref()
        .map(|uri| (uri.scheme_str(), uri.authority()));
    match parts {
        Some((Some(scheme), Some(authority))) => format!("{scheme}://{authority}"),
        _ => url.to_owned(),
    }
}

/// Tries to create a plan, by a dry run of the server: nothing is stored. Its
/// workload does not exist, so nothing can come of it in any case.
async fn attempt(client: &Client, namespace: &str, bake: &str) -> Result<Reply, kube::Error> {
    let plan = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ReleasePlan",
        "metadata": {"generateName": "belay-check-", "namespace": namespace},
        "spec": {
            "components": [{"workload": {"kind": "Deployment", "name": NOBODYS}}],
            "bakeTime": bake
        }
    });
    let uri = format!(
        "/apis/{GROUP}/{VERSION}/namespaces/{namespace}/releaseplans?dryRun=All&fieldValidation=Strict"
    );
    let request = Request::post(uri)
        .header("Content-Type", "application/json")
        .body(Body::from(plan.to_string().into_bytes()))
        .map_err(|error| {
            kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error))
        })?;
    // Warnings come in a header, which typed calls do not show.
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("Warning").iter();
    let warnings = warnings
        .filter_map(|warning| Some(warning.to_str().ok()?.to_owned()))
        .collect();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Reply {
        code,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        warnings,
    })
}

/// Those of `rights` that `ask` says no to, in their order.
async fn lacking<'a, F>(
    rights: Vec<Right>,
    ask: impl Fn(Right) -> F + 'a,
) -> Result<Vec<Right>, kube::Error>
where
    F: Future<Output = Result<bool, kube::Error>> + 'a,
{
    let asked = rights.into_iter().map(|right| {
        let answer = ask(right.clone());
        async move { Ok::<_, kube::Error>((!answer.await?).then_some(right)) }
    });
    stream::iter(asked)
        .buffered(PARALLEL)
        .try_filter_map(|right| async move { Ok(right) })
        .try_collect()
        .await
}

async fn own_right(client: &Client, right: Right) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(right.attributes()),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn operator_right(
    client: &Client,
    namespace: &str,
    right: Right,
) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{OPERATOR}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(right.attributes()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn leaf(client: &Client, namespace: &str) -> Result<Option<String>, kube::Error> {
    let secret = get::<Secret>(client, namespace, SECRET).await?;
    let certificate = secret.and_then(|secret| secret.data?.remove("tls.crt"));
    Ok(certificate.map(|pem| String::from_utf8_lossy(&pem.0).into_owned()))
}

async fn lease(client: &Client, namespace: &str) -> Result<Option<(Timestamp, i32)>, kube::Error> {
    let lease = get::<Lease>(client, namespace, OPERATOR).await?;
    let spec = lease.and_then(|lease| lease.spec);
    Ok(spec.and_then(|spec| Some((spec.renew_time?.0, spec.lease_duration_seconds?))))
}

async fn owners(client: &Client, namespace: Option<&str>) -> Result<Owners, kube::Error> {
    let plans = async {
        let api: Api<StoredPlan> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        list_all(&api, ListParams::default()).await
    };
    let deployments = async {
        let api: Api<Deployment> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        pages(ListParams::default(), async |page| {
            api.list_metadata(page).await
        })
        .await
    };
    let others = [
        (
            "flagger.app",
            "v1beta1",
            "Canary",
            "canaries",
            "Flagger",
            "/spec/targetRef",
        ),
        (
            "argoproj.io",
            "v1alpha1",
            "Rollout",
            "rollouts",
            "Argo",
            "/spec/workloadRef",
        ),
    ]
    .map(|(group, version, kind, plural, tool, target)| {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        others(client, namespace, resource, tool, target)
    });
    let (plans, deployments, others) = tokio::join!(plans, deployments, join_all(others));
    Ok(Owners {
        plans: plans?,
        deployments: deployments?,
        others: others.into_iter().flatten().collect(),
    })
}

/// Objects of another tool with their targets. One that is not installed, or
/// that the caller may not see, has none.
async fn others(
    client: &Client,
    namespace: Option<&str>,
    resource: ApiResource,
    tool: &str,
    target: &str,
) -> Vec<Other> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let found = list_all(&api, ListParams::default()).await;
    let found = found.unwrap_or_default().into_iter();
    found
        .filter_map(|object| {
            let target = object.data.pointer(target)?;
            let is_deployment = target.get("kind")?.as_str()? == "Deployment";
            let name = object.metadata.name.unwrap_or_default();
            is_deployment.then_some(Other {
                what: format!("{tool}'s {} {name}", resource.kind),
                namespace: object.metadata.namespace.unwrap_or_default(),
                deployment: target.get("name")?.as_str()?.to_owned(),
            })
        })
        .collect()
}

async fn resources(client: &Client) -> Result<Vec<Served>, kube::Error> {
    let groups = client.list_api_groups_aggregated().await?;
    let mut served = Vec::new();
    for group in groups.items {
        let name = group.metadata.and_then(|metadata| metadata.name);
        let name = name.unwrap_or_default();
        for resource in group.versions.into_iter().flat_map(|v| v.resources) {
            let kind = resource.response_kind.and_then(|kind| kind.kind);
            served.push(Served {
                group: name.clone(),
                kind: kind.unwrap_or_default(),
                plural: resource.resource.unwrap_or_default(),
                short_names: resource.short_names,
            });
        }
    }
    Ok(served)
}
