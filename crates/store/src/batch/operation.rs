//! Operations as they go to a store that decides by a script or function of its own.

use tidegate_algorithms::limit::calendar::CLOCK_SLACK;
use tidegate_algorithms::limit::{Limit, PermitId, Verdict};
use tidegate_algorithms::time::{Now, SECOND, Wall};

use crate::{Charge, Intent};

/// Kinds of limit, as `decide.lua` and `decide.sql` number them.
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
    pub(crate) fn code_and_permit(self) -> (u8, u64) {
        match self {
            Self::Spend(permit) => (1, permit.0),
            Self::Peek => (2, 0),
            Self::Refund => (3, 0),
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

    /// Length of a sliding counter's window in nanoseconds; 0 for the others, which never need it.
    pub(crate) fn window(&self) -> u64 {
        if self.kind == SLIDING_COUNTER { self.numbers[1].saturating_mul(SECOND) } else { 0 }
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
