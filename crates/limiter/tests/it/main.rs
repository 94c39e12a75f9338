//! The decision service by its protocols, and what a decision costs.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod allocations;
mod candidate;
mod changes;
mod denied;
mod fault_56_stalled_pipelines;
mod grpc;
mod one_policy_set;
mod resp;
mod routed;
mod support;
