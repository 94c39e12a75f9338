//! The HTTP server: one thread per core, with every wait bounded.
//!
//! ```text
//!              connection/: accept, TLS, ALPN          in_one_piece/                     Handle
//!   socket ──> DeadlineIo ──────────────────────────> plain ─ answered where it lies ─> answer_at_once ┐
//!                |  one timer, by Activity:             |     as a Request ───────────> handle         │
//!                |  idle, head, stuck writes            |                                  Reply ──> send ──> socket
//!                |                                      | not simple: for good
//!                |                                      v                              Handle
//!                ├── HTTP/1.1 ──────────> through_hyper/front ─> hyper ─ RequestBody ─> handle ─ Reply ┐
//!                └── HTTP/2 ────────────> through_hyper/http2 ─> hyper ─ turn ────────> handle ─ Reply │
//!                                           bytes, time, rate          socket <── hyper <── outgoing, outbox
//! ```
//!
//! Nearly every request to a decision service arrives in one piece. What does not, or is not simple, goes through
//! hyper, and its connection with it; `framing.rs` judges the heads of both ways, and `connection.rs` has both
//! answered and counted alike.
//!
//! A service may answer a request in one piece where it lies, without a `Request` made of it
//! ([`Handle::answer_at_once`]); the reply is the same.
//!
//! | bound | default | what the client sees |
//! |---|---|---|
//! | request head, bytes | 64 KiB, 100 fields | 431 |
//! | request target, bytes | 8 KiB | 414 |
//! | request head, time from its first byte, the first one's from connecting | 10 s | the connection ends |
//! | time between requests | 75 s | the connection ends |
//! | request body, bytes | the service's choice | 413 |
//! | request body, time and rate | 30 s, 1 KiB/s after 5 s | 408 |
//! | response, rate at which the peer reads | 1 KiB/s after 10 s | the connection ends |
//!
//! Why not hyper's own header timer: it is armed anew for each request (an allocation and two
//! visits to the timer wheel) and cannot tell an idle connection from a slow head. [`deadline::DeadlineIo`]
//! arms one timer per connection and moves it only when it fires.
//!
//! A connection that the server ends is first half-closed and then read dry for a moment, so that
//! the client gets the 413 or 431 instead of a reset.
//!
//! A request whose framing or host is in doubt is refused before hyper or the service sees it, with 400
//! and the end of the connection (fault 32): `framing.rs` has the list. Refusals are problem documents; in HTTP/2 calls
//! of gRPC are refused in gRPC (`grpc.rs`), which is for services, too.
//!
//! A client that half-closes after its request gets the reply, if it is there within 10 s. A client that
//! has left looks the same until it is written to; its request is dropped then (fault 44).
//!
//! This page is about HTTP/1.1; HTTP/2, a second protocol behind the same [`Handle`], is in `through_hyper/http2.rs`.
//!
//! Accepting, and TLS, are in front of it, in [`crate::connection`]: any byte stream can be served.
//!
//! A service that accepts a client's offer to go on in another protocol has the connection: see `upgrade.rs`.
//!
//! Deliberately absent: routes.

mod activity;
mod body;
mod body_end;
mod config;
mod connection;
mod deadline;
mod encode;
mod framing;
mod grpc;
mod in_one_piece;
mod listener;
mod preface;
mod refused;
mod reply;
mod server;
mod through_hyper;
mod upgrade;

use std::future::Future;
use std::pin::Pin;

pub use body::{BodyError, RequestBody};
pub use config::{BodyPace, HttpConfig, MinimumRate};
pub use encode::{Answered, Head, Unwritten};
pub use grpc::GrpcCall;
pub use in_one_piece::Plain;
pub use reply::{Body, BoxError, EndsWithListener, Reply};
pub use server::Server;
pub use upgrade::{ByteStream, UpgradeOffer, Upgraded};

pub use crate::connection::Peer;

use http::Request;

/// A reply to come. It is in a box, so that what serves connections is compiled once, and what answers requests with its service.
pub type HandleFuture<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// A service: it answers requests.
///
/// One value serves all connections of all cores; it is dropped when the last of them ends. The
/// future is dropped when the client goes away in the middle (fault 44), so what a request holds
/// must come back on drop.
pub trait Handle: Send + Sync + 'static {
    /// Answers one request. Every outcome is a reply; an error page is one too.
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a>;

    /// Whether a request for this path is answered when the connection limit is reached.
    fn is_operational(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Whether it accepts offers to go on in another protocol ([`UpgradeOffer`]). Then what a client sends behind
    /// such a request waits for the reply, instead of being refused at once.
    fn may_upgrade(&self) -> bool {
        false
    }

    /// Answers a request that arrived whole, if that takes no waiting and is worth a way of its own:
    /// with the reply that [`Handle::handle`] would give, byte by byte. `None`: nothing has happened,
    /// nothing was written, and `handle` is asked.
    fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        let _ = (request, peer, reply);
        None
    }
}
