//! Limits that come with the request instead of from a policy: `CL.THROTTLE key burst count period`. What other protocols
//! decide by such limits is in `engine/own.rs` and `engine/together.rs`; they count here.
//!
//! Each protocol that has them counts under a name of its own, such as `CL.THROTTLE`. No policy can
//! have that name (a policy's is lower-case), so an ad-hoc counter is never also a policy's.
//!
//! The numbers have the same bounds as a policy's (fault 14), checked on every request. A key whose
//! numbers change keeps what it has used, in units, as a policy's does.
//!
//! Deliberately absent: matching, overrides and shadow mode. Policies have these.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_algorithms::limit::{Bucket, Limit, PermitId, Verdict};
use tidegate_algorithms::policy::{
    Attributes, MAX_SPAN, MAX_UNITS, MAX_UNITS_PER_SECOND, MAX_WINDOW_SECONDS, OnStoreFailure, counted,
    key_of,
};
use tidegate_algorithms::time::SECOND;
use tidegate_store::guard::Guard;
use tidegate_store::{Answer, Charge, Intent, StoreError};

use crate::answers::Door;
use crate::engine::Engine;
use crate::error::AskError;
use crate::tally::Tally;

/// Counters under one name.
#[derive(Debug)]
pub struct AdHoc {
    engine: Arc<Engine>,
    name: Arc<str>,
    /// What every key begins with.
    prefix: Vec<u8>,
    tally: Arc<Tally>,
}

/// A request whose numbers are within bounds.
#[derive(Clone, Debug)]
pub struct Spend {
    /// Where its key lies in the buffer that [`AdHoc::spend`] was given.
    key: Range<usize>,
    limit: Limit,
    cost: u64,
}

/// No policy says what to answer without a store, so this node's memory does.
const ON_FAILURE: OnStoreFailure = OnStoreFailure::Local;
/// These limits hand out no permits.
const INTENT: Intent = Intent::Spend(PermitId(0));

/// Of spends that are decided together, as many need no allocation.
const ON_STACK: usize = 8;

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
        let mut prefix = Vec::new();
        // Invariant: there are no attributes to be absent.
        let _made = key_of(&name, &[], &Attributes::new(&[]), &mut prefix);
        Self { engine, name, prefix, tally }
    }

    /// A request for `cost` units of `key`, whose counter's name goes to the end of `keys`. A cost of 0
    /// reads.
    ///
    /// # Errors
    /// When the request is out of bounds.
    pub fn spend(&self, key: &[u8], limit: Limit, cost: u64, keys: &mut Vec<u8>) -> Result<Spend, AskError> {
        if cost > MAX_UNITS {
            return Err(AskError::CostTooLarge(cost));
        }
        let start = keys.len();
        self.start_key(keys);
        keys.extend_from_slice(&counted(key));
        Ok(Spend { key: start..keys.len(), limit, cost })
    }

    /// Spends, or says why not.
    ///
    /// # Errors
    /// When the store gave no answer.
    pub async fn decide(&self, spend: &Spend, keys: &[u8]) -> Result<Verdict, StoreError> {
        let mut answer = Answer::default();
        let now = self.engine.clock().now();
        self.engine.counters().decide(now, &[spend.charge(keys)], INTENT, &mut answer).await?;
        let verdict = answer.verdicts[0];
        if spend.cost > 0 {
            let is_degraded = answer.degraded.is_some();
            self.tally.count(verdict.allowed, true, is_degraded);
            self.engine.answers().count(Door::Resp, verdict.allowed, true);
        }
        Ok(verdict)
    }

    /// Decides `spends` one after another without waiting, and appends a verdict for each. False if the store has
    /// to be waited for: nothing was charged then.
    #[must_use]
    pub fn decide_each_now<'s>(
        &self,
        spends: impl Iterator<Item = &'s Spend>,
        keys: &[u8],
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let counters = self.engine.counters();
        if !counters.is_at_hand() {
            return false;
        }
        let charges: SmallVec<[_; ON_STACK]> = spends.map(|spend| spend.charge(keys)).collect();
        let before = verdicts.len();
        if !counters.decide_each_now(self.engine.clock().now(), &charges, INTENT, verdicts) {
            return false;
        }
        let (mut allowed, mut denied) = (0, 0);
        let decided = charges.iter().zip(&verdicts[before..]);
        for (_, verdict) in decided.filter(|(charge, _)| charge.cost > 0) {
            *if verdict.allowed { &mut allowed } else { &mut denied } += 1;
        }
        self.tally.count_together(allowed, denied);
        self.engine.answers().count_together(Door::Resp, allowed, denied);
        true
    }

    /// The guard before a store that nodes share, if it is one.
    pub(crate) fn guard(&self) -> Option<&Guard> {
        self.engine.counters().guard()
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
        key.extend_from_slice(&self.prefix);
    }
}

impl Spend {
    /// The counter's name in `keys`, the buffer that it was put into.
    #[must_use]
    pub fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        &keys[self.key.clone()]
    }

    /// Says that what lay at the start of the buffer lies `offset` bytes further on now.
    pub(crate) fn moved_by(&mut self, offset: usize) {
        self.key = self.key.start + offset..self.key.end + offset;
    }

    fn charge<'s>(&'s self, keys: &'s [u8]) -> Charge<'s> {
        let Self { limit, cost, .. } = self;
        Charge { limit, key: self.key(keys), cost: *cost, binding: true, on_failure: ON_FAILURE }
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
