//! Several plans at once: what `belay status` and `diff` read of them, and what a
//! watch of them tells programs.

use belay_testenv::AuditFilter;

use crate::{
    cli::{belay, belay_stdin},
    cli_status::Watched,
    support::{Scene, following},
};

/// A list reads plans and Deployments, each once, however many there are; a diff
/// of a file with several plans no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_and_a_diff_of_several_plans_read_each_kind_once() {
    let scene = Scene::new("status-lists").await;
    let mut plans = Vec::new();
    for name in ["cart", "web"] {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
        plans.push(following(name, &[name], ""));
    }
    let plans = plans.join("---\n");
    scene.apply(&plans).await;
    for name in ["cart", "web"] {
        scene.ready(name).await;
    }
    let lists = async || {
        let filter = AuditFilter::new().user("admin").verbs(["list"]);
        let calls = scene.audited(filter).await.into_iter();
        let ours = calls.filter(|call| {
            call.user_agent.starts_with("belay-cli/") && call.uri.contains("/status-lists/")
        });
        let mut kinds: Vec<String> = ours
            .filter_map(|call| {
                let path = call.uri.split('?').next()?;
                Some(path.rsplit('/').next()?.to_owned())
            })
            .collect();
        kinds.sort();
        kinds
    };
    let said = belay(&scene, &["status"]).await.exits(0);
    assert_eq!(said.stdout.matches('✓').count(), 2, "{said:#?}");
    assert_eq!(lists().await, ["deployments", "releaseplans"]);
    belay_stdin(&scene, &["diff", "-f", "-"], plans)
        .await
        .exits(0);
    let both = ["deployments", "deployments", "releaseplans", "releaseplans"];
    assert_eq!(lists().await, both);
}

/// A program that follows a plan has to learn that it is gone, and one that asks
/// for what makes no sense that it will have no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_for_programs_tells_the_end_of_a_plan_and_ends_where_it_cannot_begin() {
    let scene = Scene::new("status-gone").await;
    scene.deployment("web", "shop/web:1", 1).await;
    scene.apply(&following("shop", &["web"], "")).await;
    scene.ready("shop").await;
    let watched = Watched::start(&scene, &["status", "-w", "-o", "json"]);
    watched.line(r#""kind":"PlanStatus""#).await;
    scene.delete_plans(&["shop"]).await;
    let (_, line) = watched.line(r#""kind":"PlanGone""#).await;
    let gone: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(gone["name"], "shop");
    assert_eq!(gone["namespace"], scene.namespace.as_str());
    assert_eq!(watched.interrupt().await, Some(130));
    let said = belay(&scene, &["status", "-w", "-l", "a=b=c"])
        .await
        .exits(2);
    assert!(
        said.stderr.contains("cannot watch releaseplans"),
        "{said:#?}"
    );
}
