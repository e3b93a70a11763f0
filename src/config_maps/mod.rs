//! Configuration that is released with code: which ConfigMaps a pod template
//! names, how the names are pointed at snapshots, what the contents of a
//! ConfigMap are, and the form of a snapshot.
//!
//! Pure: nothing here reads or writes the cluster, and nothing decides when a
//! snapshot is made or given up.

mod contents;
mod references;
mod snapshot;

pub use contents::{Contents, MAX_BYTES};
pub use references::{names, references, rewrite};
pub use snapshot::{Kept, Tracked, is_snapshot_of, judge, snapshot_name, snapshot_object};
