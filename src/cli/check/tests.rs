//! What the doctor says to which facts.

mod crd;

use expect_test::expect_file;
use k8s_openapi::{
    ByteString,
    api::apps::v1::{Deployment, DeploymentStatus},
    jiff::{SignedDuration, Timestamp},
};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{
    facts::{Before, Facts, Hooks, Other, Owners, Reply, Served, Silence},
    judge::{judge, judge_before},
    report::{Level, Report},
    rights::{Right, to_install},
};
use crate::{
    api::crd,
    certs::issue::{Lifetimes, issue},
    cli::{Exit, status::Caller},
};

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn forbidden(what: &str) -> Silence {
    Silence::Forbidden(format!("{what} is forbidden"))
}

fn stored_crd() -> Value {
    let mut stored = serde_json::to_value(crd()).unwrap();
    stored["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    stored
}

fn hooks(ca: &str) -> Hooks {
    Hooks {
        trusted: vec![ByteString(ca.as_bytes().to_vec())],
        service: Some("belay-system".into()),
        ..Hooks::default()
    }
}

fn reply(code: u16, body: Value, warning: &str) -> Reply {
    let warnings = vec![warning.to_owned()];
    Reply {
        code,
        body,
        warnings,
    }
}

fn plan(name: &str, workloads: &[&str]) -> Value {
    let components: Vec<Value> = workloads
        .iter()
        .map(|name| json!({"workload": {"kind": "Deployment", "name": name}}))
        .collect();
    json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"components": components}})
}

fn live(name: &str, more: &Value) -> PartialObjectMeta<Deployment> {
    let mut metadata = json!({"name": name, "namespace": "shop"});
    for (field, value) in more.as_object().unwrap() {
        metadata[field] = value.clone();
    }
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

fn owners(plans: &[Value], deployments: &[PartialObjectMeta<Deployment>]) -> Owners {
    let plans = plans.iter().cloned();
    Owners {
        plans: plans.map(|p| serde_json::from_value(p).unwrap()).collect(),
        deployments: deployments.to_vec(),
        others: Vec::new(),
    }
}

/// A cluster in which nothing is wrong.
fn healthy() -> Facts {
    let names = ["belay.belay-system.svc".to_owned()];
    let credentials = issue(&names, Lifetimes::default(), now()).unwrap();
    let status = DeploymentStatus {
        available_replicas: Some(1),
        ..DeploymentStatus::default()
    };
    Facts {
        now: now(),
        caller: Caller::default(),
        namespace: Some("shop".into()),
        operator: "belay-system".into(),
        named: false,
        version: "v1.37.2".into(),
        crd: Ok(Some(stored_crd())),
        mutating: Ok(Some(hooks(&credentials.ca))),
        validating: Ok(Some(hooks(&credentials.ca))),
        accepted: Ok(reply(
            201,
            json!({"metadata": {"annotations": {"belay.dev/release-generation": "1"}}}),
            "299 - \"deployment belay-check-no-such-deployment does not exist yet\"",
        )),
        refused: Ok(reply(
            422,
            json!({"message": "admission webhook \"mutate.releaseplans.belay.dev\" denied the request: spec.bakeTime: must be at most 168h (7 days), is 169h"}),
            "",
        )),
        operator_lacks: Ok(Vec::new()),
        caller_lacks: Ok(Vec::new()),
        deployment: Ok(Some(Deployment {
            status: Some(status),
            ..Deployment::default()
        })),
        leaf: Ok(Some(credentials.certificate)),
        lease: Ok(None),
        owners: Ok(owners(
            &[plan("shop", &["cart", "web"])],
            &[live("cart", &json!({})), live("web", &json!({}))],
        )),
    }
}

fn text(report: &Report) -> String {
    anstream::adapter::strip_str(&report.text()).to_string()
}

/// The one line that is not well.
fn only_fault(facts: &Facts) -> (Level, String) {
    let report = judge(facts);
    let mut faults = report.findings.iter().filter(|f| f.level != Level::Ok);
    let fault = faults.next().unwrap_or_else(|| panic!("{}", text(&report)));
    assert_eq!(faults.next(), None, "{}", text(&report));
    let said = format!(
        "{}: {} <- {} -> {}",
        fault.check,
        fault.message,
        fault.cause.as_deref().unwrap(),
        fault.cure.as_deref().unwrap()
    );
    (fault.level, said)
}

#[test]
fn a_healthy_cluster_is_told_line_by_line() {
    let report = judge(&healthy());
    expect_file!["tests/healthy.txt"].assert_eq(&text(&report));
    assert_eq!(report.exit(), Exit::Done);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["findings"][0],
        json!({"check": "server", "level": "OK", "message": "Kubernetes v1.37.2"})
    );
}

#[test]
fn a_broken_cluster_is_told_with_causes_and_cures() {
    let mut facts = healthy();
    facts.version = "v1.27.1".into();
    facts.crd = Ok(None);
    facts.deployment = Ok(Some(Deployment::default()));
    facts.operator_lacks = Ok(vec![
        Right::on("list", "", "pods", ""),
        Right::on("watch", "", "pods", ""),
        Right::on("patch", "belay.dev", "releaseplans/status", ""),
        Right::on("get", "", "secrets", "belay-system"),
    ]);
    facts.validating = Ok(None);
    facts.now += SignedDuration::from_hours(24 * 366);
    facts.refused = Ok(reply(201, json!({}), ""));
    facts.lease = Ok(Some((now(), 15)));
    facts.caller_lacks = Ok(super::rights::of_people("shop"));
    let mut all = owners(
        &[plan("shop", &["cart", "gone"]), plan("other", &["cart"])],
        &[live("cart", &json!({}))],
    );
    all.others.push(Other {
        what: "Flagger's Canary cart".into(),
        namespace: "shop".into(),
        deployment: "cart".into(),
    });
    facts.owners = Ok(all);
    let report = judge(&facts);
    expect_file!["tests/broken.txt"].assert_eq(&text(&report));
    assert_eq!(report.exit(), Exit::Failed);
    for finding in report.findings.iter().filter(|f| f.level != Level::Ok) {
        assert!(
            finding.cause.is_some() && finding.cure.is_some(),
            "{finding:?}"
        );
    }
}

/// Pasted as it stands, it must not reach the cluster of the current context.
#[test]
fn every_cure_is_for_the_cluster_that_was_looked_at() {
    let flags = "--context prod --as jane";
    let told = |change: fn(&mut Facts)| {
        let mut facts = healthy();
        facts.caller.cluster = flags.split(' ').map(str::to_owned).collect();
        change(&mut facts);
        let findings = judge(&facts).findings.into_iter();
        findings.filter_map(|f| f.cure).collect::<Vec<String>>()
    };
    let calls = |facts: &mut Facts, why: &str| {
        let text = format!("failed calling webhook \"x\": {why}");
        facts.accepted = Ok(reply(500, json!({"message": text}), ""));
    };
    let faults: [fn(&mut Facts); 6] = [
        |f| {
            f.crd = Ok(None);
            f.deployment = Ok(Some(Deployment::default()));
            f.operator_lacks = Ok(vec![Right::on("list", "", "pods", "")]);
            f.mutating = Ok(None);
            f.lease = Ok(Some((Timestamp::UNIX_EPOCH, 15)));
        },
        |f| {
            f.crd = Ok(Some(json!({})));
            f.deployment = Ok(None);
            f.now += SignedDuration::from_hours(24 * 366);
        },
        |f| {
            let mut stored = stored_crd();
            stored["status"] = json!({});
            f.crd = Ok(Some(stored));
            f.mutating = Ok(Some(Hooks::default()));
        },
        |f| f.accepted = Ok(reply(404, json!({"message": "page not found"}), "")),
        |f| f.accepted = Ok(reply(201, json!({}), "")),
        |f| f.refused = Ok(reply(201, json!({}), "")),
    ];
    let mut cures: Vec<String> = faults.into_iter().flat_map(told).collect();
    for why in ["x509", "no endpoints", "service not found"] {
        let mut facts = healthy();
        facts.caller.cluster = flags.split(' ').map(str::to_owned).collect();
        calls(&mut facts, why);
        cures.extend(judge(&facts).findings.into_iter().filter_map(|f| f.cure));
    }
    let commands: Vec<&String> = cures.iter().filter(|c| c.contains("kubectl")).collect();
    assert!(commands.len() > 12, "{commands:#?}");
    for cure in commands {
        assert_eq!(
            cure.matches("kubectl").count(),
            cure.matches(flags).count(),
            "{cure}"
        );
    }
}

/// Nothing that the caller may not see is called a failure.
#[test]
fn what_cannot_be_seen_is_a_warning() {
    let mut facts = healthy();
    facts.crd = Err(forbidden("customresourcedefinitions"));
    facts.mutating = Err(forbidden("mutatingwebhookconfigurations"));
    facts.validating = Err(forbidden("validatingwebhookconfigurations"));
    facts.accepted = Ok(reply(
        403,
        json!({"message": "releaseplans is forbidden"}),
        "",
    ));
    facts.operator_lacks = Err(forbidden("subjectaccessreviews"));
    facts.deployment = Err(forbidden("deployments"));
    facts.leaf = Err(forbidden("secrets"));
    facts.lease = Err(Silence::Late);
    facts.owners = Err(forbidden("releaseplans"));
    let report = judge(&facts);
    expect_file!["tests/unseen.txt"].assert_eq(&text(&report));
    assert_eq!(report.exit(), Exit::Done);
}

#[test]
fn a_webhook_that_cannot_be_called_is_told_by_its_cause() {
    for (message, cause) in [
        (
            "dial tcp 10.0.0.1:443: connect: connection refused",
            "no operator serves",
        ),
        (
            "no endpoints available for service \"belay\"",
            "no operator serves",
        ),
        (
            "service \"belay\" not found",
            "Service of the webhook is missing",
        ),
        (
            "x509: certificate signed by unknown authority",
            "does not trust",
        ),
        ("context deadline exceeded", "does not reach the webhook"),
    ] {
        let mut facts = healthy();
        let text = format!(
            "Internal error occurred: failed calling webhook \"mutate.releaseplans.belay.dev\": failed to call webhook: {message}"
        );
        facts.accepted = Ok(reply(500, json!({"message": text}), ""));
        let (level, said) = only_fault(&facts);
        assert_eq!(level, Level::Fail, "{said}");
        assert!(said.contains(cause) && said.contains(message), "{said}");
    }
}

/// Of an operator outside of the cluster there are no pods to look at.
#[test]
fn an_operator_that_is_reached_by_a_url_is_spoken_of_by_it() {
    let url = "https://10.0.0.7:9443";
    let outside = || {
        let mut facts = healthy();
        for hooks in [&mut facts.mutating, &mut facts.validating] {
            let hooks = hooks.as_mut().unwrap().as_mut().unwrap();
            hooks.service = None;
            hooks.url = Some(url.to_owned());
        }
        facts.deployment = Ok(None);
        facts.leaf = Ok(None);
        facts
    };
    let report = judge(&outside());
    assert_eq!(report.exit(), Exit::Done);
    assert!(!text(&report).contains("WARN"), "{}", text(&report));
    assert!(text(&report).contains("it answers"), "{}", text(&report));
    // Whoever says where it is means one in the cluster.
    let mut named = outside();
    named.named = true;
    let (level, said) = only_fault(&named);
    assert_eq!(level, Level::Warn);
    assert!(said.contains("does not exist"), "{said}");
    assert!(!said.contains("apply -k"), "{said}");
    // Nobody may say of it that it is well who has seen nothing of it.
    let mut unseen = outside();
    unseen.accepted = Err(forbidden("releaseplans"));
    unseen.refused = Err(forbidden("releaseplans"));
    let report = judge(&unseen);
    let operator = report.findings.iter().find(|f| f.check == "operator");
    let operator = operator.unwrap();
    assert_eq!(operator.level, Level::Warn);
    assert!(
        operator.message.ends_with("could not be seen"),
        "{operator:?}"
    );
    // What admission lacks is told there; the operator is then unseen.
    let only_fault = |facts: &Facts| {
        let mut report = judge(facts);
        report.findings.retain(|f| f.level != Level::Ok);
        let seen = |f: &super::report::Finding| f.check != "operator";
        if report.findings.iter().any(seen) {
            report.findings.retain(seen);
        }
        assert_eq!(report.findings.len(), 1, "{}", text(&report));
        let fault = &report.findings[0];
        let cure = fault.cure.clone().unwrap();
        (fault.level, format!("{} -> {cure}", fault.message))
    };
    let fault = |message: &str| {
        let mut facts = outside();
        let text = format!("failed calling webhook \"x\": {message}");
        facts.accepted = Ok(reply(500, json!({"message": text}), ""));
        only_fault(&facts).1
    };
    let (mut late, mut untrusted, mut gone) = (outside(), outside(), outside());
    late.accepted = Err(Silence::Late);
    late.refused = Err(Silence::Late);
    untrusted
        .mutating
        .as_mut()
        .unwrap()
        .as_mut()
        .unwrap()
        .trusted
        .clear();
    gone.mutating = Ok(None);
    let mut unrenewed = outside();
    unrenewed.lease = Ok(Some(("2026-11-28T12:00:00Z".parse().unwrap(), 15)));
    let mut old = outside();
    old.now = "2127-11-28T12:00:00Z".parse().unwrap();
    let reconfigure = only_fault(&gone).1;
    assert!(
        reconfigure.contains("-> kubectl replace --force -f deploy/webhooks.yaml, then"),
        "an apply would leave the URL beside a Service: {reconfigure}"
    );
    for told in [
        fault("dial tcp 10.0.0.7:9443: connect: connection refused"),
        fault("the server responded 404 page not found"),
        fault("x509: certificate signed by unknown authority"),
        fault("context deadline exceeded"),
        only_fault(&late).1,
        only_fault(&untrusted).1,
        only_fault(&gone).1,
        only_fault(&unrenewed).1,
        only_fault(&old).1,
    ] {
        let cure = told.split(" -> ").nth(1).unwrap();
        assert!(cure.contains(url), "{told}");
        assert!(!cure.contains("belay-system"), "{told}");
    }
}

/// Once both configurations are gone nothing tells how the operator is reached.
#[test]
fn lost_webhook_configurations_are_brought_back_either_way() {
    let mut facts = healthy();
    (facts.mutating, facts.validating) = (Ok(None), Ok(None));
    let report = judge(&facts);
    let webhooks = report.findings.iter().find(|f| f.check == "webhooks");
    assert_eq!(
        webhooks.unwrap().cure.as_deref(),
        Some(
            "kubectl apply -f deploy/webhooks.yaml; if the operator is reached by a URL (--webhook-url), restart it then: it writes that address anew"
        )
    );
}

#[test]
fn the_url_of_webhooks_is_told_without_their_path() {
    for (url, told) in [
        ("https://10.0.0.7:9443/mutate", "https://10.0.0.7:9443"),
        ("https://host", "https://host"),
        ("https://host?a=/b", "https://host"),
        ("https://[::1]:9443/a", "https://[::1]:9443"),
        ("odd", "odd"),
    ] {
        assert_eq!(super::gather::host(url), told);
    }
}

#[test]
fn each_webhook_has_to_leave_its_trace() {
    let mut facts = healthy();
    facts.accepted.as_mut().unwrap().warnings.clear();
    assert!(
        only_fault(&facts)
            .1
            .contains("the validating webhook is not asked")
    );
    facts.accepted.as_mut().unwrap().body = json!({});
    assert!(
        only_fault(&facts)
            .1
            .contains("the mutating webhook is not asked")
    );
    facts = healthy();
    facts.refused = Ok(reply(422, json!({"message": "policy says no"}), ""));
    assert!(only_fault(&facts).1.contains("422: policy says no"));
    facts.refused = Err(Silence::Late);
    assert!(only_fault(&facts).1.contains("no answer to a plan in time"));
    facts.accepted = Ok(reply(
        404,
        json!({"message": "namespaces \"x\" not found"}),
        "",
    ));
    assert_eq!(only_fault(&facts).0, Level::Warn);
    facts.accepted = Ok(reply(404, json!({"message": "page not found"}), ""));
    assert!(only_fault(&facts).1.contains("does not know ReleasePlans"));
}

#[test]
fn certificates_are_told_before_they_end() {
    let at = |days: i64| {
        let mut facts = healthy();
        facts.now += SignedDuration::from_hours(24 * days);
        facts
    };
    assert_eq!(judge(&at(340)).exit(), Exit::Done);
    let (level, said) = only_fault(&at(355));
    assert_eq!(level, Level::Warn);
    assert!(
        said.contains("the server's certificate ends on 2027-11-29"),
        "{said}"
    );
    let (level, said) = only_fault(&at(366));
    assert_eq!(level, Level::Fail);
    assert!(said.contains("ended on"), "{said}");
    let (_, said) = only_fault(&at(-1));
    assert!(said.contains("a clock is wrong"), "{said}");
    let mut facts = healthy();
    facts.mutating = Ok(Some(hooks("nonsense")));
    assert!(
        only_fault(&facts)
            .1
            .contains("the authority cannot be read")
    );
}

#[test]
fn a_lease_is_judged_by_its_age() {
    let mut facts = healthy();
    facts.lease = Ok(Some((now() - SignedDuration::from_secs(3), 15)));
    assert!(text(&judge(&facts)).contains("OK    lease        renewed 3 s ago"));
    facts.lease = Ok(Some((now() + SignedDuration::from_secs(7), 15)));
    let ahead = "OK    lease        renewed just now, by a clock that is 7 s ahead";
    assert!(text(&judge(&facts)).contains(ahead));
    facts.lease = Ok(Some((now() + SignedDuration::from_secs(37), 15)));
    let (level, said) = only_fault(&facts);
    assert_eq!(level, Level::Warn);
    assert!(
        said.contains("37 s from now") && !said.contains("-37"),
        "{said}"
    );
    facts.lease = Ok(Some((now() - SignedDuration::from_secs(60), 15)));
    assert_eq!(only_fault(&facts).0, Level::Fail);
}

#[test]
fn traces_of_other_tools_are_told() {
    let with = |more: Value| {
        let mut facts = healthy();
        facts.owners = Ok(owners(&[plan("shop", &["cart"])], &[live("cart", &more)]));
        facts
    };
    let managers =
        json!({"managedFields": [{"manager": "kubectl"}, {"manager": "rollouts-controller"}]});
    assert!(
        only_fault(&with(managers))
            .1
            .contains("was written by Argo Rollouts")
    );
    let owned = json!({"ownerReferences": [
        {"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "name": "c", "uid": "u", "controller": true}
    ]});
    assert!(only_fault(&with(owned)).1.contains("belongs to Canary c"));
    // An object of that name elsewhere is nobody's business.
    let mut facts = with(json!({}));
    facts.owners.as_mut().unwrap().others.push(Other {
        what: "Argo's Rollout cart".into(),
        namespace: "elsewhere".into(),
        deployment: "cart".into(),
    });
    assert_eq!(judge(&facts), judge(&with(json!({}))));
}

fn before() -> Before {
    Before {
        version: "v1.37.2".into(),
        crd: Ok(None),
        lacks: Ok(Vec::new()),
        resources: Ok(vec![Served {
            group: "apps".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
            short_names: vec!["deploy".into()],
        }]),
    }
}

#[test]
fn before_an_installation_the_way_is_clear_or_it_is_said_what_stands_in_it() {
    let report = judge_before(&before());
    expect_file!["tests/before.txt"].assert_eq(&text(&report));
    assert_eq!(report.exit(), Exit::Done);
    let mut facts = before();
    facts.version = "v1.28.0".into();
    facts.crd = Ok(Some(
        json!({"spec": {"names": {"kind": "ReleasePlan"}, "versions": []}}),
    ));
    // Enough of them that not all are named.
    facts.lacks = Ok(to_install("belay-system")[..14].to_vec());
    facts.resources.as_mut().unwrap().push(Served {
        group: "release.example.com".into(),
        kind: "RelPlan".into(),
        plural: "relplans".into(),
        short_names: vec!["relplan".into()],
    });
    let report = judge_before(&facts);
    expect_file!["tests/before-broken.txt"].assert_eq(&text(&report));
    assert_eq!(report.exit(), Exit::Failed);
    facts = before();
    facts.crd = Ok(Some(stored_crd()));
    assert!(text(&judge_before(&facts)).contains("this is an upgrade"));
}
