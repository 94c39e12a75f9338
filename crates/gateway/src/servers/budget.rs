//! The budget for further attempts that all requests of an upstream share ([`tidegate_algorithms::balance::budget`]).
//!
//! Each core counts its requests on a cache line of its own, by the second: no request writes what another core writes.
//! Further attempts are few. They are counted behind one lock, whose holder adds up what the cores have counted, so that the
//! budget is as exact as with one counter for all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tidegate_algorithms::balance::budget::{Budget, BudgetSettings};
use tidegate_algorithms::time::{SECOND, Tick};

/// The bits of a counter that count; the others say which second it counts.
const COUNT_BITS: u32 = 28;
/// Most requests that a core counts in a second.
const MOST: u64 = (1 << COUNT_BITS) - 1;

/// A budget that cores share.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    cores: usize,
    /// Made with the first request: most of many upstreams have none.
    requests: OnceLock<Box<[CoreRequests]>>,
    attempts: Mutex<Budget>,
}

/// The requests of one core in the last even second and in the last odd one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreRequests([AtomicU64; 2]);

impl CoreRequests {
    fn count_of(&self, second: u64) -> &AtomicU64 {
        let [even, odd] = &self.0;
        if second.is_multiple_of(2) { even } else { odd }
    }
}

impl SharedBudget {
    /// An unspent budget of requests on so many cores.
    pub(crate) fn new(settings: BudgetSettings, cores: usize) -> Self {
        Self { cores: cores.max(1), requests: OnceLock::new(), attempts: Mutex::new(Budget::new(settings)) }
    }

    /// Counts the first attempt of a request on this core.
    pub(crate) fn request(&self, core: usize, now: Tick) {
        let second = now.0 / SECOND;
        let none = || (0..self.cores).map(|_| CoreRequests::default()).collect();
        let count = self.requests.get_or_init(none)[core % self.cores].count_of(second);
        let mut held = count.load(Relaxed);
        while let Err(other) = count.compare_exchange_weak(held, one_more(held, second), Relaxed, Relaxed) {
            held = other;
        }
    }

    /// Takes leave for a further attempt. False: there is none left.
    pub(crate) fn try_attempt(&self, now: Tick) -> bool {
        let second = now.0 / SECOND;
        let requests = [self.requests(second), self.requests(second.wrapping_sub(1))];
        self.attempts.lock().try_attempt_among(requests, now)
    }

    /// The requests of all cores in this second.
    fn requests(&self, second: u64) -> u32 {
        let cores = self.requests.get().map(|cores| &**cores).unwrap_or_default();
        let held = cores.iter().map(|core| core.count_of(second).load(Relaxed));
        let of_second = held.filter(|held| held >> COUNT_BITS == second).map(|held| held & MOST);
        u32::try_from(of_second.sum::<u64>()).unwrap_or(u32::MAX)
    }
}

/// A counter with one request more. One that counts a later second already keeps to it.
fn one_more(held: u64, second: u64) -> u64 {
    if held >> COUNT_BITS < second {
        return second << COUNT_BITS | 1;
    }
    held + u64::from(held & MOST < MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_several_cores_grants_what_one_counter_would() {
        let settings = BudgetSettings { percent: 10, least_per_second: 2 };
        let (shared, mut one) = (SharedBudget::new(settings, 3), Budget::new(settings));
        let mut granted = 0;
        // 500 requests a second, a second without any, and a minute later once more.
        let busy = (0..2_500).filter(|at| !(1_000..1_500).contains(at)).map(|at| at * SECOND / 500);
        let again = (0..300).map(|at| 66 * SECOND + at * SECOND / 100);
        for (number, at) in busy.chain(again).enumerate() {
            let now = Tick(1_700_000_000 * SECOND + at);
            shared.request(number, now);
            one.request(now);
            let is_granted = one.try_attempt(now);
            assert_eq!(shared.try_attempt(now), is_granted, "request {number} at {at}");
            granted += u64::from(is_granted);
        }
        assert!(granted > 100, "{granted}");
    }

    #[test]
    fn a_counter_never_goes_back_to_an_earlier_second_and_does_not_run_over() {
        let later = one_more(one_more(0, 7), 7);
        assert_eq!((later >> COUNT_BITS, later & MOST), (7, 2));
        assert_eq!(one_more(later, 5), later + 1);
        let full = 7 << COUNT_BITS | MOST;
        assert_eq!(one_more(full, 7), full);
        assert_eq!(one_more(full, 9), 9 << COUNT_BITS | 1);
        assert_eq!((align_of::<CoreRequests>(), size_of::<CoreRequests>()), (128, 128));
    }
}
