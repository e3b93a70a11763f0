//! Commands as they can be pasted: in the form that this one was called by, and
//! against the same cluster and namespace.

use crate::cli::{Access, Invocation, Program, access::quoted};

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
        Self::new(call.program, &call.access)
    }

    /// Whoever called the program by this name, with these flags.
    #[must_use]
    pub fn new(program: Program, access: &Access) -> Self {
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
            program: program.name().to_owned(),
            cluster,
        }
    }

    /// A command of Belay about a plan.
    #[must_use]
    pub fn command(&self, verb: &str, plan: &str, more: &str, namespace: &str) -> String {
        let head = [self.program.as_str(), verb, plan, more];
        self.complete(&head, Some(namespace))
    }

    /// A command of Belay about the cluster.
    #[must_use]
    pub fn about(&self, verb: &str) -> String {
        self.complete(&[self.program.as_str(), verb], None)
    }

    /// A command of kubectl that names its objects' namespaces, or needs none.
    #[must_use]
    pub fn anywhere(&self, rest: &str) -> String {
        self.complete(&["kubectl", rest], None)
    }

    /// A command of kubectl in a namespace.
    #[must_use]
    pub fn kubectl(&self, rest: &str, namespace: &str) -> String {
        self.complete(&["kubectl", rest], Some(namespace))
    }

    fn complete(&self, head: &[&str], namespace: Option<&str>) -> String {
        let head = head.iter().filter(|word| !word.is_empty());
        let mut words: Vec<String> = head.map(|word| (*word).to_owned()).collect();
        let place = namespace.map(|name| ["-n".to_owned(), name.to_owned()]);
        words.extend(place.into_iter().flatten());
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
        assert_eq!(
            caller.anywhere("get --raw /readyz"),
            r"kubectl get --raw /readyz --context 'bob'\''s prod'"
        );
        assert_eq!(Caller::default().about("check"), "belay check");
    }
}
