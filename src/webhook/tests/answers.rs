//! The form of the answers.

use super::*;

/// WR-02: a review is answered in the version it came in, or refused plainly;
/// the uid is there on every path.
#[tokio::test]
async fn wr_02_every_version_is_answered_in_kind_with_the_uid() {
    let router = webhooks(Arc::default());
    let mut undecodable = plan();
    undecodable["metadata"] = json!("none");
    for version in ["v1", "v1beta1", "v2"] {
        for object in [plan(), invalid(), undecodable.clone()] {
            for path in BOTH {
                let mut review = create(&object);
                review["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
                let answer = ask(&router, path, &review).await;
                assert_eq!(answer.code, StatusCode::OK);
                assert_eq!(answer.body["apiVersion"], review["apiVersion"]);
                assert_eq!(answer.body["kind"], "AdmissionReview");
                let response = &answer.body["response"];
                assert_eq!(response["uid"], UID);
                let right = version == "v1" && object == plan();
                assert_eq!(response["allowed"], right, "{version} {path} {object}");
                if version != "v1" {
                    assert_eq!(response["status"]["code"], 400);
                    let message = response["status"]["message"].as_str().unwrap();
                    assert!(message.contains(version) && message.contains("not supported"));
                } else if object == undecodable {
                    assert_eq!(response["status"]["code"], 400);
                    let message = response["status"]["message"].as_str().unwrap();
                    assert!(message.contains("metadata"), "{message}");
                } else if !right {
                    assert_eq!(response["status"]["code"], 422);
                }
            }
        }
    }
}

#[tokio::test]
async fn wr_02_another_kind_of_review_is_refused_in_its_own_kind() {
    let router = webhooks(Arc::default());
    let mut review = create(&plan());
    review["kind"] = json!("ConversionReview");
    let answer = ask(&router, MUTATE, &review).await;
    assert_eq!(answer.body["kind"], "ConversionReview");
    assert_eq!(answer.body["response"]["uid"], UID);
    assert_eq!(answer.body["response"]["allowed"], false);
}

#[tokio::test]
async fn wr_02_a_denial_reads_as_one_of_the_api_server_and_names_every_fault() {
    let router = webhooks(Arc::default());
    for path in BOTH {
        let answer = ask(&router, path, &create(&invalid())).await;
        let message = answer.denied(422);
        assert!(
            message.starts_with("ReleasePlan.belay.dev \"shop\" is invalid: ["),
            "{message}"
        );
        let status = &answer.response()["status"];
        assert_eq!(status["status"], "Failure");
        assert_eq!(status["reason"], "Invalid");
        assert_eq!(status["details"]["kind"], "ReleasePlan");
        assert_eq!(status["details"]["name"], "shop");
        let causes = status["details"]["causes"].as_array().unwrap();
        let fields: Vec<_> = causes
            .iter()
            .map(|c| c["field"].as_str().unwrap())
            .collect();
        assert_eq!(
            fields,
            ["spec.components[0].after[0]", "spec.progressDeadline"]
        );
        for cause in causes {
            let (field, said) = (&cause["field"], &cause["message"]);
            let line = format!("{}: {}", field.as_str().unwrap(), said.as_str().unwrap());
            assert!(message.contains(&line), "{message} lacks {line}");
        }
    }
}

/// v1 demands patch and patchType together, and neither from a validating
/// webhook.
#[tokio::test]
async fn wr_02_patches_come_whole_from_mutate_and_never_from_validate() {
    let router = webhooks(Arc::default());
    let plan = plan();
    let answer = ask(&router, MUTATE, &create(&plan)).await;
    assert!(answer.accepted()["patch"].is_string());
    let patched = answer.patched(&plan);
    assert_eq!(
        patched["metadata"]["finalizers"],
        json!(["belay.dev/rollback"])
    );
    assert_eq!(
        patched["metadata"]["annotations"]["belay.dev/release-generation"],
        "1"
    );
    assert_eq!(
        patched["metadata"]["annotations"]["belay.dev/requested-by"],
        "ann"
    );
    assert_eq!(patched["spec"]["components"][0]["name"], "cart");
    let answer = ask(&router, VALIDATE, &create(&patched)).await;
    let response = answer.accepted();
    assert!(response.get("patch").is_none() && response.get("patchType").is_none());
    assert!(response.get("status").is_none());
}

#[tokio::test]
async fn wr_02_what_needs_no_change_gets_no_patch() {
    let router = webhooks(Arc::default());
    let stored = stored(&plan()).await;
    let answer = ask(&router, MUTATE, &update(&stored, &stored)).await;
    assert_eq!(answer.patched(&stored), stored);
    assert!(answer.accepted().get("patch").is_none());
}

/// WR-01: a dry run gets the answer that the real request would get, and leaves
/// nothing behind: the real request is then answered as if there had been none.
#[tokio::test]
async fn wr_01_a_dry_run_is_answered_like_the_real_request_and_leaves_no_trace() {
    let cluster = Arc::new(Cluster::with(&[("cart", &["app"]), ("db", &["db"])]));
    let router = webhooks(cluster.clone());
    for object in [plan(), invalid(), stored(&plan()).await] {
        for path in BOTH {
            let mut dry = create(&object);
            dry["request"]["dryRun"] = json!(true);
            let unseen = ask(&webhooks(cluster.clone()), path, &create(&object)).await;
            let rehearsed = ask(&router, path, &dry).await;
            let real = ask(&router, path, &create(&object)).await;
            assert_eq!(rehearsed.body, real.body);
            assert_eq!(unseen.body, real.body);
        }
    }
}

#[tokio::test]
async fn reviews_are_counted_by_their_answer() {
    let metrics = Metrics::new();
    let router = router(Webhook::new(
        Arc::<Cluster>::default(),
        metrics.clone(),
        clock(),
        None,
    ));
    ask(&router, MUTATE, &create(&plan())).await;
    ask(&router, VALIDATE, &create(&invalid())).await;
    send(&router, VALIDATE, None, Body::empty()).await;
    let text = metrics.render().unwrap();
    for labels in [
        r#"endpoint="Mutate",operation="Create",verdict="Allowed""#,
        r#"endpoint="Validate",operation="Create",verdict="Denied""#,
        r#"endpoint="Validate",operation="Unknown",verdict="Malformed""#,
    ] {
        let line = format!("belay_admission_requests_total{{{labels}}} 1");
        assert!(text.contains(&line), "{line}\n{text}");
    }
}
