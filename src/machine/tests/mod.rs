//! The state machine against a cluster in memory.

mod cluster;
mod sim;

mod baseline;
mod deletion;
mod failure;
mod midrelease;
mod ownership;
mod refused;
