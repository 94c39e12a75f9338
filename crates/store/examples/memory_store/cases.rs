//! One function per case. Each prints its figures.

use std::hint::black_box;
use std::thread;

use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::Now;
use tidegate_store::memory::Memory;
use tidegate_store::{Answer, Charge, Intent};

use crate::alternatives::{Decides, Hashbrown, Keyed};
use crate::workload::{Random, START, key, nanos, resident, sliding_log, token_bucket, uniform, zipf};

/// A cap that no case but `flood` reaches.
const AMPLE: usize = 4 << 30;
/// Decisions timed together per thread.
const DECISIONS: usize = 4_000_000;

fn print(name: &str, value: u64, unit: &str) {
    println!("{name:<48} {value:>12} {unit}");
}

/// Nanoseconds per decision, keys present.
pub(crate) fn speed(clients: u64) {
    let limit = token_bucket();
    let store = Memory::new(AMPLE);
    fill(&store, &limit, clients);
    for threads in [1, 2] {
        let even: Vec<_> = (0..threads).map(|seed| uniform(clients, DECISIONS, seed)).collect();
        let skewed: Vec<_> = (0..threads).map(|seed| zipf(clients, DECISIONS, seed)).collect();
        print(&format!("uniform, {threads} threads"), per_decision(&store, &limit, &even), "ns");
        print(&format!("zipf, {threads} threads"), per_decision(&store, &limit, &skewed), "ns");
        if threads == 2 {
            compare("hashbrown, as many locks", &Hashbrown::new(91_000), &limit, clients, &even, &skewed);
            compare("hashbrown, 1,024 locks", &Hashbrown::new(1_024), &limit, clients, &even, &skewed);
            compare("maps with keys, 1,024 locks", &Keyed::new(1_024), &limit, clients, &even, &skewed);
        }
    }
    let even = [uniform(clients, DECISIONS, 7)];
    print("two limits, uniform, 1 thread", per_pair(&store, &limit, &even[0]), "ns");
    let store = Memory::new(AMPLE);
    fill(&store, &sliding_log(), clients);
    print("sliding log, uniform, 1 thread", per_decision(&store, &sliding_log(), &even), "ns");
}

fn compare(
    name: &str,
    store: &impl Decides,
    limit: &Limit,
    clients: u64,
    even: &[Vec<u32>],
    skewed: &[Vec<u32>],
) {
    fill(store, limit, clients);
    print(&format!("{name}: uniform, 2 threads"), per_decision(store, limit, even), "ns");
    print(&format!("{name}: zipf, 2 threads"), per_decision(store, limit, skewed), "ns");
}

fn fill(store: &impl Decides, limit: &Limit, clients: u64) {
    let mut answer = Answer::default();
    for number in 0..clients {
        store.decide(Now::at(START), limit, &key(number), &mut answer);
    }
}

fn per_decision(store: &impl Decides, limit: &Limit, clients: &[Vec<u32>]) -> u64 {
    let elapsed = nanos(|| {
        thread::scope(|scope| {
            for clients in clients {
                scope.spawn(move || {
                    let mut answer = Answer::default();
                    for (tick, client) in (0_u64..).zip(clients) {
                        let now = Now::at(START + 1_000_000 + tick * 100);
                        store.decide(now, limit, &key(u64::from(*client)), &mut answer);
                        black_box(&answer);
                    }
                });
            }
        });
    });
    elapsed / DECISIONS as u64
}

/// Requests that meet two limits: the client's, and one of a thousand tenants'.
fn per_pair(store: &Memory, limit: &Limit, clients: &[u32]) -> u64 {
    let elapsed = nanos(|| {
        let mut answer = Answer::default();
        for (tick, client) in (0_u64..).zip(clients) {
            let now = Now::at(START + 1_000_000 + tick * 100);
            let (client, tenant) = (key(u64::from(*client)), key(u64::from(client % 1_000) << 40));
            let charges = [&client, &tenant].map(|key| Charge {
                limit,
                key,
                cost: 1,
                binding: true,
                on_failure: OnStoreFailure::Local,
            });
            store.decide(now, &charges, Intent::Spend(PermitId(0)), &mut answer);
            black_box(&answer);
        }
    });
    elapsed / clients.len() as u64
}

/// Resident bytes per key at a tenth of the keys and at all of them.
pub(crate) fn bytes(clients: u64) {
    let mut answer = Answer::default();
    let before = resident();
    let store = Memory::new(AMPLE);
    for number in 0..clients {
        store.decide_token(number, &mut answer);
        if [clients / 10, clients].contains(&(number + 1)) {
            let name = format!("token bucket at {} keys", number + 1);
            print(&name, (resident() - before) / (number + 1), "B/key");
            print(&format!("{name}, accounted"), store.stats().bytes / (number + 1), "B/key");
        }
    }
    let before = resident();
    let logs = Memory::new(AMPLE);
    fill(&logs, &sliding_log(), clients / 10);
    print("sliding log of one entry", (resident() - before) / (clients / 10), "B/key");
    print("sliding log of one entry, accounted", logs.stats().bytes / (clients / 10), "B/key");
}

/// Latency of each insert while the keys go in.
pub(crate) fn inserts(clients: u64) {
    let store = Memory::new(AMPLE);
    let (limit, mut answer) = (token_bucket(), Answer::default());
    let mut latencies = Vec::with_capacity(usize::try_from(clients).expect("fits"));
    for number in 0..clients {
        let key = key(number);
        latencies.push(nanos(|| Decides::decide(&store, Now::at(START), &limit, &key, &mut answer)));
        if [clients / 10, clients].contains(&(number + 1)) {
            percentiles(&format!("insert of {} keys", number + 1), &mut latencies.clone());
        }
    }
}

fn percentiles(name: &str, latencies: &mut [u64]) -> u64 {
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) / 10_000 * share];
    print(&format!("{name}: median"), at(5_000), "ns");
    print(&format!("{name}: p99"), at(9_900), "ns");
    print(&format!("{name}: p99.99"), at(9_999), "ns");
    print(&format!("{name}: worst"), latencies[latencies.len() - 1], "ns");
    at(9_900)
}

/// Random keys far beyond the cap (fault 10), with one hot key among them.
pub(crate) fn flood(requests: u64) {
    const CAP: usize = 256 << 20;
    let (limit, mut answer, mut random) = (token_bucket(), Answer::default(), Random::new(1));
    let before = resident();
    let store = Memory::new(CAP);
    let hot = key(u64::MAX);
    for _ in 0..1_000 {
        Decides::decide(&store, Now::at(START), &limit, &hot, &mut answer);
    }
    let mut worst = 0;
    let elapsed = nanos(|| {
        for request in 0..requests {
            Decides::decide(
                &store,
                Now::at(START + request / 10),
                &limit,
                &key(random.next() >> 1),
                &mut answer,
            );
            if request % 1_000_000 == 0 {
                worst = worst.max(resident() - before);
            }
        }
    });
    let charge =
        Charge { limit: &limit, key: &hot, cost: 0, binding: true, on_failure: OnStoreFailure::Local };
    store.decide(Now::at(START), &[charge], Intent::Peek, &mut answer);
    let stats = store.stats();
    print("flood: insert at the cap", elapsed / requests, "ns");
    print("flood: resident at most, share of the cap", worst * 100 / CAP as u64, "%");
    print("flood: accounted, share of the cap", stats.bytes * 100 / CAP as u64, "%");
    print("flood: keys remembered", stats.entries, "keys");
    print("flood: evicted live", stats.evicted_live, "keys");
    print("flood: the hot key's units still in use", 1_000 - answer.verdicts[0].remaining, "of 1000");
}

/// Keys that collide under an unkeyed hash, against random ones (fault 11).
pub(crate) fn collisions(clients: u64) {
    let mut random = Random::new(2);
    let evens = percentiles("random keys", &mut latencies(|_| random.next(), clients));
    // Multiples of 2^32: equal in the low half of any hash that is linear in the key.
    let crafted = percentiles("crafted keys", &mut latencies(|number| number << 32, clients));
    print("crafted keys: p99, share of the random ones'", crafted * 100 / evens.max(1), "%");
}

fn latencies(mut number: impl FnMut(u64) -> u64, clients: u64) -> Vec<u64> {
    let store = Memory::new(AMPLE);
    let (limit, mut answer) = (token_bucket(), Answer::default());
    let mut decide = |client: u64| {
        let key = key(number(client));
        nanos(|| Decides::decide(&store, Now::at(START), &limit, &key, &mut answer))
    };
    (0..clients).map(&mut decide).collect()
}

/// Time and size of a snapshot.
pub(crate) fn snapshot(_clients: u64) {}

trait Token {
    fn decide_token(&self, number: u64, answer: &mut Answer);
}

impl Token for Memory {
    fn decide_token(&self, number: u64, answer: &mut Answer) {
        Decides::decide(self, Now::at(START), &token_bucket(), &key(number), answer);
    }
}
