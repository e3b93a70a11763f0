//! Belay releases existing Kubernetes Deployments together, and brings code
//! and configuration back by itself when a release fails.

pub mod api;
pub mod fields;
pub mod machine;
pub mod plan;
pub mod revision;
