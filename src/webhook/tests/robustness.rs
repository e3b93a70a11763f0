//! Input that no API server sends.

use super::*;
use axum::body::Bytes;
use futures::stream;
use proptest::prelude::*;

async fn raw(path: &str, content_type: Option<&str>, body: impl Into<Body>) -> Answer {
    send(&webhooks(Arc::default()), path, content_type, body.into()).await
}

const JSON: Option<&str> = Some("application/json");

#[tokio::test]
async fn wr_02_what_is_no_review_gets_a_plain_4xx_that_says_why() {
    let without_uid = json!({"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": ""}});
    let table = [
        (String::new(), "empty"),
        ("{".into(), "not valid JSON"),
        ("\u{0}".into(), "not valid JSON"),
        ("[]".into(), "no AdmissionReview"),
        ("null".into(), "no AdmissionReview"),
        ("\"AdmissionReview\"".into(), "no AdmissionReview"),
        (json!({"kind": KIND}).to_string(), "no AdmissionReview"),
        (
            json!({"kind": KIND, "apiVersion": 1}).to_string(),
            "no AdmissionReview",
        ),
        (
            json!({"kind": KIND, "apiVersion": API_VERSION}).to_string(),
            "request.uid",
        ),
        (
            json!({"kind": KIND, "apiVersion": API_VERSION, "request": null}).to_string(),
            "request.uid",
        ),
        (
            json!({"kind": KIND, "apiVersion": API_VERSION, "request": "x"}).to_string(),
            "request.uid",
        ),
        (without_uid.to_string(), "request.uid"),
    ];
    for (body, said) in table {
        for path in BOTH {
            let answer = raw(path, JSON, body.clone()).await;
            assert_eq!(answer.code, StatusCode::BAD_REQUEST, "{body}");
            assert!(
                answer.body.as_str().unwrap().contains(said),
                "{body}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn wr_02_a_review_that_is_not_whole_is_answered_with_its_uid() {
    for field in ["kind", "operation"] {
        let mut review = create(&plan());
        review["request"].as_object_mut().unwrap().remove(field);
        for path in BOTH {
            let answer = raw(path, JSON, review.to_string()).await;
            assert!(answer.denied(400).contains(field), "{answer:?}");
        }
    }
}

/// A user can send an object that is nested more deeply than is read.
#[tokio::test]
async fn wr_02_an_object_nested_too_deeply_is_denied_with_the_uid() {
    let text = create(&plan()).to_string();
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let text = text.replace("\"cart:2\"", &deep);
    for path in BOTH {
        let answer = raw(path, JSON, text.clone()).await;
        assert!(answer.denied(400).contains("cannot be read"), "{answer:?}");
    }
}

#[tokio::test]
async fn wr_02_only_json_is_taken() {
    for content_type in [None, Some("text/plain"), Some("application/yaml"), Some("")] {
        let answer = raw(VALIDATE, content_type, create(&plan()).to_string()).await;
        assert_eq!(
            answer.code,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{content_type:?}"
        );
    }
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        let answer = raw(VALIDATE, Some(content_type), create(&plan()).to_string()).await;
        answer.accepted();
    }
}

#[tokio::test]
async fn wr_02_a_huge_body_is_turned_away() {
    let whole = raw(MUTATE, JSON, vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!(whole.code, StatusCode::PAYLOAD_TOO_LARGE);
    // Without a length, and without an end.
    let chunk = Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20]));
    let endless = Body::from_stream(stream::repeat_with(move || match &chunk {
        Ok(chunk) => Ok(chunk.clone()),
        Err(_) => Err(std::io::Error::other("unreachable")),
    }));
    let answer = raw(MUTATE, JSON, endless).await;
    assert_eq!(answer.code, StatusCode::PAYLOAD_TOO_LARGE);
    let mut big = create(&plan());
    big["request"]["object"]["metadata"]["annotations"] = json!({"a": "x".repeat(3 << 20)});
    raw(MUTATE, JSON, big.to_string()).await.accepted();
}

#[tokio::test(start_paused = true)]
async fn wr_02_a_body_that_never_ends_is_not_waited_for() {
    let silent = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = raw(MUTATE, JSON, silent).await;
    assert_eq!(answer.code, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn wr_02_a_body_that_breaks_off_is_a_bad_request() {
    let broken = Body::from_stream(stream::iter([
        Ok(Bytes::from_static(b"{\"kind\":")),
        Err(std::io::Error::other("reset")),
    ]));
    let answer = raw(MUTATE, JSON, broken).await;
    assert_eq!(answer.code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn other_methods_and_paths_are_not_served() {
    let router = webhooks(Arc::default());
    let get = Request::get(MUTATE).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(get).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let answer = send(&router, "/other", JSON, Body::empty()).await;
    assert_eq!(answer.code, StatusCode::NOT_FOUND);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("Deployment")),
        Just(json!("10m")),
        Just(json!({"kind": "Deployment", "name": "cart"})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-zA-Z/.]{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Places of a review, the object's included.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{at}/{field}"), all);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
}

fn answer_to(path: &str, body: Vec<u8>) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(raw(path, JSON, body))
}

fn is_an_answer(answer: &Answer, uid: Option<&Value>) -> Result<(), TestCaseError> {
    if answer.code == StatusCode::OK {
        prop_assert_eq!(Some(&answer.body["response"]["uid"]), uid);
        prop_assert!(answer.body["response"]["allowed"].is_boolean());
    } else {
        prop_assert!(answer.code.is_client_error(), "{:?}", answer);
        prop_assert!(answer.body.as_str().is_some_and(|said| !said.is_empty()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn wr_02_any_bytes_get_an_answer(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for path in BOTH {
            is_an_answer(&answer_to(path, body.clone()), None)?;
        }
    }

    #[test]
    fn wr_02_a_review_with_anything_anywhere_gets_an_answer(
        is_update in any::<bool>(),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut review = if is_update { update(&plan(), &plan()) } else { create(&plan()) };
        for (place, value) in wounds {
            let mut all = Vec::new();
            places(&review, "", &mut all);
            let place = place.get(&all);
            if let Some(at) = review.pointer_mut(place) {
                *at = value;
            }
        }
        let mut body = review.to_string().into_bytes();
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len().max(1)));
        }
        for path in BOTH {
            is_an_answer(&answer_to(path, body.clone()), review.pointer("/request/uid"))?;
        }
    }
}
