//! A stream of HTTP/2 that goes on in another protocol (RFC 8441): its bytes both ways, and how long its client may leave
//! those that are written to it.
//!
//! ```text
//!   TunnelIo ──> hyper's queue, a few pieces ──> Sending: hyper's future ──> the stream's window ──> socket
//!      waits for room: so long, then an error         outlives TunnelIo: so long, then the stream is reset
//! ```
//!
//! hyper's future cannot be told to give up: with its client's window closed it would wait for ever, and hold the
//! connection. It is dropped when the tunnel has been over for [`patience`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::clock::monotonic;
use crate::connection::{LazyTimer, Sweep};
use crate::http::activity::Activity;
use crate::http::config::MinimumRate;
use crate::stats::Cut;

/// The most that is handed to hyper at a time, and how many of these it and the protocol below may have.
const PIECE_BYTES: usize = 8 << 10;
const PIECES: u64 = 4;

/// How long a client at the minimum rate takes for what is queued.
fn patience(rate: MinimumRate) -> Duration {
    rate.allowance(PIECES * PIECE_BYTES as u64)
}

/// The stream, until the drain tells it the end.
pub(in crate::http) struct TunnelIo {
    stream: TokioIo<Upgraded>,
    sweep: Sweep,
    activity: Arc<Activity>,
    patience: Duration,
    /// Since when the client is waited for, to take what was written.
    since: Option<Instant>,
    timer: LazyTimer,
    /// Tells what sends its bytes that it is over.
    _lives: oneshot::Sender<()>,
}

impl TunnelIo {
    pub(in crate::http) fn new(
        stream: Upgraded,
        lives: oneshot::Sender<()>,
        sweep: Sweep,
        activity: Arc<Activity>,
        rate: MinimumRate,
    ) -> Self {
        Self {
            stream: TokioIo::new(stream),
            sweep,
            activity,
            patience: patience(rate),
            since: None,
            timer: LazyTimer::default(),
            _lives: lives,
        }
    }

    /// What was polled, unless the client has been waited for too long.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.since = None;
            return polled;
        }
        let since = *self.since.get_or_insert_with(monotonic);
        ready!(self.timer.poll(cx, since + self.patience));
        self.activity.stats().connections.cut(Cut::Write);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.sweep.poll(cx) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        // hyper reads a stream that its client gave up as one that has ended; only writing says that it is reset.
        if buffer.filled().len() == before
            && buffer.remaining() > 0
            && let Poll::Ready(Err(error)) = Pin::new(&mut this.stream).poll_flush(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        let polled = Pin::new(&mut this.stream).poll_write(cx, piece);
        this.in_time(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        this.in_time(cx, polled)
    }

    /// Ends this direction; the other one goes on.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.in_time(cx, polled)
    }
}

/// hyper's future that sends what is written to a tunnel, and ends in time when the tunnel is over. Dropped, it resets the
/// stream.
pub(super) struct Sending<F> {
    future: F,
    is_over: oneshot::Receiver<()>,
    /// Since when it is over.
    since: Option<Instant>,
    timer: LazyTimer,
    patience: Duration,
    _outbox: Arc<Outbox>,
}

impl<F> Sending<F> {
    pub(super) fn new(future: F, is_over: oneshot::Receiver<()>, outbox: Arc<Outbox>) -> Self {
        let patience = patience(outbox.rate());
        Self { future, is_over, since: None, timer: LazyTimer::default(), patience, _outbox: outbox }
    }
}

impl<F: Future<Output = ()> + Unpin> Future for Sending<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if Pin::new(&mut this.future).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let since = match this.since {
            Some(since) => since,
            None => {
                // It is never sent anything, and ends when its other half is dropped.
                ready!(Pin::new(&mut this.is_over).poll(cx)).unwrap_or_default();
                *this.since.insert(monotonic())
            }
        };
        this.timer.poll(cx, since + this.patience)
    }
}
