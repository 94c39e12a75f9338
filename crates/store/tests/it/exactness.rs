//! Fault 18: one key, all cores. What is admitted equals the limit exactly, for every algorithm.

use std::panic::AssertUnwindSafe;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots,
};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::memory::Memory;
use tidegate_store::{Answer, Charge, Intent};

const THREADS: u64 = 8;
const REQUESTS: u64 = 5_000;
const QUOTA: u64 = 1_000;
const NOW: u64 = 1_767_225_600 * SECOND;

fn every_limit() -> Vec<Limit> {
    let bucket = Bucket::new(QUOTA, QUOTA, 60 * SECOND);
    let zone = jiff::tz::TimeZone::UTC;
    vec![
        Limit::TokenBucket(bucket),
        Limit::LeakyBucket(bucket),
        Limit::FixedWindow(FixedWindow { limit: QUOTA, seconds: 60 }),
        Limit::SlidingLog(SlidingLog { limit: QUOTA, window: 60 * SECOND }),
        Limit::SlidingCounter(SlidingCounter { limit: QUOTA, seconds: 60 }),
        Limit::Concurrency(Slots { limit: QUOTA, lease: 60 * SECOND }),
        Limit::Calendar(Calendar { limit: QUOTA, period: Period::Day, zone }),
    ]
}

/// Units admitted when all threads ask for `charges` at once, over and over.
fn hammer(memory: &Memory, charges: &[Charge<'_>]) -> u64 {
    let admitted = AtomicU64::new(0);
    let start = Barrier::new(usize::try_from(THREADS).expect("small"));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (admitted, start) = (&admitted, &start);
            scope.spawn(move || {
                let mut answer = Answer::default();
                start.wait();
                for request in 0..REQUESTS {
                    let permit = PermitId(number * REQUESTS + request);
                    memory.decide(Now::at(NOW), charges, Intent::Spend(permit), &mut answer);
                    admitted.fetch_add(u64::from(answer.allowed), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn fault_18_one_key_all_cores() {
    let memory = Memory::new(16 << 20);
    for (number, limit) in every_limit().iter().enumerate() {
        let key = [u8::try_from(number).expect("seven")];
        let charge = Charge { limit, key: &key, cost: 1, binding: true, on_failure: OnStoreFailure::Local };
        assert_eq!(hammer(&memory, &[charge]), QUOTA, "{limit:?}");
    }
    assert_eq!(memory.stats().evicted_live, 0);
}

#[test]
fn fault_18_two_keys_all_cores() {
    let memory = Memory::new(16 << 20);
    let wide = Limit::TokenBucket(Bucket::new(3 * QUOTA, 3 * QUOTA, 60 * SECOND));
    for limit in &every_limit() {
        let names = [format!("narrow {limit:?}"), format!("wide {limit:?}")];
        let charges = [
            Charge {
                limit,
                key: names[0].as_bytes(),
                cost: 1,
                binding: true,
                on_failure: OnStoreFailure::Local,
            },
            Charge {
                limit: &wide,
                key: names[1].as_bytes(),
                cost: 2,
                binding: true,
                on_failure: OnStoreFailure::Local,
            },
        ];
        assert_eq!(hammer(&memory, &charges), QUOTA, "{limit:?}");
        let mut answer = Answer::default();
        memory.decide(Now::at(NOW), &charges[1..], Intent::Peek, &mut answer);
        assert_eq!(answer.verdicts[0].remaining, QUOTA - 2, "charged by a denial: {limit:?}");
    }
}

/// Runs of requests that are decided together, each over the scarce key and others, in any order.
#[test]
fn fault_18_one_key_in_runs_on_all_cores() {
    let memory = Memory::new(16 << 20);
    let limit = Limit::TokenBucket(Bucket::new(QUOTA, QUOTA, 60 * SECOND));
    let admitted = AtomicU64::new(0);
    let start = Barrier::new(usize::try_from(THREADS).expect("small"));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (memory, limit, admitted, start) = (&memory, &limit, &admitted, &start);
            scope.spawn(move || {
                let mut keys: Vec<_> = (0..16_u8).map(|name| [name]).collect();
                keys.rotate_left(usize::try_from(number).expect("small"));
                let charge =
                    |key| Charge { limit, key, cost: 1, binding: true, on_failure: OnStoreFailure::Local };
                let charges: Vec<_> = keys.iter().map(|key| charge(&key[..])).collect();
                let mut verdicts = Vec::new();
                start.wait();
                for _ in 0..REQUESTS / 10 {
                    memory.decide_each(Now::at(NOW), &charges, Intent::Spend(PermitId(0)), &mut verdicts);
                }
                let allowed = verdicts.iter().filter(|verdict| verdict.allowed).count();
                admitted.fetch_add(allowed as u64, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(admitted.into_inner(), 16 * QUOTA);
}

/// A window of no length divides by zero, with the shard locked; no policy can have one.
#[test]
fn a_panic_under_a_shards_lock_leaves_the_shard_in_service_with_what_it_held() {
    let memory = Memory::new(1 << 20);
    let bucket = Limit::TokenBucket(Bucket::new(QUOTA, QUOTA, 60 * SECOND));
    let broken = Limit::FixedWindow(FixedWindow { limit: QUOTA, seconds: 0 });
    let on_failure = OnStoreFailure::Local;
    let decide = |limit, keys: &[&[u8]], cost| {
        let charges: Vec<_> =
            keys.iter().map(|key| Charge { limit, key, cost, binding: true, on_failure }).collect();
        let mut answer = Answer::default();
        memory.decide(Now::at(NOW), &charges, Intent::Spend(PermitId(0)), &mut answer);
        answer
    };
    // So many that every shard meets some of either half.
    let half = 16 * usize::try_from(memory.stats().shards).expect("small");
    let keys: Vec<_> = (0..2 * half).map(|number| number.to_be_bytes()).collect();
    let (known, others) = keys.split_at(half);
    for key in known {
        assert_eq!(decide(&bucket, &[key], 3).verdicts[0].remaining, QUOTA - 3);
    }
    for key in others {
        std::panic::catch_unwind(AssertUnwindSafe(|| decide(&broken, &[key], 1)))
            .expect_err("the arithmetic panics");
    }
    for keys in known.windows(2) {
        let left = decide(&bucket, &[&keys[0], &keys[1]], 0).verdicts;
        assert!(left.iter().all(|verdict| verdict.remaining == QUOTA - 3), "{left:?}");
        assert!(decide(&bucket, &[&keys[0]], 0).allowed);
    }
    assert_eq!(decide(&bucket, &[&known[0]], QUOTA - 3).verdicts[0].remaining, 0);
    assert!(!decide(&bucket, &[&known[0]], 1).allowed);
}
