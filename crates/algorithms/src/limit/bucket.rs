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
//! When the limit or the burst is lowered, what is used is cut to the new burst, so that nobody waits longer than
//! a full bucket takes; the rest is kept beside it in units, and comes back into force if they are raised again before
//! the debt is gone. So what is lowered and restored gives nothing back. A state says under which interval and burst it
//! was written, for only then a raised burst is told from time that has passed, and a debt that is there from one of a
//! clock that went back (fault 9).
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

/// What is kept per key. Packed, because padding would make every state 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub struct Debt {
    /// Theoretical arrival time: when the bucket is full again.
    pub tat: Tick,
    /// Units in use that were above the burst when it was lowered.
    pub excess: u32,
    /// Burst under which `tat` was written; 0: not known, as an older version wrote it.
    pub burst: u32,
    /// The lower bytes of the interval: no window is longer than 2^53 ns.
    interval: [u8; INTERVAL_BYTES],
}

/// So many bytes of an interval are kept.
const INTERVAL_BYTES: usize = 7;
/// The longest interval that can be kept, in nanoseconds.
pub const MAX_INTERVAL: u64 = (1 << (8 * INTERVAL_BYTES)) - 1;

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
            State::Bucket(kept) if kept.interval() == self.interval => {
                let debt = { kept.tat }.since(now.tick);
                let excess = if debt == 0 { 0 } else { kept.excess };
                if kept.is_of(self.burst) {
                    if debt <= capacity {
                        return (debt, excess);
                    }
                    (debt, excess)
                } else {
                    self.shared(debt.min(kept.capacity()), excess)
                }
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

    /// What is in use under another burst, as debt below this one and as excess above it. Nothing is rounded: who
    /// meets both bursts in turn gets back what time brings.
    fn shared(&self, debt: u64, excess: u32) -> (u64, u32) {
        let (units, part) = (debt / self.interval + u64::from(excess), debt % self.interval);
        let above = (units + u64::from(part > 0)).saturating_sub(self.burst);
        ((units - above).saturating_mul(self.interval) + part, narrow(above))
    }

    fn write(&self, state: &mut State, now: Now, debt: u64, excess: u32) {
        if self.burst == 0 {
            return;
        }
        *state = State::Bucket(Debt::new(now.tick.plus(debt), self.interval, narrow(self.burst), excess));
    }
}

impl Debt {
    /// A debt that ends at `tat`, under this interval, at most [`MAX_INTERVAL`], and burst.
    #[must_use]
    pub fn new(tat: Tick, interval: u64, burst: u32, excess: u32) -> Self {
        let [kept @ .., _] = interval.min(MAX_INTERVAL).to_le_bytes();
        Self { tat, excess, burst, interval: kept }
    }

    /// Emission interval under which `tat` was written, in nanoseconds.
    #[must_use]
    pub fn interval(&self) -> u64 {
        let [a, b, c, d, e, f, g] = self.interval;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    /// Whether it was written under this burst, as far as is known.
    fn is_of(&self, burst: u64) -> bool {
        let own = u64::from(self.burst);
        own == burst || own == 0
    }

    /// The most that the bucket which wrote it can have owed.
    fn capacity(&self) -> u64 {
        match self.burst {
            0 => u64::MAX,
            burst => u64::from(burst).saturating_mul(self.interval()),
        }
    }

    pub(super) fn used(&self, now: Now) -> u64 {
        match { self.tat }.since(now.tick).min(self.capacity()) {
            0 => 0,
            debt => debt.div_ceil(self.interval().max(1)).saturating_add(self.excess.into()),
        }
    }
}
