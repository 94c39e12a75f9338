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
//! log is measured in `tests/sliding_counter_error.rs` and published in `docs/algorithms.md`.
//! Comparisons are cross-multiplied in 128 bits: no rounding decides a request.

use super::{State, Verdict};
use crate::time::{Now, SECOND, Tick};

/// About `limit` units in any window of `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounter {
    /// Units per window. 0 denies everything.
    pub limit: u64,
    /// Length of the window in seconds, >= 1.
    pub seconds: u32,
}

/// What is kept per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
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
        if self.fits(&counts, now, cost) {
            let remaining = self.limit.saturating_sub(estimate.saturating_add(cost));
            let current = u64::from(counts.current) + cost;
            Verdict::allowed(self.limit, remaining, counts.reset(now, current))
        } else {
            let remaining = self.limit.saturating_sub(estimate);
            let reset = counts.reset(now, u64::from(counts.current));
            Verdict::denied(self.limit, remaining, self.wait(&counts, now, cost), reset)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let counts = self.settle(state, now);
        let current = counts.current.saturating_add(narrow(cost));
        *state = State::SlidingCounter(Counts { current, ..counts });
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let counts = self.settle(state, now);
        let from_current = narrow(cost).min(counts.current);
        let rest = narrow(cost) - from_current;
        *state = State::SlidingCounter(Counts {
            current: counts.current - from_current,
            previous: counts.previous.saturating_sub(rest),
            ..counts
        });
    }

    /// Whether previous x (length - elapsed) + (current + cost) x length <= limit x length.
    fn fits(&self, counts: &Counts, now: Now, cost: u64) -> bool {
        let length = u128::from(counts.length());
        let uncovered = u128::from(counts.length() - counts.elapsed(now));
        let spent = u128::from(counts.current) + u128::from(cost);
        u128::from(counts.previous) * uncovered + spent * length <= u128::from(self.limit) * length
    }

    /// Nanoseconds until `cost` fits, which needs `cost <= limit`.
    fn wait(&self, counts: &Counts, now: Now, cost: u64) -> u64 {
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
            (length - elapsed) + covered_after(self.limit - cost, current)
        }
    }

    /// The two counters as they stand in the window that `now` is in.
    fn settle(&self, state: &State, now: Now) -> Counts {
        let length = u64::from(self.seconds) * SECOND;
        let start = Tick(now.tick.0 / length * length);
        let fresh = Counts { start, previous: 0, current: 0, seconds: self.seconds };
        match state {
            State::SlidingCounter(counts) if counts.seconds == self.seconds => {
                let ahead = counts.start.since(start);
                let behind = start.since(counts.start);
                if ahead > length {
                    Counts { current: narrow(state.used(now).min(self.limit)), ..fresh }
                } else if ahead > 0 || behind == 0 {
                    *counts
                } else if behind == length {
                    Counts { previous: counts.current, ..fresh }
                } else {
                    fresh
                }
            }
            other => Counts { current: narrow(other.used(now).min(self.limit)), ..fresh },
        }
    }
}

impl Counts {
    /// When both counters have left the window.
    pub(super) fn expires(&self) -> Tick {
        self.start.plus(2 * self.length())
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

/// Costs and limits are bounded at a billion when a policy is loaded.
fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
