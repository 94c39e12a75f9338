//! Limits that change while running: what a key has used is kept, capped at the new quota.

use proptest::prelude::*;
use tidegate_algorithms::limit::{Bucket, FixedWindow, Limit, SlidingLog, State, Wait};
use tidegate_algorithms::time::{Now, SECOND, Tick};

use crate::limits::oracle::{Key, START, any_gap, any_limit, span};

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

fn fixed(limit: u64, seconds: u32) -> Limit {
    Limit::FixedWindow(FixedWindow { limit, seconds })
}

fn log(limit: u64, window: u64) -> Limit {
    Limit::SlidingLog(SlidingLog { limit, window })
}

proptest! {
    /// Whatever is asked in between.
    #[test]
    fn a_limit_that_is_lowered_and_restored_gives_nothing_back(
        kind in 0..4_u8, used in 1..=100_u64, lowered in 0..=50_u64, asked in prop::collection::vec(0..=3_u64, 0..6),
    ) {
        let limit = |quota: u64| match kind {
            0 => Limit::TokenBucket(Bucket::new(quota, quota, 60 * SECOND)),
            1 => Limit::LeakyBucket(Bucket::new(quota, quota, 60 * SECOND)),
            2 => fixed(quota, 60),
            _ => log(quota, 60 * SECOND),
        };
        let mut key = Key::default();
        prop_assert!(key.spend(&limit(100), START, used).allowed);
        let mut spent = used;
        for cost in asked {
            spent += if key.spend(&limit(lowered), START, cost).allowed { cost } else { 0 };
        }
        prop_assert_eq!(key.peek(&limit(100), START, 0).remaining, 100_u64.saturating_sub(spent));
    }
}

fn bucket(burst: u64) -> Limit {
    Limit::TokenBucket(Bucket { interval: SECOND, burst })
}

proptest! {
    /// The same of a burst alone, whatever is asked in between and while time passes, until all of the lower burst is back.
    #[test]
    fn a_burst_that_is_lowered_and_restored_gives_nothing_back(
        used in 1..=100_u64, lowered in 2..=50_u64,
        asked in prop::collection::vec((0..=3_u64, 0..=SECOND / 12, any::<bool>()), 0..12),
    ) {
        let (mut key, mut steady) = (Key::default(), Key::default());
        prop_assert!(key.spend(&bucket(100), START, used).allowed && steady.spend(&bucket(100), START, used).allowed);
        let mut at = START;
        for (cost, later, is_lowered) in asked {
            at += later;
            let burst = if is_lowered { lowered } else { 100 };
            if key.spend(&bucket(burst), at, cost).allowed {
                prop_assert!(steady.spend(&bucket(100), at, cost).allowed, "a refill");
            }
        }
        prop_assert_eq!(key.peek(&bucket(100), at, 0), steady.peek(&bucket(100), at, 0));
    }
}

#[test]
fn a_burst_that_is_raised_gives_back_what_time_has_brought() {
    let mut key = Key::default();
    assert!(key.spend(&bucket(100), START, 100).allowed);
    assert_eq!(key.peek(&bucket(10), START, 1).wait, Wait::For(SECOND), "no longer than a full bucket takes");
    // Both in turn, each quarter of an interval: rounded each time, nothing would ever come back.
    for quarter in 1..=8 {
        let at = START + quarter * SECOND / 4;
        assert!(!key.spend(&bucket(10), at, 1).allowed);
        assert_eq!(key.spend(&bucket(100), at, 0).remaining, quarter / 4);
    }
    assert_eq!(key.peek(&bucket(200), START + 2 * SECOND, 0).remaining, 102);
    // A clock that went back by an hour: the bucket that wrote it owed 100 units at most.
    assert!(key.spend(&bucket(100), START + 3_602 * SECOND, 100).allowed);
    assert_eq!(key.peek(&bucket(200), START + 2 * SECOND, 0).remaining, 100);
}

#[test]
fn a_count_is_taken_over_to_the_end_of_the_new_window() {
    let mut key = Key::default();
    assert!(key.spend(&fixed(5, 1), START, 5).allowed);
    assert_eq!(key.peek(&fixed(5, 4), START, 1).wait, Wait::For(4 * SECOND));
}

#[test]
fn what_has_just_left_the_log_is_not_taken_over() {
    let mut key = Key::default();
    assert!(key.spend(&log(5, SECOND), START, 5).allowed);
    assert_eq!(key.peek(&fixed(5, 4), START + SECOND, 0).remaining, 5);
    assert_eq!(key.peek(&fixed(5, 4), START + SECOND - 1, 0).remaining, 0);
}

#[test]
fn a_cost_of_0_reads_even_after_the_limit_was_lowered() {
    let mut key = Key::default();
    assert!(key.spend(&log(5, SECOND), START, 5).allowed);
    let read = key.peek(&log(2, SECOND), START, 0);
    assert_eq!((read.allowed, read.wait, read.remaining), (true, Wait::None, 0));
}
