//! Content that was refused together, of which only a part failed.

use belay::api::{Phase, Reason, ReleaseResult};

use crate::{
    configuration::{Configs, plan},
    support::{Scene, deployment, following, image_of},
};

const WEB: &str = "  - workload: {kind: Deployment, name: web}\n    configMaps: [settings]\n";

fn with_cart(image: &str) -> String {
    let cart = format!(
        "  - workload: {{kind: Deployment, name: cart}}
    template: {{spec: {{containers: [{{name: app, image: \"shop/cart:{image}\"}}]}}}}
"
    );
    plan(&[cart, WEB.to_owned()], "  progressDeadline: 8s\n")
}

/// One `kubectl apply` of contents and of an image that fails; and then of the
/// same contents with the image corrected: both are released, and neither alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_went_back_beside_a_failure_is_released_with_its_correction() {
    let scene = Scene::new("together-fixed").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "blue").await;
    for app in ["cart", "web"] {
        let manifest = deployment(app, &format!("shop/{app}:1"), 1);
        scene.apply(&manifest).await;
    }
    for app in ["cart", "web"] {
        scene.available(app).await;
    }
    scene.apply(&with_cart("1")).await;
    scene.ready("shop").await;
    configs.edit("settings", "green").await;
    scene.apply(&with_cart("2-unready")).await;
    scene.because("shop", Reason::RolledBack).await;
    let text = async || {
        let live = configs.api.get("settings").await.unwrap();
        live.data.unwrap()["text"].clone()
    };
    assert_eq!(text().await, "blue");
    configs.edit("settings", "green").await;
    scene.apply(&with_cart("3")).await;
    let status = scene
        .plan_until("shop", "releases both", |status| {
            status.phase == Some(Phase::Stable) && status.history.len() > 1
        })
        .await;
    let last = status.history.last().unwrap();
    assert_eq!(last.result, ReleaseResult::Succeeded, "{last:#?}");
    let changes = last.changes.join("\n");
    assert!(changes.contains("cart: containers[app].image"), "{changes}");
    assert!(changes.contains("web: configmap settings: "), "{changes}");
    assert_eq!(scene.image("cart").await, "shop/cart:3");
    assert_eq!(text().await, "green");
    let told = status.decisions.iter();
    let again = told.filter(|told| told.reason == Reason::Reasserted);
    assert_eq!(again.count(), 0, "{:#?}", status.decisions);
}

/// Other content was released since: the verdict on that is none on this.
#[tokio::test(flavor = "multi_thread")]
async fn refused_content_that_comes_again_later_is_refused_again() {
    let scene = Scene::new("together-again").await;
    scene.deployment("web", "shop/web:1", 1).await;
    let rest = "  progressDeadline: 8s\n";
    scene.apply(&following("shop", &["web"], rest)).await;
    scene.ready("shop").await;
    scene.set_image("web", "shop/web:2-unready").await;
    scene.because("shop", Reason::RolledBack).await;
    scene.set_image("web", "shop/web:3").await;
    scene.ready("shop").await;
    scene.set_image("web", "shop/web:2-unready").await;
    let status = scene.because("shop", Reason::RolledBack).await;
    let last = status.history.last().unwrap();
    assert_eq!((last.number, last.result), (3, ReleaseResult::RolledBack));
    scene
        .deployment_until("web", "is back", |d| image_of(d) == "shop/web:3")
        .await;
    scene.assert_quiet("shop", 2).await;
}

/// The plan owns nothing of what was live before it, and what it wants is
/// refused: what people do to the workload is guarded all the same.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_what_was_live_before_the_plan_are_guarded_after_a_rollback_to_it() {
    let scene = Scene::new("together-before").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    let rest = "  progressDeadline: 8s\n";
    scene.shop(&[("cart", "shop/cart:2-unready")], rest).await;
    scene.because("shop", Reason::RolledBack).await;
    scene.available("cart").await;
    scene.set_image("cart", "shop/cart:5").await;
    let released = |number| {
        move |status: &belay::api::ReleasePlanStatus| {
            let last = status.history.last();
            status.release.is_none() && last.is_some_and(|last| last.number == number)
        }
    };
    let status = scene.plan_until("shop", "takes 5", released(2)).await;
    let last = status.history.last().unwrap();
    assert_eq!(last.result, ReleaseResult::Succeeded, "{last:#?}");
    assert_eq!(scene.image("cart").await, "shop/cart:5");
    scene.set_image("cart", "shop/cart:6-unready").await;
    let status = scene.plan_until("shop", "refuses 6", released(3)).await;
    let last = status.history.last().unwrap();
    assert_eq!(last.result, ReleaseResult::RolledBack, "{last:#?}");
    assert_eq!(scene.image("cart").await, "shop/cart:5");
    scene.assert_quiet("shop", 2).await;
}
