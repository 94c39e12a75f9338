//! A candidate's policies beside those in force: demands that are decided together, units that come back, and what is left of it.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_algorithms::policy::Attributes;
use tidegate_algorithms::time::Wall;
use tidegate_control::{Author, Change, Configuration, Control, Kind, Layers, Limits, Services, Snapshot};
use tidegate_limiter::answers::Door;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::{Ask, Demand, Engine};
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

const CANDIDATE: Kind = Kind::new("candidate");

fn author() -> Author {
    Author { actor: "test".to_owned(), at: Wall(1), from: None }
}

/// An engine whose candidate allows each client two units a day, and its configuration.
async fn judging() -> (TempDir, Arc<Engine>, Configuration) {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
    let memory = Memory::new(16 << 20);
    let engine = Arc::new(Engine::new(set, tallies, Counters::Memory(memory), Clock::start()));
    let services = Services::default().with(Policies::new(engine.clone()));
    let configuration = Configuration::start(control, services, &Layers::default());
    let two = json!({"policy": [{"name": "two", "algorithm": "sliding_log", "limit": 2, "window_seconds": 86400,
        "key": ["client_id"]}]});
    let put = Change::put(CANDIDATE, "candidate", two.to_string());
    configuration.change(put, author()).await.unwrap();
    (data, engine, configuration)
}

fn differences(engine: &Engine) -> Value {
    engine.candidate_limits().unwrap().to_json()["by_difference"].clone()
}

#[tokio::test]
async fn demands_that_are_decided_together_are_judged_together() {
    let (_data, engine, _configuration) = judging().await;
    let pairs = [("client_id", &b"a"[..])];
    let demand = || Demand { attributes: Attributes::new(&pairs), cost: 1, given_back: 0, own: None };
    for _ in 0..2 {
        let decisions = engine.decide_together(&[demand(), demand()]).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.allowed));
    }
    assert_eq!(differences(&engine), json!({"same": 1, "would_limit": 1, "would_allow": 0}));
    let found = engine.candidate_limits().unwrap().to_json();
    assert_eq!(
        (&found["examples"][0]["protocol"], &found["examples"][0]["policy"]),
        (&json!("grpc"), &json!("two"))
    );
}

#[tokio::test]
async fn units_that_come_back_come_back_to_the_candidate_and_it_leaves_nothing() {
    let (_data, engine, configuration) = judging().await;
    let pairs = [("client_id", &b"a"[..])];
    let ask = |cost| Ask {
        attributes: Attributes::new(&pairs),
        cost,
        peek: false,
        can_release: false,
        door: Door::Http,
    };
    assert!(engine.decide(&ask(2)).await.unwrap().allowed);
    engine.refund(&ask(1)).await.unwrap();
    assert!(engine.decide(&ask(1)).await.unwrap().allowed);
    assert_eq!(differences(&engine), json!({"same": 2, "would_limit": 0, "would_allow": 0}));
    // What asks without spending is judged by nobody.
    assert!(engine.decide(&ask(0)).await.unwrap().allowed);
    assert!(engine.decide(&ask(1)).await.unwrap().allowed);
    assert_eq!(differences(&engine), json!({"same": 2, "would_limit": 1, "would_allow": 0}));
    configuration.change(Change::delete(CANDIDATE, "candidate"), author()).await.unwrap();
    assert!(engine.candidate_limits().is_none());
}
