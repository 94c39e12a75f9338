//! Sliding window log: exact. Remembers when each unit was spent.
//!
//! A ring of (tick, units spent up to and including that tick). The running sum makes every
//! question O(log n) whatever the cost: units in the window are a difference of two sums, and the
//! wait is a binary search for the entry whose leaving frees enough. Leaving entries are dropped
//! from the front, O(1) amortised. Charges at the same tick share an entry.
//!
//! ```text
//!   forgotten | 3 @ t1 | 4 @ t2 | 9 @ t5      in window (now - window, now]: 9 - forgotten
//! ```
//!
//! An entry is 16 bytes and there are at most `limit` of them; [`crate::policy`] refuses a limit
//! whose log could pass [`MAX_ENTRIES`], with the advice to use a counter or a bucket instead.

use std::collections::VecDeque;

use super::{State, Verdict};
use crate::time::{Now, Tick};

/// Most entries of one key's log: 64 KiB.
pub const MAX_ENTRIES: u64 = 4_096;

/// Exactly `limit` units in any window of `window` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Units per window. 0 denies everything.
    pub limit: u64,
    /// Length of the window in nanoseconds, >= 1.
    pub window: u64,
}

/// What is kept per key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    /// Units of entries that have left the window.
    forgotten: u64,
    /// Window under which the log was last written, in nanoseconds.
    window: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogEntry {
    tick: Tick,
    /// Units spent up to and including this entry, counted from the log's beginning.
    total: u64,
}

impl SlidingLog {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let Some(log) = self.settle(state, now) else {
            let reset = if cost == 0 { 0 } else { self.window };
            return Verdict::allowed(self.limit, self.limit - cost, reset, self.window);
        };
        let used = log.in_window();
        let reset = log.expires().since(now.tick);
        let wanted = used.saturating_add(cost);
        if wanted <= self.limit {
            let reset = if cost == 0 { reset } else { self.window };
            let oldest = log.entries.front().map_or(now.tick, |entry| entry.tick);
            let next = oldest.plus(self.window).since(now.tick);
            Verdict::allowed(self.limit, self.limit - wanted, reset, next)
        } else {
            let wait = log.frees(wanted - self.limit).plus(self.window).since(now.tick);
            Verdict::denied(self.limit, self.limit.saturating_sub(used), wait, reset)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        self.settle(state, now);
        if !matches!(state, State::SlidingLog(_)) {
            *state = State::SlidingLog(Box::new(Log { window: self.window, ..Log::default() }));
        }
        if let State::SlidingLog(log) = state {
            log.push(now.tick, cost, self.limit);
        }
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        if let Some(log) = self.settle(state, now) {
            log.take_back(cost);
        }
    }

    /// Brings the log to `now`; `None` if nothing is in it.
    fn settle<'s>(&self, state: &'s mut State, now: Now) -> Option<&'s mut Log> {
        if !matches!(state, State::SlidingLog(_)) {
            let used = state.used(now).min(self.limit);
            if used == 0 {
                *state = State::Fresh;
                return None;
            }
            let mut log = Log { window: self.window, ..Log::default() };
            log.push(now.tick, used, self.limit);
            *state = State::SlidingLog(Box::new(log));
        }
        let State::SlidingLog(log) = state else { return None };
        log.no_later_than(now.tick);
        // First under the window that it was written under: what has expired stays expired when the
        // window grows, so that a store may drop it at `expires` (or let a TTL do so).
        log.forget(now.tick);
        log.window = self.window;
        log.forget(now.tick);
        Some(log)
    }
}

impl Log {
    /// When the newest entry leaves the window.
    pub(super) fn expires(&self) -> Tick {
        self.entries.back().map_or(Tick(0), |entry| entry.tick.plus(self.window))
    }

    pub(super) fn used(&self, now: Now) -> u64 {
        let gone = self.entries.partition_point(|entry| entry.tick.plus(self.window) <= now.tick);
        let forgotten = gone.checked_sub(1).map_or(self.forgotten, |last| self.entries[last].total);
        self.total() - forgotten
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<LogEntry>()
    }

    /// The log's content, oldest first, as (tick, units): for snapshots and other stores.
    pub fn entries(&self) -> impl Iterator<Item = (Tick, u64)> {
        let mut before = self.forgotten;
        self.entries.iter().map(move |entry| {
            let units = entry.total - before;
            before = entry.total;
            (entry.tick, units)
        })
    }

    /// The window in nanoseconds under which the log was last written.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// A log with this content, oldest first; entries out of order are moved up to their
    /// predecessor's tick.
    #[must_use]
    pub fn restore(window: u64, entries: impl IntoIterator<Item = (Tick, u64)>) -> Self {
        let mut log = Self { window, ..Self::default() };
        for (tick, units) in entries {
            log.push(tick, units, MAX_ENTRIES);
        }
        log
    }

    fn in_window(&self) -> u64 {
        self.total() - self.forgotten
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.forgotten, |entry| entry.total)
    }

    /// The tick of the entry with whose leaving at least `units` will have left.
    fn frees(&self, units: u64) -> Tick {
        let enough = self.forgotten.saturating_add(units);
        let index = self.entries.partition_point(|entry| entry.total < enough);
        self.entries.get(index).or(self.entries.back()).map_or(Tick(0), |entry| entry.tick)
    }

    fn forget(&mut self, now: Tick) {
        while let Some(oldest) = self.entries.front()
            && oldest.tick.plus(self.window) <= now
        {
            self.forgotten = oldest.total;
            self.entries.pop_front();
        }
    }

    /// Moves entries from the future to now: the store's clock went back.
    fn no_later_than(&mut self, now: Tick) {
        for entry in self.entries.iter_mut().rev() {
            if entry.tick <= now {
                break;
            }
            entry.tick = now;
        }
    }

    /// Appends, growing the ring by doubling but never past `limit` entries.
    fn push(&mut self, now: Tick, units: u64, limit: u64) {
        let total = self.total().saturating_add(units);
        if let Some(newest) = self.entries.back_mut()
            && newest.tick >= now
        {
            newest.total = total;
            return;
        }
        if self.entries.len() == self.entries.capacity() {
            let length = self.entries.len();
            let most = usize::try_from(limit.min(MAX_ENTRIES)).unwrap_or(usize::MAX);
            let wanted = (length * 2).max(4).min(most).max(length + 1);
            self.entries.reserve_exact(wanted - length);
        }
        self.entries.push_back(LogEntry { tick: now, total });
    }

    /// Removes the newest `units`.
    fn take_back(&mut self, units: u64) {
        let keep = self.total().saturating_sub(units).max(self.forgotten);
        while let Some(newest) = self.entries.pop_back() {
            let before = self.total();
            if before < keep {
                self.entries.push_back(LogEntry { total: keep.min(newest.total), ..newest });
                return;
            }
        }
    }
}
