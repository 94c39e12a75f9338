//! Fault 10: random keys without end. Alone in its file, so that no other test shares its process
//! and the resident set is this store's.
//!
//! `regression/memory-store/` runs the same with 100 million keys.

use std::fs;
use std::sync::Barrier;
use std::thread;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId, SlidingLog, Slots};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::memory::Memory;
use tidegate_store::{Answer, Charge, Intent};

const CAP: usize = 16 << 20;
const START: u64 = 1_767_225_600 * SECOND;
/// Requests of each thread per round: all rounds ask for several times the keys that fit.
const REQUESTS: u64 = 40_000;
const ROUNDS: u64 = 8;
/// Requests that one thread may be ahead of the other.
const STEP: u64 = 64;

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1_024
}

fn spend(memory: &Memory, nanos: u64, limit: &Limit, key: u64) -> Answer {
    let mut answer = Answer::default();
    let charge = Charge {
        limit,
        key: &key.to_le_bytes(),
        cost: 1,
        binding: true,
        on_failure: tidegate_algorithms::policy::OnStoreFailure::Local,
    };
    memory.decide(Now::at(nanos), &[charge], Intent::Spend(PermitId(key)), &mut answer);
    answer
}

/// One thread's requests of one round, under keys that are new each time or, for long logs, return.
/// The threads keep step: how much of each arena is in use would else be the scheduler's affair.
fn flood(memory: &Memory, limit: &Limit, returning: bool, round: u64, thread: u64, turn: &Barrier) {
    for request in round * REQUESTS..(round + 1) * REQUESTS {
        if request % STEP == 0 {
            turn.wait();
        }
        let name = if returning { request % 10_007 } else { request << 20 };
        spend(memory, START + request, limit, name << 1 | thread);
    }
}

/// Two threads, the same ones throughout as in a server: the allocator gives each its own arena.
#[test]
fn fault_10_random_keys() {
    let before = resident();
    let memory = Memory::new(CAP);
    // Nothing expires during the test: whatever leaves is evicted.
    let hour = 3_600 * SECOND;
    let bucket = Limit::TokenBucket(Bucket::new(10, 10, hour));
    let log = Limit::SlidingLog(SlidingLog { limit: 2_000, window: hour });
    let slots = Limit::Concurrency(Slots { limit: 10, lease: hour });
    let hot = u64::MAX;
    for _ in 0..11 {
        spend(&memory, START, &bucket, hot);
    }
    let phases = [
        ("buckets", &bucket, false),
        ("logs", &log, false),
        ("long logs", &log, true),
        ("permits", &slots, false),
    ];
    let turn = Barrier::new(2);
    // Judged at the end: a thread that panicked here would leave the other one at the barrier for ever.
    let (mut sizes, mut hot_counts) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for (_, limit, returning) in phases {
                for round in 0..ROUNDS {
                    flood(&memory, limit, returning, round, 1, &turn);
                    turn.wait();
                    turn.wait();
                }
                turn.wait();
            }
        });
        scope.spawn(|| {
            for (name, limit, returning) in phases {
                for round in 0..ROUNDS {
                    flood(&memory, limit, returning, round, 0, &turn);
                    turn.wait();
                    sizes.push((name, memory.stats(), resident() - before));
                    turn.wait();
                }
                hot_counts.push((name, !spend(&memory, START, &bucket, hot).allowed));
                turn.wait();
            }
        });
    });
    for (name, stats, grown) in sizes {
        println!("{name}: resident {} % of the cap", grown * 100 / stats.max_bytes);
        assert!(stats.bytes <= stats.max_bytes, "{name}: {stats:?}");
        assert!(grown <= stats.max_bytes * 11 / 10, "{name}: resident {grown} at {stats:?}");
    }
    for (name, denied) in hot_counts {
        let least_used = ["buckets", "logs"].contains(&name);
        assert!(denied || !least_used, "{name}: the hot key's count was lost");
    }
    assert!(memory.stats().evicted_live > ROUNDS * REQUESTS, "evictions of what had not expired are counted");
}
