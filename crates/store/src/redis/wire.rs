//! The batch script's input and output, as bytes.
//!
//! ```text
//!   batch    n limits (u16), limits; n operations (u16), operations
//!   limit    kind u8, five doubles              the script's table of limits, each once
//!   op       kind u8, permit 8 bytes, n (u16), n x (limit u16, key u16, cost u32, binding u8)
//!   reply    per decision: allowed u8, then per charge what was found, or for logs and permits the
//!            verdict: allowed u8, remaining u32, wait, reset (doubles); per renewal or release: held
//!            u8; per refund or reset: nothing
//!            Where allowed, the wait is that until a unit beyond those remaining comes back
//!   found    doubles. Buckets: the debt; windows and quotas: time left, count; sliding counters: time
//!            gone in the window, its count, the count before
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
    if operation.kind.is_silent() {
        reply.yes = true;
        return Ok(bytes);
    }
    let (&yes, mut bytes) = bytes.split_first().ok_or(Garbled)?;
    reply.yes = yes == 1;
    if matches!(operation.kind, Kind::Spend(_) | Kind::Peek) {
        for (place, charge) in operation.charges.iter().enumerate() {
            let verdict = if charge.limit.is_plain() {
                let found = found(&charge.limit, &mut bytes)?;
                judge(operation, place, found, reply)
            } else {
                verdict(&charge.limit, &mut bytes)?
            };
            reply.verdicts.push(verdict);
        }
    }
    Ok(bytes)
}

/// What the script found of a plain limit, as [`WireLimit::recall`] takes it.
fn found(limit: &WireLimit, bytes: &mut &[u8]) -> Result<[u64; 3], Garbled> {
    let mut found = [0; 3];
    let numbers = if limit.is_bucket() { 1 } else { 2 + usize::from(limit.is_sliding_counter()) };
    for number in &mut found[..numbers] {
        *number = whole(f64::from_le_bytes(take(bytes)?));
    }
    Ok(found)
}

/// The pure functions' verdict on a charge, over what was found before any of its operation was made.
fn judge(operation: &Operation, place: usize, found: [u64; 3], reply: &Reply) -> Verdict {
    let charge = &operation.charges[place];
    let (limit, mut state, now) = charge.limit.recall(found);
    // Charges of one key are one spend: a later one is judged as if the earlier had been made.
    let earlier = operation.charges.iter().zip(&reply.verdicts);
    let earlier = earlier.filter(|(other, verdict)| verdict.allowed && other.key == charge.key);
    let cost = earlier.map(|(other, _)| u64::from(other.cost)).sum::<u64>() + u64::from(charge.cost);
    let verdict = limit.check(&mut state, now, cost);
    // Nothing is charged where another limit denies.
    if verdict.allowed && !reply.yes { limit.check(&mut state, now, 0) } else { verdict }
}

/// The script's own verdict, on a log or on permits.
fn verdict(limit: &WireLimit, bytes: &mut &[u8]) -> Result<Verdict, Garbled> {
    let [allowed] = take(bytes)?;
    let remaining = u32::from_le_bytes(take(bytes)?).into();
    let wait = f64::from_le_bytes(take(bytes)?);
    let reset = whole(f64::from_le_bytes(take(bytes)?));
    let allowed = allowed == 1;
    let (wait, next) = match wait {
        next if allowed => (Wait::None, whole(next)),
        never if never.is_infinite() => (Wait::Never, 0),
        nanos => (Wait::For(whole(nanos).max(1)), 0),
    };
    Ok(Verdict { allowed, limit: limit.quota, remaining, wait, reset, delay: 0, next })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Garbled> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(Garbled)?;
    *bytes = rest;
    Ok(*taken)
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
