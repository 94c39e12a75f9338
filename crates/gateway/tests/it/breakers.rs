//! Breakers of routes beside those of upstreams: whom they keep out, what is said of them, and what ends their pause.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::support::{Backend, PATIENCE, TestGateway, config, reply, status};
use serde_json::{Value, json};
use tidegate_algorithms::breaker::Phase;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_net::clock::monotonic;

/// Opens after two failures, for longer than anybody waits here.
fn opens_at_once() -> Value {
    json!({"calls": 2, "minimum_calls": 2, "failure_percent": 100, "first_open_seconds": 3600, "open_seconds": 3600, "slow_seconds": 3600, "trials": 1})
}

fn start(upstream: &Value, routes: &Value) -> TestGateway {
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(json!([upstream]), routes.clone()))
}

fn of_routes(gateway: &TestGateway) -> Vec<(String, Phase)> {
    gateway.gateway.route_breakers().into_iter().map(|(name, phase)| (name.to_string(), phase)).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_routes_breaker_keeps_its_own_requests_out_and_no_others() {
    let backend = Backend::start(|got| reply(if got.line.contains("/bad") { 500 } else { 200 }, &[], ""));
    let upstream =
        json!({"name": "app", "servers": [backend.url()], "breaker": {"enabled": false}, "eject_after": 0});
    let routes = |body: u64| {
        json!([
            {"name": "shop", "path": "/shop/*", "upstream": "app", "breaker": opens_at_once()},
            {"name": "rest", "upstream": "app", "max_body_bytes": body}
        ])
    };
    let gateway = start(&upstream, &routes(1));
    assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Closed)], "the other route has none");
    let bad: Vec<u16> = (0..4).map(|_| status(&gateway.get("/shop/bad"))).collect();
    assert_eq!(bad, [500, 500, 503, 503]);
    assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Open)]);
    assert_eq!((status(&gateway.get("/shop/good")), status(&gateway.get("/good"))), (503, 200));
    assert_eq!(status(&gateway.get("/bad")), 500, "the other route's failures are its server's own");
    assert_eq!(backend.got().len(), 4, "who is kept out reaches no server");
    // A change of another route closes nothing.
    gateway.apply(&config(json!([upstream]), routes(2)));
    assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Open)]);
}

#[test]
fn a_routes_breaker_stays_open_when_its_upstream_or_another_setting_of_the_route_changes() {
    let backend = Backend::start(|got| reply(if got.line.contains("/bad") { 500 } else { 200 }, &[], ""));
    let joined = Backend::named("joined");
    let upstreams = |servers: Value| {
        let off = json!({"enabled": false});
        json!([
            {"name": "app", "servers": servers, "breaker": off, "eject_after": 0},
            {"name": "other", "servers": [joined.url()], "breaker": off}
        ])
    };
    let route = |upstream: &str, body: u64, breaker: Value| {
        let shop = json!({"name": "shop", "upstream": upstream, "max_body_bytes": body, "breaker": breaker});
        json!([shop])
    };
    let alone = upstreams(json!([backend.url()]));
    let before = config(alone, route("app", 1, opens_at_once()));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &before);
    let bad: Vec<u16> = (0..3).map(|_| status(&gateway.get("/bad"))).collect();
    assert_eq!(bad, [500, 500, 503]);
    let heavier = upstreams(json!([{"url": backend.url(), "weight": 3}]));
    let more = upstreams(json!([{"url": backend.url(), "weight": 3}, joined.url()]));
    for (what, upstreams, body) in
        [("a weight", heavier, 1), ("a server joins", more.clone(), 1), ("the route", more.clone(), 2)]
    {
        gateway.apply(&config(upstreams, route("app", body, opens_at_once())));
        assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Open)], "{what}");
        assert_eq!(status(&gateway.get("/good")), 503, "{what}");
    }
    // Who sends requests elsewhere begins anew, and so does who judges by another rule.
    gateway.apply(&config(more.clone(), route("other", 2, opens_at_once())));
    assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Closed)]);
    let alone = upstreams(json!([backend.url()]));
    gateway.apply(&config(alone, route("app", 2, opens_at_once())));
    let bad: Vec<u16> = (0..3).map(|_| status(&gateway.get("/bad"))).collect();
    assert_eq!(bad, [500, 500, 503]);
    let mut other_rule = opens_at_once();
    other_rule["first_open_seconds"] = json!(3599);
    gateway.apply(&config(more, route("app", 2, other_rule)));
    assert_eq!(of_routes(&gateway), [("shop".to_owned(), Phase::Closed)]);
}

#[test]
fn a_check_that_passes_lets_trials_through_the_upstreams_breaker_and_those_of_its_routes() {
    let is_good = Arc::new(AtomicBool::new(false));
    let backend = {
        let is_good = Arc::clone(&is_good);
        Backend::start(move |_| reply(if is_good.load(SeqCst) { 200 } else { 500 }, &[], ""))
    };
    let check = json!({"path": "/health", "interval_seconds": 0.01, "timeout_seconds": 60});
    let (other, breaker) = (Backend::start(|_| reply(500, &[], "")), opens_at_once());
    let upstreams = json!([
        {"name": "app", "servers": [backend.url()], "breaker": breaker, "check": check, "eject_after": 0},
        {"name": "other", "servers": [other.url()], "breaker": {"enabled": false}, "eject_after": 0}
    ]);
    let routes = json!([
        {"name": "shop", "path": "/shop", "upstream": "app", "breaker": breaker},
        {"name": "other", "path": "/other", "upstream": "other", "breaker": breaker}
    ]);
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, routes));
    let of_upstream = || gateway.gateway.upstreams()[0].breaker.unwrap();
    let of_routes = || of_routes(&gateway).into_iter().map(|(_, phase)| phase).collect::<Vec<_>>();
    for path in ["/shop", "/other"] {
        let told: Vec<u16> = (0..3).map(|_| status(&gateway.get(path))).collect();
        assert_eq!(told, [500, 500, 503], "{path}");
    }
    assert_eq!((of_upstream(), of_routes()), (Phase::Open, vec![Phase::Open, Phase::Open]));
    is_good.store(true, SeqCst);
    until("trials may pass", || of_upstream() == Phase::HalfOpen && of_routes()[0] == Phase::HalfOpen);
    assert_eq!(status(&gateway.get("/shop")), 200);
    assert_eq!((of_upstream(), of_routes()), (Phase::Closed, vec![Phase::Closed, Phase::Open]));
    assert_eq!(status(&gateway.get("/other")), 503, "a check of one upstream says nothing of another");
}
