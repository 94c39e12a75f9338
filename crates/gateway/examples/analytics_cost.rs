//! What counting a request for `GET /v1/analytics` costs, by the number of threads that count at once: all in one table behind a
//! lock, and each in its own. Run with `--release`.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use tidegate_gateway::analytics::Analytics;

const ROUNDS: u64 = 300_000;
const ROUTES: u64 = 50;

fn main() {
    println!("nanoseconds for a request, the best of three, {ROUTES} routes");
    println!("{:>7} {:>10} {:>10}", "threads", "one table", "own tables");
    for threads in [1, 2, 4, 8] {
        let [one, own] =
            [1, 16].map(|cores| (0..3).map(|_| nanos(cores, threads)).fold(f64::INFINITY, f64::min));
        println!("{threads:>7} {one:>10.0} {own:>10.0}");
    }
}

/// Wall-clock nanoseconds for a request at each thread.
fn nanos(cores: usize, threads: usize) -> f64 {
    let (analytics, begin) = (Analytics::for_cores(cores), Barrier::new(threads + 1));
    let routes: Vec<Arc<str>> = (0..ROUTES).map(|number| format!("route-{number}").into()).collect();
    let started = thread::scope(|scope| {
        for core in 0..threads {
            let (analytics, begin, routes) = (&analytics, &begin, &routes);
            scope.spawn(move || {
                begin.wait();
                for number in 0..ROUNDS {
                    let route = number % ROUTES;
                    analytics.count_one(core, route + 1, &routes[route as usize]);
                }
            });
        }
        begin.wait();
        Instant::now()
    });
    started.elapsed().as_nanos() as f64 / ROUNDS as f64
}
