//! Limits: what a key may spend, decided from (state, cost, now).
//!
//! ```text
//!              settle                check                  charge | refund
//!   State  ------------->  State  ----------->  Verdict  ------------------->  State
//!   as stored, maybe of    as this limit         allowed, remaining,
//!   an older limit         keeps it, at `now`    wait, reset
//! ```
//!
//! A [`Limit`] is a checked policy's arithmetic; a [`State`] is what a store keeps for one key.
//! [`Limit::check`] settles the state and answers without spending, [`Limit::charge`] spends. They
//! are apart because a request may meet several limits: all of them are checked first, and either
//! all are charged or none (fault 16).
//!
//! Invariants:
//! - integers only; every product fits, because [`crate::policy`] bounds its factors when a policy
//!   is loaded (fault 14);
//! - a state says under which parameters it was written. When a limit changes, what a key has used
//!   is kept, capped at the new quota: neither a free refill nor a lock-out;
//! - a state from the future (a store's clock jumped back, fault 9) never waits longer than one
//!   fresh full charge would;
//! - a denied request can be repeated after exactly [`Wait::For`] and is then allowed, unless
//!   someone else spent meanwhile.
//!
//! Deliberately absent: clocks, keys, locks, serialisation. Stores have those.

pub mod bucket;
pub mod calendar;
pub mod concurrency;
pub mod fixed_window;
pub mod sliding_counter;
pub mod sliding_log;

use crate::time::{Now, Tick};
pub use bucket::Bucket;
pub use calendar::Calendar;
pub use concurrency::{PermitId, Slots};
pub use fixed_window::FixedWindow;
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;

/// A checked limit. Build one through [`crate::policy`], which refuses values out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Refills steadily, allows bursts (GCRA).
    TokenBucket(Bucket),
    /// Drains steadily; an admitted request is told how long to wait for its turn (GCRA).
    LeakyBucket(Bucket),
    /// Counts in windows aligned to the epoch.
    FixedWindow(FixedWindow),
    /// Exact: remembers when each unit was spent.
    SlidingLog(SlidingLog),
    /// Approximates the log with two counters.
    SlidingCounter(SlidingCounter),
    /// Permits that are held, and given back or lapse.
    Concurrency(Slots),
    /// Counts in days or months of a time zone.
    Calendar(Calendar),
}

/// What a store keeps for one key under one policy: 24 bytes, plus a heap block for the two
/// algorithms whose state grows with use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing spent.
    #[default]
    Fresh,
    /// Of a token or leaky bucket.
    Bucket(bucket::Debt),
    /// Of a fixed window.
    FixedWindow(fixed_window::WindowCount),
    /// Of a sliding counter.
    SlidingCounter(sliding_counter::SlidingCounts),
    /// Of a calendar quota.
    Calendar(calendar::CalendarCount),
    /// Of a sliding log.
    SlidingLog(Box<sliding_log::Log>),
    /// Of a concurrency limit.
    Concurrency(Box<concurrency::Permits>),
}

/// How long until the same request would be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// It is allowed now.
    None,
    /// Nanoseconds, > 0. For a concurrency limit this is the latest moment: permits may come back
    /// sooner.
    For(u64),
    /// It can never be allowed: the cost exceeds the quota, or the quota is 0.
    Never,
}

/// One limit's answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the limit has room for the cost.
    pub allowed: bool,
    /// The most that can be spent at once: burst of a bucket, quota of a window, number of permits.
    pub limit: u64,
    /// What could still be spent right now; when allowed, after this request's cost.
    pub remaining: u64,
    /// Time until the same request would be allowed.
    pub wait: Wait,
    /// Nanoseconds until the whole quota is available again, if nothing more is spent.
    pub reset: u64,
    /// Nanoseconds that an admitted request should be held back: > 0 only in a leaky bucket.
    pub delay: u64,
    /// When allowed: nanoseconds until a unit beyond `remaining` comes back, if all of `remaining` is spent
    /// now. Until then no more than `remaining` can be spent, in whatever order. When denied, 0. Under a
    /// concurrency limit it means nothing: permits may be released at any time.
    pub next: u64,
}

impl Limit {
    /// The most that can be spent at once.
    #[must_use]
    pub fn quota(&self) -> u64 {
        match self {
            Self::TokenBucket(limit) | Self::LeakyBucket(limit) => limit.quota(),
            Self::FixedWindow(limit) => limit.limit,
            Self::SlidingLog(limit) => limit.limit,
            Self::SlidingCounter(limit) => limit.limit,
            Self::Concurrency(limit) => limit.limit,
            Self::Calendar(limit) => limit.limit,
        }
    }

    /// Answers for `cost` units at `now` without spending them.
    ///
    /// It writes to `state` only what any later decision would make of it: units that have come
    /// back are forgotten, and a state of another limit or of the future is taken over. A store
    /// may keep that or not, except that after a denial it must, for the wait to hold.
    ///
    /// A cost of 0 asks for nothing and is always allowed: it reads what remains. A cost above the
    /// quota is never allowed, and a quota of 0 denies everything.
    #[must_use]
    pub fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let possible = cost <= self.quota();
        let verdict = self.room(state, now, if possible { cost } else { 0 });
        match (cost, possible) {
            // What is in use may be above a quota that was lowered: then nothing comes back before the wait.
            (0, _) if !verdict.allowed => {
                let next = if let Wait::For(wait) = verdict.wait { wait } else { 0 };
                Verdict { allowed: true, wait: Wait::None, next, ..verdict }
            }
            (0, _) => verdict,
            (_, true) => verdict,
            (_, false) => Verdict { allowed: false, wait: Wait::Never, next: 0, ..verdict },
        }
    }

    fn room(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        match self {
            Self::TokenBucket(limit) => limit.check(state, now, cost),
            Self::LeakyBucket(limit) => limit.check_in_turn(state, now, cost),
            Self::FixedWindow(limit) => limit.check(state, now, cost),
            Self::SlidingLog(limit) => limit.check(state, now, cost),
            Self::SlidingCounter(limit) => limit.check(state, now, cost),
            Self::Concurrency(limit) => limit.check(state, now, cost),
            Self::Calendar(limit) => limit.check(state, now, cost),
        }
    }

    /// Spends `cost` units. Call it only after [`Limit::check`] allowed the same cost at the same
    /// `now`. `permit` names what a concurrency limit hands out; other limits ignore it.
    pub fn charge(&self, state: &mut State, now: Now, cost: u64, permit: PermitId) {
        if cost == 0 {
            return;
        }
        match self {
            Self::TokenBucket(limit) | Self::LeakyBucket(limit) => limit.charge(state, now, cost),
            Self::FixedWindow(limit) => limit.charge(state, now, cost),
            Self::SlidingLog(limit) => limit.charge(state, now, cost),
            Self::SlidingCounter(limit) => limit.charge(state, now, cost),
            Self::Concurrency(limit) => limit.charge(state, now, cost, permit),
            Self::Calendar(limit) => limit.charge(state, now, cost),
        }
    }

    /// Gives back up to `cost` units that were spent and have not yet come back by themselves.
    ///
    /// A refund right after a charge restores what was there. A late one may return units that
    /// time has already returned, at most `cost` of them, and never more than is in use. Permits
    /// are not refunded but released.
    pub fn refund(&self, state: &mut State, now: Now, cost: u64) {
        match self {
            Self::TokenBucket(limit) | Self::LeakyBucket(limit) => limit.refund(state, now, cost),
            Self::FixedWindow(limit) => limit.refund(state, now, cost),
            Self::SlidingLog(limit) => limit.refund(state, now, cost),
            Self::SlidingCounter(limit) => limit.refund(state, now, cost),
            Self::Calendar(limit) => limit.refund(state, now, cost),
            Self::Concurrency(_) => {}
        }
    }
}

impl State {
    /// When this state says no more than an absent one would: it may then be forgotten.
    #[must_use]
    pub fn expires(&self) -> Tick {
        match self {
            Self::Fresh => Tick(0),
            Self::Bucket(debt) => debt.tat,
            Self::FixedWindow(count) => count.expires(),
            Self::SlidingCounter(counts) => counts.expires(),
            Self::Calendar(count) => count.expires(),
            Self::SlidingLog(log) => log.expires(),
            Self::Concurrency(permits) => permits.expires(),
        }
    }

    /// Units in use at `now`, under the parameters with which the state was written. This is what
    /// a changed limit takes over.
    #[must_use]
    pub fn used(&self, now: Now) -> u64 {
        match self {
            Self::Fresh | Self::Concurrency(_) => 0,
            Self::Bucket(debt) => debt.used(now),
            Self::FixedWindow(count) => count.used(now),
            Self::SlidingCounter(counts) => counts.used(now),
            Self::Calendar(count) => count.used(now),
            Self::SlidingLog(log) => log.used(now),
        }
    }

    /// Bytes on the heap beside the state itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingLog(log) => log.heap_bytes(),
            Self::Concurrency(permits) => permits.heap_bytes(),
            _ => 0,
        }
    }
}

impl Verdict {
    /// An allowed verdict. `next`: see [`Verdict::next`].
    pub(crate) fn allowed(limit: u64, remaining: u64, reset: u64, next: u64) -> Self {
        Self { allowed: true, limit, remaining, wait: Wait::None, reset, delay: 0, next }
    }

    /// A denied verdict, to be asked again after `wait` nanoseconds.
    pub(crate) fn denied(limit: u64, remaining: u64, wait: u64, reset: u64) -> Self {
        Self { allowed: false, limit, remaining, wait: Wait::For(wait.max(1)), reset, delay: 0, next: 0 }
    }
}

/// A count of units as states keep it: limits and costs are at most a billion once a policy is
/// loaded, which leaves room for four in 32 bits.
fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_24_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }
}
