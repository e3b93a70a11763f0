//! The commands for people.

pub mod status;
