//! Access: tokens, keys, scopes and origins, and what the HTTP APIs of several services share around their handlers.
//!
//! ```text
//!                 HTTP                                            gRPC, RESP
//!   origins: another site's page?  ── 403                             |
//!   guard:   which scope, whose token? ── tokens <────────────────────'
//!      |               `── 401, 403 (refusal)
//!   routes:  body read within its bound ──> handler of limiter, admin ──> reply
//! ```
//!
//! The services stand on this crate and never on one another: each brings its routes as
//! [`routes::ApiRoutes`], and the binary puts those of one listener together.
//!
//! API keys (`keys`) and JSON Web Tokens (`jwt`) are for the clients of a gateway, and open nothing here; tokens are for
//! who runs it.
//!
//! Deliberately absent: what a route does, and where tokens come from (the configuration).

pub mod guard;
pub mod json_body;
pub mod jwt;
pub mod keys;
pub mod openapi;
pub mod origins;
pub mod refusal;
pub mod reply;
pub mod routes;
pub mod schema;
pub mod sessions;
pub mod tokens;
