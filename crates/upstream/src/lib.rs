//! Backends behind a proxy: which are usable, which is next, how one is reached.
//!
//! ```text
//!   group ──pick──> place in a backend ──connect──> socket
//!     ^                 |
//!     |                 `── given back on drop, with what the request told of the backend
//!     `── checks: up, down
//! ```
//!
//! What the gateway and the TCP edge share. The rules are functions in `algorithms::balance`; here is
//! the state that they are applied to, in atomics and short locks, shared by all cores.
//!
//! Nodes that check the same backends ([`checks`]) tell each other what they find ([`verdicts`]).
//!
//! Why a check failed is a value ([`failure`]), which the log and explanations say in words; lines that many would have at once are
//! written seldom ([`seldom`]).
//!
//! [`endpoint`] is the other way round: one place that a service sends something to, by HTTP.
//!
//! Deliberately absent: HTTP towards backends, pools of connections, health checks' protocols, the clock.

pub mod backend;
pub mod checks;
pub mod client_pair;
pub mod connect;
pub mod endpoint;
pub mod failure;
pub mod group;
pub mod seldom;
pub mod tls;
mod ttl;
pub mod verdicts;
