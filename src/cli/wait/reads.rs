//! What is live beside plans, read once for all plans that ask for it at the same
//! time.

use std::collections::{BTreeSet, HashMap};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use crate::cli::{Session, list_all};

/// Reads at a time.
const AT_ONCE: usize = 8;

/// What was read, and how to read more.
pub(super) struct Reads<'a> {
    session: &'a Session,
    /// Namespaces of which all Deployments are read at once.
    shared: &'a BTreeSet<String>,
    listed: HashMap<String, Vec<DynamicObject>>,
    config_maps: HashMap<(String, String), Option<ConfigMap>>,
}

impl<'a> Reads<'a> {
    /// Nothing is read yet.
    pub(super) fn new(session: &'a Session, shared: &'a BTreeSet<String>) -> Self {
        Self {
            session,
            shared,
            listed: HashMap::new(),
            config_maps: HashMap::new(),
        }
    }

    /// The Deployments of these names that there are.
    pub(super) async fn deployments(
        &mut self,
        namespace: &str,
        names: &[&String],
    ) -> Result<Vec<DynamicObject>, kube::Error> {
        let resource = ApiResource::erase::<Deployment>(&());
        let client = self.session.client.clone();
        let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource);
        if let ([name], false) = (names, self.shared.contains(namespace)) {
            return Ok(api.get_opt(name).await?.into_iter().collect());
        }
        if !self.listed.contains_key(namespace) {
            let all = list_all(&api, ListParams::default()).await?;
            self.listed.insert(namespace.to_owned(), all);
        }
        let all = self.listed.get(namespace).into_iter().flatten();
        let ours = all.filter(|object| {
            let name = object.metadata.name.as_ref();
            name.is_some_and(|name| names.contains(&name))
        });
        Ok(ours.cloned().collect())
    }

    /// ConfigMaps by their names, none where there is none.
    pub(super) async fn config_maps(
        &mut self,
        namespace: &str,
        names: &[String],
    ) -> Result<Vec<(String, Option<ConfigMap>)>, kube::Error> {
        let key = |name: &String| (namespace.to_owned(), name.clone());
        let api = Api::<ConfigMap>::namespaced(self.session.client.clone(), namespace);
        let new: Vec<_> = names
            .iter()
            .map(key)
            .filter(|key| !self.config_maps.contains_key(key))
            .collect();
        let reads = new.into_iter().map(|key| {
            let api = api.clone();
            async move {
                let read = api.get_opt(&key.1).await?;
                Ok::<_, kube::Error>((key, read))
            }
        });
        let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        self.config_maps.extend(read);
        let all = names.iter().map(|name| {
            let read = self.config_maps.get(&key(name)).cloned().flatten();
            (name.clone(), read)
        });
        Ok(all.collect())
    }
}
