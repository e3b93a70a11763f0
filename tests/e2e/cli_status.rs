//! `belay status`, `explain` and `diff` on a real control plane.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use belay::api::{Phase, Reason};
use belay_testenv::AuditFilter;
use serde_json::Value;

use crate::{
    cli::{Said, allow, belay, belay_stdin, start},
    support::{SOON, Scene, following, message, plan},
};

/// Runs a command until its output is as wanted.
async fn until(scene: &Scene, args: &[&str], what: &str, wanted: impl Fn(&Said) -> bool) -> Said {
    let deadline = Instant::now() + SOON;
    loop {
        let said = belay(scene, args).await.exits(0);
        if wanted(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{what}: {said:#?}");
    }
}

/// Runs a command until it ends as wanted: a right may come late.
async fn until_code(scene: &Scene, args: &[&str], code: i32) -> Said {
    let deadline = Instant::now() + SOON;
    loop {
        let said = belay(scene, args).await;
        if said.code == Some(code) && !said.stderr.contains("cannot get resource") {
            return said;
        }
        assert!(Instant::now() < deadline, "{said:#?}");
    }
}

/// A command that goes on, and the lines that it wrote so far.
pub struct Watched {
    child: Child,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Watched {
    pub fn start(scene: &Scene, args: &[&str]) -> Self {
        let mut child = start(scene, args);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, kept) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                kept.lock().unwrap().push((Instant::now(), line));
            }
        });
        Self { child, lines }
    }

    /// Waits for a line, and says when it came.
    pub async fn line(&self, what: &str) -> (Instant, String) {
        let deadline = Instant::now() + SOON;
        loop {
            let found = {
                let lines = self.lines.lock().unwrap();
                lines.iter().find(|(_, line)| line.contains(what)).cloned()
            };
            if let Some(found) = found {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "no {what:?} in {:#?}",
                self.all()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn all(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(_, line)| line.clone()).collect()
    }

    /// Ctrl-C, and the exit code that comes of it.
    pub async fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        tokio::task::spawn_blocking(move || {
            let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
            assert!(sent.success());
            self.child.wait().unwrap().code()
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_in_trouble_names_the_pod_and_what_can_be_done() {
    let scene = Scene::new("status-trouble").await;
    for name in ["cart", "web"] {
        scene.deployment(name, &format!("shop/{name}:1"), 2).await;
    }
    let said = belay(&scene, &["status"]).await.exits(0);
    assert_eq!(said.stdout, "There are no plans.\n");
    // Nothing but the deadline judges it, so that there is time to look.
    let patient = "  failFast: {restarts: 100}\n";
    let both = |web| plan("shop", &[("cart", "shop/cart:1"), ("web", web)], patient);
    scene.apply(&both("shop/web:1")).await;
    scene.ready("shop").await;
    let said = belay(&scene, &["status", "shop"]).await.exits(0);
    assert!(
        said.stdout.starts_with("✓ shop  Released and healthy"),
        "{said:#?}"
    );

    scene.apply(&both("shop/web:2-crash")).await;
    let said = until(
        &scene,
        &["status", "deploy/web"],
        "the pod crashes",
        |said| said.stdout.contains("CrashLoopBackOff"),
    )
    .await;
    for words in [
        "~ shop  Releasing",
        "container app: CrashLoopBackOff",
        "last exit code 1 (Error)",
        "go back now: belay abort shop --revision shop-",
        "all goes back as soon as a container has restarted 100 times (failFast)",
        "or if web makes no progress by",
        "shop/web:2-crash",
    ] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let said = belay(&scene, &["status", "shop", "-o", "json"])
        .await
        .exits(0);
    let status: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(status["apiVersion"], "cli.belay.dev/v1");
    assert_eq!(status["kind"], "PlanStatus");
    assert_eq!(status["components"][1]["replicaSets"][0]["live"], true);
    assert_eq!(status["components"][1]["health"], "Failed");
    let said = belay(&scene, &["status", "shop", "-o", "yaml"])
        .await
        .exits(0);
    let yaml: Value = serde_saphyr::from_str(&said.stdout).unwrap();
    assert_eq!(yaml["verdict"]["reason"], "Promoting");
    let said = belay(&scene, &["status", "-o", "name"]).await.exits(0);
    assert_eq!(said.stdout, "releaseplan.belay.dev/shop\n");
    let said = belay(&scene, &["status"]).await.exits(0);
    assert!(said.stdout.contains("Promoting"), "{said:#?}");

    // The way out that it shows is one.
    let said = until(&scene, &["status", "shop"], "a way out", |said| {
        said.stdout.contains("belay abort")
    })
    .await;
    let order = said
        .stdout
        .lines()
        .find_map(|line| line.split_once(": belay abort "))
        .unwrap();
    let mut words = vec!["abort"];
    words.extend(order.1.split(' ').take(3));
    belay(&scene, &words).await.exits(0);
    scene.because("shop", Reason::RolledBack).await;
}

/// What was seen when it failed is told in the same words by status, condition,
/// event, history and commands, long after the pods are gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_cause_of_a_rollback_reads_the_same_everywhere() {
    let scene = Scene::new("status-cause").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let both = |tag| plan("shop", &[("cart", "shop/cart:1"), ("web", tag)], "");
    scene.apply(&both("shop/web:1")).await;
    scene.ready("shop").await;
    let watched = Watched::start(&scene, &["status", "shop", "--watch"]);
    watched.line("Stable Released").await;
    scene.apply(&both("shop/web:2-crash")).await;
    let going = scene.phase("shop", Phase::Rollback).await;
    let cause = going.release.unwrap().failure.unwrap().told();
    assert!(
        cause.starts_with("ContainerRestarts of component web: deployment web: pod "),
        "{cause}"
    );
    assert!(cause.contains("restarted 3 times"), "{cause}");
    let status = scene.because("shop", Reason::RolledBack).await;

    assert_eq!(status.refused.last().unwrap().told(), cause);
    assert!(message(&status, "Ready").contains(&cause));
    assert!(
        status
            .history
            .last()
            .unwrap()
            .message
            .as_ref()
            .unwrap()
            .contains(&cause)
    );
    assert!(
        status
            .decisions
            .iter()
            .any(|entry| entry.message.contains(&cause))
    );
    for args in [
        ["status", "shop"],
        ["explain", "shop"],
        ["explain", "deploy/web"],
        ["history", "shop"],
        ["events", "shop"],
    ] {
        let said = belay(&scene, &args).await.exits(0);
        assert!(
            said.stdout.contains(&cause),
            "{args:?}: {}\n{cause}",
            said.stdout
        );
    }
    // What is live is what was judged.
    let said = belay(&scene, &["status", "shop"]).await.exits(0);
    assert!(said.stdout.starts_with("✗ shop  Rolled back"), "{said:#?}");
    let said = until(&scene, &["events", "shop"], "the event", |said| {
        said.stdout.contains("RollbackStarted")
    })
    .await;
    assert!(said.stdout.contains(&cause), "{said:#?}");

    watched.line(&format!("RolledBack: {cause}")).await;
    let lines = watched.all();
    assert!(
        lines
            .iter()
            .any(|line| line.contains(" web: web-") && line.contains("restart")),
        "{lines:#?}"
    );
    for line in &lines {
        let (stamp, rest) = line.split_once(' ').unwrap();
        assert!(
            stamp.parse::<k8s_openapi::jiff::Timestamp>().is_ok(),
            "{line}"
        );
        assert!(rest.starts_with("status-cause/shop "), "{line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    assert_eq!(watched.interrupt().await, Some(130));
}

/// All that is shown of ten components comes from one watch for each kind.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_keeps_up_with_a_release_of_ten_components() {
    let scene = Scene::new("status-ten").await;
    let names: Vec<String> = (0..10).map(|n| format!("svc-{n}")).collect();
    let images: Vec<[String; 2]> = names
        .iter()
        .map(|name| [format!("shop/{name}:1"), format!("shop/{name}:2")])
        .collect();
    let of = |tag: usize| {
        let pairs: Vec<(&str, &str)> = names
            .iter()
            .zip(&images)
            .map(|(name, image)| (name.as_str(), image[tag].as_str()))
            .collect();
        plan("shop", &pairs, "")
    };
    let all: Vec<String> = names
        .iter()
        .map(|name| crate::support::deployment(name, &format!("shop/{name}:1"), 1))
        .collect();
    scene.apply(&all.join("---\n")).await;
    scene.apply(&of(0)).await;
    scene.ready("shop").await;
    let watched = Watched::start(&scene, &["status", "shop", "-w"]);
    watched.line("svc-9: 1/1 ready").await;
    scene.apply(&of(1)).await;
    // The same watch event reaches this test and the command.
    scene.phase("shop", Phase::RollingOut).await;
    let told = Instant::now();
    let (at, _) = watched.line(" RollingOut ").await;
    let began = at.saturating_duration_since(told);
    let released = |status: &belay::api::ReleasePlanStatus| {
        status.phase == Some(Phase::Stable) && status.history.len() == 1
    };
    scene.plan_until("shop", "is released", released).await;
    let told = Instant::now();
    let deadline = told + SOON;
    let ended = loop {
        let found = {
            let lines = watched.lines.lock().unwrap();
            // What stands before the release tells of the one before.
            let mut new = lines
                .iter()
                .skip_while(|(_, line)| !line.contains(" RollingOut "));
            new.find(|(_, line)| line.contains("Stable Released"))
                .map(|(at, _)| *at)
        };
        if let Some(at) = found {
            break at.saturating_duration_since(told);
        }
        assert!(Instant::now() < deadline, "{:#?}", watched.all());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    eprintln!("lag at the beginning {began:?}, at the end {ended:?}");
    let bound = Duration::from_secs(1);
    assert!(began < bound && ended < bound, "{began:?}, {ended:?}");
    assert_eq!(watched.interrupt().await, Some(130));
}

/// Never a call for each object, and no more than the components' own pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_one_list_for_each_kind() {
    let scene = Scene::new("status-calls").await;
    let names = ["cart", "db", "web"];
    for name in names {
        scene.deployment(name, &format!("shop/{name}:1"), 2).await;
    }
    scene.apply(&following("shop", &names, "")).await;
    scene.ready("shop").await;
    belay(&scene, &["status", "shop"]).await.exits(0);
    let calls = async |verbs: &[&str]| {
        let filter = AuditFilter::new().user("admin").verbs(verbs.to_vec());
        let calls = scene.audited(filter).await.into_iter();
        let ours = calls.filter(|call| {
            call.user_agent.starts_with("belay-cli/") && call.uri.contains("/status-calls/")
        });
        let mut all: Vec<String> = ours
            .map(|call| format!("{} {}", call.verb, call.uri))
            .collect();
        all.sort();
        all
    };
    let seen = calls(&["get", "list"]).await;
    assert_eq!(seen.len(), 4, "{seen:#?}");
    for part in [
        "get /apis/belay.dev/v1alpha1/namespaces/status-calls/releaseplans/shop",
        "list /apis/apps/v1/namespaces/status-calls/deployments?",
        "list /apis/apps/v1/namespaces/status-calls/replicasets?",
        "list /api/v1/namespaces/status-calls/pods?",
    ] {
        assert!(
            seen.iter().any(|call| call.starts_with(part)),
            "{part}: {seen:#?}"
        );
    }
    let selected = seen
        .iter()
        .filter(|call| call.contains("app+in+%28cart%2Cdb%2Cweb%29"));
    assert_eq!(selected.count(), 2, "{seen:#?}");

    // A watch adds one list for each kind, however long it goes on.
    let watched = Watched::start(&scene, &["status", "shop", "-w"]);
    watched.line("web: 2/2 ready").await;
    scene.deployment("web", "shop/web:2", 2).await;
    scene.ready("shop").await;
    watched.line("Promoting").await;
    let all = calls(&["get", "list"]).await;
    assert_eq!(all.len(), 4 + 1 + 4, "{all:#?}");
    assert_eq!(watched.interrupt().await, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_tells_by_its_exit_code_whether_a_release_would_change_anything() {
    let scene = Scene::new("diff").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let both = |web| plan("shop", &[("cart", "shop/cart:1"), ("web", web)], "");
    let from_file = ["diff", "-f", "-"];
    // Before there is a plan.
    let said = belay_stdin(&scene, &from_file, both("shop/web:1"))
        .await
        .exits(0);
    assert!(said.stderr.contains("not in the cluster yet"), "{said:#?}");
    scene.apply(&both("shop/web:1")).await;
    scene.ready("shop").await;

    let said = belay(&scene, &["diff", "shop"]).await.exits(0);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("would change nothing"), "{said:#?}");
    let said = belay_stdin(&scene, &from_file, both("shop/web:2"))
        .await
        .exits(1);
    for words in [
        "component web: pod template of deployment/web",
        "-    image: shop/web:1",
        "+    image: shop/web:2",
    ] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("deployment/cart"), "{}", said.stdout);
    let paths = ["diff", "-f", "-", "--paths"];
    let said = belay_stdin(&scene, &paths, both("shop/web:2"))
        .await
        .exits(1);
    assert_eq!(
        said.stdout,
        "web: containers[app].image: shop/web:1 → shop/web:2\n"
    );
    let json = ["diff", "-f", "-", "-o", "json"];
    let said = belay_stdin(&scene, &json, both("shop/web:2"))
        .await
        .exits(1);
    let diff: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        diff["components"][0]["parts"][0]["changes"][0]["to"],
        "shop/web:2"
    );

    // As kubectl prints several objects.
    let object: Value = serde_saphyr::from_str(&both("shop/web:2")).unwrap();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, object]});
    belay_stdin(&scene, &from_file, list.to_string())
        .await
        .exits(1);

    // Another plan would write nothing to what this one holds.
    let rival = plan("rival", &[("web", "shop/web:2")], "");
    let said = belay_stdin(&scene, &from_file, rival.clone())
        .await
        .exits(2);
    let held = "web: deployment web is held by releaseplan shop";
    assert!(said.stderr.contains(held), "{said:#?}");
    assert_eq!(said.stdout, "", "{said:#?}");
    scene.apply(&rival).await;
    scene.because("rival", Reason::Conflict).await;
    let said = belay(&scene, &["diff", "rival"]).await.exits(2);
    assert!(said.stderr.contains(held), "{said:#?}");
    belay(&scene, &["diff", "shop"]).await.exits(0);

    // What would be refused is an error, and all of it is told.
    let misspelt = both("shop/web:2").replace("name: app,", "name: ap,");
    let said = belay_stdin(&scene, &from_file, misspelt).await.exits(2);
    assert!(
        said.stderr.contains("deployment cart has no container ap"),
        "{said:#?}"
    );
    assert!(
        said.stderr.contains("deployment web has no container ap"),
        "{said:#?}"
    );
    let said = belay_stdin(
        &scene,
        &from_file,
        "kind: Secret\napiVersion: v1\n".to_owned(),
    )
    .await
    .exits(2);
    assert!(said.stderr.contains("no ReleasePlan in it"), "{said:#?}");
    assert_eq!(
        scene.image("web").await,
        "shop/web:1",
        "a diff writes nothing"
    );
    assert_eq!(
        scene.plans().get("shop").await.unwrap().metadata.generation,
        Some(1)
    );
}

/// Refused content is no news, but it is what a retry would change.
#[tokio::test(flavor = "multi_thread")]
async fn a_diff_of_refused_content_says_that_it_is_held() {
    let scene = Scene::new("diff-refused").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("web", "shop/web:1")], ""))
        .await;
    scene.ready("shop").await;
    scene
        .apply(&plan("shop", &[("web", "shop/web:2-pullerror")], ""))
        .await;
    scene.because("shop", Reason::RolledBack).await;
    let said = belay(&scene, &["diff", "shop"]).await.exits(1);
    assert!(
        said.stderr.contains("held and not released by itself"),
        "{said:#?}"
    );
    assert!(
        said.stdout.contains("+    image: shop/web:2-pullerror"),
        "{said:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_of_a_deployment_names_its_plan_and_its_fields() {
    let scene = Scene::new("explain").await;
    for name in ["cart", "web", "other"] {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.apply(&following("guard", &["web"], "")).await;
    scene.ready("shop").await;
    scene.ready("guard").await;
    let said = belay(&scene, &["explain", "deploy/cart"]).await.exits(0);
    for words in [
        "deployment/cart is component cart of releaseplan/shop.",
        "containers[app].image: shop/cart:1",
        "kubectl-client-side-apply",
        "✓ releaseplan/shop  Released and healthy",
    ] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let said = belay(&scene, &["explain", "deploy/web"]).await.exits(0);
    assert!(said.stdout.contains("It is followed"), "{}", said.stdout);
    let said = belay(&scene, &["explain", "deploy/other"]).await.exits(0);
    assert!(
        said.stdout
            .starts_with("deployment/other is held by no plan."),
        "{said:#?}"
    );
    let said = belay(&scene, &["explain", "deploy/nobody"]).await.exits(2);
    assert!(
        said.stderr.contains("deployment/nobody not found"),
        "{said:#?}"
    );
}

/// Somebody who may only read plans is told what they say, and what is left out.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_said_and_not_taken_for_absent() {
    let scene = Scene::new("status-rights").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene
        .apply(&plan("shop", &[("web", "shop/web:1")], ""))
        .await;
    scene.ready("shop").await;
    allow(&scene, "reader", "get, list").await;
    let said = belay(&scene, &["status", "shop", "--as", "reader"])
        .await
        .exits(0);
    assert!(
        said.stdout.starts_with("✓ shop  Released and healthy"),
        "{said:#?}"
    );
    assert!(
        said.stdout.contains("! deployments are not shown"),
        "{said:#?}"
    );
    assert!(!said.stdout.contains("Missing"), "{said:#?}");
    let said = belay(&scene, &["status", "--as", "reader"]).await.exits(0);
    assert!(said.stdout.contains("✓ shop"), "{said:#?}");
    assert!(
        said.stderr.contains("note: deployments are not shown"),
        "{said:#?}"
    );
    // A dry run needs more than that.
    scene
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
",
        )
        .await;
    let said = until(
        &scene,
        &["status", "shop", "--as", "reader"],
        "the right",
        |said| said.stdout.contains("web-"),
    )
    .await;
    assert!(!said.stdout.contains("! "), "{said:#?}");
    allow(&scene, "getter", "get").await;
    let said = until_code(&scene, &["status", "shop", "--as", "getter", "-w"], 2).await;
    assert!(said.stderr.contains("you may not list them"), "{said:#?}");
    let said = belay(&scene, &["diff", "shop", "--as", "reader"])
        .await
        .exits(2);
    assert!(
        said.stderr.contains("a dry run needs patch on deployments"),
        "{said:#?}"
    );
}
