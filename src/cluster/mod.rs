//! What the API server holds of workloads and what its answers mean, shared by
//! webhook, controller and commands so that they ask and judge the same way.

mod apply_error;
mod connect;
mod dry_run;
mod snapshot;
mod view;

pub(crate) use apply_error::lacks_rights;
pub use apply_error::{ApplyFailure, classify, classify_status};
pub use connect::{ConnectError, Connections, Connector, Seat};
pub use dry_run::{as_stored, dry_run};
pub use snapshot::{Snapshot, apply_body, deployments, replace_template};
pub(crate) use view::{Condition, replica_failure, view_of};
