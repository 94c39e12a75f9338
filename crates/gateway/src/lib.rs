//! The HTTP gateway: routes, limits, breakers and retries in front of HTTP services.
//!
//! A request passes through these phases, and `proxy.rs` has one function that reads like the drawing:
//!
//! ```text
//!   normalise ─> route ─> shed ─> authenticate ─> limit ─> breaker ─> pick ─> forward ─> respond ─> record
//!      400        404     503         401          429       503       503    502, 504
//!                                                             ^                  |
//!                                                             `── again, if it is safe and the budget allows it
//! ```
//!
//! A reply of the gateway's own is a problem document (RFC 9457) and says which phase made it.
//!
//! What is done for a request is noted step by step, if the access log or a trace asks for it (`observed/record/`).
//!
//! Each part has a folder, and the `mod.rs` of a folder draws it: `config/` and `documents/` have what is configured; `routes/`,
//! `authentication/`, `forwarding/`, `servers/` and `response/` are a request's way; `observed/` is what is known of it afterwards.
//!
//! Deliberately absent: the limiter (the binary gives one as a [`limits::RequestLimiter`]), the configuration's files and
//! their reloading (the binary gives a checked [`config::GatewayConfig`]), tokens, the listeners, and what API keys are
//! (`tidegate_access::keys`).

pub mod candidate;
pub mod config;
pub mod documents;
pub mod explain;
pub mod limits;
pub mod service;

mod authentication;
mod forwarding;
mod observed;
mod proxy;
mod random;
mod response;
mod routes;
mod servers;

pub use observed::{access_log, analytics, flow, spans, traces};
pub use routes::{precedence, shed};
