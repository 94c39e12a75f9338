//! Each decision, and everything a verdict says, equals the oracle's; and the bounds that the docs
//! state hold over what was admitted.

use proptest::prelude::*;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{Calendar, Limit, SlidingLog, Wait};
use tidegate_algorithms::time::SECOND;

use crate::limits::oracle::{Gap, History, Key, START, any_gap, any_limit, room, span};

fn requests() -> impl Strategy<Value = Vec<(Gap, u64)>> {
    prop::collection::vec((any_gap(), prop_oneof![4 => 1..=3_u64, 1 => 0..=14_u64]), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_verdict_is_the_oracles(limit in any_limit(), requests in requests()) {
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost) in requests {
            at += gap.nanos(&limit);
            let before = room(&limit, &key.history, at);
            let verdict = key.spend(&limit, at, cost);
            let possible = cost <= limit.quota();
            prop_assert_eq!(verdict.limit, limit.quota());
            prop_assert_eq!(verdict.allowed, cost <= before);
            prop_assert_eq!(verdict.remaining, if verdict.allowed { before - cost } else { before });
            match verdict.wait {
                Wait::None => prop_assert!(verdict.allowed),
                Wait::Never => prop_assert!(!possible),
                Wait::For(wait) => {
                    prop_assert!(possible && !verdict.allowed && wait <= span(&limit));
                    prop_assert!(room(&limit, &key.history, at + wait) >= cost, "too early: {}", wait);
                    prop_assert!(room(&limit, &key.history, at + wait - 1) < cost, "too late: {}", wait);
                    prop_assert!(key.peek(&limit, at + wait, cost).allowed);
                    prop_assert!(!key.peek(&limit, at + wait - 1, cost).allowed);
                }
            }
            let quota = limit.quota();
            prop_assert_eq!(room(&limit, &key.history, at + verdict.reset), quota);
            prop_assert_eq!(key.peek(&limit, at + verdict.reset, 0).remaining, quota);
            if verdict.reset > 0 {
                prop_assert!(room(&limit, &key.history, at + verdict.reset - 1) < quota);
                prop_assert!(key.peek(&limit, at + verdict.reset - 1, 0).remaining < quota);
            }
            // Remaining units can be spent at once, and not one more.
            if verdict.remaining > 0 {
                prop_assert!(key.peek(&limit, at, verdict.remaining).allowed);
            }
            prop_assert!(!key.peek(&limit, at, verdict.remaining + 1).allowed);
        }
    }

    /// What a client is told of the time until more comes back holds, whatever it does with what it has.
    #[test]
    fn nothing_beyond_what_remains_is_admitted_before_the_promised_time(
        limit in any_limit(), requests in requests(),
        later in prop::collection::vec((0.0..1.0_f64, 1..=3_u64), 0..12),
    ) {
        if matches!(limit, Limit::Concurrency(_)) {
            return Ok(()); // Permits may come back at any time, so nothing is promised.
        }
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost) in requests {
            at += gap.nanos(&limit);
            let verdict = key.spend(&limit, at, cost);
            if !verdict.allowed {
                prop_assert_eq!(verdict.next, 0);
                continue;
            }
            let (remaining, next) = (verdict.remaining, verdict.next);
            if limit.quota() == 0 {
                continue;
            }
            // To the nanosecond: one that spends all at once has the next unit then, and not before.
            let mut hasty = key.clone();
            prop_assert_eq!(hasty.spend(&limit, at, remaining).next, next);
            prop_assert!(!hasty.peek(&limit, at + next - 1, 1).allowed, "before {}", next);
            prop_assert!(hasty.peek(&limit, at + next, 1).allowed, "not after {}", next);
            // In whole seconds, as `t` of the response field: one that takes its time gets no more either.
            let seconds = next.div_ceil(SECOND).max(1);
            let mut patient = key.clone();
            let mut times: Vec<_> = later.clone();
            times.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut admitted = 0;
            for (share, cost) in times {
                let then = at + (share * ((seconds - 1) * SECOND) as f64) as u64;
                admitted += if patient.spend(&limit, then, cost).allowed { cost } else { 0 };
            }
            prop_assert!(admitted <= remaining, "{} of {} in {} s", admitted, remaining, seconds - 1);
        }
    }

    #[test]
    fn a_state_that_has_expired_says_no_more_than_an_absent_one(
        limit in any_limit(), requests in requests(), probe in 0..=14_u64,
    ) {
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost) in requests {
            at += gap.nanos(&limit);
            key.spend(&limit, at, cost);
            let expires = key.state.expires().0.max(at);
            prop_assert_eq!(
                key.peek(&limit, expires, probe), Key::default().peek(&limit, expires, probe)
            );
        }
    }

    #[test]
    fn nothing_passes_above_the_stated_bound(limit in any_limit(), requests in requests()) {
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost) in requests {
            at += gap.nanos(&limit) / 4;
            key.spend(&limit, at, cost);
        }
        for first in 0..key.history.len() {
            for last in first..key.history.len() {
                let ((from, _), (to, _)) = (key.history[first], key.history[last]);
                let admitted: u64 = key.history[first..=last].iter().map(|(_, cost)| cost).sum();
                prop_assert!(admitted <= most_between(&limit, from, to), "{} in {}..={}", admitted, from, to);
            }
        }
    }

    #[test]
    fn a_leaky_bucket_spaces_what_it_admits(bucket in crate::limits::oracle::any_bucket(), requests in requests()) {
        let limit = Limit::LeakyBucket(bucket);
        let mut key = Key::default();
        let (mut at, mut free) = (START, 0);
        for (gap, cost) in requests {
            at += gap.nanos(&limit);
            let verdict = key.spend(&limit, at, cost);
            if verdict.allowed && cost > 0 {
                prop_assert!(at + verdict.delay >= free, "two requests in one turn");
                prop_assert!(at + verdict.delay == free.max(at), "held back for nothing");
                free = at + verdict.delay + cost * bucket.interval;
            } else {
                prop_assert_eq!(verdict.delay, 0);
            }
        }
    }
}

/// The most units that may be admitted from `from` to `to`, both included, as `docs/algorithms.md`
/// states it.
fn most_between(limit: &Limit, from: u64, to: u64) -> u64 {
    let quota = limit.quota();
    let windows = |length: u64| to / length - from / length + 1;
    match limit {
        Limit::TokenBucket(bucket) | Limit::LeakyBucket(bucket) => quota + (to - from) / bucket.interval,
        Limit::FixedWindow(window) => quota * windows(u64::from(window.seconds) * SECOND),
        Limit::SlidingLog(log) => quota * ((to - from) / log.window + 1),
        Limit::SlidingCounter(counter) => quota * windows(u64::from(counter.seconds) * SECOND),
        Limit::Concurrency(slots) => quota * ((to - from) / slots.lease + 1),
        Limit::Calendar(calendar) => {
            let (first, last) = (
                crate::limits::oracle::zoned(calendar, from).date(),
                crate::limits::oracle::zoned(calendar, to).date(),
            );
            let periods = match calendar.period {
                Period::Day => (last - first).get_days(),
                Period::Month => {
                    i32::from(last.year() - first.year()) * 12 + i32::from(last.month() - first.month())
                }
            };
            quota * (u64::try_from(periods).unwrap() + 1)
        }
    }
}

#[test]
fn a_bucket_admits_at_most_burst_plus_the_elapsed_share() {
    // ceil(elapsed x limit / window) with a rate that divides nothing: 7 per 3 s, greedy for a minute.
    let (limit, burst, window) = (7, 5, 3 * SECOND);
    let bucket = Limit::TokenBucket(tidegate_algorithms::limit::Bucket::new(limit, burst, window));
    let Limit::TokenBucket(inner) = &bucket else { panic!("a bucket") };
    assert!(inner.interval * limit >= window, "never faster than stated");
    assert!((inner.interval - 1) * limit < window, "at most 1 ns per unit slower");
    let mut key = Key::default();
    for step in 0..60_000_u64 {
        key.spend(&bucket, START + step * SECOND / 1_000, 1);
    }
    let elapsed = u128::from(key.history.last().unwrap().0 - START);
    let most = u128::from(burst) + (elapsed * u128::from(limit)).div_ceil(u128::from(window));
    let admitted = key.history.len() as u128;
    assert!(admitted <= most && admitted + 1 >= most, "{admitted} of {most}");
}

#[test]
fn a_quota_of_0_denies_all_and_a_cost_of_0_reads() {
    let limits = [
        Limit::TokenBucket(tidegate_algorithms::limit::Bucket::new(0, 3, SECOND)),
        Limit::SlidingLog(SlidingLog { limit: 0, window: SECOND }),
        Limit::Calendar(Calendar { limit: 0, period: Period::Day, zone: jiff::tz::TimeZone::UTC }),
    ];
    for limit in limits {
        let mut key = Key::default();
        for at in [START, START + SECOND, START + 40 * 86_400 * SECOND] {
            let denied = key.spend(&limit, at, 1);
            assert_eq!((denied.allowed, denied.wait, denied.remaining), (false, Wait::Never, 0), "{limit:?}");
            let read = key.spend(&limit, at, 0);
            assert_eq!((read.allowed, read.wait, read.remaining, read.reset), (true, Wait::None, 0, 0));
        }
        assert_eq!(key.history, History::new());
    }
}
