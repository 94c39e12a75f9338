//! Who is denied, and by what: which policy is named, and what counts as a request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_algorithms::policy::{Attributes, parse, parse_sources};
use tidegate_control::Snapshot;
use tidegate_limiter::answers::Door;
use tidegate_limiter::connections::ServedConnection;
use tidegate_limiter::engine::{Ask, Demand, Engine};
use tidegate_limiter::policy_set::{AttributeSources, FileLayer, PolicySet};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;
use tokio::runtime::Runtime;

fn engine(policies: &[Value]) -> Arc<Engine> {
    engine_with(policies, AttributeSources::default())
}

fn engine_with(policies: &[Value], sources: AttributeSources) -> Arc<Engine> {
    let policies = policies.iter().map(|policy| parse(policy, "").unwrap()).collect();
    let (file, tallies) = (FileLayer { policies, sources, ..FileLayer::default() }, Tallies::default());
    let set = PolicySet::assemble(Arc::new(file), Snapshot::default(), &tallies);
    Arc::new(Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start()))
}

/// Each listed client with its denials, and what it asked in the last minute: allowed and denied.
fn listed(engine: &Engine) -> Vec<(String, u64, u64, u64)> {
    let listed = engine.denied_clients().list(engine.clock().tick()).into_iter().map(|it| {
        let minute = it.last_minute.unwrap();
        (String::from_utf8_lossy(&it.client).into_owned(), it.denied, minute.allowed, minute.denied)
    });
    listed.collect()
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

#[test]
fn a_client_that_several_descriptors_of_a_request_name_is_counted_once() {
    let engine =
        engine(&[json!({"name": "none", "limit": 0, "window_seconds": 600, "match": {"path": "/x*"}})]);
    let ask = |named: &[[&str; 2]]| {
        let pairs: Vec<_> = named
            .iter()
            .map(|[client, path]| [("client_id", client.as_bytes()), ("path", path.as_bytes())])
            .collect();
        let demands: Vec<_> = pairs
            .iter()
            .map(|pairs| Demand { attributes: Attributes::new(pairs), cost: 1, given_back: 0, own: None })
            .collect();
        let decisions = runtime().block_on(engine.decide_together(&demands)).unwrap();
        decisions.iter().all(|decision| decision.allowed)
    };
    assert!(!ask(&[["a", "/y"], ["a", "/x1"], ["a", "/x2"], ["b", "/x1"]]));
    let each_once = [("a".to_owned(), 1, 0, 1), ("b".to_owned(), 1, 0, 1)];
    assert_eq!(listed(&engine), each_once);
    assert!(ask(&[["a", "/y"], ["a", "/z"]]));
    assert_eq!(listed(&engine)[0], ("a".to_owned(), 1, 1, 1));
}

#[test]
fn bytes_that_wait_are_no_denied_requests() {
    let engine = engine(&[
        json!({"name": "bytes", "algorithm": "token_bucket", "limit": 10, "burst": 10, "window_seconds": 3_600}),
        json!({"name": "none", "limit": 0, "window_seconds": 600}),
    ]);
    let (bytes, none) = ([Arc::<str>::from("bytes")], [Arc::<str>::from("none")]);
    let connection = ServedConnection {
        listener: "127.0.0.1:1",
        app: "shop",
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        server_name: None,
        country: None,
        region: None,
    };
    let take = || runtime().block_on(engine.take_units(&bytes, &connection, 10)).units;
    assert_eq!([take(), take(), take()], [10, 0, 0]);
    assert!(listed(&engine).is_empty(), "{:?}", listed(&engine));
    let (decision, _) = runtime().block_on(engine.decide_connection(&none, &connection)).unwrap();
    assert!(!decision.allowed);
    assert_eq!(listed(&engine), [("127.0.0.1".to_owned(), 1, 0, 1)]);
}

#[test]
fn the_list_shows_no_credential_that_a_policy_is_keyed_on() {
    let gateway = json!({
        "session": {"cookie": "sid"}, "bearer": {"header": "Authorization"},
        "key": {"header": "x-api-key"}, "tenant": {"header": "x-tenant"},
    });
    let (_, forms) = AttributeSources::PROTOCOLS[2];
    let sources = AttributeSources {
        gateway: parse_sources(&gateway, "", forms).unwrap(),
        ..AttributeSources::default()
    };
    for (name, value, shown) in [
        ("tenant", &b"t 1"[..], Some("tenant=t+1")),
        ("stated", b"secret", Some("stated=secret")),
        ("session", b"secret", None),
        ("bearer", b"secret", None),
        ("key", b"secret", None),
        ("tenant", b"\xff", None),
    ] {
        let policy = json!({"name": "none", "limit": 0, "window_seconds": 600, "key": ["client_id", name]});
        let engine = engine_with(&[policy], sources.clone());
        let pairs = [("client_id", &b"c"[..]), (name, value)];
        let attributes = Attributes::new(&pairs);
        let ask = Ask { attributes, cost: 1, peek: false, can_release: false, door: Door::Gateway };
        assert!(!runtime().block_on(engine.decide(&ask)).unwrap().allowed);
        let listed = engine.denied_clients().list(engine.clock().tick());
        assert_eq!(listed[0].policy.as_deref(), Some("none"), "{name}");
        assert_eq!(listed[0].attributes.as_deref(), shown, "{name}");
    }
}
