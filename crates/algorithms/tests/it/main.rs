//! The limits, policies and their documents by tables, oracles and properties; and the pictures that they draw.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod docs;
mod limits;
mod pictures;
mod policy;
mod sliding_counter_error;
