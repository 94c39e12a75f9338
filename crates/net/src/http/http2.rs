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

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep_until;

use super::activity::Activity;
use super::connection::{Connection, Server};
use super::{Handle, Peer};
use crate::accept::{Held, accept};
use crate::clock::monotonic;
use crate::drain::Stage;
use crate::listen::Listeners;
use crate::runtime::Cores;
use crate::stats::Cut;

const MAX_STREAMS: u32 = 256;
const MAX_HEADER_LIST_BYTES: u32 = 16 << 10;
const MAX_PENDING_RESETS: usize = 20;
const MAX_PROVOKED_RESETS: usize = 64;
const MAX_SEND_BYTES: usize = 64 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a client that was told to go may take to do so.
const LAST_WORDS: Duration = Duration::from_secs(10);

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
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
    /// Serves `listeners` until the drain ends, to clients that speak HTTP/2 from the first byte (prior
    /// knowledge), as gRPC's do.
    pub fn start_http2(&self, cores: &Cores, listeners: Listeners) {
        let address = listeners.address();
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let server = self.clone();
            cores.spawn_on(core, async move {
                if let Err(error) = server.accept_http2(socket, core).await {
                    tracing::error!(%address, %error, "cannot watch a listening socket");
                }
            });
        }
    }

    async fn accept_http2(&self, socket: std::net::TcpListener, core: usize) -> io::Result<()> {
        accept(socket, self.gate(), core, |stream, address, held| {
            drop(tokio::spawn(self.clone().serve_http2_stream(stream, Peer { address, core }, held)));
        })
        .await
    }

    /// Serves one connection over any byte stream, such as one on which TLS has agreed on `h2`.
    pub async fn serve_http2_stream<S>(self, stream: S, peer: Peer, held: Held)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let gate = self.gate();
        let activity = Arc::new(Activity::new(monotonic(), Arc::clone(&gate.stats), peer.core));
        let connection = Arc::new(Connection::new(&self, Arc::clone(&activity), peer));
        let answering = Arc::downgrade(&connection);
        let service = service_fn(move |request| Arc::clone(&connection).answer(request));
        let mut protocol = std::pin::pin!(builder().serve_connection(TokioIo::new(stream), service));
        let mut closed = std::pin::pin!(gate.drain.reached(Stage::Closed));
        let idle_timeout = self.config().idle_timeout;
        let mut timer = std::pin::pin!(sleep_until((activity.idle_since() + idle_timeout).into()));
        let (mut draining, mut idle) = (false, false);
        loop {
            tokio::select! {
                biased;
                end = protocol.as_mut() => {
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
                    // Each request that is being answered holds the connection, and so does the service.
                    let busy = answering.strong_count() > 1;
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
