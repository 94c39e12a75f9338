//! Replies of an HTTP/2 connection on their way out, and how long their client may leave them there.
//!
//! A client closes a request's window, or the connection's, and the reply waits: here, while hyper waits
//! for room in the window, or in hyper's protocol below, when there was room for its first byte.
//!
//! ```text
//!   answer ─> Delivery: waits for the window ──> piece of at most PIECE_BYTES ──> the protocol's queue ──> socket
//!             too long: the request is reset       too long there: the connection ends
//! ```
//!
//! A reply waits as long as [`crate::http::HttpConfig::write`] grants for what was taken of it. A client that
//! leaves one request alone loses that request; its others go on. A piece that is in the protocol's queue
//! can no longer be taken back, so it is the connection that ends when one stays there: after one to two
//! times [`Outbox::patience`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::monotonic;
use crate::connection::LazyTimer;
use crate::http::config::MinimumRate;
use crate::stats::{Cut, Stats};

/// The most of a reply that is handed on at a time.
pub(in crate::http) const PIECE_BYTES: usize = 16 << 10;

/// Pieces are counted by the turn in which they came, the present one or the one before it.
const TURNS: usize = 2;

/// What answers a request.
#[derive(Debug)]
enum Made {
    Reply(Arc<Delivery>),
    /// A stream in another protocol, and what tells that it is over.
    Tunnel(oneshot::Receiver<()>),
}

/// What an HTTP/2 connection has to send.
#[derive(Debug)]
pub(in crate::http) struct Outbox {
    rate: MinimumRate,
    stats: Arc<Stats>,
    core: usize,
    /// What was made last, until it is asked for.
    made: Mutex<Option<Made>>,
    /// The present turn, and how many pieces of each turn have not left.
    turn: AtomicUsize,
    pieces: [AtomicUsize; TURNS],
}

impl Outbox {
    pub(in crate::http) fn new(rate: MinimumRate, stats: Arc<Stats>, core: usize) -> Self {
        Self {
            rate,
            stats,
            core,
            made: Mutex::new(None),
            turn: AtomicUsize::new(0),
            pieces: Default::default(),
        }
    }

    /// Longer than a client at the minimum rate takes for what the protocol queues of one request: two
    /// pieces.
    pub(in crate::http) fn patience(&self) -> Duration {
        self.rate.allowance(2 * PIECE_BYTES as u64)
    }

    pub(super) fn rate(&self) -> MinimumRate {
        self.rate
    }

    /// Whether nothing is being answered or sent: whoever does has a share of this, and so do the
    /// connection, its watch and its turns.
    pub(in crate::http) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) <= 3
    }

    /// A reply begins. The task that polls the reply's future calls [`Outbox::made`] afterwards: one reply at a time,
    /// since all of a connection runs on one core.
    pub(in crate::http) fn begin(&self) -> Arc<Delivery> {
        let waiting = Waiting { since: Some(monotonic()), taken: 0, in_hand: 0 };
        let delivery = Arc::new(Delivery(Mutex::new(waiting)));
        *self.made.lock() = Some(Made::Reply(Arc::clone(&delivery)));
        delivery
    }

    /// The reply that the future polled last has begun, if it has. A tunnel that it has begun, and whose reply could not be
    /// sent, is forgotten.
    pub(in crate::http) fn made(&self) -> Option<Arc<Delivery>> {
        match self.made.lock().take()? {
            Made::Reply(delivery) => Some(delivery),
            Made::Tunnel(_) => None,
        }
    }

    /// A reply is made behind which its stream is a tunnel, for as long as what is returned lives. hyper executes what sends
    /// the tunnel's bytes before the poll in which this happens is over.
    pub(in crate::http) fn begin_tunnel(&self) -> oneshot::Sender<()> {
        let (lives, is_over) = oneshot::channel();
        *self.made.lock() = Some(Made::Tunnel(is_over));
        lives
    }

    /// What tells that the tunnel is over whose bytes the future sends that is executed now; `None`: it is no such future.
    pub(super) fn executed_tunnel(&self) -> Option<oneshot::Receiver<()>> {
        let mut made = self.made.lock();
        match made.take() {
            Some(Made::Tunnel(is_over)) => Some(is_over),
            other => {
                *made = other;
                None
            }
        }
    }

    /// Marks a piece for as long as it is there.
    pub(in crate::http) fn piece<T>(self: &Arc<Self>, bytes: Bytes, holds: T) -> Bytes
    where
        T: Send + 'static,
    {
        let turn = self.turn.load(Relaxed);
        self.pieces[turn].fetch_add(1, Relaxed);
        Bytes::from_owner(QueuedPiece { bytes, turn, outbox: Arc::clone(self), _holds: holds })
    }

    /// Begins the next turn, one patience after the last; true if a piece is left of the turn before.
    pub(in crate::http) fn is_late(&self) -> bool {
        let next = (self.turn.load(Relaxed) + 1) % TURNS;
        let late = self.pieces[next].load(Relaxed) > 0;
        if !late {
            self.turn.store(next, Relaxed);
        }
        late
    }
}

/// Bytes in the protocol's queue.
struct QueuedPiece<T> {
    bytes: Bytes,
    turn: usize,
    outbox: Arc<Outbox>,
    _holds: T,
}

impl<T> AsRef<[u8]> for QueuedPiece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> Drop for QueuedPiece<T> {
    fn drop(&mut self) {
        self.outbox.pieces[self.turn].fetch_sub(1, Relaxed);
    }
}

/// How far a reply has come.
#[derive(Debug)]
pub(in crate::http) struct Delivery(Mutex<Waiting>);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Since when the client is waited for; `None`: the service is.
    since: Option<Instant>,
    /// Bytes that were taken since.
    taken: u64,
    /// Bytes of the piece that is offered.
    in_hand: u64,
}

impl Delivery {
    /// The next piece is asked for: the one before it was taken.
    pub(in crate::http) fn taken(&self) {
        let mut waiting = self.0.lock();
        waiting.taken += std::mem::take(&mut waiting.in_hand);
    }

    /// A piece is offered.
    pub(in crate::http) fn offered(&self, bytes: usize) {
        let mut waiting = self.0.lock();
        waiting.in_hand = bytes as u64;
        waiting.since.get_or_insert_with(monotonic);
    }

    /// The service has nothing to offer yet.
    pub(in crate::http) fn is_being_made(&self) {
        *self.0.lock() = Waiting { since: None, taken: 0, in_hand: 0 };
    }

    fn deadline(&self, rate: MinimumRate) -> Option<Instant> {
        let Waiting { since, taken, .. } = *self.0.lock();
        since.map(|since| since + rate.allowance(taken))
    }
}

/// An answer and the delivery of its reply, which ends in time: dropped, hyper resets the request.
pub(in crate::http) struct Delivered<F> {
    answer: F,
    delivery: Option<Arc<Delivery>>,
    outbox: Arc<Outbox>,
    timer: LazyTimer,
}

impl<F> Delivered<F> {
    /// `delivery` is what `answer` has begun, if it was polled before.
    pub(in crate::http) fn new(answer: F, delivery: Option<Arc<Delivery>>, outbox: Arc<Outbox>) -> Self {
        Self { answer, delivery, outbox, timer: LazyTimer::default() }
    }
}

impl<F: Future<Output = ()> + Unpin> Future for Delivered<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { answer, delivery, outbox, timer } = self.get_mut();
        let polled = Pin::new(answer).poll(cx);
        if let Some(begun) = outbox.made() {
            *delivery = Some(begun);
        }
        if polled.is_ready() {
            return polled;
        }
        let deadline = delivery.as_ref().and_then(|delivery| delivery.deadline(outbox.rate));
        let Some(deadline) = deadline else { return Poll::Pending };
        ready!(timer.poll(cx, deadline));
        outbox.stats.core(outbox.core).connections.cut(Cut::Write);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_stays_is_late_after_one_turn_and_one_that_leaves_never() {
        let rate = MinimumRate { grace: Duration::from_secs(1), bytes_per_second: 1024 };
        let outbox = Arc::new(Outbox::new(rate, Arc::new(Stats::new(1, &["other"])), 0));
        assert_eq!(outbox.patience(), Duration::from_secs(33));
        for _ in 0..10 {
            drop(outbox.piece(Bytes::from_static(b"x"), ()));
            assert!(!outbox.is_late());
        }
        let stays = outbox.piece(Bytes::from_static(b"stays"), ());
        assert_eq!(&stays[..], b"stays");
        assert!(!outbox.is_late(), "it may have come a moment ago");
        assert!(outbox.is_late(), "a whole turn has passed since");
        drop(stays.slice(1..2));
        assert!(outbox.is_late());
        drop(stays);
        assert!(!outbox.is_late());
    }
}
