//! Decisions per second of the shared stores, side by side in one run.
//!
//! ```text
//!   cargo run --release -p tidegate-store --example shared_stores -- redis|leases|nodes|postgres
//! ```
//!
//! 256 callers, each with one request under way; a token bucket each for 100,000 keys, drawn evenly
//! or by Zipf(1.1). Starts its own Redis and PostgreSQL. The peer of `redis` is redis-benchmark's
//! best rate for the same script with one decision a call, at -P 1 and -P 16; that of `postgres` is
//! pgbench's for an UPDATE of one bucket a call, with 4 and 16 callers. Subjects of a ratio
//! take turns, so that a neighbour's load meets both. `regression/shared-stores/run.sh` runs all.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

mod load;
mod pauses;
mod peer;

use std::sync::Arc;
use std::time::Duration;

use load::{KEYS, Load, Node, cpu_seconds, draws};
use tidegate_store::Counters;
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::lease::{LeaseConfig, Leases};
use tidegate_store::postgres::{Durability, Postgres, PostgresConfig};
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::shared::Shared;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each subject of a ratio is measured so often, in turns.
const TURNS: usize = 3;
/// Turns at half load, and how long each is: short, because a virtual machine may stand still for ten
/// milliseconds at any time, and many, because the median is then of turns in which it did not.
const LATE_TURNS: usize = 24;
const LATE_SPAN: Duration = Duration::from_millis(250);
/// The same, where a ratio of 0.9 is to be told from 1, and how long each turn is.
const NODE_TURNS: usize = 24;
const NODE_SPAN: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    match case.as_str() {
        "redis" => redis().await,
        "leases" => leases().await,
        "nodes" => nodes().await,
        "postgres" => postgres().await,
        _ => println!("one of redis, leases, nodes, postgres"),
    }
}

fn client(server: &RedisServer) -> Shared {
    let mut config = RedisConfig::single("127.0.0.1", server.port);
    config.response_timeout = Duration::from_secs(5);
    Shared::Redis(Redis::start(config))
}

fn exact(server: &RedisServer) -> Node {
    Arc::new(Counters::Shared(client(server)))
}

fn leased(server: &RedisServer, instances: u64) -> Node {
    let deadline = Duration::from_secs(5);
    let guard = Guard::new(client(server), GuardConfig { deadline, instances, ..GuardConfig::default() });
    Arc::new(Counters::Leased(Leases::new(guard, LeaseConfig { instances, ..LeaseConfig::default() })))
}

/// Exact counting against the best that one call per decision can do, and latency at half of it.
async fn redis() {
    let server = RedisServer::start(&[]);
    let nodes = [exact(&server)];
    let mut load = Load::new(draws(KEYS, false));
    load.run(&nodes).await;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        ours.push(load.run(&nodes).await.rate);
        let best =
            [("1", "256"), ("16", "64")].map(|(pipeline, callers)| peer::redis(&server, pipeline, callers));
        println!(
            "  exact {:.0}/s; redis-benchmark -P 1 {:.0}/s, -P 16 {:.0}/s",
            ours[ours.len() - 1],
            best[0],
            best[1]
        );
        peer.push(best[0].max(best[1]));
    }
    let (ours, peer) = (median(ours), median(peer));
    figure(
        "redis-exact",
        ours / peer,
        "x redis-benchmark's best rate for one decision a call",
        "at least 1.5",
    );
    let mut load = load.with_span(LATE_SPAN);
    let (mut late, mut rates, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LATE_TURNS {
        lost.push(pauses::lost(LATE_SPAN / 5) * 100.0);
        let run = load.run_at(ours / 2.0, &nodes[0]).await;
        late.push(run.p99_ms);
        rates.push(run.rate);
    }
    late.sort_by(f64::total_cmp);
    let quartiles = [1, 3].map(|quarter| late[LATE_TURNS * quarter / 4]);
    let lost = lost.iter().sum::<f64>() / LATE_TURNS as f64;
    let rate = median(rates);
    println!("  at half load, {rate:.0}/s, quartiles of {LATE_TURNS} turns' p99: {quartiles:.2?} ms");
    println!("  between them, with nothing else to do, the cores stood still for {lost:.1} % of the time");
    figure("redis-exact-p99", median(late), "ms at half load, median of turns", "below 3");
}

/// Leases against exact counting, both on Zipf(1.1): where there is room for all, and where the
/// hottest keys ask for several times their limit, so that the store is asked whether it has come back.
async fn leases() {
    for (name, limit) in [("leases-zipf", 100_000_000), ("leases-zipf-denied", 1_000_000)] {
        let server = RedisServer::start(&[]);
        let (exact, leased) = ([exact(&server)], [leased(&server, 1)]);
        let mut load = Load::new(draws(KEYS, true)).with_limit(limit);
        load.run(&exact).await;
        load.run(&leased).await;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            without.push(load.run(&exact).await.rate);
            let before = asked(&leased[0]);
            with.push(load.run(&leased).await.rate);
            let after = asked(&leased[0]);
            let share = (after.1 - before.1) as f64 / ((after.0 - before.0) + (after.1 - before.1)) as f64;
            let (with, without) = (with[with.len() - 1], without[without.len() - 1]);
            println!(
                "  exact {without:.0}/s; leases {with:.0}/s, {:.1} % of them asked the store",
                share * 100.0
            );
        }
        let ratio = median(with) / median(without);
        figure(name, ratio, &format!("x Redis exact, Zipf(1.1), {limit} a minute and key"), "at least 5");
    }
}

/// One, two and three nodes with leases on one Redis: decisions per second of their processor time,
/// where all keys are hot, and by Zipf's law, where each node more sees less of each key. Turns are
/// short and many, since what a processor yields in a second differs by half within seconds.
async fn nodes() {
    for (name, keys) in
        [("1,000 hot keys", draws(1_000, false)), ("Zipf(1.1) over 100,000", draws(KEYS, true))]
    {
        let server = RedisServer::start(&[]);
        let load = Load::new(keys).with_span(NODE_SPAN);
        let mut sets: Vec<(Vec<Node>, Load)> = (1..=3_u64)
            .map(|count| ((0..count).map(|_| leased(&server, count)).collect(), load.clone()))
            .collect();
        for (nodes, load) in &mut sets {
            // Until leases have their size and the first of them have lapsed.
            while load.time().as_nanos() < u128::from(LeaseConfig::default().lifetime) {
                load.run(nodes).await;
            }
        }
        let mut found = [Usage::default(), Usage::default(), Usage::default()];
        for _ in 0..NODE_TURNS {
            for ((nodes, load), found) in sets.iter_mut().zip(&mut found) {
                found.add(&server, nodes, load).await;
            }
        }
        found.iter().zip(1..).for_each(|(found, count)| found.print(&format!("{name}, {count} nodes")));
        for count in [2, 3] {
            let ratio = found[count - 1].per_cpu_second() / found[0].per_cpu_second();
            let what = format!("x one node's decisions per CPU-second, {name}");
            figure(&format!("nodes-{count}"), ratio, &what, "at least 0.9");
        }
    }
}

/// What some nodes did, over all turns.
#[derive(Default)]
struct Usage {
    decisions: u64,
    calls: u64,
    seconds: f64,
    /// Processor time of the nodes and of redis-server.
    nodes_cpu: f64,
    server_cpu: f64,
}

impl Usage {
    async fn add(&mut self, server: &RedisServer, nodes: &[Node], load: &mut Load) {
        let cpu = || (cpu_seconds(std::process::id()), cpu_seconds(server.server.pid()));
        let calls = || nodes.iter().map(|node| asked(node).1).sum::<u64>();
        let (before, earlier) = (cpu(), calls());
        let run = load.run(nodes).await;
        let after = cpu();
        self.decisions += run.decisions;
        self.calls += calls() - earlier;
        self.seconds += run.decisions as f64 / run.rate;
        self.nodes_cpu += after.0 - before.0;
        self.server_cpu += after.1 - before.1;
    }

    fn per_cpu_second(&self) -> f64 {
        self.decisions as f64 / self.nodes_cpu
    }

    fn print(&self, name: &str) {
        let decisions = self.decisions as f64;
        println!(
            "  {name}: {:.0}/s, {:.0} per CPU-second; {:.2} % asked the store, whose CPU took {:.0} % beside",
            decisions / self.seconds,
            self.per_cpu_second(),
            self.calls as f64 / decisions * 100.0,
            self.server_cpu / self.nodes_cpu * 100.0,
        );
    }
}

async fn postgres() {
    for durability in [Durability::Unlogged, Durability::Asynchronous, Durability::Synchronous] {
        let server = PostgresServer::start(&["fsync=on", "shared_buffers=256MB", "max_wal_size=4GB"]);
        let mut config = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
        config.durability = durability;
        if let Some(connections) = std::env::args().nth(2) {
            config.connections = connections.parse().expect("a number of connections");
        }
        config.response_timeout = Duration::from_secs(5);
        let nodes = [Arc::new(Counters::Shared(Shared::Postgres(Postgres::start(config))))];
        // Every key has its row before it is measured, at whatever pace.
        let mut each_once = Load::new((0..u32::try_from(KEYS).expect("100,000")).collect());
        let mut asked = 0;
        while asked < KEYS {
            asked += each_once.run(&nodes).await.decisions;
        }
        let mut load = Load::new(draws(KEYS, false));
        load.run(&nodes).await;
        peer::make_buckets(&server, durability);
        peer::postgres(&server, durability, "16");
        let (mut ours, mut late, mut peer) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let run = load.run(&nodes).await;
            ours.push(run.rate);
            late.push(run.p99_ms);
            let best = ["4", "16"].map(|callers| peer::postgres(&server, durability, callers));
            println!(
                "  {durability:?} {:.0}/s; pgbench -c 4 {:.0}/s, -c 16 {:.0}/s",
                run.rate, best[0], best[1]
            );
            peer.push(best[0].max(best[1]));
        }
        let name = format!("postgres-{durability:?}").to_lowercase();
        let (ours, late, peer) = (median(ours), median(late), median(peer));
        let goal = if durability == Durability::Synchronous { "no goal" } else { "at least 100" };
        figure(&name, ours / 1e3, &format!("k decisions/s, p99 {late:.1} ms"), goal);
        figure(&name, ours / peer, "x pgbench's best rate for one decision a call", "no goal");
    }
}

/// Requests that a leasing node answered itself, and for which it asked the store.
fn asked(node: &Node) -> (u64, u64) {
    match &**node {
        Counters::Leased(leases) => (leases.stats().local, leases.stats().remote),
        _ => (0, 0),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn figure(name: &str, value: f64, what: &str, goal: &str) {
    println!("{name:<22} {value:>8.2} {what} (goal: {goal})");
}
