//! Responses: what a client is answered, whoever made it.
//!
//! ```text
//!   a phase refuses ── refusal ────────────────┐
//!   the route replies itself ── replies ───────┼──> answer: the reply, its route, what is held ──> compress/ ──> client
//!   a server's reply ── replies ── body ───────┘
//! ```
//!
//! `body` holds the server's connection until the last byte has passed. A refusal is a problem document (RFC 9457) with the phase
//! that made it.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod compress;
pub(crate) mod refusal;
pub(crate) mod replies;
