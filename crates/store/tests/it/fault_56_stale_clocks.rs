//! Fault 56: callers whose clocks are behind. A caller reads its clock, and is overtaken before its turn
//! comes: its pipeline stalls, its thread is stopped, its call waits. Time never goes back under a key.

use proptest::prelude::*;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, State,
};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};
use tidegate_store::memory::{HashKey, MIN_MAX_BYTES, Memory};
use tidegate_store::{Answer, Charge, Intent};

/// A second before midnight, UTC.
const START: u64 = 1_767_225_599 * SECOND;
/// The key under test.
const KEY: &[u8] = b"k";

fn any_limit() -> impl Strategy<Value = Limit> {
    let bucket = (1..=20_u64, 1..=20_u64).prop_map(|(limit, burst)| Bucket::new(limit, burst, 3 * SECOND));
    let zone = jiff::tz::TimeZone::UTC;
    let quota = 1..=20_u64;
    prop_oneof![
        2 => bucket.clone().prop_map(Limit::TokenBucket),
        1 => bucket.prop_map(Limit::LeakyBucket),
        1 => quota.clone().prop_map(|limit| Limit::FixedWindow(FixedWindow { limit, seconds: 3 })),
        1 => quota.clone().prop_map(|limit| Limit::SlidingLog(SlidingLog { limit, window: 3 * SECOND })),
        1 => quota.clone().prop_map(|limit| Limit::SlidingCounter(SlidingCounter { limit, seconds: 3 })),
        1 => quota.clone().prop_map(|limit| Limit::Concurrency(Slots { limit, lease: 3 * SECOND })),
        1 => quota.prop_map(move |limit| {
            Limit::Calendar(Calendar { limit, period: Period::Day, zone: zone.clone() })
        }),
    ]
}

/// A request: how long after the last one it is decided, how far behind its caller's clock is, its cost.
#[derive(Clone, Copy, Debug)]
struct Request {
    gap: u64,
    behind: u64,
    cost: u64,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let gap = prop_oneof![4 => Just(0), 4 => 0..SECOND / 2, 1 => 0..5 * SECOND];
    let behind = prop_oneof![2 => Just(0), 2 => 0..4 * SECOND, 1 => 0..30 * 3_600 * SECOND];
    let request = (gap, behind, 1..=4_u64).prop_map(|(gap, behind, cost)| Request { gap, behind, cost });
    prop::collection::vec(request, 1..80)
}

/// A reading of both clocks `behind` nanoseconds ago.
fn reading(at: u64, behind: u64) -> Now {
    Now { tick: Tick(at - behind), wall: Wall(at - behind) }
}

fn charge(limit: &Limit, cost: u64) -> Charge<'_> {
    Charge { limit, key: KEY, cost, binding: true, on_failure: OnStoreFailure::Local }
}

/// A key that the pure functions decide.
#[derive(Default)]
struct Key {
    state: State,
    admitted: u64,
}

impl Key {
    fn spend(&mut self, limit: &Limit, now: Now, cost: u64, permit: PermitId) -> bool {
        let allowed = limit.check(&mut self.state, now, cost).allowed;
        if allowed {
            limit.charge(&mut self.state, now, cost, permit);
            self.admitted += cost;
        }
        allowed
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    /// Observers whose clocks are behind are decided as one would be whose clock is right: at the latest
    /// time that is known. Together they get no more than one that asks for all there is, each time.
    #[test]
    fn fault_56_observers_with_clocks_out_of_order_admit_no_more_than_one_with_a_true_clock(
        limit in any_limit(), requests in requests(), ways in prop::collection::vec(0..3_u8, 80),
    ) {
        let memory = Memory::with_key(MIN_MAX_BYTES, HashKey([1; 16]));
        let (mut one, mut greedy) = (Key::default(), Key::default());
        let mut at = START;
        let mut latest = Now::default();
        let (mut answer, mut verdicts) = (Answer::default(), Vec::new());
        for (number, (request, way)) in (0..).zip(requests.iter().zip(ways)) {
            at += request.gap;
            let now = reading(at, request.behind);
            latest = latest.latest(now);
            let (intent, charge) = (Intent::Spend(PermitId(number)), charge(&limit, request.cost));
            let other = Charge { key: b"other", cost: 0, ..charge };
            // By itself, beside another key, in a run: every way through the store.
            let allowed = match way {
                0 => {
                    memory.decide(now, &[charge], intent, &mut answer);
                    answer.allowed
                }
                1 => {
                    memory.decide(now, &[other, charge], intent, &mut answer);
                    answer.allowed
                }
                _ => {
                    verdicts.clear();
                    memory.decide_each(now, &[charge, other], intent, &mut verdicts);
                    verdicts[0].allowed
                }
            };
            prop_assert_eq!(allowed, one.spend(&limit, latest, request.cost, PermitId(number)));
            while greedy.spend(&limit, latest, 1, PermitId(1_000 + greedy.admitted)) {}
            prop_assert!(one.admitted <= greedy.admitted);
        }
    }
}

/// What was seen: a full bucket is emptied now, and a caller whose clock is ten seconds behind is denied. That
/// caller must not leave the bucket as it would have been ten seconds ago.
#[test]
fn fault_56_a_denial_by_a_clock_that_is_behind_gives_nothing_back() {
    let memory = Memory::new(MIN_MAX_BYTES);
    let limit = Limit::TokenBucket(Bucket::new(100, 100, 10 * SECOND));
    let mut answer = Answer::default();
    let mut spend = |at: u64, cost| {
        memory.decide(Now::at(at), &[charge(&limit, cost)], Intent::Spend(PermitId(0)), &mut answer);
        answer.verdicts[0]
    };
    let now = START + 20 * SECOND;
    assert!(spend(now, 100).allowed);
    for behind in 1..=10 {
        assert!(!spend(now - behind * SECOND, 1).allowed);
        assert_eq!(spend(now, 0).remaining, 0, "{behind} s behind");
    }
    // A refund, a renewal and a release are operations too.
    memory.refund(Now::at(now - 10 * SECOND), &[charge(&limit, 1)]);
    assert_eq!(spend(now, 0).remaining, 1);
}

/// A thread that is stopped just before the end of a window, and goes on in the next one.
#[test]
fn fault_56_the_window_before_does_not_come_back() {
    let memory = Memory::new(MIN_MAX_BYTES);
    let limit = Limit::FixedWindow(FixedWindow { limit: 10, seconds: 60 });
    let mut answer = Answer::default();
    let mut spend = |at: u64, cost| {
        memory.decide(Now::at(at), &[charge(&limit, cost)], Intent::Spend(PermitId(0)), &mut answer);
        answer.allowed
    };
    let boundary = START.next_multiple_of(60 * SECOND);
    assert!(spend(boundary, 10));
    assert!(!spend(boundary - 1, 1), "the stopped thread writes the old window back");
    assert!(!spend(boundary + 1, 1), "and everyone gets a second quota");
}

/// Permits do not lapse because someone's clock is behind.
#[test]
fn fault_56_a_lease_is_not_cut_short() {
    let memory = Memory::new(MIN_MAX_BYTES);
    let limit = Limit::Concurrency(Slots { limit: 1, lease: 10 * SECOND });
    let mut answer = Answer::default();
    let now = START + 60 * SECOND;
    memory.decide(Now::at(now), &[charge(&limit, 1)], Intent::Spend(PermitId(7)), &mut answer);
    assert!(answer.allowed);
    memory.decide(Now::at(now - 9 * SECOND), &[charge(&limit, 1)], Intent::Spend(PermitId(8)), &mut answer);
    assert!(!answer.allowed);
    let late = Now::at(now + 10 * SECOND - 1);
    assert!(memory.renew(late, &limit, KEY, PermitId(7)), "it was held for ten seconds");
}
