//! What was live before a plan tracked the ConfigMap that it names.

use belay::{
    api::{Reason, UNDO},
    config_maps::names,
};
use kube::api::DeleteParams;

use crate::{
    configuration::{Configs, deployment, plan, tracking},
    support::{Scene, image_of},
};

const APPS: [&str; 2] = ["cart", "web"];

/// Two workloads that read a ConfigMap, and the plan of their first release.
async fn started(scene: &Scene, configs: &Configs<'_>, images: [&str; 2]) {
    configs.create("settings", "old \u{1f600}").await;
    for app in APPS {
        let manifest = deployment(app, &format!("shop/{app}:1"), "settings");
        scene.apply(&manifest).await;
    }
    for app in APPS {
        scene.available(app).await;
    }
    let components = std::array::from_fn::<_, 2, _>(|at| {
        let (app, image) = (APPS[at], images[at]);
        tracking(app, &format!("shop/{app}:{image}"), "settings")
    });
    scene
        .apply(&plan(&components, "  progressDeadline: 8s\n"))
        .await;
}

async fn read_the_old(scene: &Scene, configs: &Configs<'_>) {
    for app in APPS {
        scene.available(app).await;
        assert_eq!(scene.image(app).await, format!("shop/{app}:1"));
        assert_eq!(configs.read_by(app).await, ["old \u{1f600}"], "{app}");
    }
}

/// The first release fails after the ConfigMap was edited: the old code does not
/// come back with the new contents, and the edit stays.
#[tokio::test(flavor = "multi_thread")]
async fn rb_06_old_code_does_not_read_contents_that_came_with_the_first_release() {
    let scene = Scene::new("named-first").await;
    let configs = Configs::of(&scene);
    started(&scene, &configs, ["2", "2-unready"]).await;
    scene
        .deployment_until("web", "gets 2", |d| image_of(d) == "shop/web:2-unready")
        .await;
    configs.edit("settings", "new").await;
    scene
        .plan_until("shop", "goes on with the edit", |status| {
            let mut told = status.decisions.iter();
            told.any(|told| told.reason == Reason::Superseded)
        })
        .await;
    let status = scene.because("shop", Reason::RolledBack).await;
    read_the_old(&scene, &configs).await;
    let live = configs.api.get("settings").await.unwrap();
    assert_eq!(live.data.unwrap()["text"], "new");
    let stable = status.stable_revision.unwrap();
    let told = status.decisions.iter();
    let told = told.filter(|told| told.message.contains(&format!("comes back as {stable}")));
    assert_eq!(told.count(), 1, "{:#?}", status.decisions);
    scene.assert_quiet("shop", 2).await;
}

/// What names a ConfigMap that still has the contents of then comes back as it
/// was, and by an undo after a later edit, or the deletion, with their snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn rb_06_an_undo_to_what_was_live_before_the_plan_brings_its_contents_back() {
    let scene = Scene::new("named-undo").await;
    let configs = Configs::of(&scene);
    started(&scene, &configs, ["2", "2"]).await;
    let first = scene.ready("shop").await.history[0].from.clone().unwrap();
    let undo = async || {
        let order = format!("{UNDO}={first}");
        scene
            .kubectl(&["annotate", "releaseplan/shop", "--overwrite", &order])
            .await;
        scene.because("shop", Reason::Undone).await;
        read_the_old(&scene, &configs).await;
    };
    undo().await;
    let named = async || names(&scene.template("web").await);
    assert_eq!(named().await.into_iter().collect::<Vec<_>>(), ["settings"]);
    configs.edit("settings", "new").await;
    scene.ready("shop").await;
    assert_eq!(configs.read_by("web").await, ["new"]);
    undo().await;
    configs.edit("settings", "newer").await;
    scene.ready("shop").await;
    let params = DeleteParams::default();
    configs.api.delete("settings", &params).await.unwrap();
    undo().await;
}
