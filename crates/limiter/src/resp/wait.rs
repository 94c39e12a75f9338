//! A connection's wait for bytes, and what else may end it: a deadline, or the sweep of a drain.
//!
//! A busy connection waits once a command, so the wait costs what it must and no more: the timer is
//! moved only when it is set for later than the deadline or has fired too early, and neither the timer
//! nor the sweep is polled while it has nothing to say. Both hold the task's waker from their first poll,
//! and a task's waker stays the same.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BufMut;
use tidegate_net::drain::{Drain, Stage};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Sleep;

/// Bytes that one read takes at most.
pub(super) const READ_BYTES: usize = 16 << 10;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// So many bytes came; 0: the client has left.
    Received(usize),
    /// The deadline passed.
    Late,
    /// Idle connections are to be closed.
    Swept,
}

/// What may end a wait beside bytes. `W` is [`Drain::sweeping`].
pub(super) struct Waits<'a, W> {
    timer: Pin<&'a mut Sleep>,
    sweeping: Pin<&'a mut W>,
    drain: &'a Drain,
    /// Whether each was polled before.
    armed: bool,
    watching: bool,
}

impl<'a, W: Future<Output = ()>> Waits<'a, W> {
    pub(super) fn new(timer: Pin<&'a mut Sleep>, sweeping: Pin<&'a mut W>, drain: &'a Drain) -> Self {
        Self { timer, sweeping, drain, armed: false, watching: false }
    }

    /// Reads what is there to the end of `input`, or waits for it. A sweep that was told before
    /// (`swept`) does not end the wait again.
    pub(super) async fn receive<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        input: &mut Vec<u8>,
        deadline: Instant,
        swept: bool,
    ) -> io::Result<Event> {
        input.reserve(READ_BYTES);
        let mut limited = input.limit(READ_BYTES);
        let mut reading = pin!(stream.read_buf(&mut limited));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(received) = reading.as_mut().poll(cx) {
                return Poll::Ready(received.map(Event::Received));
            }
            if self.is_late(cx, deadline) {
                return Poll::Ready(Ok(Event::Late));
            }
            if !swept && self.is_swept(cx) {
                return Poll::Ready(Ok(Event::Swept));
            }
            Poll::Pending
        })
        .await
    }

    fn is_late(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        let deadline = deadline.into();
        let fired = self.timer.is_elapsed();
        if fired && self.timer.deadline() >= deadline {
            return true;
        }
        if fired || self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
            self.armed = false;
        }
        if self.armed {
            return false;
        }
        self.armed = true;
        // Unconstrained, because not being late must mean that the waker is in the timer wheel, and not
        // that the task has used up its share of this turn.
        pin!(tokio::task::unconstrained(self.timer.as_mut())).poll(cx).is_ready()
    }

    fn is_swept(&mut self, cx: &mut Context<'_>) -> bool {
        if self.watching && self.drain.stage() < Stage::Sweeping {
            return false;
        }
        self.watching = true;
        self.sweeping.as_mut().poll(cx).is_ready()
    }
}
