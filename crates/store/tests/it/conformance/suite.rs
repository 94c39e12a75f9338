//! One case per promise of the store contract.

use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, Wait,
};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};
use tidegate_store::{Answer, Charge, Counters, Intent};

/// A moment on a boundary of every window used here, in nanoseconds: midnight of 2026-01-01 UTC.
pub(crate) const START: u64 = 1_767_225_600 * SECOND;

pub(crate) fn token_bucket(limit: u64, seconds: u64) -> Limit {
    Limit::TokenBucket(Bucket::new(limit, limit, seconds * SECOND))
}

/// Every algorithm with this quota, under a name that can be part of a key.
pub(crate) fn every_limit(quota: u64) -> Vec<(&'static str, Limit)> {
    let bucket = Bucket::new(quota, quota, 60 * SECOND);
    vec![
        ("token bucket", Limit::TokenBucket(bucket)),
        ("leaky bucket", Limit::LeakyBucket(bucket)),
        ("fixed window", Limit::FixedWindow(FixedWindow { limit: quota, seconds: 60 })),
        ("sliding log", Limit::SlidingLog(SlidingLog { limit: quota, window: 60 * SECOND })),
        ("sliding counter", Limit::SlidingCounter(SlidingCounter { limit: quota, seconds: 60 })),
        ("concurrency", Limit::Concurrency(Slots { limit: quota, lease: 60 * SECOND })),
        (
            "calendar",
            Limit::Calendar(Calendar { limit: quota, period: Period::Day, zone: jiff::tz::TimeZone::UTC }),
        ),
    ]
}

pub(crate) fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge { limit, key, cost, binding: true, on_failure: OnStoreFailure::Local }
}

fn shadow<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge { binding: false, ..charge(limit, key, cost) }
}

fn key(case: &str, name: &str) -> Vec<u8> {
    format!("{case}/{name}").into_bytes()
}

async fn decide(store: &Counters, now: Now, charges: &[Charge<'_>], intent: Intent) -> Answer {
    let mut answer = Answer::default();
    store.decide(now, charges, intent, &mut answer).await.expect("the store is up");
    assert_eq!(answer.verdicts.len(), charges.len());
    assert_eq!(answer.degraded, None);
    answer
}

async fn spend(store: &Counters, nanos: u64, charges: &[Charge<'_>]) -> Answer {
    decide(store, Now::at(nanos), charges, Intent::Spend(PermitId(nanos))).await
}

async fn remaining(store: &Counters, nanos: u64, limit: &Limit, key: &[u8]) -> u64 {
    decide(store, Now::at(nanos), &[charge(limit, key, 0)], Intent::Peek).await.verdicts[0].remaining
}

pub(crate) async fn admits_the_quota_and_again_after_the_promised_wait(store: &Counters) {
    for (name, limit) in every_limit(5) {
        let key = key("quota", name);
        for left in (0..5).rev() {
            let answer = spend(store, START, &[charge(&limit, &key, 1)]).await;
            assert!(answer.allowed, "{name}");
            assert_eq!(answer.verdicts[0].remaining, left, "{name}");
        }
        let answer = spend(store, START, &[charge(&limit, &key, 1)]).await;
        assert!(!answer.allowed, "{name}");
        let Wait::For(wait) = answer.verdicts[0].wait else { panic!("{name} has no wait") };
        let early = spend(store, START + wait - 1, &[charge(&limit, &key, 1)]).await;
        assert!(!early.allowed, "{name} before the promised instant");
        let punctual = spend(store, START + wait, &[charge(&limit, &key, 1)]).await;
        assert!(punctual.allowed, "{name} at the promised instant");
    }
}

pub(crate) async fn fault_16_all_or_nothing(store: &Counters) {
    let narrow = token_bucket(1, 60);
    for (name, wide) in every_limit(5) {
        for narrow_first in [true, false] {
            let (one, other) = (key("all", &format!("{name}{narrow_first}")), key("all narrow", name));
            let other = [other, vec![u8::from(narrow_first)]].concat();
            let mut charges = [charge(&narrow, &other, 1), charge(&wide, &one, 2)];
            if !narrow_first {
                charges.reverse();
            }
            assert!(spend(store, START, &charges).await.allowed, "{name}");
            assert!(!spend(store, START, &charges).await.allowed, "{name}");
            assert_eq!(remaining(store, START, &wide, &one).await, 3, "{name} was charged by a denial");
        }
    }
}

pub(crate) async fn a_denial_shows_what_remains_without_it(store: &Counters) {
    for (name, wide) in every_limit(5) {
        let nothing = token_bucket(0, 60);
        let (one, other) = (key("without", name), key("without none", name));
        let answer = spend(store, START, &[charge(&wide, &one, 2), charge(&nothing, &other, 1)]).await;
        assert!(!answer.allowed);
        assert_eq!(answer.verdicts[0].remaining, 5, "{name}");
        assert!(answer.verdicts[0].allowed, "{name} had room");
    }
}

pub(crate) async fn shadow_is_charged_and_never_denies(store: &Counters) {
    for (name, limit) in every_limit(2) {
        let (bound, free) = (key("bound", name), key("shadow", name));
        let wide = token_bucket(100, 60);
        let charges = [charge(&wide, &bound, 1), shadow(&limit, &free, 1)];
        for round in 0..4 {
            let answer = spend(store, START, &charges).await;
            assert!(answer.allowed, "{name}");
            assert_eq!(answer.verdicts[1].allowed, round < 2, "{name}");
        }
        assert_eq!(remaining(store, START, &wide, &bound).await, 96, "{name}");
        let alone = spend(store, START, &[shadow(&limit, &free, 1)]).await;
        assert!(alone.allowed && !alone.verdicts[0].allowed, "{name}");
    }
}

pub(crate) async fn a_peek_spends_nothing(store: &Counters) {
    for (name, limit) in every_limit(5) {
        let key = key("peek", name);
        for _ in 0..3 {
            let answer = decide(store, Now::at(START), &[charge(&limit, &key, 4)], Intent::Peek).await;
            assert!(answer.allowed, "{name}");
            assert_eq!(answer.verdicts[0].remaining, 1, "{name}");
        }
        let free = spend(store, START, &[charge(&limit, &key, 0)]).await;
        assert_eq!(free.verdicts[0].remaining, 5, "{name}");
    }
}

pub(crate) async fn a_cost_above_the_quota_is_never_admissible(store: &Counters) {
    for (name, limit) in every_limit(5) {
        let key = key("above", name);
        let answer = spend(store, START, &[charge(&limit, &key, 6)]).await;
        assert!(!answer.allowed, "{name}");
        assert_eq!(answer.verdicts[0].wait, Wait::Never, "{name}");
        assert_eq!(remaining(store, START, &limit, &key).await, 5, "{name}");
    }
}

pub(crate) async fn a_quota_of_zero_denies_everything(store: &Counters) {
    for (name, limit) in every_limit(0) {
        let key = key("zero", name);
        let answer = spend(store, START, &[charge(&limit, &key, 1)]).await;
        assert!(!answer.allowed, "{name}");
        assert_eq!(answer.verdicts[0].wait, Wait::Never, "{name}");
    }
}

pub(crate) async fn a_refund_restores(store: &Counters) {
    for (name, limit) in every_limit(5) {
        if matches!(limit, Limit::Concurrency(_)) {
            continue;
        }
        let key = key("refund", name);
        spend(store, START, &[charge(&limit, &key, 4)]).await;
        let now = Now::at(START);
        store.refund(now, &[charge(&limit, &key, 3)]).await.expect("the store is up");
        assert_eq!(remaining(store, START, &limit, &key).await, 4, "{name}");
        let unknown = [key.as_slice(), b"?"].concat();
        store.refund(now, &[charge(&limit, &unknown, 3)]).await.expect("the store is up");
        assert_eq!(remaining(store, START, &limit, &unknown).await, 5, "{name}: a gift");
    }
}

pub(crate) async fn a_reset_key_starts_anew_and_no_other(store: &Counters) {
    for (name, limit) in every_limit(2) {
        let [one, other, unknown] =
            ["reset one", "reset other", "reset unknown"].map(|group| key(group, name));
        for key in [&one, &other] {
            assert!(spend(store, START, &[charge(&limit, key, 2)]).await.allowed, "{name}");
            assert!(!spend(store, START, &[charge(&limit, key, 1)]).await.allowed, "{name}");
        }
        let charges = [charge(&limit, &one, 0), charge(&limit, &unknown, 0)];
        store.reset(Now::at(START), &charges).await.expect("the store is up");
        store.reset(Now::at(START), &[]).await.expect("the store is up");
        assert!(spend(store, START, &[charge(&limit, &one, 2)]).await.allowed, "{name} does not start anew");
        assert!(!spend(store, START, &[charge(&limit, &other, 1)]).await.allowed, "{name}: the wrong key");
        assert!(spend(store, START, &[charge(&limit, &unknown, 2)]).await.allowed, "{name}");
    }
}

pub(crate) async fn permits_are_held_renewed_released_and_lapse(store: &Counters) {
    let limit = Limit::Concurrency(Slots { limit: 2, lease: 10 * SECOND });
    let key = key("permits", "");
    let (first, second) = (PermitId(1), PermitId(2));
    for permit in [first, second] {
        let answer = decide(store, Now::at(START), &[charge(&limit, &key, 1)], Intent::Spend(permit)).await;
        assert!(answer.allowed);
    }
    assert!(!spend(store, START, &[charge(&limit, &key, 1)]).await.allowed);

    let now = Now::at(START + 5 * SECOND);
    assert!(store.renew(now, &limit, &key, first).await.expect("up"));
    assert!(store.release(now, &limit, &key, second).await.expect("up"));
    assert!(!store.release(now, &limit, &key, second).await.expect("up"), "released twice");
    assert!(!store.renew(now, &limit, &key, second).await.expect("up"), "renewed after release");
    assert!(!store.renew(now, &limit, b"nobody", first).await.expect("up"));
    assert!(!store.release(now, &token_bucket(1, 1), &key, first).await.expect("up"), "no permits there");
    assert_eq!(remaining(store, START + 5 * SECOND, &limit, &key).await, 1);

    assert_eq!(remaining(store, START + 15 * SECOND - 1, &limit, &key).await, 1, "renewed until 15 s");
    assert_eq!(remaining(store, START + 15 * SECOND, &limit, &key).await, 2, "lapsed at 15 s");
    let now = Now::at(START + 15 * SECOND);
    assert!(!store.renew(now, &limit, &key, first).await.expect("up"), "renewed after it lapsed");
}

pub(crate) async fn charges_of_one_key_are_one_spend(store: &Counters) {
    for (name, limit) in every_limit(5) {
        let key = key("twice", name);
        let twice = [charge(&limit, &key, 3), charge(&limit, &key, 3)];
        let denied = spend(store, START, &twice).await;
        assert!(!denied.allowed, "{name}: each has room, both have not");
        assert!(denied.verdicts[0].allowed && !denied.verdicts[1].allowed, "{name}");
        assert_eq!(remaining(store, START, &limit, &key).await, 5, "{name}");

        let both = spend(store, START, &[charge(&limit, &key, 3), charge(&limit, &key, 2)]).await;
        assert!(both.allowed, "{name}");
        assert_eq!(both.verdicts[1].remaining, 0, "{name}");
        assert_eq!(remaining(store, START, &limit, &key).await, 0, "{name}");
    }
}

pub(crate) async fn a_request_without_limits_is_allowed(store: &Counters) {
    assert!(spend(store, START, &[]).await.allowed);
}

pub(crate) async fn a_changed_limit_keeps_what_was_used(store: &Counters) {
    for ((name, narrow), (_, wide)) in every_limit(5).into_iter().zip(every_limit(8)) {
        let key = key("changed", name);
        for _ in 0..4 {
            assert!(spend(store, START, &[charge(&narrow, &key, 1)]).await.allowed, "{name}");
        }
        let left = remaining(store, START, &wide, &key).await;
        assert!((3..=5).contains(&left), "{name}: {left} of 8 after 4 of 5 were used");
    }
}

pub(crate) async fn fault_08_a_clock_that_jumps_back_neither_locks_out_nor_refills(store: &Counters) {
    const HOUR: u64 = 3_600 * SECOND;
    // Each later than all before it: keys of the memory store may share a timeline.
    for ((name, limit), hours) in every_limit(2).into_iter().zip(12..) {
        let key = key("back", name);
        let late = START + hours * HOUR;
        for _ in 0..2 {
            assert!(spend(store, late, &[charge(&limit, &key, 1)]).await.allowed, "{name}");
        }
        let back = late - HOUR;
        // A store that several nodes share goes by its own clock, which it cannot help going back. The
        // memory store is told the time, and goes by the latest that it was told.
        let resumed = if matches!(store, Counters::Memory(_)) { late } else { back };
        let answer = spend(store, back, &[charge(&limit, &key, 1)]).await;
        assert!(!answer.allowed, "{name}: a refill by going back");
        let Wait::For(wait) = answer.verdicts[0].wait else { panic!("{name} has no wait") };
        let longest = if matches!(limit, Limit::Calendar(_)) { 24 * HOUR } else { 2 * 60 * SECOND };
        assert!(wait <= longest, "{name}: locked out for {wait} ns");
        assert!(spend(store, resumed + wait, &[charge(&limit, &key, 1)]).await.allowed, "{name}");
    }
    // The civil clock alone jumps: the other algorithms do not notice.
    let (limit, key) = (token_bucket(1, 60), key("back", "civil"));
    let start = START + 24 * HOUR;
    assert!(spend(store, start, &[charge(&limit, &key, 1)]).await.allowed);
    let jumped = Now { tick: Tick(start), wall: Wall(start + 48 * HOUR) };
    let answer = decide(store, jumped, &[charge(&limit, &key, 1)], Intent::Peek).await;
    assert!(!answer.allowed, "a refill by the civil clock");
}

pub(crate) async fn fault_13_keys_are_opaque_bytes(store: &Counters) {
    let limit = token_bucket(1, 60);
    let keys: [&[u8]; 8] =
        [b"", b"\0", b"\0\0", b"a\r\nb", b"a\nb", b"\xff\xfe", "\u{e9}".as_bytes(), "e\u{301}".as_bytes()];
    for key in keys {
        assert!(spend(store, START, &[charge(&limit, key, 1)]).await.allowed, "{key:?} shares a counter");
        assert!(!spend(store, START, &[charge(&limit, key, 1)]).await.allowed, "{key:?} has no counter");
    }
}
