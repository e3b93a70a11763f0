//! The command line. The only place where settings come in, also those from
//! the environment; what is inconsistent is refused here, before anything runs.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use axum::http::Uri;
use clap::{Args, Parser, Subcommand};

use crate::{
    api::GatewayDuration,
    certs::publish::Address,
    cli::{Access, Verb},
    telemetry::LogFormat,
};

/// Port of the webhook's Service where none is given.
const SERVICE_PORT: u16 = 443;
/// Name of the webhook's Service where none is given.
const SERVICE_NAME: &str = "belay";

/// Releases existing Deployments together, and brings them back together.
#[derive(Debug, Parser)]
#[command(name = "belay", version)]
pub struct Cli {
    /// Flags of the commands for people that stand before the command.
    #[command(flatten)]
    pub access: Access,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: admission webhooks and controller.
    Run(Box<RunArgs>),
    /// Print the CustomResourceDefinition.
    Crd,
    /// The commands for people.
    #[command(flatten)]
    Verb(Box<Verb>),
}

/// Settings of the operator.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Kubeconfig file [default: the pod's ServiceAccount, or as kubectl does].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address on which the webhooks are served over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub webhook_listen: SocketAddr,

    /// https://HOST:PORT under which the API server reaches the webhooks
    /// directly. The certificate is kept in memory.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_service")]
    pub webhook_url: Option<WebhookUrl>,

    /// Service through which the API server reaches the webhooks. The
    /// certificate is kept in a Secret [default: belay in the pod's namespace].
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
    pub webhook_service: Option<WebhookService>,

    /// Secret of the certificate, in the namespace of the Service.
    #[arg(long, value_name = "NAME", default_value = "belay-webhook-tls")]
    pub webhook_secret: String,

    /// Namespace of the pod.
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        hide_env_values = true
    )]
    pub pod_namespace: Option<String>,

    /// Address of /livez, /readyz and /metrics, in plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub health_listen: SocketAddr,

    /// Form of the logs.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Which logs are written, as in "info,belay=debug".
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,

    /// Time after which every plan is looked at again, whatever happened.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub resync: Duration,

    /// Time for which the webhooks are still served after a signal to stop, so
    /// that no admission request is lost while the Service forgets the pod.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain: Duration,
}

/// A base URL of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    base: String,
    host: String,
}

/// A Service of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookService {
    namespace: String,
    name: String,
    port: u16,
}

/// How the API server reaches the webhooks, and where their certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// What the webhook configurations are to say.
    pub address: Address,
    /// Names that the certificate has to hold.
    pub names: Vec<String>,
    /// Namespace and name of the certificate's Secret; none for one in memory.
    pub secret: Option<(String, String)>,
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is not known where the webhooks are reached.
    #[error(
        "the API server must know where the webhooks are: set --webhook-service, --webhook-url, \
         or POD_NAMESPACE in a pod"
    )]
    Unreachable,
}

impl RunArgs {
    /// How the API server reaches the webhooks.
    ///
    /// # Errors
    /// Settings that do not say.
    pub fn reach(&self) -> Result<Reach, ConfigError> {
        if let Some(WebhookUrl { base, host }) = &self.webhook_url {
            return Ok(Reach {
                address: Address::Url { base: base.clone() },
                names: vec![host.clone()],
                secret: None,
            });
        }
        let own = self.pod_namespace.as_ref().map(|namespace| WebhookService {
            namespace: namespace.clone(),
            name: SERVICE_NAME.to_owned(),
            port: SERVICE_PORT,
        });
        let WebhookService {
            namespace,
            name,
            port,
        } = self
            .webhook_service
            .clone()
            .or(own)
            .ok_or(ConfigError::Unreachable)?;
        Ok(Reach {
            names: vec![format!("{name}.{namespace}.svc")],
            secret: Some((namespace.clone(), self.webhook_secret.clone())),
            address: Address::Service {
                namespace,
                name,
                port,
            },
        })
    }
}

impl FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is not of the form https://HOST:PORT");
        let uri: Uri = text.parse().map_err(|_| wanted())?;
        let authority = uri.authority().ok_or_else(wanted)?;
        let bare = uri.path() == "/" && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !bare || authority.as_str().contains('@') {
            return Err(wanted());
        }
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(wanted());
        }
        Ok(Self {
            base: format!("https://{authority}"),
            host: host.to_owned(),
        })
    }
}

impl FromStr for WebhookService {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("{text:?} is not of the form NAMESPACE/NAME or NAMESPACE/NAME:PORT");
        let (namespace, rest) = text.split_once('/').ok_or_else(wanted)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| wanted())?),
            None => (rest, SERVICE_PORT),
        };
        let label = |name: &str| {
            !name.is_empty()
                && name.len() <= 63
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if !label(namespace) || !label(name) || port == 0 {
            return Err(wanted());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<GatewayDuration>()
        .map(GatewayDuration::get)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, String> {
        let args = ["belay", "run"].iter().chain(args);
        match Cli::try_parse_from(args)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Run(args) => Ok(*args),
            Command::Crd | Command::Verb(_) => Err("not run".into()),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_pod_serves_through_the_service_in_its_namespace() {
        let reach = parse(&["--pod-namespace", "ops"]).unwrap().reach().unwrap();
        assert_eq!(reach.names, ["belay.ops.svc"]);
        assert_eq!(
            reach.secret,
            Some(("ops".into(), "belay-webhook-tls".into()))
        );
        let args = ["--pod-namespace", "ops", "--webhook-service", "a/b:8443"];
        let reach = parse(&args).unwrap().reach().unwrap();
        let address = Address::Service {
            namespace: "a".into(),
            name: "b".into(),
            port: 8443,
        };
        assert_eq!(reach.address, address);
        assert_eq!(reach.names, ["b.a.svc"]);
    }

    #[test]
    fn a_url_takes_precedence_over_the_pod_and_keeps_the_certificate_in_memory() {
        let args = [
            "--pod-namespace",
            "ops",
            "--webhook-url",
            "https://127.0.0.1:9443",
        ];
        let reach = parse(&args).unwrap().reach().unwrap();
        assert_eq!(reach.names, ["127.0.0.1"]);
        assert_eq!(reach.secret, None);
        let v6: WebhookUrl = "https://[::1]:9443/".parse().unwrap();
        assert_eq!(
            (v6.host.as_str(), v6.base.as_str()),
            ("::1", "https://[::1]:9443")
        );
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let args = ["--webhook-url", "https://h:1", "--webhook-service", "a/b"];
        assert!(parse(&args).unwrap_err().contains("cannot be used with"));
        let mut bare = parse(&[]).unwrap();
        // Set where the tests run in a pod.
        bare.pod_namespace = None;
        assert_eq!(bare.reach(), Err(ConfigError::Unreachable));
        for url in [
            "http://h:1",
            "https://h:1/x",
            "https://u@h:1",
            "h:1",
            "https://h:1?x",
        ] {
            assert!(parse(&["--webhook-url", url]).is_err(), "{url}");
        }
        for service in ["b", "a/", "/b", "a/b:0", "a/b:x", "a/b/c", "A/b"] {
            assert!(parse(&["--webhook-service", service]).is_err(), "{service}");
        }
    }

    #[test]
    fn durations_are_written_as_in_plans() {
        let args = parse(&["--drain", "0s", "--resync", "1h30m"]).unwrap();
        assert_eq!((args.drain.as_secs(), args.resync.as_secs()), (0, 5_400));
        assert!(parse(&["--drain", "5"]).is_err());
    }
}
