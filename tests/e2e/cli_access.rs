//! The way of the commands to an API server: proxies, servers that say nothing,
//! and those that have something else than expected.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, Response, StatusCode},
    response::IntoResponse as _,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::{
    cli::{Said, command, end},
    support::{Scene, plan},
};

/// A kubeconfig that is gone after the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &Value) -> Self {
        let name = format!("belay-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        Self(path)
    }

    fn of_server(name: &str, server: &str) -> Self {
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "s"}}],
        });
        Self::new(name, &content)
    }

    /// Runs `belay` with it.
    async fn belay(&self, args: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
        command
            .env("KUBECONFIG", &self.0)
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end(command.spawn().unwrap(), None).await
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A proxy that passes connections on to this machine, and counts them.
async fn proxy() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passed);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                let head = String::from_utf8_lossy(&head);
                let to = head.strip_prefix("CONNECT ");
                let port = to.and_then(|rest| rest.split([':', ' ']).nth(1));
                let port = port.and_then(|port| port.parse().ok()).unwrap_or_default();
                let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                count.fetch_add(1, Ordering::Relaxed);
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (format!("http://{address}"), passed)
}

#[tokio::test]
async fn a_proxy_is_used_where_one_is_named() {
    let scene = Scene::new("cli-proxy").await;
    scene.deployment("cart", "shop/cart:1", 1).await;
    scene
        .apply(&plan("shop", &[("cart", "shop/cart:1")], ""))
        .await;
    scene.ready("shop").await;
    let run = async |kubeconfig: &Path, variables: &[(&str, &str)], verb: &[&str]| {
        let child = command(&scene, "belay")
            .env("KUBECONFIG", kubeconfig)
            .envs(variables.iter().copied())
            .args(verb)
            .args(["-n", &scene.namespace])
            .spawn();
        end(child.unwrap(), None).await
    };
    let status = ["status", "shop"];
    // As it is set all over a company.
    let company = [("HTTPS_PROXY", "http://proxy.invalid:3128")];
    let inside = [company[0], ("NO_PROXY", "127.0.0.1")];
    // A list as it is put together by scripts.
    let gaps = [company[0], ("NO_PROXY", "localhost, ,.svc,")];
    let own = scene.cluster.kubeconfig();
    for variables in [&company[..], &inside, &gaps] {
        run(own, variables, &status).await.exits(0);
    }

    let (url, passed) = proxy().await;
    let text = std::fs::read_to_string(own).unwrap();
    let content: Value = serde_saphyr::from_str(&text).unwrap();
    let mut named = content.clone();
    named["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    let named = File::new("proxied", &named);
    let wait = ["wait", "shop", "--timeout", "60s"];
    run(&named.0, &[("NO_PROXY", "*")], &wait).await.exits(0);
    assert!(passed.swap(0, Ordering::Relaxed) > 0);

    // A server that only the proxy knows.
    let mut far = content;
    let cluster = &mut far["clusters"][0]["cluster"];
    let port = cluster["server"].as_str().unwrap().rsplit(':').next();
    let server = format!("https://kubernetes.invalid:{}", port.unwrap());
    cluster["server"] = json!(server);
    cluster["tls-server-name"] = json!("127.0.0.1");
    let far = File::new("far", &far);
    let by_variable = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "127.0.0.1")];
    run(&far.0, &by_variable, &status).await.exits(0);
    assert!(passed.swap(0, Ordering::Relaxed) > 0);
    let gaps = [by_variable[0], ("NO_PROXY", "127.0.0.1,, ")];
    run(&far.0, &gaps, &status).await.exits(0);
    assert!(passed.swap(0, Ordering::Relaxed) > 0);
    for exceptions in [".invalid", ".invalid,"] {
        let excepted = [by_variable[0], ("NO_PROXY", exceptions)];
        run(&far.0, &excepted, &status).await.exits(2);
    }
    assert_eq!(passed.load(Ordering::Relaxed), 0);
}

/// Whoever gives a wait two seconds has an answer after two, and the last line.
#[tokio::test]
async fn a_server_that_says_nothing_ends_a_wait_in_time() {
    // Connections are taken by the system, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let file = File::of_server("silent", &server);
    for (args, named) in [
        (
            &["shop", "--generation", "3"][..],
            "plan=s/shop generation=3",
        ),
        (&["shop", "web"], "plan=s/web generation=-"),
        (&["deploy/web"], "plan=s/- generation=-"),
        (&["-l", "app=x"], "plan=s/- generation=-"),
        (&["-A"], "plan=-/- generation=-"),
    ] {
        let begun = Instant::now();
        let said = file
            .belay(&[&["wait", "--timeout", "2s"], args].concat())
            .await
            .exits(124);
        assert!(begun.elapsed() < Duration::from_secs(15), "{said:#?}");
        assert_eq!(
            said.last(),
            format!("result=Timeout reason=Unanswered {named} revision=- stable=- exit=124")
        );
        assert!(said.stderr.contains("did not answer in time"), "{said:#?}");
    }
    let json = file
        .belay(&["wait", "-A", "--timeout", "1s", "-o", "json"])
        .await
        .exits(124);
    let result: Value = serde_json::from_str(json.last()).unwrap();
    assert_eq!(result["reason"], "Unanswered");
    assert_eq!(result["name"], Value::Null);

    // It may fall silent later, too.
    let file = served("half-silent", |request| {
        let list = json!({"apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlanList",
            "metadata": {"resourceVersion": "1"}, "items": []});
        let listed = request.uri().path().ends_with("/releaseplans");
        listed.then(|| answered(StatusCode::OK, &list))
    })
    .await;
    let said = file
        .belay(&["wait", "-l", "app=x", "--timeout", "2s"])
        .await
        .exits(124);
    assert!(said.last().contains(" reason=Unanswered "), "{said:#?}");
}

/// A kubeconfig of a server that answers in this way, and not at all without an
/// answer.
async fn served(name: &str, answer: fn(&Request<Body>) -> Option<Response<Body>>) -> File {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let router = Router::new().fallback(move |request: Request<Body>| async move {
        match answer(&request) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    });
    let server = axum_server::from_tcp(listener).unwrap();
    tokio::spawn(server.serve(router.into_make_service()));
    File::of_server(name, &format!("http://{address}"))
}

fn answered(code: StatusCode, content: &Value) -> Response<Body> {
    let json = [("content-type", "application/json")];
    (code, json, content.to_string()).into_response()
}

/// A status of another version is no empty one: what is not told from it must not
/// be told at all.
#[tokio::test]
async fn a_status_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let file = served("unreadable", |request| {
        let path = request.uri().path();
        let plan = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan",
            "metadata": {"name": "shop", "namespace": "s", "uid": "u", "generation": 1},
            "spec": {"components": [{"workload": {"kind": "Deployment", "name": "cart"}}]},
            "status": {"phase": "Dreaming"},
        });
        let list = |items: Value| json!({"metadata": {"resourceVersion": "1"}, "items": items});
        let answer = if path.ends_with("/releaseplans/shop") {
            plan
        } else if path.ends_with("/releaseplans") {
            list(json!([plan]))
        } else {
            list(json!([]))
        };
        Some(answered(StatusCode::OK, &answer))
    })
    .await;
    let fault = "error: this version cannot read the status of releaseplan/shop: ";
    for args in [
        &["wait", "shop"][..],
        &["wait", "shop", "--timeout", "0"],
        &["wait", "deploy/cart"],
        &["wait", "-A"],
        &["history", "shop"],
        &["history"],
        &["events", "shop"],
        &["diff", "shop"],
        &["abort", "shop"],
        &["retry", "shop"],
        &["undo", "shop"],
    ] {
        let said = file.belay(args).await.exits(2);
        assert!(said.stderr.starts_with(fault), "{args:?}: {said:#?}");
        assert!(said.stderr.contains("Dreaming"), "{args:?}: {said:#?}");
        assert_eq!(said.stdout, "", "{args:?}");
    }
    for args in [
        &["status", "shop"][..],
        &["status"],
        &["explain", "shop"],
        &["pause", "shop"],
    ] {
        let said = file.belay(args).await.exits(0);
        assert!(!said.stdout.is_empty(), "{args:?}: {said:#?}");
    }
}

/// Where Belay is not installed there are no plans to misspell.
#[tokio::test]
async fn a_missing_installation_is_told_from_a_missing_plan() {
    let bare = served("bare", |_| {
        let answer = (StatusCode::NOT_FOUND, "404 page not found\n");
        Some(answer.into_response())
    })
    .await;
    let partly = served("partly", |_| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "message": "the server could not find the requested resource",
            "details": {"group": "belay.dev", "kind": "releaseplans"}, "code": 404,
        });
        Some(answered(StatusCode::NOT_FOUND, &status))
    })
    .await;
    let plan = served("absent", |request| {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default();
        if request.method() != Method::GET || name == "s" {
            return Some(answered(
                StatusCode::OK,
                &json!({"metadata": {"name": "s"}}),
            ));
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "message": format!("releaseplans.belay.dev {name:?} not found"),
            "details": {"group": "belay.dev", "kind": "releaseplans", "name": name}, "code": 404,
        });
        Some(answered(StatusCode::NOT_FOUND, &status))
    })
    .await;
    for verb in ["status", "wait", "abort", "pause", "history"] {
        for file in [&bare, &partly] {
            let said = file.belay(&[verb, "shop"]).await.exits(2);
            assert!(
                said.stderr.contains("hint: is Belay installed"),
                "{verb}: {said:#?}"
            );
        }
        let said = plan.belay(&[verb, "shop"]).await.exits(2);
        assert!(
            said.stderr.contains("releaseplan/shop not found"),
            "{verb}: {said:#?}"
        );
        assert!(!said.stderr.contains("installed"), "{verb}: {said:#?}");
    }
}
