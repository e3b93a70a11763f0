//! The validated form of a plan.
//!
//! [`Plan::parse`] is the only way to a [`Plan`], and webhook and controller
//! both take it: what one of them would refuse, the other refuses too. Nothing
//! in here knows the cluster; whether workloads exist is decided elsewhere.

mod change;
mod check_components;
mod check_health;
mod check_orders;
mod check_strategy;
mod check_template;
mod check_values;
mod claims;
mod commands;
mod containers;
mod decode;
mod defaults;
mod digest;
mod faults;
mod parse;
mod resolve;
mod stamps;
mod targets;
mod types;
mod violation;

#[cfg(test)]
mod later_tests;
#[cfg(test)]
mod parse_tests;
#[cfg(test)]
pub(crate) mod properties;
#[cfg(test)]
mod template_tests;

pub use change::{check_change, check_create};
pub use check_orders::given_orders;
pub use claims::incumbent;
pub use commands::{
    AS_ASKED, TWICE, abortable, brought_content, current, failed, is_gone_from_plan,
    is_just_aborted, is_lost, last_word, rests_on_revision, retryable, unbegun, undoable,
};
pub use containers::{MissingContainer, missing_containers};
pub use defaults::{completed, defaults_patch, generation_patch};
pub use digest::content_digest;
pub use resolve::as_seen;
pub use stamps::{ORDERS, Stamp, Stamps, stamp_orders};
pub use targets::{config_maps_of, targets_of};
pub use types::{ComponentPlan, Plan, Target};
pub use violation::{Violation, ViolationKind, Violations};
