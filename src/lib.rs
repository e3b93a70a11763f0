//! Belay releases existing Kubernetes Deployments together, and brings code
//! and configuration back by itself when a release fails.

pub mod api;

pub mod plan;
