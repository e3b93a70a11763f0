//! What the API server's answers mean, shared by webhook and controller.

mod apply_error;

pub use apply_error::{ApplyFailure, classify, classify_status};
