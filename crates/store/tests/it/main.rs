//! The stores: one conformance suite, and the faults of each.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod conformance;
mod differential;
mod exactness;
mod fault_10_random_keys;
mod fault_11_hash_flooding;
mod fault_56_stale_clocks;
mod postgres;
mod redis;
mod snapshot;
