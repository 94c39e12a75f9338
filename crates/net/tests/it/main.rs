//! Listeners, connections and HTTP by raw sockets, a fault for each file.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod common;
mod fault_22_drain;
mod fault_31_slow_clients;
mod fault_32_malformed;
mod fault_33_oversized;
mod fault_34_http2_floods;
mod fault_35_accept_queue;
mod fault_42_handshakes;
mod fault_42_rotation;
mod fault_43_proxy_headers;
mod fault_60_held_bytes;
mod fault_61_full_listeners;
mod handed_on;
mod prior_knowledge;
mod streamed;
mod tunnels;
mod two_ways;
mod upgrades;
