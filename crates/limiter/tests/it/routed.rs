//! Requests that a gateway routes: by which readings of a path a policy is found, and by which they are counted.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderMap;
use serde_json::json;
use tidegate_algorithms::policy::parse;
use tidegate_control::Snapshot;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::{FileLayer, PolicySet};
use tidegate_limiter::routed::{Proved, RoutedRequest};
use tidegate_limiter::tally::Tallies;
use tidegate_net::clock::Clock;
use tidegate_store::Counters;
use tidegate_store::memory::Memory;

#[test]
fn fault_54_a_path_with_two_readings_is_limited_as_either_and_counted_as_the_first() {
    let policies = [
        json!({"name": "pay", "limit": 2, "window_seconds": 3600, "match": {"path": "/pay/*"}, "key": ["ip"]}),
        json!({"name": "each", "limit": 1, "window_seconds": 3600, "key": ["path"]}),
    ];
    let policies = policies.iter().map(|policy| parse(policy, "").unwrap()).collect();
    let (file, tallies) = (FileLayer { policies, ..FileLayer::default() }, Tallies::default());
    let set = PolicySet::assemble(Arc::new(file), Snapshot::default(), &tallies);
    let engine = Arc::new(Engine::new(set, tallies, Counters::Memory(Memory::new(1 << 20)), Clock::start()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (fields, names) = (HeaderMap::new(), ["pay", "each"].map(Arc::from));
    let ask = |path: &str, other_path: Option<&str>| {
        let request = RoutedRequest {
            route: "all",
            method: "GET",
            host: "shop.example",
            path,
            other_path,
            query: "",
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            fields: &fields,
            tls_name: None,
            proved: Proved::default(),
        };
        let (decision, _permit) = runtime.block_on(engine.decide_routed(&names, &request)).unwrap();
        let applied: Vec<&str> = decision.parts.iter().map(|part| &*part.policy).collect();
        (decision.allowed, applied.join(" "))
    };
    let of = |allowed: bool, applied: &str| (allowed, applied.to_owned());
    assert_eq!(ask("/x%2F1", Some("/x/1")), of(true, "each"));
    assert_eq!(ask("/x/1", None), of(true, "each"), "another path has another counter");
    assert_eq!(ask("/x%2F1", Some("/x/1")), of(false, "each"), "one path has one");
    assert_eq!(ask("/pay%2F1", Some("/pay/1")), of(true, "pay each"));
    assert_eq!(ask("/pay/2", None), of(true, "pay each"));
    let (allowed, applied) = ask("/a%2F..%2Fpay%2F3", Some("/pay/3"));
    assert_eq!((allowed, applied.contains("pay")), (false, true), "the third");
}
