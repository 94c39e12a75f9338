//! As long as one backend works, clients are served: any of four may be dead, in each way, wherever they are.
//!
//! What is asserted are events: a connection that gets no backend has found one dead that was not known to be, and where
//! checks have spoken there is no such connection.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::{Running, black_hole, connect, name_of, named, start, until};
use serde_json::{Value, json};
use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_edge::config::EdgeConfig;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Where they are, and when each is used.
const LAYOUTS: [[(&str, u16); 4]; 4] = [
    [("sa", 0); 4],
    [("sa", 0), ("sa", 0), ("eu", 0), ("us", 0)],
    [("eu", 0), ("eu", 0), ("eu", 1), ("eu", 2)],
    [("sa", 0), ("eu", 0), ("sa", 1), ("eu", 1)],
];

/// One edge, some of whose backends are dead.
struct Case<'a> {
    living: &'a [SocketAddr; 4],
    dead: &'a [SocketAddr; 4],
    /// Which of them are dead, by bits.
    which: usize,
    layout: &'a [(&'a str, u16); 4],
    check: Value,
}

impl Case<'_> {
    fn is_dead(&self, index: usize) -> bool {
        self.which & (1 << index) > 0
    }

    fn config(&self) -> EdgeConfig {
        let backend = |(index, name): (usize, &&str)| {
            let address = if self.is_dead(index) { self.dead[index] } else { self.living[index] };
            let (region, priority) = self.layout[index];
            json!({"name": name, "address": address.to_string(), "region": region, "priority": priority,
                "check": self.check})
        };
        let backends: Vec<Value> = NAMES.iter().enumerate().map(backend).collect();
        support::config(&backends, &[json!({"networks": ["127.0.0.0/8"], "region": "sa"})])
    }

    /// Connections that stay, each at a living backend, or the one that found another one dead.
    fn serves(&self, running: &Running) {
        let known = || running.edge.backends().iter().filter(|report| report.failures > 0).count();
        let mut held = Vec::new();
        while held.len() < 6 {
            let before = known();
            let mut client = connect(running.address);
            let name = name_of(&mut client, 1);
            if name.is_empty() {
                assert!(known() > before, "refused, and nothing was learnt: {:?}", running.edge.backends());
                continue;
            }
            held.push(client);
        }
    }
}

fn listener(spill: &str, connect_seconds: f64) -> Value {
    json!({"affinity": "off", "spill": spill, "connect_seconds": connect_seconds})
}

fn living() -> [SocketAddr; 4] {
    NAMES.map(named)
}

fn refusing() -> [SocketAddr; 4] {
    NAMES.map(|_| SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port())))
}

#[test]
fn fault_40_any_of_four_that_refuse_take_no_client_down() {
    let (living, dead) = (living(), refusing());
    let bounds = TierBounds::new([1_000_000, 40_000_000, 100_000_000]);
    for spill in ["never", "at-soft", "at-hard"] {
        for (layout, tiers) in LAYOUTS.iter().zip([None, None, None, bounds]) {
            let running = start(listener(spill, 30.0), &[], &[]);
            for which in 0..15 {
                let case =
                    Case { living: &living, dead: &dead, which, layout, check: json!({"kind": "off"}) };
                running.edge.apply(&EdgeConfig::default());
                running.edge.apply(&EdgeConfig { round_trip_tiers: tiers, ..case.config() });
                case.serves(&running);
            }
            let stats = running.listener.stats();
            let refused: u64 = stats.refused.iter().map(|count| count.load(Relaxed)).sum();
            assert_eq!(refused, 0, "a connection tries all four");
        }
    }
}

#[test]
fn fault_39_any_of_four_that_are_silent_take_down_only_clients_that_find_that_out() {
    let (living, holes) = (living(), NAMES.map(|_| black_hole()));
    let dead = [0, 1, 2, 3].map(|index| holes[index].0);
    for layout in &LAYOUTS {
        for which in 0..15 {
            let case = Case { living: &living, dead: &dead, which, layout, check: json!({"kind": "off"}) };
            let running = start(listener("at-hard", 0.1), &[], &[]);
            running.edge.apply(&case.config());
            case.serves(&running);
        }
    }
}

#[test]
fn fault_40_once_checks_have_spoken_no_connection_is_spent_on_a_dead_backend() {
    let (living, refusing, holes) = (living(), refusing(), NAMES.map(|_| black_hole()));
    let silent = [0, 1, 2, 3].map(|index| holes[index].0);
    let check = json!({"interval_seconds": 0.1, "timeout_seconds": 0.5, "fall": 1, "rise": 1});
    for (layout, dead) in LAYOUTS.iter().flat_map(|layout| [(layout, &refusing), (layout, &silent)]) {
        for which in [0b0111, 0b1110, 0b1011, 0b0011] {
            let case = Case { living: &living, dead, which, layout, check: check.clone() };
            let running = start(listener("at-hard", 30.0), &[], &[]);
            running.edge.apply(&case.config());
            until("the checks have spoken", || {
                running.edge.backends().iter().enumerate().all(|(index, it)| it.is_up != case.is_dead(index))
            });
            case.serves(&running);
            let stats = running.listener.stats();
            let refused: u64 = stats.refused.iter().map(|count| count.load(Relaxed)).sum();
            assert_eq!((refused, stats.retries.load(Relaxed)), (0, 0), "{:?}", running.edge.backends());
        }
    }
}
