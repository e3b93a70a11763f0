//! What is wrong with a plan, said once for people and once for programs.

use std::fmt;

/// One fault, at one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, as the API server writes it:
    /// `spec.components[0].workload.name`.
    pub path: String,
    /// Kind of the fault, in the words of the API server.
    pub kind: ViolationKind,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Kinds of faults, after the API server's own field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The field must be set.
    Required,
    /// The value is of the wrong form, type or size.
    Invalid,
    /// The value stands twice.
    Duplicate,
    /// The value is none of those allowed.
    NotSupported,
    /// The field may not be set or changed here.
    Forbidden,
    /// The value names something that is not there.
    NotFound,
    /// The field is for a later version.
    NotAvailable,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ViolationKind::Required => "Required value",
            ViolationKind::Invalid => "Invalid value",
            ViolationKind::Duplicate => "Duplicate value",
            ViolationKind::NotSupported => "Unsupported value",
            ViolationKind::Forbidden => "Forbidden",
            ViolationKind::NotFound => "Not found",
            ViolationKind::NotAvailable => "Not available yet",
        };
        write!(f, "{}: {kind}: {}", self.path, self.message)
    }
}

/// All faults of a plan; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// The faults, unless there is none.
    ///
    /// # Errors
    /// The faults themselves, where there are some.
    pub fn check(faults: Vec<Violation>) -> Result<(), Self> {
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Self(faults))
        }
    }

    /// The faults, in the order of the fields.
    #[must_use]
    pub fn as_slice(&self) -> &[Violation] {
        &self.0
    }

    /// Whether the plan would be valid in a later version.
    #[must_use]
    pub fn only_not_available(&self) -> bool {
        self.0.iter().all(|v| v.kind == ViolationKind::NotAvailable)
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "{one}"),
            many => {
                write!(f, "{} faults: [", many.len())?;
                for (index, fault) in many.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{fault}")?;
                }
                f.write_str("]")
            }
        }
    }
}

impl std::error::Error for Violations {}
