//! How far a request's body has come on its way to an upstream, and why it ended early.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use thiserror::Error;
use tidegate_net::clock::monotonic;

use crate::response::refusal::Refusal;

/// No client is waited for.
const NOT_AWAITED: u64 = u64::MAX;

/// A request's body cannot be sent on, by the client's fault; its [`BodyProgress`] says why.
#[derive(Debug, Error)]
#[error("the request body ended early")]
pub(crate) struct PayloadError;

/// How far a request's body has come, for who waits for the reply to it.
#[derive(Debug)]
pub(crate) struct BodyProgress {
    opened: Instant,
    /// When some of it was last taken, in nanoseconds.
    last: AtomicU64,
    /// Since when more of it is waited for, from the client, in nanoseconds; [`NOT_AWAITED`] if it is not.
    awaited_since: AtomicU64,
    /// How long it was waited for before that, in nanoseconds.
    awaited: AtomicU64,
    /// Why it cannot be had.
    fault: Mutex<Option<Refusal>>,
}

impl BodyProgress {
    /// Of a body of which nothing was taken yet.
    pub(crate) fn new() -> Self {
        Self {
            opened: monotonic(),
            last: AtomicU64::new(0),
            awaited_since: AtomicU64::new(NOT_AWAITED),
            awaited: AtomicU64::new(0),
            fault: Mutex::default(),
        }
    }

    /// When the server last took some of it.
    pub(crate) fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.last.load(Relaxed))
    }

    /// Whether it is the client who is waited for.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited_since.load(Relaxed) != NOT_AWAITED
    }

    /// Nanoseconds in which the client was waited for.
    pub(crate) fn awaited(&self) -> u64 {
        let since = self.awaited_since.load(Relaxed);
        let now = if since == NOT_AWAITED { 0 } else { self.nanoseconds().saturating_sub(since) };
        self.awaited.load(Relaxed) + now
    }

    /// What the client did wrong, if that is why sending failed.
    pub(crate) fn fault(&self) -> Option<Refusal> {
        self.fault.lock().take()
    }

    pub(crate) fn took_some(&self) {
        let now = self.nanoseconds();
        self.last.store(now, Relaxed);
        let since = self.awaited_since.swap(NOT_AWAITED, Relaxed);
        if since != NOT_AWAITED {
            self.awaited.fetch_add(now.saturating_sub(since), Relaxed);
        }
    }

    pub(crate) fn awaits_more(&self) {
        if !self.is_awaited() {
            self.awaited_since.store(self.nanoseconds(), Relaxed);
        }
    }

    /// Nanoseconds since it was opened.
    fn nanoseconds(&self) -> u64 {
        u64::try_from(monotonic().duration_since(self.opened).as_nanos()).unwrap_or(NOT_AWAITED - 1)
    }

    pub(crate) fn failed(&self, refusal: Refusal) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        *self.fault.lock() = Some(refusal);
        Poll::Ready(Some(Err(PayloadError)))
    }
}
