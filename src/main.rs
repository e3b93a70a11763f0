//! belay
fn main() {}
