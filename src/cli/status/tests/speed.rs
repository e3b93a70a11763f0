//! What a large plan costs.

use std::time::{Duration, Instant};

use super::super::{
    fixtures::{many, now},
    render::{Layout, tree},
};

/// The bound holds for builds without optimization, beside other tests.
#[test]
fn fifty_components_of_twenty_pods_are_shown_within_a_second() {
    let cluster = many(50, 20);
    assert_eq!(cluster.pods.len(), 1_000);
    let layout = Layout {
        width: 120,
        height: Some(50),
    };
    let start = Instant::now();
    let lines = tree(&cluster.status(), now(), layout);
    let took = start.elapsed();
    assert!(!lines.is_empty());
    assert!(took < Duration::from_secs(1), "{took:?}");
}
