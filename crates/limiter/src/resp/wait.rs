//! A connection's wait for bytes, and what else may end it: a deadline, or the sweep of a drain.

use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use bytes::BufMut;
use tidegate_net::connection::{LazyTimer, Sweep};
use tidegate_net::drain::Drain;
use tokio::io::{AsyncRead, AsyncReadExt};

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

/// What may end a wait beside bytes.
pub(super) struct Waits {
    timer: LazyTimer,
    sweep: Sweep,
}

impl Waits {
    pub(super) fn new(drain: Drain) -> Self {
        Self { timer: LazyTimer::default(), sweep: Sweep::new(drain) }
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
            if self.timer.poll(cx, deadline).is_ready() {
                return Poll::Ready(Ok(Event::Late));
            }
            if !swept && self.sweep.poll(cx) {
                return Poll::Ready(Ok(Event::Swept));
            }
            Poll::Pending
        })
        .await
    }
}
