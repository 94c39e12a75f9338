//! Forwarding: from an admitted request to the head of a server's reply.
//!
//! ```text
//!   fields, forwarded, offer ──> message ──> forward ──> sending ──> attempt ──┬── direct: without hyper ──> doubt ──> reply
//!   what servers are told          ^         breakers,   the next    one try   └── hyper ──────────────────────^
//!                                  │         fallback    server        │
//!   payload ── the body ───────────┘            ^          ^           └── no reply: unanswered ── may it be sent again? ──┐
//!   progress, expectation                       │          hedging: a second server when the first is late                │
//!                                               └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What came of a request is its `arrival`; `patience` is the one timer of a direct connection.
//! Beside that way: `mirror` sends a copy to a second upstream, and `tunnel` goes on in another protocol once a server has agreed.
//! The connections are those of `servers/`; what becomes of a reply is `response/`.

pub(crate) mod arrival;
pub(crate) mod attempt;
pub(crate) mod direct;
pub(crate) mod doubt;
pub(crate) mod expectation;
pub(crate) mod fields;
pub(crate) mod forward;
pub(crate) mod forwarded;
pub(crate) mod hedging;
pub(crate) mod message;
pub(crate) mod mirror;
pub(crate) mod offer;
pub(crate) mod patience;
pub(crate) mod payload;
pub(crate) mod progress;
pub(crate) mod sending;
pub(crate) mod tunnel;
pub(crate) mod unanswered;
