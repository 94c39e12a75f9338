//! One shard's hash table: open addressing in hash order ("Robin Hood"), 32 bytes per slot.
//!
//! ```text
//!   slot    0     1     2     3     4     5     6     7
//!         | 0.0 | 0.1 | 1.0 | 3.0 |     | 5.0 | 5.1 | 5.2 |     home.displacement
//! ```
//!
//! Linear probing in which an entry never sits further from its home than the one it would push
//! away, so that entries lie in the order of their homes and a search ends as soon as it meets one
//! that is closer to its home: absent keys cost no more than present ones.
//!
//! Why not `hashbrown`: here a removal leaves no tombstone, so that a full table in which every
//! insert evicts never needs a rehash; the size is any number of slots, so growth is by a quarter
//! and fills a byte budget instead of half of it; and the clock hand that looks for expired entries
//! walks slots by index. `docs/decisions/0010-memory-store.md` has the figures.
//!
//! Invariants: hash 0 marks an empty slot; at least one slot is empty unless there are none, which
//! is what ends every probe; [`Table::new`] allocates nothing.
//!
//! Deliberately absent: hashing, budgets, eviction: see `identity.rs` and `shard.rs`.
//!
//! Reference: Celis, "Robin Hood Hashing", 1986; Knuth, TAOCP 3, 6.4 (ordered tables, Algorithm R).

use tidegate_algorithms::limit::State;

/// Bytes of one slot.
pub(super) const SLOT: usize = size_of::<Entry>();

/// A key's identity and its state.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) state: State,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Box<[Entry]>,
    len: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Most entries in this many slots: four fifths. Beyond it probes grow long.
    pub(super) fn most_in(slots: usize) -> usize {
        slots * 4 / 5
    }

    pub(super) fn has_room(&self) -> bool {
        self.len < Self::most_in(self.slots.len())
    }

    /// Index of the slot that holds `hash`.
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        for displacement in 0..self.slots.len() {
            let other = self.slots[at].hash;
            if other == hash {
                return Some(at);
            }
            if other == 0 || self.displacement(at) < displacement {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// The entry in slot `at`, `None` if the slot is empty.
    pub(super) fn entry(&self, at: usize) -> Option<&Entry> {
        self.slots.get(at).filter(|entry| entry.hash != 0)
    }

    /// The state in slot `at`, which [`Table::find`] named.
    pub(super) fn state_mut(&mut self, at: usize) -> &mut State {
        &mut self.slots[at].state
    }

    /// Adds an absent `hash`. There must be room.
    pub(super) fn insert(&mut self, hash: u64, state: State) {
        debug_assert!(self.has_room(), "a probe must find an empty slot");
        let mut at = self.home(hash);
        let mut displacement = 0;
        while self.slots[at].hash != 0 && self.displacement(at) >= displacement {
            at = self.after(at);
            displacement += 1;
        }
        // From here to the next empty slot every entry moves up by one.
        let mut carried = Entry { hash, state };
        while carried.hash != 0 {
            std::mem::swap(&mut self.slots[at], &mut carried);
            at = self.after(at);
        }
        self.len += 1;
    }

    /// Removes the entry in slot `at`, which is occupied; later ones of its run move down by one.
    pub(super) fn remove(&mut self, at: usize) -> State {
        let removed = std::mem::take(&mut self.slots[at]);
        let mut hole = at;
        let mut next = self.after(at);
        while self.slots[next].hash != 0 && self.displacement(next) > 0 {
            self.slots.swap(hole, next);
            hole = next;
            next = self.after(next);
        }
        self.len -= 1;
        removed.state
    }

    /// Moves all entries into a table of `slots` slots, which have room for them.
    pub(super) fn resize(&mut self, slots: usize) {
        debug_assert!(self.len <= Self::most_in(slots), "the entries must fit");
        let fresh = std::iter::repeat_with(Entry::default).take(slots).collect();
        let old = std::mem::replace(self, Self { slots: fresh, len: 0 });
        for entry in old.slots.into_iter().filter(|entry| entry.hash != 0) {
            self.insert(entry.hash, entry.state);
        }
    }

    /// All entries, in no useful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.hash != 0)
    }

    /// Where `hash` would sit if it were alone: its low half scaled to the number of slots. The
    /// high half chose the shard.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is wanted, and the product's
        high half is less than the number of slots"
    )]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.slots.len() as u64) >> 32) as usize
    }

    /// How far the entry in slot `at` sits from its home.
    fn displacement(&self, at: usize) -> usize {
        let home = self.home(self.slots[at].hash);
        if at >= home { at - home } else { at + self.slots.len() - home }
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tidegate_algorithms::limit::bucket::Debt;
    use tidegate_algorithms::time::Tick;

    use super::*;

    fn numbered(number: u64) -> State {
        State::Bucket(Debt { tat: Tick(number), interval: 1 })
    }

    /// Every entry is found, and nothing lies past one that is closer to its home.
    fn check(table: &Table, model: &HashMap<u64, u64>) {
        assert_eq!(table.len(), model.len());
        assert_eq!(table.iter().count(), model.len());
        for (hash, number) in model {
            let at = table.find(*hash).expect("present");
            assert_eq!(table.entry(at).map(|entry| &entry.state), Some(&numbered(*number)));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64),
        Take(u64),
        Resize(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few homes and many hashes: long runs that wrap around.
        let hash = (0..12_u64, 0..6_u64).prop_map(|(home, name)| (name << 40) | (home * 0x1555_5555) | 1);
        prop_oneof![
            6 => hash.clone().prop_map(Step::Put),
            4 => hash.prop_map(Step::Take),
            1 => (5..40_usize).prop_map(Step::Resize),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec(step(), 1..200)) {
            let mut table = Table::default();
            let mut model = HashMap::new();
            for (number, step) in (0_u64..).zip(steps) {
                match step {
                    Step::Put(hash) => match table.find(hash) {
                        Some(at) => {
                            *table.state_mut(at) = numbered(number);
                            model.insert(hash, number);
                        }
                        None => {
                            if !table.has_room() {
                                table.resize((table.slots() * 5 / 4).max(table.slots() + 5));
                            }
                            table.insert(hash, numbered(number));
                            model.insert(hash, number);
                        }
                    },
                    Step::Take(hash) => {
                        let taken = table.find(hash).map(|at| table.remove(at));
                        prop_assert_eq!(taken, model.remove(&hash).map(numbered));
                    }
                    Step::Resize(slots) if table.len() <= Table::most_in(slots) => table.resize(slots),
                    Step::Resize(_) => {}
                }
                check(&table, &model);
            }
        }
    }

    #[test]
    fn an_entry_is_32_bytes() {
        assert_eq!(SLOT, 32);
    }

    #[test]
    fn an_unused_table_has_no_allocation() {
        assert_eq!(Table::default().slots(), 0);
        assert_eq!(Table::default().find(7), None);
    }
}
