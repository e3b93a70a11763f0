//! What to do about the operator, wherever it runs, in commands that can be
//! pasted: against the cluster that was looked at and no other.
//!
//! Webhook configurations that name a URL belong to an operator that is a process
//! somewhere, and no Deployment of this cluster. Pure text.

use super::facts::Facts;
use crate::cli::status::Caller;

/// What installs the CRD.
pub(super) fn apply_crd(caller: &Caller) -> String {
    caller.anywhere("apply -f crds/releaseplans.belay.dev.yaml")
}

/// Where the webhooks are reached, if not by a Service.
pub(super) fn url(facts: &Facts) -> Option<&str> {
    let mut all = [&facts.mutating, &facts.validating].into_iter();
    all.find_map(|hooks| hooks.as_ref().ok()?.as_ref()?.url.as_deref())
}

/// What makes the operator see to its certificate.
pub(super) fn restart(facts: &Facts) -> String {
    url(facts).map_or_else(
        || {
            let restart = "rollout restart deployment/belay";
            facts.caller.kubectl(restart, &facts.operator)
        },
        |url| format!("restart the operator that serves {url}"),
    )
}

/// What tells whether the operator runs, and why not.
pub(super) fn look(facts: &Facts) -> String {
    url(facts).map_or_else(
        || {
            let of = |what| facts.caller.kubectl(what, &facts.operator);
            format!("{}; {}", of("get pods"), of("logs deployment/belay"))
        },
        |url| format!("see that the operator that serves {url} runs, and read its log"),
    )
}

/// What lies between the API server and the operator.
pub(super) fn network(facts: &Facts) -> String {
    url(facts).map_or_else(
        || {
            format!(
                "see that the operator runs in {}, and that a NetworkPolicy or firewall lets the API server reach port 8443 of its pod",
                facts.operator
            )
        },
        |url| {
            format!(
                "see that the operator that serves {url} runs, and that the API server reaches that address"
            )
        },
    )
}

/// What brings the webhook configurations back.
pub(super) fn configure(facts: &Facts) -> String {
    const FILE: &str = "-f deploy/webhooks.yaml";
    let caller = &facts.caller;
    if let Some(url) = url(facts) {
        // The API server refuses a Service beside the URL, which an apply leaves.
        let replace = caller.anywhere(&format!("replace --force {FILE}"));
        return format!(
            "{replace}, then restart the operator that serves {url}: it writes that address anew"
        );
    }
    let apply = caller.anywhere(&format!("apply {FILE}"));
    let mut all = [&facts.mutating, &facts.validating].into_iter();
    let by_service = all.any(|hooks| matches!(hooks, Ok(Some(hooks)) if hooks.service.is_some()));
    if by_service {
        apply
    } else {
        format!(
            "{apply}; if the operator is reached by a URL (--webhook-url), restart it then: it writes that address anew"
        )
    }
}
