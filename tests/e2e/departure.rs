//! Plans that go: right after they came, in mid-release, and with whatever
//! propagation.

use std::{collections::BTreeMap, time::Duration};

use belay::api::{Phase, Reason, ReleasePlan, StoredPlan};
use belay_testenv::AuditFilter;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;

use crate::support::{SOON, Scene, image_of, message, plan};

/// Scans for anything of Belay's on the Deployments of a namespace, and for
/// revisions without a plan.
async fn assert_unmarked(scene: &Scene) {
    for deployment in scene
        .deployments()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let text = serde_json::to_string(&deployment).unwrap();
        assert!(!text.contains("belay"), "{text}");
        assert!(deployment.metadata.owner_references.is_none());
        assert_eq!(deployment.spec.unwrap().paused, None);
    }
    let revisions = Api::<ControllerRevision>::namespaced(scene.client.clone(), &scene.namespace);
    let revisions = revisions.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(revisions, []);
}

/// DF-03: a plan with a change is created and deleted a moment later, at forty
/// different moments: while it is adopted, while it is prepared, when its
/// template is out. Each time the Deployment is what it was, and nothing is
/// left of the plan.
#[tokio::test(flavor = "multi_thread")]
async fn df_03_deleted_right_after_it_came_a_plan_leaves_nothing() {
    let scene = Scene::new("df-03").await;
    let lanes = ["cart", "web", "pay", "idle"];
    for name in lanes {
        scene.deployment(name, &format!("shop/{name}:1"), 1).await;
    }
    let rounds = lanes.iter().enumerate().map(|(lane, name)| {
        let (scene, name) = (&scene, *name);
        async move {
            let before = scene.template(name).await;
            for round in 0..10 {
                let moment = Duration::from_millis((round * 4 + lane as u64) * 500 / 40);
                let since = match round % 3 {
                    0 => Since::Created,
                    1 => Since::Started,
                    _ => Since::Written,
                };
                come_and_go(scene, name, since, moment).await;
                let live = scene.template(name).await;
                assert_eq!(live, before, "{name} after {moment:?}");
            }
        }
    });
    futures::future::join_all(rounds).await;
    for name in lanes {
        scene.available(name).await;
    }
    assert_unmarked(&scene).await;
    // Some were caught before their release and some in the middle of it.
    let writes = scene.writes_to_deployments().await;
    let released = writes.iter().filter(|w| {
        let body = w.request_object.as_ref().map(ToString::to_string);
        body.is_some_and(|body| body.contains(":2-unready"))
    });
    let released = released.count();
    assert!(
        (12..40).contains(&released),
        "{released} of 40 got that far"
    );
}

/// From when on the moment of a deletion is counted.
enum Since {
    Created,
    /// A release is under way, of which nothing may have been written yet.
    Started,
    /// The Deployment has the new template.
    Written,
}

/// Creates a plan for a Deployment and deletes it a moment later; returns when
/// it is gone.
async fn come_and_go(scene: &Scene, name: &str, since: Since, moment: Duration) {
    let api = Api::<ReleasePlan>::namespaced(scene.client.clone(), &scene.namespace);
    let plan: ReleasePlan = serde_json::from_value(json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
        "metadata": {"name": name},
        "spec": {"components": [{
            "workload": {"kind": "Deployment", "name": name},
            "template": {"spec": {"containers": [
                {"name": "app", "image": format!("shop/{name}:2-unready")},
            ]}},
        }]},
    }))
    .unwrap();
    let created = api.create(&PostParams::default(), &plan).await.unwrap();
    let uid = created.metadata.uid.unwrap();
    match since {
        Since::Created => {}
        Since::Started => {
            scene.phase(name, Phase::RollingOut).await;
        }
        Since::Written => {
            scene
                .deployment_until(name, "gets 2", |d| image_of(d).contains(":2-"))
                .await;
        }
    }
    tokio::time::sleep(moment).await;
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let gone = await_condition(scene.plans(), name, is_deleted(&uid));
    tokio::time::timeout(SOON, gone)
        .await
        .unwrap_or_else(|_| panic!("{name} is gone"))
        .unwrap();
}

/// DF-06: a plan is deleted in mid-release when the old pods are gone and new
/// ones of the old version are slow. It stays until they are available, says
/// what it waits for, never has fewer pods than the Deployment allows, and only
/// then lets go: templates first, finalizer last.
#[tokio::test(flavor = "multi_thread")]
async fn df_06_deletion_in_mid_release_waits_for_the_slow_way_back() {
    let scene = Scene::new("df-06").await;
    scene.deployment("cart", "shop/cart:1-slow", 2).await;
    scene.deployment("web", "shop/web:1", 1).await;
    let with = |cart: &str, web: &str| plan("shop", &[("cart", cart), ("web", web)], "");
    scene.apply(&with("shop/cart:1-slow", "shop/web:1")).await;
    scene.ready("shop").await;
    let before = scene.template("cart").await;
    scene
        .apply(&with("shop/cart:2", "shop/web:2-unready"))
        .await;
    scene
        .deployment_until("web", "gets 2", |d| image_of(d) == "shop/web:2-unready")
        .await;
    scene.available("cart").await;
    assert_eq!(scene.image("cart").await, "shop/cart:2");

    let fewest = fewest_available(&scene, "cart");
    scene
        .kubectl(&["delete", "relplan", "shop", "--wait=false"])
        .await;
    let status = scene
        .plan_until("shop", "says what it waits for", |s| {
            s.phase == Some(Phase::Rollback)
                && message(s, "Ready").contains("of 2 pods have the template")
        })
        .await;
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    assert_eq!(ready.unwrap().reason, Reason::Deleting.as_str());
    scene.gone("shop").await;
    let live = scene.deployments().get("cart").await.unwrap();
    let numbers = live.status.unwrap();
    assert_eq!(scene.template("cart").await, before);
    assert_eq!(numbers.observed_generation, live.metadata.generation);
    assert_eq!(
        (numbers.updated_replicas, numbers.available_replicas),
        (Some(2), Some(2))
    );
    assert!(fewest.await.unwrap() >= 2, "maxUnavailable is none of two");

    let writes = scene.writes().await;
    let templates = writes
        .iter()
        .rposition(|w| w.resource == "deployments")
        .unwrap();
    let finalizer = writes
        .iter()
        .rposition(|w| w.resource == "releaseplans" && w.subresource.is_empty())
        .unwrap();
    assert!(
        templates < finalizer,
        "the finalizer goes last: {writes:#?}"
    );
    assert_unmarked(&scene).await;

    // At rest there is nothing to wait for.
    scene.apply(&with("shop/cart:1-slow", "shop/web:1")).await;
    scene.ready("shop").await;
    let writes = scene.writes_to_deployments().await.len();
    scene
        .kubectl(&["delete", "relplan", "shop", "--timeout=20s"])
        .await;
    let ownership = scene.writes_to_deployments().await.len() - writes;
    assert_eq!(ownership, 2, "only the ownership is given up");
    assert_eq!(scene.template("cart").await, before);
}

/// Watches the number of available pods until the plan of the namespace is
/// gone, and answers the lowest.
fn fewest_available(scene: &Scene, name: &str) -> tokio::task::JoinHandle<i32> {
    use futures::StreamExt as _;
    use kube::runtime::{WatchStreamExt as _, watcher};
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut seen = Box::pin(
        watcher::watcher(scene.deployments(), config)
            .default_backoff()
            .applied_objects(),
    );
    let plans: Api<StoredPlan> = scene.plans();
    tokio::spawn(async move {
        let mut fewest = i32::MAX;
        let mut gone = Box::pin(await_condition(
            plans,
            "shop",
            |plan: Option<&StoredPlan>| plan.is_none(),
        ));
        loop {
            tokio::select! {
                Some(Ok(deployment)) = seen.next() => {
                    let deployment: Deployment = deployment;
                    let available = deployment.status.and_then(|s| s.available_replicas);
                    fewest = fewest.min(available.unwrap_or_default());
                }
                _ = &mut gone => return fewest,
            }
        }
    })
}

/// Whether each owner reference in the cluster names something that exists in
/// the same namespace, or something that has none.
async fn assert_owners_resolve(scene: &Scene) {
    let kinds = "deployments,replicasets,pods,controllerrevisions,configmaps,secrets,services,\
                 endpointslices,serviceaccounts,releaseplans,leases";
    let listed = scene
        .kubectl(&["get", kinds, "--all-namespaces", "-o", "json"])
        .await;
    let nodes = scene.kubectl(&["get", "nodes", "-o", "json"]).await;
    let items = |text: &str| {
        let list: serde_json::Value = serde_json::from_str(text).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (listed, nodes) = (items(&listed), items(&nodes));
    let namespaces: BTreeMap<String, String> = listed
        .iter()
        .chain(&nodes)
        .map(|item| &item["metadata"])
        .map(|meta| (text(&meta["uid"]), text(&meta["namespace"])))
        .collect();
    let mut references = 0;
    for item in &listed {
        let meta = &item["metadata"];
        let owners = meta["ownerReferences"].as_array();
        for owner in owners.into_iter().flatten() {
            let found = namespaces.get(&text(&owner["uid"]));
            let resolves =
                found.is_some_and(|found| found.is_empty() || *found == text(&meta["namespace"]));
            assert!(resolves, "{owner} of {} {}", item["kind"], meta["name"]);
            assert_ne!(owner["kind"], "ReleasePlan", "nothing belongs to a plan");
            references += 1;
        }
        let users = ["Deployment", "ControllerRevision", "ConfigMap"];
        if users.contains(&item["kind"].as_str().unwrap()) && meta["namespace"] == "do-01" {
            assert_eq!(meta["ownerReferences"], serde_json::Value::Null, "{meta}");
        }
    }
    assert!(references > 0, "ReplicaSets and pods have owners");
}

/// DO-01: no owner reference leads out of its namespace or to a plan. However a
/// plan is deleted, what users made stays; and when the garbage collector
/// starts anew and looks at everything, nothing disappears.
#[tokio::test(flavor = "multi_thread")]
async fn do_01_nothing_disappears_with_a_plan_or_a_new_garbage_collector() {
    let cluster = crate::recovery::cluster().await;
    let operator = {
        let cluster = cluster.clone();
        let start =
            move || belay_testenv::Operator::start(&cluster, &crate::support::options()).unwrap();
        tokio::task::spawn_blocking(start).await.unwrap()
    };
    let scene = Scene::on(&cluster, "do-01").await;
    scene
        .kubectl(&["create", "configmap", "cart-config", "--from-literal=a=b"])
        .await;
    let names = ["background", "foreground", "orphan", "live"];
    for name in names {
        scene.deployment(name, "shop/app:1", 1).await;
        scene.apply(&plan(name, &[(name, "shop/app:2")], "")).await;
    }
    for name in names {
        scene.ready(name).await;
    }
    let mut uids = BTreeMap::new();
    for deployment in scene
        .deployments()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        uids.insert(deployment.metadata.name, deployment.metadata.uid);
    }
    assert_owners_resolve(&scene).await;
    for cascade in &names[..3] {
        let how = format!("--cascade={cascade}");
        scene
            .kubectl(&["delete", "relplan", cascade, &how, "--timeout=30s"])
            .await;
    }
    // What the collector must take, so that its work is seen.
    let gone = "00000000-0000-4000-8000-000000000000";
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": gone}]);
    let bait = json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "bait", "ownerReferences": owner}});
    let restarted = cluster.clone();
    let stop = move || restarted.stop_process("kube-controller-manager").unwrap();
    tokio::task::spawn_blocking(stop).await.unwrap();
    scene.apply(&bait.to_string()).await;
    let restarted = cluster.clone();
    let start = move || restarted.start_process("kube-controller-manager").unwrap();
    tokio::task::spawn_blocking(start).await.unwrap();
    scene
        .kubectl(&["wait", "--for=delete", "configmap/bait", "--timeout=50s"])
        .await;

    assert_owners_resolve(&scene).await;
    scene.kubectl(&["get", "configmap", "cart-config"]).await;
    for deployment in scene
        .deployments()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let uid = uids.remove(&deployment.metadata.name);
        assert_eq!(uid, Some(deployment.metadata.uid), "the same object");
    }
    assert_eq!(uids, BTreeMap::new(), "every Deployment is there");
    for name in names {
        scene.available(name).await;
        assert_eq!(scene.image(name).await, "shop/app:2");
    }
    let events = scene
        .kubectl(&["get", "events", "--all-namespaces", "-o", "json"])
        .await;
    assert!(!events.contains("OwnerRefInvalidNamespace"), "{events}");
    let deletes = AuditFilter::new()
        .namespace("do-01")
        .verbs(["delete"])
        .writes();
    for entry in scene.audited(deletes).await {
        let kinds = ["releaseplans", "controllerrevisions", "replicasets", "pods"];
        let bait = entry.resource == "configmaps" && entry.name == "bait";
        assert!(
            kinds.contains(&entry.resource.as_str()) || bait,
            "{entry:?}"
        );
    }
    // The plan that stayed can still go back.
    scene
        .apply(&plan("live", &[("live", "shop/app:3-pullerror")], ""))
        .await;
    scene.because("live", Reason::RolledBack).await;
    assert_eq!(scene.image("live").await, "shop/app:2");
    drop(operator);
}
