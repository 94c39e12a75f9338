//! Changes of the configuration: what is set aside, what is refused, who overtakes whom.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};

use serde_json::json;
use tempfile::TempDir;
use tidegate_algorithms::policy::parse;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, ChangeError, Configuration, Control, Layers, Limits, MAX_WAITING, Parts, Services,
    Snapshot,
};
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::{FileLayer, MAX_POLICIES, OVERRIDE, POLICY, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

fn author() -> Author {
    Author { actor: "test".to_owned(), at: Wall(1), from: None }
}

/// An engine with its configuration, without a server.
fn configuration() -> (TempDir, Arc<Engine>, Configuration) {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let tallies = Tallies::default();
    let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
    let memory = Memory::new(16 << 20);
    let engine = Arc::new(Engine::new(set, tallies, Counters::Memory(memory), Clock::start()));
    let services = Services::default().with(Policies::new(engine.clone()));
    let configuration = Configuration::start(control, services, &Layers::default());
    (data, engine, configuration)
}

fn own_limit(client: &str, limit: u64) -> Change {
    Change::put(OVERRIDE, client, json!({"default": {"limit": limit}}).to_string())
}

#[tokio::test]
async fn a_change_is_in_force_though_its_client_has_left() {
    let (_data, engine, configuration) = configuration();
    {
        let left = pin!(configuration.change(own_limit("c", 7), author()));
        // Asked for, and given up.
        assert!(left.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // Comes after it, so that it is made by then. Nobody follows other nodes here.
    configuration.change(own_limit("d", 8), author()).await.unwrap();
    let set = engine.set();
    assert_eq!(set.revision().0, 2);
    assert_eq!(set.client_quota("c", "default").unwrap().0.spec.limit, 7);
}

#[tokio::test]
async fn changes_that_wait_are_stored_together_and_refused_alone() {
    let (_data, engine, configuration) = configuration();
    let configuration = Arc::new(configuration);
    let (entered, is_entered) = mpsc::sync_channel(1);
    let (release, is_released) = mpsc::sync_channel::<()>(1);
    let is_released = std::sync::Mutex::new(is_released);
    let held = {
        let configuration = configuration.clone();
        tokio::spawn(async move {
            let edit = move |_: &Parts| {
                entered.send(()).unwrap();
                is_released.lock().unwrap().recv().unwrap();
                Ok(None)
            };
            configuration.edit(author(), edit).await
        })
    };
    tokio::task::spawn_blocking(move || is_entered.recv().unwrap()).await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..20_u64 {
        let client = format!("c{number}");
        let limit = if number == 5 { 5_000_000_000 } else { number };
        let configuration = configuration.clone();
        waiting.push(tokio::spawn(
            async move { configuration.change(own_limit(&client, limit), author()).await },
        ));
    }
    while configuration.stats().waiting < 20 {
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    held.await.unwrap().unwrap();
    for (number, change) in waiting.into_iter().enumerate() {
        let outcome = change.await.unwrap();
        assert_eq!(matches!(outcome, Err(ChangeError::Mistakes(_))), number == 5, "{outcome:?}");
    }
    let stats = configuration.stats();
    assert_eq!((stats.stored, stats.transactions, stats.waiting), (19, 1, 0));
    assert_eq!(engine.set().client_quota("c19", "default").unwrap().0.spec.limit, 19);
}

#[tokio::test]
async fn too_many_that_wait_are_turned_away() {
    let (_data, _engine, configuration) = configuration();
    let (release, is_released) = mpsc::sync_channel::<()>(1);
    let is_released = std::sync::Mutex::new(is_released);
    let (entered, is_entered) = mpsc::sync_channel(1);
    let edit = move |_: &Parts| {
        entered.send(()).unwrap();
        is_released.lock().unwrap().recv().unwrap();
        Ok(None)
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut held = Box::pin(configuration.edit(author(), edit));
    assert!(held.as_mut().poll(&mut context).is_pending());
    is_entered.recv().unwrap();
    for _ in 0..MAX_WAITING {
        let waiting = pin!(configuration.edit(author(), |_| Ok(None)));
        assert!(waiting.poll(&mut context).is_pending());
    }
    let turned_away = configuration.edit(author(), |_| Ok(None)).await;
    assert!(matches!(turned_away, Err(ChangeError::TooManyWaiting)));
    assert_eq!(configuration.stats().turned_away, 1);
    release.send(()).unwrap();
    held.await.unwrap();
}

#[test]
fn policies_beyond_the_bound_are_set_aside() {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let mut snapshot = Snapshot::default();
    let body = |name: &str| json!({"name": name, "limit": 1, "window_seconds": 1}).to_string();
    let names: Vec<_> = (0..MAX_POLICIES).map(|number| format!("p{number:05}")).collect();
    for names in names.chunks(tidegate_control::MAX_CHANGES) {
        let changes: Vec<_> = names.iter().map(|name| Change::put(POLICY, &**name, body(name))).collect();
        control.apply(&changes, &author()).unwrap();
        snapshot = Snapshot::clone(&control.snapshot());
    }
    let tallies = Tallies::default();
    // The built-in policy takes one place, so one stored policy is too many.
    let set = PolicySet::assemble(Arc::default(), snapshot.clone(), &tallies);
    assert_eq!((set.policies().len(), set.set_aside_count()), (MAX_POLICIES, 1));
    let declared = FileLayer {
        policies: vec![parse(&json!({"name": "p00000", "limit": 9, "window_seconds": 9}), "").unwrap()],
        ..FileLayer::default()
    };
    let set = PolicySet::assemble(Arc::new(declared), snapshot, &tallies);
    assert_eq!((set.policies().len(), set.set_aside_count()), (MAX_POLICIES, 0));
    assert_eq!(set.hidden().count(), 1);
}
