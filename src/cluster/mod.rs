//! What the API server holds of workloads and what its answers mean, shared by
//! webhook and controller so that both ask and judge the same way.

mod apply_error;
mod connect;
mod dry_run;
mod snapshot;

pub(crate) use apply_error::lacks_rights;
pub use apply_error::{ApplyFailure, classify, classify_status};
pub use connect::{ConnectError, Connections, Seat, connect};
pub use dry_run::{as_stored, dry_run};
pub use snapshot::{Snapshot, apply_body, deployments, replace_template};
