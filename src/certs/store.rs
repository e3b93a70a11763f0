//! Where the certificates live: in memory, or in a Secret that all replicas
//! share.
//!
//! Create or adopt: whoever comes second takes what is stored. Broken or
//! expiring content is replaced against the version it was read at, so that of
//! two replicas one writes and the other adopts.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, Client, api::PostParams};
use tokio::sync::Mutex;

use super::issue::{CertificateError, Credentials, Lifetimes, Standing, issue, judge, renew_leaf};

const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Rounds of reading and writing before a Secret that keeps changing is an
/// error. Each lost round means that another replica won it.
const ROUNDS: usize = 5;

/// A place for credentials.
pub enum Store {
    /// This process only.
    Memory(Mutex<Option<Credentials>>),
    /// A Secret.
    Secret {
        /// With rights on it.
        client: Client,
        /// Its namespace: the operator's own.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The store has no credentials to give.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// They could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The API server did not let us.
    #[error("secret {namespace}/{name} cannot be {verb}: {source}")]
    Api {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// What was tried.
        verb: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// Others wrote in every round.
    #[error("secret {namespace}/{name} keeps changing: look for another writer")]
    Contended {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
}

/// What to do about what is stored.
#[derive(Debug, PartialEq)]
enum Step {
    Keep(Credentials),
    Write(Credentials),
}

impl Store {
    /// A store that ends with the process.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Mutex::new(None))
    }

    /// The credentials for `names`: those stored if they are good, else new
    /// ones that are stored by now.
    ///
    /// # Errors
    /// See [`StoreError`]. Nothing was changed then, or a change is adopted by
    /// the next call.
    pub async fn load(
        &self,
        names: &[String],
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Credentials, StoreError> {
        match self {
            Self::Memory(held) => {
                let mut held = held.lock().await;
                let (Step::Keep(good) | Step::Write(good)) =
                    decide(held.clone(), names, lifetimes, now)?;
                *held = Some(good.clone());
                Ok(good)
            }
            Self::Secret {
                client,
                namespace,
                name,
            } => {
                let api = Api::<Secret>::namespaced(client.clone(), namespace);
                let failed = |verb| {
                    move |source| StoreError::Api {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        verb,
                        source: Box::new(source),
                    }
                };
                for _ in 0..ROUNDS {
                    let stored = api.get_opt(name).await.map_err(failed("read"))?;
                    let written =
                        match decide(stored.as_ref().and_then(read), names, lifetimes, now)? {
                            Step::Keep(good) => return Ok(good),
                            Step::Write(new) => match stored {
                                None => api
                                    .create(&PostParams::default(), &fill(fresh(name), &new))
                                    .await
                                    .map_err(|error| (error, "created")),
                                Some(secret) => api
                                    .replace(name, &PostParams::default(), &fill(secret, &new))
                                    .await
                                    .map_err(|error| (error, "updated")),
                            },
                        };
                    match written {
                        Ok(secret) => {
                            if let Some(stored) = read(&secret) {
                                tracing::info!(namespace, name, "certificates stored");
                                return Ok(stored);
                            }
                        }
                        // Somebody else was faster, or deleted what we read.
                        Err((kube::Error::Api(status), _))
                            if status.is_already_exists()
                                || status.is_conflict()
                                || status.is_not_found() => {}
                        Err((error, verb)) => return Err(failed(verb)(error)),
                    }
                }
                Err(StoreError::Contended {
                    namespace: namespace.clone(),
                    name: name.clone(),
                })
            }
        }
    }
}

fn decide(
    stored: Option<Credentials>,
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> Result<Step, CertificateError> {
    let Some(stored) = stored else {
        return issue(names, lifetimes, now).map(Step::Write);
    };
    match judge(&stored, names, lifetimes, now) {
        Standing::Good => Ok(Step::Keep(stored)),
        Standing::LeafDue(why) => {
            tracing::info!(why, "the server certificate is replaced");
            let renewed = renew_leaf(&stored, names, lifetimes, now)?;
            // The key of another authority signs what nobody will trust.
            if judge(&renewed, names, lifetimes, now) == Standing::Good {
                return Ok(Step::Write(renewed));
            }
            issue(names, lifetimes, now).map(Step::Write)
        }
        Standing::Unusable(why) => {
            tracing::warn!(why, "the stored certificates are replaced");
            issue(names, lifetimes, now).map(Step::Write)
        }
    }
}

/// The credentials in a Secret; none if a part is missing.
fn read(secret: &Secret) -> Option<Credentials> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Credentials {
        ca: text(CA)?,
        ca_key: text(CA_KEY)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    })
}

fn fresh(name: &str) -> Secret {
    let mut secret = Secret {
        type_: Some("kubernetes.io/tls".into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.into());
    secret.metadata.labels = Some(BTreeMap::from([(
        "app.kubernetes.io/name".into(),
        "belay".into(),
    )]));
    secret
}

fn fill(mut secret: Secret, credentials: &Credentials) -> Secret {
    let data = secret.data.get_or_insert_default();
    for (key, text) in [
        (CA, &credentials.ca),
        (CA_KEY, &credentials.ca_key),
        (CERTIFICATE, &credentials.certificate),
        (KEY, &credentials.key),
    ] {
        data.insert(key.into(), ByteString(text.clone().into_bytes()));
    }
    secret
}

#[cfg(test)]
mod tests;
