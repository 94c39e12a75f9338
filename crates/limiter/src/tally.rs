//! Tallies: the decisions of each policy, for `tidegate_decisions_total`.
//!
//! A policy holds its tally directly, so counting a decision is one atomic addition, to a cell that
//! few threads share: every decision of every core would write the same cache line otherwise. Tallies
//! outlive the policy set: a reload does not reset a counter. A policy's tally is on the metrics page
//! once a set with the policy was in force. There are at most [`MAX_TALLIES`]: names that have left are
//! dropped for new ones, and what then has no room is counted together under [`OTHERS`]. Client keys
//! are never a label (fault 53).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Most policy names that are counted apart.
pub const MAX_TALLIES: usize = 1_024;

/// What the policies without a tally of their own are counted as. No policy can have the name.
pub const OTHERS: &str = "_other";

/// Cells of a tally. Threads beyond as many share them.
const CELLS: usize = 8;

/// One policy's counters.
#[derive(Debug, Default)]
pub struct Tally {
    cells: [Cell; CELLS],
}

/// What some of the threads have counted, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    allowed: AtomicU64,
    denied: AtomicU64,
    shadow_denied: AtomicU64,
    degraded: AtomicU64,
}

/// One policy's counters, read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyCount {
    /// Requests for which the policy had room.
    pub allowed: u64,
    /// Requests that the policy denied.
    pub denied: u64,
    /// Requests that the policy would have denied, in shadow mode.
    pub shadow_denied: u64,
    /// Answers given without the store.
    pub degraded: u64,
}

/// The tallies of all policies, by name.
#[derive(Debug, Default)]
pub struct Tallies {
    by_policy: Mutex<BTreeMap<Arc<str>, Arc<Tally>>>,
    others: Arc<Tally>,
}

impl Tally {
    /// Counts one verdict of a decision that spends.
    pub(crate) fn count(&self, allowed: bool, binding: bool, degraded: bool) {
        let cell = &self.cells[thread_number() % CELLS];
        let counter = match (allowed, binding) {
            (true, _) => &cell.allowed,
            (false, true) => &cell.denied,
            (false, false) => &cell.shadow_denied,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if degraded {
            cell.degraded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts verdicts that bind and were given together, by this node's own store.
    pub(crate) fn count_together(&self, allowed: u64, denied: u64) {
        let cell = &self.cells[thread_number() % CELLS];
        cell.allowed.fetch_add(allowed, Ordering::Relaxed);
        cell.denied.fetch_add(denied, Ordering::Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> TallyCount {
        let sum = |counter: fn(&Cell) -> &AtomicU64| {
            self.cells.iter().map(|cell| counter(cell).load(Ordering::Relaxed)).sum()
        };
        TallyCount {
            allowed: sum(|cell| &cell.allowed),
            denied: sum(|cell| &cell.denied),
            shadow_denied: sum(|cell| &cell.shadow_denied),
            degraded: sum(|cell| &cell.degraded),
        }
    }
}

/// The calling thread's number, in the order in which threads first asked.
pub(crate) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Tallies {
    /// The tally of `name`, made if need be.
    #[must_use]
    pub fn of(&self, name: &Arc<str>) -> Arc<Tally> {
        let tally = self.prepare([name].into_iter()).pop().unwrap_or_default();
        self.adopt([(name, &tally)].into_iter());
        tally
    }

    /// A tally for each of `policies`, of which at most [`MAX_TALLIES`] are their own. New tallies appear nowhere
    /// before they are adopted.
    pub(crate) fn prepare<'n>(&self, policies: impl Iterator<Item = &'n Arc<str>>) -> Vec<Arc<Tally>> {
        let mut tallies = self.lock();
        let policies: Vec<_> = policies.collect();
        if tallies.len() + policies.len() > MAX_TALLIES {
            tallies.retain(|_, tally| Arc::strong_count(tally) > 1);
        }
        let mut room = MAX_TALLIES.saturating_sub(tallies.len());
        let tally = |policy: &Arc<str>| match tallies.get(policy) {
            Some(tally) => tally.clone(),
            None if room == 0 => self.others.clone(),
            None => {
                room -= 1;
                Arc::default()
            }
        };
        policies.into_iter().map(tally).collect()
    }

    /// Takes prepared tallies up, whose policies are in force now.
    pub(crate) fn adopt<'n>(&self, policies: impl Iterator<Item = (&'n Arc<str>, &'n Arc<Tally>)>) {
        let mut tallies = self.lock();
        for (policy, tally) in policies.filter(|(_, tally)| !Arc::ptr_eq(tally, &self.others)) {
            if !tallies.contains_key(policy) {
                tallies.insert(policy.clone(), tally.clone());
            }
        }
    }

    /// All counters, by policy name.
    #[must_use]
    pub fn read(&self) -> Vec<(Arc<str>, TallyCount)> {
        let mut counts: Vec<_> =
            self.lock().iter().map(|(name, tally)| (name.clone(), tally.read())).collect();
        let others = self.others.read();
        if others != TallyCount::default() {
            counts.push((Arc::from(OTHERS), others));
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Tally>>> {
        // A panic while holding the lock leaves a whole map: inserting is all that happens there.
        self.by_policy.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_53_ten_thousand_policies_are_a_bounded_number_of_series() {
        let tallies = Tallies::default();
        let names: Vec<Arc<str>> = (0..10_000).map(|number| Arc::from(format!("p{number}"))).collect();
        let prepared = tallies.prepare(names.iter());
        assert!(tallies.read().is_empty(), "what is not in force is not shown");
        tallies.adopt(names.iter().zip(&prepared));
        for tally in &prepared {
            tally.count(true, true, false);
        }
        let counts = tallies.read();
        assert_eq!(counts.len(), MAX_TALLIES + 1);
        let others = &counts[MAX_TALLIES];
        assert_eq!((&*others.0, others.1.allowed), (OTHERS, 10_000 - MAX_TALLIES as u64));
        drop(prepared);
        let again = tallies.prepare(names[9_000..].iter());
        assert!(!again.iter().any(|tally| Arc::ptr_eq(tally, &tallies.others)), "others' room is used again");
    }
}
