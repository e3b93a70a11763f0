//! The part of the story that is about configuration, told with the commands
//! that a person would give.

use serde_json::Value;

use super::Stop;
use super::checks::{self, holds, names_all, same};
use super::manifests;
use super::shell::{Shell, Show};
use super::story::{READY, available, templates};

/// How `belay wait` ends for a release that was rolled back.
const ROLLED_BACK: i32 = 1;

/// Tells it.
pub(super) fn tell(shell: &Shell<'_>) -> Result<(), Stop> {
    let screen = shell.screen;
    screen.chapter("Configuration is released with the code, and goes back with it");
    shell.file("config-1.yaml", &manifests::config("hello"))?;
    shell.must(&["apply", "-f", "config-1.yaml"], Show::All)?;
    shell.file("plan-5.yaml", &manifests::plan_with_config("5", "4"))?;
    shell.must(&["apply", "-f", "plan-5.yaml"], Show::All)?;
    let waited = shell.belay(&["wait", "shop", "--timeout", "60s"])?;
    screen.claim(
        "belay wait ends with 0 once it is released",
        same(&waited.status.code(), &Some(0)),
    )?;
    let snapshot = snapshot(shell)?;
    screen.claim(
        "the pods of cart read a snapshot of cart-config that nobody can change",
        is_snapshot(shell, &snapshot, "hello"),
    )?;
    let before = templates(shell)?;

    screen.text(
        "Now the configuration changes together with the images, and shop/web:6-crash crash loops.",
    );
    shell.file_quietly("config-2.yaml", &manifests::config("broken"))?;
    shell.file_quietly("plan-6.yaml", &manifests::plan_with_config("6", "6-crash"))?;
    shell.must(
        &["apply", "-f", "config-2.yaml", "-f", "plan-6.yaml"],
        Show::All,
    )?;
    let waited = shell.belay(&["wait", "shop", "--timeout", "60s"])?;
    screen.claim(
        "belay wait ends with 1 once it is rolled back, and tells why",
        same(&waited.status.code(), &Some(ROLLED_BACK)).and_then(|()| {
            let said = waited.stdout.clone() + &waited.stderr;
            names_all(&said, &["RolledBack", "ContainerRestarts"])
        }),
    )?;
    let status = shell.belay(&["status", "shop"])?;
    screen.claim(
        "belay status tells what happened and what a person can do",
        names_all(&status.stdout, &["ContainerRestarts", "retry"]),
    )?;
    screen.claim(
        "the templates of cart, web and mail are byte by byte what they were",
        same(&templates(shell)?, &before),
    )?;
    screen.claim(
        "cart reads the old configuration, although cart-config has the new one",
        same(&self::snapshot(shell)?, &snapshot)
            .and_then(|()| is_snapshot(shell, &snapshot, "hello"))
            .and_then(|()| available(shell)),
    )?;
    let history = shell.belay(&["history", "shop"])?;
    screen.claim(
        "belay history tells how it ended",
        names_all(&history.stdout, &["RolledBack", "ContainerRestarts"]),
    )?;

    screen.text("The plan goes on without configuration.");
    shell.must(&["apply", "-f", "plan-4.yaml"], Show::All)?;
    let waited = shell.belay(&["wait", "shop", "--timeout", "60s"])?;
    screen.claim("it is released", same(&waited.status.code(), &Some(0)))?;
    shell.must(READY, Show::All)?;
    Ok(())
}

/// The ConfigMap that the pods of cart read.
fn snapshot(shell: &Shell<'_>) -> Result<String, Stop> {
    let path = "jsonpath={.spec.template.spec.volumes[?(@.name==\"config\")].configMap.name}";
    shell.quiet(&["get", "deployment", "cart", "-o", path])
}

fn is_snapshot(shell: &Shell<'_>, name: &str, greeting: &str) -> checks::Check {
    let read = shell.json(&["get", "configmap", name]);
    let object = read.map_err(|stop| match stop {
        Stop::Claim(text) | Stop::Other(text) => text,
    })?;
    holds(name.starts_with("cart-config-"), || name.to_owned())?;
    same(&object["immutable"], &Value::Bool(true))?;
    same(
        &checks::text(&object["data"]["greeting"]),
        &greeting.to_owned(),
    )
}
