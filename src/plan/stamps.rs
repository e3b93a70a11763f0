//! Who gave an order, and when.
//!
//! An order is an annotation that anybody may set who may patch the plan. The
//! mutating webhook writes beside it who did, in an annotation that nobody else
//! can set, and lets the later of two orders that contradict each other win.
//! Whether an order means anything is decided in [`super::check_orders`].

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::{ABORT, GROUP, ORDERED_BY, RELEASE_GENERATION, RETRY, UNDO};

/// Annotations that give orders, in the order in which they are dealt with.
pub const ORDERS: [&str; 3] = [ABORT, UNDO, RETRY];

/// Who gave one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The order, without the group: `abort`, `undo`, `retry`.
    pub order: String,
    /// The revision that it names.
    pub revision: String,
    /// Who gave it.
    pub user: String,
    /// When.
    pub at: Timestamp,
    /// Release generation of the plan at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// The stamps on a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Vec<Stamp>);

impl Stamps {
    /// Reads the annotation. What cannot be read says nothing.
    #[must_use]
    pub fn read(annotation: Option<&str>) -> Self {
        let entries: Option<Vec<Value>> =
            annotation.and_then(|text| serde_json::from_str(text).ok());
        let stamps = entries.into_iter().flatten();
        Self(
            stamps
                .filter_map(|entry| serde_json::from_value(entry).ok())
                .collect(),
        )
    }

    /// The stamp of an order, given as the name and value of its annotation.
    #[must_use]
    pub fn of(&self, annotation: &str, value: &str) -> Option<&Stamp> {
        let mut stamps = self.0.iter();
        stamps.find(|stamp| stamp.order == short(annotation) && stamp.revision == value)
    }

    /// These stamps without that of an order.
    #[must_use]
    pub fn without(&self, annotation: &str) -> Self {
        let others = self.0.iter().filter(|s| s.order != short(annotation));
        Self(others.cloned().collect())
    }

    /// The value of the annotation; none if there must be no such annotation.
    #[must_use]
    pub fn write(&self) -> Option<String> {
        let text = (!self.0.is_empty()).then(|| json!(self.0).to_string())?;
        // Kept in ASCII, so that a name cannot look like another one.
        Some(text.chars().fold(String::new(), |mut text, c| {
            if c.is_ascii() {
                text.push(c);
            } else {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            text
        }))
    }
}

/// Name of an order without the group.
fn short(annotation: &str) -> &str {
    let rest = annotation.strip_prefix(GROUP);
    rest.and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(annotation)
}

/// Orders that cannot both be meant: what is tried again is neither ended nor
/// left for something else. An abort and an undo go together: the one says what
/// ends, the other where to go then.
#[must_use]
pub(super) fn contradict(one: &str, other: &str) -> bool {
    one != other && [one, other].contains(&RETRY)
}

/// Stamps the orders of the object of a create (`old` is none) or update
/// request that `user` sent at `now`, and drops those that a later one
/// contradicts.
///
/// Stamps of orders that stay are kept, all others are made anew whatever the
/// object says, so its own output gives nothing more to do at the same time.
pub fn stamp_orders(object: &mut Value, old: Option<&Value>, user: &str, now: Timestamp) {
    let old = old.and_then(|old| old.pointer("/metadata/annotations")?.as_object());
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let is_new = |annotations: &Map<String, Value>, order: &str| {
        let value = annotations.get(order);
        value.is_some() && value != old.and_then(|old| old.get(order))
    };
    let (given, before): (Vec<&str>, Vec<&str>) = ORDERS
        .into_iter()
        .filter(|order| annotations.contains_key(*order))
        .partition(|order| is_new(annotations, order));
    for order in before {
        if given.iter().any(|later| contradict(order, later)) {
            annotations.remove(order);
        }
    }
    let text = |annotations: &Map<String, Value>, name: &str| {
        annotations.get(name)?.as_str().map(str::to_owned)
    };
    let known = Stamps::read(old.and_then(|old| text(old, ORDERED_BY)).as_deref());
    let generation = text(annotations, RELEASE_GENERATION).and_then(|n| n.parse().ok());
    let stamps = ORDERS.iter().filter_map(|order| {
        let value = text(annotations, order)?;
        if !given.contains(order) {
            return known.of(order, &value).cloned();
        }
        Some(Stamp {
            order: short(order).to_owned(),
            revision: value,
            user: user.to_owned(),
            at: now,
            generation,
        })
    });
    match Stamps(stamps.collect()).write() {
        Some(value) => annotations.insert(ORDERED_BY.to_owned(), Value::String(value)),
        None => annotations.remove(ORDERED_BY),
    };
}

#[cfg(test)]
#[path = "stamps_tests.rs"]
mod tests;
