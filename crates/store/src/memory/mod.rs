//! The memory store: counters in this process, shared by all its threads.
//!
//! ```text
//!   key --SipHash, random key--> 64 bits --high half--> shard --low half--> slot
//!
//!   directory, fixed        | shard | shard | shard | ...   one lock each, ~1,000 entries at most
//!   bytes, a hard cap       budget  budget  budget  + common reserve for logs and permits
//! ```
//!
//! The number of shards follows from the byte cap and never changes, so there is no table-wide
//! growth: a shard grows alone, under its own lock, by at most ~1,000 entries. That is what bounds
//! every pause however many keys there are. A shard that no key has met has no allocation.
//!
//! Invariants:
//! - one request is one atomic step. Its shards are locked in index order, each once, before the
//!   first limit is checked, and released after the last is charged: no deadlock, and all or
//!   nothing (`tests/it/exactness.rs`, `model.rs`);
//! - time never goes back under a key: an operation is decided at the latest time that any caller has
//!   told its shards (`tests/it/fault_56_stale_clocks.rs`);
//! - over-admission is 0 as long as nothing live is evicted, which [`Stats::evicted_live`] counts;
//! - bytes never pass the cap, whatever the keys (`tests/faults.rs`, fault 10).
//!
//! Rejected: a concurrent map (dashmap, scc, papaya), whose tables grow as wholes and which lock one
//! key at a time; a lock-free table, since a state does not fit an atomic; one thread that owns the
//! table, since handing over costs 70 times an uncontended lock. Figures:
//! `docs/decisions/0010-memory-store.md`.
//!
//! Deliberately absent: a clock (`now` is given), threads, timers, and when snapshots are taken.

mod identity;
mod lock;
#[cfg(test)]
mod model;
mod shard;
pub mod snapshot;
mod table;

use std::hint::black_box;

use smallvec::SmallVec;
use tidegate_algorithms::limit::{Limit, PermitId, State, Verdict};
use tidegate_algorithms::time::Now;

use self::identity::Identity;
use self::lock::{Mutex, MutexGuard, approach, hold};
use self::shard::{BUDGET, Census, Reserve, Shard};
use crate::{Answer, Charge, Intent, Verdicts};
pub use identity::HashKey;

/// Cap unless stated otherwise: 1 GiB, some 23 million keys whose state has a fixed size.
pub const DEFAULT_MAX_BYTES: usize = 1 << 30;
/// Smallest cap: 1 MiB. A smaller one is raised to it.
pub const MIN_MAX_BYTES: usize = 1 << 20;
/// The part of the cap that is lent to shards whose logs and permits need it: one eighth.
const RESERVE_SHARE: usize = 8;

/// Counters in this process.
pub struct Memory {
    shards: Box<[ShardSlot]>,
    reserve: Reserve,
    identity: Identity,
    max_bytes: usize,
}

/// A shard's place in the directory, on cache lines of its own.
#[repr(align(128))]
struct ShardSlot(Mutex<Shard>);

/// What the store holds and has dropped since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that are remembered, expired ones that no insert has met yet included.
    pub entries: u64,
    /// Bytes of tables, logs, permits and the directory.
    pub bytes: u64,
    /// The cap on `bytes`.
    pub max_bytes: u64,
    /// Bytes that are left of the reserve for logs and permits.
    pub reserve_left: u64,
    /// Entries dropped that still said something: the cap was reached, and their keys start anew.
    pub evicted_live: u64,
    /// Entries dropped because they said no more than an absent one would.
    pub expired: u64,
    /// Locks, each over an equal share of the keys.
    pub shards: u64,
    /// Keys in the fullest shard: what an operation under one lock may have to walk at most.
    pub fullest_shard: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_BYTES)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("max_bytes", &self.max_bytes)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty store that uses at most `max_bytes`, at least [`MIN_MAX_BYTES`].
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self::with_key(max_bytes, HashKey::random())
    }

    /// An empty store whose keys are hashed under `key`: for tests that must repeat, and for a
    /// snapshot's keys to be found again. A key that clients know lets them choose collisions.
    #[must_use]
    pub fn with_key(max_bytes: usize, key: HashKey) -> Self {
        let max_bytes = max_bytes.max(MIN_MAX_BYTES);
        let reserve = max_bytes / RESERVE_SHARE;
        let count = (max_bytes - reserve) / (BUDGET + size_of::<ShardSlot>());
        let shards = std::iter::repeat_with(|| ShardSlot(Mutex::new(Shard::default()))).take(count).collect();
        Self { shards, reserve: Reserve::new(reserve), identity: Identity::new(key), max_bytes }
    }

    /// Decides one request over all its limits, atomically. `answer` is overwritten.
    pub fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        answer.degraded = None;
        answer.verdicts.clear();
        if let [charge] = charges {
            let verdict = self.decide_one(now, charge, intent);
            answer.allowed = verdict.allowed || !charge.binding;
            answer.verdicts.push(verdict);
        } else {
            let mut held = LockedShards::lock(self, now, charges);
            answer.allowed = held.check(charges, &mut answer.verdicts);
            held.conclude(charges, intent, answer);
        }
    }

    /// Decides requests of one limit each, in their order, and appends a verdict for each. They share
    /// their cache misses, which makes many together twice as fast as one by one.
    pub fn decide_each(&self, now: Now, charges: &[Charge<'_>], intent: Intent, verdicts: &mut Vec<Verdict>) {
        if let [charge] = charges {
            verdicts.push(self.decide_one(now, charge, intent));
        } else {
            let mut held = LockedShards::lock(self, now, charges);
            verdicts.extend(charges.iter().enumerate().map(|(index, charge)| {
                held.with_state(index, |state, now| spend(charge, state, now, intent))
            }));
        }
    }

    /// Gives back units that were charged under these limits and keys.
    pub fn refund(&self, now: Now, charges: &[Charge<'_>]) {
        for charge in charges {
            self.with_known(now, charge.key, |state, now| charge.limit.refund(state, now, charge.cost));
        }
    }

    /// Forgets what is known under these keys.
    pub fn reset(&self, now: Now, charges: &[Charge<'_>]) {
        for charge in charges {
            self.with_known(now, charge.key, |state, _| *state = State::Fresh);
        }
    }

    /// Extends the lease of a permit. False if it is not held.
    pub fn renew(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let Limit::Concurrency(slots) = limit else { return false };
        self.with_known(now, key, |state, now| slots.renew(state, now, permit)).unwrap_or(false)
    }

    /// Gives a permit back. False if it is not held.
    pub fn release(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let Limit::Concurrency(slots) = limit else { return false };
        self.with_known(now, key, |state, now| slots.release(state, now, permit)).unwrap_or(false)
    }

    /// Counts, shard by shard: each is exact, their sum is of no one instant.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (mut sum, mut fullest) = (Census::default(), 0);
        for slot in &self.shards {
            let census = hold(&slot.0).census();
            sum.entries += census.entries;
            sum.bytes += census.bytes;
            sum.evicted_live += census.evicted_live;
            sum.expired += census.expired;
            fullest = fullest.max(census.entries);
        }
        let directory = self.shards.len() * size_of::<ShardSlot>();
        Stats {
            entries: sum.entries,
            bytes: sum.bytes + directory as u64,
            max_bytes: self.max_bytes as u64,
            reserve_left: self.reserve.left() as u64,
            evicted_live: sum.evicted_live,
            expired: sum.expired,
            shards: self.shards.len() as u64,
            fullest_shard: fullest,
        }
    }

    /// The common request: one lock, one probe.
    fn decide_one(&self, now: Now, charge: &Charge<'_>, intent: Intent) -> Verdict {
        let hash = self.identity.of(charge.key);
        let mut shard = hold(self.shard(hash));
        let now = shard.time(now);
        shard.with_state(hash, now, &self.reserve, |state| spend(charge, state, now, intent))
    }

    fn with_known<R>(&self, now: Now, key: &[u8], act: impl FnOnce(&mut State, Now) -> R) -> Option<R> {
        let hash = self.identity.of(key);
        let mut shard = hold(self.shard(hash));
        let now = shard.time(now);
        shard.with_known(hash, now, &self.reserve, |state| act(state, now))
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.shard_index(hash)].0
    }

    /// The high half of the hash, scaled to the number of shards; the table uses the low half.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the product's high half is less than the number of shards"
    )]
    fn shard_index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.shards.len() as u128) >> 64) as usize
    }
}

/// Spends one limit's charge if there is room.
fn spend(charge: &Charge<'_>, state: &mut State, now: Now, intent: Intent) -> Verdict {
    let verdict = charge.limit.check(state, now, charge.cost);
    if let (true, Intent::Spend(permit)) = (verdict.allowed, intent) {
        charge.limit.charge(state, now, charge.cost, permit);
    }
    verdict
}

/// The shards of several charges, locked, and where in them these lie.
///
/// Nearly all of a decision's time is waiting for two cache lines: the shard's, with its lock, and the
/// entry's. A lock waits for every read before it, so one charge after another would wait for each line by
/// itself. Hence all the shards' lines are read before the first lock, and all the entries' after the last.
struct LockedShards<'a> {
    reserve: &'a Reserve,
    /// The latest time that any of the shards was told.
    now: Now,
    shards: Few<MutexGuard<'a, Shard>>,
    /// Per charge: its key's identity, and the index in `shards`.
    places: Few<(u64, usize)>,
}

/// One for each limit of a request: up to four need no allocation.
type Few<T> = SmallVec<[T; 4]>;

impl<'a> LockedShards<'a> {
    fn lock(memory: &'a Memory, now: Now, charges: &[Charge<'_>]) -> Self {
        let hashes = charges.iter().map(|charge| memory.identity.of(charge.key));
        let mut places: Few<_> = hashes.map(|hash| (hash, memory.shard_index(hash))).collect();
        let slots = places.iter().map(|(_, index)| &memory.shards[*index].0);
        black_box(slots.filter(|lock| approach(lock)).count());
        let mut indices: Few<_> = places.iter().map(|(_, index)| *index).collect();
        indices.sort_unstable();
        indices.dedup();
        for (_, index) in &mut places {
            *index = indices.partition_point(|other| other < index);
        }
        let mut shards: Few<_> = indices.iter().map(|index| hold(&memory.shards[*index].0)).collect();
        black_box(places.iter().filter(|(hash, shard)| shards[*shard].approach(*hash)).count());
        let now = shards.iter_mut().fold(now, |now, shard| shard.time(now));
        for shard in &mut shards {
            shard.time(now);
        }
        Self { reserve: &memory.reserve, now, shards, places }
    }

    /// One verdict per charge; whether all that bind have room. Charges of one key are one spend:
    /// a later one is judged as if the earlier ones that have room had been made.
    fn check(&mut self, charges: &[Charge<'_>], verdicts: &mut Verdicts) -> bool {
        let mut allowed = true;
        for (index, charge) in charges.iter().enumerate() {
            let earlier = self.cost_before(index, charges, verdicts);
            let cost = charge.cost.saturating_add(earlier);
            let verdict = self.with_state(index, |state, now| charge.limit.check(state, now, cost));
            allowed &= verdict.allowed || !charge.binding;
            verdicts.push(verdict);
        }
        allowed
    }

    /// Charges what has room if the request is allowed; else corrects the verdicts that had room,
    /// whose cost is not spent after all.
    fn conclude(&mut self, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        for (index, (charge, verdict)) in charges.iter().zip(&mut answer.verdicts).enumerate() {
            if !verdict.allowed {
                continue;
            }
            if !answer.allowed {
                *verdict = self.with_state(index, |state, now| charge.limit.check(state, now, 0));
            } else if let Intent::Spend(permit) = intent {
                self.with_state(index, |state, now| charge.limit.charge(state, now, charge.cost, permit));
            }
        }
    }

    /// Units of the charges before `index` that are of the same key and have room.
    fn cost_before(&self, index: usize, charges: &[Charge<'_>], verdicts: &[Verdict]) -> u64 {
        let same_key = |other: &usize| self.places[*other] == self.places[index] && verdicts[*other].allowed;
        (0..index).filter(same_key).map(|other| charges[other].cost).fold(0, u64::saturating_add)
    }

    fn with_state<R>(&mut self, index: usize, act: impl FnOnce(&mut State, Now) -> R) -> R {
        let ((hash, shard), now) = (self.places[index], self.now);
        self.shards[shard].with_state(hash, now, self.reserve, |state| act(state, now))
    }
}
