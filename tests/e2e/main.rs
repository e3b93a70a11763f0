//! Belay on a real control plane: the operator's own binary, under its own
//! service account, with kubectl as the user.
//!
//! All tests share one cluster and one operator and use a namespace each; those
//! that stop, kill or cut off the operator have a cluster of their own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "all of this is test code, and a failure tells what happened"
)]

mod admission;
mod breaking;
mod breaking_again;
mod breaking_back;
mod breaking_refused;
mod breaking_state;
mod breaking_storms;
mod clocks;
mod configuration;
mod contents;
mod deletion;
mod departure;
mod economy;
mod followed;
mod installation;
mod judged;
mod killed;
mod outage;
mod proxy;
mod recovery;
mod release;
mod rivals;
mod rollback;
mod stored;
mod stuck;
mod succession;
mod support;
mod verdicts;
mod witness;
mod writers;
