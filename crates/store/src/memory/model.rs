//! The locking under `shuttle`'s scheduler, which runs each test under many interleavings and fails
//! on a deadlock: requests over several keys, in every order, are each one atomic step.
//!
//! Randomised, so a pass is evidence and not proof; the seed of a failure is printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::thread;
use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};

use super::{HashKey, MIN_MAX_BYTES, Memory};
use crate::{Answer, Charge, Intent};

const INTERLEAVINGS: usize = 2_000;

fn memory() -> Arc<Memory> {
    Arc::new(Memory::with_key(MIN_MAX_BYTES, HashKey([3; 16])))
}

fn bucket(quota: u64) -> Limit {
    Limit::TokenBucket(Bucket::new(quota, quota, SECOND))
}

fn decide(memory: &Memory, charges: &[(&Limit, &str)], intent: Intent) -> Answer {
    let charges: Vec<_> = charges
        .iter()
        .map(|(limit, key)| Charge {
            limit,
            key: key.as_bytes(),
            cost: 1,
            binding: true,
            on_failure: OnStoreFailure::Local,
        })
        .collect();
    let mut answer = Answer::default();
    memory.decide(Now::at(SECOND), &charges, intent, &mut answer);
    answer
}

fn remaining(memory: &Memory, limit: &Limit, key: &str) -> u64 {
    let charge =
        Charge { limit, key: key.as_bytes(), cost: 0, binding: true, on_failure: OnStoreFailure::Local };
    let mut answer = Answer::default();
    memory.decide(Now::at(SECOND), &[charge], Intent::Peek, &mut answer);
    answer.verdicts[0].remaining
}

/// Three threads ask for overlapping sets of keys in conflicting orders; the scarce key is shared.
#[test]
fn conflicting_orders_neither_deadlock_nor_charge_by_halves() {
    shuttle::check_random(
        || {
            let memory = memory();
            let (scarce, ample) = (bucket(2), bucket(100));
            let orders = [["a", "b", "scarce"], ["scarce", "a", "b"], ["b", "scarce", "a"]];
            let admitted = Arc::new(AtomicU64::new(0));
            let threads = orders.map(|keys| {
                let (memory, admitted) = (memory.clone(), admitted.clone());
                let (scarce, ample) = (scarce.clone(), ample.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let limit = |key| if key == "scarce" { &scarce } else { &ample };
                        let charges = keys.map(|key| (limit(key), key));
                        let answer = decide(&memory, &charges, Intent::Spend(PermitId(0)));
                        admitted.fetch_add(u64::from(answer.allowed), Ordering::Relaxed);
                    }
                })
            });
            for thread in threads {
                thread.join().expect("no assertion in there");
            }
            assert_eq!(admitted.load(Ordering::Relaxed), 2);
            assert_eq!(remaining(&memory, &scarce, "scarce"), 0);
            assert_eq!(remaining(&memory, &ample, "a"), 98, "charged by a denial, or not by an admission");
            assert_eq!(remaining(&memory, &ample, "b"), 98, "charged by a denial, or not by an admission");
        },
        INTERLEAVINGS,
    );
}

/// A reader of two keys that are always charged together never sees one charged without the other.
#[test]
fn a_request_over_two_keys_is_seen_whole() {
    shuttle::check_random(
        || {
            let memory = memory();
            let limit = bucket(100);
            let writer = {
                let (memory, limit) = (memory.clone(), limit.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let charges = [(&limit, "a"), (&limit, "b")];
                        assert!(decide(&memory, &charges, Intent::Spend(PermitId(0))).allowed);
                    }
                })
            };
            for _ in 0..3 {
                let seen = decide(&memory, &[(&limit, "b"), (&limit, "a")], Intent::Peek);
                assert_eq!(seen.verdicts[0].remaining, seen.verdicts[1].remaining, "half a request");
            }
            writer.join().expect("no assertion failed");
        },
        INTERLEAVINGS,
    );
}

/// One key named twice in a request is locked once.
#[test]
fn a_key_named_twice_does_not_deadlock() {
    shuttle::check_random(
        || {
            let memory = memory();
            let limit = bucket(3);
            let other = {
                let (memory, limit) = (memory.clone(), limit.clone());
                thread::spawn(move || {
                    decide(&memory, &[(&limit, "a"), (&limit, "a")], Intent::Spend(PermitId(0))).allowed
                })
            };
            let charges = [(&limit, "a"), (&limit, "b"), (&limit, "a")];
            let own = decide(&memory, &charges, Intent::Spend(PermitId(0))).allowed;
            let other = other.join().expect("no assertion in there");
            assert!(own ^ other, "each spends 2 of 3");
            assert_eq!(remaining(&memory, &limit, "a"), 1);
        },
        INTERLEAVINGS,
    );
}
