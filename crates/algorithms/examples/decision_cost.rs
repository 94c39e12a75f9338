//! What one decision costs, in instructions: they do not depend on the machine's mood, and this
//! crate reads no clock.
//!
//! ```text
//! cargo build --release -p tidegate-algorithms --example decision_cost
//! target/release/examples/decision_cost                          the table; needs valgrind
//! time target/release/examples/decision_cost fixed_window 100000000   for nanoseconds
//! ```
//!
//! 1,024 keys take turns, each asking for one unit at twice the rate that its limit allows, so that
//! half of the decisions deny. A decision is a check and, when allowed, a charge. The table is the
//! difference between two runs of different length, so start-up and the loop's first rounds do not
//! count.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::process::Command;

use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, State,
};
use tidegate_algorithms::time::{Now, SECOND};

const KEYS: u64 = 1_024;
const QUOTA: u64 = 100;
const START: u64 = 1_700_006_400 * SECOND;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [name, decisions] => {
            let limits = limits();
            let known = limits.iter().find(|(other, _)| other == name);
            let (Some((_, limit)), Ok(decisions)) = (known, decisions.parse()) else {
                println!("an algorithm and a number of decisions are expected");
                return;
            };
            println!("{} allowed", run(limit, decisions));
        }
        _ => {
            println!("| algorithm | instructions per decision |\n|---|---:|");
            for (name, _) in limits() {
                let (short, long) = (400_000, 800_000);
                match (instructions(name, short), instructions(name, long)) {
                    (Some(few), Some(many)) => println!("| {name} | {} |", (many - few) / (long - short)),
                    _ => println!("| {name} | valgrind gave no count |"),
                }
            }
        }
    }
}

/// The limits, each 100 units in 60 s or what comes nearest.
fn limits() -> Vec<(&'static str, Limit)> {
    let window = 60 * SECOND;
    let zone = jiff::tz::TimeZone::UTC;
    vec![
        ("token_bucket", Limit::TokenBucket(Bucket::new(QUOTA, QUOTA, window))),
        ("leaky_bucket", Limit::LeakyBucket(Bucket::new(QUOTA, QUOTA, window))),
        ("fixed_window", Limit::FixedWindow(FixedWindow { limit: QUOTA, seconds: 60 })),
        ("sliding_log", Limit::SlidingLog(SlidingLog { limit: QUOTA, window })),
        ("sliding_counter", Limit::SlidingCounter(SlidingCounter { limit: QUOTA, seconds: 60 })),
        ("concurrency", Limit::Concurrency(Slots { limit: QUOTA, lease: window })),
        ("calendar", Limit::Calendar(Calendar { limit: QUOTA, period: Period::Day, zone })),
    ]
}

/// Makes `decisions` decisions and says how many were allowed.
fn run(limit: &Limit, decisions: u64) -> u64 {
    let gap = match limit {
        Limit::Calendar(_) => 86_400 * SECOND,
        _ => 60 * SECOND,
    } / (2 * QUOTA * KEYS);
    let mut states: Vec<State> = (0..KEYS).map(|_| State::Fresh).collect();
    let mut allowed = 0;
    for number in 0..decisions {
        let now = Now::at(START + number * gap);
        let state = &mut states[(number % KEYS) as usize];
        if limit.check(state, now, 1).allowed {
            limit.charge(state, now, 1, PermitId(number));
            allowed += 1;
        }
    }
    allowed
}

/// Instructions of a whole run, as callgrind counts them.
fn instructions(name: &str, decisions: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([name, &decisions.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "))?.1;
    collected.trim().parse().ok()
}
