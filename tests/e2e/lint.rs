//! The linter says of a file what the API server says of the plan in it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    cli::{belay, belay_stdin},
    support::Scene,
};

/// Plans, each with what is special about it: sound and faulty ones, one for
/// each way in which a plan can be faulty.
fn plans() -> Vec<(&'static str, Value)> {
    let component = |name: &str| json!({"workload": {"kind": "Deployment", "name": name}});
    let plan = |change: &dyn Fn(&mut Value)| {
        let mut plan = json!({
            "apiVersion": "belay.dev/v1alpha1",
            "kind": "ReleasePlan",
            "metadata": {"name": "linted"},
            "spec": {"components": [component("cart"), component("web")]}
        });
        change(&mut plan);
        plan
    };
    let at = |pointer: &'static str, value: Value| {
        plan(&move |plan: &mut Value| {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            match plan.pointer_mut(parent).unwrap() {
                Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
                other => other[key] = value.clone(),
            }
        })
    };
    let containers = |list: Value| json!({"spec": {"containers": list}});
    vec![
        ("nothing", plan(&|_| {})),
        ("nulls", at("/spec/strategy", Value::Null)),
        (
            "a whole number with a fraction",
            at("/spec/revisionHistoryLimit", json!(5.0)),
        ),
        ("a fraction", at("/spec/revisionHistoryLimit", json!(5.5))),
        (
            "a template",
            at(
                "/spec/components/0/template",
                containers(json!([{"name": "a", "image": "b"}])),
            ),
        ),
        (
            "a template with nulls",
            at(
                "/spec/components/0/template",
                json!({"metadata": null, "spec": {"x": null, "y": 1}}),
            ),
        ),
        (
            "labels that are null",
            at(
                "/spec/components/0/template",
                json!({"metadata": {"labels": {"a": null, "b": "c"}}}),
            ),
        ),
        (
            "an empty template",
            at("/spec/components/0/template", json!({})),
        ),
        (
            "two faults",
            plan(&|plan| {
                plan["spec"]["bakeTime"] = json!("soon");
                plan["spec"]["components"][1]["after"] = json!(["nobody"]);
            }),
        ),
        ("an unknown field", at("/spec/bakeTme", json!("5s"))),
        (
            "an unknown field below",
            at("/spec/components/0/workload/uid", json!("a")),
        ),
        (
            "an unknown field of the pods' metadata",
            at(
                "/spec/components/0/template",
                json!({"metadata": {"name": "a"}, "spec": {"y": 1}}),
            ),
        ),
        ("an unknown field at the top", at("/specs", json!({}))),
        (
            "an unknown field of metadata",
            at("/metadata/lables", json!({"a": "b"})),
        ),
        (
            "an unknown field of the status",
            at("/status", json!({"phases": "Stable"})),
        ),
        (
            "a status that is dropped",
            at("/status", json!({"phase": "Nonsense"})),
        ),
        ("no components", at("/spec/components", json!([]))),
        ("no spec", at("/spec", Value::Null)),
        ("a spec that is a list", at("/spec", json!([]))),
        (
            "a name with capitals",
            at("/metadata/name", json!("Linted")),
        ),
        ("a label's value", at("/metadata/labels", json!({"a": "-"}))),
        ("a label's key", at("/metadata/labels", json!({"a b": "c"}))),
        (
            "a label that is a number",
            at("/metadata/labels", json!({"a": 5})),
        ),
        (
            "an annotation's key",
            at("/metadata/annotations", json!({"a/b/c": "d"})),
        ),
        (
            "annotations that are a list",
            at("/metadata/annotations", json!([])),
        ),
        (
            "an order",
            at(
                "/metadata/annotations",
                json!({"belay.dev/abort": "linted-1"}),
            ),
        ),
        ("equal names", at("/spec/components/1/name", json!("cart"))),
        (
            "equal workloads",
            at("/spec/components/1", component("cart")),
        ),
        (
            "equal containers",
            at(
                "/spec/components/0/template",
                containers(json!([{"name": "a", "x": 1}, {"name": "a"}])),
            ),
        ),
        (
            "a container without a name",
            at(
                "/spec/components/0/template",
                containers(json!([{"image": "a"}])),
            ),
        ),
        (
            "an order of its own",
            at("/spec/components/0/after", json!(["cart"])),
        ),
        (
            "a cycle",
            plan(&|plan| {
                plan["spec"]["components"][0]["after"] = json!(["web"]);
                plan["spec"]["components"][1]["after"] = json!(["cart"]);
            }),
        ),
        ("no strategy", at("/spec/strategy", json!({}))),
        (
            "two strategies",
            at("/spec/strategy", json!({"rolling": {}, "blueGreen": {}})),
        ),
        (
            "what is not available",
            at("/spec/components/0/configMaps", json!(["a"])),
        ),
        (
            "a time that is too long",
            at("/spec/bakeTime", json!("169h")),
        ),
        (
            "another kind of workload",
            at("/spec/components/0/workload/kind", json!("Job")),
        ),
        ("a number for a string", at("/spec/onFailure", json!(1))),
        (
            "a string for a number",
            at("/spec/failFast", json!({"restarts": "3"})),
        ),
        (
            "a number out of bounds",
            at("/spec/failFast", json!({"restarts": 101})),
        ),
        (
            "a very large number",
            at("/spec/failFast", json!({"restarts": 10_000_000_000_u64})),
        ),
        (
            "33 components",
            plan(&|plan| {
                let all = (0..33)
                    .map(|n| json!({"workload": {"kind": "Deployment", "name": format!("w{n}")}}));
                plan["spec"]["components"] = all.collect();
            }),
        ),
    ]
}

/// The fields that an answer of the API server names.
fn named(message: &Value) -> BTreeSet<String> {
    let causes = message.pointer("/details/causes").and_then(Value::as_array);
    let causes = causes.into_iter().flatten();
    causes
        .filter_map(|cause| Some(cause["field"].as_str()?.to_owned()))
        .collect()
}

/// Whether this is the rest of a path after the path of what holds it.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['.', '['])
}

/// Server-side dry runs with the webhooks on, against the linter's verdicts.
#[tokio::test(flavor = "multi_thread")]
async fn lint_and_the_api_server_say_the_same_of_every_plan() {
    let scene = Scene::new("lint-agrees").await;
    let mut wrong = Vec::new();
    for (what, plan) in plans() {
        let said = belay_stdin(&scene, &["lint", "-f", "-", "-o", "json"], plan.to_string()).await;
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(report["plans"], 1, "{what}");
        let here = report["faults"].as_array().unwrap();
        let paths: BTreeSet<String> = here
            .iter()
            .map(|fault| fault["path"].as_str().unwrap_or_default().to_owned())
            .collect();
        let request = axum::http::Request::post(format!(
            "/apis/belay.dev/v1alpha1/namespaces/{}/releaseplans?dryRun=All&fieldValidation=Strict",
            scene.namespace
        ));
        let request = request
            .header("Content-Type", "application/json")
            .body(plan.to_string().into_bytes())
            .unwrap();
        let there: Result<Value, kube::Error> = scene.client.request(request).await;
        let (accepted, message) = match there {
            Ok(_) => (true, Value::Null),
            Err(kube::Error::Api(status)) => (false, serde_json::to_value(&status).unwrap()),
            Err(error) => panic!("{what}: {error}"),
        };
        // All that the server names stands here too, maybe more closely; what
        // it says before it asks a webhook has no fields.
        let said_here = |field: &String| {
            let mut paths = paths.iter();
            paths.any(|path| path.strip_prefix(field.as_str()).is_some_and(is_below))
        };
        if accepted != here.is_empty() || !named(&message).iter().all(said_here) {
            wrong.push(format!("{what}\n  lint: {here:?}\n  server: {message}"));
        }
        assert_eq!(said.code, Some(i32::from(!here.is_empty())), "{said:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without a cluster, and with what stands around the plans.
#[tokio::test(flavor = "multi_thread")]
async fn lint_needs_no_cluster_and_says_by_its_exit_code_what_it_found() {
    let scene = Scene::new("lint-files").await;
    let dir = scene.cluster.dir().join("lint-files");
    std::fs::create_dir_all(dir.join("deep")).unwrap();
    let good = crate::support::plan("shop", &[("cart", "shop/cart:1")], "");
    std::fs::write(dir.join("deep/good.yaml"), &good).unwrap();
    let path = dir.to_str().unwrap().to_owned();
    let offline = ["--kubeconfig", "/no/such/file", "lint", "-f"];
    let lint = async |more: &[&str]| belay(&scene, &[&offline[..], more].concat()).await;

    let said = lint(&[&path]).await.exits(0);
    assert_eq!(said.stdout, "1 plan in 1 file: no faults\n");
    std::fs::write(
        dir.join("bad.yml"),
        good.replace("cart:1", "cart:1\", name: \"Cart"),
    )
    .unwrap();
    let said = lint(&[&path, "--color", "never"]).await.exits(1);
    assert!(said.stdout.contains("bad.yml:7:70: the key"), "{said:?}");
    assert!(said.stdout.contains("\n7 |     template:"), "{said:?}");
    let said = lint(&[&path, "-f", "/no/such/plan.yaml"]).await.exits(2);
    assert!(
        said.stderr.contains("/no/such/plan.yaml cannot be read"),
        "{said:?}"
    );
    // A wrong path is not green.
    let empty = dir.join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    for none in [empty.to_str().unwrap(), "/no/such/plan.yaml"] {
        let said = lint(&[none]).await.exits(2);
        assert_eq!(said.stdout, "nothing was judged\n", "{said:?}");
        assert!(said.stderr.contains(none), "{said:?}");
    }
    let said = lint(&[&path, "-o", "name"]).await.exits(1);
    assert_eq!(said.stdout, format!("{path}/bad.yml\n"));
    belay(&scene, &["lint"]).await.exits(2);
}
