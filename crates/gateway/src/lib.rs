//! The HTTP gateway: routes, limits, breakers and retries in front of HTTP services.
//!
//! A request passes through these phases, and `proxy.rs` has one function that reads like the drawing:
//!
//! ```text
//!   normalise ─> route ─> limit ─> breaker ─> pick ─> forward ─> respond
//!      400        404      429       503       503      502, 504
//!                                     ^                  |
//!                                     `── again, if it is safe and the budget allows it
//! ```
//!
//! A reply of the gateway's own is a problem document (RFC 9457) and says which phase made it.
//!
//! Deliberately absent: the limiter (the binary gives one as a [`limits::Limits`]), files and reloading
//! (the binary gives a checked [`config::GatewayConfig`]), the listeners.

pub mod config;
pub mod documents;
pub mod explain;
pub mod limits;
pub mod service;

mod attempt;
mod body;
mod breaker;
mod checks;
mod client_address;
mod connection;
mod cors;
mod fields;
mod pool;
pub mod precedence;
mod proxy;
mod refusal;
mod replies;
mod route;
mod table;
mod target;
mod tunnel;
mod upstream;
