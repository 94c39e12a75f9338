//! What the memory store is compared with: the same decisions over other tables.
//!
//! None of these is bounded, expires anything or takes several keys at once, so their figures are
//! what they would have before that is added.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use hashbrown::HashTable;
use tidegate_algorithms::limit::{Limit, PermitId, State};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::Now;
use tidegate_store::memory::Memory;
use tidegate_store::{Answer, Charge, Intent};

/// One decision over one key.
pub(crate) trait Decides: Sync {
    fn decide(&self, now: Now, limit: &Limit, key: &[u8], answer: &mut Answer);
}

impl Decides for Memory {
    fn decide(&self, now: Now, limit: &Limit, key: &[u8], answer: &mut Answer) {
        let charge = Charge { limit, key, cost: 1, binding: true, on_failure: OnStoreFailure::Local };
        self.decide(now, &[charge], Intent::Spend(PermitId(0)), answer);
    }
}

/// `hashbrown` tables of (hash, state), each behind a lock.
pub(crate) struct Hashbrown {
    shards: Vec<Mutex<HashTable<(u64, State)>>>,
    hasher: RandomState,
}

impl Hashbrown {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Decides for Hashbrown {
    fn decide(&self, now: Now, limit: &Limit, key: &[u8], answer: &mut Answer) {
        let hash = self.hasher.hash_one(key);
        let index = (u128::from(hash) * self.shards.len() as u128) >> 64;
        let mut shard = self.shards[usize::try_from(index).expect("below the length")].lock().expect("sane");
        let entry =
            shard.entry(hash.rotate_left(32), |entry| entry.0 == hash, |entry| entry.0.rotate_left(32));
        let mut entry = entry.or_insert_with(|| (hash, State::Fresh));
        judge(now, limit, &mut entry.get_mut().1, answer);
    }
}

/// Standard maps that hold the keys themselves, each behind a lock.
pub(crate) struct Keyed {
    shards: Vec<Mutex<HashMap<Box<[u8]>, State>>>,
    hasher: RandomState,
}

impl Keyed {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Decides for Keyed {
    fn decide(&self, now: Now, limit: &Limit, key: &[u8], answer: &mut Answer) {
        let index = (u128::from(self.hasher.hash_one(key)) * self.shards.len() as u128) >> 64;
        let mut shard = self.shards[usize::try_from(index).expect("below the length")].lock().expect("sane");
        match shard.get_mut(key) {
            Some(state) => judge(now, limit, state, answer),
            None => judge(now, limit, shard.entry(key.into()).or_default(), answer),
        }
    }
}

fn judge(now: Now, limit: &Limit, state: &mut State, answer: &mut Answer) {
    let verdict = limit.check(state, now, 1);
    if verdict.allowed {
        limit.charge(state, now, 1, PermitId(0));
    }
    answer.allowed = verdict.allowed;
    answer.verdicts.clear();
    answer.verdicts.push(verdict);
}
