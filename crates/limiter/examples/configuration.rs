//! What many policies and many overrides cost: printed as ratios to few of them.
//!
//! ```text
//! cargo run --release -p tidegate-limiter --example configuration
//! ```
//!
//! *Policies*: a decision that one policy applies to, among 10 and among 10,000.
//!
//! *Overrides*: one thread decides without a pause and notes how long each decision took, alone and
//! then while overrides are changed one after the other, on the disk of the folder for temporary files.
//! The changes' thread stands for the blocking threads of a server; both need a core of their own.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tidegate_algorithms::policy::{Attributes, parse};
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, Configuration, Control, Layers, Limits, MAX_CHANGES, Services, Snapshot,
};
use tidegate_limiter::answers::Door;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::policy_set::{FileLayer, OVERRIDE, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_store::Counters;
use tidegate_store::memory::Memory;
use tokio::runtime::{Builder, Runtime};

const PERIOD: Duration = Duration::from_secs(3);

/// Most decisions that are timed in a period.
const MAX_TIMED: usize = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    println!("| policies | ns per decision |\n|---:|---:|");
    let mut costs = Vec::new();
    for count in [10, 10_000] {
        let cost = among_policies(&runtime, count)?;
        println!("| {count} | {cost:.0} |");
        costs.push(cost);
    }
    println!("\n10,000 policies cost {:.2} x what 10 do\n", costs[1] / costs[0]);
    println!(
        "| overrides | change | decision p99 alone | beside changes | ratio |\n|---:|---:|---:|---:|---:|"
    );
    for count in [1_000, 10_000, 99_000] {
        let (change, alone, beside) = among_overrides(&runtime, count)?;
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!("| {count} | {change:?} | {alone:?} | {beside:?} | {ratio:.2} |");
    }
    Ok(())
}

/// Nanoseconds per decision with `count` policies, of which each applies to one tenant.
fn among_policies(runtime: &Runtime, count: usize) -> Result<f64, Box<dyn Error>> {
    const DECISIONS: usize = 1_000_000;
    let policy = |number: usize| {
        let document = json!({"name": format!("p{number}"), "match": {"tenant": format!("t{number}")},
                              "algorithm": "token_bucket", "limit": 1_000_000, "window_seconds": 1});
        parse(&document, "").map_err(|mistakes| format!("{mistakes:?}"))
    };
    let policies = (0..count).map(policy).collect::<Result<_, _>>()?;
    let engine = engine(FileLayer { policies, ..FileLayer::default() }, Snapshot::default());
    let tenants: Vec<_> = (0..count).map(|number| format!("t{number}")).collect();
    let start = monotonic();
    runtime.block_on(async {
        for number in 0..DECISIONS {
            // The same ten tenants, so that only the number of policies differs.
            let tenant = &tenants[number % 10 * (count / 10)];
            let pairs: [(&str, &[u8]); 2] = [("client_id", b"c"), ("tenant", tenant.as_bytes())];
            engine.decide(&ask(&pairs)).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(start.elapsed().as_secs_f64() * 1e9 / DECISIONS as f64)
}

/// The median time of a change, and p99 of decisions without and with changes.
fn among_overrides(
    runtime: &Runtime,
    count: usize,
) -> Result<(Duration, Duration, Duration), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let control = Control::open(folder.path(), Limits::default())?;
    let author = Author { actor: "bench".to_owned(), at: Wall(1), from: None };
    let put = |number: usize, limit: usize| {
        let numbers = json!({"default": {"limit": limit % 4_000}});
        Change::put(OVERRIDE, format!("c{number}"), numbers.to_string())
    };
    let all: Vec<_> = (0..count).map(|number| put(number, 50)).collect();
    for changes in all.chunks(MAX_CHANGES) {
        control.apply(changes, &author)?;
    }
    let engine = Arc::new(engine(FileLayer::default(), Snapshot::default()));
    let services = Services::default().with(Policies::new(engine.clone()));
    let configuration = Configuration::start(control, services, &Layers::default());
    let alone = Deciding::start(&engine, count)?;
    let start = monotonic();
    while start.elapsed() < PERIOD {
        runtime.block_on(async { tokio::time::sleep(PERIOD / 100).await });
    }
    let alone = alone.p99()?;
    let beside = Deciding::start(&engine, count)?;
    let start = monotonic();
    let mut times = Vec::new();
    while start.elapsed() < PERIOD {
        let before = monotonic();
        let number = times.len();
        runtime.block_on(configuration.change(put(number % count, number), author.clone()))?;
        times.push(before.elapsed());
    }
    let beside = beside.p99()?;
    times.sort_unstable();
    Ok((times[times.len() / 2], alone, beside))
}

/// A thread that decides and notes how long each decision took.
struct Deciding {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Duration>>,
}

impl Deciding {
    fn start(engine: &Arc<Engine>, clients: usize) -> Result<Self, Box<dyn Error>> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (engine, ends) = (engine.clone(), is_over.clone());
        let runtime = Builder::new_current_thread().build()?;
        let decide = async move {
            let mut times = Vec::with_capacity(MAX_TIMED);
            while !ends.load(Ordering::Relaxed) && times.len() < MAX_TIMED {
                let client = format!("c{}", times.len() * 7_919 % clients);
                let pairs = [("client_id", client.as_bytes())];
                let before = monotonic();
                drop(engine.decide(&ask(&pairs)).await);
                times.push(before.elapsed());
            }
            times
        };
        Ok(Self { is_over, thread: thread::spawn(move || runtime.block_on(decide)) })
    }

    fn p99(self) -> Result<Duration, Box<dyn Error>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().map_err(|_| "the deciding thread panicked")?;
        times.sort_unstable();
        Ok(times[times.len() * 99 / 100])
    }
}

fn ask<'a>(pairs: &'a [(&'a str, &'a [u8])]) -> Ask<'a> {
    Ask { attributes: Attributes::new(pairs), cost: 1, peek: false, can_release: true, door: Door::Http }
}

fn engine(file: FileLayer, stored: Snapshot) -> Engine {
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::new(file), stored, &tallies);
    Engine::new(set, tallies, Counters::Memory(Memory::new(256 << 20)), Clock::start())
}
