//! Belay releases existing Kubernetes Deployments together, and brings code
//! and configuration back by itself when a release fails.

pub mod api;
pub mod certs;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod config_maps;
pub mod controller;
pub mod fields;
pub mod health;
pub mod machine;
pub mod metrics;
pub mod names;
pub mod plan;
pub mod revision;
pub mod run;
pub mod telemetry;
pub mod webhook;
