//! What follows from the facts: each thing, how it stands, why, and what to do.
//!
//! Pure. What could not be seen is a warning and never a failure: that the
//! caller may not look says nothing about the cluster.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    admission::admission,
    cures::{apply_crd, look, restart, url},
    facts::{Answer, Before, Facts, Hooks, Silence},
    hooks::configuration,
    owners::owners,
    report::{Finding, Level, Report},
    rights::{Right, told},
};
use crate::{
    api::{GROUP, VERSION, crd},
    certs::issue::{Validity, validity},
    cli::{counted, status::Caller},
};

/// The oldest minor version of Kubernetes with all that Belay uses: rules in
/// CEL in CRDs, above all.
const OLDEST_MINOR: u32 = 29;
/// Days before the end of a certificate from which on it is told. The operator
/// renews its own earlier.
const SOON: i64 = 14;
const DAY: i64 = 24 * 3600;
/// Differences of a schema that are named.
const SHOWN: usize = 3;

/// The report on a cluster in which Belay is installed.
pub(super) fn judge(facts: &Facts) -> Report {
    let mut findings = vec![server(&facts.version), crd_there(&facts.crd, &facts.caller)];
    findings.push(operator(facts));
    findings.push(operator_rights(facts));
    findings.push(configuration(facts));
    findings.push(certificates(facts));
    findings.push(admission(facts));
    findings.push(lease(facts));
    findings.push(own_rights(&facts.caller_lacks));
    findings.extend(owners(facts));
    Report { findings }
}

/// The report on a cluster before Belay is installed.
pub(super) fn judge_before(facts: &Before) -> Report {
    let findings = vec![
        server(&facts.version),
        crd_free(&facts.crd),
        names_free(facts),
        rights_to_install(&facts.lacks),
    ];
    Report { findings }
}

fn server(version: &str) -> Finding {
    const CHECK: &str = "server";
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next()?.parse::<u32>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) < (1, OLDEST_MINOR) => Finding::fail(
            CHECK,
            format!("Kubernetes {version}"),
            format!("Belay needs 1.{OLDEST_MINOR} or newer"),
            "upgrade the cluster",
        ),
        (Some(_), Some(_)) => Finding::ok(CHECK, format!("Kubernetes {version}")),
        _ => Finding::warn(
            CHECK,
            format!("Kubernetes {version:?}"),
            "the version cannot be read",
            format!("make sure that it is 1.{OLDEST_MINOR} or newer"),
        ),
    }
}

/// What stays unknown, with what would show it.
pub(super) fn unseen(check: &'static str, what: &str, silence: &Silence, need: &str) -> Finding {
    let cure = match silence {
        Silence::Forbidden(_) => format!("let somebody run it who may {need}"),
        Silence::Late | Silence::Failed(_) => "try again; look at the API server's log".to_owned(),
    };
    Finding::warn(
        check,
        format!("{what} could not be seen"),
        silence.to_string(),
        cure,
    )
}

fn crd_there(found: &Answer<Option<Value>>, caller: &Caller) -> Finding {
    const CHECK: &str = "crd";
    let name = format!("releaseplans.{GROUP}");
    let stored = match found {
        Err(silence) => {
            let need = "get customresourcedefinitions";
            return unseen(CHECK, &format!("CRD {name}"), silence, need);
        }
        Ok(None) => {
            return Finding::fail(
                CHECK,
                format!("CRD {name} does not exist"),
                "Belay is not installed, or not in full",
                apply_crd(caller),
            );
        }
        Ok(Some(stored)) => stored,
    };
    let other = |cause: String| {
        let message = format!("CRD {name} is of another version of Belay than this command");
        let cure = format!(
            "{} (of version {}), or use the command of the version that is installed",
            apply_crd(caller),
            env!("CARGO_PKG_VERSION")
        );
        Finding::fail(CHECK, message, cause, cure)
    };
    let Some(theirs) = served_schema(stored) else {
        return other(format!("it does not serve {VERSION}"));
    };
    let ours = serde_json::to_value(crd()).unwrap_or_default();
    let ours = served_schema(ours.get("spec").map_or(&Value::Null, |_| &ours));
    let mut differences = Vec::new();
    differ("", ours.unwrap_or(&Value::Null), theirs, &mut differences);
    if !differences.is_empty() {
        let more = differences.len().saturating_sub(SHOWN);
        differences.truncate(SHOWN);
        let mut cause = format!("the schemas differ at {}", differences.join(", "));
        if more > 0 {
            cause.push_str(&format!(" and {more} more"));
        }
        return other(cause);
    }
    let conditions = stored
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    if !established {
        return Finding::fail(
            CHECK,
            format!("CRD {name} is not established"),
            "the API server has not taken it yet, or its names are taken",
            caller.anywhere(&format!("describe crd {name}")),
        );
    }
    Finding::ok(
        CHECK,
        format!("CRD {name} is there, {VERSION} as in this version"),
    )
}

/// The schema of our version, where it is served.
fn served_schema(crd: &Value) -> Option<&Value> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let version = versions.iter().find(|version| version["name"] == VERSION)?;
    if version["served"] != true {
        return None;
    }
    version.pointer("/schema/openAPIV3Schema")
}

/// Paths at which two schemas differ in what they let through. Descriptions
/// are for people.
fn differ(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names = ours
                .keys()
                .chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
            for name in names.filter(|name| *name != "description") {
                let inner = match name.as_str() {
                    "properties" | "items" | "additionalProperties" => path.to_owned(),
                    _ if path.is_empty() => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                let (ours, theirs) = (ours.get(name), theirs.get(name));
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    differ(&inner, ours, theirs, found);
                } else {
                    found.push(inner);
                }
            }
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => {}
        (ours, theirs) if ours == theirs => {}
        _ => found.push(path.to_owned()),
    }
}

fn operator(facts: &Facts) -> Finding {
    const CHECK: &str = "operator";
    let namespace = &facts.operator;
    let deployment = match &facts.deployment {
        Err(silence) => {
            let need = format!("get deployments in {namespace}");
            return unseen(
                CHECK,
                &format!("deployment {namespace}/belay"),
                silence,
                &need,
            );
        }
        Ok(None) => {
            if let Some(url) = url(facts).filter(|_| !facts.named) {
                let what = format!("outside of the cluster, where {url} leads");
                if admission(facts).level == Level::Ok {
                    return Finding::ok(CHECK, format!("{what}; it answers, see admission"));
                }
                return Finding::warn(
                    CHECK,
                    format!("{what}: could not be seen"),
                    "no answer to a plan shows that it runs; see admission",
                    look(facts),
                );
            }
            let cure = match url(facts) {
                Some(url) => format!(
                    "leave --operator-namespace out: the webhooks lead to {url}, and no Deployment of the cluster"
                ),
                None => format!(
                    "{}, or name its namespace with --operator-namespace",
                    facts.caller.anywhere("apply -k deploy")
                ),
            };
            return Finding::warn(
                CHECK,
                format!("deployment {namespace}/belay does not exist"),
                "the operator runs elsewhere, or not at all",
                cure,
            );
        }
        Ok(Some(deployment)) => deployment,
    };
    let status = deployment.status.as_ref();
    let available = status
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    if available > 0 {
        return Finding::ok(CHECK, format!("deployment {namespace}/belay is available"));
    }
    Finding::fail(
        CHECK,
        format!("deployment {namespace}/belay is not available"),
        "none of its pods is ready; nothing is judged or rolled back meanwhile",
        facts
            .caller
            .kubectl("describe pods -l app.kubernetes.io/name=belay", namespace),
    )
}

fn operator_rights(facts: &Facts) -> Finding {
    const CHECK: &str = "rights";
    let account = format!("serviceaccount {}/belay", facts.operator);
    match &facts.operator_lacks {
        Err(silence) => {
            let what = format!("the rights of {account}");
            unseen(CHECK, &what, silence, "create subjectaccessreviews")
        }
        Ok(lacks) if lacks.is_empty() => {
            Finding::ok(CHECK, format!("{account} has all rights that it needs"))
        }
        Ok(lacks) => Finding::fail(
            CHECK,
            format!("{account} lacks {}", counted(lacks.len(), "right")),
            format!("it may not {}", told(lacks)),
            facts
                .caller
                .anywhere("apply -f deploy/serviceaccount.yaml -f deploy/rbac.yaml"),
        ),
    }
}

fn own_rights(lacks: &Answer<Vec<Right>>) -> Finding {
    const CHECK: &str = "you";
    match lacks {
        Err(silence) => unseen(CHECK, "your rights", silence, "review their own rights"),
        Ok(lacks) if lacks.is_empty() => Finding::ok(CHECK, "you may do all that plans take"),
        Ok(lacks) => Finding::warn(
            CHECK,
            "you may not do all that plans take",
            format!("you may not {}", told(lacks)),
            "ask for what you need: orders take patch, looking takes get, list and watch",
        ),
    }
}

fn rights_to_install(lacks: &Answer<Vec<Right>>) -> Finding {
    const CHECK: &str = "rights";
    match lacks {
        Err(silence) => unseen(CHECK, "your rights", silence, "review their own rights"),
        Ok(lacks) if lacks.is_empty() => Finding::ok(CHECK, "you may install Belay"),
        Ok(lacks) => Finding::fail(
            CHECK,
            format!(
                "you lack {} to install Belay",
                counted(lacks.len(), "right")
            ),
            format!("you may not {}", told(lacks)),
            "let an administrator of the cluster install it; nobody can grant rights that they lack",
        ),
    }
}

fn certificates(facts: &Facts) -> Finding {
    const CHECK: &str = "certificate";
    let trusted = |hooks: &Answer<Option<Hooks>>| match hooks {
        Ok(Some(hooks)) => hooks.trusted.clone(),
        Ok(None) | Err(_) => Vec::new(),
    };
    let mut bundles = trusted(&facts.mutating);
    bundles.extend(trusted(&facts.validating));
    if bundles.is_empty() {
        return Finding::warn(
            CHECK,
            "there is no certificate to look at",
            "the webhook configurations show no caBundle",
            "see webhooks",
        );
    }
    let mut last: Option<Validity> = None;
    let bundles = bundles
        .iter()
        .map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
    let leaf = facts.leaf.as_ref().ok().and_then(Clone::clone);
    let all = bundles.map(|pem| ("the authority", pem));
    for (what, pem) in all.chain(leaf.clone().map(|pem| ("the server's certificate", pem))) {
        let validity = match validity(what, &pem) {
            Ok(validity) => validity,
            Err(error) => {
                return Finding::fail(
                    CHECK,
                    format!("{what} cannot be read"),
                    error.to_string(),
                    restart(facts),
                );
            }
        };
        if let Some(finding) = expiry(what, validity, facts) {
            return finding;
        }
        if last.is_none_or(|last| validity.not_after < last.not_after) {
            last = Some(validity);
        }
    }
    let until = last
        .map(|validity| day(validity.not_after))
        .unwrap_or_default();
    let whose = match (&facts.leaf, leaf) {
        (_, Some(_)) => "authority and server's certificate are good",
        (Err(Silence::Forbidden(_)), None) => {
            "the authority is good (the server's certificate is in a Secret that you may not read)"
        }
        (_, None) => "the authority is good (the server's certificate is not kept in the cluster)",
    };
    Finding::ok(CHECK, format!("{whose} until {until}"))
}

fn expiry(what: &str, validity: Validity, facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "certificate";
    let left = validity.not_after.as_second() - facts.now.as_second();
    let until = day(validity.not_after);
    if left <= 0 {
        return Some(Finding::fail(
            CHECK,
            format!("{what} ended on {until}"),
            "no operator has renewed it in time",
            restart(facts),
        ));
    }
    if validity.not_before > facts.now {
        return Some(Finding::fail(
            CHECK,
            format!("{what} begins on {} only", day(validity.not_before)),
            "a clock is wrong: this machine's or that of the operator's node",
            "set the clocks, then look again",
        ));
    }
    (left < SOON * DAY).then(|| {
        Finding::warn(
            CHECK,
            format!("{what} ends on {until}"),
            "the operator should have renewed it by now",
            restart(facts),
        )
    })
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

fn lease(facts: &Facts) -> Finding {
    const CHECK: &str = "lease";
    match &facts.lease {
        Err(silence) => {
            let need = format!("get leases in {}", facts.operator);
            unseen(CHECK, "the lease", silence, &need)
        }
        Ok(None) => Finding::ok(CHECK, "skipped: there is none, one operator needs none"),
        Ok(Some((renewed, seconds))) => {
            let age = facts.now.as_second() - renewed.as_second();
            if age < -i64::from(*seconds) {
                return Finding::warn(
                    CHECK,
                    format!("renewed at {renewed}, which is {} s from now", -age),
                    "a clock is wrong: this machine's or that of the operator's node",
                    "set the clocks, then look again",
                );
            }
            if age < 0 {
                let text = format!("renewed just now, by a clock that is {} s ahead", -age);
                return Finding::ok(CHECK, text);
            }
            if age <= i64::from(*seconds) {
                return Finding::ok(CHECK, format!("renewed {age} s ago"));
            }
            Finding::fail(
                CHECK,
                format!("not renewed for {age} s (it is good for {seconds} s)"),
                "no operator is in charge: nothing is judged or rolled back",
                look(facts),
            )
        }
    }
}

fn crd_free(found: &Answer<Option<Value>>) -> Finding {
    const CHECK: &str = "crd";
    let name = format!("releaseplans.{GROUP}");
    let stored = match found {
        Err(silence) => {
            let need = "get customresourcedefinitions";
            return unseen(CHECK, &format!("CRD {name}"), silence, need);
        }
        Ok(None) => return Finding::ok(CHECK, format!("the name {name} is free")),
        Ok(Some(stored)) => stored,
    };
    if stored
        .pointer("/spec/names/kind")
        .is_some_and(|kind| kind == "ReleasePlan")
        && served_schema(stored).is_some()
    {
        return Finding::ok(
            CHECK,
            format!("CRD {name} is there already: this is an upgrade"),
        );
    }
    Finding::fail(
        CHECK,
        format!("CRD {name} exists, and is not Belay's"),
        format!("it has another kind, or no {VERSION}"),
        "find out whose it is; Belay cannot be installed beside it",
    )
}

/// Names that kubectl would no longer tell apart.
fn names_free(facts: &Before) -> Finding {
    const CHECK: &str = "names";
    let served = match &facts.resources {
        Err(silence) => {
            return unseen(
                CHECK,
                "the resources of the cluster",
                silence,
                "read discovery",
            );
        }
        Ok(served) => served,
    };
    let ours = crd().spec.names;
    let short = ours.short_names.unwrap_or_default();
    let same = |plural: &str, kind: &str, names: &[String]| {
        plural == ours.plural
            || kind == ours.kind
            || names
                .iter()
                .any(|name| short.contains(name) || *name == ours.plural)
    };
    let rivals: Vec<String> = served
        .iter()
        .filter(|other| other.group != GROUP)
        .filter(|other| same(&other.plural, &other.kind, &other.short_names))
        .map(|other| format!("{}.{}", other.plural, other.group))
        .collect();
    if rivals.is_empty() {
        return Finding::ok(CHECK, "no other resource is called like ReleasePlans");
    }
    Finding::warn(
        CHECK,
        format!(
            "another resource is called like ReleasePlans: {}",
            rivals.join(", ")
        ),
        "kubectl takes the first that it finds",
        format!("say releaseplans.{GROUP} in full"),
    )
}
