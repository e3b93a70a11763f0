//! The whole process, against an API server that knows no more than it asks.

use std::{fs, path::PathBuf, sync::Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use clap::Parser as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use super::*;
use crate::config::{Cli, Command};

type Objects = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that says who we are and holds the webhook configurations.
struct ApiServer {
    url: String,
    objects: Objects,
}

impl ApiServer {
    async fn start() -> Self {
        let config = |plural: &str| {
            let object = json!({
                "metadata": {"name": "belay.dev", "resourceVersion": "1"},
                "webhooks": [{"name": "x.releaseplans.belay.dev", "clientConfig": {}}]
            });
            (plural.to_owned(), object)
        };
        let objects: Objects = Arc::new(Mutex::new(vec![
            config("mutatingwebhookconfigurations"),
            config("validatingwebhookconfigurations"),
        ]));
        let router = Router::new()
            .route(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                post(async || {
                    let user = json!({"username": "system:serviceaccount:ops:belay"});
                    json!({"metadata": {}, "status": {"userInfo": user}}).to_string()
                }),
            )
            .route(
                "/apis/admissionregistration.k8s.io/v1/{plural}/belay.dev",
                get(read).patch(write),
            )
            .with_state(objects.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, objects }
    }
}

async fn read(State(objects): State<Objects>, Path(plural): Path<String>) -> String {
    let objects = objects.lock().unwrap();
    let found = objects.iter().find(|(name, _)| *name == plural);
    found.unwrap().1.to_string()
}

async fn write(State(objects): State<Objects>, Path(plural): Path<String>, body: Bytes) -> String {
    let patch: json_patch::Patch = serde_json::from_slice(&body).unwrap();
    let mut objects = objects.lock().unwrap();
    let found = objects.iter_mut().find(|(name, _)| *name == plural);
    let (_, object) = found.unwrap();
    json_patch::patch(object, &patch).unwrap();
    object.to_string()
}

/// Settings for a process of its own.
struct Process {
    args: RunArgs,
    kubeconfig: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.kubeconfig);
    }
}

impl Process {
    fn new(name: &str, api: &str, drain: &str) -> Self {
        let kubeconfig = std::env::temp_dir().join(format!("belay-{name}-{}", std::process::id()));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": api}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        });
        fs::write(&kubeconfig, text.to_string()).unwrap();
        let (webhook, health) = (free_address(), free_address());
        let args = [
            "belay",
            "run",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--webhook-listen",
            &webhook,
            "--webhook-url",
            &format!("https://{webhook}"),
            "--health-listen",
            &health,
            "--drain",
            drain,
        ];
        let Command::Run(args) = Cli::parse_from(args).command else {
            panic!("run is run");
        };
        Self {
            args: *args,
            kubeconfig,
        }
    }

    async fn readyz(&self) -> Option<(StatusCode, String)> {
        let mut stream = TcpStream::connect(self.args.health_listen).await.ok()?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let code = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        Some((code, body))
    }

    async fn until_readyz_says(&self, wanted: StatusCode, part: &str) {
        let wait = async {
            loop {
                if let Some((code, body)) = self.readyz().await
                    && code == wanted
                    && body.contains(part)
                {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(10), wait).await.unwrap();
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn obedient(context: Context) -> Result<(), TaskError> {
    assert_eq!(context.user, "system:serviceaccount:ops:belay");
    context.plans.open();
    context.stop.cancelled().await;
    Ok(())
}

#[tokio::test]
async fn the_process_is_ready_when_all_is_published_and_drains_before_it_stops() {
    let api = ApiServer::start().await;
    let process = Process::new("drain", &api.url, "2s");
    let (stop, asked) = oneshot::channel::<()>();
    let asked = async {
        let _ = asked.await;
    };
    let ask = async {
        process.until_readyz_says(StatusCode::OK, "ok").await;
        let config = api.objects.lock().unwrap()[1].1["webhooks"][0]["clientConfig"].clone();
        let url = format!("https://{}/validate", process.args.webhook_listen);
        assert_eq!(config["url"], url);
        let bundle: k8s_openapi::ByteString =
            serde_json::from_value(config["caBundle"].clone()).unwrap();
        let bundle = String::from_utf8(bundle.0).unwrap();
        let webhook = process.args.webhook_listen;
        tls::probe(webhook, "127.0.0.1", &bundle).await.unwrap();
        let asked_at = Instant::now();
        stop.send(()).unwrap();
        process
            .until_readyz_says(StatusCode::SERVICE_UNAVAILABLE, "stopping")
            .await;
        tls::probe(webhook, "127.0.0.1", &bundle).await.unwrap();
        asked_at
    };
    let (outcome, asked_at) = tokio::join!(run_until(&process.args, obedient, asked), ask);
    outcome.unwrap();
    assert!(asked_at.elapsed() >= Duration::from_secs(2));
    assert!(process.readyz().await.is_none());
    assert!(
        TcpStream::connect(process.args.webhook_listen)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_process_is_not_ready_before_its_plans_are_known() {
    let api = ApiServer::start().await;
    let process = Process::new("plans", &api.url, "0s");
    let asked = async {
        let others_open = async {
            loop {
                if let Some((code, body)) = process.readyz().await
                    && body == "plans are known: not yet\n"
                {
                    return code;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let code = timeout(Duration::from_secs(10), others_open).await.unwrap();
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    };
    let blind = |context: Context| async move {
        context.stop.cancelled().await;
        Ok(())
    };
    run_until(&process.args, blind, asked).await.unwrap();
}

#[tokio::test]
async fn a_controller_that_ends_unasked_ends_the_process_with_an_error() {
    let api = ApiServer::start().await;
    let process = Process::new("ends", &api.url, "0s");
    let never = std::future::pending();
    let error = run_until(&process.args, async |_: Context| Ok(()), never).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "the controller ended: nobody asked it to"
    );
}

#[tokio::test]
async fn a_controller_that_panics_ends_the_process_with_an_error() {
    let api = ApiServer::start().await;
    let process = Process::new("panics", &api.url, "0s");
    let never = std::future::pending();
    let broken = async |_: Context| panic!("out of range");
    let error = run_until(&process.args, broken, never).await.unwrap_err();
    assert!(
        matches!(
            error,
            RunError::Ended {
                task: CONTROLLER,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_process_without_an_api_server_does_not_start() {
    let process = Process::new("alone", &format!("http://{}", free_address()), "0s");
    let never = std::future::pending();
    let error = run_until(&process.args, obedient, never).await.unwrap_err();
    assert!(matches!(error, RunError::Identity(_)), "{error}");
}
