//! Peeks change nothing; refunds restore what was there and never give more than was spent.

use proptest::prelude::*;
use tidegate_algorithms::limit::{Limit, State};
use tidegate_algorithms::time::Now;

use crate::limits::oracle::{Gap, Key, START, any_gap, any_limit};

fn requests() -> impl Strategy<Value = Vec<(Gap, u64, Option<u64>)>> {
    prop::collection::vec((any_gap(), 0..=5_u64, prop::option::of(0..=14_u64)), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_peek_never_changes_a_later_decision(limit in any_limit(), requests in requests()) {
        let (mut plain, mut peeked) = (Key::default(), Key::default());
        let mut at = START;
        for (gap, cost, peek) in requests {
            at += gap.nanos(&limit);
            if let Some(cost) = peek {
                std::hint::black_box(limit.check(&mut peeked.state, Now::at(at), cost));
            }
            prop_assert_eq!(plain.spend(&limit, at, cost), peeked.spend(&limit, at, cost));
        }
    }

    #[test]
    fn a_cost_above_the_quota_charges_nothing(
        limit in any_limit(), requests in requests(), above in prop_oneof![1..=3_u64, Just(u64::MAX >> 1)],
    ) {
        let (mut plain, mut greedy) = (Key::default(), Key::default());
        let mut at = START;
        for (gap, cost, _) in requests {
            at += gap.nanos(&limit);
            prop_assert!(!greedy.spend(&limit, at, limit.quota() + above).allowed);
            prop_assert_eq!(plain.spend(&limit, at, cost), greedy.spend(&limit, at, cost));
        }
    }

    #[test]
    fn a_refund_right_after_its_charge_restores_what_was_there(
        limit in any_limit(), requests in requests(), later in any_gap(), probe in 0..=14_u64,
    ) {
        if matches!(limit, Limit::Concurrency(_)) {
            return Ok(()); // Permits are released, not refunded.
        }
        let (mut plain, mut refunded) = (Key::default(), Key::default());
        let mut at = START;
        for (gap, cost, extra) in requests {
            at += gap.nanos(&limit);
            let extra = extra.unwrap_or(1);
            if refunded.spend(&limit, at, extra).allowed {
                limit.refund(&mut refunded.state, Now::at(at), extra);
            }
            prop_assert_eq!(plain.peek(&limit, at, probe), refunded.peek(&limit, at, probe));
            prop_assert_eq!(plain.spend(&limit, at, cost), refunded.spend(&limit, at, cost));
            let then = at + later.nanos(&limit);
            prop_assert_eq!(plain.peek(&limit, then, probe), refunded.peek(&limit, then, probe));
        }
    }

    #[test]
    fn a_refund_gives_back_at_most_its_units_and_at_most_what_is_in_use(
        limit in any_limit(), requests in requests(), forgotten in any_gap(),
    ) {
        let mut key = Key::default();
        let mut at = START;
        for (gap, cost, refund) in requests {
            at += gap.nanos(&limit);
            key.spend(&limit, at, cost);
            at += forgotten.nanos(&limit) / 8;
            let Some(units) = refund else { continue };
            let before = key.peek(&limit, at, 0).remaining;
            limit.refund(&mut key.state, Now::at(at), units);
            let after = key.peek(&limit, at, 0).remaining;
            prop_assert!(before <= after && after <= before + units && after <= limit.quota());
        }
    }

    #[test]
    fn a_refund_to_a_fresh_key_gives_nothing(limit in any_limit(), units in any::<u64>(), probe in 0..=14_u64) {
        let mut key = Key::default();
        limit.refund(&mut key.state, Now::at(START), units);
        prop_assert_eq!(key.peek(&limit, START, probe), Key::default().peek(&limit, START, probe));
        prop_assert_eq!(key.state.used(Now::at(START)), 0);
    }
}

#[test]
fn the_log_of_a_small_limit_never_reserves_more_than_it_can_use() {
    use tidegate_algorithms::limit::SlidingLog;
    for quota in 1..=40_u64 {
        let limit = Limit::SlidingLog(SlidingLog { limit: quota, window: 1_000 });
        let mut key = Key::default();
        for step in 0..3 * quota {
            key.spend(&limit, START + step, 1);
        }
        let State::SlidingLog(log) = &key.state else { panic!("a log") };
        assert_eq!(log.entries().count() as u64, quota);
        let most = 48 + 16 * usize::try_from(quota).unwrap();
        assert!(key.state.heap_bytes() <= most, "{} of {most} bytes", key.state.heap_bytes());
    }
}

#[test]
fn a_refund_of_the_counters_previous_window_gives_back() {
    use tidegate_algorithms::limit::SlidingCounter;
    use tidegate_algorithms::time::SECOND;
    let limit = Limit::SlidingCounter(SlidingCounter { limit: 10, seconds: 60 });
    let mut key = Key::default();
    key.spend(&limit, START, 4);
    let next = START + 60 * SECOND;
    key.spend(&limit, next, 1);
    assert_eq!(key.peek(&limit, next, 0).remaining, 5);
    limit.refund(&mut key.state, Now::at(next), 3);
    assert_eq!(key.peek(&limit, next, 0).remaining, 8);
}
