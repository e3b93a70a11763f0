//! The way to the cluster: kubeconfig, context, namespace and whom to act as,
//! found as kubectl finds them.
//!
//! Makes a client and nothing else: no discovery, no call of its own.

use std::path::PathBuf;

use axum::http::{HeaderValue, header::USER_AGENT};
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{COMMON, CliError, terminal::Color};

/// The name under which the API server's audit log has these calls.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("belay-cli/", env!("CARGO_PKG_VERSION")));

/// Flags of every command.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Namespace [default: that of the context].
    #[arg(short, long, value_name = "NAME", help_heading = COMMON)]
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
        let namespace = named.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(no_cluster)?;
        Ok(Session {
            client,
            namespace,
            chosen,
            access: self.clone(),
        })
    }

    async fn config(&self) -> Result<Config, CliError> {
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = match read {
            Ok(file) => file,
            Err(error) => {
                let in_pod = (self.kubeconfig.is_none() && self.context.is_none())
                    .then(|| Config::incluster().ok())
                    .flatten();
                return in_pod.ok_or_else(|| no_cluster(Error(error)));
            }
        };
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| no_cluster(Error(error)))
    }
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
    }
}

/// A kubeconfig error with what lies below it, which its own text leaves out.
struct Error(KubeconfigError);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)?;
        let text = self.0.to_string();
        let mut below = std::error::Error::source(&self.0);
        while let Some(error) = below {
            let more = error.to_string();
            if !text.contains(&more) {
                write!(f, ": {more}")?;
            }
            below = error.source();
        }
        Ok(())
    }
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

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_says_so() {
        let access = Access {
            kubeconfig: Some("/nonexistent/kubeconfig".into()),
            ..Access::default()
        };
        let error = access.connect().await.err().unwrap();
        assert!(
            error.to_string().contains("/nonexistent/kubeconfig"),
            "{error}"
        );
        assert!(error.hint().is_some());
        let access = Access {
            as_group: vec!["g".into()],
            ..Access::default()
        };
        let error = access.connect().await.err().unwrap();
        assert!(error.to_string().contains("--as-group"), "{error}");
    }
}
