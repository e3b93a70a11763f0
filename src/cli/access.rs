//! The way to the cluster: kubeconfig, context, namespace and whom to act as,
//! found as kubectl finds them.
//!
//! Makes a client and nothing else: no discovery, no call of its own.

use std::{io::ErrorKind, path::PathBuf};

use axum::http::{HeaderValue, header::USER_AGENT};
use clap::Args;
use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{
    Deserialize as _,
    de::{
        IntoDeserializer as _,
        value::{Error, StrDeserializer},
    },
};

use super::{COMMON, CliError, deadline::DeadlineLayer, names, proxy::proxy, terminal::Color};

/// The name under which the API server's audit log has these calls.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("belay-cli/", env!("CARGO_PKG_VERSION")));

/// The variable that names kubeconfigs.
const KUBECONFIG: &str = "KUBECONFIG";
/// The namespace where none is named.
const DEFAULT: &str = "default";

/// Flags of every command.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Namespace [default: that of the context].
    #[arg(short, long, value_name = "NAME", help_heading = COMMON, value_parser = names::namespace)]
    #[arg(add = super::completion::namespaces())]
    pub namespace: Option<String>,

    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", help_heading = COMMON)]
    #[arg(add = super::completion::contexts())]
    pub context: Option<String>,

    /// Kubeconfig file [default: as kubectl finds it].
    #[arg(long, value_name = "FILE", help_heading = COMMON)]
    pub kubeconfig: Option<PathBuf>,

    /// User to act as.
    #[arg(long = "as", value_name = "USER", help_heading = COMMON)]
    pub as_user: Option<String>,

    /// Group to act as; may be repeated.
    #[arg(long, value_name = "GROUP", help_heading = COMMON)]
    pub as_group: Vec<String>,

    /// When to use colour [default: auto].
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, help_heading = COMMON)]
    pub color: Option<Color>,
}

impl Access {
    /// These flags, and where one is absent that of `outer`, which stood before
    /// the command's name.
    #[must_use]
    pub fn over(self, outer: Self) -> Self {
        let groups = if self.as_group.is_empty() {
            outer.as_group
        } else {
            self.as_group
        };
        Self {
            namespace: self.namespace.or(outer.namespace),
            context: self.context.or(outer.context),
            kubeconfig: self.kubeconfig.or(outer.kubeconfig),
            as_user: self.as_user.or(outer.as_user),
            as_group: groups,
            color: self.color.or(outer.color),
        }
    }

    /// The flags that make kubectl mean the same object, ready for a shell.
    #[must_use]
    pub fn kubectl_flags(&self, namespace: &str) -> Vec<String> {
        let kubeconfig = self.kubeconfig.as_ref().map(|path| path.to_string_lossy());
        let given = [
            ("-n", Some(namespace)),
            ("--context", self.context.as_deref()),
            ("--kubeconfig", kubeconfig.as_deref()),
            ("--as", self.as_user.as_deref()),
        ];
        let groups = self
            .as_group
            .iter()
            .map(|group| ("--as-group", group.as_str()));
        given
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value?)))
            .chain(groups)
            .flat_map(|(flag, value)| [flag.to_owned(), quoted(value)])
            .collect()
    }

    /// A client for the cluster that the flags name.
    ///
    /// # Errors
    /// There is no kubeconfig, or nothing usable in it.
    pub async fn connect(&self) -> Result<Session, CliError> {
        if self.as_user.is_none() && !self.as_group.is_empty() {
            return Err(CliError::usage(
                "--as-group says nothing without --as",
                "add --as USER",
            ));
        }
        let mut config = self.config().await?;
        // People are waiting: an overloaded server is told, not waited out.
        config.default_retry = false;
        config.headers.push((USER_AGENT, AGENT));
        if self.as_user.is_some() {
            config.auth_info.impersonate.clone_from(&self.as_user);
            config.auth_info.impersonate_groups = Some(self.as_group.clone());
        }
        // As kubectl takes an empty one, which a variable that is not set makes.
        let named = self.namespace.clone().filter(|name| !name.is_empty());
        let chosen = named.is_some();
        let of_context = Some(config.default_namespace.clone()).filter(|name| !name.is_empty());
        let namespace = named.or(of_context).unwrap_or_else(|| DEFAULT.to_owned());
        names::namespace(&namespace).map_err(|fault| {
            no_cluster(format!("namespace {namespace:?} of the context: {fault}"))
        })?;
        let client = ClientBuilder::try_from(config).map_err(no_cluster)?;
        Ok(Session {
            client: client.with_layer(&DeadlineLayer).build(),
            namespace,
            chosen,
            unreadable: false,
            by_patch: false,
            access: self.clone(),
        })
    }

    async fn config(&self) -> Result<Config, CliError> {
        let file = match kubeconfig(self.kubeconfig.as_ref()) {
            Ok(file) => file,
            Err(error) => {
                let in_pod = (self.kubeconfig.is_none() && self.context.is_none())
                    .then(|| Config::incluster().ok())
                    .flatten();
                return in_pod.ok_or_else(|| no_cluster(told(&error)));
            }
        };
        let options = KubeConfigOptions {
            // As kubectl takes an empty one.
            context: self.context.clone().filter(|name| !name.is_empty()),
            ..KubeConfigOptions::default()
        };
        let named = proxy_of(&file, options.context.as_ref());
        let contexts: Vec<String> = file.contexts.iter().map(|c| c.name.clone()).collect();
        let config = match Config::from_custom_kubeconfig(file.clone(), &options).await {
            // What it reads of the exceptions is not used, and takes no empty one.
            Err(error @ KubeconfigError::ParseNoProxy(_)) => {
                without_proxy(&file, options.context.as_ref()).ok_or(error)
            }
            config => config,
        };
        let mut config = config.map_err(|error| CliError::NoCluster {
            reason: told(&error),
            contexts: match error {
                KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_) => contexts,
                _ => Vec::new(),
            },
        })?;
        // The client compares the exceptions with the proxy instead of the server.
        let variable = |name: &str| std::env::var_os(name)?.into_string().ok();
        config.proxy_url = proxy(named.as_deref(), &config.cluster_url, variable)
            .map_err(|error| no_cluster(format!("the address of the proxy: {error}")))?;
        Ok(config)
    }
}

/// The kubeconfig of a file, or else the one that kubectl finds.
///
/// # Errors
/// There is none, or it cannot be read.
pub(super) fn kubeconfig(path: Option<&PathBuf>) -> Result<Kubeconfig, KubeconfigError> {
    if let Some(path) = path {
        return Kubeconfig::read_from(path);
    }
    let paths = std::env::var_os(KUBECONFIG).unwrap_or_default();
    let paths = std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
    let paths: Vec<PathBuf> = paths.collect();
    if paths.is_empty() {
        return Kubeconfig::read();
    }
    merged(&paths)
}

/// The proxy that a kubeconfig names for the cluster of a context.
fn proxy_of(file: &Kubeconfig, context: Option<&String>) -> Option<String> {
    let (_, cluster) = cluster_of(file, context)?;
    cluster.proxy_url.clone()
}

/// A context of a kubeconfig, or the current one, with its cluster.
fn cluster_of<'a>(
    file: &'a Kubeconfig,
    context: Option<&'a String>,
) -> Option<(&'a Context, &'a Cluster)> {
    let name = context.or(file.current_context.as_ref())?;
    let mut contexts = file.contexts.iter();
    let context = contexts.find(|context| context.name == *name)?;
    let context = context.context.as_ref()?;
    let mut clusters = file.clusters.iter();
    let cluster = clusters.find(|named| named.name == context.cluster)?;
    Some((context, cluster.cluster.as_ref()?))
}

/// What a kubeconfig says of a context but for the proxy; none where it cannot be
/// read.
fn without_proxy(file: &Kubeconfig, context: Option<&String>) -> Option<Config> {
    let (context, cluster) = cluster_of(file, context)?;
    let mut users = file.auth_infos.iter();
    let user = users.find(|named| Some(&named.name) == context.user.as_ref());
    let mut user = user.and_then(|named| named.auth_info.clone());
    if let Some(exec) = user.as_mut().and_then(|user| user.exec.as_mut())
        && exec.provide_cluster_info
    {
        exec.cluster = Some(cluster.try_into().ok()?);
    }
    let code = cluster.certificate_authority_data.as_deref();
    let ca = match (code, &cluster.certificate_authority) {
        (Some(code), _) => {
            let code: StrDeserializer<'_, Error> = code.into_deserializer();
            Some(ByteString::deserialize(code).ok()?.0)
        }
        (None, Some(path)) => Some(std::fs::read(path).ok()?),
        (None, None) => None,
    };
    let certs = |pem: Vec<u8>| -> Option<Vec<Vec<u8>>> {
        let certs = CertificateDer::pem_slice_iter(&pem);
        certs.map(|cert| Some(cert.ok()?.to_vec())).collect()
    };
    let root_cert = match ca {
        Some(pem) => Some(certs(pem)?),
        None => None,
    };
    let mut config = Config::new(cluster.server.as_ref()?.parse().ok()?);
    DEFAULT.clone_into(&mut config.default_namespace);
    if let Some(namespace) = &context.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.root_cert = root_cert;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.auth_info = user.unwrap_or_default();
    // As of any kubeconfig: an answer that takes long is for others to end.
    config.read_timeout = None;
    Some(config)
}

/// Several kubeconfigs as one, without those that do not exist.
fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let mut all: Option<Kubeconfig> = None;
    let mut missing = None;
    for path in paths {
        let mut next = match Kubeconfig::read_from(path) {
            Ok(next) => next,
            Err(KubeconfigError::ReadConfig(error, path))
                if error.kind() == ErrorKind::NotFound =>
            {
                missing.get_or_insert(KubeconfigError::ReadConfig(error, path));
                continue;
            }
            Err(error) => return Err(error),
        };
        // An empty one is none: that of the next file counts.
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        all = Some(match all {
            Some(all) => all.merge(next)?,
            None => next,
        });
    }
    all.ok_or_else(|| missing.unwrap_or(KubeconfigError::FindPath))
}

/// A word as a POSIX shell reads it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=@,+%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn no_cluster(error: impl std::fmt::Display) -> CliError {
    CliError::NoCluster {
        reason: error.to_string(),
        contexts: Vec::new(),
    }
}

/// A kubeconfig error in words for people, with what lies below it, which its own
/// text may leave out.
fn told(error: &KubeconfigError) -> String {
    let mut text = match error {
        KubeconfigError::FindPath => "no kubeconfig: there is no home directory".to_owned(),
        KubeconfigError::ReadConfig(reason, path) => {
            format!("cannot read the kubeconfig {}: {reason}", path.display())
        }
        KubeconfigError::CurrentContextNotSet => "the kubeconfig has no current context".to_owned(),
        KubeconfigError::LoadContext(name) if name.is_empty() => {
            "the kubeconfig has no current context".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("the kubeconfig has no context {name}"),
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the kubeconfig has no cluster {name}, which its context names")
        }
        error => error.to_string(),
    };
    let mut below = std::error::Error::source(error);
    while let Some(error) = below {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        below = error.source();
    }
    text
}

/// A cluster, and the namespace that names without one belong to.
#[derive(Clone)]
pub struct Session {
    /// Client of the cluster.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// Whether it was named on the command line.
    pub chosen: bool,
    /// The flags that led here.
    pub access: Access,
    /// Whether plans are looked for whose status cannot be read, too.
    pub unreadable: bool,
    /// Whether a plan is read by a patch that changes nothing where it may not be got.
    pub by_patch: bool,
}

impl Session {
    /// The same for commands that do not build on the status of plans, or say
    /// themselves that it cannot be read.
    #[must_use]
    pub fn with_unreadable(self) -> Self {
        Self {
            unreadable: true,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_after_the_command_come_before_those_in_front_of_it() {
        let outer = Access {
            namespace: Some("outer".into()),
            context: Some("c".into()),
            ..Access::default()
        };
        let inner = Access {
            namespace: Some("inner".into()),
            ..Access::default()
        };
        let both = inner.over(outer);
        assert_eq!(both.namespace.as_deref(), Some("inner"));
        assert_eq!(both.context.as_deref(), Some("c"));
    }

    #[test]
    fn kubectl_is_told_the_same_cluster_in_words_that_a_shell_keeps() {
        let access = Access {
            as_user: Some("jane doe's".into()),
            as_group: vec!["a".into(), "b".into()],
            ..Access::default()
        };
        let flags = access.kubectl_flags("shop").join(" ");
        let expected = r"-n shop --as 'jane doe'\''s' --as-group a --as-group b";
        assert_eq!(flags, expected);
    }

    /// Where the variables of a proxy are not to the client's liking.
    #[tokio::test]
    async fn a_kubeconfig_is_read_by_hand_as_the_client_reads_it() {
        // A certificate, whatever it says.
        let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let path = std::env::temp_dir().join(format!("belay-ca-{}", std::process::id()));
        std::fs::write(&path, pem).unwrap();
        let code = serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap();
        let file: Kubeconfig = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [
                {"name": "a", "cluster": {"server": "https://a:6443", "tls-server-name": "b",
                    "certificate-authority-data": code, "disable-compression": true}},
                {"name": "b", "cluster": {"server": "https://b",
                    "certificate-authority": path}},
                {"name": "c", "cluster": {"server": "http://c", "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"username": "jane",
                "exec": {"command": "x", "provideClusterInfo": true}}}],
            "contexts": [
                {"name": "a", "context": {"cluster": "a", "user": "u", "namespace": "n"}},
                {"name": "b", "context": {"cluster": "b", "user": "none"}},
                {"name": "c", "context": {"cluster": "c"}}],
        }))
        .unwrap();
        for context in [None, Some("b"), Some("c")] {
            let context = context.map(str::to_owned);
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = Config::from_custom_kubeconfig(file.clone(), &options).await;
            let config = config.unwrap();
            let ours = without_proxy(&file, context.as_ref()).unwrap();
            assert_eq!(ours.root_cert.is_none(), context.as_deref() == Some("c"));
            assert_eq!(format!("{ours:?}"), format!("{config:?}"));
        }
        std::fs::remove_file(&path).unwrap();
        // Without what it trusts it goes nowhere.
        assert!(without_proxy(&file, Some(&"b".to_owned())).is_none());
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_told_with_those_that_are() {
        let path = std::env::temp_dir().join(format!("belay-contexts-{}", std::process::id()));
        let write = |current: &str, namespace: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: '{current}',
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}],
                 contexts: [{{name: test, context: {{cluster: c, user: u, namespace: '{namespace}'}}}},
                            {{name: odd, context: {{cluster: none, user: u}}}}]}}"
            );
            std::fs::write(&path, text).unwrap();
        };
        let said = async |context: Option<&str>| {
            let access = Access {
                kubeconfig: Some(path.clone()),
                context: context.map(str::to_owned),
                ..Access::default()
            };
            let error = access.connect().await.err().unwrap();
            (error.to_string(), error.hint().unwrap_or_default())
        };
        write("gone", "shop");
        let there = "name a context with --context; there are: test, odd";
        for (context, words) in [
            (None, "the kubeconfig has no context gone"),
            (Some("nope"), "the kubeconfig has no context nope"),
        ] {
            let (text, hint) = said(context).await;
            assert_eq!(text, format!("there is no way to a cluster: {words}"));
            assert_eq!(hint, there);
        }
        let (text, hint) = said(Some("odd")).await;
        assert!(
            text.ends_with("has no cluster none, which its context names"),
            "{text}"
        );
        assert!(hint.contains("KUBECONFIG"), "{hint}");
        write("", "shop");
        let (text, hint) = said(None).await;
        assert!(text.ends_with("has no current context"), "{text}");
        assert_eq!(hint, there);
        // It would become a part of a URL, wherever it comes from.
        write("test", "../x");
        let (text, _) = said(None).await;
        std::fs::remove_file(&path).unwrap();
        assert!(text.contains("\"../x\" of the context"), "{text}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_says_so() {
        let access = Access {
            kubeconfig: Some("/nonexistent/kubeconfig".into()),
            ..Access::default()
        };
        let error = access.connect().await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "there is no way to a cluster: cannot read the kubeconfig /nonexistent/kubeconfig: \
             No such file or directory (os error 2)"
        );
        let hint = error.hint().unwrap_or_default();
        for way in ["KUBECONFIG", "--kubeconfig", "--context"] {
            assert!(hint.contains(way), "{hint}");
        }
        let access = Access {
            as_group: vec!["g".into()],
            ..Access::default()
        };
        let error = access.connect().await.err().unwrap();
        assert!(error.to_string().contains("--as-group"), "{error}");
    }

    #[tokio::test]
    async fn the_namespace_is_default_where_the_context_has_an_empty_one() {
        let path = std::env::temp_dir().join(format!("belay-empty-{}", std::process::id()));
        let text = "{apiVersion: v1, kind: Config, current-context: test,
            clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}],
            contexts: [{name: test, context: {cluster: c, user: u, namespace: ''}}]}";
        std::fs::write(&path, text).unwrap();
        let access = Access {
            kubeconfig: Some(path.clone()),
            ..Access::default()
        };
        let session = access.connect().await;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(session.ok().unwrap().namespace, "default");
    }

    #[test]
    fn kubeconfigs_that_do_not_exist_are_passed_over_while_one_does() {
        let dir = std::env::temp_dir().join(format!("belay-merged-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = |name: &str, context: &str| {
            let path = dir.join(name);
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: '{context}',
                 contexts: [{{name: {name}, context: {{cluster: c}}}}]}}"
            );
            std::fs::write(&path, text).unwrap();
            path
        };
        let (a, b, gone) = (file("a", ""), file("b", "b"), dir.join("gone"));
        let odd = dir.join("odd");
        std::fs::write(&odd, "a: [").unwrap();
        let read = |paths: &[&PathBuf]| {
            merged(&paths.iter().copied().cloned().collect::<Vec<_>>())
                .map(|file| {
                    let names = file.contexts.into_iter().map(|context| context.name);
                    (names.collect::<Vec<_>>().join(" "), file.current_context)
                })
                .map_err(|error| told(&error))
        };
        let b_alone = Ok(("b".to_owned(), Some("b".to_owned())));
        let results = [
            read(&[&gone, &b]),
            read(&[&b, &gone]),
            read(&[&a, &gone, &b]),
            read(&[&gone, &gone]),
            read(&[&odd, &b]),
        ];
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(results[0], b_alone);
        assert_eq!(results[1], b_alone);
        assert_eq!(results[2], Ok(("a b".to_owned(), Some("b".to_owned()))));
        let fault = results[3].clone().unwrap_err();
        assert!(fault.contains("cannot read the kubeconfig"), "{fault}");
        assert!(fault.contains("gone"), "{fault}");
        assert!(results[4].is_err(), "{results:?}");
    }
}
