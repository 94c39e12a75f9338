//! One shard: a table, the bytes it may use, and which entries leave when they are used up.
//!
//! ```text
//!   shard's budget, 40 KiB                       common reserve, 1/8 of the cap
//!   |<- slots x 32 ->|<- logs, permits ->|  ---borrows---> heap bytes beyond the budget
//! ```
//!
//! A budget of its own makes room in one shard never depend on what lies in another, so that no key
//! can be starved of memory and no operation looks beyond the shard it has locked. Logs and permits
//! come in sizes up to a few hundred KiB, more than a budget: what they need beyond it is borrowed
//! from a reserve that all shards share. Budgets and reserve together are the cap, so it is hard.
//!
//! Who leaves:
//! - each insert looks at the next [`SWEPT`] slots from a clock hand and drops what has expired, so
//!   that expired entries do not pile up and nothing ever stops the world to look for them;
//! - at the budget, of the next [`SAMPLED`] entries from the hand, one that has expired, else the
//!   one with the fewest units in use, else the one that expires soonest. Units come first because
//!   a key that is being denied is not charged: by time alone it would look idle, be evicted, and
//!   get a fresh quota. Permits that are held go last. A key with more units in use than others
//!   leaves only if all in its sample have at least as many;
//! - an eviction of what had not expired is counted (`evicted_live`): the cap was too small.
//!
//! Every operation takes time bounded by the shard's ~1,000 entries, however many shards there are.
//!
//! A shard's time never goes back (fault 56). A caller reads its clock before it has the lock, and is
//! overtaken by others while it waits, or while its thread is stopped. A limit that is told an earlier time
//! than before takes its key's state for one from the future and cuts it to what an honest clock could have
//! made of it by then; told the true time again, it finds units given back. So the shard keeps the latest
//! reading, and decides by that if it is told an earlier one.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_algorithms::limit::State;
use tidegate_algorithms::time::{Now, Tick};

use super::table::{MOST_SLOTS, SLOT, Table};

/// Bytes of one shard's table, logs and permits before it borrows: 1,024 entries of 32 bytes.
pub(super) const BUDGET: usize = MOST_SLOTS * SLOT;
/// Slots whose entries an insert examines.
const SWEPT: usize = 4;
/// Entries that are compared to evict one of them.
const SAMPLED: usize = 8;
/// What the allocator adds to a log's or permits' two blocks: headers and rounding.
const BLOCKS: usize = 32;
/// The part of their bytes that is added for the holes which they leave when they grow and go.
const HOLES: usize = 2;

/// Bytes that any shard may borrow for logs and permits.
#[derive(Debug)]
pub(super) struct Reserve(AtomicUsize);

/// See the module. In this order, so that the time and the table's beginning share a cache line with the lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    /// The latest reading of the callers' clock.
    latest: Now,
    table: Table,
    /// Bytes of logs and permits.
    heap: usize,
    /// Bytes held of the reserve.
    borrowed: usize,
    /// The slot at which the next sweep starts.
    hand: usize,
    evicted_live: u64,
    expired: u64,
}

/// What a shard holds and has dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Census {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) evicted_live: u64,
    pub(super) expired: u64,
}

impl Reserve {
    pub(super) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Relaxed: the count guards nothing but itself.
    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Shard {
    /// The time of an operation whose caller read `now`: the latest reading of all callers.
    pub(super) fn time(&mut self, now: Now) -> Now {
        self.latest = now.latest(self.latest);
        self.latest
    }

    /// Runs `act` on the state of `hash`, or on a fresh one, and keeps the result unless it is still fresh: asking
    /// about an unknown key takes no memory.
    pub(super) fn with_state<R>(
        &mut self,
        hash: u64,
        now: Now,
        reserve: &Reserve,
        act: impl FnOnce(&mut State) -> R,
    ) -> R {
        if let Some(at) = self.table.find(hash) {
            return self.update(at, hash, now, reserve, act);
        }
        let mut state = State::Fresh;
        let result = act(&mut state);
        if !has_expired(&state, now) {
            self.insert(hash, state, now, reserve);
        }
        result
    }

    /// Reads from where an operation on `hash` will begin. The value says nothing.
    pub(super) fn approach(&self, hash: u64) -> bool {
        self.table.is_home_taken(hash)
    }

    /// Runs `act` on the state of `hash` if there is one.
    pub(super) fn with_known<R>(
        &mut self,
        hash: u64,
        now: Now,
        reserve: &Reserve,
        act: impl FnOnce(&mut State) -> R,
    ) -> Option<R> {
        let at = self.table.find(hash)?;
        Some(self.update(at, hash, now, reserve, act))
    }

    pub(super) fn census(&self) -> Census {
        Census {
            entries: self.table.len() as u64,
            bytes: self.bytes() as u64,
            evicted_live: self.evicted_live,
            expired: self.expired,
        }
    }

    /// The entries that still say something at `now`.
    pub(super) fn live(&self, now: Now) -> impl Iterator<Item = (u64, &State)> {
        self.table.iter().filter(move |entry| !has_expired(&entry.state, now)).map(|e| (e.hash, &e.state))
    }

    fn update<R>(
        &mut self,
        at: usize,
        hash: u64,
        now: Now,
        reserve: &Reserve,
        act: impl FnOnce(&mut State) -> R,
    ) -> R {
        let state = self.table.state_mut(at);
        let before = heap_bytes(state);
        let result = act(state);
        let after = heap_bytes(state);
        if after != before {
            self.heap = self.heap - before + after;
            self.fit(hash, now, reserve);
        }
        result
    }

    fn insert(&mut self, hash: u64, state: State, now: Now, reserve: &Reserve) {
        self.sweep(now);
        if !self.table.has_room() && !self.grow(reserve) {
            self.evict(now, 0);
        }
        self.heap += heap_bytes(&state);
        self.table.insert(hash, state);
        self.fit(hash, now, reserve);
    }

    /// Grows the table by a step if the budget allows it. A small table may borrow for it, lest logs
    /// that fill the budget keep their shard from remembering more than a few keys. False if the
    /// table stays as it is.
    fn grow(&mut self, reserve: &Reserve) -> bool {
        let Some(slots) = self.table.larger() else { return false };
        let over = (slots * SLOT + self.heap).saturating_sub(BUDGET);
        let may_borrow = slots * SLOT <= BUDGET / 4;
        let affordable = over == 0 || (may_borrow && self.borrow(over, reserve));
        if affordable {
            self.table.resize(slots);
        }
        affordable
    }

    /// Drops expired entries among the next few slots.
    fn sweep(&mut self, now: Now) {
        for _ in 0..SWEPT.min(self.table.slots()) {
            match self.table.entry(self.hand) {
                Some(entry) if has_expired(&entry.state, now) => self.remove(self.hand, now),
                _ => self.advance(),
            }
        }
    }

    /// Evicts one entry other than `kept`. False if there is none.
    fn evict(&mut self, now: Now, kept: u64) -> bool {
        let mut victim: Option<(Rank, usize)> = None;
        let mut seen = 0;
        for _ in 0..self.table.slots() {
            if let Some(entry) = self.table.entry(self.hand)
                && entry.hash != kept
            {
                let candidate = (rank(&entry.state, now), self.hand);
                victim = Some(victim.map_or(candidate, |best| best.min(candidate)));
                seen += 1;
            }
            self.advance();
            if seen == SAMPLED {
                break;
            }
        }
        victim.is_some_and(|(_, at)| {
            self.remove(at, now);
            true
        })
    }

    /// Brings the bytes in use back under budget and reserve after heap bytes have changed: borrows
    /// if it can, else evicts others than `kept`, and `kept` itself only when it alone is too much.
    fn fit(&mut self, kept: u64, now: Now, reserve: &Reserve) {
        loop {
            let over = self.bytes().saturating_sub(BUDGET);
            if over <= self.borrowed {
                reserve.give_back(self.borrowed - over);
                self.borrowed = over;
                return;
            }
            if self.borrow(over, reserve) {
                return;
            }
            // Not as soon as the entries fit, or the next insert would want to grow again.
            if let Some(slots) = self.table.smaller()
                && self.table.len() <= Table::most_in(slots) * 7 / 8
            {
                self.table.resize(slots);
            } else if !self.evict(now, kept) && !self.evict(now, 0) {
                return;
            }
        }
    }

    /// Holds `bytes` of the reserve if it has them.
    fn borrow(&mut self, bytes: usize, reserve: &Reserve) -> bool {
        let granted = bytes <= self.borrowed || reserve.take(bytes - self.borrowed);
        if granted {
            self.borrowed = self.borrowed.max(bytes);
        }
        granted
    }

    fn remove(&mut self, at: usize, now: Now) {
        let state = self.table.remove(at);
        self.heap -= heap_bytes(&state);
        let dropped = if has_expired(&state, now) { &mut self.expired } else { &mut self.evicted_live };
        *dropped += 1;
    }

    fn advance(&mut self) {
        self.hand = if self.hand + 1 >= self.table.slots() { 0 } else { self.hand + 1 };
    }

    fn bytes(&self) -> usize {
        self.table.slots() * SLOT + self.heap
    }
}

/// Eviction order, the first to go least: units in use, then when they will have come back.
type Rank = (u64, Tick);

fn rank(state: &State, now: Now) -> Rank {
    match state {
        _ if has_expired(state, now) => (0, Tick(0)),
        State::Concurrency(_) => (u64::MAX, state.expires()),
        _ => (state.used(now).max(1), state.expires()),
    }
}

/// Whether the state says no more than an absent one would. A calendar period must also have ended by
/// the civil clock, which the store's timeline does not follow when it jumps.
fn has_expired(state: &State, now: Now) -> bool {
    state.expires() <= now.tick && state.used(now) == 0
}

fn heap_bytes(state: &State) -> usize {
    match state.heap_bytes() {
        0 => 0,
        bytes => bytes + bytes / HOLES + BLOCKS,
    }
}
