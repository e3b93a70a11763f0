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
mod cli;
mod cli_access;
mod cli_config;
mod cli_lists;
mod cli_orders;
mod cli_reads;
mod cli_status;
mod cli_terminal;
mod cli_wait;
mod clocks;
mod configuration;
mod content;
mod contents;
mod deletion;
mod departure;
mod doctor;
mod economy;
mod emptied;
mod evidence;
mod first;
mod followed;
mod installation;
mod judged;
mod killed;
mod killed_in;
mod lint;
mod named;
mod orders;
mod outage;
mod ownership;
mod proxy;
mod records;
mod recovery;
mod recreated;
mod refusals;
mod refused;
mod release;
mod rivals;
mod rollback;
mod stored;
mod storms;
mod stuck;
mod succession;
mod support;
mod swept;
mod together;
mod verdicts;
mod witness;
mod writers;
