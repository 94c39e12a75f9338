//! What each policy has decided: the counters behind `tidegate_decisions_total`.
//!
//! A policy holds its tally directly, so counting a decision is one atomic addition, to a cell that
//! few threads share: every decision of every core would write the same cache line otherwise. Tallies
//! outlive the policy set: a reload does not reset a counter. There are at most as many as policy
//! names were ever in force at once, because names that left are dropped at the next assembly
//! beyond [`MAX_TALLIES`]. Client keys are never a label (fault 53).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_algorithms::sketch::{Counter, TopKeys};

/// Most policy names that are counted apart.
pub const MAX_TALLIES: usize = 1_024;

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

/// Most clients in the sketch of [`DeniedClients`].
const MAX_DENIED_CLIENTS: usize = 128;

/// Who is denied most: a sketch of at most 128 clients, for the admin API and never for metrics.
#[derive(Debug)]
pub struct DeniedClients {
    sketch: Mutex<TopKeys>,
}

impl Default for DeniedClients {
    fn default() -> Self {
        Self { sketch: Mutex::new(TopKeys::new(MAX_DENIED_CLIENTS)) }
    }
}

impl DeniedClients {
    /// Counts a denial, unless another core is counting one at this moment: a sketch that is a few
    /// short is worth more than denials that wait for each other.
    pub(crate) fn see(&self, client: &[u8]) {
        if let Ok(mut sketch) = self.sketch.try_lock() {
            sketch.see(client);
        }
    }

    /// The clients, most denied first.
    #[must_use]
    pub fn heaviest(&self) -> Vec<Counter> {
        // Counting leaves the sketch whole at every step that can panic.
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner).heaviest()
    }
}

/// The tallies of all policies, by name.
#[derive(Debug, Default)]
pub struct Tallies {
    by_policy: Mutex<BTreeMap<Arc<str>, Arc<Tally>>>,
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
    /// The tally of `policy`, made if need be.
    #[must_use]
    pub fn of(&self, policy: &Arc<str>) -> Arc<Tally> {
        // A panic while holding the lock leaves a whole map: inserting is all that happens there.
        let mut tallies = self.by_policy.lock().unwrap_or_else(PoisonError::into_inner);
        if tallies.len() >= MAX_TALLIES {
            tallies.retain(|_, tally| Arc::strong_count(tally) > 1);
        }
        tallies.entry(policy.clone()).or_default().clone()
    }

    /// All counters, by policy name.
    #[must_use]
    pub fn read(&self) -> Vec<(Arc<str>, TallyCount)> {
        let tallies = self.by_policy.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.iter().map(|(name, tally)| (name.clone(), tally.read())).collect()
    }
}
