//! What differs, and how it is written.

use expect_test::expect;
use serde_json::{Value, json};

use super::{
    model::{ComponentDiff, PlanDiff},
    part, render,
};
use crate::cli::Streams;

fn template(image: &str, token: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [{
                "name": "app", "image": image,
                "env": [{"name": "TOKEN", "value": token}, {"name": "MODE", "value": "a"}],
                "resources": {"limits": {"cpu": "1000m"}},
            }],
            "terminationGracePeriodSeconds": 30,
        },
    })
}

fn written(diff: &PlanDiff, paths: bool) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        out: &mut anstream::StripStream::new(&mut out),
        err: &mut anstream::StripStream::new(&mut err),
        width: None,
        height: None,
    };
    render::write(diff, paths, &mut streams).unwrap();
    (
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

fn shop(parts: Vec<super::model::Part>) -> PlanDiff {
    let component = ComponentDiff {
        name: "web".to_owned(),
        workload: "deployment/web".to_owned(),
        parts,
    };
    PlanDiff {
        namespace: "shop".to_owned(),
        name: "shop".to_owned(),
        notes: vec!["the plan is paused".to_owned()],
        faults: Vec::new(),
        components: vec![component],
    }
}

#[test]
fn what_the_api_server_means_the_same_by_is_no_difference() {
    let mut wanted = template("shop/web:2", "x");
    wanted["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("1");
    let part = part::template("deployment/web", &template("shop/web:2", "x"), &wanted).unwrap();
    assert_eq!(part, None);
}

#[test]
fn differences_are_a_unified_diff_of_the_template() {
    let (from, to) = (template("shop/web:2", "x"), template("shop/web:3", "x"));
    let part = part::template("deployment/web", &from, &to)
        .unwrap()
        .unwrap();
    let (out, err) = written(&shop(vec![part]), false);
    assert_eq!(err, "note: the plan is paused\n");
    expect![[r#"
        component web: pod template of deployment/web
        --- deployment/web now
        +++ deployment/web after the next release
        @@ -8,7 +8,7 @@
               value: x
             - name: MODE
               value: a
        -    image: shop/web:2
        +    image: shop/web:3
             name: app
             resources:
               limits:
    "#]]
    .assert_eq(&out);
}

#[test]
fn as_paths_no_value_of_the_environment_is_shown() {
    let (from, to) = (template("shop/web:2", "old"), template("shop/web:3", "new"));
    let part = part::template("deployment/web", &from, &to)
        .unwrap()
        .unwrap();
    let (out, _) = written(&shop(vec![part]), true);
    expect![[r#"
        web: containers[app].env[TOKEN].value: changed
        web: containers[app].image: shop/web:2 → shop/web:3
    "#]]
    .assert_eq(&out);
}

#[test]
fn nothing_to_change_is_said_beside_the_answer() {
    let diff = PlanDiff {
        components: Vec::new(),
        notes: Vec::new(),
        ..shop(Vec::new())
    };
    let (out, err) = written(&diff, false);
    assert_eq!(out, "");
    assert_eq!(err, "a release of shop would change nothing\n");
    assert!(!diff.is_change());
}
