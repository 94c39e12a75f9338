//! Routes: one form of what a request asks for, the route that takes it, and what the route does before it is forwarded.
//!
//! ```text
//!   client_address ─┐
//!   host ───────────┼──> normal ──> table ──> route ──┬── shed    503 while this process is late
//!   target ─────────┘    one form   which   in force  ├── cors    preflights, and which scripts may read replies
//!                        or 400     route             ├── split   which of the route's upstreams
//!                                                     └── hedge   when a second server is asked
//! ```
//!
//! `precedence` shows the order of the table to people. What a route may say stands in `config/`.

pub(crate) mod client_address;
pub(crate) mod cors;
pub(crate) mod hedge;
pub(crate) mod host;
pub(crate) mod normal;
pub mod precedence;
pub(crate) mod route;
pub mod shed;
pub(crate) mod split;
pub(crate) mod table;
pub(crate) mod target;
