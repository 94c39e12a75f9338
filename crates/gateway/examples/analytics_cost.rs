//! What counting a request for `GET /v1/analytics` costs, by the number of threads that count at once: all in one table behind a
//! lock, and each in its own. Run with `--release`.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use tidegate_gateway::analytics::Analytics;

const ROUNDS: u32 = 300_000;
const ROUTES: u32 = 50;

fn main() {
    println!("nanoseconds for a request, the best of three, {ROUTES} routes");
    println!("{:>7} {:>10} {:>10}", "threads", "one table", "own tables");
    for threads in [1, 2, 4, 8] {
        let [one, own] =
            [1, 16].map(|shards| (0..3).map(|_| nanos(shards, threads)).fold(f64::INFINITY, f64::min));
        println!("{threads:>7} {one:>10.0} {own:>10.0}");
    }
}

/// Wall-clock nanoseconds for a request at each thread.
fn nanos(shards: usize, threads: usize) -> f64 {
    let (analytics, begin) = (Analytics::with_shards(shards), Barrier::new(threads + 1));
    let routes: Vec<Arc<str>> = (0..ROUTES).map(|number| format!("route-{number}").into()).collect();
    let started = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                for number in 0..ROUNDS {
                    analytics.count_one(&routes[(number % ROUTES) as usize], "mzxw6ytboimzxw6y", 200);
                }
            });
        }
        begin.wait();
        Instant::now()
    });
    started.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
