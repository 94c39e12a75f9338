//! What a place for one connection costs in the edge, from the client's address to a reserved place and a client that is
//! remembered, by the number of backends: all usable, and one of them down. Run with `--release`.
//!
//! `tidegate-algorithms` has `placement_cost`, which times the choice alone.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_edge::config::{EdgeConfig, ListenerConfig, check};
use tidegate_edge::limits::Unlimited;
use tidegate_edge::service::{Edge, EdgeListener};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::Drain;
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

const ROUNDS: u32 = 20_000;
const ZONES: usize = 16;

/// How long a backend may take to be found down.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let cores = Cores::start(NonZeroUsize::MIN)?;
    println!("nanoseconds for a place, by the number of backends");
    println!(
        "{:>9} {:>10} {:>10} {:>13} {:>10} {:>10}",
        "backends", "one zone", "affine", "one is down", "16 zones", "affine"
    );
    for count in [1, 10, 100, 1_000, 10_000] {
        let mut row = Vec::new();
        for (zones, affinity, has_one_down) in [
            (1, "off", false),
            (1, "address", false),
            (1, "off", true),
            (ZONES, "off", false),
            (ZONES, "address", false),
        ] {
            row.push(nanos(&cores, (count, zones), affinity, has_one_down)?);
        }
        let [one, affine, down, many, many_affine] = row[..] else { unreachable!("there are five") };
        println!("{count:>9} {one:>10.0} {affine:>10.0} {down:>13.0} {many:>10.0} {many_affine:>10.0}");
    }
    cores.stop();
    Ok(())
}

fn nanos(
    cores: &Cores,
    (count, zones): (usize, usize),
    affinity: &str,
    has_one_down: bool,
) -> Result<f64, Box<dyn Error>> {
    let edge = Arc::new(Edge::new(Clock::start(), cores));
    let listener = listener(&edge, affinity)?;
    let region = |index: usize| format!("r{}", index % zones);
    let backend = |index: usize| {
        let mut document = json!({
            "name": format!("b{index}"), "address": "127.0.0.1:9", "region": region(index), "soft_limit": 100,
            "hard_limit": 150, "weight": 2, "check": {"kind": "off"},
        });
        if has_one_down && index + 1 == count {
            // Nobody listens on port 1.
            document["address"] = json!("127.0.0.1:1");
            document["check"] = json!({"interval_seconds": 0.1, "fall": 1});
        }
        document
    };
    let documents: Vec<Value> = (0..count).map(backend).collect();
    let places = [json!({"networks": ["127.0.0.0/8"], "region": region(0)})];
    let (backends, places) = check(&documents, &places).map_err(|mistakes| format!("{mistakes:?}"))?;
    edge.apply(&EdgeConfig { backends, places: places.into(), ..EdgeConfig::default() });
    let began = Instant::now();
    while has_one_down && edge.backends().iter().all(|backend| backend.is_up) {
        if began.elapsed() > PATIENCE {
            return Err("no backend was found down".into());
        }
        std::thread::yield_now();
    }
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // As it is when clients are there: most backends have some.
    let _held: Vec<_> = (0..count * 9 / 10).map_while(|_| listener.place(client).ok()).collect();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        black_box(listener.place(black_box(client))).ok();
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(ROUNDS))
}

fn listener(edge: &Arc<Edge>, affinity: &str) -> Result<Arc<EdgeListener>, Box<dyn Error>> {
    let document = json!({"listen": "127.0.0.1:0", "affinity": affinity});
    let config = ListenerConfig::read(&document, "").map_err(|mistakes| format!("{mistakes:?}"))?;
    let gate = Gate {
        permits: Permits::new(1),
        buffers: Buffers::new(1 << 20),
        drain: Drain::new(),
        stats: Arc::new(Stats::new(1, &["other"])),
    };
    let sockets =
        Listeners::bind(&ListenConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), NonZeroUsize::MIN))?;
    Ok(EdgeListener::new(Arc::clone(edge), config, gate, &sockets, Arc::new(Unlimited)))
}
