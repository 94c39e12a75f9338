//! A byte stream whose waits end.
//!
//! Which deadline applies follows from what the connection is doing (see [`Phase`]) and whether
//! a write is stuck. They share one [`LazyTimer`].
//!
//! Invariants: a stuck write is judged by its own rate and hides the other deadlines; a busy
//! service is never cut from here (its body is bounded by [`super::RequestBody`], its own work by
//! itself); a half-closed connection is read for no longer than the linger time.
//!
//! A connection of HTTP/2 has no one thing that it is doing: here it is told its beginning and its stuck
//! writes only, and `http2.rs` has the rest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::{Activity, Phase};
use super::config::HttpConfig;
use crate::clock::monotonic;
use crate::connection::{LazyTimer, Linger};
use crate::stats::Cut;

/// Bytes that are read and dropped after the half-close.
const LINGER_BYTES: usize = 1024 * 1024;

/// What a client of HTTP/2 begins with at least: its preface, and the head of a SETTINGS frame.
const HTTP2_OPENING_BYTES: usize = 24 + 9;

/// The most that TLS takes without having sent it; a peer that reads at its pace gets the time for it.
const HELD_BY_TLS: u64 = 64 * 1024;

/// A stream, its deadlines and its one timer.
pub(super) struct DeadlineIo<S> {
    stream: S,
    /// Bytes that were put back: the next reads find them first.
    first: Bytes,
    activity: Arc<Activity>,
    config: Arc<HttpConfig>,
    timer: LazyTimer,
    /// On HTTP/2, how much of its opening is to come; then 0.
    http2_opening: Option<usize>,
    /// Set when the head of a request had to be waited for.
    head_since: Option<Instant>,
    stuck_write: Option<StuckWrite>,
    /// The peer has sent something.
    spoke: bool,
    /// The peer has sent its last byte.
    input_over: bool,
    /// Since when a reply, or more of it, is waited for in spite of that.
    half_closed_since: Option<Instant>,
    linger: Option<Linger>,
}

/// A reply that the peer does not read as fast as it is written.
#[derive(Clone, Copy, Debug)]
struct StuckWrite {
    since: Instant,
    written: u64,
}

impl<S> DeadlineIo<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, config: Arc<HttpConfig>) -> Self {
        Self {
            stream,
            first: Bytes::new(),
            activity,
            config,
            timer: LazyTimer::default(),
            http2_opening: None,
            head_since: None,
            stuck_write: None,
            spoke: false,
            input_over: false,
            half_closed_since: None,
            linger: None,
        }
    }

    /// The same, on which HTTP/2 is spoken from now on.
    pub(super) fn for_http2(self) -> Self {
        Self { http2_opening: Some(HTTP2_OPENING_BYTES), ..self }
    }

    /// Puts bytes back: the next reads find them first.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        self.first = match self.first.is_empty() {
            true => bytes,
            false => [bytes, std::mem::take(&mut self.first)].concat().into(),
        };
    }

    /// Reads what was put back.
    fn read_first(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..length]);
        self.first.advance(length);
        if self.first.is_empty() {
            // Gives the memory back.
            self.first = Bytes::new();
        }
    }

    /// The deadline of the present wait, and what its passing means.
    fn deadline(&mut self) -> Option<(Instant, Cut)> {
        let phase = self.activity.phase();
        if let Some(write) = self.stuck_write
            && phase != Phase::Leaving
        {
            return Some((write.since + self.config.write.allowance(write.written), Cut::Write));
        }
        match phase {
            _ if self.http2_opening == Some(0) => None,
            // Nothing was answered yet, so this is since the connection's start.
            _ if self.http2_opening.is_some() => {
                Some((self.activity.idle_since() + self.config.head_timeout, Cut::Header))
            }
            Phase::Busy | Phase::Leaving => None,
            // The first head is waited for from the connection's start, whether it begins or not.
            Phase::Idle if !self.spoke && self.config.head_timeout < self.config.idle_timeout => {
                Some((self.activity.idle_since() + self.config.head_timeout, Cut::Header))
            }
            Phase::Idle => Some((self.activity.idle_since() + self.config.idle_timeout, Cut::Idle)),
            Phase::Head => {
                let since = *self.head_since.get_or_insert_with(monotonic);
                Some((since + self.config.head_timeout, Cut::Header))
            }
        }
    }

    /// Pending until the deadline of the present wait, then the error that ends the connection.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some((deadline, cause)) = self.deadline() else { return Poll::Pending };
        ready!(self.timer.poll(cx, deadline));
        self.activity.stats().connections.cut(cause);
        self.activity.enter(Phase::Leaving);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn received(&mut self, bytes: usize) {
        if bytes == 0 {
            self.input_over = true;
        } else {
            self.head_begins();
            self.spoke = true;
            self.http2_opening = self.http2_opening.map(|left| left.saturating_sub(bytes));
        }
    }

    /// The first bytes of a request are there, so that from now on the connection waits for the rest of its head. Bytes
    /// that this stream reads itself need no call.
    pub(super) fn head_begins(&mut self) {
        if self.activity.phase() == Phase::Idle {
            self.activity.enter(Phase::Head);
            self.head_since = Some(self.activity.idle_since()).filter(|_| !self.spoke);
        }
    }

    /// For a request whose client has sent its last byte: ready when its reply has been waited for long
    /// enough. Whether the client still reads shows only when it is written to.
    pub(super) fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.half_closed_since.get_or_insert_with(monotonic);
        self.timer.poll(cx, since + self.config.half_closed)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for DeadlineIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if !this.first.is_empty() {
            this.read_first(buffer);
            this.received(buffer.filled().len() - before);
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(result) => {
                if result.is_ok() {
                    this.received(buffer.filled().len() - before);
                }
                Poll::Ready(result)
            }
            Poll::Pending => this.poll_deadline(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + AsyncRead + Unpin> DeadlineIo<S> {
    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(result, Poll::Ready(Ok(1..))) {
            // The client still reads, or the next read says that it has left.
            self.half_closed_since = None;
        }
        match (&result, &mut self.stuck_write) {
            (Poll::Ready(Ok(bytes)), Some(write)) => write.written += *bytes as u64,
            (Poll::Pending, stuck) => {
                stuck.get_or_insert_with(|| StuckWrite { since: monotonic(), written: 0 });
                return self.poll_deadline(cx).map(Err);
            }
            _ => {}
        }
        result
    }

    /// Ends what is written and goes on reading, unlike [`AsyncWrite::poll_shutdown`].
    pub(super) fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Ready(ended) => {
                self.stuck_write = None;
                Poll::Ready(ended)
            }
            Poll::Pending => self.flush_is_stuck(cx),
        }
    }

    /// TLS, or what is below, holds bytes that the peer does not take.
    fn flush_is_stuck(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stuck_write.get_or_insert_with(|| StuckWrite { since: monotonic(), written: HELD_BY_TLS });
        self.poll_deadline(cx).map(Err)
    }
}

impl<S: AsyncWrite + AsyncRead + Unpin> AsyncWrite for DeadlineIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.wrote(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when everything is written, which is when a stuck write is over and, after a
    /// reply, when idleness begins: it may not read again before something arrives, so this is
    /// where the idle deadline is armed.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Ready(flushed) => flushed?,
            Poll::Pending => return this.flush_is_stuck(cx),
        }
        this.stuck_write = None;
        if this.activity.phase() == Phase::Idle
            && let Poll::Ready(error) = this.poll_deadline(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(this.poll_half_close(cx))?;
        }
        this.activity.shut_down();
        if this.input_over || this.activity.phase() == Phase::Leaving {
            return Poll::Ready(Ok(()));
        }
        let begin = || Linger::begin(this.config.linger, LINGER_BYTES);
        let linger = this.linger.get_or_insert_with(begin);
        linger.poll(&mut this.stream, &mut this.timer, cx).map(Ok)
    }
}
