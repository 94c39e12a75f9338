//! The gateway by real sockets, between raw clients and raw servers, and beside other proxies.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod access_log;
mod attempts;
mod backends;
mod balancing;
mod breakers;
mod canary;
mod chaos;
mod client_certificates;
mod compression;
mod cors;
mod direct;
mod extended_connect;
mod failing_servers;
mod fallback;
mod fault_32_smuggling;
mod fault_62_replies;
mod flows;
mod forward_auth;
mod forwarding;
mod grpc_calls;
mod grpc_health;
mod h2spec;
mod outages;
mod overload;
mod paths;
mod preflights;
mod redirects;
mod route_options;
mod semantics;
mod smuggling;
mod split;
mod streaming;
mod support;
mod upgrades;
mod websockets;
