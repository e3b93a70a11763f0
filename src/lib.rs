//! Belay.

pub mod fields;
