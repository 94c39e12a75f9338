//! Who is denied, and by what: which policy is named, and what counts as a request.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_algorithms::policy::{Attributes, parse};
use tidegate_control::Snapshot;
use tidegate_limiter::answers::Door;
use tidegate_limiter::engine::{Ask, Engine};
use tidegate_limiter::policy_set::{FileLayer, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;
use tokio::runtime::Runtime;

fn engine(policies: &[Value]) -> Arc<Engine> {
    let policies = policies.iter().map(|policy| parse(policy, "").unwrap()).collect();
    let (file, tallies) = (FileLayer { policies, ..FileLayer::default() }, Tallies::default());
    let set = PolicySet::assemble(Arc::new(file), Snapshot::default(), &tallies);
    Arc::new(Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start()))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn of_several_policies_that_deny_the_one_that_the_reply_names_is_listed() {
    let engine = engine(&[
        json!({"name": "minute", "limit": 1, "window_seconds": 60}),
        json!({"name": "day", "limit": 1, "window_seconds": 86_400}),
    ]);
    let pairs = [("client_id", &b"c"[..])];
    let attributes = Attributes::new(&pairs);
    let ask = Ask { attributes, cost: 1, peek: false, can_release: false, door: Door::Http };
    assert!(runtime().block_on(engine.decide(&ask)).unwrap().allowed);
    let denial = runtime().block_on(engine.decide(&ask)).unwrap();
    assert_eq!(&*denial.deciding().unwrap().policy, "day", "it has the longest wait");
    let listed = engine.denied_clients().list(engine.clock().tick());
    assert_eq!(listed[0].policy.as_deref(), Some("day"));
}
