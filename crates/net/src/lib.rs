//! Listeners, the clock, timers and drain: everything that touches the operating system's network.
//!
//! ```text
//!   listen ──> runtime (one thread and one reactor per core)
//!                 └─ connection: accept ── permits ──> tls ──> http ──> the service's `Handle`
//!                       └───── drain (start, ready, drain, stop) watches all of them
//! ```

pub mod accept;
pub mod buffers;
pub mod clock;
pub mod connection;
pub mod drain;
pub mod http;
pub mod limits;
pub mod listen;
pub mod permits;
pub mod proxied;
pub mod runtime;
pub mod stats;
pub mod tls;
pub mod untrusted_proxy;
