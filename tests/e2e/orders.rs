//! Orders: who may give them, whose name stays, which are refused, and which of
//! two wins.

use axum::http::Request;
use belay::{
    api::{ORDERED_BY, Reason, ReleaseKind, ReleasePlanStatus, ReleaseResult},
    plan::{Stamp, Stamps},
};
use belay_testenv::KubectlOutput;
use serde_json::{Value, json};

use crate::support::{Scene, following, image_of, message, plan};

/// Lets a user do something with the plans of the namespace, and nothing else.
async fn allow(scene: &Scene, user: &str, verbs: &str) {
    let verbs = format!("--verb={verbs}");
    let role = ["create", "role", user, &verbs, "--resource=releaseplans"];
    scene.kubectl(&role).await;
    let (role, name) = (format!("--role={user}"), format!("--user={user}"));
    let binding = ["create", "rolebinding", user, &role, &name];
    scene.kubectl(&binding).await;
}

/// `kubectl annotate` by a user, whatever comes of it.
async fn annotate(scene: &Scene, user: &str, annotations: &[&str]) -> KubectlOutput {
    let user = format!("--as={user}");
    let mut args = vec!["annotate", "--overwrite", "relplan", "shop", &user];
    args.extend(annotations);
    scene.kubectl_raw(&args).await
}

async fn given(scene: &Scene, user: &str, annotations: &[&str]) {
    let output = annotate(scene, user, annotations).await;
    assert!(output.success(), "{annotations:?}: {}", output.stderr);
}

async fn refused(scene: &Scene, annotations: &[&str], words: &str) {
    let output = annotate(scene, "jane", annotations).await;
    assert!(!output.success(), "{annotations:?} is admitted");
    let flat = output.stderr.replace('\n', " ");
    assert!(flat.contains(words), "{annotations:?}: {flat}");
    let (order, _) = annotations.last().unwrap().split_once('=').unwrap();
    let field = format!("metadata.annotations[{order}]");
    assert!(flat.contains(&field), "{annotations:?}: {flat}");
}

/// The orders that stand on the plan, with the name on each stamp.
async fn standing(scene: &Scene) -> Vec<(String, String, Option<String>)> {
    let stored = scene.plans().get("shop").await.unwrap();
    let stamps = Stamps::read(stored.annotation(ORDERED_BY));
    let user = |order: &str, value: &str| stamps.of(order, value).map(|s: &Stamp| s.user.clone());
    belay::plan::ORDERS
        .iter()
        .filter_map(|order| {
            let value = stored.annotation(order)?;
            let name = order.rsplit('/').next().unwrap().to_owned();
            Some((name, value.to_owned(), user(order, value)))
        })
        .collect()
}

fn order(name: &str, value: &str, user: &str) -> (String, String, Option<String>) {
    (name.to_owned(), value.to_owned(), Some(user.to_owned()))
}

/// A plan in mid-release of something that never gets ready.
struct Crossroads {
    scene: Scene,
    /// Revision of `cart:1`, which can come back.
    first: String,
    /// Revision of `cart:2`, which is stable.
    stable: String,
    /// Revision of `cart:3`, which was refused.
    bad: String,
    /// Revision of `cart:4`, which is being released.
    target: String,
}

async fn crossroads(name: &str) -> Crossroads {
    let scene = Scene::new(name).await;
    for user in ["jane", "joe", "ann"] {
        allow(&scene, user, "get,patch").await;
    }
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene.apply(&following("shop", &["cart"], "")).await;
    let first = scene.ready("shop").await.stable_revision.unwrap();
    let image = async |image: &str| {
        let image = format!("app=shop/cart:{image}");
        scene
            .kubectl(&["set", "image", "deployment/cart", &image])
            .await;
    };
    image("2").await;
    let released = |status: &ReleasePlanStatus| {
        let last = status.history.last();
        last.is_some_and(|r| r.result == ReleaseResult::Succeeded)
    };
    let status = scene.plan_until("shop", "2 is released", released).await;
    let stable = status.stable_revision.unwrap();
    image("3-pullerror").await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let bad = status.refused[0].revision.clone();
    image("4-unready").await;
    let status = scene
        .plan_until("shop", "4 is under way", |s| s.target_revision.is_some())
        .await;
    let target = status.target_revision.unwrap();
    Crossroads {
        scene,
        first,
        stable,
        bad,
        target,
    }
}

/// Somebody who may do nothing but patch plans gives an order, and the name
/// stays in the history, the log of decisions and the event.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_only_patch_gives_an_order_and_the_name_stays() {
    let scene = Scene::new("orders-patch").await;
    allow(&scene, "jane", "patch").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    let first = scene.ready("shop").await.stable_revision.unwrap();
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:2")], ""))
        .await;
    let status = scene.ready("shop").await;
    assert_eq!(
        status.history.last().unwrap().requested_by.as_deref(),
        Some("admin")
    );
    // kubectl reads before it patches, which this user may not.
    let body = json!({"metadata": {"annotations": {"belay.dev/undo": first}}});
    let path = "/apis/belay.dev/v1alpha1/namespaces/orders-patch/releaseplans/shop";
    let request = Request::patch(path)
        .header("Impersonate-User", "jane")
        .header("Content-Type", "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let answer: Value = scene.client.request(request).await.unwrap();
    let stamps = answer["metadata"]["annotations"][ORDERED_BY].as_str();
    let stamps = Stamps::read(stamps);
    assert_eq!(stamps.of("belay.dev/undo", &first).unwrap().user, "jane");

    let status = scene.because("shop", Reason::Undone).await;
    assert_eq!(scene.image("cart").await, "shop/cart:1");
    let record = status.history.last().unwrap();
    assert_eq!(record.kind, ReleaseKind::Undo);
    assert_eq!(record.requested_by.as_deref(), Some("jane"));
    let text = format!("{first} was asked for by jane");
    assert!(
        status.decisions.iter().any(|d| d.message.contains(&text)),
        "{:?}",
        status.decisions
    );
    let described = scene.kubectl(&["describe", "relplan", "shop"]).await;
    assert!(described.contains(&text), "{described}");
    assert_eq!(standing(&scene).await, []);
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(
        stored.annotation(ORDERED_BY),
        None,
        "it goes with the order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stamp_cannot_be_forged_altered_or_taken_off() {
    let Crossroads { scene, first, .. } = crossroads("orders-forged").await;
    let forged = format!(
        r#"{ORDERED_BY}=[{{"order":"undo","revision":"{first}","user":"root","at":"2026-01-01T00:00:00Z"}}]"#
    );
    given(&scene, "joe", &[&forged]).await;
    let stored = scene.plans().get("shop").await.unwrap();
    assert_eq!(stored.annotation(ORDERED_BY), None);
    let undo = format!("belay.dev/undo={first}");
    given(&scene, "joe", &[&forged, &undo]).await;
    assert_eq!(standing(&scene).await, [order("undo", &first, "joe")]);
    let before = scene.plans().get("shop").await.unwrap();
    for change in [
        &forged,
        &format!("{ORDERED_BY}=[]"),
        &format!("{ORDERED_BY}-"),
    ] {
        given(&scene, "ann", &[change]).await;
        let stored = scene.plans().get("shop").await.unwrap();
        assert_eq!(
            stored.annotation(ORDERED_BY),
            before.annotation(ORDERED_BY),
            "{change}"
        );
    }
    assert_eq!(standing(&scene).await, [order("undo", &first, "joe")]);
}

/// Of two orders the later one wins, and what waits says so until its time.
#[tokio::test(flavor = "multi_thread")]
async fn the_later_of_two_orders_wins_and_what_waits_says_so() {
    let Crossroads {
        scene,
        first,
        bad,
        target,
        ..
    } = crossroads("orders-later").await;
    given(&scene, "joe", &[&format!("belay.dev/retry={bad}")]).await;
    assert_eq!(standing(&scene).await, [order("retry", &bad, "joe")]);
    let waits = format!("retry of {bad}, asked for by joe, waits for the end of release");
    let says = |text: &str| {
        let text = text.to_owned();
        move |status: &ReleasePlanStatus| message(status, "Ready").contains(&text)
    };
    scene.plan_until("shop", "it waits", says(&waits)).await;
    given(&scene, "jane", &[&format!("belay.dev/undo={first}")]).await;
    assert_eq!(standing(&scene).await, [order("undo", &first, "jane")]);
    let waits = format!("undo to {first}, asked for by jane, waits for the end of release");
    let status = scene.plan_until("shop", "it waits", says(&waits)).await;
    let told = status
        .decisions
        .iter()
        .filter(|d| d.message.contains(&waits));
    assert_eq!(told.count(), 1);

    // An abort says what ends, so that the undo has its turn.
    given(&scene, "ann", &[&format!("belay.dev/abort={target}")]).await;
    scene
        .deployment_until("cart", "is undone", |d| image_of(d) == "shop/cart:1")
        .await;
    let status = scene
        .plan_until("shop", "the undo has ended", |s| {
            s.release.is_none()
                && s.history
                    .last()
                    .is_some_and(|r| r.kind == ReleaseKind::Undo)
        })
        .await;
    let [.., aborted, undone] = status.history.as_slice() else {
        panic!("{:?}", status.history);
    };
    assert_eq!(aborted.result, ReleaseResult::RolledBack);
    let why = aborted.message.as_deref().unwrap();
    assert!(why.contains("aborted as asked by ann"), "{why}");
    assert_eq!(undone.requested_by.as_deref(), Some("jane"));
    assert!(!message(&status, "Ready").contains("waits for"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_unknown_and_contradicting_orders_are_refused() {
    let Crossroads {
        scene,
        first,
        stable,
        bad,
        target,
    } = crossroads("orders-stale").await;
    let abort = |revision: &str| format!("belay.dev/abort={revision}");
    let undo = |revision: &str| format!("belay.dev/undo={revision}");
    let retry = |revision: &str| format!("belay.dev/retry={revision}");
    for revision in [&stable, &bad, "shop-0000000000", ""] {
        refused(&scene, &[&abort(revision)], &format!("which is {target}")).await;
    }
    refused(&scene, &[&undo(&target)], "is being released already").await;
    refused(&scene, &[&undo("shop-0000000000")], &first).await;
    refused(&scene, &[&retry(&first)], &format!("(refused: {bad})")).await;
    let both = [&*undo(&first), &*retry(&bad)];
    refused(&scene, &both, "contradicts belay.dev/undo").await;
    assert_eq!(standing(&scene).await, []);

    given(&scene, "jane", &[&abort(&target)]).await;
    scene
        .plan_until("shop", "it is back", |s| s.release.is_none())
        .await;
    // It has ended, and so has the way back.
    refused(&scene, &[&abort(&target)], "no release is in progress").await;
    refused(&scene, &[&undo(&stable)], "is the stable revision already").await;
}

/// Content that was refused and has left the plan is not there to be tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_content_that_has_left_the_plan_is_refused() {
    let scene = Scene::new("orders-left").await;
    allow(&scene, "jane", "get,patch").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let wants = |image: &str| plan("shop", &[("cart", image)], "");
    scene.apply(&wants("shop/cart:1")).await;
    scene.ready("shop").await;
    scene.apply(&wants("shop/cart:2-pullerror")).await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let retry = format!("belay.dev/retry={}", status.refused[0].revision);
    scene.apply(&wants("shop/cart:1")).await;
    scene.ready("shop").await;
    refused(&scene, &[&retry], "no longer what the plan asks for").await;
    // Back in the plan it can be.
    scene.apply(&wants("shop/cart:2-pullerror")).await;
    scene.because("shop", Reason::RolledBack).await;
    let attempts = status.history.len();
    given(&scene, "jane", &[&retry]).await;
    let status = scene
        .plan_until("shop", "it was tried again", |s| {
            s.history.len() > attempts && s.release.is_none()
        })
        .await;
    let last = status.history.last().unwrap();
    assert_eq!(last.requested_by.as_deref(), Some("jane"));
}

/// WR-01: an order in a dry run is judged, stamped in the answer, and gone.
#[tokio::test(flavor = "multi_thread")]
async fn wr_01_an_order_in_a_dry_run_leaves_nothing() {
    let Crossroads {
        scene,
        first,
        target,
        ..
    } = crossroads("orders-dry").await;
    let before = scene.plans().get("shop").await.unwrap();
    for wanted in [
        format!("belay.dev/undo={first}"),
        format!("belay.dev/abort={target}"),
    ] {
        let args = [&wanted, "--dry-run=server", "-o", "json"];
        let output = annotate(&scene, "jane", &args).await;
        assert!(output.success(), "{}", output.stderr);
        let answer: Value = serde_json::from_str(&output.stdout).unwrap();
        let stamps = answer["metadata"]["annotations"][ORDERED_BY].as_str();
        assert!(stamps.is_some_and(|s| s.contains("jane")), "{answer}");
    }
    let dry = ["belay.dev/abort=shop-0", "--dry-run=server"];
    assert!(!annotate(&scene, "jane", &dry).await.success());
    let after = scene.plans().get("shop").await.unwrap();
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    // From here on the release has nothing to note any more.
    let unready = |status: &ReleasePlanStatus| status.components[0].updated_replicas == Some(1);
    scene
        .plan_until("shop", "the new pod is noted", unready)
        .await;
    scene.assert_quiet("shop", 2).await;
    assert_eq!(scene.image("cart").await, "shop/cart:4-unready");
}
