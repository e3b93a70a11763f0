//! `belay status`: where a plan is, the one thing it waits for, and everything
//! below it that is in trouble.
//!
//! Reads and shows; judges nothing. The model is a pure function of what was
//! read and the time, and text, JSON and `--watch` are made from it alone.

mod caller;
mod model;
mod objects;
mod pods;
mod render;
mod text;
mod tree;
mod verdict;

#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use model::{
    CauseView, ComponentView, CurrentRelease, DeploymentCounts, Exit, Health, LastRelease,
    PlanStatus, PodTrouble, ReplicaSetStatus, Revisions, Verdict, Way,
};
