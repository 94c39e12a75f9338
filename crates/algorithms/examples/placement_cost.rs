//! What the edge's placement of one connection costs, by the number of backends. Run with `--release`.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use tidegate_algorithms::balance::region::{Country, Layout, Load, Location, Member, Region, Spill};

const ROUNDS: u32 = 20_000;

/// What a placement reads of a backend, each in an allocation of its own as in the edge.
struct State {
    is_up: AtomicBool,
    connections: AtomicU32,
}

fn main() {
    println!("{:>9} {:>16} {:>16}", "backends", "one zone, ns", "16 zones, ns");
    for count in [1, 10, 100, 1_000, 10_000] {
        println!("{count:>9} {:>16.0} {:>16.0}", nanos(count, 1), nanos(count, 16));
    }
}

fn nanos(count: usize, zones: usize) -> f64 {
    let member = |index: usize| Member {
        location: Location {
            country: Country::parse(&format!(
                "A{}",
                char::from(b'A' + u8::try_from(index % zones).unwrap_or(0))
            )),
            region: Some(Region(u16::try_from(index % zones).unwrap_or(0))),
        },
        measured: None,
        priority: 0,
        soft_limit: 100,
        hard_limit: 150,
        weight: 2,
    };
    let layout = Layout::new((0..count).map(member).collect());
    let state = |index: usize| {
        let connections = AtomicU32::new(u32::try_from(index * 7 % 90).unwrap_or(0));
        Arc::new(State { is_up: AtomicBool::new(true), connections })
    };
    let states: Vec<Arc<State>> = (0..count).map(state).collect();
    let client = Location { country: Country::parse("AA"), region: Some(Region(0)) };
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let load = |index: usize| {
            let state = &states[index];
            let connections = state.connections.load(Relaxed);
            state.is_up.load(Relaxed).then_some(Load { connections, factor: 1.0 })
        };
        black_box(layout.pick(black_box(client), Some(Region(1)), Spill::AtHard, load)).ok();
    }
    began.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
