//! Finds plans in the cluster: one by its name with nothing but `get`, several
//! by one paged list. Judges nothing about them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectList},
};
use serde::de::DeserializeOwned;

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
        if let [target] = targets.as_slice() {
            return Ok(vec![self.plan_of(target).await?]);
        }
        if targets.is_empty() {
            let namespace = (!some.all_namespaces).then_some(self.namespace.as_str());
            return self.list(namespace, some.selector.as_deref()).await;
        }
        let mut plans: Vec<StoredPlan> = Vec::new();
        let mut listed: Vec<(String, Vec<StoredPlan>)> = Vec::new();
        for target in &targets {
            let namespace = self.namespace_of(target)?;
            if !listed.iter().any(|(name, _)| name == namespace) {
                let all = self.list(Some(namespace), None).await?;
                listed.push((namespace.to_owned(), all));
            }
            let all = listed.iter().find(|(name, _)| name == namespace);
            let all = all.map(|(_, all)| all.as_slice()).unwrap_or_default();
            let plan = match pick(target, namespace, all, &self.access) {
                Ok(plan) => plan,
                Err(error) => return Err(self.why_missing(error, namespace).await),
            };
            if !plans.iter().any(|p| p.metadata.uid == plan.metadata.uid) {
                plans.push(plan.clone());
            }
        }
        Ok(plans)
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
                Ok(plan) => Ok(plan.clone()),
                Err(error) => Err(self.why_missing(error, namespace).await),
            };
        }
        let api = Api::<StoredPlan>::namespaced(self.client.clone(), namespace);
        match api.get_opt(&target.name).await {
            Ok(Some(plan)) => Ok(plan),
            Ok(None) => {
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
    let what = match target.kind {
        Kind::Plan => target.to_string(),
        Kind::Deployment => format!("a plan that holds {target}"),
    };
    CliError::NotFound {
        what,
        namespace: namespace.to_owned(),
        hint: Some(hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            "a plan that holds deployment/web not found in namespace s"
        );
    }
}
