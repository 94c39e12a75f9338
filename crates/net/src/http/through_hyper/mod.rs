//! The long way: all of HTTP/1.1, and HTTP/2, by hyper.
//!
//! ```text
//!   HTTP/1.1: DeadlineIo ─> Front: whole heads beyond doubt ─> hyper ─> Connection::answer ─> Outgoing ─> hyper
//!   HTTP/2:   DeadlineIo ──────────────────────────────────> hyper ─> Turn: answers of one read together
//!                                                              ├────── Outgoing, watched by the Outbox
//!                                                              └────── TunnelIo: a stream in another protocol
//! ```

mod front;
mod http2;
mod outbox;
mod outgoing;
mod tunnel;
mod turn;

pub(super) use front::Front;
pub(super) use outbox::{Outbox, PIECE_BYTES};
pub(super) use outgoing::{Outgoing, charged};
pub(super) use tunnel::TunnelIo;
