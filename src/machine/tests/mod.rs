//! The state machine against a cluster in memory.

mod cluster;
mod independence;
mod invariants;
mod plans;
mod policies;
mod sim;
mod writes;

mod again;
mod baseline;
mod became;
mod begun;
mod commands;
mod configuration;
mod contents;
mod deletion;
mod emptied;
mod failure;
mod first;
mod frozen;
mod large;
mod lost;
mod messages;
mod midrelease;
mod named;
mod orders;
mod ownership;
mod parts;
mod properties;
mod readable;
mod rebuild;
mod refused;
mod renewed;
mod stuck;
mod together;
mod undone;
