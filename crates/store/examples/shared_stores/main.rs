//! Decisions per second of the shared stores, side by side in one run.
//!
//! ```text
//!   cargo run --release -p tidegate-store --example shared_stores
//! ```
//!
//! 256 callers, each with one request under way; a token bucket each for 100,000 keys, drawn evenly
//! or by Zipf(1.1). Starts its own Redis and PostgreSQL. The peer is redis-benchmark's best rate for
//! the same script with one decision a call, at -P 1 and -P 16.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::lease::{LeaseConfig, Leases};
use tidegate_store::postgres::{Durability, Postgres, PostgresConfig};
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Charge, Counters, Intent};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;
use tokio::time::Instant;

const CALLERS: usize = 256;
const KEYS: u64 = 100_000;
const SPAN: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let redis = RedisServer::start(&[]);
    let single = || Redis::start(RedisConfig::single("127.0.0.1", redis.port));
    let even: Arc<[u32]> = draws(false).into();
    let zipf: Arc<[u32]> = draws(true).into();
    println!("{:<44} {:>12} {:>9} {:>9}", "store", "decisions/s", "p50 ms", "p99 ms");
    let exact = measure("Redis exact, even", Counters::Shared(Shared::Redis(single())), &even).await;
    measure("Redis exact, Zipf(1.1)", Counters::Shared(Shared::Redis(single())), &zipf).await;
    for (pipeline, callers) in [("1", "256"), ("16", "64")] {
        let best = redis_benchmark(&redis, pipeline, callers);
        let name = format!("redis-benchmark, the same script, -P {pipeline}");
        println!("{name:<44} {best:>12.0}   Redis exact is {:.2} x", exact / best);
    }
    let guard = Guard::new(
        Shared::Redis(single()),
        GuardConfig { deadline: Duration::from_secs(1), ..GuardConfig::default() },
    );
    let leases = Leases::new(guard, LeaseConfig { max_keys: 262_144, ..LeaseConfig::default() });
    let leased = measure("leases on Redis, Zipf(1.1)", Counters::Leased(leases), &zipf).await;
    println!("{:<44} {:>12}   {:.2} x Redis exact", "", "", leased / exact);
    drop(redis);
    for durability in [Durability::Unlogged, Durability::Asynchronous, Durability::Synchronous] {
        let server = PostgresServer::start(&["fsync=on", "shared_buffers=256MB"]);
        let mut config = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
        config.durability = durability;
        config.response_timeout = Duration::from_secs(5);
        let store = Counters::Shared(Shared::Postgres(Postgres::start(config)));
        measure(&format!("PostgreSQL, {durability:?}, even"), store, &even).await;
    }
}

/// A million keys in the order in which they are asked for.
fn draws(zipf: bool) -> Vec<u32> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let weights = (1..=KEYS).map(|rank| if zipf { (rank as f64).powf(-1.1) } else { 1.0 });
    let mut sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let whole = sums[sums.len() - 1];
    sums.iter_mut().for_each(|sum| *sum /= whole);
    let draw = |_| {
        let at = uniform();
        u32::try_from(sums.partition_point(|sum| *sum < at)).expect("100,000 keys")
    };
    (0..1_000_000).map(draw).collect()
}

async fn measure(name: &str, store: Counters, keys: &Arc<[u32]>) -> f64 {
    let store = Arc::new(store);
    let next = Arc::new(AtomicU64::new(0));
    let limit = Arc::new(Limit::TokenBucket(Bucket::new(1_000_000, 1_000_000, 60 * SECOND)));
    // Warm: connections, script or schema, and every key once.
    run(&store, keys, &next, &limit, SPAN).await;
    let start = Instant::now();
    let mut times = run(&store, keys, &next, &limit, SPAN).await;
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100] as f64 / 1e6;
    println!("{name:<44} {rate:>12.0} {:>9.2} {:>9.2}", at(50), at(99));
    rate
}

/// Nanoseconds of each decision.
async fn run(
    store: &Arc<Counters>,
    keys: &Arc<[u32]>,
    next: &Arc<AtomicU64>,
    limit: &Arc<Limit>,
    span: Duration,
) -> Vec<u32> {
    let mut callers = tokio::task::JoinSet::new();
    let start = Instant::now();
    for _ in 0..CALLERS {
        let (store, keys, next, limit) = (store.clone(), keys.clone(), next.clone(), limit.clone());
        callers.spawn(async move {
            let mut times = Vec::with_capacity(65_536);
            let mut answer = Answer::default();
            let mut before = start.elapsed();
            while before < span {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let key = keys[usize::try_from(number).expect("small") % keys.len()].to_be_bytes();
                let charges = [Charge {
                    limit: &limit,
                    key: &key,
                    cost: 1,
                    binding: true,
                    on_failure: OnStoreFailure::Local,
                }];
                let now = Now::at(
                    1_767_225_600 * SECOND + u64::try_from(before.as_nanos()).expect("a few seconds"),
                );
                store
                    .decide(now, &charges, Intent::Spend(PermitId(number)), &mut answer)
                    .await
                    .expect("the store answers");
                assert!(answer.degraded.is_none(), "the store itself answers");
                let after = start.elapsed();
                times.push(u32::try_from((after - before).as_nanos()).unwrap_or(u32::MAX));
                before = after;
                tokio::task::consume_budget().await;
            }
            times
        });
    }
    callers.join_all().await.concat()
}

/// Calls per second of the batch script with one decision, random keys.
fn redis_benchmark(redis: &RedisServer, pipeline: &str, callers: &str) -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/decide.lua");
    let script = std::fs::read_to_string(script).expect("the script is beside");
    // One token bucket of a million per minute, one spend of one unit, as `wire.rs` packs them.
    let mut batch = vec![1, 0, 1];
    for number in [60_000.0_f64, 1_000_000.0, 0.0, 0.0, 0.0] {
        batch.extend(number.to_le_bytes());
    }
    batch.extend([1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1]);
    // redis-benchmark's arguments cannot hold a NUL, so the batch is a constant of the script.
    let constant: String = batch.iter().map(|byte| format!("\\{byte:03}")).collect();
    let script = script.replacen("batch, at = ARGV[1], 1", &format!("batch, at = '{constant}', 1"), 1);
    let name = redis.command(&["SCRIPT", "LOAD", &script]);
    let output = Command::new("redis-benchmark")
        .args(["-p", &redis.port.to_string(), "-n", "400000", "-r", "100000", "-c", callers, "-P", pipeline])
        .args(["-q", "EVALSHA", name.trim(), "1", "tg:{00}:__rand_int__"])
        .output()
        .expect("redis-benchmark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = |line: &str| {
        line.split(": ").nth(1)?.split(" requests per second").next()?.trim().parse::<f64>().ok()
    };
    text.split(['\r', '\n'])
        .filter(|line| line.contains("requests per second"))
        .filter_map(rate)
        .next_back()
        .unwrap_or(f64::NAN)
}
