//! Keeps certificates, server and webhook configurations in step.
//!
//! A round loads the credentials, has the server serve them, publishes their
//! authority and tries the listener as a client would. Rounds go on for the
//! life of the process: they heal configurations that were installed again, and
//! adopt what another replica stored. A failed round keeps what is served.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    issue::{Credentials, Lifetimes},
    publish::{Address, PublishError, publish},
    store::{Store, StoreError},
};
use crate::{
    clock::Clock,
    health::Gate,
    webhook::tls::{TlsError, probe, server_config},
};

/// Time from one good round to the next.
const EVERY: Duration = Duration::from_secs(60);
/// Time from a failed round to the next.
const AGAIN: Duration = Duration::from_secs(2);
/// Time for one round's publishing.
const DEADLINE: Duration = Duration::from_secs(20);
/// Time for the store to answer.
const LOAD: Duration = Duration::from_secs(15);

/// What goes around.
pub struct Keeper {
    /// Where the credentials are.
    pub store: Store,
    /// Names that the server answers to. Never empty.
    pub names: Vec<String>,
    /// Where the API server reaches the webhooks.
    pub address: Address,
    /// With rights on the webhook configurations.
    pub client: Client,
    /// For the validity of certificates.
    pub clock: Arc<dyn Clock>,
    /// Open while the configurations trust what is served.
    pub published: Gate,
    /// Open while the listener answers with what is published.
    pub answering: Gate,
}

/// A round failed.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The store has no credentials.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not answer.
    #[error("the certificates could not be loaded in time: the API server does not answer")]
    Late,
    /// The credentials cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The configurations are not up to date.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Keeper {
    /// The credentials to serve.
    ///
    /// # Errors
    /// A store that has none, or does not answer.
    pub async fn load(&self) -> Result<Credentials, KeeperError> {
        let load = self
            .store
            .load(&self.names, Lifetimes::default(), self.clock.now());
        match tokio::time::timeout(LOAD, load).await {
            Ok(loaded) => Ok(loaded?),
            Err(_) => Err(KeeperError::Late),
        }
    }

    /// Goes around until `stop`. `served` is what the server behind `config` at
    /// `listener` serves now.
    pub async fn keep(
        self,
        mut served: Credentials,
        config: RustlsConfig,
        listener: SocketAddr,
        stop: CancellationToken,
    ) {
        loop {
            let round = self.round(&mut served, &config, listener);
            let pause = match stop.run_until_cancelled(round).await {
                None => return,
                Some(Ok(())) => EVERY,
                Some(Err(error)) => {
                    tracing::warn!(%error, "certificates and webhook configurations are not in step");
                    AGAIN
                }
            };
            let rest = tokio::time::sleep(pause);
            if stop.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }

    async fn round(
        &self,
        served: &mut Credentials,
        config: &RustlsConfig,
        listener: SocketAddr,
    ) -> Result<(), KeeperError> {
        let stored = self.load().await?;
        if stored != *served {
            config.reload_from_config(server_config(&stored)?);
            *served = stored;
            tracing::info!("the server certificate was exchanged");
        }
        let deadline = Instant::now() + DEADLINE;
        match publish(&self.client, &self.address, &served.ca, deadline).await {
            Ok(()) => self.published.open(),
            Err(error) => {
                self.published.close(&error.to_string());
                return Err(error.into());
            }
        }
        for name in &self.names {
            if let Err(error) = probe(listener, name, &served.ca).await {
                self.answering.close(&error.to_string());
                return Err(error.into());
            }
        }
        self.answering.open();
        Ok(())
    }
}
