//! Collects the faults of a plan and puts them in the order of its fields.
//!
//! A value that could not be read at all is *broken*: whatever is found at or
//! below its path afterwards would only be a consequence and is dropped.

use super::{Violation, ViolationKind, Violations};

/// Field names in the order of the spec. One list is enough: no two objects of
/// the spec have common fields in opposite order.
const FIELD_ORDER: &[&str] = &[
    "metadata",
    "spec",
    "components",
    "kind",
    "name",
    "workload",
    "template",
    "labels",
    "annotations",
    "finalizers",
    "containers",
    "initContainers",
    "configMaps",
    "traffic",
    "service",
    "httpRoutes",
    "after",
    "strategy",
    "rolling",
    "canary",
    "steps",
    "replicas",
    "weight",
    "pause",
    "duration",
    "blueGreen",
    "approval",
    "previewService",
    "checks",
    "interval",
    "failureLimit",
    "success",
    "prometheus",
    "url",
    "query",
    "progressDeadline",
    "bakeTime",
    "failFast",
    "restarts",
    "onFailure",
    "paused",
    "deletionPolicy",
    "retry",
    "maxRetries",
    "revisionHistoryLimit",
];

/// Faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<Violation>,
    broken: Vec<String>,
}

impl Faults {
    /// Records a fault, unless it only follows from a broken value.
    pub(super) fn add(
        &mut self,
        kind: ViolationKind,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        let path = path.into();
        if !self.is_broken(&path) {
            self.found.push(Violation {
                path,
                kind,
                message: message.into(),
            });
        }
    }

    /// Records a value that cannot be read.
    pub(super) fn add_broken(
        &mut self,
        kind: ViolationKind,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        let path = path.into();
        self.add(kind, path.clone(), message);
        self.broken.push(path);
    }

    /// Records a field that must be set.
    pub(super) fn required(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(ViolationKind::Required, path, message);
    }

    /// Records a value of the wrong form or size.
    pub(super) fn invalid(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(ViolationKind::Invalid, path, message);
    }

    /// Records a value that stands twice.
    pub(super) fn duplicate(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(ViolationKind::Duplicate, path, message);
    }

    /// Records a field that may not be set or changed.
    pub(super) fn forbidden(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(ViolationKind::Forbidden, path, message);
    }

    /// Records a field that a later version will carry out.
    pub(super) fn not_available(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(ViolationKind::NotAvailable, path, message);
    }

    /// Takes over faults found by somebody else.
    pub(super) fn extend(&mut self, faults: impl IntoIterator<Item = Violation>) {
        self.found.extend(faults);
    }

    /// Whether the value at the path, or one that holds it, cannot be read.
    pub(super) fn is_broken(&self, path: &str) -> bool {
        self.broken.iter().any(|broken| {
            path.strip_prefix(broken.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.found.len()
    }

    /// The faults in the order of the fields.
    ///
    /// # Errors
    /// The faults themselves, where there are some.
    pub(super) fn finish(mut self) -> Result<(), Violations> {
        self.found.sort_by_cached_key(|fault| sort_key(&fault.path));
        Violations::check(self.found)
    }
}

/// Fields by their place in the spec, elements by index, keys by name.
fn sort_key(path: &str) -> Vec<(usize, String)> {
    let mut key = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let (inner, tail) = tail.split_once(']').unwrap_or((tail, ""));
            key.push(match inner.parse() {
                Ok(index) => (index, String::new()),
                Err(_) => (usize::MAX, inner.to_owned()),
            });
            rest = tail;
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let end = field.find(['.', '[']).unwrap_or(field.len());
            let (name, tail) = field.split_at(end);
            let rank = FIELD_ORDER.iter().position(|known| *known == name);
            key.push((rank.unwrap_or(FIELD_ORDER.len()), name.to_owned()));
            rest = tail;
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_the_order_of_the_fields() {
        let ordered = [
            "metadata.annotations[belay.dev/retry]",
            "spec",
            "spec.components",
            "spec.components[0].name",
            "spec.components[0].workload.kind",
            "spec.components[0].workload.name",
            "spec.components[0].template.metadata.labels[a.b/c]",
            "spec.components[0].template.spec.containers[2].name",
            "spec.components[0].after[0]",
            "spec.components[2]",
            "spec.components[10]",
            "spec.strategy.canary.steps[0].pause.duration",
            "spec.strategy.canary.steps[0].checks[0]",
            "spec.checks[0].prometheus.url",
            "spec.bakeTime",
            "spec.revisionHistoryLimit",
        ];
        let mut faults = Faults::default();
        for path in ordered.iter().rev() {
            faults.invalid(*path, "");
        }
        let violations = faults.finish().unwrap_err();
        let paths: Vec<_> = violations.as_slice().iter().map(|v| &v.path).collect();
        assert_eq!(paths, ordered);
    }

    #[test]
    fn what_follows_from_a_broken_value_is_not_told() {
        let mut faults = Faults::default();
        faults.add_broken(ViolationKind::Invalid, "spec.components[1]", "must be");
        faults.required("spec.components[1].workload", "");
        faults.required("spec.components[1]", "");
        faults.required("spec.components[10].workload", "");
        let violations = faults.finish().unwrap_err();
        let paths: Vec<_> = violations.as_slice().iter().map(|v| &v.path).collect();
        assert_eq!(
            paths,
            ["spec.components[1]", "spec.components[10].workload"]
        );
    }
}
