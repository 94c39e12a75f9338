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
//! When the limit is lowered, what is used is cut to the new burst, so that nobody waits longer than a full
//! bucket takes; the rest is kept beside it in units, and comes back into force if the limit is raised again
//! before the debt is gone. So a limit that is lowered and restored gives nothing back.
//!
//! The leaky bucket is the same arithmetic read as a queue: the debt found on arrival is how long
//! an admitted request waits for its turn.

use super::{State, Verdict, narrow};
use crate::time::{Now, Tick};

/// A bucket: `limit` units per window on average, `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Emission interval in nanoseconds, >= 1.
    pub interval: u64,
    /// Units that fit at once. 0 denies everything.
    pub burst: u64,
}

/// What is kept per key. Packed, because 4 bytes of padding would make every state 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub struct Debt {
    /// Theoretical arrival time: when the bucket is full again.
    pub tat: Tick,
    /// Emission interval under which `tat` was written, in nanoseconds.
    pub interval: u64,
    /// Units in use that were above the burst when the limit was lowered.
    pub excess: u32,
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
        let (debt, _) = self.settle(state, now);
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
        let (debt, excess) = self.settle(state, now);
        self.write(state, now, debt.saturating_add(cost.saturating_mul(self.interval)), excess);
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let (debt, excess) = self.settle(state, now);
        self.write(state, now, debt.saturating_sub(cost.saturating_mul(self.interval)), excess);
    }

    /// The debt at `now`, in nanoseconds, never above the capacity (fault 9); the excess, in units.
    fn settle(&self, state: &mut State, now: Now) -> (u64, u32) {
        let capacity = self.capacity();
        let (debt, excess) = match *state {
            State::Fresh => return (0, 0),
            // A burst of 0 denies everything and has no debt: what was used stays as it is.
            _ if self.burst == 0 => {
                if matches!(state, State::Concurrency(_)) {
                    *state = State::Fresh;
                }
                return (0, 0);
            }
            State::Bucket(kept) if { kept.interval } == self.interval => {
                let debt = { kept.tat }.since(now.tick);
                let excess = if debt == 0 { 0 } else { kept.excess };
                if debt <= capacity {
                    return (debt, excess);
                }
                (debt, excess)
            }
            ref other => {
                let used = other.used(now);
                (used.saturating_mul(self.interval), narrow(used.saturating_sub(self.burst)))
            }
        };
        let debt = debt.min(capacity);
        self.write(state, now, debt, excess);
        (debt, excess)
    }

    fn write(&self, state: &mut State, now: Now, debt: u64, excess: u32) {
        if self.burst == 0 {
            return;
        }
        *state = State::Bucket(Debt { tat: now.tick.plus(debt), interval: self.interval, excess });
    }
}

impl Debt {
    pub(super) fn used(&self, now: Now) -> u64 {
        match { self.tat }.since(now.tick) {
            0 => 0,
            debt => debt.div_ceil({ self.interval }.max(1)).saturating_add(self.excess.into()),
        }
    }
}
