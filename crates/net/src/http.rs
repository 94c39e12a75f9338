//! The HTTP server: hyper per core, with every wait bounded.
//!
//! ```text
//!   accept ─> DeadlineIo ─> hyper ─> Handle::handle(request, peer) ─> Reply
//!              |  idle, header and write deadlines      | RequestBody: bytes, time, rate
//!              └──────────── Activity ─────────────────┘
//! ```
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
//! Deliberately absent: routes and TLS. [`Server::serve_stream`] takes any byte stream, so a TLS
//! acceptor goes in front of it.

mod activity;
mod body;
mod config;
mod connection;
mod deadline;
mod http2;
mod reply;

use std::future::Future;
use std::net::SocketAddr;

pub use body::{BodyError, RequestBody};
pub use config::{BodyPace, HttpConfig, MinimumRate};
pub use connection::Server;
pub use reply::{Body, BoxError, Reply};

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
}
