//! The state machine against a cluster in memory.

mod cluster;
mod independence;
mod invariants;
mod plans;
mod sim;

mod baseline;
mod commands;
mod configuration;
mod contents;
mod deletion;
mod failure;
mod frozen;
mod midrelease;
mod ownership;
mod properties;
mod rebuild;
mod refused;
