//! HTTP/2 for the same [`Handle`]: one connection, many requests at once, every one of them bounded.
//!
//! | bound | value | what the client sees |
//! |---|---|---|
//! | requests at once on a connection | 256 | REFUSED_STREAM |
//! | header list, bytes | 16 KiB | 431, or GOAWAY for a flood of CONTINUATION |
//! | resets of requests not yet taken up (rapid reset) | 20 | GOAWAY |
//! | resets that its own mistakes provoke (MadeYouReset) | 64 | GOAWAY |
//! | bytes waiting to be sent, per request | 64 KiB | its own window closes |
//! | silence, answered by a ping | 20 s, then 20 s more | the connection ends |
//! | time without a request | the HTTP/1 idle timeout | GOAWAY, 10 s to take note |
//!
//! A drain needs no `connection: close` here: when the listeners close, GOAWAY tells the client which
//! of its requests are still answered and to send the others elsewhere, so none is lost.
//!
//! Deliberately absent: server push, CONNECT, and upgrading from HTTP/1.1 (RFC 9113 dropped it).

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep_until;

use super::activity::Activity;
use super::connection::Connection;
use super::server::Server;
use super::turn::{Collect, Turn};
use super::{Handle, Peer};
use crate::accept::Held;
use crate::clock::monotonic;
use crate::drain::Stage;
use crate::stats::Cut;

/// Most requests at once on a connection.
pub(super) const MAX_STREAMS: u32 = 256;
const MAX_HEADER_LIST_BYTES: u32 = 16 << 10;
const MAX_PENDING_RESETS: usize = 20;
const MAX_PROVOKED_RESETS: usize = 64;
const MAX_SEND_BYTES: usize = 64 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a client that was told to go may take to do so.
const LAST_WORDS: Duration = Duration::from_secs(10);

fn builder(executor: Collect) -> http2::Builder<Collect> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_PROVOKED_RESETS)
        .max_send_buf_size(MAX_SEND_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

impl<H: Handle> Server<H> {
    /// Serves one connection over any byte stream, such as one on which TLS has agreed on `h2`.
    pub async fn serve_http2_stream<S>(self, stream: S, peer: Peer, held: Held)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let gate = self.gate();
        let activity = Arc::new(Activity::new(monotonic(), Arc::clone(&gate.stats), peer.core));
        let connection = Arc::new(Connection::new(Arc::clone(&self.shared), Arc::clone(&activity), peer));
        let answering = Arc::downgrade(&connection);
        // In a box: hyper hands this future on several times before it is first polled, and what a
        // request holds while it is answered, some kilobytes, would be copied each time.
        let service = service_fn(move |request| Box::pin(Arc::clone(&connection).answer_incoming(request)));
        let mut turn = Turn::default();
        let protocol = builder(turn.executor()).serve_connection(TokioIo::new(stream), service);
        let mut protocol = std::pin::pin!(protocol);
        let mut closed = std::pin::pin!(gate.drain.reached(Stage::Closed));
        let idle_timeout = self.config().idle_timeout;
        let mut timer = std::pin::pin!(sleep_until((activity.idle_since() + idle_timeout).into()));
        let (mut draining, mut idle) = (false, false);
        loop {
            tokio::select! {
                biased;
                end = poll_fn(|cx| {
                    let end = protocol.as_mut().poll(cx);
                    if end.is_pending() {
                        turn.answer();
                    }
                    end
                }) => {
                    if let Err(error) = end {
                        tracing::debug!(%error, peer = %peer.address, "HTTP/2 connection ended early");
                    }
                    break;
                }
                () = closed.as_mut(), if !draining => {
                    draining = true;
                    protocol.as_mut().graceful_shutdown();
                }
                () = timer.as_mut(), if !draining => {
                    if idle {
                        break;
                    }
                    let now = monotonic();
                    // Each request that is being answered holds the connection, and so does the service;
                    // each reply that is being streamed holds its activity, and so do the two of us.
                    let busy = answering.strong_count() > 1 || Arc::strong_count(&activity) > 2;
                    let since = if busy { now } else { activity.idle_since() };
                    idle = since + idle_timeout <= now;
                    if idle {
                        activity.stats().cut(Cut::Idle);
                        protocol.as_mut().graceful_shutdown();
                    }
                    let next = if idle { now + LAST_WORDS } else { since + idle_timeout };
                    timer.as_mut().reset(next.into());
                }
            }
        }
        drop(held);
    }
}
