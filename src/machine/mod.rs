//! The state machine: what to do next about one plan.
//!
//! [`step`] is a function of the plan, its status, the observed world and the
//! time. It returns the next status, the actions that lead there in order, and
//! when to look again. It must not reach for a client, a clock, a log or
//! randomness, and it keeps nothing between two calls: whatever has to survive
//! stands in the status or in revisions.

mod adopt;
mod again;
mod back;
mod commands;
mod contents;
mod context;
mod deletion;
mod desired;
mod first;
mod held;
mod judge;
mod lost;
mod needs;
mod pinned;
mod reassert;
mod rebuild;
mod records;
mod refused;
mod report;
mod restore;
mod rivals;
mod rollout;
mod scope;
mod settle;
mod snapshots;
mod stable;
mod stopped;
mod supersede;
mod types;
mod ways;

pub(crate) use context::cut_to;
pub use context::step;

pub use needs::{Needs, found, needs};
pub use records::changes_of;
pub use report::stalled_since;
pub use scope::{Scope, scope};
pub use snapshots::{digests, snapshots, sources};
pub use stable::holding;
pub use types::{
    Action, Decision, DryRun, EventNote, Input, Known, NewPods, Observed, PlanFacts, PodFault,
    Source, TemplateWrite, Workload, World,
};

#[cfg(test)]
mod tests;
