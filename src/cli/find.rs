//! Finds plans in the cluster: a few by their names with nothing but `get`, or `patch`
//! where an order follows, more by one paged list. Judges nothing about them but whether
//! they can be read.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams},
    core::{NamespaceResourceScope, ObjectList, Status},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Access, CliError, Session, Streams, clean,
    target::{Kind, OnePlan, SomePlans, Target},
};
use crate::{
    api::{StoredPlan, WorkloadKind},
    plan::{Target as Workload, incumbent, targets_of},
};

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Most plans that are read one by one, which needs no right to list.
const FEW: usize = 8;

impl Session {
    /// The plan that is meant.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn plan(&self, one: &OnePlan) -> Result<StoredPlan, CliError> {
        self.plan_of(&one.target().await?).await
    }

    /// The plans that are meant, in the order in which they are named, or else
    /// by namespace and name.
    ///
    /// # Errors
    /// One that is named is not there, or they cannot be read.
    pub async fn plans(&self, some: &SomePlans) -> Result<Vec<StoredPlan>, CliError> {
        if some.all_namespaces && self.chosen {
            return Err(CliError::usage(
                "-A means all namespaces, and -n one",
                "leave out one of the two",
            ));
        }
        let targets = some.targets().await?;
        if targets.is_empty() {
            let namespace = (!some.all_namespaces).then_some(self.namespace.as_str());
            let plans = self.list(namespace, some.selector.as_deref()).await?;
            return plans.into_iter().map(|plan| self.usable(plan)).collect();
        }
        let singly = targets.len() == 1
            || targets.len() <= FEW && targets.iter().all(|target| target.kind == Kind::Plan);
        let mut plans: Vec<StoredPlan> = Vec::new();
        let mut listed: Vec<(String, Vec<StoredPlan>)> = Vec::new();
        for target in &targets {
            let plan = if singly {
                self.plan_of(target).await?
            } else {
                self.listed(target, &mut listed).await?
            };
            if !plans.iter().any(|p| p.metadata.uid == plan.metadata.uid) {
                plans.push(plan);
            }
        }
        Ok(plans)
    }

    /// The plan of a target, out of all of its namespace, which are kept.
    async fn listed(
        &self,
        target: &Target,
        listed: &mut Vec<(String, Vec<StoredPlan>)>,
    ) -> Result<StoredPlan, CliError> {
        let namespace = self.namespace_of(target)?;
        if !listed.iter().any(|(name, _)| name == namespace) {
            let all = self.list(Some(namespace), None).await?;
            listed.push((namespace.to_owned(), all));
        }
        let all = listed.iter().find(|(name, _)| name == namespace);
        let all = all.map(|(_, all)| all.as_slice()).unwrap_or_default();
        match pick(target, namespace, all, &self.access) {
            Ok(plan) => self.usable(plan.clone()),
            Err(error) => Err(self.why_missing(error, namespace).await),
        }
    }

    /// A plan, if its status can be read or nobody builds on it.
    fn usable(&self, plan: StoredPlan) -> Result<StoredPlan, CliError> {
        if self.unreadable {
            return Ok(plan);
        }
        readable(&plan)?;
        Ok(plan)
    }

    /// The plan that a target is, or is held by.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn plan_of(&self, target: &Target) -> Result<StoredPlan, CliError> {
        let namespace = self.namespace_of(target)?;
        if target.kind == Kind::Deployment {
            let all = self.list(Some(namespace), None).await?;
            return match pick(target, namespace, &all, &self.access) {
                Ok(plan) => self.usable(plan.clone()),
                Err(error) => Err(self.why_missing(error, namespace).await),
            };
        }
        let api = Api::<StoredPlan>::namespaced(self.client.clone(), namespace);
        let mut read = api.get(&target.name).await;
        let may_not = |status: &Status| self.by_patch && status.is_forbidden();
        if matches!(&read, Err(kube::Error::Api(status)) if may_not(status)) {
            // What a patch leaves is answered to whoever may patch.
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::default()
            };
            let nothing = Patch::Merge(json!({}));
            if let Ok(plan) = api.patch(&target.name, &params, &nothing).await {
                read = Ok(plan);
            }
        }
        match read {
            Ok(plan) => self.usable(plan),
            Err(kube::Error::Api(status)) if is_absent(&status, &target.name) => {
                let error = missing(target, namespace, &self.access);
                Err(self.why_missing(error, namespace).await)
            }
            Err(error) => Err(CliError::api(format!("read {target}"), error)),
        }
    }

    /// The error about an object that is not there, or that about its namespace if
    /// that is not there either.
    async fn why_missing(&self, error: CliError, namespace: &str) -> CliError {
        let mut aside = Streams {
            out: &mut std::io::sink(),
            err: &mut std::io::sink(),
            width: None,
            height: None,
        };
        let asked = found_none(&self.client, namespace, &mut aside).await;
        asked.err().unwrap_or(error)
    }

    /// Tells what can be told where no plan was found: an error if the namespace
    /// that was looked into does not exist.
    ///
    /// # Errors
    /// There is no such namespace.
    pub(super) async fn found_none(
        &self,
        some: &SomePlans,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        if some.all_namespaces {
            return Ok(());
        }
        found_none(&self.client, &self.namespace, streams).await
    }

    /// Namespace of a target.
    ///
    /// # Errors
    /// The file says another one than the command line.
    pub fn namespace_of<'a>(&'a self, target: &'a Target) -> Result<&'a str, CliError> {
        match &target.namespace {
            Some(own) if self.chosen && *own != self.namespace => Err(CliError::usage(
                format!(
                    "the file says namespace {own} for {target}, and -n says {}",
                    self.namespace
                ),
                "leave out -n",
            )),
            Some(own) => Ok(own),
            None => Ok(&self.namespace),
        }
    }

    /// The objects of a kind in a namespace, or in all.
    pub(super) fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        namespace.map_or_else(
            || Api::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        )
    }

    /// All plans of a namespace, or of all, by namespace and name.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn list(
        &self,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<StoredPlan>, CliError> {
        let mut params = ListParams::default();
        if let Some(selector) = selector {
            params = params.labels(selector);
        }
        let mut plans: Vec<StoredPlan> = list_all(&self.api(namespace), params)
            .await
            .map_err(|error| CliError::api("list releaseplans", error))?;
        plans.sort_by(|a, b| {
            let key = |p: &StoredPlan| (p.metadata.namespace.clone(), p.metadata.name.clone());
            key(a).cmp(&key(b))
        });
        Ok(plans)
    }
}

/// Whether an answer says that an object of this name is not there; without a
/// name it says that there is no such kind of objects.
fn is_absent(status: &Status, name: &str) -> bool {
    let details = status.details.as_ref();
    status.is_not_found() && details.is_some_and(|details| details.name == name)
}

/// Takes a status that cannot be read for what it is, and not for an empty one.
///
/// # Errors
/// It cannot be read.
pub(super) fn readable(plan: &StoredPlan) -> Result<(), CliError> {
    let Some(fault) = &plan.status_fault else {
        return Ok(());
    };
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    Err(CliError::Unreadable {
        what: format!("releaseplan/{name}"),
        reason: fault.clone(),
    })
}

/// Tells what can be told where no plan was found in a namespace: an error if
/// that does not exist.
///
/// # Errors
/// There is no such namespace.
pub(super) async fn found_none(
    client: &Client,
    namespace: &str,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let api = Api::<Namespace>::all(client.clone());
    let why = match api.get_metadata_opt(namespace).await {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => {
            return Err(CliError::NotFound {
                what: format!("namespace {namespace}"),
                namespace: String::new(),
                hint: Some("name one with -n, or look into all of them with -A".to_owned()),
            });
        }
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            "you may not get namespaces".to_owned()
        }
        Err(error) => error.to_string(),
    };
    writeln!(
        streams.err,
        "whether there is a namespace {namespace} was not checked: {}",
        clean(&why)
    )?;
    Ok(())
}

/// Where what belongs to plans is listed: in each of their namespaces, or at once
/// in all (none) where those were asked for and they are in several.
pub(super) fn scopes<'a>(
    plans: impl IntoIterator<Item = &'a StoredPlan>,
    all: bool,
) -> Vec<Option<&'a str>> {
    let plans = plans.into_iter();
    let namespaces = plans.filter_map(|plan| plan.metadata.namespace.as_deref());
    let namespaces: BTreeSet<&str> = namespaces.collect();
    if all && namespaces.len() > 1 {
        return vec![None];
    }
    namespaces.into_iter().map(Some).collect()
}

/// Everything of a kind, page by page.
///
/// # Errors
/// A page cannot be had.
pub async fn list_all<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    pages(params, async |page| api.list(page).await).await
}

/// Everything that `list` answers, page by page.
///
/// # Errors
/// A page cannot be had.
pub(super) async fn pages<K: Clone>(
    params: ListParams,
    list: impl AsyncFn(&ListParams) -> Result<ObjectList<K>, kube::Error>,
) -> Result<Vec<K>, kube::Error> {
    let mut params = params.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(found),
        }
    }
}

/// The plan among all of a namespace that a target is, or is held by.
fn pick<'a>(
    target: &Target,
    namespace: &str,
    all: &'a [StoredPlan],
    access: &Access,
) -> Result<&'a StoredPlan, CliError> {
    let found = match target.kind {
        Kind::Plan => all
            .iter()
            .find(|plan| plan.metadata.name.as_deref() == Some(&target.name)),
        Kind::Deployment => holder(&target.name, all),
    };
    found.ok_or_else(|| missing(target, namespace, access))
}

/// The plan that holds a Deployment, of all plans of its namespace.
#[must_use]
pub fn holder<'a>(deployment: &str, all: &'a [StoredPlan]) -> Option<&'a StoredPlan> {
    let workload = Workload {
        kind: WorkloadKind::Deployment,
        name: deployment.to_owned(),
    };
    all.iter().find(|plan| {
        targets_of(plan).contains(&workload) && incumbent(plan, &workload, all.iter()).is_none()
    })
}

fn missing(target: &Target, namespace: &str, access: &Access) -> CliError {
    let flags = access.kubectl_flags(namespace).join(" ");
    let hint = format!("to see the plans that there are: kubectl get releaseplans {flags}");
    if target.kind == Kind::Deployment {
        let message =
            format!("no plan of namespace {namespace} names {target}, which may not exist either");
        return CliError::refused(message, hint);
    }
    CliError::NotFound {
        what: target.to_string(),
        namespace: namespace.to_owned(),
        hint: Some(hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        body::Body,
        http::{Request, Response},
    };
    use http_body_util::BodyExt as _;
    use tower::{BoxError, service_fn};

    fn plan(name: &str, claimed: Option<&str>) -> StoredPlan {
        let workload = json!({"kind": "Deployment", "name": "cart"});
        let mut plan = json!({
            "metadata": {"name": name, "namespace": "s", "uid": name},
            "spec": {"components": [{"workload": workload}]},
        });
        if let Some(at) = claimed {
            let component = json!({"name": "cart", "workload": workload, "claimedAt": at});
            plan["status"] = json!({"components": [component]});
        }
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn what_belongs_to_plans_is_listed_once_for_each_namespace_or_for_all() {
        let (a, mut b) = (plan("a", None), plan("b", None));
        assert_eq!(scopes([], true), []);
        assert_eq!(scopes([&a, &b], false), [Some("s")]);
        assert_eq!(scopes([&a, &b], true), [Some("s")]);
        b.metadata.namespace = Some("t".to_owned());
        assert_eq!(scopes([&a, &b], false), [Some("s"), Some("t")]);
        assert_eq!(scopes([&a, &b], true), [None]);
    }

    #[test]
    fn a_deployment_stands_for_the_plan_that_holds_it() {
        let all = [
            plan("a", None),
            plan("b", Some("2026-01-01T00:00:00.000000Z")),
        ];
        let name = |found: Option<&StoredPlan>| found.and_then(|p| p.metadata.name.clone());
        assert_eq!(name(holder("cart", &all)).as_deref(), Some("b"));
        assert_eq!(name(holder("web", &all)), None);
        let target: Target = "deploy/web".parse().unwrap();
        let access = Access {
            context: Some("c".into()),
            ..Access::default()
        };
        let error = pick(&target, "s", &all, &access).unwrap_err();
        let hint = "kubectl get releaseplans -n s --context c";
        assert!(error.hint().unwrap().ends_with(hint), "{error:?}");
        let error = error.to_string();
        assert_eq!(
            error,
            "no plan of namespace s names deployment/web, which may not exist either"
        );
    }

    /// The right to give orders is that to patch.
    #[tokio::test]
    async fn a_plan_that_may_only_be_patched_is_read_by_a_patch_that_changes_nothing() {
        let server = service_fn(async |request: Request<kube::client::Body>| {
            let rehearsed = request.uri().query() == Some("&dryRun=All");
            let (code, body) = match request.method().as_str() {
                "PATCH" if rehearsed => {
                    let sent = request.into_body().collect().await?.to_bytes();
                    assert_eq!(&*sent, b"{}");
                    (200, serde_json::to_value(plan("shop", None))?)
                }
                _ => (
                    403,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                           "reason": "Forbidden", "code": 403, "message": "no"}),
                ),
            };
            let mut response = Response::new(Body::from(body.to_string()));
            *response.status_mut() = code.try_into()?;
            Ok::<_, BoxError>(response)
        });
        let mut session = Session {
            client: Client::new(server, "s"),
            ..crate::cli::testing::session(|_| None)
        };
        let target: Target = "shop".parse().unwrap();
        let error = session.plan_of(&target).await.unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        session.by_patch = true;
        let found = session.plan_of(&target).await.unwrap();
        assert_eq!(found.metadata.name.as_deref(), Some("shop"));
        let nobody = Session {
            by_patch: true,
            ..crate::cli::testing::session(|_| None)
        };
        let error = nobody.plan_of(&target).await.unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }

    #[test]
    fn a_kind_that_is_not_there_is_told_from_an_object() {
        let of = |name: &str| -> Status {
            serde_json::from_value(json!({
                "code": 404, "reason": "NotFound", "status": "Failure",
                "message": "the server could not find the requested resource",
                "details": {"group": "belay.dev", "kind": "releaseplans", "name": name},
            }))
            .unwrap()
        };
        assert!(is_absent(&of("shop"), "shop"));
        assert!(!is_absent(&of(""), "shop"));
        let bare: Status = serde_json::from_value(json!({"code": 404})).unwrap();
        assert!(!is_absent(&bare, "shop"));
    }
}
