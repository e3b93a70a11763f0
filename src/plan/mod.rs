//! The validated form of a plan.
//!
//! [`Plan::parse`] is the only way to a [`Plan`], and webhook and controller
//! both take it: what one of them would refuse, the other refuses too. Nothing
//! in here knows the cluster; whether workloads exist is decided elsewhere.

mod containers;
mod targets;
mod types;
mod violation;

pub use containers::{MissingContainer, missing_containers};
pub use targets::targets_of;
pub use types::{ComponentPlan, Plan, Target};
pub use violation::{Violation, ViolationKind, Violations};
