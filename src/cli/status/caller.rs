//! Commands as they can be pasted: in the form that this one was called by, and
//! against the same cluster and namespace.

use crate::cli::{Invocation, access::quoted};

/// How this command was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `belay` or `kubectl belay`.
    pub program: String,
    /// Flags that name the cluster, such as `--context prod`.
    pub cluster: Vec<String>,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            program: "belay".to_owned(),
            cluster: Vec::new(),
        }
    }
}

impl Caller {
    /// The caller of a command.
    #[must_use]
    pub fn of(call: &Invocation<'_>) -> Self {
        let access = &call.access;
        let mut cluster = Vec::new();
        if let Some(context) = &access.context {
            cluster.extend(["--context".to_owned(), context.clone()]);
        }
        if let Some(file) = &access.kubeconfig {
            cluster.extend(["--kubeconfig".to_owned(), file.display().to_string()]);
        }
        if let Some(user) = &access.as_user {
            cluster.extend(["--as".to_owned(), user.clone()]);
        }
        for group in &access.as_group {
            cluster.extend(["--as-group".to_owned(), group.clone()]);
        }
        Self {
            program: call.program.name().to_owned(),
            cluster,
        }
    }

    /// A command of Belay about a plan.
    #[must_use]
    pub fn command(&self, verb: &str, plan: &str, more: &str, namespace: &str) -> String {
        let head = [self.program.as_str(), verb, plan, more];
        self.complete(&head, namespace)
    }

    /// A command of kubectl in a namespace.
    #[must_use]
    pub fn kubectl(&self, rest: &str, namespace: &str) -> String {
        self.complete(&["kubectl", rest], namespace)
    }

    fn complete(&self, head: &[&str], namespace: &str) -> String {
        let head = head.iter().filter(|word| !word.is_empty());
        let mut words: Vec<String> = head.map(|word| (*word).to_owned()).collect();
        words.extend(["-n".to_owned(), namespace.to_owned()]);
        words.extend(self.cluster.iter().map(|word| quoted(word)));
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_any_shell() {
        let caller = Caller {
            program: "kubectl belay".to_owned(),
            cluster: vec!["--context".to_owned(), "bob's prod".to_owned()],
        };
        assert_eq!(
            caller.command("abort", "shop", "", "web"),
            r"kubectl belay abort shop -n web --context 'bob'\''s prod'"
        );
        assert_eq!(
            Caller::default().kubectl("get pods", "x"),
            "kubectl get pods -n x"
        );
    }
}
