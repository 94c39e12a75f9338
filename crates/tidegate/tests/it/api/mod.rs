//! The HTTP API of the whole process: decisions, the configuration, who may do what.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs,
    reason = "a test's panic is its report, and nobody else uses these modules"
)]

mod access;
mod at_once;
mod attributes;
mod changes;
mod events;
mod general_api;
mod own_limits;
mod permits;
mod sessions;
mod simple_api;
mod support;
mod usage;
