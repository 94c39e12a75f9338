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

use std::collections::HashMap;

use tidegate_algorithms::limit::{Verdict, Wait};

use crate::batch::{Kind, Operation, Reply, WireLimit};

/// Added to a verdict's wait or reset: one window length, which the script cannot count to.
const LONGER_WAIT: u8 = 2;
const LONGER_RESET: u8 = 4;

/// The script's reply was not what this version of it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// The batch as the script takes it, and every key it touches, once each.
pub(super) fn encode<'o>(
    operations: impl Iterator<Item = &'o Operation> + Clone,
) -> (Vec<u8>, Vec<&'o [u8]>) {
    let mut limits: Vec<&WireLimit> = Vec::new();
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut places: HashMap<&[u8], u16> = HashMap::new();
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
        limit.numbers.iter().for_each(|number| batch.extend_from_slice(&double(*number).to_le_bytes()));
    }
    batch.extend_from_slice(&index(count).to_le_bytes());
    batch.extend_from_slice(&tail);
    (batch, keys)
}

/// Reads an operation's part of a reply and returns what follows it.
pub(super) fn read<'r>(
    operation: &Operation,
    bytes: &'r [u8],
    reply: &mut Reply,
) -> Result<&'r [u8], Garbled> {
    reply.verdicts.clear();
    if operation.kind == Kind::Refund {
        reply.yes = true;
        return Ok(bytes);
    }
    let (&yes, mut bytes) = bytes.split_first().ok_or(Garbled)?;
    reply.yes = yes == 1;
    if matches!(operation.kind, Kind::Spend(_) | Kind::Peek) {
        for charge in &operation.charges {
            let (verdict, rest) = bytes.split_first_chunk::<29>().ok_or(Garbled)?;
            reply.verdicts.push(verdict_from(verdict, &charge.limit));
            bytes = rest;
        }
    }
    Ok(bytes)
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
