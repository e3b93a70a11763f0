use super::super::testing::{noon, printed, rolled_back, with};
use super::*;
use crate::{cli::Document, config_maps::Tracked};
use expect_test::expect;
use serde_json::json;

fn revisions() -> HashMap<(String, String), RevisionData> {
    let revision = |name: &str, cart: &str, web: &str| {
        let component = |name: &str, image: &str| {
            json!({
                "name": name,
                "workload": {"kind": "Deployment", "name": name},
                "template": {"spec": {"containers": [{
                    "name": "app", "image": image,
                    "env": [{"name": "TOKEN", "value": image}],
                }]}},
            })
        };
        let data = json!({
            "canon": 1, "spec": name,
            "components": [component("cart", cart), component("web", web)],
        });
        let data: RevisionData = serde_json::from_value(data).unwrap();
        (("u1".to_owned(), name.to_owned()), data)
    };
    HashMap::from([
        revision("shop-aaaa", "cart:1", "web:1"),
        revision("shop-bbbb", "cart:2", "web:1"),
        revision("shop-cccc", "cart:3", "web:2"),
    ])
}

#[test]
fn a_history_tells_what_changed_who_asked_and_how_it_ended() {
    let history = history(&with(rolled_back), &revisions());
    let text = printed(None, |streams| write(streams, &history, noon()).unwrap());
    expect![[r#"
        RELEASE   REVISION     KIND       RESULT       AGE   TOOK    WHO    CHANGED
        2         shop-cccc    Content    RolledBack   11m   60s     joe    cart: containers[app].image: cart:2 → cart:3, containers[app].env[TOKEN].value: changed; web: containers[app].image: web:1 → web:2, containers[app].env[TOKEN].value: changed
        1         shop-bbbb*   Content    Succeeded    60m   2m30s   jane   cart: containers[app].image: cart:1 → cart:2, containers[app].env[TOKEN].value: changed
        -         shop-aaaa    Baseline   -            -     -       -      live before the releases above
        * shop-bbbb is stable: a rollback returns to it
        release 2: ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)
    "#]].assert_eq(&text);
}

#[test]
fn what_the_record_says_needs_no_revisions() {
    let plan = with(|plan| {
        plan["status"]["history"][0]["changes"] = json!([
            "cart: containers[app].image: cart:1 → cart:2",
            "cart: configmap settings: 12 → 34",
            "web: new in the plan",
            "3 more",
        ]);
    });
    assert!(!needs_revisions(&plan));
    assert!(needs_revisions(&with(rolled_back)));
    let release = &history(&plan, &HashMap::new()).releases[0];
    assert_eq!(
        told(release),
        "cart: containers[app].image: cart:1 → cart:2, configmap settings: 12 → 34; \
         web: new in the plan; 3 more"
    );
}

#[test]
fn without_revisions_the_rest_is_told() {
    let history = history(&with(rolled_back), &HashMap::new());
    let text = printed(None, |streams| write(streams, &history, noon()).unwrap());
    expect![[r#"
        RELEASE   REVISION     KIND       RESULT       AGE   TOOK    WHO    CHANGED
        2         shop-cccc    Content    RolledBack   11m   60s     joe    ?
        1         shop-bbbb*   Content    Succeeded    60m   2m30s   jane   ?
        -         shop-aaaa    Baseline   -            -     -       -      live before the releases above
        * shop-bbbb is stable: a rollback returns to it
        release 2: ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)
    "#]].assert_eq(&text);
}

#[test]
fn a_release_under_way_stands_on_top() {
    let plan = with(|plan| {
        plan["status"]["targetRevision"] = json!("shop-cccc");
        plan["status"]["release"] = json!({
            "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z",
        });
    });
    let history = history(&plan, &revisions());
    let text = printed(Some(100), |streams| {
        write(streams, &history, noon()).unwrap()
    });
    expect![[r#"
        RELEASE   REVISION     KIND       RESULT      AGE   TOOK    WHO    CHANGED
        2         shop-cccc    Content    under way   60s   60s     -
            cart: containers[app].image: cart:2 → cart:3, containers[app].env[TOKEN].value: changed; web:
            containers[app].image: web:1 → web:2, containers[app].env[TOKEN].value: changed
        1         shop-bbbb*   Content    Succeeded   60m   2m30s   jane
            cart: containers[app].image: cart:1 → cart:2, containers[app].env[TOKEN].value: changed
        -         shop-aaaa    Baseline   -           -     -       -      live before the releases above
        * shop-bbbb is stable: a rollback returns to it
    "#]].assert_eq(&text);
}

/// Its target gave way to content that the API server refused.
#[test]
fn a_release_that_goes_back_from_what_was_live_is_told_by_its_revision() {
    let plan = with(|plan| {
        plan["status"]["release"] = json!({
            "number": 2, "kind": "Content", "stage": "Restore", "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-cccc"],
        });
    });
    let release = &history(&plan, &revisions()).releases[0];
    assert_eq!(release.revision.as_deref(), Some("shop-cccc"));
    assert!(told(release).contains("cart:2 → cart:3"), "{release:?}");
}

/// Names of snapshots and the annotation with their digest are ours alone.
#[test]
fn a_release_under_way_is_told_in_the_words_of_its_record() {
    let revision = |name: &str, digest: char| {
        let tracked = Tracked::new("cart-config", &digest.to_string().repeat(64), "u1");
        let data = json!({"canon": 1, "spec": name, "components": [
            {"name": "cart", "workload": {"kind": "Deployment", "name": "cart"},
             "template": {
                "metadata": {"annotations": {"belay.dev/config-digest": digest.to_string()}},
                "spec": {"volumes": [
                    {"name": "c", "configMap": {"name": tracked.snapshot.clone()}}]}},
             "configMaps": [tracked]}]});
        let data: RevisionData = serde_json::from_value(data).unwrap();
        (("u1".to_owned(), name.to_owned()), data)
    };
    let plan = with(|plan| {
        plan["status"]["targetRevision"] = json!("shop-cccc");
        plan["status"]["release"] = json!({
            "number": 2, "kind": "Content", "stage": "Promote", "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z",
        });
    });
    let revisions = HashMap::from([revision("shop-bbbb", 'a'), revision("shop-cccc", 'b')]);
    let release = &history(&plan, &revisions).releases[0];
    assert_eq!(
        told(release),
        "cart: configmap cart-config: aaaaaaaaaa → bbbbbbbbbb"
    );
}

/// Programs read this: what is here must not change without a new version.
#[test]
fn the_structure_for_programs_is_what_it_was() {
    let history = history(&with(rolled_back), &revisions());
    let document = Document::new("History", history);
    let text = serde_json::to_string_pretty(&document).unwrap();
    expect![[r#"
        {
          "apiVersion": "cli.belay.dev/v1",
          "kind": "History",
          "namespace": "s",
          "name": "shop",
          "stableRevision": "shop-bbbb",
          "releases": [
            {
              "number": 2,
              "revision": "shop-cccc",
              "from": "shop-bbbb",
              "kind": "Content",
              "changed": [
                {
                  "component": "cart",
                  "fields": [
                    "containers[app].env[TOKEN].value: changed",
                    "containers[app].image: cart:2 → cart:3"
                  ]
                },
                {
                  "component": "web",
                  "fields": [
                    "containers[app].env[TOKEN].value: changed",
                    "containers[app].image: web:1 → web:2"
                  ]
                }
              ],
              "requestedBy": "joe",
              "startedAt": "2026-03-01T11:49:00Z",
              "endedAt": "2026-03-01T11:50:00Z",
              "result": "RolledBack",
              "message": "ContainerRestarts of component web: deployment web: pod web-1 container app restarted 3 times (spec.failFast.restarts is 3)"
            },
            {
              "number": 1,
              "revision": "shop-bbbb",
              "from": "shop-aaaa",
              "kind": "Content",
              "changed": [
                {
                  "component": "cart",
                  "fields": [
                    "containers[app].env[TOKEN].value: changed",
                    "containers[app].image: cart:1 → cart:2"
                  ]
                }
              ],
              "requestedBy": "jane",
              "startedAt": "2026-03-01T11:00:00Z",
              "endedAt": "2026-03-01T11:02:30Z",
              "result": "Succeeded"
            }
          ],
          "baseline": "shop-aaaa"
        }"#]].assert_eq(&text);
}
