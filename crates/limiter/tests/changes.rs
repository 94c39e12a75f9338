//! Changes of the configuration: what is set aside, what is refused, who overtakes whom.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;

use serde_json::{Value, json};
use support::{Running, start, start_in, start_with};
use tempfile::TempDir;
use tidegate_algorithms::policy::parse;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Change, ChangeError, Configuration, Control, Kind, Layers, Limits, MAX_WAITING, Parts, Services,
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
    Author { actor: "test".to_owned(), at: Wall(1) }
}

/// A data directory with these documents, put there unchecked.
fn stored(documents: &[(Kind, &str, Value)]) -> TempDir {
    let data = tempfile::tempdir().unwrap();
    let control = Control::open(data.path(), Limits::default()).unwrap();
    let changes: Vec<_> =
        documents.iter().map(|(kind, name, body)| Change::put(*kind, *name, body.to_string())).collect();
    control.apply(&changes, &author()).unwrap();
    data
}

fn file(documents: &[Value]) -> FileLayer {
    let policies = documents.iter().map(|document| parse(document, "").unwrap()).collect();
    FileLayer { policies, ..FileLayer::default() }
}

fn set_aside(service: &Running) -> Vec<String> {
    let listed = service.get("/v1/set-aside").body;
    let document = |it: &Value| format!("{} {}", it["kind"].as_str().unwrap(), it["name"].as_str().unwrap());
    listed["set_aside"].as_array().unwrap().iter().map(document).collect()
}

fn remaining(service: &Running, client: &str) -> Value {
    let ask = json!({"client_id": client, "resource": "r"}).to_string();
    service.post("/api/v1/ratelimit", &ask).body["remaining"].clone()
}

#[test]
fn fault_57_what_does_not_fit_is_set_aside_and_the_rest_is_in_force() {
    let data = stored(&[
        (POLICY, "broken", json!({"name": "broken", "limit": -1, "window_seconds": 1})),
        (POLICY, "alias", json!({"name": "default", "limit": 1, "window_seconds": 1})),
        // More than the sliding log of the built-in policy takes.
        (OVERRIDE, "vip", json!({"default": {"limit": 1_000_000, "window_seconds": 60}})),
        (OVERRIDE, "half", json!({"default": {"limit": 7}, "gone": {"limit": 1}})),
        (OVERRIDE, "list", json!([1])),
    ]);
    let service = start_in(data, FileLayer::default(), None);
    let expected = ["override half", "override list", "override vip", "policy alias", "policy broken"];
    assert_eq!(set_aside(&service), expected);
    let listed = service.get("/v1/set-aside").body;
    let mistake = listed["set_aside"][2]["mistakes"][0].as_str().unwrap();
    assert!(mistake.starts_with("/override/vip/default/limit is 1000000"), "{mistake}");
    assert_eq!(remaining(&service, "vip"), 99, "as everyone");
    assert_eq!(remaining(&service, "half"), 6, "the part that fits is in force");

    // One part is mended; the other, which nobody touched, is no reason to refuse that.
    let own = r#"{"client_id":"half","window_seconds":60,"request_per_window":9}"#;
    assert_eq!(service.post("/api/v1/configure-client", own).status, 200);
    assert_eq!(service.put("/v1/clients/half/limits", r#"{"default":{"limit":5}}"#).status, 200);
    assert_eq!(service.put("/v1/policies/broken", r#"{"limit":1,"window_seconds":1}"#).status, 200);
    for path in ["/v1/policies/alias", "/v1/clients/list/limits", "/v1/clients/vip/limits"] {
        assert_eq!(service.delete(path).status, 204, "{path}");
    }
    assert_eq!(set_aside(&service), [""; 0]);
}

#[test]
fn fault_57_an_override_of_a_policy_that_is_not_there_is_refused() {
    let service = start_with(file(&[json!({"name": "api", "limit": 5, "window_seconds": 60})]), None);
    let own = r#"{"client_id":"vip","window_seconds":60,"request_per_window":1000000}"#;
    let answer = service.post("/api/v1/configure-client", own);
    // The simple API's documents name no policy, so there is no field to point at.
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("")));
    let answer = service.put("/v1/clients/vip/limits", r#"{"api":{"limit":6},"apy":{"limit":6}}"#);
    assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!("/apy")));
    assert_eq!(service.get("/v1/clients/vip/limits").status, 404, "nothing is stored");
}

#[test]
fn fault_57_a_change_that_would_set_aside_what_is_in_force_is_refused() {
    let service = start();
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":5,"window_seconds":60}"#).status, 200);
    assert_eq!(service.put("/v1/clients/vip/limits", r#"{"api":{"window_seconds":30}}"#).status, 200);
    let slots = r#"{"algorithm":"concurrency","limit":5}"#;
    let answer = service.put("/v1/policies/api", slots);
    // The mistake is in another document than the one that was sent, so words say where.
    let mistake = &answer.body["errors"][0];
    assert_eq!((answer.status, &mistake["pointer"]), (422, &json!("")));
    let detail = mistake["detail"].as_str().unwrap();
    assert!(detail.starts_with("/override/vip/api/window_seconds "), "{detail}");
    // Without the policy, the override waits for its return.
    assert_eq!(service.delete("/v1/policies/api").status, 204);
    assert_eq!(set_aside(&service), ["override vip"]);
    assert_eq!(service.put("/v1/policies/api", slots).status, 422);
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":6,"window_seconds":60}"#).status, 200);
    assert_eq!(set_aside(&service), [""; 0]);
}

#[test]
fn fault_20_two_writers_of_one_document_lose_nothing() {
    const ROUNDS: u64 = 25;
    let service = Arc::new(start());
    assert_eq!(service.put("/v1/policies/api", r#"{"limit":5,"window_seconds":60}"#).status, 200);
    let other = {
        let service = service.clone();
        thread::spawn(move || {
            for limit in 1..=ROUNDS {
                let own = json!({"client_id": "c", "window_seconds": 60, "request_per_window": limit});
                assert_eq!(service.post("/api/v1/configure-client", &own.to_string()).status, 200);
            }
        })
    };
    for limit in 1..=ROUNDS {
        // The second part is whatever is there.
        loop {
            let found = service.get("/v1/clients/c/limits");
            let mut document = if found.status == 200 { found.body.clone() } else { json!({}) };
            document["api"] = json!({ "limit": limit });
            let tag = if found.status == 200 { found.header("etag") } else { "\"0\"" };
            let headers = [("content-type", "application/json"), ("if-match", tag)];
            let body = document.to_string();
            let answer = service.send("PUT", "/v1/clients/c/limits", &headers, Some(body.as_bytes()));
            if answer.status == 200 {
                break;
            }
            assert_eq!(answer.status, 412, "{}", answer.body);
        }
    }
    other.join().unwrap();
    let log = service.get("/v1/audit?limit=1000").body;
    let mut changes = 0;
    for row in log.as_array().unwrap().iter().filter(|row| row["kind"] == "override") {
        let part = |side: &str, policy: &str| row[side][policy]["limit"].as_u64().unwrap_or(0);
        let moved = |policy: &str| part("after", policy) - part("before", policy);
        // Each change moves one part by one, and leaves the other as it was.
        assert_eq!(moved("default") + moved("api"), 1, "{row}");
        changes += 1;
    }
    assert_eq!(changes, 2 * ROUNDS);
}

#[test]
fn a_refused_policy_leaves_no_series() {
    let service = start();
    assert_eq!(service.put("/v1/policies/refused", r#"{"limit":-1,"window_seconds":60}"#).status, 422);
    let headers = [("content-type", "application/json"), ("if-match", "\"7\"")];
    let body = br#"{"limit":1,"window_seconds":60}"#;
    assert_eq!(service.send("PUT", "/v1/policies/refused", &headers, Some(body)).status, 412);
    let counted = service.engine.tallies().read();
    assert_eq!(counted.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["default"]);
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
