//! What a release costs, what an idle plan costs, and how long things take.

use std::time::Duration;

use belay::api::{Phase, Reason, ReleaseResult};
use belay_testenv::{AuditEntry, AuditFilter};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    support::{Scene, deployment, image_of, plan},
    witness::image_in,
};

fn listed(writes: &[AuditEntry]) -> Vec<String> {
    let line = |w: &AuditEntry| format!("{} {}/{} {}", w.verb, w.resource, w.subresource, w.uri);
    writes.iter().map(line).collect()
}

/// A release of one component whose pods are ready at once costs at most eight
/// writes, events included.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_costs_at_most_eight_writes() {
    let scene = Scene::new("economy-release").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    scene.assert_quiet("shop", 1).await;
    let mut costs = Vec::new();
    for image in ["shop/cart:2", "shop/cart:3", "shop/cart:4"] {
        let before = scene.writes().await.len();
        scene.apply(&plan("shop", &[("cart", image)], "")).await;
        scene.ready("shop").await;
        // The pass is over, and with it what it has to tell.
        scene.assert_quiet("shop", 1).await;
        costs.push(listed(&scene.writes().await[before..]));
    }
    // Where pods take longer than a second because the machine does other
    // things as well, a write tells how far they are.
    let least = costs.iter().min_by_key(|cost| cost.len()).unwrap();
    assert!(least.len() <= 8, "{} writes: {costs:#?}", least.len());
}

/// Passes that a release may take beside those of its duration.
const PASSES: usize = 12;
/// Passes for each second in which pods come and go.
const PASSES_PER_SECOND: f64 = 2.0;

/// Pods that come, get ready and go are dozens of events, of which most say
/// nothing: the plan is looked at a few times a second at most.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_many_pods_is_few_passes() {
    let scene = Scene::new("economy-passes").await;
    for name in ["cart", "web"] {
        let image = format!("shop/{name}:1");
        scene.deployment(name, &image, 10).await;
    }
    let images = |cart, web| plan("shop", &[("cart", cart), ("web", web)], "");
    scene.apply(&images("shop/cart:1", "shop/web:1")).await;
    scene.ready("shop").await;
    scene.assert_quiet("shop", 1).await;
    let passes = AuditFilter::new()
        .service_account("belay-system", "belay")
        .namespace(&scene.namespace)
        .resource("deployments")
        .name("cart")
        .verbs(["get"]);
    let before = scene.audited(passes.clone()).await.len();
    let started = Instant::now();
    scene.apply(&images("shop/cart:2", "shop/web:2")).await;
    scene.ready("shop").await;
    let seconds = started.elapsed().as_secs_f64();
    let made = scene.audited(passes).await.len() - before;
    let most = PASSES as f64 + PASSES_PER_SECOND * seconds;
    assert!(made as f64 <= most, "{made} passes in {seconds} s");
}

/// Requests of the operator in this namespace that change or try something.
async fn efforts(scene: &Scene) -> Vec<AuditEntry> {
    let filter = AuditFilter::new()
        .service_account("belay-system", "belay")
        .namespace(&scene.namespace)
        .verbs(["create", "update", "patch", "delete", "deletecollection"]);
    scene.audited(filter).await
}

/// An idle plan costs neither a write nor a dry run, whatever happens around
/// it that is no news: labels, scaling, pods that go and come.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_plan_costs_no_write_and_no_dry_run() {
    let scene = Scene::new("economy-idle").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let rest = "  - workload: {kind: Deployment, name: web}\n";
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], rest))
        .await;
    scene.ready("shop").await;
    scene.assert_quiet("shop", 1).await;
    let before = efforts(&scene).await.len();
    let pods = Api::<Pod>::namespaced(scene.client.clone(), &scene.namespace);
    let end = Instant::now() + Duration::from_secs(20);
    let mut rounds = tokio::time::interval(Duration::from_secs(1));
    let mut round: usize = 0;
    while Instant::now() < end {
        rounds.tick().await;
        round += 1;
        let name = ["cart", "web"][round % 2];
        let label = json!({"metadata": {"labels": {"round": format!("r{round}")}}});
        let scale = json!({"spec": {"replicas": 1 + round % 3}});
        let params = PatchParams::default();
        let api = scene.deployments();
        api.patch(name, &params, &Patch::Merge(label))
            .await
            .unwrap();
        api.patch_scale(name, &params, &Patch::Merge(scale))
            .await
            .unwrap();
        let listed = pods.list(&ListParams::default()).await.unwrap();
        if let Some(pod) = listed.items.into_iter().next() {
            let name = pod.metadata.name.unwrap();
            // It may be on its way out already.
            let _ = pods.delete(&name, &DeleteParams::default()).await;
        }
    }
    assert!(round >= 10, "{round} rounds");
    scene.assert_quiet("shop", 1).await;
    let after = efforts(&scene).await;
    assert_eq!(after.len(), before, "{:#?}", listed(&after[before..]));
}

/// Plans that fail side by side.
const FAILURES: usize = 20;
/// What may pass between a pod status that shows a failure and the first write
/// that takes something back, on a machine that does nothing else.
const PROMPT: f64 = 1.0;
/// Requests of the operator on that way, one after the other: two passes, one
/// that decides and one that writes.
const REQUESTS: usize = 10;
/// Pace at which releases begin that will fail.
const PACE: Duration = Duration::from_millis(250);

/// The nearest-rank 95th percentile.
fn p95(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[(seconds.len() * 95).div_ceil(100) - 1]
}

/// How long a bystander takes, again and again until it is told to stop, for as
/// many requests as a rollback needs to begin.
async fn bystander(scene: &Scene, mut stop: tokio::sync::watch::Receiver<bool>) -> Vec<f64> {
    let api = scene.deployments();
    let mut rounds = Vec::new();
    while !*stop.borrow_and_update() {
        let began = Instant::now();
        for _ in 1..REQUESTS {
            api.get("cart00").await.unwrap();
        }
        let note = json!({"metadata": {"labels": {"round": format!("r{}", rounds.len())}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(note));
        scene
            .plans()
            .patch_metadata("bystander", &params, &patch)
            .await
            .unwrap();
        rounds.push(began.elapsed().as_secs_f64());
        tokio::time::sleep(PACE).await;
    }
    rounds
}

/// A rollback starts within a second of the pod status that shows the failure,
/// in 19 of 20 releases that fail side by side: from the write of that status to
/// the first write that restores a template, both in the audit log.
///
/// A machine that does other things as well is late with everything. How late is
/// measured meanwhile by a bystander, whose 95th percentile is allowed on top of
/// the second. Alone on the machine that is some hundredths of a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_starts_within_a_second_of_the_failure() {
    let scene = Scene::new("economy-delay").await;
    let names: Vec<String> = (0..FAILURES).map(|n| format!("cart{n:02}")).collect();
    let all = |manifest: &dyn Fn(&str) -> String| {
        let manifests: Vec<_> = names.iter().map(|name| manifest(name)).collect();
        manifests.join("---\n")
    };
    scene
        .apply(&all(&|name| deployment(name, "shop/cart:1", 1)))
        .await;
    scene
        .apply(&all(&|name| plan(name, &[(name, "shop/cart:1")], "")))
        .await;
    // It stands in the way of nobody.
    scene
        .apply(&plan("bystander", &[("nobody", "shop/cart:1")], ""))
        .await;
    for name in &names {
        scene.ready(name).await;
    }
    let image = |name: &str| format!("shop/{name}:2-pullerror");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let failures = async {
        let mut pace = tokio::time::interval(PACE);
        for name in &names {
            pace.tick().await;
            let path = "/spec/components/0/template/spec/containers/0/image";
            let bad = json!([{"op": "replace", "path": path, "value": image(name)}]);
            let bad = Patch::Json::<()>(serde_json::from_value(bad).unwrap());
            let params = PatchParams::default();
            scene.plans().patch(name, &params, &bad).await.unwrap();
        }
        for name in &names {
            scene.because(name, Reason::RolledBack).await;
        }
        stop.send(true).unwrap();
    };
    let ((), rounds) = tokio::join!(failures, bystander(&scene, stopped));

    let entries = scene
        .audited(AuditFilter::new().namespace(&scene.namespace).writes())
        .await;
    let operator = "system:serviceaccount:belay-system:belay";
    let delay = |name: &String| {
        let image = image(name);
        let shown = entries.iter().find(|e| {
            let body = e.request_object.as_ref().map(ToString::to_string);
            let says = |body: &String| body.contains("ImagePullBackOff") && body.contains(&image);
            e.resource == "pods" && e.subresource == "status" && body.as_ref().is_some_and(says)
        });
        let shown = shown.expect("the pod shows that it cannot be pulled");
        let back = entries.iter().find(|e| {
            let body = e.request_object.as_ref();
            e.user == operator
                && e.resource == "deployments"
                && e.name == *name
                && e.received > shown.received
                && body.and_then(image_in).as_deref() == Some("shop/cart:1")
        });
        let back = back.expect("the template is restored");
        back.received.duration_since(shown.received).as_secs_f64()
    };
    let delays: Vec<f64> = names.iter().map(delay).collect();
    let (delay, round) = (p95(delays.clone()), p95(rounds.clone()));
    assert!(
        delay < PROMPT + round,
        "{delay} s, and a bystander takes {round} s: {delays:?} {rounds:?}"
    );
}

/// A second apply of refused content changes nothing; newer content starts
/// within two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn refused_content_changes_nothing_and_newer_content_starts_at_once() {
    let scene = Scene::new("economy-newer").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let before = scene.ready("shop").await;
    let bad = plan("shop", &[("cart", "shop/cart:2-pullerror")], "");
    scene.apply(&bad).await;
    scene.because("shop", Reason::RolledBack).await;
    let refused = scene.has_judged("shop", &before).await;
    let before = efforts(&scene).await.len();
    scene.apply(&bad).await;
    let forced = ["--server-side", "--force-conflicts", "--field-manager=ci"];
    let output = scene.try_apply(&bad, &forced).await;
    assert!(output.success(), "{}", output.stderr);
    scene.assert_quiet("shop", 1).await;
    let writes = efforts(&scene).await.split_off(before);
    let writes: Vec<_> = writes.into_iter().filter(|w| !w.dry_run).collect();
    assert_eq!(writes.len(), 0, "{:#?}", listed(&writes));
    assert_eq!(
        scene.plans().get("shop").await.unwrap().status,
        Some(refused)
    );

    // The quickest of three, for the sake of machines that do other things as
    // well.
    let mut quickest = f64::INFINITY;
    for image in ["shop/cart:3", "shop/cart:4", "shop/cart:5"] {
        scene.apply(&plan("shop", &[("cart", image)], "")).await;
        scene.ready("shop").await;
        quickest = quickest.min(start(&scene, image).await);
    }
    // Debounce included.
    assert!(quickest < 2.0, "{quickest} s after the apply");
}

/// Seconds from the last write of the plan by its user to the write of a
/// template with this image.
async fn start(scene: &Scene, image: &str) -> f64 {
    let asked = AuditFilter::new()
        .user("admin")
        .namespace(&scene.namespace)
        .resource("releaseplans")
        .writes();
    let asked = scene.audited(asked).await.last().unwrap().completed;
    let writes = scene.writes_to_deployments().await;
    let started = writes
        .iter()
        .find(|w| w.request_object.as_ref().and_then(image_in).as_deref() == Some(image));
    let started = started.expect("the template is written");
    started.received.duration_since(asked).as_secs_f64()
}

/// A machine that scales all the time, as an HPA does, starts nothing, and a
/// release goes its way beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_scale_starts_nothing_and_disturbs_no_release() {
    let scene = Scene::new("economy-scale").await;
    scene.deployment("cart", "shop/cart:1", 2).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let before = scene.ready("shop").await;
    scene.assert_quiet("shop", 1).await;
    let idle = efforts(&scene).await.len();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let api = scene.deployments();
    let hpa = tokio::spawn(async move {
        let mut written = 0;
        let mut pace = tokio::time::interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                _ = pace.tick() => {
                    let scale = json!({"spec": {"replicas": 2 + written % 3}});
                    let params = PatchParams::default();
                    api.patch_scale("cart", &params, &Patch::Merge(scale)).await.unwrap();
                    written += 1;
                }
                _ = stopped.changed() => return written,
            }
        }
    });
    let scaled = async |times: i32| {
        let scales = AuditFilter::new()
            .namespace(&scene.namespace)
            .resource("deployments/scale")
            .writes();
        let from = scene.audited(scales.clone()).await.len();
        let deadline = Instant::now() + crate::support::SOON;
        while scene.audited(scales.clone()).await.len() < from + usize::try_from(times).unwrap() {
            assert!(Instant::now() < deadline, "scaled {times} times");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    scaled(10).await;
    let status = scene.plans().get("shop").await.unwrap().status.unwrap();
    assert_eq!(status.history, before.history);
    let after = efforts(&scene).await;
    assert_eq!(after.len(), idle, "{:#?}", listed(&after[idle..]));

    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2-slow")], ""))
        .await;
    scene
        .deployment_until("cart", "gets 2", |d| image_of(d) == "shop/cart:2-slow")
        .await;
    scaled(20).await;
    assert_eq!(
        scene
            .plans()
            .get("shop")
            .await
            .unwrap()
            .status
            .unwrap()
            .phase,
        Some(Phase::RollingOut)
    );
    stop.send(true).unwrap();
    let written = hpa.await.unwrap();
    let status = scene.ready("shop").await;
    let results: Vec<_> = status.history.iter().map(|r| r.result).collect();
    assert_eq!(results, [ReleaseResult::Succeeded]);
    let live = scene.deployments().get("cart").await.unwrap();
    assert_eq!(
        live.spec.unwrap().replicas,
        Some(2 + (written - 1) % 3),
        "the last word is the scaler's"
    );
    let templates: Vec<_> = scene
        .writes_to_deployments()
        .await
        .iter()
        .filter_map(|w| image_in(w.request_object.as_ref()?))
        .filter(|image| image == "shop/cart:2-slow")
        .collect();
    assert_eq!(templates.len(), 1, "written once");
}
