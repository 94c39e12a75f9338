//! A guard's counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the calls' durations, in microseconds; a last bucket has no bound.
pub const CALL_BOUNDS_US: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000];

/// How long calls took, those that failed or were too late included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallDurations {
    /// Calls by duration: up to each of [`CALL_BOUNDS_US`], then all longer ones.
    pub buckets: [u64; CALL_BOUNDS_US.len() + 1],
    /// The sum of all durations, in microseconds.
    pub sum_us: u64,
}

/// What a guard has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardStats {
    /// Answers counted in this node's memory.
    pub degraded_local: u64,
    /// Answers allowed blindly.
    pub degraded_open: u64,
    /// Answers denied blindly.
    pub degraded_closed: u64,
    /// Calls that failed or were too late.
    pub failures: u64,
    /// Calls for keys whose state the store cannot read.
    pub unreadable: u64,
    /// Calls not made because too many were under way.
    pub saturated: u64,
    /// Times the breaker opened.
    pub opened: u64,
    /// Whether it is open.
    pub is_open: bool,
    /// Units admitted blindly.
    pub blind_units: u64,
    /// Of those, what the store had no room for when they were charged to it afterwards.
    pub over_admitted_units: u64,
    /// Of those, what the store has charged afterwards. Units whose window had ended by then are counted in none of
    /// these three.
    pub charged_units: u64,
    /// Units of these that could not be charged afterwards: see [`super::outage`].
    pub unsettled_units: u64,
    /// How long the store's calls took.
    pub calls: CallDurations,
}

#[derive(Debug, Default)]
pub(super) struct GuardCounts {
    pub(super) local: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) unreadable: AtomicU64,
    pub(super) saturated: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) blind_units: AtomicU64,
    pub(super) over_admitted: AtomicU64,
    pub(super) charged: AtomicU64,
    pub(super) unsettled: AtomicU64,
    call_buckets: [AtomicU64; CALL_BOUNDS_US.len() + 1],
    call_sum_us: AtomicU64,
}

impl GuardCounts {
    /// A call has ended.
    pub(super) fn called(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = CALL_BOUNDS_US.partition_point(|bound| *bound < took);
        if let Some(count) = self.call_buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.call_sum_us.fetch_add(took, Ordering::Relaxed);
    }

    /// What was counted, and whether the breaker is open.
    pub(super) fn read(&self, is_open: bool) -> GuardStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GuardStats {
            degraded_local: read(&self.local),
            degraded_open: read(&self.open),
            degraded_closed: read(&self.closed),
            failures: read(&self.failures),
            unreadable: read(&self.unreadable),
            saturated: read(&self.saturated),
            opened: read(&self.opened),
            is_open,
            blind_units: read(&self.blind_units),
            over_admitted_units: read(&self.over_admitted),
            charged_units: read(&self.charged),
            unsettled_units: read(&self.unsettled),
            calls: CallDurations {
                buckets: std::array::from_fn(|bucket| read(&self.call_buckets[bucket])),
                sum_us: read(&self.call_sum_us),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_in_the_first_bucket_that_is_not_too_short() {
        let counts = GuardCounts::default();
        for us in [0, 100, 101, 10_000, 1_000_001] {
            counts.called(Duration::from_micros(us));
        }
        let calls = counts.read(false).calls;
        assert_eq!(calls.buckets, [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(calls.sum_us, 1_010_202);
    }
}
