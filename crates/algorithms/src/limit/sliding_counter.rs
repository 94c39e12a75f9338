//! Sliding window counter: two fixed counters, the older one weighted by how much of it the sliding
//! window still covers. The approximation that Cloudflare described in 2017 ("How we built rate
//! limiting capable of scaling to millions of domains").
//!
//! ```text
//!        previous            current
//!   |---------------|-----------|---|
//!          |<-- sliding window->| now        estimate = previous x uncovered share + current
//! ```
//!
//! It assumes that the previous window's units were spread evenly, so it can admit up to about
//! twice the limit in the worst case and refuse early in the opposite one. The error against the
//! log is measured in `tests/it/sliding_counter_error.rs` and published in `docs/algorithms.md`.
//! The estimate is rounded up; since counts are whole, that is the exact comparison: no rounding
//! decides a request.

use super::{State, Verdict, narrow};
use crate::time::{Now, SECOND, Tick};

/// About `limit` units in any window of `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounter {
    /// Units per window. 0 denies everything.
    pub limit: u64,
    /// Length of the window in seconds, >= 1.
    pub seconds: u32,
}

/// What is kept per key. Packed, because 4 bytes of padding would make every state 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub struct SlidingCounts {
    /// Start of the current window.
    pub start: Tick,
    /// Units spent in the window before it.
    pub previous: u32,
    /// Units spent in the current window.
    pub current: u32,
    /// Length of a window, in seconds.
    pub seconds: u32,
}

impl SlidingCounter {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let counts = self.settle(state, now);
        let estimate = counts.estimate(now);
        let wanted = estimate.saturating_add(cost);
        if wanted <= self.limit {
            let reset = counts.reset(now, u64::from(counts.current) + cost);
            let remaining = self.limit - wanted;
            let current = narrow(u64::from(counts.current) + cost + remaining);
            let next = self.wait(&SlidingCounts { current, ..counts }, now, 1);
            Verdict::allowed(self.limit, remaining, reset, next)
        } else {
            let remaining = self.limit.saturating_sub(estimate);
            let reset = counts.reset(now, u64::from(counts.current));
            Verdict::denied(self.limit, remaining, self.wait(&counts, now, cost), reset)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let counts = self.settle(state, now);
        let current = counts.current.saturating_add(narrow(cost));
        *state = State::SlidingCounter(SlidingCounts { current, ..counts });
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let counts = self.settle(state, now);
        let from_current = narrow(cost).min(counts.current);
        let rest = narrow(cost) - from_current;
        *state = State::SlidingCounter(SlidingCounts {
            current: counts.current - from_current,
            previous: counts.previous.saturating_sub(rest),
            ..counts
        });
    }

    /// Nanoseconds until `cost` fits, which needs `cost <= limit`; in a limit of 0, until nothing is left.
    fn wait(&self, counts: &SlidingCounts, now: Now, cost: u64) -> u64 {
        let elapsed = counts.elapsed(now);
        let length = counts.length();
        let current = u64::from(counts.current);
        // Early enough in a window whose predecessor spent `weighted`, `rest` units must cover it.
        let covered_after = |rest: u64, weighted: u64| {
            let share = u128::from(rest) * u128::from(length) / u128::from(weighted.max(1));
            length - u64::try_from(share).unwrap_or(u64::MAX).min(length)
        };
        if current + cost <= self.limit {
            covered_after(self.limit - current - cost, u64::from(counts.previous)).saturating_sub(elapsed)
        } else {
            (length - elapsed) + covered_after(self.limit.saturating_sub(cost), current)
        }
    }

    /// The two counters as they stand in the window that `now` is in. What another window, another
    /// algorithm or a later time had counted is taken over as spent now, capped at the limit. After
    /// a lowered limit they can be above it; two windows later they are gone all the same.
    fn settle(&self, state: &mut State, now: Now) -> SlidingCounts {
        let length = u64::from(self.seconds) * SECOND;
        let start = Tick(now.tick.0 / length * length);
        let fresh = SlidingCounts { start, previous: 0, current: 0, seconds: self.seconds };
        if let State::SlidingCounter(counts) = *state
            && counts.seconds == self.seconds
            && { counts.start } <= start
        {
            let (previous, current) = match start.since(counts.start) {
                0 => (counts.previous, counts.current),
                behind if behind == length => (counts.current, 0),
                _ => (0, 0),
            };
            return SlidingCounts { previous, current, ..fresh };
        }
        let counts = SlidingCounts { current: narrow(state.used(now).min(self.limit)), ..fresh };
        *state = State::SlidingCounter(counts);
        counts
    }
}

impl SlidingCounts {
    /// When both counters have left the window: at once if they are 0.
    pub(super) fn expires(&self) -> Tick {
        match (self.previous, self.current) {
            (0, 0) => Tick(0),
            (_, 0) => self.start.plus(self.length()),
            _ => self.start.plus(2 * self.length()),
        }
    }

    pub(super) fn used(&self, now: Now) -> u64 {
        let length = self.length();
        match now.tick.since(self.start) / length {
            0 => self.estimate(now),
            1 => Self { start: self.start.plus(length), previous: self.current, current: 0, ..*self }
                .estimate(now),
            _ => 0,
        }
    }

    fn length(&self) -> u64 {
        u64::from(self.seconds) * SECOND
    }

    fn elapsed(&self, now: Now) -> u64 {
        now.tick.since(self.start).min(self.length())
    }

    /// Units in the sliding window, rounded up.
    fn estimate(&self, now: Now) -> u64 {
        let length = u128::from(self.length());
        let uncovered = u128::from(self.length() - self.elapsed(now));
        let weighted = (u128::from(self.previous) * uncovered).div_ceil(length);
        u64::try_from(weighted).unwrap_or(u64::MAX).saturating_add(u64::from(self.current))
    }

    /// Nanoseconds until nothing is left in the window, with `current` units in the newer counter.
    fn reset(&self, now: Now, current: u64) -> u64 {
        let left = self.length() - self.elapsed(now);
        match (current, self.previous) {
            (0, 0) => 0,
            (0, _) => left,
            _ => left + self.length(),
        }
    }
}
