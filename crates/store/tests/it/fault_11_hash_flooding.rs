//! Fault 11: keys made to collide. Under a hash with no secret anyone can compute keys that share a
//! slot, and turn every look-up into a walk; here they spread like any others.
//!
//! That their latency is the same is measured by `regression/memory-store/`.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::memory::{HashKey, Memory};
use tidegate_store::{Answer, Charge, Intent};

const CAP: usize = 32 << 20;
const KEYS: u64 = 20_000;

/// Keys whose hashes under the standard library's hasher with a known secret agree in 8 bits: what
/// an attacker who knew the secret would send.
fn crafted() -> Vec<[u8; 8]> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    (0_u64..)
        .map(u64::to_le_bytes)
        .filter(|key| hasher.hash_one(key) >> 56 == 0)
        .take(usize::try_from(KEYS).expect("small"))
        .collect()
}

/// Entries in the fullest shard, in per cent of the mean.
fn fullest(memory: &Memory, keys: &[[u8; 8]]) -> u64 {
    let limit = Limit::TokenBucket(Bucket::new(10, 10, SECOND));
    let mut answer = Answer::default();
    for key in keys {
        let charge = Charge {
            limit: &limit,
            key,
            cost: 1,
            binding: true,
            on_failure: tidegate_algorithms::policy::OnStoreFailure::Local,
        };
        memory.decide(Now::at(SECOND), &[charge], Intent::Spend(PermitId(0)), &mut answer);
    }
    let stats = memory.stats();
    assert_eq!(stats.entries, KEYS, "keys that collide in all 64 bits would share a counter");
    stats.fullest_shard * 100 * stats.shards / stats.entries
}

#[test]
fn fault_11_hash_flooding() {
    let ordinary: Vec<_> = (0..KEYS).map(u64::to_le_bytes).collect();
    for seed in 0..8 {
        let memory = || Memory::with_key(CAP, HashKey([seed; 16]));
        let (ordinary, crafted) = (fullest(&memory(), &ordinary), fullest(&memory(), &crafted()));
        // Some 34 keys per shard: the fullest of 600 has about half as many again.
        assert!((130..220).contains(&ordinary), "ordinary keys: {ordinary} % of the mean");
        assert!((130..220).contains(&crafted), "crafted keys: {crafted} % of the mean");
    }
}

#[test]
fn fault_11_the_secret_differs_per_store() {
    let (one, other) = (HashKey::random(), HashKey::random());
    assert_ne!(one, other);
    assert_eq!(format!("{one:?}"), "HashKey(secret)", "it must not be logged");
}
