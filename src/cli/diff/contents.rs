//! Contents of tracked ConfigMaps: what they are now, what they are where a
//! component is live, and how the two differ.
//!
//! What may not be read is an error: a diff without it would be another one.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{
    model::{FieldChange, Part},
    part::unified,
};
use crate::{
    api::ReleasePlanStatus,
    cli::{CliError, status::Caller},
    config_maps::{self, Contents, MAX_BYTES, Tracked},
    fields::canon::short,
    machine::Scope,
    plan::{ComponentPlan, Plan},
    revision::Revision,
};

/// Reads at a time.
const AT_ONCE: usize = 8;
/// Characters of a value, or of one of its lines, that are shown.
const CUT: usize = 120;
/// Lines of a unified diff that are shown.
const LINES: usize = 60;

/// The ConfigMaps that a plan tracks, as they are now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Now {
    /// Digests of the contents that count, by name.
    pub(super) digests: BTreeMap<String, String>,
    /// The contents themselves, where the ConfigMap exists.
    contents: BTreeMap<String, Contents>,
    /// What is to be known beside the differences.
    pub(super) notes: Vec<String>,
    /// Why a release would wait.
    pub(super) faults: Vec<String>,
}

/// Reads what a plan tracks.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    plan: &Plan,
    status: &ReleasePlanStatus,
    caller: &Caller,
) -> Result<Now, CliError> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let reads = plan.config_maps().into_iter().map(|name| {
        let api = api.clone();
        async move {
            let read = api.get_opt(name).await;
            read.map(|object| (name, object))
                .map_err(|error| unread(name, namespace, error, caller))
        }
    });
    let read: Vec<(&str, Option<ConfigMap>)> =
        stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let mut now = Now::default();
    for (name, object) in read {
        now.take(name, object.as_ref().map(Contents::of), status);
    }
    Ok(now)
}

fn unread(name: &str, namespace: &str, error: kube::Error, caller: &Caller) -> CliError {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            let hint = caller.kubectl("auth can-i get configmaps", namespace);
            CliError::refused(
                format!(
                    "configmap {name} is part of the content: a diff needs get on configmaps in namespace {namespace}, which you may not do"
                ),
                format!("ask for that right, then: {hint}"),
            )
        }
        error => CliError::api(format!("read configmap/{name}"), error),
    }
}

impl Now {
    /// Takes in what was read of a ConfigMap.
    fn take(&mut self, name: &str, contents: Option<Contents>, status: &ReleasePlanStatus) {
        let Some(contents) = contents else {
            let mut seen = status.config_maps.iter();
            let seen = seen.find(|seen| seen.name == name);
            match seen.and_then(|seen| seen.digest.clone()) {
                Some(digest) => {
                    self.notes.push(format!(
                        "configmap {name} does not exist: compared is what it held"
                    ));
                    self.digests.insert(name.to_owned(), digest);
                }
                None => self.faults.push(format!(
                    "configmap {name} does not exist, and a release waits for it"
                )),
            }
            return;
        };
        if contents.bytes() > MAX_BYTES {
            self.faults.push(format!(
                "configmap {name} holds {} bytes, and at most {MAX_BYTES} are released",
                contents.bytes()
            ));
            return;
        }
        self.digests.insert(name.to_owned(), contents.digest());
        self.contents.insert(name.to_owned(), contents);
    }
}

/// The contents that a component is live with, by the revisions that may be.
fn live_with<'a>(
    component: &ComponentPlan,
    template: &Value,
    revisions: &'a BTreeMap<String, Arc<Revision>>,
    stable: Option<&str>,
) -> Vec<&'a Tracked> {
    let named = config_maps::names(template);
    let frozen = |revision: &'a Arc<Revision>| {
        let frozen = revision.data.of(&component.target);
        frozen.map_or(&[][..], |frozen| frozen.config_maps.as_slice())
    };
    if component.template.is_some() {
        let all = revisions.values().flat_map(frozen);
        return all
            .filter(|known| named.contains(&known.snapshot))
            .collect();
    }
    let stable = stable.and_then(|stable| revisions.get(stable));
    stable.into_iter().flat_map(frozen).collect()
}

/// Whether a followed component would get other contents.
fn is_followed_change(component: &ComponentPlan, status: &ReleasePlanStatus) -> bool {
    let reference = component.target.to_ref();
    let mut known = status.components.iter();
    let judged = known.find(|known| known.workload == reference);
    // To begin to track something restarts nothing.
    let judged = judged.and_then(|known| known.config_digest.as_ref());
    judged.is_some_and(|judged| Scope::from(component).config_digest().as_ref() != Some(judged))
}

/// The ConfigMaps of a component whose contents would be other ones.
pub(super) async fn parts(
    client: &Client,
    namespace: &str,
    component: &ComponentPlan,
    template: &Value,
    revisions: &BTreeMap<String, Arc<Revision>>,
    status: &ReleasePlanStatus,
    now: &Now,
) -> Result<Vec<Part>, CliError> {
    let followed = component.template.is_none();
    if followed && !is_followed_change(component, status) {
        return Ok(Vec::new());
    }
    let stable = status.stable_revision.as_deref();
    let live = live_with(component, template, revisions, stable);
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let mut parts = Vec::new();
    for wanted in &component.tracked {
        let before = live.iter().find(|known| known.name == wanted.name);
        let Some(before) = before.filter(|before| before.digest != wanted.digest) else {
            continue;
        };
        let read = api.get_opt(&before.snapshot).await;
        let read = read
            .map_err(|error| CliError::api(format!("read configmap/{}", before.snapshot), error))?;
        let old = read.as_ref().map(Contents::of);
        let new = now.contents.get(&wanted.name);
        parts.push(match (old, new) {
            (Some(old), Some(new)) => differing(&wanted.name, &old, new),
            _ => untold(&wanted.name, &before.digest, &wanted.digest),
        });
    }
    if followed && parts.is_empty() {
        // The revision that tells which is not kept, or may not be read.
        for wanted in &component.tracked {
            parts.push(untold(&wanted.name, "", &wanted.digest));
        }
    }
    Ok(parts)
}

fn what(name: &str) -> String {
    format!("contents of configmap {name}")
}

/// Contents of which only the digests are known.
fn untold(name: &str, from: &str, to: &str) -> Part {
    let from = (!from.is_empty()).then(|| short(from).to_owned());
    let to = short(to).to_owned();
    let was = from.as_deref().unwrap_or("not known");
    Part {
        what: what(name),
        unified: format!(
            "--- configmap {name} now\n+++ configmap {name} after the next release\n-digest: {was}\n+digest: {to}\n"
        ),
        changes: vec![FieldChange {
            path: format!("configmap {name}"),
            text: format!("configmap {name}: other contents, digest {was} → {to}"),
            from: from.map(Value::from),
            to: Some(Value::from(to)),
        }],
    }
}

/// Two contents of a ConfigMap, key by key.
fn differing(name: &str, old: &Contents, new: &Contents) -> Part {
    let (old, new) = (values(old), values(new));
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let keys = keys
        .into_iter()
        .filter(|key| old.get(*key) != new.get(*key));
    let changes = keys.map(|key| change(name, key, old.get(key), new.get(key)));
    Part {
        what: what(name),
        changes: changes.collect(),
        unified: cut_lines(&unified(
            (&format!("configmap {name} now"), &text(&old)),
            (
                &format!("configmap {name} after the next release"),
                &text(&new),
            ),
        )),
    }
}

/// Values by key, whichever kind they are; of binary ones their size and digest.
fn values(contents: &Contents) -> BTreeMap<String, String> {
    let binary = contents.binary_data.iter().map(|(key, value)| {
        let digest = crate::fields::canon::digest_json(&json!(value));
        let told = format!("binary, {} bytes, {}", value.0.len(), short(&digest));
        (key.clone(), told)
    });
    let data = contents.data.iter();
    let data = data.map(|(key, value)| (key.clone(), value.clone()));
    data.chain(binary).collect()
}

fn change(name: &str, key: &str, from: Option<&String>, to: Option<&String>) -> FieldChange {
    let short = |value: Option<&String>| match value {
        None => "none".to_owned(),
        Some(value) if value.contains('\n') || value.chars().count() > CUT / 2 => {
            format!("{} bytes", value.len())
        }
        Some(value) => format!("{value:?}"),
    };
    FieldChange {
        path: format!("configmap {name}[{key}]"),
        text: format!("configmap {name}[{key}]: {} → {}", short(from), short(to)),
        from: from.map(|value| cut(value).into()),
        to: to.map(|value| cut(value).into()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CUT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Keys with their values, a line each or a block.
fn text(values: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in values {
        if value.contains('\n') {
            text.push_str(&format!("{key}: |\n"));
            for line in value.lines() {
                text.push_str(&format!("  {line}\n"));
            }
        } else {
            text.push_str(&format!("{key}: {value}\n"));
        }
    }
    text
}

fn cut_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown: Vec<String> = lines.iter().take(LINES).map(|line| cut(line)).collect();
    if lines.len() > LINES {
        shown.push(format!("… {} lines more", lines.len() - LINES));
    }
    shown.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn contents(data: &Value) -> Contents {
        Contents::of(&serde_json::from_value(json!({"data": data})).unwrap())
    }

    #[test]
    fn contents_are_told_key_by_key_and_long_ones_are_cut() {
        let old = contents(&json!({"a": "1", "gone": "x", "same": "s", "text": "one\ntwo\n"}));
        let new = contents(
            &json!({"a": "2", "new": "y".repeat(300), "same": "s", "text": "one\nthree\n"}),
        );
        let part = differing("settings", &old, &new);
        let told: Vec<&str> = part.changes.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(
            told,
            [
                r#"configmap settings[a]: "1" → "2""#,
                r#"configmap settings[gone]: "x" → none"#,
                "configmap settings[new]: none → 300 bytes",
                "configmap settings[text]: 8 bytes → 10 bytes",
            ]
        );
        let longest = part.unified.lines().map(|line| line.chars().count()).max();
        assert_eq!(longest, Some(CUT + 1));
        let short = part.unified.replace(&"y".repeat(100), "y");
        expect![[r#"
            --- configmap settings now
            +++ configmap settings after the next release
            @@ -1,6 +1,6 @@
            -a: 1
            -gone: x
            +a: 2
            +new: yyyyyyyyyyyyyyy…
             same: s
             text: |
               one
            -  two
            +  three
        "#]]
        .assert_eq(&short);
    }

    #[test]
    fn a_config_map_that_is_gone_counts_with_what_it_had() {
        let mut now = Now::default();
        let status: ReleasePlanStatus = serde_json::from_value(json!({
            "configMaps": [{"name": "kept", "digest": "d1", "missing": true}],
        }))
        .unwrap();
        now.take("kept", None, &status);
        now.take("never", None, &status);
        now.take("there", Some(contents(&json!({"k": "v"}))), &status);
        let large = contents(&json!({"k": "x".repeat(MAX_BYTES)}));
        now.take("large", Some(large), &status);
        assert_eq!(now.digests["kept"], "d1");
        assert_eq!(now.digests.len(), 2);
        assert_eq!(now.notes.len(), 1);
        assert_eq!(now.faults.len(), 2, "{:?}", now.faults);
    }
}
