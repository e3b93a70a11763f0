//! The story: what a person does, what comes of it, what is claimed.

use std::time::Duration;

use serde_json::Value;

use super::Stop;
use super::checks::{self, holds, names_all, same};
use super::configuration;
use super::manifests::{self, COMPONENTS};
use super::shell::{SOON, Shell, Show};
use super::timing::Stopwatch;

/// The promise: everything is back within this time of the failure.
const BACK_WITHIN: Duration = Duration::from_secs(5);
/// The default of `spec.failFast.restarts`.
const RESTARTS: i64 = 3;

pub(super) const READY: &[&str] = &["wait", "relplan/shop", "--for=condition=Ready", TIMEOUT];
pub(super) const TIMEOUT: &str = "--timeout=60s";

/// Tells it.
pub(crate) fn tell(shell: &Shell<'_>) -> Result<(), Stop> {
    existing_deployments(shell)?;
    bad_plan(shell)?;
    good_plan(shell)?;
    release(shell)?;
    let before = templates(shell)?;
    bad_release(shell, &before)?;
    refused_content(shell)?;
    configuration::tell(shell)?;
    followed(shell)?;
    deletion(shell)
}

fn existing_deployments(shell: &Shell<'_>) -> Result<(), Stop> {
    shell
        .screen
        .chapter("Three Deployments, as people have them");
    shell.file_quietly(
        "shop.yaml",
        &manifests::deployments(shell.place.adds_a_node()),
    )?;
    shell.must(&["apply", "-f", "shop.yaml"], Show::All)?;
    shell.must(
        &[
            "wait",
            "deployments",
            "--all",
            "--for=condition=Available",
            TIMEOUT,
        ],
        Show::All,
    )?;
    shell.must(&["get", "deployments", "-o", "wide"], Show::All)?;
    Ok(())
}

fn bad_plan(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("A bad plan is refused, and every fault is named");
    shell.file("bad.yaml", manifests::BAD)?;
    let output = shell.kubectl(&["apply", "-f", "bad.yaml"], Show::All)?;
    screen.claim(
        "kubectl apply is refused",
        holds(!output.success(), || output.stdout.clone()),
    )?;
    let paths = &manifests::FAULTS;
    screen.claim(
        &format!(
            "the denial names all {} faults at once, each with its field",
            paths.len()
        ),
        checks::faults_at(&output.stderr, paths),
    )?;
    screen.text(
        "One letter is missing in the name of a container. The API server would add a container:",
    );
    shell.file_quietly("misspelt.yaml", &manifests::misspelt())?;
    let output = shell.kubectl(&["apply", "-f", "misspelt.yaml"], Show::All)?;
    screen.claim(
        "the denial says which container cart does not have, and which it has",
        holds(!output.success(), || output.stdout.clone())
            .and_then(|()| names_all(&output.stderr, &["no container ap ", "it has: app"])),
    )?;
    let plans = shell.json(&["get", "relplan"])?;
    screen.claim(
        "nothing was stored",
        same(&plans["items"], &Value::Array(Vec::new())),
    )
}

fn good_plan(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("A good plan is completed");
    shell.file("plan-1.yaml", &manifests::plan("1", "1"))?;
    let answer = shell.must(&["apply", "-f", "plan-1.yaml", "-o", "yaml"], Show::All)?;
    screen.claim(
        "the answer shows what holds where the plan says nothing",
        checks::has_lines(&answer, &manifests::DEFAULTS),
    )?;
    screen.claim(
        "it shows the finalizer that brings everything back before the plan can go",
        checks::has_lines(&answer, &["belay.dev/rollback"]),
    )?;
    screen.claim(
        "it shows the release generation that a pipeline waits for",
        checks::has_lines(&answer, &[r#"belay.dev/release-generation: "1""#]),
    )?;
    shell.must(READY, Show::All)?;
    shell.must(&["get", "relplan"], Show::All)?;
    let plan = shell.json(&["get", "relplan", "shop"])?;
    screen.claim(
        "what is live is the stable revision; that was no release",
        holds(
            !checks::text(&plan["status"]["stableRevision"]).is_empty(),
            || plan["status"].to_string(),
        )
        .and_then(|()| same(&plan["status"]["history"], &Value::Null)),
    )
}

fn release(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("Two Deployments are released together");
    screen.text("plan-2.yaml is plan-1.yaml with shop/cart:2 and shop/web:2.");
    let before = shell.json(&["get", "relplan", "shop"])?;
    shell.file_quietly("plan-2.yaml", &manifests::plan("2", "2"))?;
    let watch = shell.watch()?;
    shell.must(&["apply", "-f", "plan-2.yaml"], Show::All)?;
    shell.must(
        &[
            "wait",
            "relplan/shop",
            "--for=jsonpath={.status.observedReleaseGeneration}=2",
            TIMEOUT,
        ],
        Show::All,
    )?;
    shell.must(READY, Show::All)?;
    screen.text("What the watch saw:");
    screen.quote(&watch.end());
    shell.must(&["get", "deployments", "-o", "wide"], Show::All)?;
    screen.claim(
        "cart and web are on :2, mail was left alone",
        images(shell, ["2", "2", "1"]),
    )?;
    screen.claim("all pods are available", available(shell))?;
    let plan = shell.json(&["get", "relplan", "shop"])?;
    screen.claim(
        "the plan is Ready, and this is the new stable revision",
        same(&checks::condition(&plan, "Ready").0.as_str(), &"Released").and_then(|()| {
            let (old, new) = (
                &before["status"]["stableRevision"],
                &plan["status"]["stableRevision"],
            );
            holds(
                new != old && *new == plan["status"]["history"][0]["revision"],
                || {
                    format!(
                        "before: {old}\nnow: {new}\nhistory: {}",
                        plan["status"]["history"]
                    )
                },
            )
        }),
    )
}

fn bad_release(shell: &Shell<'_>, before: &[String]) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("A bad release goes back by itself");
    screen.text(
        "plan-3.yaml has shop/cart:3, which is fine, and shop/web:3-crash, whose pods crash loop.",
    );
    shell.file_quietly("plan-3.yaml", &manifests::plan("3", "3-crash"))?;
    let stopwatch = Stopwatch::start(shell.place.kubeconfig());
    let watch = shell.watch()?;
    shell.must(&["apply", "-f", "plan-3.yaml"], Show::All)?;
    shell.must(
        &[
            "wait",
            "relplan/shop",
            r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=RolledBack"#,
            TIMEOUT,
        ],
        Show::All,
    )?;
    screen.text("What the watch saw:");
    screen.quote(&watch.end());
    let mut stable = Vec::new();
    for (name, template) in COMPONENTS.iter().zip(before).take(2) {
        let template =
            serde_json::from_str(template).map_err(|error| Stop::Other(error.to_string()))?;
        stable.push((*name, template));
    }
    let took = stopwatch.end(RESTARTS, &stable)?;
    screen.claim(
        "the templates of cart, web and mail are byte by byte what they were",
        same(&templates(shell)?, &before.to_vec()),
    )?;
    screen.claim(
        &format!(
            "cart and web were back {:.2} s after a pod of web restarted for the third time (promised: 5 s)",
            took.as_secs_f64()
        ),
        holds(took <= BACK_WITHIN, || format!("{took:?}")),
    )?;
    screen.claim("all pods are available", available(shell))?;
    screen.text("What a person finds:");
    let described = shell.must(
        &["describe", "relplan", "shop"],
        Show::Between("Conditions:", "Ready"),
    )?;
    let plan = shell.json(&["get", "relplan", "shop"])?;
    let (_, message) = checks::condition(&plan, "Ready");
    screen.claim(
        "kubectl describe tells the cause and what to do next",
        names_all(&described, &["ContainerRestarts", "restarted 3 times"])
            .and_then(|()| names_all(&message, &["belay.dev/retry"])),
    )?;
    let events = shell.must(&["events", "--for=releaseplan/shop"], Show::All)?;
    screen.claim(
        "the events tell the way there and back",
        names_all(
            &events,
            &["ReleaseStarted", "RollbackStarted", "RolledBack"],
        ),
    )
}

fn refused_content(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("Refused content is not tried again; a fixed version is");
    let deployments = shell.json(&["get", "deployments"])?;
    let history = shell.json(&["get", "relplan", "shop"])?["status"]["history"].clone();
    shell.must(&["apply", "-f", "plan-3.yaml"], Show::All)?;
    // The first look may have begun before.
    shell.make_it_look()?;
    shell.make_it_look()?;
    let now = shell.json(&["get", "relplan", "shop"])?;
    screen.claim(
        "the same content again starts nothing",
        same(&now["status"]["history"], &history)
            .and_then(|()| same(&now["status"]["release"], &Value::Null)),
    )?;
    screen.claim(
        "no Deployment was touched",
        same(
            &checks::generations(&shell.json(&["get", "deployments"])?),
            &checks::generations(&deployments),
        ),
    )?;
    screen.text("plan-4.yaml has shop/cart:4 and shop/web:4, which is fixed.");
    shell.file_quietly("plan-4.yaml", &manifests::plan("4", "4"))?;
    shell.must(&["apply", "-f", "plan-4.yaml"], Show::All)?;
    shell.must(READY, Show::All)?;
    screen.claim(
        "cart and web are on :4",
        images(shell, ["4", "4", "1"]).and_then(|()| available(shell)),
    )
}

fn followed(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("A Deployment that is only followed goes back too");
    let before = templates(shell)?;
    shell.must(
        &[
            "set",
            "image",
            "deployment/mail",
            "app=shop/mail:2-pullerror",
        ],
        Show::All,
    )?;
    shell.must(
        &[
            "wait",
            "relplan/shop",
            r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=RolledBack"#,
            TIMEOUT,
        ],
        Show::All,
    )?;
    let plan = shell.json(&["get", "relplan", "shop"])?;
    screen.quote(&checks::condition(&plan, "Ready").1);
    screen.claim(
        "all three templates are byte by byte what they were",
        same(&templates(shell)?, &before),
    )?;
    screen.claim("all pods are available", available(shell))
}

fn deletion(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("Deleting the plan in the middle of a release");
    let before = templates(shell)?;
    screen.text("plan-7.yaml has shop/cart:7, and shop/web:7-unready, whose pods never get ready.");
    shell.file_quietly("plan-7.yaml", &manifests::plan("7", "7-unready"))?;
    shell.must(&["apply", "-f", "plan-7.yaml"], Show::All)?;
    shell.must(
        &[
            "wait",
            "deployment/web",
            "--for=jsonpath={.spec.template.spec.containers[0].image}=shop/web:7-unready",
            TIMEOUT,
        ],
        Show::All,
    )?;
    shell.must(&["get", "relplan"], Show::All)?;
    let limit = format!("--timeout={SOON}");
    shell.must(&["delete", "relplan", "shop", &limit], Show::All)?;
    // Read at once: nothing below waits.
    let live = shell.json(&["get", "deployments", "--show-managed-fields"])?;
    screen.claim(
        "kubectl delete returned after the pods of the stable revision were available",
        checks::available(&live),
    )?;
    screen.claim(
        "the templates are byte by byte what they were",
        same(&templates(shell)?, &before),
    )?;
    screen.claim(
        "nothing of Belay is left on the Deployments",
        checks::nothing_of_belay(&live),
    )?;
    let revisions = shell.json(&["get", "controllerrevisions"])?;
    screen.claim(
        "its revisions are gone",
        same(&revisions["items"], &Value::Array(Vec::new())),
    )
}

pub(super) fn templates(shell: &Shell<'_>) -> Result<Vec<String>, Stop> {
    COMPONENTS.iter().map(|name| shell.template(name)).collect()
}

fn images(shell: &Shell<'_>, tags: [&str; 3]) -> checks::Check {
    let list = read(shell)?;
    let mut wanted: Vec<String> = COMPONENTS
        .iter()
        .zip(tags)
        .map(|(name, tag)| format!("shop/{name}:{tag}"))
        .collect();
    wanted.sort_unstable();
    same(&checks::images(&list), &wanted)
}

pub(super) fn available(shell: &Shell<'_>) -> checks::Check {
    checks::available(&read(shell)?)
}

fn read(shell: &Shell<'_>) -> Result<Value, String> {
    shell
        .json(&["get", "deployments"])
        .map_err(|stop| match stop {
            Stop::Claim(text) | Stop::Other(text) => text,
        })
}
