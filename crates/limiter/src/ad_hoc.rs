//! Limits that come with the request instead of from a policy: `CL.THROTTLE key burst count period`.
//!
//! Each protocol that has them counts under a name of its own, such as `CL.THROTTLE`. No policy can
//! have that name (a policy's is lower-case), so an ad-hoc counter is never also a policy's.
//!
//! The numbers have the same bounds as a policy's (fault 14), checked on every request. A key whose
//! numbers change keeps what it has used, in units, as a policy's does.
//!
//! Deliberately absent: matching, overrides and shadow mode. Those are what policies are for.

use std::sync::Arc;

use thiserror::Error;
use tidegate_algorithms::limit::{Bucket, Limit, PermitId, Verdict};
use tidegate_algorithms::policy::{
    Attributes, MAX_SPAN, MAX_UNITS, MAX_UNITS_PER_SECOND, MAX_VALUE_BYTES, MAX_WINDOW_SECONDS, key_of,
};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::{Answer, Charge, Intent};

use crate::engine::Engine;
use crate::error::AskError;
use crate::tally::Tally;

/// Counters under one name.
#[derive(Debug)]
pub struct AdHoc {
    engine: Arc<Engine>,
    name: Arc<str>,
    tally: Arc<Tally>,
}

/// Memory that one connection reuses from request to request.
#[derive(Debug, Default)]
pub struct Scratch {
    key: Vec<u8>,
    answer: Answer,
}

/// Numbers of a bucket that are out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadBucket {
    /// A number by itself.
    #[error("{number} must be from 1 to {most}")]
    Range {
        /// Which one.
        number: &'static str,
        /// The most it may be.
        most: u64,
    },
    /// More than the clock resolves.
    #[error("the rate must be at most {MAX_UNITS_PER_SECOND} a second")]
    TooFast,
    /// Debt that no store can hold.
    #[error("a full burst must come back within 104 days")]
    TooSlow,
}

/// A token bucket of `count` units per `seconds`, `burst` at once.
///
/// # Errors
/// When the numbers are outside the bounds of a policy's.
pub fn bucket(burst: u64, count: u64, seconds: u64) -> Result<Limit, BadBucket> {
    for (number, value, most) in [
        ("the burst", burst, MAX_UNITS),
        ("the count per period", count, MAX_UNITS),
        ("the period in seconds", seconds, MAX_WINDOW_SECONDS),
    ] {
        if !(1..=most).contains(&value) {
            return Err(BadBucket::Range { number, most });
        }
    }
    if count > seconds * MAX_UNITS_PER_SECOND {
        return Err(BadBucket::TooFast);
    }
    let bucket = Bucket::new(count, burst, seconds * SECOND);
    if bucket.capacity() > MAX_SPAN {
        return Err(BadBucket::TooSlow);
    }
    Ok(Limit::TokenBucket(bucket))
}

impl AdHoc {
    /// Counters of `engine`'s store under `name`, in upper case.
    #[must_use]
    pub fn new(engine: Arc<Engine>, name: &str) -> Self {
        debug_assert!(!name.bytes().any(|byte| byte.is_ascii_lowercase()), "a policy could be called {name}");
        let name = Arc::from(name);
        let tally = engine.tallies().of(&name);
        Self { engine, name, tally }
    }

    /// Spends `cost` units of `key` at `now`, or says why not. A cost of 0 reads.
    ///
    /// # Errors
    /// When the request is out of bounds (nothing is charged) or the store gave no answer.
    pub async fn decide(
        &self,
        now: Now,
        key: &[u8],
        limit: &Limit,
        cost: u64,
        scratch: &mut Scratch,
    ) -> Result<Verdict, AskError> {
        if cost > MAX_UNITS {
            return Err(AskError::CostTooLarge(cost));
        }
        if key.len() > MAX_VALUE_BYTES {
            return Err(AskError::ValueTooLong { attribute: "key".to_owned(), bytes: key.len() });
        }
        let Scratch { key: bytes, answer } = scratch;
        bytes.clear();
        self.start_key(bytes);
        bytes.extend_from_slice(key);
        let charge = Charge {
            limit,
            key: bytes,
            cost,
            binding: true,
            on_failure: tidegate_algorithms::policy::OnStoreFailure::Local,
        };
        let intent = Intent::Spend(PermitId::default());
        self.engine.counters().decide(now, &[charge], intent, answer).await?;
        let verdict = answer.verdicts[0];
        if cost > 0 {
            self.tally.count(verdict.allowed, true, answer.degraded.is_some());
        }
        Ok(verdict)
    }

    /// The name under which these are counted.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What these decided.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Appends what every key of these counters begins with.
    pub(crate) fn start_key(&self, key: &mut Vec<u8>) {
        // Invariant: there are no attributes to be absent.
        let _made = key_of(&self.name, &[], &Attributes::new(&[]), key);
    }

    /// The engine's clock, now: one reading serves a whole pipeline.
    #[must_use]
    pub fn now(&self) -> Now {
        self.engine.clock().now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_14_numbers_out_of_bounds_never_reach_the_arithmetic() {
        for (burst, count, seconds, refused) in [
            (1, 1, 1, false),
            (MAX_UNITS, MAX_UNITS, 100, false),
            (MAX_UNITS, MAX_UNITS, 99, true),
            (1, MAX_UNITS, MAX_WINDOW_SECONDS, false),
            (2, 1, MAX_WINDOW_SECONDS, true),
            (0, 1, 1, true),
            (1, 0, 1, true),
            (1, 1, 0, true),
            (u64::MAX, 1, 1, true),
            (1, u64::MAX, 1, true),
            (1, 1, u64::MAX, true),
        ] {
            assert_eq!(bucket(burst, count, seconds).is_err(), refused, "{burst} {count} {seconds}");
        }
    }
}
