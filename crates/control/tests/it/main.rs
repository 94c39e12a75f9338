//! The durable configuration: one contract for both databases, kills, older schemas, and the services above it.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod contract;
mod kill;
mod opening;
mod services;
mod steps;
