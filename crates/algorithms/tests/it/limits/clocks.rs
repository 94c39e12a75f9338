//! Clocks that jump, states from the future, and the ends of the integers.

use proptest::prelude::*;
use tidegate_algorithms::limit::bucket::Debt;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{Calendar, Limit, PermitId, State, Wait};
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};

use crate::limits::oracle::{Key, START, any_bucket, any_gap, any_limit, span};

const HOUR: u64 = 3_600 * SECOND;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn fault_08_a_clock_that_goes_back_neither_refills_nor_locks_out(
        limit in any_limit(),
        requests in prop::collection::vec((any_gap(), 0..=5_u64, prop::option::of(0..3 * HOUR)), 1..40),
    ) {
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost, back) in requests {
            at += gap.nanos(&limit);
            key.spend(&limit, at, cost);
            let before = key.peek(&limit, at, 0).remaining;
            at -= back.unwrap_or(0);
            let after = limit.check(&mut key.state, Now::at(at), 0);
            prop_assert!(after.remaining <= before, "a refill: {} after {}", after.remaining, before);
            for cost in [1, limit.quota()] {
                let verdict = limit.check(&mut key.state, Now::at(at), cost);
                let Wait::For(wait) = verdict.wait else { continue };
                prop_assert!(wait <= span(&limit), "locked out for {}", wait);
                prop_assert!(key.peek(&limit, at + wait, cost).allowed, "promised {}", wait);
                prop_assert!(!key.peek(&limit, at + wait - 1, cost).allowed, "promised {}", wait);
            }
        }
    }

    #[test]
    fn fault_08_a_civil_clock_an_hour_back_over_midnight_gives_no_second_quota(
        back in 1..=HOUR, cost in 1..=5_u64,
    ) {
        let zone = jiff::tz::TimeZone::UTC;
        let limit = Limit::Calendar(Calendar { limit: 5, period: Period::Day, zone });
        let midnight = START / (24 * HOUR) * 24 * HOUR;
        let mut key = Key::default();
        prop_assert!(key.spend(&limit, midnight, 5).allowed);
        prop_assert!(!key.spend(&limit, midnight - back, cost).allowed);
        prop_assert!(!key.spend(&limit, midnight, cost).allowed, "the same day again");
        // The store's timeline does not go back with it: the count outlives the day on that.
        let late = Wall(midnight + 24 * HOUR - 1);
        prop_assert!(key.state.expires() >= Tick(late.0).plus(back));
    }

    #[test]
    fn fault_09_tat_in_the_future_waits_no_longer_than_a_full_burst(
        bucket in any_bucket(), ahead in any::<u64>(), cost in 1..=12_u64,
    ) {
        let limit = Limit::TokenBucket(bucket);
        let debt = Debt::new(Tick(START).plus(ahead), bucket.interval, 0, 0);
        let mut key = Key { state: State::Bucket(debt), ..Key::default() };
        if let Wait::For(wait) = limit.check(&mut key.state, Now::at(START), cost).wait {
            prop_assert!(wait <= cost * bucket.interval);
            prop_assert!(key.peek(&limit, START + wait, cost).allowed);
        }
    }

    #[test]
    fn fault_14_no_time_cost_or_order_of_operations_overflows(
        limits in prop::collection::vec(extreme_limit(), 1..4),
        steps in prop::collection::vec((0..6_u8, edge(), edge(), edge()), 1..60),
    ) {
        let mut state = State::Fresh;
        for (step, (operation, tick, wall, cost)) in steps.into_iter().enumerate() {
            let limit = &limits[step % limits.len()];
            let now = Now { tick: Tick(tick), wall: Wall(wall) };
            match operation {
                0 => limit.refund(&mut state, now, cost),
                1 => limit.charge(&mut state, now, cost, PermitId(cost % 3)),
                2 => if let Limit::Concurrency(slots) = limit {
                    let renewed = slots.renew(&mut state, now, PermitId(cost % 3));
                    let released = slots.release(&mut state, now, PermitId(cost % 3));
                    prop_assert!(released || !renewed);
                },
                _ => {
                    let verdict = limit.check(&mut state, now, cost);
                    prop_assert!(verdict.remaining <= limit.quota());
                    prop_assert_eq!(verdict.allowed, verdict.wait == Wait::None);
                    prop_assert_eq!(verdict.wait == Wait::Never, cost > limit.quota());
                    if verdict.allowed {
                        limit.charge(&mut state, now, cost, PermitId(cost % 3));
                    }
                }
            }
            std::hint::black_box((state.used(now), state.expires(), state.heap_bytes()));
        }
    }
}

/// Numbers at which arithmetic breaks.
fn edge() -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, 2, SECOND - 1, SECOND, 1 << 32, START, i64::MAX as u64, u64::MAX - 1, u64::MAX];
    prop_oneof![3 => prop::sample::select(edges), 1 => any::<u64>(), 1 => 0..=2_000_000_000_u64]
}

/// Limits at the ends of what the policy parser accepts.
fn extreme_limit() -> impl Strategy<Value = Limit> {
    use serde_json::{Value, json};
    use tidegate_algorithms::policy::{MAX_LEASE_SECONDS, MAX_UNITS, MAX_WINDOW_SECONDS, parse};
    let units = || prop::sample::select(vec![0, 1, 3, 4_096, 10_000, 10_000_000, MAX_UNITS]);
    let seconds = prop::sample::select(vec![1, 60, MAX_LEASE_SECONDS, MAX_WINDOW_SECONDS]);
    (0..7_usize, units(), seconds, units()).prop_filter_map("accepted", |(algorithm, limit, seconds, burst)| {
        let window = |name: &str| json!({"name": "p", "algorithm": name, "limit": limit, "window_seconds": seconds});
        let bucket = |name: &str| {
            let mut document = window(name);
            document["burst"] = Value::from(burst);
            document
        };
        let document = match algorithm {
            0 => bucket("token_bucket"),
            1 => bucket("leaky_bucket"),
            2 => window("fixed_window"),
            3 => window("sliding_log"),
            4 => window("sliding_counter"),
            5 => json!({"name": "p", "algorithm": "concurrency", "limit": limit, "lease_seconds": seconds}),
            _ => json!({"name": "p", "algorithm": "calendar", "limit": limit, "period": "month", "time_zone": "Asia/Gaza"}),
        };
        parse(&document, "").ok().map(|policy| policy.quota.limit)
    })
}
