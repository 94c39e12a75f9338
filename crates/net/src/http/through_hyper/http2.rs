//! HTTP/2 for the same [`Handle`](crate::http::Handle): one connection, many requests at once, every one of them bounded.
//!
//! | bound | value | what the client sees |
//! |---|---|---|
//! | requests at once on a connection | 256 | REFUSED_STREAM |
//! | header list, bytes with 32 for each field (RFC 9113, 6.5.2) | those of an HTTP/1.1 head, 64 KiB | 431, counted and with a problem document; from twice as much on the library's own, which has none and ends in GOAWAY for a flood of CONTINUATION |
//! | resets of requests not yet taken up (rapid reset) | 20 | GOAWAY |
//! | resets that its own mistakes provoke (MadeYouReset) | 64 | GOAWAY |
//! | bytes received that nobody has read, per request, per connection | 128 KiB, 256 KiB | its window closes |
//! | a body that nobody wants, behind its reply | read on and dropped for 1 s | RST_STREAM with NO_ERROR (RFC 9113, 8.1) |
//! | bytes queued in the protocol, per request | two pieces of 16 KiB | the rest waits |
//! | bytes held for requests, bodies and replies, per connection | 4 MiB; see [`crate::buffers`] | 503 |
//! | a reply that is not taken | 1 KiB/s after 10 s, as on HTTP/1.1 | CANCEL; see [`super::outbox`] |
//! | a reply that is not taken to its end once its first bytes were | 42 s to 84 s | the connection ends |
//! | what is written to a stream in another protocol and not taken | 42 s, and as long again until the reset; see [`super::tunnel`] | CANCEL |
//! | the same of the connection's bytes | 1 KiB/s after 10 s | the connection ends |
//! | the preface, from connecting | the header deadline | the connection ends |
//! | silence, answered by a ping | 20 s, then 20 s more | the connection ends |
//! | time without a request | the HTTP/1 idle timeout | GOAWAY, 10 s to take note |
//!
//! A drain needs no `connection: close` here: when the listeners close, GOAWAY tells the client which
//! of its requests are still answered and to send the others elsewhere, so none is lost.
//!
//! Extended CONNECT (RFC 8441) is offered where the service accepts offers to go on in another protocol; `upgrade.rs` has
//! what becomes of it.
//!
//! A CONNECT that states the length of a body is reset, and no other request hears of it (`poll_on`): proxies have many clients' requests
//! on a connection.
//!
//! Deliberately absent: server push, CONNECT to another host, and upgrading from HTTP/1.1 (RFC 9113 dropped it).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep_until;

use super::outbox::{Outbox, PIECE_BYTES};
use super::turn::{Collect, MAX_STREAMS, Turn};
use crate::clock::monotonic;
use crate::drain::Stage;
use crate::http::HttpConfig;
use crate::http::activity::Activity;
use crate::http::connection::Connection;
use crate::http::deadline::DeadlineIo;
use crate::stats::Cut;

const MAX_PENDING_RESETS: usize = 20;
const MAX_PROVOKED_RESETS: usize = 64;
const MAX_SEND_BYTES: usize = PIECE_BYTES;
/// What a client may send of one body, and of all of them, that nobody has read.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a client that was told to go may take to do so.
const LAST_WORDS: Duration = Duration::from_secs(10);

fn builder(executor: Collect, config: &HttpConfig, may_upgrade: bool) -> http2::Builder<Collect> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(2 * config.max_head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_PROVOKED_RESETS)
        .max_send_buf_size(MAX_SEND_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    if may_upgrade {
        builder.enable_connect_protocol();
    }
    builder
}

impl Connection {
    /// Serves HTTP/2, until the connection ends.
    pub(in crate::http) async fn serve_http2<S>(self, io: DeadlineIo<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = Arc::new(self);
        let (outbox, peer) = (Arc::clone(connection.outbox()), connection.peer().clone());
        let activity = connection.shared_activity();
        let drain = connection.drain().clone();
        let mut watch =
            IdleWatch::new(Arc::clone(&outbox), connection.shared_activity(), connection.config());
        let mut turn = Turn::new(outbox);
        let builder = builder(turn.executor(), connection.config(), connection.may_upgrade());
        // In a box: hyper hands this future on several times before it is first polled, and what a
        // request holds while it is answered, some kilobytes, would be copied each time.
        let service = service_fn(move |request| Box::pin(Arc::clone(&connection).answer_incoming(request)));
        let protocol = builder.serve_connection(TokioIo::new(io.for_http2()), service);
        let mut protocol = std::pin::pin!(protocol);
        let mut closed = std::pin::pin!(drain.reached(Stage::Closed));
        let mut timer = std::pin::pin!(sleep_until(watch.next().into()));
        let mut draining = false;
        loop {
            tokio::select! {
                biased;
                end = poll_fn(|cx| {
                    let end = poll_on(protocol.as_mut(), &activity, cx);
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
                () = timer.as_mut() => {
                    match watch.look(monotonic()) {
                        OverdueCheck::Nothing => {}
                        OverdueCheck::Idle => protocol.as_mut().graceful_shutdown(),
                        OverdueCheck::Late => break,
                    }
                    timer.as_mut().reset(watch.next().into());
                }
            }
        }
    }
}

/// Polls hyper until it waits or the connection is over. hyper resets a CONNECT that states the length of a body, and ends there, as if the
/// connection had ended: all other requests on it would be dropped. Polled again, it goes on. A connection that is over was shut
/// down; one that its peer has reset may not be, and says that it is over as often as it is asked.
fn poll_on<F>(mut protocol: Pin<&mut F>, activity: &Activity, cx: &mut Context<'_>) -> Poll<hyper::Result<()>>
where
    F: Future<Output = hyper::Result<()>>,
{
    for _ in 0..MAX_STREAMS {
        let end = protocol.as_mut().poll(cx);
        if !matches!(end, Poll::Ready(Ok(()))) || activity.is_shut_down() {
            return end;
        }
    }
    Poll::Ready(Ok(()))
}

/// Looks at a connection from time to time: whether it is idle, and whether its peer takes what it asked for.
struct IdleWatch {
    outbox: Arc<Outbox>,
    activity: Arc<Activity>,
    idle_timeout: Duration,
    /// When the connection is idle for too long, as things stand.
    idle_at: Instant,
    /// It was told to go.
    told: bool,
    /// When it was last seen to be busy.
    busy_at: Instant,
    /// When the outbox begins its next turn.
    turn_at: Instant,
}

/// What was found.
enum OverdueCheck {
    Nothing,
    /// It has been idle for so long that it is told to go.
    Idle,
    /// It was told to go and has not, or it does not take what it asked for.
    Late,
}

impl IdleWatch {
    fn new(outbox: Arc<Outbox>, activity: Arc<Activity>, config: &HttpConfig) -> Self {
        let idle_timeout = config.idle_timeout;
        let opened = activity.idle_since();
        let turn_at = opened + outbox.patience();
        Self {
            outbox,
            activity,
            idle_timeout,
            idle_at: opened + idle_timeout,
            told: false,
            busy_at: opened,
            turn_at,
        }
    }

    /// When to look.
    fn next(&self) -> Instant {
        self.idle_at.min(self.turn_at)
    }

    fn look(&mut self, now: Instant) -> OverdueCheck {
        if now >= self.turn_at {
            if self.outbox.is_late() {
                self.activity.stats().connections.cut(Cut::Write);
                return OverdueCheck::Late;
            }
            self.turn_at = now + self.outbox.patience();
        }
        if now < self.idle_at {
            return OverdueCheck::Nothing;
        }
        if self.told {
            return OverdueCheck::Late;
        }
        if !self.outbox.is_idle() {
            self.busy_at = now;
        }
        self.idle_at = self.activity.idle_since().max(self.busy_at) + self.idle_timeout;
        if self.idle_at > now {
            return OverdueCheck::Nothing;
        }
        self.told = true;
        self.idle_at = now + LAST_WORDS;
        self.activity.stats().connections.cut(Cut::Idle);
        OverdueCheck::Idle
    }
}
