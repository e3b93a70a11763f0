//! Writes of pod templates.
//!
//! Decides nothing, but whether a write that lost a race is the same still.

use kube::{
    Client,
    api::{Patch, PatchParams},
};

use super::{ReconcileError, apply::unserialisable, error::judged};
use crate::{
    api::FIELD_MANAGER,
    cluster::{self, Snapshot, apply_body, classify, deployments},
    fields::canon,
    machine::TemplateWrite,
};

/// How often a template is written again that is decided on still.
const TRIES: usize = 3;

/// Applies fields of a template.
pub(super) async fn apply(
    client: &Client,
    namespace: &str,
    write: &TemplateWrite,
) -> Result<(), ReconcileError> {
    let TemplateWrite {
        target,
        uid,
        resource_version,
        template,
        ..
    } = write;
    let body = apply_body(namespace, target, uid, resource_version, template);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    deployments(client, namespace)
        .patch(&target.name, &params, &Patch::Apply(&body))
        .await
        .map(drop)
        .map_err(|error| judged(target, classify(&error)))
}

/// Replaces a template, also where only something else of the workload changed
/// since it was decided: its contents may be in place already, and would pass for
/// new content beside the template that had to go with them.
pub(super) async fn replace(
    client: &Client,
    namespace: &str,
    write: &TemplateWrite,
) -> Result<(), ReconcileError> {
    let mut version = write.resource_version.clone();
    let mut tries = 1..=TRIES;
    loop {
        let done = replace_at(client, namespace, write, &version).await;
        match done {
            Err(error) if error.is_conflict() && tries.next().is_some() => {
                version = still_as_seen(client, namespace, write)
                    .await?
                    .ok_or(error)?;
            }
            done => return done,
        }
    }
}

/// The resourceVersion of a workload that has the template still which a write
/// was decided on.
async fn still_as_seen(
    client: &Client,
    namespace: &str,
    write: &TemplateWrite,
) -> Result<Option<String>, ReconcileError> {
    let doing = || format!("read {} of namespace {namespace} again", write.target);
    let api = deployments(client, namespace);
    let object = api.get_opt(&write.target.name).await;
    let object = object.map_err(ReconcileError::api(doing()))?;
    let now = object.and_then(|object| Snapshot::of(&object).ok());
    let same = |now: &Snapshot| now.uid == write.uid && canon::digest(&now.template) == write.seen;
    Ok(now.filter(same).map(|now| now.resource_version))
}

async fn replace_at(
    client: &Client,
    namespace: &str,
    write: &TemplateWrite,
    version: &str,
) -> Result<(), ReconcileError> {
    let target = &write.target;
    let patch = cluster::replace_template(&write.uid, version, &write.template)
        .map_err(unserialisable(format!("replace the template of {target}")))?;
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    deployments(client, namespace)
        .patch(&target.name, &params, &patch)
        .await
        .map(drop)
        .map_err(|error| judged(target, classify(&error)))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use axum::http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::{api::WorkloadKind, plan::Target};

    /// A server whose Deployment has another version at each read.
    struct Server {
        template: Value,
        version: u64,
        /// The version that a write is taken with.
        taken: u64,
        tried: Vec<String>,
    }

    impl Server {
        fn answer(&mut self, method: &Method, body: &Value) -> (u16, Value) {
            if method == Method::PATCH {
                let mut operations = body.as_array().into_iter().flatten();
                let version = operations.find(|o| o["path"] == "/metadata/resourceVersion");
                let version = version.and_then(|o| o["value"].as_str());
                let version = version.unwrap_or_default().to_owned();
                let taken = version == self.taken.to_string();
                self.tried.push(version);
                if !taken {
                    let text = "the object has been modified";
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                        "reason": "Conflict", "code": 409, "message": text});
                    return (409, status);
                }
            }
            self.version += 1;
            let version = self.version.to_string();
            let metadata = json!({"name": "web", "uid": "u", "resourceVersion": version});
            let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                                    "metadata": metadata, "spec": {"template": self.template}});
            (200, deployment)
        }
    }

    /// What came of a write, and the versions that it was tried with.
    async fn written(template: Value, taken: u64) -> (Result<(), ReconcileError>, Vec<String>) {
        let tried = Vec::new();
        let server = Server {
            template,
            version: 1,
            taken,
            tried,
        };
        let server = Arc::new(Mutex::new(server));
        let held = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&held);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, answer) = server.lock().unwrap().answer(&parts.method, &body);
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let write = TemplateWrite {
            target: Target {
                kind: WorkloadKind::Deployment,
                name: "web".to_owned(),
            },
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            template: json!({"spec": {}}),
            seen: canon::digest(&json!({"spec": {"containers": []}})),
            config_maps: std::collections::BTreeSet::new(),
        };
        let done = replace(&Client::new(service, "shop"), "shop", &write).await;
        let tried = server.lock().unwrap().tried.clone();
        (done, tried)
    }

    #[tokio::test]
    async fn a_write_that_lost_a_race_over_something_else_is_made_again() {
        let seen = json!({"spec": {"containers": []}});
        let (done, tried) = written(seen.clone(), 3).await;
        done.unwrap();
        assert_eq!(tried, ["1", "2", "3"]);
        let (done, tried) = written(seen, 9).await;
        assert!(done.unwrap_err().is_conflict());
        assert_eq!(tried, ["1", "2", "3", "4"]);
    }

    #[tokio::test]
    async fn a_template_that_somebody_else_changed_is_not_written_over() {
        let other = json!({"spec": {"containers": [{"name": "app"}]}});
        let (done, tried) = written(other, 2).await;
        assert!(done.unwrap_err().is_conflict());
        assert_eq!(tried, ["1"]);
    }
}
