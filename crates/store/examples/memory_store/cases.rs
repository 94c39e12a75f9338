//! One function per case. Each prints its figures.

use std::hint::black_box;
use std::thread;

use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::Now;
use tidegate_store::memory::{Memory, snapshot};
use tidegate_store::{Answer, Charge, Intent};

use crate::alternatives::{Decides, Hashbrown, Keyed};
use crate::workload::{
    Random, START, key, nanos, on_processor, resident, sliding_log, token_bucket, uniform, zipf,
};

/// A cap that no case but `flood` reaches.
const AMPLE: usize = 1 << 30;
/// Decisions timed together per thread.
const DECISIONS: usize = 1_000_000;

fn print(name: &str, value: u64, unit: &str) {
    println!("{name}\t{value}\t{unit}");
}

/// Processor time per decision, keys present.
pub(crate) fn speed(clients: u64) {
    let loads = |threads: u64| {
        let even: Vec<_> = (0..threads).map(|seed| uniform(clients, DECISIONS, seed)).collect();
        let skewed: Vec<_> = (0..threads).map(|seed| zipf(clients, DECISIONS, seed)).collect();
        [("uniform", even), ("zipf", skewed)]
    };
    let (one, two) = (loads(1), loads(2));
    let (bucket, log) = (token_bucket(), sliding_log());
    let store = Memory::new(AMPLE);
    decisions("memory store", &store, &bucket, clients, &one);
    decisions("memory store", &store, &bucket, clients, &two);
    print("memory store, two limits: uniform, 1 thread", per_pair(&store, &bucket, &one[0].1[0]), "ns");
    decisions("memory store, sliding log", &Memory::new(AMPLE), &log, clients, &two);
    decisions("hashbrown, 22,000 locks", &Hashbrown::new(22_000), &bucket, clients, &two);
    decisions("hashbrown, 1,024 locks", &Hashbrown::new(1_024), &bucket, clients, &two);
    decisions("maps that hold the keys, 1,024 locks", &Keyed::new(1_024), &bucket, clients, &two);
}

fn decisions(
    name: &str,
    store: &impl Decides,
    limit: &Limit,
    clients: u64,
    loads: &[(&str, Vec<Vec<u32>>); 2],
) {
    fill(store, limit, clients);
    for (popularity, load) in loads {
        let name = format!("{name}: {popularity}, {} threads", load.len());
        print(&name, per_decision(store, limit, load), "ns");
    }
}

fn fill(store: &impl Decides, limit: &Limit, clients: u64) {
    let mut answer = Answer::default();
    for number in 0..clients {
        store.decide(Now::at(START), limit, &key(number), &mut answer);
    }
}

/// The mean over the threads, each of which works through its own list.
fn per_decision(store: &impl Decides, limit: &Limit, clients: &[Vec<u32>]) -> u64 {
    let work = |clients: &[u32]| {
        let mut answer = Answer::default();
        let before = on_processor();
        for (tick, client) in (0_u64..).zip(clients) {
            let now = Now::at(START + 1_000_000 + tick * 100);
            store.decide(now, limit, &key(u64::from(*client)), &mut answer);
            black_box(&answer);
        }
        on_processor() - before
    };
    let total: u64 = thread::scope(|scope| {
        let threads: Vec<_> = clients.iter().map(|clients| scope.spawn(|| work(clients))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    total / clients.iter().map(Vec::len).sum::<usize>() as u64
}

/// Requests that meet two limits: the client's, and one of a thousand tenants'.
fn per_pair(store: &Memory, limit: &Limit, clients: &[u32]) -> u64 {
    let mut answer = Answer::default();
    let before = on_processor();
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
    (on_processor() - before) / clients.len() as u64
}

/// Resident bytes per key at a tenth of the keys and at all of them.
pub(crate) fn bytes(clients: u64) {
    per_key("token bucket", &token_bucket(), clients);
}

/// The same of the default policy's log, one entry each.
pub(crate) fn log_bytes(clients: u64) {
    per_key("sliding log of one entry", &sliding_log(), clients);
}

fn per_key(name: &str, limit: &Limit, clients: u64) {
    let mut answer = Answer::default();
    let before = resident();
    let store = Memory::new(AMPLE);
    for number in 0..clients {
        Decides::decide(&store, Now::at(START), limit, &key(number), &mut answer);
        if [clients / 10, clients].contains(&(number + 1)) {
            let name = format!("{name}, {} keys", number + 1);
            print(&format!("{name}: resident"), (resident() - before) / (number + 1), "B/key");
            print(&format!("{name}: accounted"), store.stats().bytes / (number + 1), "B/key");
        }
    }
}

/// Latency of each insert while the keys go in, beside that of doing nothing: what the machine
/// itself interrupts.
pub(crate) fn inserts(clients: u64) {
    percentiles("nothing", &mut (0..clients).map(|_| nanos(|| {})).collect::<Vec<_>>());
    for keys in [clients / 10, clients] {
        percentiles(&format!("insert of {keys} keys"), &mut latencies(&Memory::new(AMPLE), |n| n, keys));
    }
    let tables = Hashbrown::new(1_024);
    percentiles(&format!("hashbrown, 1,024 locks, {clients} keys"), &mut latencies(&tables, |n| n, clients));
}

fn latencies(store: &impl Decides, mut number: impl FnMut(u64) -> u64, clients: u64) -> Vec<u64> {
    let (limit, mut answer) = (token_bucket(), Answer::default());
    let mut decide = |client: u64| {
        let key = key(number(client));
        nanos(|| store.decide(Now::at(START), &limit, &key, &mut answer))
    };
    (0..clients).map(&mut decide).collect()
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
    let (mut worst, busy) = (0, on_processor());
    for request in 0..requests {
        let key = key(random.next() >> 1);
        Decides::decide(&store, Now::at(START + request / 100), &limit, &key, &mut answer);
        if request % 1_000_000 == 0 {
            worst = worst.max(resident() - before);
        }
    }
    let busy = on_processor() - busy;
    let charge =
        Charge { limit: &limit, key: &hot, cost: 0, binding: true, on_failure: OnStoreFailure::Local };
    store.decide(Now::at(START), &[charge], Intent::Peek, &mut answer);
    let stats = store.stats();
    print("flood: insert at the cap", busy / requests, "ns");
    print("flood: resident at most, share of the cap", worst * 100 / CAP as u64, "%");
    print("flood: accounted, share of the cap", stats.bytes * 100 / CAP as u64, "%");
    print("flood: keys remembered", stats.entries, "keys");
    print("flood: evicted live", stats.evicted_live, "keys");
    print("flood: the hot key's units still in use", 1_000 - answer.verdicts[0].remaining, "of 1000");
}

/// Keys that collide under a hash without a secret, against random ones (fault 11).
pub(crate) fn collisions(clients: u64) {
    let mut random = Random::new(2);
    let mut ordinary = latencies(&Memory::new(AMPLE), |_| random.next(), clients);
    let ordinary = percentiles("random keys", &mut ordinary);
    // Multiples of 2^32: equal in the low half of any hash that is linear in the key.
    let mut crafted = latencies(&Memory::new(AMPLE), |number| number << 32, clients);
    let crafted = percentiles("crafted keys", &mut crafted);
    print("crafted keys: p99, share of the random ones'", crafted * 100 / ordinary.max(1), "%");
}

/// Time and size of a snapshot.
pub(crate) fn snapshot(clients: u64) {
    let store = Memory::new(AMPLE);
    fill(&store, &token_bucket(), clients);
    let folder = std::env::temp_dir().join(format!("memory-store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable temporary folder");
    let path = folder.join("counters.snapshot");
    let (mut written, mut restored) = (None, None);
    let wrote = nanos(|| written = snapshot::save(&store, &path, Now::at(START)).ok());
    let read = nanos(|| restored = snapshot::load(AMPLE, &path, Now::at(START)).ok().flatten());
    let (written, restored) = (written.expect("written"), restored.expect("whole"));
    assert_eq!((written.entries, restored.stats().entries), (clients, clients));
    std::fs::remove_dir_all(&folder).expect("made above");
    print(&format!("snapshot of {clients} keys: size"), written.bytes / clients, "B/key");
    print(&format!("snapshot of {clients} keys: write and sync"), wrote / 1_000_000, "ms");
    print(&format!("snapshot of {clients} keys: restore"), read / 1_000_000, "ms");
}
