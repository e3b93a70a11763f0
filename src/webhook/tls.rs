//! The TLS side of the webhook server, and a client's look at it.
//!
//! Serves what it is given; which certificates those are is decided in
//! [`crate::certs`].

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use axum_server::{Handle, tls_rustls::RustlsConfig};
use rustls::{
    ClientConfig, ServerConfig,
    crypto::ring,
    pki_types::ServerName,
    server::ResolvesServerCert,
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio_rustls::TlsConnector;

use crate::certs::issue::{CertificateError, Credentials, certified_key, trust};

/// Time for a client to get through the handshake and send its first request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server cannot be set up or reached.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates are of no use.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No protocol version is available.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    /// The address cannot be listened on.
    #[error("{address} cannot be listened on: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener does not answer as its clients expect.
    #[error("{address} does not answer as {name}: {why}")]
    Probe {
        /// Where it was tried.
        address: SocketAddr,
        /// The name asked for.
        name: String,
        /// What came back.
        why: String,
    },
}

/// The server's side of TLS with these credentials.
///
/// # Errors
/// Credentials that are of no use.
pub fn server_config(credentials: &Credentials) -> Result<Arc<ServerConfig>, TlsError> {
    let certified: CertifiedKey = certified_key(credentials)?;
    let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(certified));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Takes the address, so that a taken one is found out before anything else.
///
/// # Errors
/// An address that cannot be listened on.
pub fn listen(address: SocketAddr) -> Result<TcpListener, TlsError> {
    let failed = |source| TlsError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Serves until the handle ends it.
///
/// # Errors
/// A listener that breaks.
pub async fn serve(
    listener: TcpListener,
    config: RustlsConfig,
    handle: Handle<SocketAddr>,
    router: Router,
) -> io::Result<()> {
    axum_server::from_tcp_rustls(listener, config)?
        .map(|acceptor| acceptor.handshake_timeout(PATIENCE))
        .first_request_timeout(PATIENCE)
        .handle(handle)
        .serve(router.into_make_service())
        .await
}

/// Connects as the API server would: trusting `bundle` (PEM) alone, asking for
/// `name`. An unspecified address is tried on loopback.
///
/// # Errors
/// What is wrong with the answer, or that there is none.
pub async fn probe(address: SocketAddr, name: &str, bundle: &str) -> Result<(), TlsError> {
    let address = reachable(address);
    let failed = |why: String| TlsError::Probe {
        address,
        name: name.to_owned(),
        why,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trust(bundle)?)
        .with_no_client_auth();
    let server = ServerName::try_from(name.to_owned()).map_err(|e| failed(e.to_string()))?;
    let connect = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(server, stream)
            .await
    };
    match tokio::time::timeout(PATIENCE, connect).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("no answer in time".into())),
    }
}

const fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::issue::{Lifetimes, issue, renew_leaf};
    use axum::routing::get;
    use k8s_openapi::jiff::Timestamp;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    // The handshakes take the system's time.
    fn now() -> Timestamp {
        use crate::clock::Clock as _;
        crate::clock::SystemClock.now()
    }

    fn credentials(names: &[&str]) -> Credentials {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        issue(&names, Lifetimes::default(), now()).unwrap()
    }

    struct Running {
        address: SocketAddr,
        config: RustlsConfig,
        handle: Handle<SocketAddr>,
        task: tokio::task::JoinHandle<io::Result<()>>,
    }

    fn start(credentials: &Credentials) -> Running {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let config = RustlsConfig::from_config(server_config(credentials).unwrap());
        let handle = Handle::new();
        let router = Router::new().route("/", get(async || "hello"));
        let task = tokio::spawn(serve(listener, config.clone(), handle.clone(), router));
        Running {
            address,
            config,
            handle,
            task,
        }
    }

    #[tokio::test]
    async fn a_client_that_trusts_the_bundle_gets_through_by_name_and_by_address() {
        let credentials = credentials(&["belay.belay-system.svc", "127.0.0.1"]);
        let server = start(&credentials);
        for name in ["belay.belay-system.svc", "127.0.0.1"] {
            probe(server.address, name, &credentials.ca).await.unwrap();
        }
        let error = probe(server.address, "example.org", &credentials.ca).await;
        assert!(matches!(error, Err(TlsError::Probe { .. })), "{error:?}");
    }

    #[tokio::test]
    async fn a_client_that_trusts_another_authority_does_not() {
        let (ours, other) = (credentials(&["127.0.0.1"]), credentials(&["127.0.0.1"]));
        let server = start(&ours);
        let error = probe(server.address, "127.0.0.1", &other.ca).await;
        assert!(matches!(error, Err(TlsError::Probe { .. })), "{error:?}");
    }

    #[tokio::test]
    async fn requests_are_answered_over_tls() {
        let credentials = credentials(&["127.0.0.1"]);
        let server = start(&credentials);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trust(&credentials.ca).unwrap())
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(server.address)
            .await
            .unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: belay\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("hello"), "{answer}");
    }

    #[tokio::test]
    async fn a_new_certificate_is_served_without_a_new_listener() {
        let old = credentials(&["127.0.0.1"]);
        let server = start(&old);
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let new = renew_leaf(&old, &names, Lifetimes::default(), now()).unwrap();
        assert!(probe(server.address, "localhost", &old.ca).await.is_err());
        server
            .config
            .reload_from_config(server_config(&new).unwrap());
        probe(server.address, "localhost", &old.ca).await.unwrap();
    }

    #[tokio::test]
    async fn a_graceful_shutdown_ends_the_server_and_frees_the_address() {
        let credentials = credentials(&["127.0.0.1"]);
        let server = start(&credentials);
        probe(server.address, "127.0.0.1", &credentials.ca)
            .await
            .unwrap();
        server
            .handle
            .graceful_shutdown(Some(Duration::from_secs(1)));
        let ended = tokio::time::timeout(PATIENCE, server.task).await.unwrap();
        ended.unwrap().unwrap();
        listen(server.address).unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen(address).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
