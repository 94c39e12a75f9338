//! Limits that change while running: what a key has used is kept, capped at the new quota.

use proptest::prelude::*;
use tidegate_algorithms::limit::{Limit, State, Wait};
use tidegate_algorithms::time::{Now, Tick};

use crate::oracle::{Key, START, any_gap, any_limit, span};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_limit_is_neither_a_refill_nor_a_lock_out(
        limits in prop::collection::vec(any_limit(), 2..5),
        requests in prop::collection::vec((any_gap(), 0..=5_u64, any::<prop::sample::Index>()), 1..40),
    ) {
        let mut key = Key::default();
        let mut at = START;
        let mut limit = &limits[0];
        for (gap, cost, next) in requests {
            at += gap.nanos(limit);
            key.spend(limit, at, cost);
            let used = limit.quota() - key.peek(limit, at, 0).remaining;
            let changed = next.get(&limits);
            let (least, most) = remaining_after_change(limit, changed, used, in_use(&key.state, at));
            let remaining = key.peek(changed, at, 0).remaining;
            prop_assert!(remaining <= most, "a refill: {} remain, {} were used", remaining, used);
            prop_assert!(remaining >= least, "a loss: {} remain, {} were used", remaining, used);
            limit = changed;

            for cost in [1, limit.quota()] {
                let verdict = limit.check(&mut key.state, Now::at(at), cost);
                let Wait::For(wait) = verdict.wait else { continue };
                prop_assert!(wait <= span(limit), "locked out for {}", wait);
                prop_assert!(key.peek(limit, at + wait, cost).allowed, "promised {}", wait);
                prop_assert!(!key.peek(limit, at + wait - 1, cost).allowed, "promised {}", wait);
            }
        }
    }
}

/// The least and the most that may remain after a change, when `used` of the old quota showed as
/// used and `in_use` was really spent: more, if the old quota had been lowered before.
fn remaining_after_change(old: &Limit, new: &Limit, used: u64, in_use: u64) -> (u64, u64) {
    let quota = new.quota();
    let (least, most) = (quota.saturating_sub(used.max(in_use)), quota.saturating_sub(used));
    match (old, new) {
        (Limit::Concurrency(_), Limit::Concurrency(_)) => (least, most),
        // Permits are held, not spent: they mean nothing to a limit that counts, nor the reverse.
        (Limit::Concurrency(_), _) | (_, Limit::Concurrency(_)) => (quota, quota),
        // The log knows when each unit was spent, so a shorter window is exact at once.
        (Limit::SlidingLog(old), Limit::SlidingLog(new)) if new.window < old.window => (least, quota),
        _ => (least, most),
    }
}

fn in_use(state: &State, at: u64) -> u64 {
    match state {
        State::Concurrency(permits) => {
            permits.held().filter(|permit| permit.lapses > Tick(at)).map(|permit| permit.units).sum()
        }
        other => other.used(Now::at(at)),
    }
}
