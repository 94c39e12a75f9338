//! Measures the memory store: speed, bytes per key, pauses, behaviour at the cap, snapshots.
//!
//! ```text
//!   cargo run --release -p tidegate-store --example memory_store -- CASE [KEYS]
//!   cases: speed | bytes | log-bytes | flood | collisions | snapshot
//!          inserts | insert-costs | inserts-hashbrown | insert-costs-hashbrown
//! ```
//!
//! One case per process, so that each starts from a fresh heap. Prints one line per figure: name,
//! value, unit. `regression/memory-store/run` runs them all and compares with what is expected.
//!
//! Costs are processor time, latencies are elapsed time: on a machine that does other work too, read
//! them beside those of "nothing". The allocator is the service's. The alternatives live in
//! `alternatives.rs`. Keys are 24 bytes, the limit is a token bucket unless a figure's name says otherwise,
//! and only one thread runs unless it says so.

#![expect(clippy::print_stdout, reason = "the figures go to standard output")]

mod alternatives;
mod cases;
mod workload;

use std::process::ExitCode;

use self::workload::Clock;

/// The service's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().unwrap_or_default();
    let keys = arguments.next().and_then(|keys| keys.replace('_', "").parse().ok());
    match case.as_str() {
        "speed" => cases::speed(keys.unwrap_or(1_000_000)),
        "bytes" => cases::bytes(keys.unwrap_or(10_000_000)),
        "log-bytes" => cases::log_bytes(keys.unwrap_or(1_000_000)),
        "inserts" => cases::inserts(keys.unwrap_or(10_000_000), Clock::Elapsed),
        "insert-costs" => cases::inserts(keys.unwrap_or(10_000_000), Clock::Processor),
        "inserts-hashbrown" => cases::inserts_hashbrown(keys.unwrap_or(10_000_000), Clock::Elapsed),
        "insert-costs-hashbrown" => cases::inserts_hashbrown(keys.unwrap_or(10_000_000), Clock::Processor),
        "flood" => cases::flood(keys.unwrap_or(100_000_000)),
        "collisions" => cases::collisions(keys.unwrap_or(1_000_000)),
        "snapshot" => cases::snapshot(keys.unwrap_or(1_000_000)),
        _ => {
            println!("usage: memory_store CASE [KEYS]; the cases are in the first lines of main.rs");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
