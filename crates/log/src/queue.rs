//! The queue of a partition's writer, bounded by bytes and fair between clients.
//!
//! A client may have four times as many bytes in the queue as are still free in it. One client alone gets to 4/5
//! of the queue and is told that it is full; with `n` busy clients each gets to 4/(4n + 1) of it, and there
//! is always room left for one that begins. (Choudhury and Hahne's dynamic threshold: it needs no list
//! of clients beyond those in the queue, and no share to configure. Their factor is 4 and not 1 because most
//! intakes have one large sender, such as a collector, for which a queue half empty is no reason to be refused.)
//!
//! Lines count until they are on the disk or refused, not only until they were taken from the queue.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::error::AppendError;
use crate::settings::{Durability, Fact, MAX_LINE_BYTES};

/// Whole lines that are kept together, in order.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The lines, each with its `\n`.
    pub bytes: Bytes,
    /// One for each line, in order.
    pub facts: Vec<Fact>,
    /// The client whose share of the queue they take.
    pub client: u64,
}

impl Lines {
    /// Whether they are as their facts say, and not too many.
    pub(crate) fn check(&self, limit: usize) -> Result<(), AppendError> {
        let bytes = self.bytes.len();
        if bytes > limit {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        let longest = self.facts.iter().map(|fact| fact.bytes as usize).max().unwrap_or(0);
        if longest > MAX_LINE_BYTES {
            return Err(AppendError::TooLarge { bytes: longest, limit: MAX_LINE_BYTES });
        }
        let described: u64 = self.facts.iter().map(|fact| u64::from(fact.bytes)).sum();
        let shortest = self.facts.iter().map(|fact| fact.bytes).min();
        if described != bytes as u64
            || shortest.is_none_or(|bytes| bytes == 0)
            || self.bytes.last() != Some(&b'\n')
        {
            return Err(AppendError::Misdescribed);
        }
        Ok(())
    }
}

/// What became of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first line; `None` if they only wait in memory.
    pub first_offset: Option<u64>,
    /// What is promised: as much as was asked for, or more.
    pub durability: Durability,
}

pub(crate) type AppendOutcome = Result<Appended, AppendError>;

#[derive(Debug)]
pub(crate) struct QueuedBatch {
    pub(crate) lines: Lines,
    pub(crate) durability: Durability,
    /// `None` if it was acknowledged when it came.
    pub(crate) reply: Option<oneshot::Sender<AppendOutcome>>,
}

impl QueuedBatch {
    /// What it takes of the queue.
    fn weight(&self) -> usize {
        weight(&self.lines)
    }
}

fn weight(lines: &Lines) -> usize {
    lines.bytes.len() + lines.facts.len() * size_of::<Fact>() + BATCH_BYTES
}

/// How much of the queue a client may have, for each byte that is free.
const SHARE: usize = 4;
/// What a batch takes beside its lines.
const BATCH_BYTES: usize = 256;
/// When a refused client should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<QueuedBatch>,
    bytes: usize,
    clients: HashMap<u64, usize>,
    closing: bool,
    troubled: bool,
    writer_waits: bool,
}

#[derive(Debug)]
pub(crate) struct AppendQueue {
    limit: usize,
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// What the writer has to do.
#[derive(Debug)]
pub(crate) enum Work {
    Write(Vec<QueuedBatch>),
    /// Nothing came in time.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

impl AppendQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Room for lines, which nobody else takes until they are pushed or this is dropped.
    pub(crate) fn admit(&self, lines: &Lines) -> Result<Admitted<'_>, AppendError> {
        let weight = weight(lines);
        let state = self.state();
        if state.closing {
            return Err(AppendError::Closing);
        }
        let own = state.clients.get(&lines.client).copied().unwrap_or(0);
        let free = self.limit.saturating_sub(state.bytes);
        if weight > free || own + weight > SHARE * (free - weight) {
            // A client that has nothing in the queue, or everything, is refused for lack of room and not for its
            // share.
            return Err(if own == 0 || own == state.bytes {
                AppendError::Full { retry_after: RETRY_AFTER }
            } else {
                AppendError::ShareExceeded { retry_after: RETRY_AFTER }
            });
        }
        Ok(Admitted { queue: self, state })
    }

    /// Takes what waits, at most `bytes` unless the first batch alone is longer; waits for `wait` at most.
    pub(crate) fn take(&self, bytes: usize, wait: Duration) -> Work {
        let mut state = self.state();
        if state.batches.is_empty() && !state.closing {
            state.writer_waits = true;
            let is_idle = |state: &mut QueueState| {
                state.writer_waits = true;
                state.batches.is_empty() && !state.closing
            };
            self.changed.wait_while_for(&mut state, is_idle, wait);
            state.writer_waits = false;
        }
        let mut taken = Vec::new();
        let mut total = 0;
        while let Some(batch) = state.batches.front() {
            total += batch.lines.bytes.len();
            if total > bytes && !taken.is_empty() {
                break;
            }
            taken.extend(state.batches.pop_front());
        }
        match (taken.is_empty(), state.closing) {
            (false, _) => Work::Write(taken),
            (true, true) => Work::Closed,
            (true, false) => Work::Nothing,
        }
    }

    /// Lets lines gather for a while; a closing queue waits for nothing.
    pub(crate) fn gather(&self, wait: Duration) {
        self.changed.wait_while_for(&mut self.state(), |state| !state.closing, wait);
    }

    /// Gives back the room of batches that are done with, and notes whether the disk takes lines.
    pub(crate) fn done(&self, batches: &[QueuedBatch], troubled: bool) {
        let mut state = self.state();
        for batch in batches {
            let weight = batch.weight();
            state.bytes -= weight;
            let client = batch.lines.client;
            let left = state.clients.get(&client).map_or(0, |own| own.saturating_sub(weight));
            if left == 0 {
                state.clients.remove(&client);
            } else {
                state.clients.insert(client, left);
            }
        }
        state.troubled = troubled;
    }

    /// Refuses lines from now on; the writer ends when it has written those that wait.
    pub(crate) fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
    }

    /// Bytes that wait or are being written, and whether the disk refused the last ones.
    pub(crate) fn fill(&self) -> (usize, bool) {
        let state = self.state();
        (state.bytes, state.troubled)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// Room in a queue for the lines that it was admitted with.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    queue: &'a AppendQueue,
    state: MutexGuard<'a, QueueState>,
}

impl Admitted<'_> {
    /// Queues these lines. Returns a receiver of the outcome, or `None` if the caller need not wait for it.
    pub(crate) fn push(
        self,
        lines: Lines,
        durability: Durability,
    ) -> Option<oneshot::Receiver<AppendOutcome>> {
        let Self { queue, mut state } = self;
        let (reply, outcome) = if durability == Durability::Memory && !state.troubled {
            (None, None)
        } else {
            let (reply, outcome) = oneshot::channel();
            (Some(reply), Some(outcome))
        };
        let weight = weight(&lines);
        state.bytes += weight;
        *state.clients.entry(lines.client).or_default() += weight;
        state.batches.push_back(QueuedBatch { lines, durability, reply });
        let wake = std::mem::take(&mut state.writer_waits);
        drop(state);
        if wake {
            queue.changed.notify_all();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(client: u64, bytes: usize) -> Lines {
        Lines { bytes: Bytes::from(vec![b'\n'; bytes - BATCH_BYTES]), facts: Vec::new(), client }
    }

    fn offer(
        queue: &AppendQueue,
        lines: Lines,
        durability: Durability,
    ) -> Result<Option<oneshot::Receiver<AppendOutcome>>, AppendError> {
        Ok(queue.admit(&lines)?.push(lines, durability))
    }

    fn fill(queue: &AppendQueue, client: u64) -> (usize, AppendError) {
        let mut taken = 0;
        loop {
            match offer(queue, lines(client, 1_000), Durability::Memory) {
                Ok(_) => taken += 1_000,
                Err(error) => return (taken, error),
            }
        }
    }

    const FULL: AppendError = AppendError::Full { retry_after: RETRY_AFTER };
    const SHARED: AppendError = AppendError::ShareExceeded { retry_after: RETRY_AFTER };

    #[test]
    fn a_client_that_fills_the_queue_leaves_room_for_another() {
        let queue = AppendQueue::new(120_000);
        assert_eq!(fill(&queue, 1), (96_000, FULL));
        assert_eq!(fill(&queue, 2), (19_000, SHARED));
        assert_eq!(fill(&queue, 1), (0, SHARED));
        assert_eq!(fill(&queue, 3), (4_000, SHARED));
        assert!(queue.fill().0 <= 120_000);
    }

    #[test]
    fn fault_30_a_queue_that_is_full_for_all_says_so() {
        let queue = AppendQueue::new(4_000);
        for client in 0..40 {
            if let Err(error) = offer(&queue, lines(client, 1_000), Durability::Memory) {
                assert_eq!((client, error), (3, FULL));
                return;
            }
        }
        panic!("the queue has no bound");
    }

    #[test]
    fn room_comes_back_when_lines_are_done() {
        let queue = AppendQueue::new(120_000);
        fill(&queue, 1);
        let Work::Write(batches) = queue.take(20_000, Duration::ZERO) else { panic!("nothing to write") };
        assert!(batches.len() > 10, "{}", batches.len());
        assert_eq!(fill(&queue, 1).0, 0, "what is being written still counts");
        queue.done(&batches, false);
        assert!(fill(&queue, 1).0 > 10_000);
    }

    #[test]
    fn a_closed_queue_hands_out_what_it_has_and_takes_no_more() {
        let queue = AppendQueue::new(10_000);
        assert!(offer(&queue, lines(1, 1_000), Durability::Fsync).unwrap().is_some());
        queue.close();
        assert_eq!(offer(&queue, lines(1, 1_000), Durability::Fsync).unwrap_err(), AppendError::Closing);
        assert!(matches!(queue.take(1, Duration::ZERO), Work::Write(batches) if batches.len() == 1));
        assert!(matches!(queue.take(1, Duration::ZERO), Work::Closed));
    }
}
