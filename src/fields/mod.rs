//! Field ownership on the objects of users, as pure functions over JSON.
//!
//! Decides which fields of an object a server-side apply owns ([`FieldSet`]),
//! what of an object those fields are ([`project`]), what stood there before
//! ([`Found`]) and what to apply so that it comes back ([`carry`]); and whether
//! two pod templates are the same ([`canon`]) or how they differ ([`diff`]).
//!
//! Nothing here talks to a cluster, reads a clock or goes through typed
//! Kubernetes structs: fields this build does not know must survive.

pub mod canon;
mod diff;
mod found;
mod graft;
mod managed;
mod path;
mod project;
mod put_back;
mod quantity;
mod schema;
mod set;
mod taken;

#[cfg(test)]
mod properties;

pub use diff::{Change, diff, summary};
pub use found::{Before, Carried, Found, FoundValue, carry};
pub use graft::{get, graft};
pub use managed::{managed_by, owned_by, owning_exactly};
pub use path::{Literal, Path, PathElement};
pub use project::{complete, emptied, project};
pub use put_back::put_back;
pub use set::FieldSet;
pub use taken::{TakenOver, taken_over};

/// Why field ownership could not be read or a value could not be put in place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A node of a `fieldsV1` tree is not a JSON object.
    #[error("fieldsV1 at {at}: expected an object, found {found}")]
    NotAnObject {
        /// The place in the tree.
        at: Path,
        /// The JSON kind that stood there.
        found: &'static str,
    },
    /// A path element is not one of `f:`, `k:`, `v:`, `i:`, or is malformed.
    #[error("fieldsV1 path element {element:?}: {reason}")]
    BadElement {
        /// The element as it was written.
        element: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An entry of `metadata.managedFields` could not be read.
    #[error("managedFields entry {index} (manager {manager:?}, {operation}): {source}")]
    Entry {
        /// Position in `metadata.managedFields`, from 0.
        index: usize,
        /// The entry's field manager.
        manager: String,
        /// The entry's operation, `Apply` or `Update`.
        operation: String,
        /// What is wrong with its `fieldsV1`.
        #[source]
        source: Box<FieldsError>,
    },
    /// A value cannot be put at a path because something of another kind is in the way.
    #[error("cannot set {path}: {at} is {found}, not {wanted}")]
    Obstructed {
        /// The path that was to be set.
        path: Path,
        /// The ancestor that is in the way.
        at: Path,
        /// The JSON kind that stands there.
        found: &'static str,
        /// The JSON kind that the path needs there.
        wanted: &'static str,
    },
}

/// The JSON kind of a value, for messages.
fn kind(value: &serde_json::Value) -> &'static str {
    use serde_json::Value;
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
