//! The API server's audit log, parsed: who asked for what, and what came of it.
//!
//! Watches, leases and health checks are not in it (see the policy in
//! `cluster/config.rs`). Reads carry no body; writes do, except for Secrets.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::error::Error;

/// One answered request.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// Who asked, for example `system:serviceaccount:belay-system:belay`.
    pub user: String,
    /// The Kubernetes verb: get, list, create, update, patch, delete, …
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource; empty for requests that are not about one.
    pub resource: String,
    /// For example `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty for lists; for creates it is the name asked for.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// Whether it was a dry run, which writes nothing.
    pub dry_run: bool,
    /// The request's path and query.
    pub uri: String,
    /// The client's name for itself.
    pub user_agent: String,
    /// The body of a write.
    pub request_object: Option<serde_json::Value>,
    /// When the request came in.
    pub received: Timestamp,
    /// When it was answered.
    pub completed: Timestamp,
}

impl AuditEntry {
    /// Whether this request changed what is stored.
    #[must_use]
    pub fn wrote(&self) -> bool {
        !self.dry_run
            && (200..300).contains(&self.code)
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
            // These answer questions and store nothing.
            && !matches!(
                self.group.as_str(),
                "authorization.k8s.io" | "authentication.k8s.io"
            )
    }

    /// The value of a query parameter of the request, for example
    /// `fieldManager`.
    #[must_use]
    pub fn query(&self, key: &str) -> Option<&str> {
        query(&self.uri, key)
    }
}

/// Picks entries. Empty, it takes all of them; each method narrows it.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    user: Option<String>,
    verbs: Vec<String>,
    resource: Option<(String, String)>,
    namespace: Option<String>,
    name: Option<String>,
    writes: bool,
}

impl AuditFilter {
    /// Takes all entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only requests of this user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Only requests of this service account.
    #[must_use]
    pub fn service_account(self, namespace: &str, name: &str) -> Self {
        self.user(format!("system:serviceaccount:{namespace}:{name}"))
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs<S: Into<String>>(mut self, verbs: impl IntoIterator<Item = S>) -> Self {
        self.verbs = verbs.into_iter().map(Into::into).collect();
        self
    }

    /// Only this resource; `deployments/status` means the subresource,
    /// `deployments` the object itself.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.resource = Some((resource.to_owned(), subresource.to_owned()));
        self
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only the object of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only requests that changed what is stored: no reads, no refusals, no
    /// dry runs.
    #[must_use]
    pub const fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Whether it takes this entry.
    #[must_use]
    pub fn takes(&self, entry: &AuditEntry) -> bool {
        self.user.as_ref().is_none_or(|user| *user == entry.user)
            && (self.verbs.is_empty() || self.verbs.contains(&entry.verb))
            && self.resource.as_ref().is_none_or(|(resource, sub)| {
                *resource == entry.resource && *sub == entry.subresource
            })
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == entry.namespace)
            && self.name.as_ref().is_none_or(|name| *name == entry.name)
            && (!self.writes || entry.wrote())
    }
}

/// The log of one cluster, from some point on.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

/// Where the last whole line of a file ends, found from its end backwards.
fn last_line_end(file: &mut std::fs::File) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut start = file.seek(SeekFrom::End(0))?;
    while start > 0 {
        let end = start;
        start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        let mut block = Vec::new();
        file.by_ref().take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
    }
    Ok(0)
}

impl AuditLog {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            from: 0,
        }
    }

    /// The log from its present end on. A line that is being written just now
    /// belongs to what comes.
    #[must_use]
    pub fn from_here(&self) -> Self {
        let end = std::fs::File::open(&self.path).and_then(|mut file| last_line_end(&mut file));
        Self {
            path: self.path.clone(),
            from: end.unwrap_or(0).max(self.from),
        }
    }

    /// All entries, in the order in which they were answered. A client may see
    /// an answer a moment before its entry is here: see
    /// [`crate::Cluster::settle_audit`].
    ///
    /// # Errors
    /// When the log cannot be read or parsed.
    pub fn entries(&self) -> Result<Vec<AuditEntry>, Error> {
        let mut file = std::fs::File::open(&self.path).map_err(Error::io("open", &self.path))?;
        let mut raw = Vec::new();
        file.seek(SeekFrom::Start(self.from))
            .and_then(|_| file.read_to_end(&mut raw))
            .map_err(Error::io("read", &self.path))?;
        let text = String::from_utf8_lossy(&raw);
        // The last line may be half written.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete
            .lines()
            .map(|line| parse(line, &self.path))
            .collect()
    }

    /// The entries that the filter takes.
    ///
    /// # Errors
    /// When the log cannot be read or parsed.
    pub fn matching(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Error> {
        let mut entries = self.entries()?;
        entries.retain(|entry| filter.takes(entry));
        Ok(entries)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_object: Option<serde_json::Value>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Deserialize, Default)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

fn parse(line: &str, path: &Path) -> Result<AuditEntry, Error> {
    let event: Event = serde_json::from_str(line).map_err(|error| Error::Malformed {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let body_says_dry_run = event
        .request_object
        .as_ref()
        .filter(|body| body["kind"] == "DeleteOptions")
        .and_then(|body| body["dryRun"].as_array())
        .is_some_and(|values| !values.is_empty());
    Ok(AuditEntry {
        dry_run: query(&event.request_uri, "dryRun").is_some() || body_says_dry_run,
        uri: event.request_uri,
        user: event.user.username,
        verb: event.verb,
        group: event.object_ref.api_group,
        resource: event.object_ref.resource,
        subresource: event.object_ref.subresource,
        namespace: event.object_ref.namespace,
        name: event.object_ref.name,
        code: event.response_status.code,
        user_agent: event.user_agent,
        request_object: event.request_object,
        received: event.request_received_timestamp.0,
        completed: event.stage_timestamp.0,
    })
}

fn query<'a>(uri: &'a str, key: &str) -> Option<&'a str> {
    let (_, query) = uri.split_once('?')?;
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == key).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"a","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/shop/deployments/cart?dryRun=All\u0026fieldManager=belay","verb":"patch","user":{"username":"system:serviceaccount:belay-system:belay","groups":["g"]},"sourceIPs":["127.0.0.1"],"userAgent":"belay","objectRef":{"resource":"deployments","namespace":"shop","name":"cart","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"spec":{"replicas":2}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.000007Z"}"#;

    fn entry(line: &str) -> AuditEntry {
        parse(line, Path::new("audit.log")).expect("an entry")
    }

    #[test]
    fn a_dry_run_is_told_from_a_write() {
        let dry = entry(PATCH);
        assert!(dry.dry_run && !dry.wrote());
        assert_eq!(dry.query("fieldManager"), Some("belay"));
        let real = entry(&PATCH.replace("dryRun=All\\u0026", ""));
        assert!(!real.dry_run && real.wrote());
    }

    #[test]
    fn a_refused_write_wrote_nothing() {
        let line = PATCH
            .replace("dryRun=All\\u0026", "")
            .replace("\"code\":200", "\"code\":409");
        assert!(!entry(&line).wrote());
    }

    #[test]
    fn a_filter_tells_objects_from_their_subresources() {
        let patch = entry(PATCH);
        let filter = AuditFilter::new()
            .service_account("belay-system", "belay")
            .verbs(["patch"])
            .namespace("shop")
            .name("cart");
        assert!(filter.clone().resource("deployments").takes(&patch));
        assert!(!filter.clone().resource("deployments/status").takes(&patch));
        assert!(!filter.writes().takes(&patch));
    }
}
