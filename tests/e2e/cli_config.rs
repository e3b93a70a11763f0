//! What commands make of ConfigMaps whose contents are released.

use crate::{
    cli::{allow, belay},
    cli_status::Watched,
    configuration::{Configs, plan, tracking},
    support::{Scene, deployment},
};

#[tokio::test]
async fn an_edit_of_a_config_map_is_a_difference_and_a_release_to_wait_for() {
    let scene = Scene::new("cli-config").await;
    let configs = Configs::of(&scene);
    configs.create("settings", "one").await;
    configs.create("site", "one").await;
    scene
        .apply(&crate::configuration::deployment(
            "cart",
            "shop/cart:1",
            "settings",
        ))
        .await;
    scene.apply(&deployment("web", "shop/web:1", 1)).await;
    let followed = "  - workload: {kind: Deployment, name: web}\n    configMaps: [site]\n";
    let components = [
        tracking("cart", "shop/cart:1", "settings"),
        followed.to_owned(),
    ];
    scene.apply(&plan(&components, "")).await;
    let wait = ["wait", "shop", "--timeout", "90s"];
    belay(&scene, &wait).await.exits(0);
    let kept = configs.snapshots().await;
    let snapshot = kept.keys().find(|name| name.starts_with("settings-"));
    let snapshot = snapshot.unwrap();
    let said = belay(&scene, &["status", "shop"]).await.exits(0);
    let rests = format!("config settings → {snapshot}");
    assert!(
        said.stdout.contains(&format!("{rests}\n")),
        "{rests}: {said:#?}"
    );
    assert!(said.stdout.contains("config site → contents "), "{said:#?}");
    // Who may only see plans is told what the plan itself says of them.
    allow(&scene, "reader", "get, list, watch").await;
    let said = belay(&scene, &["status", "shop", "--as", "reader"]).await;
    let said = said.exits(0);
    assert!(
        said.stdout.contains("! controllerrevisions are not shown")
            && said.stdout.contains("config settings → contents "),
        "{said:#?}"
    );

    // At rest the template names the snapshot, as it is live.
    let said = belay(&scene, &["diff", "shop"]).await.exits(0);
    assert_eq!(said.stdout, "", "{said:#?}");

    belay(&scene, &["pause", "shop"]).await.exits(0);
    configs.edit("settings", "two").await;
    configs.edit("site", "two").await;
    let said = belay(&scene, &["diff", "shop"]).await.exits(1);
    for words in [
        "component cart: contents of configmap settings",
        "component web: contents of configmap site",
        "-text: one",
        "+text: two",
    ] {
        assert!(said.stdout.contains(words), "{words}: {said:#?}");
    }
    let said = belay(&scene, &["diff", "shop", "--paths"]).await.exits(1);
    let line = r#"web: configmap site[text]: "one" → "two""#;
    assert!(said.stdout.contains(line), "{said:#?}");

    // So does one that is watched.
    let watched = Watched::start(&scene, &["status", "shop", "--watch"]);
    watched.line(&rests).await;

    // Who may not read the contents is not told that there is no difference.
    allow(&scene, "ann", "get").await;
    let said = belay(&scene, &["diff", "shop", "--as", "ann"]).await;
    let said = said.exits(2);
    assert!(said.stderr.contains("get on configmaps"), "{said:#?}");

    belay(&scene, &["resume", "shop"]).await.exits(0);
    watched.line(&format!("config settings: {snapshot}")).await;
    belay(&scene, &wait).await.exits(0);
    belay(&scene, &["diff", "shop"]).await.exits(0);

    // An edit has no generation; its result is waited for all the same.
    for text in ["three", "four", "five"] {
        let before = scene.plans().get("shop").await.unwrap();
        configs.edit("settings", text).await;
        belay(&scene, &wait).await.exits(0);
        let after = scene.plans().get("shop").await.unwrap();
        assert!(
            after.status.unwrap().history.len() > before.status.unwrap().history.len(),
            "{text} is released before its result is told"
        );
    }

    // What is too large is refused before anything is compared with it.
    configs.edit("settings", &"x".repeat(480_000)).await;
    let said = belay(&scene, &["diff", "shop"]).await.exits(2);
    assert!(
        said.stderr.contains("configmap settings holds"),
        "{said:#?}"
    );
    assert_eq!(said.stdout, "", "{said:#?}");
}
