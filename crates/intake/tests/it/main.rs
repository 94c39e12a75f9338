//! The intake by its own senders and receivers: what is acknowledged, read, sent on and refused.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod acknowledged;
mod alerts;
mod batches;
mod forward;
mod forward_real;
mod loose_senders;
mod partitions;
mod reading;
mod senders;
mod series;
mod statsd;
mod support;
