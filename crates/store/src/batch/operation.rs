//! Operations as they go to a store that decides by a script or function of its own.

use tidegate_algorithms::limit::calendar::CLOCK_SLACK;
use tidegate_algorithms::limit::{
    Bucket, FixedWindow, Limit, PermitId, SlidingCounter, State, Verdict, bucket, fixed_window,
    sliding_counter,
};
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};

use crate::{Charge, Intent};

/// Kinds of limit, as the script and `tidegate.decide` number them.
const TOKEN_BUCKET: u8 = 1;
const LEAKY_BUCKET: u8 = 2;
const FIXED_WINDOW: u8 = 3;
const SLIDING_LOG: u8 = 4;
const SLIDING_COUNTER: u8 = 5;
const CONCURRENCY: u8 = 6;
const CALENDAR: u8 = 7;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Spend(PermitId),
    Peek,
    Refund,
    /// Forgets what is known.
    Reset,
    Renew(PermitId),
    Release(PermitId),
}

/// A limit's numbers as scripts and functions in other stores take them. Equal ones are sent once a
/// batch. Calendar quotas carry three consecutive ends of periods as the caller's clock sees them,
/// from which the store's clock picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireLimit {
    pub(crate) kind: u8,
    pub(crate) numbers: [u64; 5],
    pub(crate) quota: u64,
}

/// A charge that owns its key.
#[derive(Clone, Debug)]
pub(crate) struct WireCharge {
    pub(crate) limit: WireLimit,
    pub(crate) key: Box<[u8]>,
    pub(crate) cost: u32,
    pub(crate) binding: bool,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) charges: Vec<WireCharge>,
}

/// The script's answer to one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Allowed, or held.
    pub(crate) yes: bool,
    pub(crate) verdicts: Vec<Verdict>,
}

impl From<Intent> for Kind {
    fn from(intent: Intent) -> Self {
        match intent {
            Intent::Spend(permit) => Self::Spend(permit),
            Intent::Peek => Self::Peek,
        }
    }
}

impl Kind {
    /// Whether its reply says only that it was done.
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Refund | Self::Reset)
    }

    pub(crate) fn code_and_permit(self) -> (u8, u64) {
        match self {
            Self::Spend(permit) => (1, permit.0),
            Self::Peek => (2, 0),
            Self::Refund => (3, 0),
            Self::Reset => (6, 0),
            Self::Renew(permit) => (4, permit.0),
            Self::Release(permit) => (5, permit.0),
        }
    }
}

impl WireLimit {
    pub(crate) fn new(limit: &Limit, now: Now) -> Self {
        let (kind, numbers) = match limit {
            Limit::TokenBucket(bucket) => (TOKEN_BUCKET, [bucket.interval, bucket.burst, 0, 0, 0]),
            Limit::LeakyBucket(bucket) => (LEAKY_BUCKET, [bucket.interval, bucket.burst, 0, 0, 0]),
            Limit::FixedWindow(window) => (FIXED_WINDOW, [window.limit, window.seconds.into(), 0, 0, 0]),
            Limit::SlidingLog(log) => (SLIDING_LOG, [log.limit, log.window, 0, 0, 0]),
            Limit::SlidingCounter(counter) => {
                (SLIDING_COUNTER, [counter.limit, counter.seconds.into(), 0, 0, 0])
            }
            Limit::Concurrency(slots) => (CONCURRENCY, [slots.limit, slots.lease, 0, 0, 0]),
            Limit::Calendar(calendar) => {
                // A node's clock may be ahead of the store's by the slack before a period is misjudged.
                let first = calendar.end_of_period(Wall(now.wall.0.saturating_sub(CLOCK_SLACK)));
                let second = calendar.end_of_period(first);
                let third = calendar.end_of_period(second);
                let [first, second, third] = [first, second, third].map(|end| end.0 / SECOND);
                (CALENDAR, [calendar.limit, calendar.period.longest(), first, second, third])
            }
        };
        Self { kind, numbers, quota: limit.quota() }
    }

    /// Whether its state is a few numbers, to which equal charges just add: no log, no permits.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self.kind, SLIDING_LOG | CONCURRENCY)
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.kind, TOKEN_BUCKET | LEAKY_BUCKET)
    }

    pub(crate) fn is_sliding_counter(&self) -> bool {
        self.kind == SLIDING_COUNTER
    }

    /// The debt of an empty bucket, in nanoseconds.
    pub(crate) fn capacity(&self) -> u64 {
        self.numbers[0].saturating_mul(self.numbers[1])
    }

    /// This plain limit and a state of it as the pure functions take them, from what a store found: the
    /// debt of a bucket; the time left and the count of a window or period; of a sliding counter the time
    /// gone in its window, and the current and the previous count. Times count from an instant of its own.
    pub(crate) fn recall(&self, [time, count, previous]: [u64; 3]) -> (Limit, State, Now) {
        let [first, second, ..] = self.numbers;
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let (count, previous, tick) = (narrow(count), narrow(previous), Tick(time));
        match self.kind {
            TOKEN_BUCKET | LEAKY_BUCKET => {
                let bucket = Bucket { interval: first, burst: second };
                let leaks = self.kind == LEAKY_BUCKET;
                let limit = if leaks { Limit::LeakyBucket(bucket) } else { Limit::TokenBucket(bucket) };
                (limit, State::Bucket(bucket::Debt::new(tick, first, narrow(second), 0)), Now::at(0))
            }
            SLIDING_COUNTER => {
                let seconds = narrow(second);
                let state =
                    sliding_counter::SlidingCounts { start: Tick(0), previous, current: count, seconds };
                let limit = Limit::SlidingCounter(SlidingCounter { limit: first, seconds });
                (limit, State::SlidingCounter(state), Now::at(time))
            }
            _ => {
                // Where it ends is known, so its length, and which period it is, no longer matter.
                let seconds = u32::MAX;
                let limit = Limit::FixedWindow(FixedWindow { limit: first, seconds });
                (
                    limit,
                    State::FixedWindow(fixed_window::WindowCount { end: tick, count, seconds }),
                    Now::at(0),
                )
            }
        }
    }
}

impl Operation {
    pub(crate) fn new(
        kind: Kind,
        now: Now,
        charges: &[Charge<'_>],
        key: impl Fn(&[u8]) -> Box<[u8]>,
    ) -> Self {
        let charges = charges
            .iter()
            .map(|charge| WireCharge {
                limit: WireLimit::new(charge.limit, now),
                key: key(charge.key),
                cost: u32::try_from(charge.cost).unwrap_or(u32::MAX),
                binding: charge.binding,
            })
            .collect();
        Self { kind, charges }
    }
}
