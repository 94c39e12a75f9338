//! The bounds of leasing a limit, from its numbers alone.

use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::time::SECOND;

/// All nodes together hold at most what comes back in T: this part of the lifetime that is configured,
/// and that part of the limit's window if it is less. The two are apart because they cost different
/// things: what is held can be spent above the limit, and how long it is held costs nobody anything,
/// since the store's count of it falls at its own pace.
const PART_OF_LIFETIME: u64 = 30;
const PART_OF_WINDOW: u64 = 10;

/// How leases are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Longest that units are held unspent, in nanoseconds; the window if that is less.
    pub lifetime: u64,
    /// Most units in one lease.
    pub max_units: u64,
    /// How many nodes share each limit, >= 1.
    pub instances: u64,
    /// Most keys that this node holds or watches; further ones are decided by the store.
    pub max_keys: usize,
}

/// What leasing one limit can cost. [`bounds`] makes it; `tidegate check` and `explain` print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most units in one lease, n. 1: the limit is not leased, and the other figures are 0.
    pub units: u64,
    /// How long a lease lasts, in nanoseconds.
    pub lifetime: u64,
    /// T, in nanoseconds: all nodes together hold at most what comes back in it.
    pub turn: u64,
    /// Most units above a full quota in any one window: `nodes x (n - 1)`; 0 for fixed and calendar
    /// windows, whose leases end with their window.
    pub over_admission: u64,
    /// Most units that no node can spend although they were not spent: held by nodes without
    /// demand, or lost with a node or a message, until they come back by themselves.
    pub stranded: u64,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { lifetime: 30 * SECOND, max_units: 1_000_000, instances: 1, max_keys: 131_072 }
    }
}

/// The bounds under which `limit` is leased.
///
/// The lease is so small that all nodes together hold at most what comes back in T: `nodes x (n - 1) <= limit x T / window`. Permits are never leased, since they are given back one
/// by one, and neither are leaky buckets, since each request waits for its turn.
#[must_use]
pub fn bounds(limit: &Limit, config: &LeaseConfig) -> Bounds {
    const NOT_LEASED: Bounds = Bounds { units: 1, lifetime: 0, turn: 0, over_admission: 0, stranded: 0 };
    let (quota, window) = match limit {
        Limit::TokenBucket(bucket) => (bucket.burst, bucket.capacity()),
        Limit::FixedWindow(window) => (window.limit, u64::from(window.seconds) * SECOND),
        Limit::SlidingLog(log) => (log.limit, log.window),
        Limit::SlidingCounter(counter) => (counter.limit, u64::from(counter.seconds) * SECOND),
        Limit::Calendar(calendar) => {
            let days = if calendar.period == Period::Day { 1 } else { 28 };
            (calendar.limit, days * 86_400 * SECOND)
        }
        Limit::LeakyBucket(_) | Limit::Concurrency(_) => return NOT_LEASED,
    };
    let lifetime = config.lifetime.min(window);
    let turn = (config.lifetime / PART_OF_LIFETIME).min(window / PART_OF_WINDOW);
    let nodes = u128::from(config.instances.max(1));
    let back = u128::from(quota) * u128::from(turn) / (u128::from(window.max(1)) * nodes);
    let units = u64::try_from(back).unwrap_or(u64::MAX).saturating_add(1).min(config.max_units.max(1));
    if units == 1 {
        return NOT_LEASED;
    }
    let held = config.instances.max(1).saturating_mul(units - 1);
    let ends_with_window = matches!(limit, Limit::FixedWindow(_) | Limit::Calendar(_));
    let over_admission = if ends_with_window { 0 } else { held };
    Bounds { units, lifetime, turn, over_admission, stranded: held }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{Bucket, FixedWindow, SlidingLog, Slots};

    use super::*;

    #[test]
    fn small_limits_are_not_leased_and_large_ones_within_what_comes_back() {
        let config = LeaseConfig { instances: 3, ..LeaseConfig::default() };
        let log = |limit| Limit::SlidingLog(SlidingLog { limit, window: 60 * SECOND });
        assert_eq!(bounds(&log(100), &config).units, 1);
        let large = bounds(&log(3_600), &config);
        assert_eq!((large.units, large.over_admission, large.stranded), (21, 60, 60));
        assert!(large.over_admission <= 3_600 * large.turn / (60 * SECOND));
        let window = Limit::FixedWindow(FixedWindow { limit: 3_600, seconds: 60 });
        assert_eq!(bounds(&window, &config), Bounds { over_admission: 0, ..large });
    }

    #[test]
    fn a_lease_lasts_at_most_the_window() {
        for (seconds, lifetime, turn) in
            [(1, SECOND, SECOND / 10), (20, 20 * SECOND, SECOND), (60, 30 * SECOND, SECOND)]
        {
            let bucket = Limit::TokenBucket(Bucket::new(1_000 * seconds, 1_000 * seconds, seconds * SECOND));
            let bounds = bounds(&bucket, &LeaseConfig::default());
            assert_eq!(
                (bounds.lifetime, bounds.turn, bounds.units),
                (lifetime, turn, 1 + turn * 1_000 / SECOND)
            );
        }
    }

    #[test]
    fn permits_and_turns_are_not_leased() {
        let config = LeaseConfig::default();
        let slots = Limit::Concurrency(Slots { limit: 10_000, lease: SECOND });
        let leaky = Limit::LeakyBucket(Bucket::new(10_000, 10_000, SECOND));
        assert!([slots, leaky].iter().all(|limit| bounds(limit, &config).units == 1));
    }
}
