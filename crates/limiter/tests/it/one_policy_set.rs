//! A decision, and a reset, use one policy set from start to end, while others replace it.

use std::sync::Arc;

use tempfile::TempDir;
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

/// An engine with the first of the two sides in force.
fn start(sides: [&[&str]; 2]) -> (TempDir, Arc<Engine>, Configuration) {
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
    (data, engine, configuration)
}

/// The policies that decide about a client, each with what it leaves after `cost`.
fn decide(engine: &Engine, client: &str, cost: u64) -> Vec<(String, u64)> {
    let client = [("client_id", client.as_bytes())];
    let attributes = Attributes::new(&client);
    let ask = Ask { attributes, cost, peek: false, can_release: true, door: Door::Http };
    let decision = block_on(engine.decide(&ask)).unwrap();
    decision.parts.iter().map(|part| (part.policy.to_string(), part.verdict.remaining)).collect()
}

#[test]
fn a_reset_is_by_the_policies_that_it_was_said_of_though_others_have_replaced_them() {
    let sides = [&["left-1", "left-2"][..], &["right"]];
    let (_data, engine, configuration) = start(sides);
    let of_left =
        |remaining: u64| sides[0].iter().map(|name| ((*name).to_owned(), remaining)).collect::<Vec<_>>();
    for client in ["a", "b"] {
        assert_eq!(decide(&engine, client, 1), of_left(99));
    }
    let pairs = [("client_id", &b"a"[..])];
    let client = Attributes::new(&pairs);
    let set = engine.set();
    let said = engine.resettable(&set, &client, None);
    block_on(configuration.replace_file(declared(sides[1]))).unwrap();
    assert_eq!(decide(&engine, "a", 1), [("right".to_owned(), 99)]);
    let done = block_on(engine.reset(&set, &client, None)).unwrap();
    assert_eq!(done, said);
    assert_eq!(done.reset.iter().map(|name| &**name).collect::<Vec<_>>(), sides[0]);
    assert_eq!(decide(&engine, "a", 0), [("right".to_owned(), 99)], "nothing was said of it");
    block_on(configuration.replace_file(declared(sides[0]))).unwrap();
    assert_eq!(decide(&engine, "a", 0), of_left(100));
    assert_eq!(decide(&engine, "b", 0), of_left(99), "nobody else begins anew");
}

#[test]
fn a_decision_never_mixes_two_policy_sets() {
    let sides = [&["left-1", "left-2"][..], &["right-1", "right-2", "right-3"]];
    let (_data, engine, configuration) = start(sides);

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
