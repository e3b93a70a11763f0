//! The state machine against a cluster in memory.

mod cluster;
mod independence;
mod invariants;
mod sim;

mod baseline;
mod deletion;
mod failure;
mod midrelease;
mod ownership;
mod properties;
mod refused;
