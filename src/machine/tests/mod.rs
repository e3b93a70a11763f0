//! The state machine against a cluster in memory.

mod cluster;
mod sim;

mod baseline;
mod failure;
mod refused;
