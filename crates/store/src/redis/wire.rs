//! What the batch script is told and what it answers, as bytes.
//!
//! ```text
//!   batch    n limits (u16), limits; n operations (u16), operations
//!   limit    kind u8, five doubles              the script's table of limits, each once
//!   op       kind u8, permit 8 bytes, n (u16), n x (limit u16, key u16, cost u32, binding u8)
//!   reply    per decision: allowed u8, then per charge: flags u8, remaining u32, wait, reset,
//!            delay (doubles); per renewal or release: held u8; per refund: nothing
//! ```
//!
//! Little endian throughout. One packed string instead of many arguments, because Redis parses and
//! copies each argument apart. Indices count from one, as Lua's do.
//!
//! A wait of infinity is [`Wait::Never`].
//!
//! Costs are cut at `u32::MAX`: above every quota that a policy can state, so a cut cost is still
//! never admissible.

use tidegate_algorithms::limit::calendar::CLOCK_SLACK;
use tidegate_algorithms::limit::{Limit, PermitId, Verdict, Wait};
use tidegate_algorithms::time::{Now, SECOND, Wall};

use crate::{Charge, Intent};

/// Kinds of limit, as `decide.lua` numbers them.
const TOKEN_BUCKET: u8 = 1;
const LEAKY_BUCKET: u8 = 2;
const FIXED_WINDOW: u8 = 3;
const SLIDING_LOG: u8 = 4;
const SLIDING_COUNTER: u8 = 5;
const CONCURRENCY: u8 = 6;
const CALENDAR: u8 = 7;

/// Added to a verdict's wait or reset: one window length, which the script cannot count to.
const LONGER_WAIT: u8 = 2;
const LONGER_RESET: u8 = 4;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Spend(PermitId),
    Peek,
    Refund,
    Renew(PermitId),
    Release(PermitId),
}

/// A limit's numbers as the script takes them. Equal ones are sent once a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WireLimit {
    kind: u8,
    numbers: [f64; 5],
    quota: u64,
}

/// A charge that owns its key.
#[derive(Clone, Debug)]
pub(super) struct WireCharge {
    pub(super) limit: WireLimit,
    pub(super) key: Box<[u8]>,
    pub(super) cost: u32,
    pub(super) binding: bool,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) charges: Vec<WireCharge>,
}

/// The script's answer to one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// Allowed, or held.
    pub(super) yes: bool,
    pub(super) verdicts: Vec<Verdict>,
}

/// The script's reply was not what this version of it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

impl From<Intent> for Kind {
    fn from(intent: Intent) -> Self {
        match intent {
            Intent::Spend(permit) => Self::Spend(permit),
            Intent::Peek => Self::Peek,
        }
    }
}

impl Kind {
    fn code_and_permit(self) -> (u8, u64) {
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
    pub(super) fn new(limit: &Limit, now: Now) -> Self {
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
        Self { kind, numbers: numbers.map(double), quota: limit.quota() }
    }

    /// Length of a sliding counter's window in nanoseconds; 0 for the others, which never need it.
    fn window(&self) -> u64 {
        if self.kind == SLIDING_COUNTER { whole(self.numbers[1]).saturating_mul(SECOND) } else { 0 }
    }
}

impl Operation {
    pub(super) fn new(
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

    /// Reads this operation's part of a reply and returns what follows it.
    pub(super) fn read<'r>(&self, bytes: &'r [u8], reply: &mut Reply) -> Result<&'r [u8], Garbled> {
        reply.verdicts.clear();
        if self.kind == Kind::Refund {
            reply.yes = true;
            return Ok(bytes);
        }
        let (&yes, mut bytes) = bytes.split_first().ok_or(Garbled)?;
        reply.yes = yes == 1;
        if matches!(self.kind, Kind::Spend(_) | Kind::Peek) {
            for charge in &self.charges {
                let (verdict, rest) = bytes.split_first_chunk::<29>().ok_or(Garbled)?;
                reply.verdicts.push(verdict_from(verdict, &charge.limit));
                bytes = rest;
            }
        }
        Ok(bytes)
    }
}

/// The batch as the script takes it, and every key it touches, once each.
pub(super) fn encode<'o>(
    operations: impl Iterator<Item = &'o Operation> + Clone,
) -> (Vec<u8>, Vec<&'o [u8]>) {
    let mut limits: Vec<&WireLimit> = Vec::new();
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut places: std::collections::HashMap<&[u8], u16> = std::collections::HashMap::new();
    let mut tail = Vec::with_capacity(1_024);
    let mut count = 0;
    for operation in operations {
        count += 1;
        let (code, permit) = operation.kind.code_and_permit();
        tail.push(code);
        tail.extend_from_slice(&permit.to_le_bytes());
        tail.extend_from_slice(&index(operation.charges.len()).to_le_bytes());
        for charge in &operation.charges {
            let limit = limits.iter().position(|other| **other == charge.limit).unwrap_or_else(|| {
                limits.push(&charge.limit);
                limits.len() - 1
            });
            let key = *places.entry(&charge.key).or_insert_with(|| {
                keys.push(&charge.key);
                index(keys.len())
            });
            tail.extend_from_slice(&index(limit + 1).to_le_bytes());
            tail.extend_from_slice(&key.to_le_bytes());
            tail.extend_from_slice(&charge.cost.to_le_bytes());
            tail.push(u8::from(charge.binding));
        }
    }
    let mut batch = Vec::with_capacity(tail.len() + limits.len() * 41 + 4);
    batch.extend_from_slice(&index(limits.len()).to_le_bytes());
    for limit in limits {
        batch.push(limit.kind);
        limit.numbers.iter().for_each(|number| batch.extend_from_slice(&number.to_le_bytes()));
    }
    batch.extend_from_slice(&index(count).to_le_bytes());
    batch.extend_from_slice(&tail);
    (batch, keys)
}

fn verdict_from(bytes: &[u8; 29], limit: &WireLimit) -> Verdict {
    let flags = bytes[0];
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        f64::from_le_bytes(number)
    };
    let mut remaining = [0; 4];
    remaining.copy_from_slice(&bytes[1..5]);
    let longer = |flag: u8, nanos: f64| {
        if flags & flag == 0 {
            whole(nanos)
        } else if nanos < 0.0 {
            limit.window().saturating_sub(whole(-nanos))
        } else {
            limit.window().saturating_add(whole(nanos))
        }
    };
    let allowed = flags & 1 == 1;
    let wait = match number(5) {
        _ if allowed => Wait::None,
        never if never.is_infinite() => Wait::Never,
        nanos => Wait::For(longer(LONGER_WAIT, nanos).max(1)),
    };
    Verdict {
        allowed,
        limit: limit.quota,
        remaining: u32::from_le_bytes(remaining).into(),
        wait,
        reset: longer(LONGER_RESET, number(13)),
        delay: whole(number(21)),
    }
}

/// Invariant: a batch has at most `MAX_BATCH_CHARGES` charges, far below 65,536.
fn index(of: usize) -> u16 {
    u16::try_from(of).unwrap_or(u16::MAX)
}

/// Exact: policies bound every number below 2^53.
#[expect(clippy::cast_precision_loss, reason = "policies bound every number below 2^53")]
fn double(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}
