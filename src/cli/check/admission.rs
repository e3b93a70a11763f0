//! What came of the two plans that were sent through the webhooks. Pure.

use super::{
    cures::{apply_crd, configure, look, network, restart, url},
    facts::{Facts, Reply, Silence},
    gather::{NOBODYS, TOO_LONG},
    judge::unseen,
    report::Finding,
};
use crate::api::RELEASE_GENERATION;

const CHECK: &str = "admission";

/// The way from the API server through both webhooks, walked by two plans.
pub(super) fn admission(facts: &Facts) -> Finding {
    let words = format!("is {TOO_LONG}");
    for (reply, sound) in [(&facts.accepted, true), (&facts.refused, false)] {
        let reply = match reply {
            Ok(reply) => reply,
            Err(Silence::Late) => {
                return Finding::fail(
                    CHECK,
                    "no answer to a plan in time",
                    "the API server waits for a webhook that it does not reach",
                    network(facts),
                );
            }
            Err(silence) => return unseen(CHECK, "admission", silence, "create releaseplans"),
        };
        let text = reply.body["message"].as_str().unwrap_or_default();
        let created = reply.code == 201;
        if created && !sound {
            return Finding::fail(
                CHECK,
                "a plan with a fault is let through",
                "no webhook of ours judges it: the configurations are missing, or leave this namespace out",
                configure(facts),
            );
        }
        if created {
            if let Some(finding) = passed_by(reply, facts) {
                return finding;
            }
        } else if sound || !text.contains(&words) {
            return refusal(reply.code, text, facts);
        }
    }
    Finding::ok(
        CHECK,
        "a sound plan is admitted and a faulty one is refused, as it must be",
    )
}

/// A webhook that a plan did not come by on its way in.
fn passed_by(reply: &Reply, facts: &Facts) -> Option<Finding> {
    let numbered = reply.body.pointer("/metadata/annotations");
    let numbered = numbered.is_some_and(|all| all.get(RELEASE_GENERATION).is_some());
    let warned = reply
        .warnings
        .iter()
        .any(|warning| warning.contains(NOBODYS));
    let missing = if !numbered {
        "mutating"
    } else if !warned {
        "validating"
    } else {
        return None;
    };
    Some(Finding::fail(
        CHECK,
        format!("the {missing} webhook is not asked about plans"),
        "its configuration is missing, leaves this namespace out, or ignores failures",
        configure(facts),
    ))
}

fn refusal(code: u16, text: &str, facts: &Facts) -> Finding {
    if text.contains("failed calling webhook") {
        let (cause, cure) = if text.contains("x509") || text.contains("certificate") {
            (
                "the API server does not trust the webhook's certificate",
                format!("{}; it writes its authority anew", restart(facts)),
            )
        } else if text.contains("no endpoints") || text.contains("refused") {
            ("no operator serves the webhook", look(facts))
        } else if text.contains("not found") && url(facts).is_none() {
            (
                "the Service of the webhook is missing",
                facts.caller.anywhere("apply -f deploy/service.yaml"),
            )
        } else {
            ("the API server does not reach the webhook", network(facts))
        };
        let message = "the webhook cannot be called: plans cannot be created or changed";
        return Finding::fail(CHECK, message, format!("{cause}: {text}"), cure);
    }
    match code {
        403 if !text.contains("admission webhook") => Finding::warn(
            CHECK,
            "admission could not be tried",
            text,
            "let somebody run it who may create releaseplans, or choose another namespace with -n",
        ),
        404 if text.contains("namespaces") => Finding::warn(
            CHECK,
            "admission could not be tried",
            text,
            "choose a namespace that exists with -n",
        ),
        404 => Finding::fail(
            CHECK,
            "the API server does not know ReleasePlans",
            "the CRD is not installed, or not established yet",
            apply_crd(&facts.caller),
        ),
        _ => Finding::fail(
            CHECK,
            "a plan was not answered as it must be",
            format!("{code}: {text}"),
            "is another admission webhook or policy in the way? Its name stands in the message",
        ),
    }
}
