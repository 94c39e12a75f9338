//! Token and leaky bucket as the Generic Cell Rate Algorithm (ITU-T I.371, annex A): one timestamp.
//!
//! The theoretical arrival time (TAT) is when the bucket will be full again; `TAT - now` is the
//! debt. A unit costs one emission interval `T = ceil(window / limit)` nanoseconds of debt, and
//! the debt may not pass `burst x T`.
//!
//! ```text
//!        now          TAT                    now + burst x T
//!   ------|------------|---------------------------|------> time
//!         |<-- debt -->|<-- what can be spent ---->|
//! ```
//!
//! `T` is rounded up, so the long-run rate is at most the stated one and at most 1 ns per unit
//! below it: 0.1 % at a million per second. Rounding down would admit more than the limit.
//!
//! The leaky bucket is the same arithmetic read as a queue: the debt found on arrival is how long
//! an admitted request waits for its turn.

use super::{State, Verdict};
use crate::time::{Now, Tick};

/// A bucket: `limit` units per window on average, `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Emission interval in nanoseconds, >= 1.
    pub interval: u64,
    /// Units that fit at once. 0 denies everything.
    pub burst: u64,
}

/// What is kept per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// Theoretical arrival time: when the bucket is full again.
    pub tat: Tick,
    /// Emission interval under which `tat` was written, in nanoseconds.
    pub interval: u64,
}

impl Bucket {
    /// `limit` units per `window` nanoseconds, `burst` at once. A limit of 0 denies everything.
    #[must_use]
    pub fn new(limit: u64, burst: u64, window: u64) -> Self {
        let burst = if limit == 0 { 0 } else { burst };
        Self { interval: window.div_ceil(limit.max(1)).max(1), burst }
    }

    /// The most that can be spent at once.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.burst
    }

    /// Debt of an empty bucket, in nanoseconds.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.burst.saturating_mul(self.interval)
    }

    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let debt = self.settle(state, now);
        let capacity = self.capacity();
        let wanted = debt.saturating_add(cost.saturating_mul(self.interval));
        if wanted <= capacity {
            let left = capacity - wanted;
            // The unit that is coming back has the rest of `left` already.
            let next = self.interval - left % self.interval;
            Verdict::allowed(self.burst, left / self.interval, wanted, next)
        } else {
            Verdict::denied(self.burst, (capacity - debt) / self.interval, wanted - capacity, debt)
        }
    }

    pub(super) fn check_in_turn(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let verdict = self.check(state, now, cost);
        let own = cost.saturating_mul(self.interval);
        let delay = if verdict.allowed && cost > 0 { verdict.reset - own } else { 0 };
        Verdict { delay, ..verdict }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let debt = self.settle(state, now);
        self.write(state, now, debt.saturating_add(cost.saturating_mul(self.interval)));
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let debt = self.settle(state, now);
        self.write(state, now, debt.saturating_sub(cost.saturating_mul(self.interval)));
    }

    /// The debt at `now`, in nanoseconds, never above the capacity (fault 9).
    fn settle(&self, state: &mut State, now: Now) -> u64 {
        let capacity = self.capacity();
        let debt = match &*state {
            State::Fresh => return 0,
            State::Bucket(debt) if debt.interval == self.interval => {
                let debt = debt.tat.since(now.tick);
                if debt <= capacity {
                    return debt;
                }
                debt
            }
            other => other.used(now).saturating_mul(self.interval),
        };
        let debt = debt.min(capacity);
        self.write(state, now, debt);
        debt
    }

    fn write(&self, state: &mut State, now: Now, debt: u64) {
        *state = State::Bucket(Debt { tat: now.tick.plus(debt), interval: self.interval });
    }
}

impl Debt {
    pub(super) fn used(&self, now: Now) -> u64 {
        self.tat.since(now.tick).div_ceil(self.interval.max(1))
    }
}
