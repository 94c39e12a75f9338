//! Many nodes on a virtual clock, with lost messages, crashes and a slow store.
//!
//! The nodes are real [`Holding`]s, the store is the pure function, and everything between them is
//! drawn from a seed: delays up to several lifetimes, requests and grants that are lost, nodes that
//! forget everything. Every unit issued and spent is written down, and then every window is looked
//! at. `TIDEGATE_SEEDS` sets how many seeds are tried, 50 unless stated; 10,000 in the long run.

use std::collections::BTreeMap;

use tidegate_algorithms::limit::{Bucket, FixedWindow, Limit, PermitId, SlidingLog, State, Verdict};
use tidegate_algorithms::time::{Now, SECOND, Tick};

use super::bounds::{Bounds, LeaseConfig, bounds};
use super::holding::{Holding, LeaseAsk};

const START: u64 = 1_767_225_600 * SECOND;
const MILLI: u64 = SECOND / 1_000;
/// A caller that has heard nothing for so long gives up.
const DEADLINE: u64 = 10 * MILLI;

/// What happens at an instant, in the order in which it was planned.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of this cost arrives at this node.
    Request { node: usize, cost: u64 },
    /// A call arrives at the store.
    Call(Call),
    /// The store's answer arrives at the node.
    Answer { call: Call, decided: u64, verdict: Verdict },
    /// The caller has heard nothing and gives up.
    GiveUp(Call),
    /// The node loses everything.
    Crash { node: usize },
}

/// What a node asks the store.
#[derive(Clone, Copy, Debug)]
struct Call {
    node: usize,
    /// Of the node's lives, separated by crashes.
    life: u64,
    asked: u64,
    units: u64,
    cost: u64,
    lease: bool,
}

struct World {
    random: u64,
    limit: Limit,
    bounds: Bounds,
    nodes: Vec<(Holding, u64)>,
    store: State,
    queue: BTreeMap<(u64, u64), Event>,
    planned: u64,
    issued: u64,
    leases: u64,
    /// Units spent by requests, in order of time.
    spent: Vec<(u64, u64)>,
}

impl World {
    fn new(seed: u64, limit: Limit, nodes: usize) -> Self {
        let config = LeaseConfig { instances: nodes as u64, ..LeaseConfig::default() };
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            bounds: bounds(&limit, &config),
            limit,
            nodes: vec![(Holding::default(), 0); nodes],
            store: State::Fresh,
            queue: BTreeMap::new(),
            planned: 0,
            issued: 0,
            leases: 0,
            spent: Vec::new(),
        }
    }

    /// A number below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.queue.insert((at, self.planned), event);
    }

    /// How long a message takes; `None` if it is lost.
    fn delay(&mut self) -> Option<u64> {
        match self.draw(20) {
            0 => None,
            1 => Some(self.draw(3 * self.bounds.turn)),
            _ => Some(self.draw(5 * MILLI)),
        }
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            match event {
                Event::Request { node, cost } => self.request(at, node, cost),
                Event::Call(call) => self.decide(at, call),
                Event::Answer { call, decided, verdict } => self.answer(at, call, decided, verdict),
                Event::GiveUp(call) => self.give_up(call),
                Event::Crash { node } => {
                    self.nodes[node] = (Holding::default(), self.nodes[node].1 + 1);
                }
            }
        }
    }

    fn request(&mut self, at: u64, node: usize, cost: u64) {
        let now = Tick(START + at);
        let (holding, life) = &mut self.nodes[node];
        if holding.covers(now, cost) {
            holding.spend(now, cost, self.limit.quota());
            self.spent.push((at, cost));
            return;
        }
        let life = *life;
        let (units, lease) = match holding.ask(now, cost, &self.bounds) {
            LeaseAsk::Take(units) => (units, true),
            LeaseAsk::Exact => (cost, false),
            LeaseAsk::Denied(_) => return,
        };
        let call = Call { node, life, asked: at, units, cost, lease };
        match self.delay() {
            Some(delay) => self.plan(at + delay, Event::Call(call)),
            None => self.plan(at + DEADLINE, Event::GiveUp(call)),
        }
    }

    fn decide(&mut self, at: u64, call: Call) {
        let now = Now::at(START + at);
        let verdict = self.limit.check(&mut self.store, now, call.units);
        if verdict.allowed {
            self.limit.charge(&mut self.store, now, call.units, PermitId(0));
            self.issued += call.units;
        }
        match self.delay() {
            Some(delay) if at + delay < call.asked + DEADLINE => {
                self.plan(at + delay, Event::Answer { call, decided: at, verdict });
            }
            _ => self.plan(at.max(call.asked + DEADLINE), Event::GiveUp(call)),
        }
    }

    fn give_up(&mut self, call: Call) {
        let (holding, life) = &mut self.nodes[call.node];
        if *life == call.life && call.lease {
            holding.not_granted();
        }
    }

    fn answer(&mut self, at: u64, call: Call, decided: u64, verdict: Verdict) {
        let (holding, life) = &mut self.nodes[call.node];
        if *life != call.life {
            return;
        }
        let asked = Tick(START + call.asked);
        if call.lease && !verdict.allowed {
            holding.not_granted();
            // For its own cost, as `Leases::decide_there` does.
            self.plan(at, Event::Call(Call { asked: at, units: call.cost, lease: false, ..call }));
            return;
        }
        if call.lease {
            let ends = matches!(self.limit, Limit::FixedWindow(_));
            let lifetime = self.bounds.lifetime.min(if ends { verdict.reset } else { u64::MAX });
            holding.granted(asked, call.units, call.cost, verdict, lifetime);
            self.leases += 1;
        } else {
            holding.answered(asked, call.cost, verdict, self.bounds.turn);
        }
        if verdict.allowed {
            // The request's own cost is spent when the store decides, as it is without leases.
            self.spent.push((decided, call.cost));
        }
    }

    fn total_spent(&self) -> u64 {
        self.spent.iter().map(|(_, units)| units).sum()
    }

    /// Most units spent in any window of this length: half open, or aligned to it.
    fn most_in_a_window(&self, length: u64, aligned: bool) -> u64 {
        let mut spent = self.spent.clone();
        spent.sort_unstable();
        let from = |at: u64| if aligned { (START + at) / length * length } else { START + at };
        let window = |(at, _): &(u64, u64)| {
            let start = from(*at);
            let within = |(other, _): &&(u64, u64)| (start..start + length).contains(&(START + other));
            spent.iter().filter(within).map(|(_, units)| units).sum::<u64>()
        };
        spent.iter().map(window).max().unwrap_or(0)
    }
}

/// A world of three nodes with demand that comes and goes.
fn random_world(seed: u64, limit: Limit) -> World {
    let mut world = World::new(seed, limit, 3);
    let mut at = 0;
    for _ in 0..1_500 {
        at += match world.draw(240) {
            0 => world.draw(2 * world.bounds.lifetime),
            1..20 => world.draw(2 * world.bounds.turn),
            _ => world.draw(8 * MILLI),
        };
        let node = usize::try_from(world.draw(3)).expect("small");
        let event = match world.draw(300) {
            0 => Event::Crash { node },
            _ => Event::Request { node, cost: 1 },
        };
        world.plan(at, event);
    }
    world.run();
    world
}

fn seeds() -> u64 {
    std::env::var("TIDEGATE_SEEDS").map_or(50, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn no_more_is_spent_than_issued_and_no_window_passes_its_bound() {
    let log = SlidingLog { limit: 300, window: 5 * SECOND };
    let bucket = Bucket::new(300, 300, 5 * SECOND);
    let window = FixedWindow { limit: 300, seconds: 5 };
    for seed in 0..seeds() {
        for limit in [Limit::SlidingLog(log), Limit::TokenBucket(bucket), Limit::FixedWindow(window)] {
            let world = random_world(seed, limit);
            let kind = &world.limit;
            assert!(world.total_spent() <= world.issued, "seed {seed}: {kind:?}");
            assert!(world.leases > 10, "seed {seed}: {} leases prove little", world.leases);
            match kind {
                Limit::SlidingLog(log) => {
                    let most = world.most_in_a_window(log.window, false);
                    let bound = log.limit + world.bounds.over_admission;
                    assert!(most <= bound, "seed {seed}: {most} of {bound} in a window");
                }
                Limit::TokenBucket(bucket) => {
                    let most = world.most_in_a_window(5 * SECOND, false);
                    let bound = 2 * bucket.burst + world.bounds.over_admission;
                    assert!(most <= bound, "seed {seed}: {most} of {bound} in a window");
                }
                _ => {
                    let most = world.most_in_a_window(5 * SECOND, true);
                    assert!(most <= 300, "seed {seed}: {most} of 300 in an aligned window");
                }
            }
        }
    }
}

/// The schedule that reaches the bound: every node takes a lease and holds it, the rest of the limit
/// is spent, and when the window has passed the leases are spent beside a whole new limit.
#[test]
fn the_bound_is_reached() {
    for nodes in [1_usize, 2, 5] {
        let limit = SlidingLog { limit: 1_000, window: 10 * SECOND };
        let mut world = World::new(7, Limit::SlidingLog(limit), nodes);
        let (units, lifetime) = (world.bounds.units, world.bounds.lifetime);
        assert!(units > 1);
        // Demand so dense that every node's lease has grown to its largest.
        for (holding, _) in &mut world.nodes {
            let verdict = Holding::default().verdict(Tick(START), limit.limit);
            for step in 0..12 {
                let now = Tick(START - 11 * SECOND + step);
                match holding.ask(now, 1, &world.bounds) {
                    LeaseAsk::Take(units) => holding.granted(now, units, 1, verdict, lifetime),
                    LeaseAsk::Exact | LeaseAsk::Denied(_) => holding.answered(now, 1, verdict, lifetime),
                }
                holding.surrender(now);
            }
        }
        let mut store = |at: u64, units: u64| {
            let now = Now::at(START + at);
            let verdict = world.limit.check(&mut world.store, now, units);
            if verdict.allowed {
                world.limit.charge(&mut world.store, now, units, PermitId(0));
            }
            verdict
        };
        let mut spent = Vec::new();
        for (holding, _) in &mut world.nodes {
            let LeaseAsk::Take(units) = holding.ask(Tick(START - 11 * SECOND + 100), 1, &world.bounds) else {
                panic!("demand leads to a lease")
            };
            assert_eq!(units, world.bounds.units);
            let verdict = store(0, units);
            assert!(verdict.allowed);
            holding.granted(Tick(START), units, 1, verdict, lifetime);
            spent.push((0, 1));
        }
        let rest = limit.limit - units * nodes as u64;
        let late = lifetime - 1;
        assert!(store(late, rest).allowed);
        spent.push((late, rest));
        for (holding, _) in &mut world.nodes {
            assert!(holding.covers(Tick(START + late), units - 1), "until the end of its lifetime");
            holding.spend(Tick(START + late), units - 1, limit.limit);
            spent.push((late, units - 1));
        }
        // The leases leave the store's window now, a lifetime before the node's spending does.
        let freed = units * nodes as u64;
        assert!(store(limit.window, freed).allowed);
        spent.push((limit.window, freed));
        world.spent = spent;
        let most = world.most_in_a_window(limit.window, false);
        assert_eq!(most, limit.limit + world.bounds.over_admission, "{nodes} nodes, leases of {units}");
    }
}
