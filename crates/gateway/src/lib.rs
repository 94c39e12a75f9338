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
//! What is done for a request is noted step by step, if the access log or a trace asks for it (`record/`).
//!
//! Deliberately absent: the limiter (the binary gives one as a [`limits::Limits`]), the configuration's files and
//! their reloading (the binary gives a checked [`config::GatewayConfig`]), tokens, the listeners, and what API keys are
//! (`tidegate_access::keys`).

pub mod access_log;
pub mod analytics;
pub mod candidate;
pub mod config;
pub mod documents;
pub mod explain;
pub mod limits;
pub mod service;
pub mod traces;

mod adaptive;
mod answer;
mod arrival;
mod attempt;
mod authenticate;
mod authority;
mod body;
mod breaker;
mod budget;
mod certificate;
mod checks;
mod client_address;
mod compress;
mod connection;
mod cors;
mod direct;
mod doubt;
mod expectation;
mod fields;
pub mod flow;
mod forward;
mod forward_auth;
mod forwarded;
mod hedge;
mod hedging;
mod host;
mod identity;
mod jwt;
mod known;
mod message;
mod mirror;
mod normal;
mod offer;
mod patience;
mod payload;
mod places;
mod pool;
pub mod precedence;
mod progress;
mod proxy;
mod random;
mod record;
mod refusal;
mod replies;
mod route;
mod sending;
pub mod shed;
pub mod spans;
mod split;
mod table;
mod target;
mod tunnel;
mod unanswered;
mod upstream;
