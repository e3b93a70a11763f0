//! Runs the operator: starts its parts in order, watches over them, and stops
//! them in order.
//!
//! The parts know nothing of each other. An end that nobody asked for, of any
//! of them, ends the process with an error.

mod supervisor;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum_server::{Handle, tls_rustls::RustlsConfig};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    certs::{
        keeper::{Keeper, KeeperError},
        store::Store,
    },
    clock::{Clock, SystemClock},
    cluster::{ConnectError, Connections, Connector},
    config::{ConfigError, RunArgs},
    health::{self, Gate, Readiness},
    metrics::Metrics,
    webhook::{self, ClusterLookup, Webhook, tls},
};
use supervisor::{Ended, Supervisor};

pub use supervisor::TaskError;

/// Time for the API server to say who we are.
const IDENTIFY: Duration = Duration::from_secs(15);
/// Time for the controller to finish what it is doing.
const FINISH: Duration = Duration::from_secs(20);
/// Time for a server to finish its last requests.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

const CONTROLLER: &str = "controller";
const CERTIFICATES: &str = "certificates";
const WEBHOOK: &str = "webhook server";
const HEALTH: &str = "health server";

/// What the controller gets from the process.
pub struct Context {
    /// Client with the operator's own identity.
    pub client: Client,
    /// For watches, with the same identity.
    pub connections: Connections,
    /// User name of the operator.
    pub user: String,
    /// To record what happens.
    pub metrics: Metrics,
    /// To take the time from.
    pub clock: Arc<dyn Clock>,
    /// To be opened when all plans are known.
    pub plans: Gate,
    /// Time after which every plan is looked at again.
    pub resync: Duration,
    /// Cancelled when the controller has to end.
    pub stop: CancellationToken,
}

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings that do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// There is no way to the API server.
    #[error("the kubeconfig cannot be used: {0}")]
    Connect(#[from] ConnectError),
    /// The API server does not say who we are.
    #[error("the API server does not answer as it should: {0}")]
    Identity(String),
    /// The webhook server cannot be set up.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// There are no certificates to serve.
    #[error(transparent)]
    Certificates(#[from] KeeperError),
    /// The system refuses signal handlers or listeners.
    #[error("the process cannot be set up: {0}")]
    System(#[from] std::io::Error),
    /// A part of the process ended that should not have.
    #[error("the {task} ended: {outcome}")]
    Ended {
        /// Which.
        task: &'static str,
        /// Its error, or how it ended.
        outcome: String,
    },
}

impl From<Ended> for RunError {
    fn from(ended: Ended) -> Self {
        Self::Ended {
            task: ended.task,
            outcome: match ended.outcome {
                Ok(()) => "nobody asked it to".to_owned(),
                Err(error) => error,
            },
        }
    }
}

/// Runs the operator until a signal ends it. `controller` is started when
/// everything it needs is there, and has to end when its context says so.
///
/// # Errors
/// Whatever kept it from starting, or ended it unasked.
pub async fn run<C, F>(args: &RunArgs, controller: C) -> Result<(), RunError>
where
    C: FnOnce(Context) -> F,
    F: Future<Output = Result<(), TaskError>> + Send + 'static,
{
    let mut signals = Signals::new()?;
    let stop = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "the operator stops");
    };
    run_until(args, controller, stop).await
}

/// As [`run`], until `asked` is over instead of a signal.
///
/// # Errors
/// As [`run`].
pub async fn run_until<C, F>(
    args: &RunArgs,
    controller: C,
    asked: impl Future<Output = ()>,
) -> Result<(), RunError>
where
    C: FnOnce(Context) -> F,
    F: Future<Output = Result<(), TaskError>> + Send + 'static,
{
    // Fails only if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let reach = args.reach()?;
    let webhook_listener = tls::listen(args.webhook_listen)?;
    let health_listener = tls::listen(args.health_listen)?;
    let webhook_address = webhook_listener.local_addr()?;

    let connector = Connector::new(configure(args).await?)?;
    let client = connector.client()?;
    let readiness = Readiness::new();
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let stop = CancellationToken::new();
    let plans = readiness.gate("plans are known");
    let mut servers = Servers::default();
    let mut tasks = Supervisor::default();

    let router = health::router(readiness.clone(), metrics.clone());
    let health_server = axum_server::from_tcp(health_listener)?.handle(servers.health.clone());
    tasks.spawn(HEALTH, async move {
        Ok(health_server.serve(router.into_make_service()).await?)
    });

    let user = identify(&client).await?;
    let keeper = Keeper {
        store: match reach.secret {
            None => Store::memory(),
            Some((namespace, name)) => Store::Secret {
                client: client.clone(),
                namespace,
                name,
            },
        },
        names: reach.names,
        address: reach.address,
        client: client.clone(),
        clock: clock.clone(),
        published: readiness.gate("webhook configurations trust the certificate"),
        answering: readiness.gate("webhook server answers with the certificate"),
    };
    let credentials = keeper.load().await?;
    let config = RustlsConfig::from_config(tls::server_config(&credentials)?);
    // Admission has little time and must not stand behind the controller.
    let lookup = Arc::new(ClusterLookup::new(connector.client()?));
    let router = webhook::router(Webhook::new(
        lookup,
        metrics.clone(),
        clock.clone(),
        Some(&user),
    ));
    let (tls_config, handle) = (config.clone(), servers.webhook.clone());
    tasks.spawn(WEBHOOK, async move {
        Ok(tls::serve(webhook_listener, tls_config, handle, router).await?)
    });
    let keeping = keeper.keep(credentials, config, webhook_address, stop.clone());
    tasks.spawn(CERTIFICATES, async move {
        keeping.await;
        Ok(())
    });
    tracing::info!(
        user,
        webhooks = %webhook_address,
        health = %args.health_listen,
        "the operator started"
    );
    tasks.spawn(
        CONTROLLER,
        controller(Context {
            client,
            connections: Connections::new(connector),
            user,
            metrics,
            clock,
            plans,
            resync: args.resync,
            stop: stop.clone(),
        }),
    );

    let unasked = tokio::select! {
        () = asked => None,
        ended = tasks.next() => Some(ended),
    };
    servers
        .shut_down(tasks, &readiness, &stop, args.drain, unasked)
        .await
}

#[derive(Default)]
struct Servers {
    webhook: Handle<SocketAddr>,
    health: Handle<SocketAddr>,
}

impl Servers {
    /// Stops everything: unready first, then the controller, and the servers
    /// last, so that admission is answered while the controller stops. After an
    /// end that nobody asked for there is no drain.
    async fn shut_down(
        &mut self,
        mut tasks: Supervisor,
        readiness: &Readiness,
        stop: &CancellationToken,
        drain: Duration,
        unasked: Option<Ended>,
    ) -> Result<(), RunError> {
        readiness.stop();
        stop.cancel();
        let drain = if unasked.is_some() {
            Duration::ZERO
        } else {
            drain
        };
        let mut outcome = unasked.map_or(Ok(()), |ended| {
            tracing::error!(task = ended.task, outcome = ?ended.outcome, "a task ended unasked");
            Err(ended)
        });
        let mut note = |ends: Result<(), Ended>| {
            if let Err(ended) = &ends {
                tracing::error!(task = ended.task, outcome = ?ended.outcome, "a task did not stop well");
            }
            if outcome.is_ok() {
                outcome = ends;
            }
        };
        let deadline = Instant::now() + FINISH.max(drain);
        let (ends, ()) = tokio::join!(
            tasks.ends(&[CONTROLLER, CERTIFICATES], deadline),
            sleep(drain)
        );
        note(ends);
        for (name, handle) in [(WEBHOOK, &self.webhook), (HEALTH, &self.health)] {
            handle.graceful_shutdown(Some(LAST_REQUESTS));
            note(
                tasks
                    .ends(&[name], Instant::now() + 2 * LAST_REQUESTS)
                    .await,
            );
        }
        outcome.map_err(RunError::from)
    }
}

async fn configure(args: &RunArgs) -> Result<Config, RunError> {
    let unusable = |error: &dyn std::error::Error| RunError::Kubeconfig(error.to_string());
    match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| unusable(&error))
        }
        None => Config::infer().await.map_err(|error| unusable(&error)),
    }
}

/// Who the API server takes us for.
async fn identify(client: &Client) -> Result<String, RunError> {
    let api = Api::<SelfSubjectReview>::all(client.clone());
    let review = SelfSubjectReview::default();
    let answer = timeout(IDENTIFY, api.create(&PostParams::default(), &review))
        .await
        .map_err(|_| RunError::Identity("no answer in time".to_owned()))?
        .map_err(|error| RunError::Identity(error.to_string()))?;
    answer
        .status
        .and_then(|status| status.user_info?.username)
        .ok_or_else(|| RunError::Identity("it does not say who we are".to_owned()))
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests;
