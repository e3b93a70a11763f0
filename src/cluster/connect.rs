//! Connections to the API server.
//!
//! Requests share one connection where the server speaks HTTP/2, as all but the
//! oldest do: with HTTP/1.1 each watch is a connection with buffers and a TLS
//! session of its own, and two hundred releases at once are hundreds of them. An
//! API server admits about a hundred streams on a connection and lets further
//! ones wait until one ends, which a watch does not; so watches are spread over
//! connections of at most [`SEATS`] each, apart from all other requests.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _, middleware::AuthLayer, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

/// Most watches on one connection.
const SEATS: usize = 50;
/// A connection without an answer for this long is asked whether it lives.
const PING: Duration = Duration::from_secs(10);
/// And is given up if it does not say so in this time.
const PONG: Duration = Duration::from_secs(10);
/// Connections for requests that nobody uses are closed after this time.
const UNUSED: Duration = Duration::from_secs(30);

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The API server is not to be reached by way of TLS.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The name to expect in the server's certificate is none.
    #[error("tls-server-name {0:?} is not a name of a server")]
    ServerName(String),
}

/// Makes clients of one API server that use HTTP/2 where it does. Credentials are
/// made once for all of them: that may run a program.
pub struct Connector {
    config: Config,
    https: HttpsConnector<HttpConnector>,
    auth: Option<AuthLayer>,
}

impl Connector {
    /// A connector to the server of `config`.
    ///
    /// # Errors
    /// If `config` has certificates, keys, names or ways to authenticate that
    /// cannot be used.
    pub fn new(config: Config) -> Result<Self, ConnectError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        // Small requests share the connection with others.
        http.set_nodelay(true);
        let mut https = HttpsConnectorBuilder::new()
            .with_tls_config(config.rustls_client_config()?)
            .https_or_http();
        if let Some(name) = &config.tls_server_name {
            let name = name
                .clone()
                .try_into()
                .map_err(|_| ConnectError::ServerName(name.clone()))?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        Ok(Self {
            https: https.enable_all_versions().wrap_connector(http),
            auth: config.auth_layer()?,
            config,
        })
    }

    /// A client for requests.
    ///
    /// # Errors
    /// If `config` has headers that are none, or a proxy that cannot be used. By
    /// way of a proxy there is HTTP/1.1 alone.
    pub fn client(&self) -> Result<Client, ConnectError> {
        self.make(Some(UNUSED))
    }

    /// `unused`: after what time without a new request a connection is closed to
    /// new ones, even if earlier ones are still under way on it.
    fn make(&self, unused: Option<Duration>) -> Result<Client, ConnectError> {
        let config = &self.config;
        if config.proxy_url.is_some() {
            return Ok(Client::try_from(config.clone())?);
        }
        let mut connector = TimeoutConnector::new(self.https.clone());
        connector.set_connect_timeout(config.connect_timeout);
        connector.set_read_timeout(config.read_timeout);
        connector.set_write_timeout(config.write_timeout);
        connector.set_reset_reader_on_write(config.reset_reader_on_write);
        let client: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(unused)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .build(connector);
        let retry = config
            .default_retry
            .then(|| RetryLayer::new(RetryPolicy::server_retry()));
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(retry)
            .option_layer(self.auth.as_ref())
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(client);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

/// Connections for watches.
pub struct Connections {
    connector: Connector,
    open: Mutex<Vec<Seat>>,
}

/// The place of a watch on a connection; free again when it is dropped.
#[derive(Clone)]
pub struct Seat {
    client: Client,
    taken: Arc<()>,
}

impl Seat {
    /// The client to watch with.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    fn others(&self) -> usize {
        Arc::strong_count(&self.taken) - 1
    }
}

impl Connections {
    /// None yet.
    #[must_use]
    pub const fn new(connector: Connector) -> Self {
        Self {
            connector,
            open: Mutex::new(Vec::new()),
        }
    }

    /// A place on a connection that has one, or on a new one.
    ///
    /// # Errors
    /// As [`Connector::client`].
    pub fn seat(&self) -> Result<Seat, ConnectError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| connection.others() > 0);
        if let Some(free) = open.iter().find(|connection| connection.others() < SEATS) {
            return Ok(free.clone());
        }
        let seat = Seat {
            // It is closed when the last watch on it ends, and not while watches
            // that began long ago are on it.
            client: self.connector.make(None)?,
            taken: Arc::default(),
        };
        open.push(seat.clone());
        Ok(seat)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, net::SocketAddr};

    use axum::{Router, extract::ConnectInfo};
    use axum_server::tls_rustls::RustlsConfig;
    use futures::future::join_all;
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    use tokio::sync::Barrier;

    use super::*;
    use crate::{
        certs::issue::{Lifetimes, issue},
        clock::{Clock as _, SystemClock},
        webhook::tls,
    };

    /// Requests that are answered only once all of them are there.
    const TOGETHER: usize = 40;

    /// From how many ports requests come that have to be under way together, to
    /// a server that speaks these protocols.
    async fn ports(protocols: &[&str]) -> usize {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = ["127.0.0.1".to_owned()];
        let credentials = issue(&names, Lifetimes::default(), SystemClock.now()).unwrap();
        let mut config = (*tls::server_config(&credentials).unwrap()).clone();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        let barrier = Arc::new(Barrier::new(TOGETHER));
        let answer = async move |path: axum::http::Uri,
                                 ConnectInfo(peer): ConnectInfo<SocketAddr>| {
            if path.path() == "/watch" {
                barrier.wait().await;
            }
            peer.to_string()
        };
        let listener = tls::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let config = RustlsConfig::from_config(Arc::new(config));
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        let router = Router::new().fallback(answer);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(server.serve(service));

        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        let ca = CertificateDer::from_pem_slice(credentials.ca.as_bytes()).unwrap();
        config.root_cert = Some(vec![ca.to_vec()]);
        let client = Connector::new(config).unwrap().client().unwrap();
        let get = async |path: &str| {
            let request = axum::http::Request::get(path).body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap()
        };
        get("/").await;
        let peers = join_all((0..TOGETHER).map(|_| get("/watch"))).await;
        peers.into_iter().collect::<HashSet<_>>().len()
    }

    #[tokio::test]
    async fn requests_share_a_connection_where_the_server_lets_them() {
        assert_eq!(ports(&["h2", "http/1.1"]).await, 1);
        assert_eq!(ports(&["http/1.1"]).await, TOGETHER);
    }

    #[tokio::test]
    async fn watches_fill_a_connection_and_leave_room_behind() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new("https://kubernetes.default.svc".parse().unwrap());
        let connections = Connections::new(Connector::new(config).unwrap());
        let open = || connections.open.lock().unwrap().len();
        let mut seats: Vec<Seat> = (0..SEATS).map(|_| connections.seat().unwrap()).collect();
        assert_eq!(open(), 1);
        let next = connections.seat().unwrap();
        assert_eq!(open(), 2);
        seats.pop();
        drop(next);
        seats.push(connections.seat().unwrap());
        assert_eq!(open(), 1, "the place that was left is taken first");
        seats.clear();
        let _seat = connections.seat().unwrap();
        assert_eq!(open(), 1);
    }
}
