//! A decision uses one policy set from start to end, while others replace it.

use std::sync::Arc;

use tidegate_algorithms::policy::{Attributes, Policy};
use tidegate_control::{Configuration, Control, Layers, Limits, Services, Snapshot};
use tidegate_limiter::answers::Door;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::policy_set::{FileLayer, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

/// Decisions that are looked at, at least.
const DECISIONS: usize = 20_000;

/// A file of policies with these names that admit all.
fn file(names: &[&str]) -> FileLayer {
    let named = |name: &&str| {
        let mut policy = Policy::default_per_client();
        policy.name = (*name).into();
        policy
    };
    FileLayer { policies: names.iter().map(named).collect(), ..FileLayer::default() }
}

fn declared(names: &[&str]) -> Layers {
    Layers::default().with::<Policies>(file(names))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_decision_never_mixes_two_policy_sets() {
    let sides = [&["left-1", "left-2"][..], &["right-1", "right-2", "right-3"]];
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::new(file(sides[0])), Snapshot::default(), &tallies);
    let engine = Arc::new(Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start()));
    let configuration = Configuration::start(
        control,
        Services::default().with(Policies::new(engine.clone())),
        &declared(sides[0]),
    );

    let deciding = std::thread::spawn(move || {
        let mut seen = [0_usize; 2];
        while seen.iter().sum::<usize>() < DECISIONS || seen.contains(&0) {
            let client = [("client_id", &b"c"[..])];
            let ask = Ask {
                attributes: Attributes::new(&client),
                cost: 1,
                peek: true,
                can_release: true,
                door: Door::Http,
            };
            let decision = block_on(engine.decide(&ask)).unwrap();
            let named: Vec<&str> = decision.parts.iter().map(|part| &*part.policy).collect();
            let side = sides.iter().position(|names| *names == named);
            seen[side.unwrap_or_else(|| panic!("a decision of no one set: {named:?}"))] += 1;
        }
    });
    for side in sides.iter().cycle().skip(1).take_while(|_| !deciding.is_finished()) {
        block_on(configuration.replace_file(declared(side))).unwrap();
    }
    deciding.join().unwrap();
}
