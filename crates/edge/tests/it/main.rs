//! The edge by real sockets: choosing, relaying, breaking off, health, names, and clients and backends that misbehave.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod breaking;
mod choosing;
mod circles;
mod crowd;
mod health;
mod misbehaving;
mod names;
mod registering;
mod relaying;
mod round_trips;
mod some_are_dead;
mod support;
mod tls_relaying;
mod whose_connection;
