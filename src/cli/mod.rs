//! tmp
pub mod lint;
