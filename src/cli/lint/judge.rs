//! What is wrong with the documents of a file.
//!
//! Three have a say, as in the cluster: the schema with its fields and bounds,
//! the schema's rules in CEL, and the webhook. Where several mean the same
//! fault, the webhook's words are taken, since they are written for people. A
//! plan is judged as a new one: what depends on a stored plan, or on the
//! workloads, only the cluster can say.

use std::ops::Range;

use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use super::{
    metadata, place,
    rules::Rules,
    schema::{self, Misfits},
    yaml::{self, Node, Tree, Unread},
};
use crate::{
    api::{GROUP, ReleasePlan, StoredPlan, VERSION},
    plan::{self, Violation, ViolationKind},
};

/// Lists in lists that are looked into.
const MAX_LISTS: usize = 8;
/// Faults of a plan for which it is tried out what would be none.
const MAX_HINTS: usize = 16;

/// Who finds fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The document cannot be read, or not in one way only.
    Syntax,
    /// The schema does not know the field.
    Field,
    /// The schema, by type, bounds or form; for metadata, the API server.
    Schema,
    /// A rule of the schema in CEL.
    Cel,
    /// The webhook.
    Plan,
}

/// One fault, with the bytes of the file that it is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) rule: Rule,
    /// Empty for a document that cannot be read.
    pub(super) path: String,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}

/// What became of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judged {
    /// In the order of the file.
    pub(super) faults: Vec<Fault>,
    pub(super) plans: usize,
    /// Objects of other kinds.
    pub(super) skipped: usize,
}

/// All that plans are judged by.
pub(super) struct Judge {
    schema: Value,
    status: Value,
    rules: Rules,
}

/// The schema in the CRD.
pub(super) fn crd_schema() -> Value {
    let crd = serde_json::to_value(crate::api::crd()).unwrap_or_default();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or_default()
}

impl Judge {
    pub(super) fn new() -> Self {
        let mut schema = crd_schema();
        let rules = Rules::new(&schema);
        let mut status = Value::Null;
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            // A status in a file is dropped, but its fields must be known.
            let known = properties.insert(
                "status".to_owned(),
                json!({
                    "x-kubernetes-preserve-unknown-fields": true
                }),
            );
            status = known.unwrap_or_default();
            for (name, inner) in [
                ("apiVersion", json!({"type": "string"})),
                ("kind", json!({"type": "string"})),
                ("metadata", metadata::schema()),
            ] {
                properties.insert(name.to_owned(), inner);
            }
        }
        Self {
            schema,
            status,
            rules,
        }
    }

    /// Judges all documents of a file.
    pub(super) fn file(&self, text: &str) -> Judged {
        let mut judged = Judged::default();
        for document in yaml::documents(text) {
            match document {
                Ok(document) => {
                    let plans = judged.plans;
                    self.document(&document.root, text, 0, &mut judged);
                    // Of other kinds nothing is said.
                    if judged.plans > plans {
                        let twice = document.twice.into_iter().map(|mut fault| {
                            let written = text.get(fault.span.clone()).unwrap_or_default();
                            if !written.starts_with(['"', '\''])
                                && !fault.message.contains(&format!("{written:?}"))
                            {
                                fault.message.push_str(&format!(
                                    "; {written} is read so, quote it: \"{written}\""
                                ));
                            }
                            unread(fault)
                        });
                        judged.faults.extend(twice);
                    }
                }
                Err(fault) => judged.faults.push(unread(fault)),
            }
        }
        judged.faults.sort_by_key(|fault| fault.span.start);
        judged
    }

    fn document(&self, root: &Node, text: &str, lists: usize, judged: &mut Judged) {
        if root.value == Tree::Null {
            return;
        }
        let kind = root.get("kind").and_then(Node::text).unwrap_or_default();
        let version = root.get("apiVersion").and_then(Node::text);
        let list = root.get("items");
        if kind == "List"
            && version == Some("v1")
            && let Some(list) = list.filter(|list| list.value == Tree::Null)
        {
            // kubectl takes no list without its elements.
            judged.faults.push(unread(Unread {
                span: list.span.clone(),
                message: "a List needs its items, be it an empty list".to_owned(),
            }));
            return;
        }
        let items = list.and_then(Node::elements);
        if let Some(items) = items
            && kind.ends_with("List")
            && lists < MAX_LISTS
        {
            for item in items {
                self.document(item, text, lists + 1, judged);
            }
            return;
        }
        let group = version.and_then(|version| version.split_once('/'));
        let ours = match (version, group) {
            (None, _) => kind == plan_kind(),
            (_, group) => group.is_some_and(|(group, _)| group == GROUP),
        };
        if !ours {
            judged.skipped += 1;
            return;
        }
        judged.plans += 1;
        judged.faults.extend(self.plan(root, text));
    }

    /// Judges a plan as a new one.
    fn plan(&self, root: &Node, text: &str) -> Vec<Fault> {
        let object = root.to_json();
        let findings = self.object(&object);
        let mut faults: Vec<Fault> = Vec::new();
        let mut hints = 0;
        for (rule, fault) in findings {
            let (span, found) = match rule {
                Rule::Field => (place::key(root, &fault.path), None),
                _ => place::value(root, &fault.path, text),
            };
            let mut message = fault.to_string();
            if let Some(rest) = message.strip_prefix(&format!("{}: ", fault.path)) {
                message = rest.to_owned();
            }
            // Where YAML's own reading of a word is the cause, say so.
            let bare = found.is_some_and(|n| matches!(n.value, Tree::Bool(_) | Tree::Number(_)));
            if bare && message.contains("must be a string") && hints < MAX_HINTS {
                hints += 1;
                let written = text.get(span.clone()).unwrap_or_default();
                let hint = self.hint(&object, &fault.path, written);
                message.push_str(&hint.unwrap_or_default());
            }
            let (path, misread) = place::as_written(root, &fault.path, text);
            if let Some(place::Misread { written, read }) = misread {
                message.push_str(&format!("; the key {written} is read as {read}"));
                // In quotes it would be no field either.
                if rule != Rule::Field || !path.ends_with(&format!(".{written}")) {
                    message.push_str(&format!(", quote it: \"{written}\""));
                }
            }
            faults.push(Fault {
                rule,
                path,
                message,
                span,
            });
        }
        faults
    }

    /// What to write in the place of a number or a word that is to be a string: the
    /// same in quotes, or with a unit, whichever is no fault again.
    fn hint(&self, object: &Value, path: &str, written: &str) -> Option<String> {
        let advice = [
            (written.to_owned(), "quote it"),
            (format!("{written}s"), "write it with its unit"),
        ];
        let good = advice.into_iter().find(|(text, _)| {
            let mut changed = object.clone();
            let put = place::put(&mut changed, path, text);
            put && !self.object(&changed).iter().any(|(_, f)| f.path == path)
        });
        good.map(|(text, advice)| format!("; {advice}: \"{text}\""))
    }

    /// What is wrong with an object, each fault once.
    pub(super) fn object(&self, object: &Value) -> Vec<(Rule, Violation)> {
        let mut named = named_wrong(object);
        if !named.is_empty() {
            return named;
        }
        let mut stored = plan::completed(object, None, "");
        // The API server reads the metadata before the webhook puts it right.
        if let Some(fields) = stored.as_object_mut() {
            let metadata = object.get("metadata").cloned().unwrap_or_default();
            fields.insert("metadata".to_owned(), metadata);
        }
        let stored = schema::completed(&self.schema, &stored);
        let mut misfits = Misfits::default();
        schema::judge("", &self.schema, &stored, &mut misfits);
        if let Some(status) = object.get("status").filter(|status| status.is_object()) {
            let mut of_status = Misfits::default();
            schema::judge("status", &self.status, status, &mut of_status);
            misfits.unknown.extend(of_status.unknown);
        }
        let mut refused = refused(object);
        if misfits.wrong.iter().any(|f| f.path.starts_with("metadata")) {
            // The schema says where.
            refused.retain(|fault| fault.path != "metadata");
        }
        let fits = misfits.wrong.is_empty();
        let mut schema = misfits.wrong;
        if schema
            .iter()
            .all(|fault| !fault.path.starts_with("metadata"))
        {
            let metadata = stored.get("metadata").unwrap_or(&Value::Null);
            schema.extend(metadata::judge(metadata));
        }
        // As the API server does: a rule is asked only about what fits.
        let cel = if fits {
            self.rules.judge(&stored)
        } else {
            Vec::new()
        };
        named.extend(merge(refused, schema, cel, misfits.unknown));
        named
    }
}

/// What the webhook says to a new plan.
fn refused(object: &Value) -> Vec<Violation> {
    let completed = plan::completed(object, None, "");
    let mut faults = Vec::new();
    let new = match StoredPlan::deserialize(&completed) {
        Ok(new) => new,
        // Only metadata has a form here. The webhook says no more than that;
        // what else is wrong would come next.
        Err(error) => {
            faults.push(Violation {
                path: "metadata".to_owned(),
                kind: ViolationKind::Invalid,
                message: format!("cannot be read: {error}"),
            });
            StoredPlan {
                spec: completed.get("spec").cloned().unwrap_or_default(),
                ..StoredPlan::default()
            }
        }
    };
    if let Err(violations) = plan::check_create(&new) {
        faults.extend_from_slice(violations.as_slice());
    }
    faults
}

/// The faults of an object that is of no kind or version that is served.
fn named_wrong(object: &Value) -> Vec<(Rule, Violation)> {
    let mut faults = Vec::new();
    let mut fault = |path: &str, found: Option<&Value>, wanted: String| {
        let (kind, message) = match found {
            None | Some(Value::Null) => (ViolationKind::Required, format!("must be {wanted}")),
            Some(found) if *found == wanted => return,
            Some(found) => (
                ViolationKind::NotSupported,
                format!("{found}: must be {wanted}"),
            ),
        };
        let path = path.to_owned();
        faults.push((
            Rule::Schema,
            Violation {
                path,
                kind,
                message,
            },
        ));
    };
    fault(
        "apiVersion",
        object.get("apiVersion"),
        format!("{GROUP}/{VERSION}"),
    );
    fault("kind", object.get("kind"), plan_kind());
    faults
}

fn plan_kind() -> String {
    <ReleasePlan as kube::Resource>::kind(&()).into_owned()
}

/// All of them, without those that only say again what the webhook says.
fn merge(
    refused: Vec<Violation>,
    schema: Vec<Violation>,
    cel: Vec<Violation>,
    unknown: Vec<Violation>,
) -> Vec<(Rule, Violation)> {
    let below = |path: &str, other: &str| {
        path.strip_prefix(other)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let said = |path: &str| {
        let mut refused = refused.iter();
        refused.any(|fault| below(&fault.path, path) || below(path, &fault.path))
    };
    let mut merged = Vec::new();
    // A rule stands at a list and means one of its elements.
    merged.extend(
        cel.into_iter()
            .filter(|f| !said(&f.path))
            .map(|f| (Rule::Cel, f)),
    );
    merged.extend(
        schema
            .into_iter()
            .filter(|f| !said(&f.path))
            .map(|f| (Rule::Schema, f)),
    );
    let told = |path: &str| refused.iter().any(|fault| fault.path == path);
    merged.extend(
        unknown
            .into_iter()
            .filter(|f| !told(&f.path))
            .map(|f| (Rule::Field, f)),
    );
    merged.extend(refused.iter().cloned().map(|fault| (Rule::Plan, fault)));
    merged
}

fn unread(unread: Unread) -> Fault {
    Fault {
        rule: Rule::Syntax,
        path: String::new(),
        message: unread.message,
        span: unread.span,
    }
}
