//! Servers: an upstream in force, the connections to its servers, and whether they are asked at all.
//!
//! ```text
//!   attempt ──> upstream ──┬── breaker, adaptive   is it asked, and how much at once? budget: how often again?
//!                          └── which server ──> pool ── a connection that waits
//!                                                │
//!                                                └── connection ── a new one ── refused by its certificate: certificate
//!   checks ── connections of their own ──> health, which the choice of a server reads
//! ```
//!
//! The choice of a server and the times of checks are `tidegate_upstream`'s, which the edge uses as well.

pub(crate) mod adaptive;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod certificate;
pub(crate) mod checks;
pub(crate) mod connection;
pub(crate) mod pool;
pub(crate) mod upstream;
