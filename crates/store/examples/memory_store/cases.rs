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
    Clock, Random, START, key, nanos, on_processor, resident, sliding_log, token_bucket, uniform, zipf,
};

/// A cap that no case but `flood` reaches.
const AMPLE: usize = 1 << 30;
/// Decisions timed together per thread.
const DECISIONS: usize = 1_000_000;

fn print(name: &str, value: u64, unit: &str) {
    println!("{name}\t{value}\t{unit}");
}

/// Decisions of one pipeline.
const TOGETHER: usize = 16;

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
    for (popularity, load) in &two {
        let name = format!("memory store, {TOGETHER} at once: {popularity}, 2 threads");
        print(&name, per_decision(load, |now, clients| together(&store, &bucket, now, clients)), "ns");
    }
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
        let spent = per_decision(load, |now, clients| one_by_one(store, limit, now, clients));
        print(&name, spent, "ns");
    }
}

fn fill(store: &impl Decides, limit: &Limit, clients: u64) {
    let mut answer = Answer::default();
    for number in 0..clients {
        store.decide(Now::at(START), limit, &key(number), &mut answer);
    }
}

/// The mean over the threads, each of which works through its own list, so many at a time.
fn per_decision(clients: &[Vec<u32>], decide: impl Fn(Now, &[u32]) + Sync) -> u64 {
    let work = |clients: &[u32]| {
        let before = on_processor();
        for (tick, clients) in (0_u64..).zip(clients.chunks(TOGETHER)) {
            decide(Now::at(START + 1_000_000 + tick * 1_600), clients);
        }
        on_processor() - before
    };
    let total: u64 = thread::scope(|scope| {
        let threads: Vec<_> = clients.iter().map(|clients| scope.spawn(|| work(clients))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    total / clients.iter().map(Vec::len).sum::<usize>() as u64
}

/// One decision after another.
fn one_by_one(store: &impl Decides, limit: &Limit, now: Now, clients: &[u32]) {
    let mut answer = Answer::default();
    for client in clients {
        store.decide(now, limit, &key(u64::from(*client)), &mut answer);
        black_box(&answer);
    }
}

/// Decisions as a pipeline of commands asks for them.
fn together(store: &Memory, limit: &Limit, now: Now, clients: &[u32]) {
    let keys: Vec<_> = clients.iter().map(|client| key(u64::from(*client))).collect();
    let charge = |key| Charge { limit, key, cost: 1, binding: true, on_failure: OnStoreFailure::Local };
    let charges: Vec<_> = keys.iter().map(|key| charge(&key[..])).collect();
    let mut verdicts = Vec::with_capacity(charges.len());
    store.decide_each(now, &charges, Intent::Spend(PermitId(0)), &mut verdicts);
    black_box(&verdicts);
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

/// Latency of each insert while the keys go in, beside what the machine itself makes one wait for: doing
/// nothing as often, and touching as many bytes of fresh memory, a page at a time. What another program
/// took is in the elapsed time and not in the processor's, which has all that the store, the allocator and
/// the kernel did for an insert. One table per process and nothing large freed before it: an allocator that
/// gives pages back does so within some later insert.
pub(crate) fn inserts(clients: u64, clock: Clock) {
    let mut latencies = Vec::with_capacity(usize::try_from(clients).expect("less than the address space"));
    latencies.extend((0..clients).map(|_| nanos(clock, || {})));
    percentiles(&format!("nothing, {clients} times{}", clock.label()), &mut latencies);
    let store = Memory::new(AMPLE);
    fill_timed(&store, clock, |number| number, clients, &mut latencies);
    percentiles(&format!("insert of {clients} keys{}", clock.label()), &mut latencies);
    touch_timed(store.stats().bytes, clock, &mut latencies);
    percentiles(&format!("the bytes of {clients} keys touched{}", clock.label()), &mut latencies);
}

/// The first write to each page of so many bytes.
fn touch_timed(bytes: u64, clock: Clock, latencies: &mut Vec<u64>) {
    let mut fresh = vec![0_u8; usize::try_from(bytes).expect("less than the address space")];
    latencies.clear();
    latencies.extend(fresh.chunks_mut(4_096).map(|page| nanos(clock, || *black_box(&mut page[0]) = 1)));
}

/// The same over tables that grow as wholes.
pub(crate) fn inserts_hashbrown(clients: u64, clock: Clock) {
    let mut latencies = Vec::new();
    fill_timed(&Hashbrown::new(1_024), clock, |number| number, clients, &mut latencies);
    percentiles(&format!("hashbrown, 1,024 locks, {clients} keys{}", clock.label()), &mut latencies);
}

/// Puts the keys in, and each insert's latency in place of what is in `latencies`.
fn fill_timed(
    store: &impl Decides,
    clock: Clock,
    mut number: impl FnMut(u64) -> u64,
    clients: u64,
    latencies: &mut Vec<u64>,
) {
    let (limit, mut answer) = (token_bucket(), Answer::default());
    latencies.clear();
    latencies.extend((0..clients).map(|client| {
        let key = key(number(client));
        nanos(clock, || store.decide(Now::at(START), &limit, &key, &mut answer))
    }));
}

fn percentiles(name: &str, latencies: &mut [u64]) -> u64 {
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 10_000];
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
    let (mut random, mut latencies) = (Random::new(2), Vec::new());
    fill_timed(&Memory::new(AMPLE), Clock::Elapsed, |_| random.next(), clients, &mut latencies);
    let ordinary = percentiles("random keys", &mut latencies);
    // Multiples of 2^32: equal in the low half of any hash that is linear in the key.
    fill_timed(&Memory::new(AMPLE), Clock::Elapsed, |number| number << 32, clients, &mut latencies);
    let crafted = percentiles("crafted keys", &mut latencies);
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
    let wrote = nanos(Clock::Elapsed, || written = snapshot::save(&store, &path, Now::at(START)).ok());
    let read =
        nanos(Clock::Elapsed, || restored = snapshot::load(AMPLE, &path, Now::at(START)).ok().flatten());
    let (written, restored) = (written.expect("written"), restored.expect("whole"));
    assert_eq!((written.entries, restored.memory.stats().entries), (clients, clients));
    std::fs::remove_dir_all(&folder).expect("made above");
    print(&format!("snapshot of {clients} keys: size"), written.bytes / clients, "B/key");
    print(&format!("snapshot of {clients} keys: write and sync"), wrote / 1_000_000, "ms");
    print(&format!("snapshot of {clients} keys: restore"), read / 1_000_000, "ms");
}
