//! The edge by real sockets: choosing, relaying, breaking off, health, names, and clients and backends that misbehave.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod breaking;
mod choosing;
mod crowd;
mod health;
mod misbehaving;
mod names;
mod relaying;
mod round_trips;
mod support;
mod tls_relaying;
mod whose_connection;
