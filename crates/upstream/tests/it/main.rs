//! Connecting to servers.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod connect;
