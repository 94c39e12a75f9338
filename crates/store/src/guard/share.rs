//! A node's share of a limit.

use tidegate_algorithms::limit::{Bucket, Calendar, FixedWindow, Limit, SlidingCounter, SlidingLog, Slots};

/// The limit that each of `instances` nodes keeps alone: `limit / instances`, rounded up, so at
/// least 1 unless the limit is 0. Together they admit at most `instances x share`.
#[must_use]
pub fn share(limit: &Limit, instances: u64) -> Limit {
    let instances = instances.max(1);
    let part = |units: u64| units.div_ceil(instances);
    let bucket = |bucket: &Bucket| Bucket {
        interval: bucket.interval.saturating_mul(instances),
        burst: part(bucket.burst),
    };
    match limit {
        Limit::TokenBucket(limit) => Limit::TokenBucket(bucket(limit)),
        Limit::LeakyBucket(limit) => Limit::LeakyBucket(bucket(limit)),
        Limit::FixedWindow(limit) => Limit::FixedWindow(FixedWindow { limit: part(limit.limit), ..*limit }),
        Limit::SlidingLog(limit) => Limit::SlidingLog(SlidingLog { limit: part(limit.limit), ..*limit }),
        Limit::SlidingCounter(limit) => {
            Limit::SlidingCounter(SlidingCounter { limit: part(limit.limit), ..*limit })
        }
        Limit::Concurrency(limit) => Limit::Concurrency(Slots { limit: part(limit.limit), ..*limit }),
        Limit::Calendar(limit) => Limit::Calendar(Calendar { limit: part(limit.limit), ..limit.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up_and_a_quota_of_nothing_stays_nothing() {
        let share_of = |quota| {
            let log = SlidingLog { limit: quota, window: 1 };
            share(&Limit::SlidingLog(log), 3).quota()
        };
        assert_eq!((share_of(0), share_of(1), share_of(3), share_of(100)), (0, 1, 1, 34));
    }

    #[test]
    fn a_buckets_share_refills_as_much_slower() {
        let whole = Bucket::new(10, 10, 1_000);
        assert_eq!(
            share(&Limit::TokenBucket(whole), 4),
            Limit::TokenBucket(Bucket { interval: 400, burst: 3 })
        );
    }
}
