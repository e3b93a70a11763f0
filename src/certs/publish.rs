//! Telling the API server where the webhooks are and whom to trust.
//!
//! The webhook configurations exist already (they are installed with the
//! operator); only their `clientConfig` is written, only where it differs in
//! content, and only for webhooks of ours.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::{DynamicObject, discovery::ApiResource},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    api::FIELD_MANAGER,
    webhook::{MUTATE, VALIDATE},
};

/// Name of both webhook configurations.
pub const CONFIGURATION: &str = "belay.dev";
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Where the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Through a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// Directly.
    Url {
        /// `https://host:port`, without a path.
        base: String,
    },
}

/// The configurations could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// They are not installed.
    #[error("{kind} {CONFIGURATION} does not exist: apply deploy/webhooks.yaml")]
    Missing {
        /// Kind of the configuration.
        kind: String,
    },
    /// They hold no webhook of ours.
    #[error(
        "{kind} {CONFIGURATION} has no webhook under {CONFIGURATION}: apply deploy/webhooks.yaml"
    )]
    Foreign {
        /// Kind of the configuration.
        kind: String,
    },
    /// The API server did not let us.
    #[error("{kind} {CONFIGURATION} cannot be updated: {source}")]
    Api {
        /// Kind of the configuration.
        kind: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// What was written is not what is there.
    #[error("{kind} {CONFIGURATION} keeps changing: look for another writer of its clientConfig")]
    Contended {
        /// Kind of the configuration.
        kind: String,
    },
    /// No answer in time.
    #[error("{kind} {CONFIGURATION} could not be updated in time: the API server does not answer")]
    Late {
        /// Kind of the configuration.
        kind: String,
    },
}

/// Makes both configurations point at `address` and trust `bundle` (PEM), and
/// reads them back. Writes nothing where that is so already.
///
/// # Errors
/// What kept it from doing so until the deadline.
pub async fn publish(
    client: &Client,
    address: &Address,
    bundle: &str,
    deadline: Instant,
) -> Result<(), PublishError> {
    one::<MutatingWebhookConfiguration>(client, address, MUTATE, bundle, deadline).await?;
    one::<ValidatingWebhookConfiguration>(client, address, VALIDATE, bundle, deadline).await
}

async fn one<K: Resource<DynamicType = ()>>(
    client: &Client,
    address: &Address,
    path: &str,
    bundle: &str,
    deadline: Instant,
) -> Result<(), PublishError> {
    let kind = K::kind(&()).into_owned();
    let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    loop {
        let tried = timeout_at(deadline, attempt(&api, &kind, address, path, bundle)).await;
        let error = match tried {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => return Err(PublishError::Late { kind }),
        };
        if Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}

/// Reads the configuration, writes it if need be, and reads it back.
async fn attempt(
    api: &Api<DynamicObject>,
    kind: &str,
    address: &Address,
    path: &str,
    bundle: &str,
) -> Result<(), PublishError> {
    let failed = |source| PublishError::Api {
        kind: kind.to_owned(),
        source: Box::new(source),
    };
    let read = async || {
        let stored = api
            .get_opt(CONFIGURATION)
            .await
            .map_err(failed)?
            .ok_or_else(|| PublishError::Missing { kind: kind.into() })?;
        let webhooks = stored.data.get("webhooks").unwrap_or(&Value::Null);
        let changes = changes(webhooks, address, path, bundle)
            .ok_or_else(|| PublishError::Foreign { kind: kind.into() })?;
        Ok((stored.metadata.resource_version, changes))
    };
    let (version, changes) = read().await?;
    if changes.is_empty() {
        return Ok(());
    }
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Json::<()>(patch(version.as_deref(), changes));
    let contended = || PublishError::Contended { kind: kind.into() };
    match api.patch(CONFIGURATION, &params, &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_conflict() => return Err(contended()),
        Err(error) => return Err(failed(error)),
    }
    let (_, left) = read().await?;
    if !left.is_empty() {
        return Err(contended());
    }
    tracing::info!(kind, name = CONFIGURATION, "webhook configuration updated");
    Ok(())
}

/// The client configurations that have to change, by the index of their
/// webhook. None if there is no webhook of ours at all.
fn changes(
    webhooks: &Value,
    address: &Address,
    path: &str,
    bundle: &str,
) -> Option<Vec<(usize, Value)>> {
    let suffix = format!(".{CONFIGURATION}");
    let ours: Vec<(usize, &Value)> = webhooks
        .as_array()?
        .iter()
        .enumerate()
        .filter(|(_, webhook)| {
            let name = webhook.get("name").and_then(Value::as_str);
            name.is_some_and(|name| name.ends_with(&suffix))
        })
        .map(|(index, webhook)| (index, webhook.get("clientConfig").unwrap_or(&Value::Null)))
        .collect();
    if ours.is_empty() {
        return None;
    }
    let changed = ours.into_iter().filter_map(|(index, current)| {
        let wanted = client_config(address, path_of(current).unwrap_or(path), bundle);
        (*current != wanted).then_some((index, wanted))
    });
    Some(changed.collect())
}

fn client_config(address: &Address, path: &str, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    match address {
        Address::Service {
            namespace,
            name,
            port,
        } => json!({
            "caBundle": bundle,
            "service": {"namespace": namespace, "name": name, "path": path, "port": port},
        }),
        Address::Url { base } => json!({
            "caBundle": bundle,
            "url": format!("{}{path}", base.trim_end_matches('/')),
        }),
    }
}

/// The path that a webhook has already, whichever way it is reached.
fn path_of(config: &Value) -> Option<&str> {
    if let Some(path) = config.pointer("/service/path") {
        return path.as_str();
    }
    let (_, rest) = config.get("url")?.as_str()?.split_once("://")?;
    rest.find('/').map(|slash| &rest[slash..])
}

fn patch(version: Option<&str>, changes: Vec<(usize, Value)>) -> json_patch::Patch {
    let mut operations = Vec::new();
    let mut replace = |path: [String; 3], value: Value| {
        let path = path.into_iter().filter(|part| !part.is_empty());
        operations.push(json_patch::PatchOperation::Replace(
            json_patch::ReplaceOperation {
                path: json_patch::jsonptr::PointerBuf::from_tokens(path),
                value,
            },
        ));
    };
    // A stale version makes the API server answer with a conflict.
    if let Some(version) = version {
        replace(
            ["metadata".into(), "resourceVersion".into(), String::new()],
            version.into(),
        );
    }
    for (index, config) in changes {
        replace(
            ["webhooks".into(), index.to_string(), "clientConfig".into()],
            config,
        );
    }
    json_patch::Patch(operations)
}

#[cfg(test)]
mod tests;
