//! The HTTP server: one thread per core, with every wait bounded.
//!
//! ```text
//!                           ┌─ whole: a request in one piece ─┐
//!   accept ─> DeadlineIo ─>─┤    (what it will not judge)     ├─> Handle::handle ─> Reply
//!              |            └──────────> hyper ───────────────┘   RequestBody: bytes, time, rate
//!              └─ idle, header and write deadlines, by Activity
//! ```
//!
//! A service may answer a request in one piece where it lies, without a `Request` made of it
//! ([`Handle::answer_at_once`]); the reply is the same.
//!
//! | bound | default | what the client sees |
//! |---|---|---|
//! | request head, bytes | 64 KiB, 100 fields | 431 |
//! | request target, bytes | 8 KiB | 414 |
//! | request head, time from its first byte | 10 s | the connection ends |
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
//! What hyper decides on malformed requests (fault 32), as the tests pin it down: a head it cannot
//! parse, unlike `Content-Length`s, `Transfer-Encoding` that does not end in `chunked`, or any in
//! HTTP/1.0: 400 and close. `Content-Length` beside `Transfer-Encoding`: the length is removed, the
//! chunked body is read, and the connection closes after the reply (RFC 9112, 6.3). Bare LF ends a
//! line (RFC 9112, 2.2). A stricter reading is the gateway's to add before it forwards anything.
//!
//! This page is about HTTP/1.1; HTTP/2, a second protocol behind the same [`Handle`], is in `http2.rs`.
//!
//! TLS is in front of it, in [`crate::tls`]: [`Server::serve_stream`] takes any byte stream.
//!
//! Deliberately absent: routes.

mod activity;
mod body;
mod config;
mod connection;
mod deadline;
mod encode;
mod http2;
mod listener;
mod plain;
mod preface;
mod reply;
mod server;
mod turn;
mod whole;

use std::future::Future;
use std::net::SocketAddr;

pub use body::{BodyError, RequestBody};
pub use config::{BodyPace, HttpConfig, MinimumRate};
pub use encode::{Answered, Head, Unwritten};
pub use plain::Plain;
pub use reply::{Body, BoxError, Reply};
pub use server::Server;

use http::Request;

/// The other end of a connection, and where it is served.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The address that connected.
    pub address: SocketAddr,
    /// The core that serves it, below [`crate::runtime::Cores::count`].
    pub core: usize,
}

/// A service: it answers requests.
///
/// One value serves all connections of all cores; it is dropped when the last of them ends. The
/// future is dropped when the client goes away in the middle (fault 44), so what a request holds
/// must come back on drop.
pub trait Handle: Send + Sync + 'static {
    /// Answers one request. Every outcome is a reply; an error page is one too.
    fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> impl Future<Output = Reply> + Send;

    /// Answers a request that arrived whole, if that takes no waiting and is worth a way of its own:
    /// with the reply that [`Handle::handle`] would give, byte by byte. `None`: nothing has happened,
    /// nothing was written, and `handle` is asked.
    fn answer_at_once(&self, request: &Plain<'_>, peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        let _ = (request, peer, reply);
        None
    }
}
