//! The cluster starts, works and ends; what it promises about its processes
//! and its log is true.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say why"
)]

use belay_testenv::{AuditFilter, Cluster, ClusterOptions};

#[test]
fn a_cluster_starts_and_stops() {
    let t = std::time::Instant::now();
    let cluster = Cluster::start(ClusterOptions::new()).expect("a cluster");
    eprintln!("up in {:?}", t.elapsed());
    let out = cluster.kubectl(&["get", "nodes,pods,sa", "-A"]).expect("kubectl").ok().expect("ok");
    eprintln!("{out}");
    cluster.settle_audit().expect("settled");
    eprintln!("{}", cluster.audit().matching(&AuditFilter::new().writes()).expect("audit").len());
}
