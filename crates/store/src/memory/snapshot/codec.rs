//! One entry of a snapshot: its identity, a tag, and the state's fields, little-endian.
//!
//! ```text
//!   hash u64 | tag u8 | 1 tat u64, interval u64                             bucket, as version 0.1 wrote it
//!                     | 2 end u64, count u32, seconds u32                   fixed window
//!                     | 3 start u64, previous u32, current u32, seconds u32 sliding counter
//!                     | 4 end u64, count u32, period u8                     calendar
//!                     | 5 window u64, n u32, n x (tick u64, units u64)      sliding log
//!                     | 6 n u32, n x (id u64, units u64, lapses u64)        concurrency
//!                     | 7 tat u64, interval u64, excess u32                 the same, its limit lowered
//!                     | 8 tat u64, interval u64, burst u32, excess u32      token and leaky bucket
//! ```
//!
//! Decoding takes any bytes and refuses values that a checked policy could not have led to, so that
//! whatever comes out is safe to decide on: the limits' arithmetic relies on those bounds. Times
//! may be any; the limits themselves cope with states from the future.

use tidegate_algorithms::limit::calendar::{self, Period};
use tidegate_algorithms::limit::concurrency::{MAX_PERMITS, Permit, Permits};
use tidegate_algorithms::limit::sliding_log::{Log, MAX_ENTRIES};
use tidegate_algorithms::limit::{PermitId, State, bucket, fixed_window, sliding_counter};
use tidegate_algorithms::policy::{MAX_UNITS, MAX_WINDOW_SECONDS};
use tidegate_algorithms::time::{SECOND, Tick, Wall};

/// Appends an entry. A fresh state is not worth one.
pub(super) fn encode(hash: u64, state: &State, output: &mut Vec<u8>) {
    let mut put = |bytes: &[u8]| output.extend_from_slice(bytes);
    put(&hash.to_le_bytes());
    match state {
        State::Fresh => put(&[0]),
        State::Bucket(debt) => {
            put(&[8]);
            put(&{ debt.tat }.0.to_le_bytes());
            put(&debt.interval().to_le_bytes());
            put(&{ debt.burst }.to_le_bytes());
            put(&{ debt.excess }.to_le_bytes());
        }
        State::FixedWindow(count) => {
            put(&[2]);
            put(&count.end.0.to_le_bytes());
            put(&count.count.to_le_bytes());
            put(&count.seconds.to_le_bytes());
        }
        State::SlidingCounter(counts) => {
            put(&[3]);
            put(&{ counts.start }.0.to_le_bytes());
            put(&{ counts.previous }.to_le_bytes());
            put(&{ counts.current }.to_le_bytes());
            put(&{ counts.seconds }.to_le_bytes());
        }
        State::Calendar(count) => {
            put(&[4]);
            put(&count.end.0.to_le_bytes());
            put(&count.count.to_le_bytes());
            put(&[u8::from(count.period == Period::Month)]);
        }
        State::SlidingLog(log) => {
            put(&[5]);
            put(&log.window().to_le_bytes());
            put(&counted(log.entries().count(), MAX_ENTRIES).to_le_bytes());
            for (tick, units) in log.entries().take(usize_of(MAX_ENTRIES)) {
                put(&tick.0.to_le_bytes());
                put(&units.to_le_bytes());
            }
        }
        State::Concurrency(permits) => {
            put(&[6]);
            put(&counted(permits.held().count(), MAX_PERMITS).to_le_bytes());
            for permit in permits.held().take(usize_of(MAX_PERMITS)) {
                put(&permit.id.0.to_le_bytes());
                put(&permit.units.to_le_bytes());
                put(&permit.lapses.0.to_le_bytes());
            }
        }
    }
}

/// Takes an entry off the front of `input`; `None` if it is not one.
pub(super) fn decode(input: &mut &[u8]) -> Option<(u64, State)> {
    let hash = number(input)?;
    let state = match byte(input)? {
        0 => State::Fresh,
        tag @ (1 | 7 | 8) => {
            let tat = Tick(number(input)?);
            let interval = positive(number(input)?).filter(|interval| *interval <= bucket::MAX_INTERVAL)?;
            let burst = if tag == 8 { narrow(input)? } else { 0 };
            let excess = if tag == 1 { 0 } else { narrow(input)? };
            State::Bucket(bucket::Debt::new(tat, interval, burst, excess))
        }
        2 => State::FixedWindow(fixed_window::WindowCount {
            end: Tick(number(input)?),
            count: narrow(input)?,
            seconds: seconds(input)?,
        }),
        3 => State::SlidingCounter(sliding_counter::SlidingCounts {
            start: Tick(number(input)?),
            previous: narrow(input)?,
            current: narrow(input)?,
            seconds: seconds(input)?,
        }),
        4 => State::Calendar(calendar::CalendarCount {
            end: Wall(number(input)?),
            count: narrow(input)?,
            period: if byte(input)? == 0 { Period::Day } else { Period::Month },
        }),
        5 => State::SlidingLog(Box::new(log(input)?)),
        6 => State::Concurrency(Box::new(permits(input)?)),
        _ => return None,
    };
    (hash != 0).then_some((hash, state))
}

/// Units of an entry have no bound of their own: entries at one tick are one, with their sum.
fn log(input: &mut &[u8]) -> Option<Log> {
    let window = positive(number(input)?).filter(|window| *window <= MAX_WINDOW_SECONDS * SECOND)?;
    let count = count(input, MAX_ENTRIES)?;
    let entries: Option<Vec<_>> = (0..count).map(|_| Some((Tick(number(input)?), number(input)?))).collect();
    Some(Log::restore(window, entries?))
}

fn permits(input: &mut &[u8]) -> Option<Permits> {
    let count = count(input, MAX_PERMITS)?;
    let permit =
        |_| Some(Permit { id: PermitId(number(input)?), units: units(input)?, lapses: Tick(number(input)?) });
    let held: Option<Vec<_>> = (0..count).map(permit).collect();
    Some(Permits::restore(held?))
}

fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

fn narrow(input: &mut &[u8]) -> Option<u32> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u32::from_le_bytes(*first))
}

fn number(input: &mut &[u8]) -> Option<u64> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u64::from_le_bytes(*first))
}

fn units(input: &mut &[u8]) -> Option<u64> {
    number(input).filter(|units| *units <= MAX_UNITS)
}

fn seconds(input: &mut &[u8]) -> Option<u32> {
    narrow(input).filter(|seconds| (1..=MAX_WINDOW_SECONDS).contains(&u64::from(*seconds)))
}

fn count(input: &mut &[u8], most: u64) -> Option<u32> {
    narrow(input).filter(|count| u64::from(*count) <= most)
}

fn positive(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

fn counted(count: usize, most: u64) -> u32 {
    u32::try_from((count as u64).min(most)).unwrap_or(u32::MAX)
}

fn usize_of(most: u64) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_algorithms::limit::{Bucket, FixedWindow, Limit, SlidingCounter, SlidingLog, Slots};
    use tidegate_algorithms::time::Now;

    use super::*;

    proptest! {
        /// Whatever decodes can be encoded to the same bytes, and decided on without a panic.
        #[test]
        fn any_bytes_are_refused_or_safe(tag in 0..9_u8, bytes in prop::collection::vec(edgy(), 0..80)) {
            let bytes = [&[9; 8], &[tag][..], &bytes.concat()].concat();
            let mut rest = bytes.as_slice();
            if let Some((hash, state)) = decode(&mut rest) {
                let mut again = Vec::new();
                encode(hash, &state, &mut again);
                prop_assert_eq!(decode(&mut again.as_slice()).map(|entry| entry.0), Some(hash));
                for limit in every_limit() {
                    for nanos in [0, SECOND, u64::MAX / 2, u64::MAX] {
                        let mut state = state.clone();
                        let _expiry = (state.expires(), state.used(Now::at(nanos)));
                        let verdict = limit.check(&mut state, Now::at(nanos), 1);
                        if verdict.allowed {
                            limit.charge(&mut state, Now::at(nanos), 1, PermitId(1));
                        }
                        limit.refund(&mut state, Now::at(nanos), 1);
                    }
                }
            }
        }
    }

    /// Four bytes: small, large, or any.
    fn edgy() -> impl Strategy<Value = [u8; 4]> {
        prop_oneof![
            (0..4_u32).prop_map(u32::to_le_bytes),
            (0..2_u32).prop_map(|from_top| (u32::MAX - from_top).to_le_bytes()),
            any::<[u8; 4]>(),
        ]
    }

    fn every_limit() -> [Limit; 6] {
        let bucket = Bucket::new(5, 5, SECOND);
        [
            Limit::TokenBucket(bucket),
            Limit::LeakyBucket(bucket),
            Limit::FixedWindow(FixedWindow { limit: 5, seconds: 60 }),
            Limit::SlidingCounter(SlidingCounter { limit: 5, seconds: 60 }),
            Limit::SlidingLog(SlidingLog { limit: 5, window: SECOND }),
            Limit::Concurrency(Slots { limit: 5, lease: SECOND }),
        ]
    }
}
