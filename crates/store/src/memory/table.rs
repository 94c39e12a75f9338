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
//! Slots lie in segments of fixed sizes, 8 4 4 8 8 16 16 ... 256, and growth adds one: by a third or
//! a half. Nothing is freed when a table grows, so thousands of tables that grow side by side leave
//! no holes in the heap (tables in one piece left 18 to 32 %, which no cap on bytes survives).
//!
//! Why not `hashbrown`: here a removal leaves no tombstone, so that a full table in which every
//! insert evicts never needs a rehash; growth is finer than by doubling and fills a byte budget
//! instead of half of it; and the clock hand that looks for expired entries walks slots by index.
//! `docs/decisions/0010-memory-store.md` has the figures.
//!
//! Invariants: hash 0 marks an empty slot; at least one slot is empty unless there are none, which
//! is what ends every probe; an unused table allocates nothing.
//!
//! Deliberately absent: hashing, budgets, eviction: see `identity.rs` and `shard.rs`.
//!
//! Reference: Celis, "Robin Hood Hashing", 1986; Knuth, TAOCP 3, 6.4 (ordered tables, Algorithm R).

use tidegate_algorithms::limit::State;

/// Bytes of one slot.
pub(super) const SLOT: usize = size_of::<TableEntry>();

/// A key's identity and its state.
#[derive(Debug, Default)]
pub(super) struct TableEntry {
    pub(super) hash: u64,
    pub(super) state: State,
}

/// Segments of a table at its largest.
pub(super) const MOST_SEGMENTS: usize = 16;
/// Slots of a table at its largest.
pub(super) const MOST_SLOTS: usize = 1_280;

/// See the module. In this order, so that what every look-up reads shares a cache line with the lock
/// before it.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Table {
    slots: usize,
    len: usize,
    segments: [Box<[TableEntry]>; MOST_SEGMENTS],
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Most entries in this many slots: four fifths. Beyond it probes grow long.
    pub(super) fn most_in(slots: usize) -> usize {
        slots * 4 / 5
    }

    pub(super) fn has_room(&self) -> bool {
        self.len < Self::most_in(self.slots)
    }

    /// The next larger number of slots, `None` at the largest.
    pub(super) fn larger(&self) -> Option<usize> {
        match self.slots {
            0 => Some(8),
            slots if slots.is_power_of_two() => Some((slots * 3 / 2).min(MOST_SLOTS)),
            MOST_SLOTS => None,
            slots => Some(slots / 3 * 4),
        }
    }

    /// The next smaller number of slots, `None` at the smallest.
    pub(super) fn smaller(&self) -> Option<usize> {
        match self.slots {
            0..=8 => None,
            MOST_SLOTS => Some(1_024),
            slots if slots.is_power_of_two() => Some(slots / 4 * 3),
            slots => Some(slots / 3 * 2),
        }
    }

    /// Index of the slot that holds `hash`.
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        let mut at = self.home(hash);
        for displacement in 0..self.slots {
            let other = self.slot(at).hash;
            if other == hash {
                return Some(at);
            }
            if other == 0 || self.displacement(at, other) < displacement {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Whether the slot in which a search for `hash` begins is occupied: reads what [`Table::find`] will
    /// read first.
    pub(super) fn is_home_taken(&self, hash: u64) -> bool {
        self.slots > 0 && self.slot(self.home(hash)).hash != 0
    }

    /// The entry in slot `at`, `None` if the slot is empty or does not exist.
    pub(super) fn entry(&self, at: usize) -> Option<&TableEntry> {
        (at < self.slots).then(|| self.slot(at)).filter(|entry| entry.hash != 0)
    }

    /// The state in slot `at`, which [`Table::find`] named.
    pub(super) fn state_mut(&mut self, at: usize) -> &mut State {
        &mut self.slot_mut(at).state
    }

    /// Adds an absent `hash`. There must be room.
    pub(super) fn insert(&mut self, hash: u64, state: State) {
        debug_assert!(self.has_room(), "a probe must find an empty slot");
        let mut at = self.home(hash);
        let mut displacement = 0;
        while self.slot(at).hash != 0 && self.displacement(at, self.slot(at).hash) >= displacement {
            at = self.after(at);
            displacement += 1;
        }
        // From here to the next empty slot every entry moves up by one.
        let mut carried = TableEntry { hash, state };
        while carried.hash != 0 {
            std::mem::swap(self.slot_mut(at), &mut carried);
            at = self.after(at);
        }
        self.len += 1;
    }

    /// Removes the entry in slot `at`, which is occupied; later ones of its run move down by one.
    pub(super) fn remove(&mut self, at: usize) -> State {
        let removed = std::mem::take(self.slot_mut(at));
        let mut hole = at;
        let mut next = self.after(at);
        while self.slot(next).hash != 0 && self.displacement(next, self.slot(next).hash) > 0 {
            *self.slot_mut(hole) = std::mem::take(self.slot_mut(next));
            hole = next;
            next = self.after(next);
        }
        self.len -= 1;
        removed.state
    }

    /// Takes on `slots` slots, as [`Table::larger`] or [`Table::smaller`] gave them, which have
    /// room for all entries.
    pub(super) fn resize(&mut self, slots: usize) {
        debug_assert!(self.len <= Self::most_in(slots), "the entries must fit");
        let mut entries = Vec::with_capacity(self.len);
        for segment in &mut self.segments {
            entries.extend(segment.iter_mut().filter(|entry| entry.hash != 0).map(std::mem::take));
        }
        let mut start = 0;
        for segment in &mut self.segments {
            let size = segment_size(start).min(slots - start);
            if segment.len() != size {
                *segment = std::iter::repeat_with(TableEntry::default).take(size).collect();
            }
            start += size;
        }
        self.slots = slots;
        self.len = 0;
        for entry in entries {
            self.insert(entry.hash, entry.state);
        }
    }

    /// All entries, in no useful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        self.segments.iter().flatten().filter(|entry| entry.hash != 0)
    }

    fn slot(&self, at: usize) -> &TableEntry {
        let (segment, offset) = locate(at);
        &self.segments[segment][offset]
    }

    fn slot_mut(&mut self, at: usize) -> &mut TableEntry {
        let (segment, offset) = locate(at);
        &mut self.segments[segment][offset]
    }

    /// Where `hash` would sit if it were alone: its low half scaled to the number of slots. The
    /// high half chose the shard.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is wanted, and the product's high half is less than the number of slots"
    )]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.slots as u64) >> 32) as usize
    }

    /// How far the entry `hash` in slot `at` sits from its home.
    fn displacement(&self, at: usize, hash: u64) -> usize {
        let home = self.home(hash);
        if at >= home { at - home } else { at + self.slots - home }
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots { 0 } else { at + 1 }
    }
}

/// Slots of the segment that starts at slot `start`: the first has 8, the others half the greatest
/// power of two up to their start.
fn segment_size(start: usize) -> usize {
    if start == 0 { 8 } else { 1 << (start.ilog2() - 1) }
}

/// The segment that slot `at` is in, and its place there. Starts are 8, 12, 16, 24, 32, 48 ...
fn locate(at: usize) -> (usize, usize) {
    if at < 8 {
        return (0, at);
    }
    let power = at.ilog2() as usize;
    let half = (at >> (power - 1)) & 1;
    (2 * power - 5 + half, at - ((2 + half) << (power - 1)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tidegate_algorithms::limit::bucket::Debt;
    use tidegate_algorithms::time::Tick;

    use super::*;

    fn numbered(number: u64) -> State {
        State::Bucket(Debt::new(Tick(number), 1, 1, 0))
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
        Resize(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few homes and many hashes: long runs that wrap around.
        let hash = (0..12_u64, 0..6_u64).prop_map(|(home, name)| (name << 40) | (home * 0x1555_5555) | 1);
        prop_oneof![
            6 => hash.clone().prop_map(Step::Put),
            4 => hash.prop_map(Step::Take),
            1 => any::<bool>().prop_map(Step::Resize),
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
                                let larger = table.larger().expect("few entries");
                                table.resize(larger);
                            }
                            table.insert(hash, numbered(number));
                            model.insert(hash, number);
                        }
                    },
                    Step::Take(hash) => {
                        let taken = table.find(hash).map(|at| table.remove(at));
                        prop_assert_eq!(taken, model.remove(&hash).map(numbered));
                    }
                    Step::Resize(grow) => {
                        let slots = if grow { table.larger() } else { table.smaller() };
                        if let Some(slots) = slots
                            && table.len() <= Table::most_in(slots)
                        {
                            table.resize(slots);
                        }
                    }
                }
                check(&table, &model);
            }
        }
    }

    #[test]
    fn an_entry_is_32_bytes() {
        assert_eq!(SLOT, 32);
    }

    /// Sizes go up and down by the same steps, and every slot is where its segment says.
    #[test]
    fn segments_fit_together() {
        let mut table = Table::default();
        while let Some(slots) = table.larger() {
            table.resize(slots);
            assert_eq!(table.segments.iter().map(|segment| segment.len()).sum::<usize>(), slots);
            let mut before = (0, 0);
            for at in 1..slots {
                let (segment, offset) = locate(at);
                let next = before.1 + 1 < table.segments[before.0].len();
                assert_eq!(
                    (segment, offset),
                    if next { (before.0, before.1 + 1) } else { (before.0 + 1, 0) }
                );
                before = (segment, offset);
            }
        }
        assert_eq!(table.slots(), MOST_SLOTS);
        assert!(table.segments.iter().all(|segment| !segment.is_empty()));
        let mut sizes = 1;
        while let Some(slots) = table.smaller() {
            table.resize(slots);
            assert!(table.larger() > Some(slots));
            sizes += 1;
        }
        assert_eq!((table.slots(), sizes), (8, MOST_SEGMENTS));
    }

    #[test]
    fn an_unused_table_has_no_allocation() {
        assert_eq!(Table::default().slots(), 0);
        assert_eq!(Table::default().find(7), None);
    }
}
